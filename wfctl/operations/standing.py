"""What stands out: runs that wait for input or take too long, schedules whose runs fail (contract 6.8, 7.2, 7.8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from wfctl.core.model import Status
from wfctl.operations.listing import name_of
from wfctl.operations.views import Failing, Interrupted, Overdue
from wfctl.store.ledger import executions, health, past
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow

_MOST = 100  #: named of each


def interrupted(connection: sqlite3.Connection, unfinished: Sequence[RunRow]) -> list[Interrupted]:
    """Return the runs that wait for input, the one that has waited longest first."""
    found = [_asking(connection, run) for run in unfinished if run.status is Status.INTERRUPTED]
    return sorted(found, key=lambda each: each["since"])[:_MOST]


def _asking(connection: sqlite3.Connection, run: RunRow) -> Interrupted:
    message = (run.interrupt or {}).get("message")
    return Interrupted(
        run_id=run.id,
        schedule_id=_schedule_of(connection, run),
        since=_stopped_at(connection, run),
        message=None if message is None else str(message),
    )


def overdue(connection: sqlite3.Connection, unfinished: Sequence[RunRow]) -> Iterator[Overdue]:
    """Give the runs at work that have used up most of their limit."""
    late = [run for run in unfinished if run.is_overdue and run.status is not Status.INTERRUPTED]
    for run in late[:_MOST]:
        yield Overdue(
            run_id=run.id,
            schedule_id=_schedule_of(connection, run),
            since=run.attempt_at or run.started_at or run.admitted_at,
            max_run_s=None if run.max_run is None else run.max_run.total_seconds(),
        )


def failing(connection: sqlite3.Connection) -> list[Failing]:
    """Return the schedules whose last scheduled runs failed, the one that has failed for longest first."""
    found = sorted(health.failing(connection), key=lambda each: each[1].since)[:_MOST]
    return [
        Failing(
            schedule_id=name_of(connection, number),
            failures=trouble.count,
            since=trouble.since,
            run_id=past.last_failed(connection, number),
        )
        for number, trouble in found
    ]


def _schedule_of(connection: sqlite3.Connection, run: RunRow) -> str | None:
    return None if run.schedule is None else name_of(connection, run.schedule)


def _stopped_at(connection: sqlite3.Connection, run: RunRow) -> datetime:
    """Return when its last execution ended: since then it waits."""
    try:
        ended = [row.ended_at for row in executions.of_run(connection, run.number) if row.ended_at is not None]
    except UnreadableRow:
        ended = []
    return max(ended) if ended else run.attempt_at or run.admitted_at
