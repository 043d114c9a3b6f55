"""The log of what becomes of occurrences and runs: one line each, with the ids that it is about (contract 5.10, 6.6)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from wfctl.core.instants import format_instant
from wfctl.core.model import FINISHED, Status, run_name
from wfctl.core.reasons import phrase
from wfctl.operations.context import Context
from wfctl.store.ledger import definitions, occurrences, runs
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.plain_ends import Unended
from wfctl.supervisor import logs

LOG = logging.getLogger("wfctl.supervisor")
AT_ONCE = 1000  #: lines in one look; of more that were settled, only the number is said
_LEVELS = {Status.PREFLIGHT_REJECTED: logging.WARNING, Status.FAILED: logging.WARNING, Status.EXHAUSTED: logging.WARNING}
_PASSED_BY = frozenset({Status.SKIPPED_MISFIRE, Status.COALESCED})


@dataclass(frozen=True, slots=True)
class Passed:
    """How many instants a look found that were passed by: missed, or replaced by a newer one."""

    count: int = 0
    is_exact: bool = True

    @property
    def words(self) -> str:
        """How many, in words."""
        least = "" if self.is_exact else "at least "
        return f"{least}{self.count} instant{'' if self.count == 1 and self.is_exact else 's'} missed"


class Narrator:
    """Tells the log what was recorded. Occurrences are read from the ledger, so that it matters not who settled them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names: dict[int, str] = {}
        self._seen: tuple[int, int] | None = None
        with context.ledger.reading() as connection:
            self._place = occurrences.last_place(connection)

    def admitted(self, admitted: Sequence[runs.NewRun]) -> None:
        """Say which occurrences became runs; to be called once those are launched."""
        self._get_to_know(admitted)
        with logs.together():
            for run in admitted:
                assert run.instant is not None and run.schedule is not None
                name, run_id = self._name(run.schedule), run_name(run.number)
                late = max(0.0, (run.admitted_at - run.instant).total_seconds())
                logs.tell(LOG, f"{name} admitted {run_id}, late {late:.1f}s", partial(self._of_admitted, run))

    def _of_admitted(self, run: runs.NewRun) -> dict[str, Any]:
        assert run.instant is not None and run.schedule is not None
        extra = {"action": "occurrence_admitted", "to": Status.ADMITTED.value, "run": run_name(run.number)}
        return extra | {
            "schedule": self._name(run.schedule),
            "occurrence": format_instant(run.instant),
            "revision": run.revision,
        }

    def transition(self, run: runs.RunRow | Unended, status: Status) -> None:
        """Say that a run, still with its status before, has changed."""
        if status not in FINISHED or status is Status.COMPLETED:
            logs.tell(LOG, f"{run.id} is {status.value}", partial(self._of_transition, run, status))
            return
        ended = runs.find(self._context.ledger.connection, run.number)
        reason = None if ended is None else ended.reason
        extra = self._of_transition(run, status) | {"reason": (reason or {}).get("code")}
        said = f": {phrase(reason)}" if reason else ""
        LOG.log(_LEVELS.get(status, logging.INFO), "%s is %s%s", run.id, status.value, said, extra=extra)

    def _of_transition(self, run: runs.RunRow | Unended, status: Status) -> dict[str, Any]:
        extra: dict[str, Any] = {"action": f"run_{status.value}", "run": run.id, "from": run.status.value, "to": status.value}
        if run.schedule is not None and run.instant is not None:
            extra |= {"schedule": self._name(run.schedule), "occurrence": format_instant(run.instant), "revision": run.revision}
        return extra

    def look(self, jump: str | None) -> None:
        """Say what was settled without a run since the last look, and by how much the clock jumped, if it did.

        To be called after the launches of a round.
        """
        passed = self._settled()
        if jump is not None:
            missed = ", ".join(["", passed.words]) if passed.count else ""
            LOG.info("clock jumped %s%s", jump, missed, extra={"action": "clock_jumped"})

    def _settled(self) -> Passed:
        ledger = self._context.ledger
        seen = (ledger.commits, int(ledger.connection.execute("PRAGMA data_version").fetchone()[0]))
        if seen == self._seen:
            return Passed()
        with ledger.reading() as connection:
            rows = occurrences.settled_after(connection, self._place, AT_ONCE + 1)
            last = occurrences.last_place(connection)
            left = occurrences.count_settled(connection, rows[AT_ONCE - 1].place) if len(rows) > AT_ONCE else 0
        for row in rows[:AT_ONCE]:
            self._say_settled(row)
        if left:
            extra = {"action": "occurrences_settled"}
            LOG.info("%d more occurrences were settled; `wfctl occurrences` lists them", left, extra=extra)
        self._seen, self._place = seen, last
        spans = [1 if row.span is None else row.span.count for row in rows[:AT_ONCE] if row.status in _PASSED_BY]
        return Passed(sum(count or 1 for count in spans) + left, is_exact=None not in spans and not left)

    def _say_settled(self, row: OccurrenceRow) -> None:
        name, instant = self._name(row.schedule), format_instant(row.instant)
        what = f"{name}@{instant}"
        if row.span is not None:
            count = "" if row.span.count is None else f", {row.span.count} instants"
            what = f"{name} from {format_instant(row.span.first)} to {instant}{count}"
        extra = {
            "action": f"occurrence_{row.status.value}",
            "schedule": name,
            "occurrence": instant,
            "revision": row.revision,
            "to": row.status.value,
            "reason": (row.reason or {}).get("code"),
        }
        said = f": {phrase(row.reason)}" if row.reason else ""
        LOG.log(_LEVELS.get(row.status, logging.INFO), "%s %s%s", what, row.status.value, said, extra=extra)

    def _get_to_know(self, admitted: Sequence[runs.NewRun]) -> None:
        """Read the names that are not known yet, in a few statements."""
        new = [run.schedule for run in admitted if run.schedule is not None and run.schedule not in self._names]
        if new:
            self._names |= definitions.names_of(self._context.ledger.connection, new)

    def _name(self, number: int) -> str:
        """Return the id of a schedule, which never changes."""
        name = self._names.get(number)
        if name is None:
            found = definitions.name_of(self._context.ledger.connection, number)
            name = self._names[number] = found or "?"
        return name
