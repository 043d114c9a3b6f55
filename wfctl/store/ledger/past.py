"""What runs took and when nobody was there: the past as a simulation needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Status, run_name
from wfctl.store.ledger.numbers import STATUS_NUMBER, STATUS_OF

_FINAL = ", ".join(
    str(STATUS_NUMBER[status]) for status in (Status.COMPLETED, Status.FAILED, Status.EXHAUSTED, Status.CANCELLED)
)


@dataclass(frozen=True, slots=True)
class PastRun:
    """A scheduled run: when it held its slots, and how it ended."""

    number: int
    instant: datetime
    status: Status
    admitted_at: datetime
    ended_at: datetime | None  #: None: it is not over
    attempt: int


def runs_of(connection: sqlite3.Connection, schedule: int, *, since: datetime) -> Iterator[PastRun]:
    """Give a schedule's runs that were there at `since` or later, by number."""
    for number, instant, status, admitted_at, ended_at, attempt in connection.execute(
        "SELECT number, instant, status, admitted_at, ended_at, attempt FROM runs"
        " WHERE schedule = ? AND (ended_at IS NULL OR ended_at > ?) ORDER BY number",
        (schedule, to_micros(since)),
    ):
        ended = None if ended_at is None else from_micros(ended_at)
        yield PastRun(number, from_micros(instant), STATUS_OF[status], from_micros(admitted_at), ended, attempt)


def newest_lengths(connection: sqlite3.Connection, schedule: int, limit: int) -> list[tuple[int, Status]]:
    """Return what the newest finished runs of a schedule took, in microseconds, and how they ended; the newest first.

    Those that were resumed are left out: most of their time they waited for somebody.
    """
    found = connection.execute(
        "SELECT ended_at - admitted_at, status FROM runs WHERE schedule = ? AND ended_at IS NOT NULL AND attempt = 1"
        f" AND status IN ({_FINAL}) ORDER BY number DESC LIMIT ?",
        (schedule, limit),
    )
    return [(max(0, length), STATUS_OF[status]) for length, status in found]


def last_failed(connection: sqlite3.Connection, schedule: int) -> str | None:
    """Return the id of the newest run of a schedule that failed or was exhausted; None where none is kept."""
    found = connection.execute(
        "SELECT number FROM runs WHERE schedule = ? AND status IN (?, ?) ORDER BY number DESC LIMIT 1",
        (schedule, STATUS_NUMBER[Status.FAILED], STATUS_NUMBER[Status.EXHAUSTED]),
    ).fetchone()
    return None if found is None else run_name(found[0])


def waits_of(connection: sqlite3.Connection, run: int) -> list[tuple[datetime, datetime | None]]:
    """Return when a run waited for input: from the end of one attempt to the beginning of the next; None: it still waits."""
    found = connection.execute(
        "SELECT attempt, min(started_at), max(ended_at) FROM executions WHERE run = ? GROUP BY attempt ORDER BY attempt", (run,)
    ).fetchall()
    waits: list[tuple[datetime, datetime | None]] = []
    for (_, _, ended), following in zip(found, [*found[1:], None], strict=True):
        if ended is not None:
            begins = None if following is None or following[1] is None else from_micros(following[1])
            waits.append((from_micros(ended), begins))
    return waits


def absences(connection: sqlite3.Connection, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return when no supervisor was there, within (since, until): between what is known of one and the next, ascending.

    The last one is taken to be there still, unless it left in good order.
    """
    gaps: list[tuple[datetime, datetime]] = []
    free_from = since
    last = to_micros(until)
    for started_at, seen_at, ended_at, is_last in connection.execute(
        "SELECT started_at, seen_at, ended_at, number = (SELECT max(number) FROM sessions) FROM sessions ORDER BY number"
    ):
        known_until = last if is_last else seen_at
        started, left = from_micros(started_at), from_micros(known_until if ended_at is None else ended_at)
        if started > free_from:
            gaps.append((free_from, min(started, until)))
        free_from = max(free_from, left)
        if free_from >= until:
            break
    if free_from < until:
        gaps.append((free_from, until))
    return [(begins, ends) for begins, ends in gaps if begins < ends]


def stops(connection: sqlite3.Connection) -> list[tuple[datetime, datetime]]:
    """Return when nothing was decided, as what was missed shows: from the last decision before it to its row, ascending.

    So it is while a supervisor drains, or cannot admit for want of space: it is there, and looks at no instant. That something
    was held is a decision too, of which the row that it ends in tells.
    """
    rows = connection.execute(
        "SELECT recorded_at, coalesce(span_first, instant), status = ? AND json_valid(reason)"
        " AND json_extract(reason, '$.code') = 'missed' FROM occurrences ORDER BY place",
        (STATUS_NUMBER[Status.SKIPPED_MISFIRE],),
    )
    found: list[tuple[datetime, datetime]] = []
    previous = 0
    for recorded_at, together in groupby(rows, key=lambda row: int(row[0])):
        settled = list(together)
        first = min((instant for _, instant, is_missed in settled if is_missed), default=recorded_at)
        held = (instant for _, instant, is_missed in settled if not is_missed and instant < first)
        begins = max([previous, *held])
        if begins < first < recorded_at:
            found.append((from_micros(begins + 1), from_micros(recorded_at)))
        previous = recorded_at
    return found
