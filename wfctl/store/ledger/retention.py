"""Taking old history out of the ledger: finished runs, their executions and occurrences, never an id (contract 10, 5.15)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from wfctl.core.instants import from_micros, to_micros
from wfctl.value import Value

Connection = sqlite3.Connection
_JUST_AFTER = 1  #: microseconds


class Old(Value, kw_only=False):
    """A row of a schedule's history, or a manual run, that is kept no longer."""

    place: int | None  #: of the occurrence; None for a manual run
    instant: int | None
    run: int | None


def schedule_numbers(connection: sqlite3.Connection) -> list[int]:
    """Return every schedule, deleted ones too."""
    return [number for (number,) in connection.execute("SELECT number FROM schedules ORDER BY number")]


def deployment_numbers(connection: sqlite3.Connection) -> list[int]:
    """Return every deployment that a manual run was started of."""
    found = connection.execute("SELECT DISTINCT deployment FROM runs WHERE schedule IS NULL ORDER BY deployment")
    return [number for (number,) in found]


def place_before(connection: sqlite3.Connection, schedule: int, keep_runs: int) -> int | None:
    """Return the place before which everything is older than the newest `keep_runs` runs of a schedule; None: nothing is."""
    found = connection.execute(
        "SELECT o.place FROM runs r JOIN occurrences o ON o.schedule = r.schedule AND o.instant = r.instant"
        " WHERE r.schedule = ? ORDER BY r.number DESC LIMIT 1 OFFSET ?",
        (schedule, keep_runs - 1),
    ).fetchone()
    return found[0] if found else None


def old_occurrences(
    connection: sqlite3.Connection,
    schedule: int,
    *,
    before: datetime | None,
    before_place: int | None,
    after: int,
    limit: int,
) -> tuple[list[Old], int | None]:
    """Look at up to `limit` rows of a schedule behind place `after`; return those that are kept no longer, and where to go on.

    Given: `before`, the time before which a row was recorded, or its run ended; `before_place`, the place. Either will do.
    A row stays whose run is unfinished, or whose instant the schedule may come to again. None: nothing older is behind.
    """
    found = connection.execute(
        "SELECT o.place, o.instant, o.run, o.recorded_at, r.number, r.ended_at, r.status BETWEEN 11 AND 13,"
        " o.instant <= max(s.watermark, s.effective_from)"
        " FROM occurrences o JOIN schedules s ON s.number = o.schedule LEFT JOIN runs r ON r.number = o.run"
        " WHERE o.schedule = ? AND o.place > ? ORDER BY o.place LIMIT ?",
        (schedule, after, limit),
    ).fetchall()
    cut = None if before is None else to_micros(before)
    old = []
    is_any_aged = False
    for place, instant, run, recorded_at, known, ended_at, is_unfinished, is_passed in found:
        at = recorded_at if run is None or ended_at is None else ended_at
        is_aged = (cut is not None and at < cut) or (before_place is not None and place < before_place)
        is_any_aged |= is_aged or is_unfinished == 1
        is_sound = run is None or known is not None  # a row whose run is missing is for `store verify` to show
        if is_aged and is_sound and not is_unfinished and is_passed:
            old.append(Old(place, instant, run))
    is_more = len(found) == limit and is_any_aged
    return old, found[-1][0] if is_more else None


def number_before(connection: sqlite3.Connection, deployment: int, keep_runs: int) -> int | None:
    """Return the number of the oldest of the newest `keep_runs` manual runs of a deployment; None: there are not so many."""
    found = connection.execute(
        "SELECT number FROM runs WHERE deployment = ? AND schedule IS NULL ORDER BY number DESC LIMIT 1 OFFSET ?",
        (deployment, keep_runs - 1),
    ).fetchone()
    return found[0] if found else None


def old_manual_runs(
    connection: sqlite3.Connection,
    deployment: int,
    *,
    before: datetime | None,
    before_number: int | None,
    after: int,
    limit: int,
) -> tuple[list[Old], int | None]:
    """The same for the manual runs of a deployment, by number."""
    found = connection.execute(
        "SELECT number, coalesce(ended_at, admitted_at), status BETWEEN 11 AND 13 FROM runs"
        " WHERE deployment = ? AND schedule IS NULL AND number > ? ORDER BY number LIMIT ?",
        (deployment, after, limit),
    ).fetchall()
    cut = None if before is None else to_micros(before)
    old = []
    is_any_aged = False
    for number, at, is_unfinished in found:
        is_aged = (cut is not None and at < cut) or (before_number is not None and number < before_number)
        is_any_aged |= is_aged or is_unfinished == 1
        if is_aged and not is_unfinished:
            old.append(Old(None, None, number))
    is_more = len(found) == limit and is_any_aged
    return old, found[-1][0] if is_more else None


def prune(connection: sqlite3.Connection, schedule: int | None, rows: Sequence[Old]) -> None:
    """Take rows of one schedule, or manual runs, out for good, and note up to where its history is no more whole."""
    numbers = [(row.run,) for row in rows if row.run is not None]
    connection.executemany("DELETE FROM executions WHERE run = ?", numbers)
    connection.executemany("DELETE FROM runs WHERE number = ? AND status NOT BETWEEN 11 AND 13", numbers)
    if schedule is None:
        return
    connection.executemany(
        "DELETE FROM occurrences WHERE schedule = ? AND place = ?",
        [(schedule, row.place) for row in rows],
    )
    last = max((row.instant for row in rows if row.instant is not None), default=None)
    if last is None:
        return
    horizon = last + _JUST_AFTER
    connection.execute(
        "UPDATE schedules SET horizon = max(coalesce(horizon, ?), ?) WHERE number = ?", (horizon, horizon, schedule)
    )
    connection.execute("DELETE FROM pauses WHERE schedule = ? AND resumed_at < ?", (schedule, horizon))


def horizon_of(connection: sqlite3.Connection, schedule: int) -> datetime | None:
    """Return the instant from which on a schedule's history is whole; None: from its beginning."""
    found = connection.execute("SELECT horizon FROM schedules WHERE number = ?", (schedule,)).fetchone()
    return from_micros(found[0]) if found and found[0] is not None else None


def prune_sessions(connection: sqlite3.Connection, before: datetime) -> None:
    """Take out the supervisor's sessions that ended before that time, save the last one, and what no mark goes by any more."""
    connection.execute(
        "DELETE FROM sessions WHERE seen_at < ? AND number < (SELECT max(number) FROM sessions)", (to_micros(before),)
    )
    connection.execute(
        "DELETE FROM origins WHERE number NOT IN (SELECT origin FROM executions WHERE how IS NULL AND origin IS NOT NULL)"
        " AND number < (SELECT max(number) FROM origins)"
    )


def last_place(connection: sqlite3.Connection) -> int:
    """Return the last place given in the order of recording."""
    return int(connection.execute("SELECT occurrence FROM counters").fetchone()[0])
