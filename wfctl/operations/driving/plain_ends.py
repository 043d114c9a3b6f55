"""The common end, for many runs at once: the one execution of a run exited with 0 and left nothing to read (contract 6.5, 6.6).

What is written is what `Following` writes for each of them, in a few statements for all. Whatever is not as plain is left to
it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence

from wfctl.core.model import Status, run_number
from wfctl.core.steps import is_done_by_first
from wfctl.errors import Blocked
from wfctl.keeper.protocol import Ended, Report
from wfctl.operations import telling
from wfctl.operations.driving.state import DriverState
from wfctl.store.ledger import health, plain_ends, runs, schedules
from wfctl.store.ledger.plain_ends import PlainEnd, Unended
from wfctl.store.ledger.rows import UnreadableRow

_SPEAKING = frozenset({"output", "interrupt", "checkpoint"})


class PlainEnds(DriverState):
    """Settles what ended plainly."""

    def _settle_plain(self, reports: Sequence[Report]) -> list[Report]:
        """Within a transaction, settle the plain ends among the reports, with all that follows; return the other reports."""
        ended = dict(self._candidates(reports))
        if not ended:
            return list(reports)
        connection = self.context.ledger.connection
        found = plain_ends.unended(connection, sorted(ended))
        plain = [self._end_of(row, ended[row.number]) for row in found if self._is_plain(row, ended[row.number])]
        if not plain:
            return list(reports)
        plain_ends.settle(connection, plain)
        self._follow_plain(connection, plain)
        settled = {each.run.id for each in plain}
        return [report for report in reports if report.k != 1 or report.run not in settled]

    def _candidates(self, reports: Iterable[Report]) -> Iterable[tuple[int, Ended]]:
        for report in reports:
            if isinstance(report, Ended) and report.k == 1 and report.exit_status == 0 and report.cause is None:
                number = run_number(report.run)
                if number is not None and number not in self.doubts.runs:
                    yield number, report

    def _end_of(self, row: Unended, report: Ended) -> PlainEnd:
        at = report.started_at if self.context.clock.is_system else self._time(report.ended_at)
        return PlainEnd(
            run=row,
            started_at=row.execution_started_at or at,
            ended_at=self._time(report.ended_at),
            cpu_us=report.cpu_us,
            max_rss_bytes=report.max_rss_bytes,
            left_behind=report.left_behind,
        )

    def _is_plain(self, row: Unended, report: Ended) -> bool:
        try:
            steps = self.context.deployment(row.deployment, row.deployment_revision)[0].steps
        except (UnreadableRow, Blocked):
            return False
        if not is_done_by_first(steps):
            return False
        if not report.speaks:
            return True
        try:
            return _SPEAKING.isdisjoint(os.listdir(f"{self.context.layout.runs}/{row.id}/1"))  # noqa: PTH208 - names only
        except OSError:
            return False

    def _follow_plain(self, connection: sqlite3.Connection, plain: Sequence[PlainEnd]) -> None:
        now = self.context.now()
        unwell = health.among(connection, [each.run.schedule for each in plain if each.run.schedule is not None])
        for each in plain:
            run = each.run
            if run.status is Status.ADMITTED:
                self.on_transition(run, Status.RUNNING)
                run = run._replace(status=Status.RUNNING)
            self.on_transition(run, Status.COMPLETED)
            if run.schedule in unwell:
                row = runs.find(connection, run.number)
                assert row is not None
                telling.note_run(self.context, row, Status.COMPLETED, reason=None)
            if run.schedule is not None and run.has_candidate:
                schedules.slot_freed(connection, run.schedule, now)
            self._forget(run.number)
            if self.outputs is not None:
                self.outputs.at_end(run.number)
