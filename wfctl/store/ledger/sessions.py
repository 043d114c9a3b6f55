"""When a supervisor was there, and what the clock did: what explains a lateness or a gap (contract 5.10, 5.14)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Json
from wfctl.value import Value


def begin(connection: sqlite3.Connection, *, pid: int, host: str, at: datetime) -> int:
    """Record that a supervisor took the store, and return the number of its session."""
    cursor = connection.execute(
        "INSERT INTO sessions (pid, host, started_at, seen_at) VALUES (?, ?, ?, ?)", (pid, host, to_micros(at), to_micros(at))
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def seen(connection: sqlite3.Connection, number: int, at: datetime) -> None:
    """Note, along with a commit that is made anyway, that the supervisor is still there."""
    connection.execute("UPDATE sessions SET seen_at = ? WHERE number = ?", (to_micros(at), number))


def end(connection: sqlite3.Connection, number: int, at: datetime) -> None:
    """Record that the supervisor left in good order."""
    connection.execute("UPDATE sessions SET seen_at = ?, ended_at = ? WHERE number = ?", (to_micros(at), to_micros(at), number))


def last_seen(connection: sqlite3.Connection) -> datetime | None:
    """Return when a supervisor was last known to be there."""
    found = connection.execute("SELECT seen_at FROM sessions ORDER BY number DESC LIMIT 1").fetchone()
    return from_micros(found[0]) if found else None


def note_clock(connection: sqlite3.Connection, at: datetime) -> None:
    """Remember the latest wall clock that anything was consumed at, so that a step back is noticed (5.14)."""
    connection.execute("UPDATE counters SET clock = max(clock, ?)", (to_micros(at),))


def clock(connection: sqlite3.Connection) -> datetime:
    """Return the latest wall clock that anything was consumed at."""
    return from_micros(connection.execute("SELECT clock FROM counters").fetchone()[0])


def add_clock_event(
    connection: sqlite3.Connection,
    schedule: int,
    *,
    recorded_at: datetime,
    floor: datetime,
    withdrawn: Sequence[Json],
    revision: int | None = None,
) -> None:
    """Record that a schedule began anew because the clock stepped back, at which revision, and what that took back."""
    connection.execute(
        "INSERT INTO clock_events (schedule, number, recorded_at, floor, withdrawn, revision)"
        " SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ?, ? FROM clock_events WHERE schedule = ?",
        (schedule, to_micros(recorded_at), to_micros(floor), json.dumps(withdrawn), revision, schedule),
    )
    connection.execute("UPDATE counters SET clock = ?", (to_micros(recorded_at),))


class ClockEventRow(Value, kw_only=False):
    """One time that a schedule began anew; `withdrawn` counts what was taken back. `revision` is None where it is not known."""

    recorded_at: datetime
    floor: datetime
    revision: int | None
    withdrawn: int


def clock_events(connection: sqlite3.Connection, schedule: int) -> list[ClockEventRow]:
    """Return the clock events of a schedule, in the order in which they happened."""
    found = connection.execute(
        "SELECT recorded_at, floor, revision, withdrawn FROM clock_events WHERE schedule = ? ORDER BY number", (schedule,)
    )
    return [
        ClockEventRow(from_micros(recorded_at), from_micros(floor), revision, len(json.loads(withdrawn)))
        for recorded_at, floor, revision, withdrawn in found
    ]
