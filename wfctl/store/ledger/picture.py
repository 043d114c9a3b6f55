"""What lies within a window of time, for a picture of it: runs, settled instants, pauses, clock events (contract 8).

Every query is a range of an index and has a limit. Runs are found by their numbers, which ascend with the time of admission.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import RUN_STATUSES, Json, Status
from wfctl.store.ledger.numbers import STATUS_OF
from wfctl.store.ledger.occurrences import COLUMNS as ROW_COLUMNS
from wfctl.store.ledger.occurrences import sound as sound_row
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object, known

LOOKED_BACK = 20_000  #: runs before a window among which those are looked for that reach into it
_ASTRAY = 2_000  #: runs behind a window among which those are looked for that a step back of the clock put into it
_MOST_SPANS = 200
_COLUMNS = (
    "r.number, r.schedule, r.instant, r.deployment, r.status, r.attempt, r.admitted_at, r.started_at, r.ended_at,"
    " r.is_overdue, r.reason, o.lateness"
)
_FROM = "LEFT JOIN occurrences o ON o.schedule = r.schedule AND o.instant = r.instant"
_REACHES = "r.admitted_at < ? AND (r.ended_at IS NULL OR r.ended_at >= ?)"


class Numbers(NamedTuple):
    """The numbers of the runs that may have been at work within a window."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRun:
    """A run as a picture needs it."""

    number: int
    schedule: int | None
    instant: datetime | None
    deployment: int
    status: Status
    attempt: int
    admitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    is_overdue: bool
    reason: Mapping[str, Json] | None
    lateness: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPause:
    """A paused span; it lasts where it has no end."""

    paused_at: datetime
    resumed_at: datetime | None
    reason: str | None
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnClockEvent:
    """One time that a schedule began anew because the clock had stepped back."""

    schedule: int
    at: datetime
    floor: datetime
    withdrawn: int | None


@guarded("runs", _COLUMNS, "iIIiiiiIIITI", ["number"], schedule="schedule")
def _run(values: tuple[Any, ...]) -> DrawnRun:
    (number, schedule, instant, deployment, status, attempt, admitted_at, started_at, ended_at, is_overdue, reason,
     lateness) = values  # fmt: skip
    found = known(STATUS_OF, status, "status")
    if found not in RUN_STATUSES:
        raise ValueError(f"status is {status}, which no run has")
    return DrawnRun(
        number=number,
        schedule=schedule,
        instant=_instant(instant),
        deployment=deployment,
        status=found,
        attempt=attempt,
        admitted_at=from_micros(admitted_at),
        started_at=_instant(started_at),
        ended_at=_instant(ended_at),
        is_overdue=bool(is_overdue),
        reason=json_object(reason, "reason"),
        lateness=None if lateness is None else timedelta(microseconds=lateness),
    )


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class Found(NamedTuple):
    """What a query found, the newest first; how many rows could not be read; whether there are more than were asked for."""

    items: list[Any]
    unreadable: int
    has_more: bool


def _read(cursor: Any, read: Any, limit: int) -> Found:
    items, unreadable = [], 0
    values = cursor.fetchall()
    for each in values[:limit]:
        try:
            items.append(read(each))
        except UnreadableRow:
            unreadable += 1
    return Found(items, unreadable, len(values) > limit)


# Runs -------------------------------------------------------------------------------------------------------------------


def numbers_within(connection: sqlite3.Connection, since: datetime, until: datetime) -> Numbers:
    """Return the numbers among which the runs are that were at work within [since, until).

    A finished run that was admitted more than LOOKED_BACK runs before the window is not among them.
    """
    newest = int(connection.execute("SELECT run FROM counters").fetchone()[0])
    first, last = (_last_by(connection, each, newest) for each in (since, until))
    return Numbers(max(0, first - LOOKED_BACK), min(newest, last + _ASTRAY))


def _last_by(connection: sqlite3.Connection, at: datetime, newest: int) -> int:
    """Return the number of the last run admitted by a moment, found by halves."""
    low, high = 0, newest
    while low < high:
        middle = (low + high + 1) // 2
        found = connection.execute(
            "SELECT number, admitted_at FROM runs WHERE number <= ? ORDER BY number DESC LIMIT 1", (middle,)
        ).fetchone()
        if found is None or found[1] <= to_micros(at):
            low = middle
        else:
            high = found[0] - 1
    return low


def runs_of(
    connection: sqlite3.Connection, schedule: int, numbers: Numbers, since: datetime, until: datetime, limit: int
) -> Found:
    """Return a schedule's runs that were at work within [since, until), the newest first; unfinished ones however old."""
    window = (to_micros(until), to_micros(since))
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM runs r INDEXED BY runs_by_schedule {_FROM}"
        f" WHERE r.schedule = ? AND r.number BETWEEN ? AND ? AND {_REACHES} ORDER BY r.number DESC LIMIT ?",
        (schedule, *numbers, *window, limit + 1),
    )
    newer = _read(found, _run, limit)
    older = connection.execute(
        f"SELECT {_COLUMNS} FROM runs r INDEXED BY runs_unfinished {_FROM}"
        " WHERE r.schedule = ? AND r.status BETWEEN 11 AND 13 AND r.number < ? ORDER BY r.number DESC LIMIT ?",
        (schedule, numbers.first, limit + 1),
    )
    going = _read(older, _run, limit)
    items = [*newer.items, *going.items]
    return Found(items[:limit], newer.unreadable + going.unreadable, newer.has_more or going.has_more or len(items) > limit)


def manual_runs_of(
    connection: sqlite3.Connection, deployment: int, numbers: Numbers, since: datetime, until: datetime, limit: int
) -> Found:
    """Return the runs of a deployment that were started by hand and at work within [since, until), the newest first."""
    columns = _COLUMNS.replace("o.lateness", "NULL")
    found = connection.execute(
        f"SELECT {columns} FROM runs r INDEXED BY runs_manual"
        f" WHERE r.deployment = ? AND r.schedule IS NULL AND r.number BETWEEN ? AND ? AND {_REACHES}"
        " ORDER BY r.number DESC LIMIT ?",
        (deployment, *numbers, to_micros(until), to_micros(since), limit + 1),
    )
    return _read(found, _run, limit)


# Instants ---------------------------------------------------------------------------------------------------------------


def settled_of(connection: sqlite3.Connection, schedule: int, since: datetime, until: datetime, limit: int) -> Found:
    """Return the rows of single instants of [since, until) that have no run, the newest first."""
    found = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM occurrences WHERE schedule = ? AND instant >= ? AND instant < ? AND run IS NULL"
        " AND +span_first IS NULL ORDER BY instant DESC LIMIT ?",
        (schedule, to_micros(since), to_micros(until), limit + 1),
    )
    return _read(found, sound_row, limit)


def spans_of(connection: sqlite3.Connection, schedule: int, since: datetime, until: datetime) -> Found:
    """Return the span rows that reach into [since, until), the oldest first."""
    found = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM occurrences INDEXED BY occurrences_spans WHERE schedule = ? AND instant >= ?"
        " AND span_first IS NOT NULL AND span_first < ? ORDER BY instant LIMIT ?",
        (schedule, to_micros(since), to_micros(until), _MOST_SPANS + 1),
    )
    return _read(found, sound_row, _MOST_SPANS)


# What stood around ------------------------------------------------------------------------------------------------------


def pauses_of(connection: sqlite3.Connection, schedule: int, since: datetime, until: datetime) -> list[DrawnPause]:
    """Return the paused spans that reach into [since, until), by begin."""
    found = connection.execute(
        "SELECT paused_at, resumed_at, reason, actor FROM pauses WHERE schedule = ? AND paused_at < ?"
        " AND (resumed_at IS NULL OR resumed_at > ?) ORDER BY paused_at DESC LIMIT 500",
        (schedule, to_micros(until), to_micros(since)),
    ).fetchall()
    return [
        DrawnPause(paused_at=from_micros(paused_at), resumed_at=_instant(resumed_at), reason=reason, actor=actor)
        for paused_at, resumed_at, reason, actor in reversed(found)
    ]


def clock_events_within(connection: sqlite3.Connection, since: datetime, until: datetime) -> list[DrawnClockEvent]:
    """Return the clock events of all schedules recorded within [since, until)."""
    found = connection.execute(
        "SELECT schedule, recorded_at, floor, CASE WHEN json_valid(withdrawn) THEN json_array_length(withdrawn) END"
        " FROM clock_events WHERE recorded_at >= ? AND recorded_at < ? ORDER BY recorded_at LIMIT 1000",
        (to_micros(since), to_micros(until)),
    )
    return [
        DrawnClockEvent(schedule=schedule, at=from_micros(at), floor=from_micros(floor), withdrawn=withdrawn)
        for schedule, at, floor, withdrawn in found
    ]


def last_session(connection: sqlite3.Connection) -> tuple[datetime, datetime | None] | None:
    """Return when the last supervisor was seen, and when it left in good order, if it did; None where none ever was."""
    found = connection.execute("SELECT seen_at, ended_at FROM sessions ORDER BY number DESC LIMIT 1").fetchone()
    return None if found is None else (from_micros(found[0]), _instant(found[1]))


def oldest_definition(connection: sqlite3.Connection) -> datetime | None:
    """Return when the first definition was made: before that there was nothing to supervise."""
    found = connection.execute("SELECT min(created_at) FROM definitions").fetchone()
    return _instant(found[0])
