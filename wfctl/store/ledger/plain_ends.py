"""The runs whose first execution may have ended plainly: read and settled many at a time (contract 6.6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Status, run_name
from wfctl.core.steps import Ended
from wfctl.store.ledger.numbers import ENDED_NUMBER, STATUS_NUMBER, STATUS_OF

_AT_ONCE = 500  # numbers in one statement
_FIRST = (STATUS_NUMBER[Status.ADMITTED], STATUS_NUMBER[Status.RUNNING])


class Unended(NamedTuple):
    """A run whose first execution is not settled, and to which nothing else has happened yet."""

    number: int
    status: Status  #: admitted or running
    schedule: int | None
    instant: datetime | None
    revision: int | None
    deployment: int
    deployment_revision: int
    max_steps: int | None
    admitted_at: datetime
    started_at: datetime | None
    execution_started_at: datetime | None
    has_candidate: bool  #: its schedule holds an instant that may wait for this end

    @property
    def id(self) -> str:
        """The run's id."""
        return run_name(self.number)


class PlainEnd(NamedTuple):
    """How the first execution of such a run ended: it exited with 0."""

    run: Unended
    started_at: datetime
    ended_at: datetime
    cpu_us: int
    max_rss_bytes: int
    left_behind: int


def unended(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[Unended]:
    """Give those of these runs of which nothing is recorded but an admission and at most a start; the others are left out."""
    for first in range(0, len(numbers), _AT_ONCE):
        part = numbers[first : first + _AT_ONCE]
        found = connection.execute(
            "SELECT r.number, r.status, r.schedule, r.instant, r.revision, r.deployment, r.deployment_revision, r.max_steps,"
            " r.admitted_at, r.started_at, e.started_at, s.candidate IS NOT NULL"
            " FROM runs r JOIN executions e ON e.run = r.number AND e.k = 1 LEFT JOIN schedules s ON s.number = r.schedule"
            f" WHERE r.number IN ({', '.join('?' * len(part))}) AND r.status IN (?, ?) AND r.attempt = 1 AND r.resumed_step = 0"
            " AND r.stop IS NULL AND r.resume IS NULL AND r.interrupt IS NULL AND r.output IS NULL AND r.output_k IS NULL"
            " AND e.how IS NULL AND e.stop IS NULL AND e.step = 0 AND e.attempt = 1 ORDER BY r.number",
            (*part, *_FIRST),
        )
        for number, status, schedule, instant, *rest in found.fetchall():
            revision, deployment, deployment_revision, max_steps, admitted, started, execution_started, has_candidate = rest
            times = (instant, admitted, started, execution_started)
            if (schedule is None) != (instant is None) or not all(each is None or type(each) is int for each in times):
                continue  # not what wfctl writes: left to who looks closer
            yield Unended(
                number=number,
                status=STATUS_OF[status],
                schedule=schedule,
                instant=None if instant is None else from_micros(instant),
                revision=revision,
                deployment=deployment,
                deployment_revision=deployment_revision,
                max_steps=max_steps,
                admitted_at=from_micros(admitted),
                started_at=None if started is None else from_micros(started),
                execution_started_at=None if execution_started is None else from_micros(execution_started),
                has_candidate=bool(has_candidate),
            )


def settle(connection: sqlite3.Connection, ends: Sequence[PlainEnd]) -> None:
    """Within the transaction in which they were read, write that these executions exited with 0 and their runs completed."""
    connection.executemany(
        "UPDATE executions SET how = ?, started_at = ?, ended_at = ?, exit_status = 0, signal = NULL, cpu = ?, max_rss = ?,"
        " left_behind = ?, detail = NULL, mark = NULL, origin = NULL WHERE run = ? AND k = 1 AND how IS NULL",
        [
            (
                ENDED_NUMBER[Ended.EXITED],
                to_micros(end.started_at),
                to_micros(end.ended_at),
                end.cpu_us,
                end.max_rss_bytes,
                end.left_behind,
                end.run.number,
            )
            for end in ends
        ],
    )
    connection.executemany(
        "UPDATE runs SET status = ?, started_at = ?, ended_at = ?, reason = NULL WHERE number = ? AND status = ?",
        [
            (
                STATUS_NUMBER[Status.COMPLETED],
                to_micros(end.run.started_at or end.started_at),
                to_micros(end.ended_at),
                end.run.number,
                STATUS_NUMBER[end.run.status],
            )
            for end in ends
        ],
    )
    connection.executemany(
        "UPDATE occurrences SET status = ? WHERE schedule = ? AND instant = ?",
        [
            (STATUS_NUMBER[Status.COMPLETED], end.run.schedule, to_micros(end.run.instant))
            for end in ends
            if end.run.schedule is not None and end.run.instant is not None
        ],
    )
