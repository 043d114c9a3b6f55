"""Taking a report in, and what follows from it: the next step, a retry, or the end of a run (contract 6.2, 6.5, 6.6)."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from wfctl.core import lifecycle
from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import FINISHED, Status, run_name, run_number
from wfctl.core.steps import Conclude, ExecutionEnd, Mark, decide_next, failure_of, is_interrupt
from wfctl.core.steps import Ended as How
from wfctl.errors import IoError
from wfctl.keeper.protocol import (
    Ended,
    NotLaunched,
    Refused,
    RefusedAt,
    Report,
    Started,
)
from wfctl.linux import USED_UP
from wfctl.operations import telling
from wfctl.operations.driving.plain_ends import PlainEnds
from wfctl.operations.driving.state import LARGEST_KEPT_OUTPUT, LOG, OF_THE_MACHINE, Launch
from wfctl.store import rundir
from wfctl.store.ledger import executions, runs, schedules
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.runs import RunRow


class Following(PlainEnds):
    """Writes down what was reported, and within the same transaction what follows from it."""

    def _take(self, report: Report) -> None:
        """Write down one report; a run whose records do not allow it is left alone, and the others are not (7.4)."""
        number = run_number(report.run)
        if number is None:
            self.on_other(report)
        elif number not in self.doubts.runs:
            with self.doubts.about(number):
                self._apply(report)

    def _write_down(self) -> None:
        """Write down what was reported, in a transaction of its own."""
        if not self._reports:
            return
        with self._recording():
            self._take_all()
        self._reports = []

    def _take_all(self) -> None:
        for report in self._settle_plain(self._reports):
            self._take(report)

    def _apply(self, report: Report) -> None:
        connection = self.context.ledger.connection
        number = run_number(report.run)
        row = executions.find(connection, number, report.k) if number is not None else None
        if row is None or row.how is not None:
            return
        if isinstance(report, Started):
            self._apply_started(row, report)
            return
        if isinstance(report, Refused) and report.what is RefusedAt.RECORD and report.errno == errno.EEXIST:
            self._settle_launched_before(row)
            return
        if isinstance(report, NotLaunched) or (isinstance(report, Refused) and _is_spare_gone(report)):
            self._settle_not_launched(row, self._time(report.at))
            return
        if isinstance(report, Refused):
            self._settle_refused(row, report)
            if report.what in OF_THE_MACHINE and report.errno in USED_UP:
                self.on_refused(report.errno)
        else:
            self._settle_ended(row, report)
        self._follow(row.run)

    def _settle_refused(self, row: ExecutionRow, report: Refused) -> None:
        connection, at = self.context.ledger.connection, self._time(report.at)
        if report.cause is not None:
            detail: dict[str, Any] = {"cause": dict(report.cause)}
            executions.settle(connection, row, how=How.ENDED_OUTSIDE, started_at=None, ended_at=at, detail=detail)
            return
        detail = {"errno": report.errno, "what": str(report.what)}
        if report.message is not None:
            detail["message"] = report.message
        executions.settle(connection, row, how=How.REFUSED, started_at=None, ended_at=at, detail=detail)

    def _settle_not_launched(self, row: ExecutionRow, at: datetime) -> None:
        """Within a transaction: it never was launched, which is proved; it is marked anew unless it is too late (6.10)."""
        connection = self.context.ledger.connection
        executions.settle(connection, row, how=How.NOT_LAUNCHED, started_at=None, ended_at=at)
        run = runs.find(connection, row.run)
        if run is not None and run.stop is None and self._is_too_late(run, row):
            self._conclude(run, Conclude(RunEvent.FAILED, {"code": "not-started", "k": row.k}), [])
        else:
            self._follow(row.run)

    def _settle_launched_before(self, row: ExecutionRow) -> None:
        """A keeper found its exit record there already: an earlier one was asked for it, and it is never repeated."""
        record = self._record_of(row)
        if isinstance(record, Ended):
            self._settle_ended(row, record)
        else:
            at = self.context.now()
            executions.settle(self.context.ledger.connection, row, how=How.ABANDONED, started_at=row.started_at, ended_at=at)
        self._follow(row.run)

    def _settle_ended(self, row: ExecutionRow, report: Ended) -> None:
        ended_at = self._time(report.ended_at)
        started_at = row.started_at or (report.started_at if self.context.clock.is_system else ended_at)
        executions.settle(
            self.context.ledger.connection,
            row,
            how=_how(report),
            started_at=started_at,
            ended_at=ended_at,
            exit_status=report.exit_status,
            signal=report.signal,
            cpu=timedelta(microseconds=report.cpu_us),
            max_rss_bytes=report.max_rss_bytes,
            left_behind=report.left_behind,
            detail=None if report.cause is None else {"cause": dict(report.cause)},
        )
        self._note_running(row.run, started_at)

    def _apply_started(self, row: ExecutionRow, report: Started) -> None:
        at = self._time(report.at)
        identity = {"pid": report.pid, "start_time": report.start_time, "boot": report.boot_id}
        executions.note_started(self.context.ledger.connection, row, started_at=at, identity=identity)
        run = self._note_running(row.run, at)
        live = self.live.get(row.run)
        if run is not None and live is not None:
            self._set_limits(live, run)
            timeout = self._steps_of(run)[row.step].timeout
            live.step_deadline = None if timeout is None else self.context.clock.monotonic() + timeout.total_seconds()

    def _settle_unknown(self, row: ExecutionRow, how: How) -> None:
        """Settle an execution of which nobody can tell an end; what that means for its run is the core's (6.10, 7.1)."""
        now = self.context.now()
        connection = self.context.ledger.connection
        with self._recording():
            executions.settle(connection, row, how=how, started_at=row.started_at, ended_at=now)
            run = runs.find(connection, row.run)
            if how is How.NOT_LAUNCHED and run is not None and self._is_too_late(run, row):
                end = Conclude(RunEvent.FAILED, {"code": "not-started", "k": row.k})
                self._conclude(run, end, [])
            else:
                self._follow(row.run)
        if how is How.ABANDONED:
            LOG.warning(
                "%s was abandoned: external effects may already have happened",
                run_name(row.run),
                extra={"action": "run_abandoned"},
            )

    def _is_too_late(self, run: RunRow, row: ExecutionRow) -> bool:
        """The first execution of a scheduled run is only launched late where its policy allows it (6.10)."""
        if row.k != 1 or run.schedule is None or run.instant is None or run.revision is None:
            return False
        definition, _ = self.context.schedule(run.schedule, run.revision)
        is_patient = definition.misfire.value == "latest" or definition.overlap.value == "queue"
        return not is_patient and self.context.now() - run.instant > definition.lateness

    def _follow(self, number: int) -> None:
        """Within a transaction, decide and record what a run without a living execution does next."""
        connection = self.context.ledger.connection
        run = runs.find(connection, number)
        if run is None or run.status in FINISHED or run.status is Status.INTERRUPTED:
            self._forget(number)
            return
        steps = self._steps_of(run)
        ends = self._ends_of(run)
        following = decide_next(
            steps, ends, attempt=run.attempt, resumed_step=run.resumed_step, max_steps=run.max_steps, stop=run.stop
        )
        if ends:
            self._keep_output(run, ends[-1], steps[ends[-1].step].name)
        if isinstance(following, Conclude):
            self._conclude(run, following, ends)
            return
        if not self._may_mark:
            return
        wait = timedelta(0)
        if following.not_before is not None:  # a clock that stepped back does not stretch the delay
            wait = min(following.not_before - self.context.now(), following.not_before - ends[-1].ended_at)
        if wait > timedelta(0):
            live = self._live_of(run, None, following.step)
            live.retry_at = self.context.clock.monotonic() + wait.total_seconds()
            self.live[number] = live
            return
        self._mark_next(run, following)

    def _mark_next(self, run: RunRow, following: Mark) -> None:
        connection = self.context.ledger.connection
        known = executions.of_run(connection, run.number)
        k = known[-1].k + 1 if known else 1
        note = self.mark_note(self.executor_of(run))
        executions.mark(connection, [(run.number, k, following.step, run.attempt)], note)
        self._launches.append(Launch(run.number, k, following.step))

    def _ends_of(self, run: RunRow) -> list[ExecutionEnd]:
        """Return the settled executions, the last one with what its files say; earlier ones are decided."""
        ends = executions.ends(executions.of_run(self.context.ledger.connection, run.number))
        if not ends or ends[-1].how is not How.EXITED:
            return ends
        paths = self.context.layout.run(run.id)
        interrupt = rundir.read_interrupt(paths, ends[-1].k)
        output = rundir.read_output(paths, ends[-1].k)
        ends[-1] = replace(
            ends[-1],
            interrupt=interrupt.value if interrupt.is_there and interrupt.problem is None else None,
            output_problem=output.problem,
        )
        return ends

    def _keep_output(self, run: RunRow, end: ExecutionEnd, step: str) -> None:
        """The output of the last step that wrote one is the run's (6.5)."""
        if failure_of(end, step) is not None and not is_interrupt(end):
            return
        output = rundir.read_output(self.context.layout.run(run.id), end.k)
        if not output.is_there or output.problem is not None:
            return
        text = json.dumps(output.value, ensure_ascii=False, separators=(",", ":"))
        is_small = len(text) <= LARGEST_KEPT_OUTPUT
        fields = {"output": text if is_small else None, "output_k": None if is_small else end.k}
        runs.set_fields(self.context.ledger.connection, run.number, **fields)

    def _conclude(self, run: RunRow, end: Conclude, ends: Sequence[ExecutionEnd]) -> None:
        status = lifecycle.after(run.status, end.event)
        if status is None:
            return
        connection = self.context.ledger.connection
        now = self.context.now()
        self._write_checkpoint(run, status, ends)
        fields: dict[str, Any] = {"reason": end.reason, "interrupt": end.interrupt}
        if status is not Status.INTERRUPTED:
            fields["ended_at"] = ends[-1].ended_at if ends and run.stop is None else now
        if not runs.change_status(connection, run, status, **fields):
            return
        self._show(run, status)
        telling.note_run(self.context, run, status, reason=end.reason, interrupt=end.interrupt)
        if run.schedule is not None:
            schedules.slot_freed(connection, run.schedule, now)
        self._forget(run.number)
        if self.outputs is not None:
            self.outputs.at_end(run.number)

    def _write_checkpoint(self, run: RunRow, status: Status, ends: Sequence[ExecutionEnd]) -> None:
        """Keep how far a stopped run came (6.5); before the commit, so that a run shown as stopped always has it."""
        paths = self.context.layout.run(run.id)
        if not ends or (status is Status.COMPLETED and rundir.last_checkpoint(paths, ends[-1].k) is None):
            return
        last = ends[-1]
        done = len({end.step for end in ends if end.attempt == run.attempt and failure_of(end, "") is None})
        kept = rundir.last_checkpoint(paths, last.k)
        try:
            digest = None if kept is None else rundir.checkpoint_digest(paths, kept)
            checkpoint = rundir.Checkpoint(attempt=run.attempt, k=last.k, steps_done=done, digest=digest)
            rundir.write_checkpoint(paths, self.context.disk, checkpoint)
        except (IoError, OSError) as error:
            LOG.warning("cannot write the checkpoint of %s: %s", run.id, error, extra={"action": "checkpoint_failed"})


def _is_spare_gone(report: Refused) -> bool:
    """Tell whether the directory that was made ahead was taken away: nothing was launched, and the next one is made anew."""
    return report.what is RefusedAt.RECORD and report.errno == errno.ENOENT and report.k == 1


def _how(report: Ended) -> How:
    if report.cause is not None:
        return How.UNKNOWN if report.cause.get("code") == "outcome-unknown" else How.ENDED_OUTSIDE
    return How.EXITED if report.exit_status is not None else How.SIGNALLED
