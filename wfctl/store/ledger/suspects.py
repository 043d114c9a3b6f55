"""Which records a start must look at: those that SQLite itself cannot clear (contract 7.4).

A start asks the same of every definition and every schedule. Of nearly all the answer is that nothing is wrong, and for a
hundred thousand of them only SQLite can say so in time. What a query here leaves out is sound; what it gives may be, and is
judged row by row as `store verify` judges it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from datetime import datetime

from wfctl.core.instants import to_micros
from wfctl.core.model import RUN_STATUSES
from wfctl.store.ledger.numbers import STATUS_NUMBER
from wfctl.store.ledger.rows import LONGEST

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  #: microseconds: what `datetime` can hold
_ALL_STATUSES = ", ".join(str(number) for number in STATUS_NUMBER.values())
_RUN_STATUSES = ", ".join(str(STATUS_NUMBER[status]) for status in sorted(RUN_STATUSES))


def _are(kind: str, columns: str, alias: str = "") -> list[str]:
    return [f"typeof({alias}{column}) = '{kind}'" for column in columns.split()]


def _may_be(kind: str, columns: str, alias: str = "") -> list[str]:
    return [f"({alias}{column} IS NULL OR typeof({alias}{column}) = '{kind}')" for column in columns.split()]


def _instants(columns: str, alias: str = "") -> list[str]:
    return [
        f"(typeof({alias}{column}) = 'integer' AND {alias}{column} BETWEEN {_FIRST} AND {_LAST})" for column in columns.split()
    ]


def _maybe_instants(columns: str, alias: str = "") -> list[str]:
    return [f"({alias}{column} IS NULL OR {_instants(column, alias)[0]})" for column in columns.split()]


def _objects(columns: str, alias: str = "") -> list[str]:
    return [
        f"CASE WHEN {alias}{column} IS NULL THEN 1 WHEN json_valid({alias}{column})"
        f" THEN json_type({alias}{column}) = 'object' ELSE 0 END"
        for column in columns.split()
    ]


def _nothing(columns: str, alias: str = "") -> list[str]:
    return [f"{alias}{column} IS NULL" for column in columns.split()]


# Definitions ------------------------------------------------------------------------------------------------------------

_DEFINITION = " AND ".join(
    [
        *_are("integer", "number kind revision written created_at"),
        *_are("text", "id"),
        *_may_be("text", "digest prior_digest"),
        *_may_be("integer", "mtime_ns ctime_ns size inode"),
        *_objects("diagnostic"),
    ]
)
_UNREADABLE = f"SELECT number FROM definitions WHERE deleted_at IS NULL AND ({_DEFINITION}) IS NOT TRUE"

_DIFFERENT = """
SELECT d.number FROM definitions d LEFT JOIN revisions r ON r.definition = d.number AND r.revision = d.revision
WHERE d.deleted_at IS NULL AND d.revision <> 0
  AND (r.digest IS d.digest AND typeof(r.content) = 'text' AND r.digest = digest_of(CAST(r.content AS BLOB))) IS NOT TRUE
"""


def unreadable_definitions(connection: sqlite3.Connection) -> list[int]:
    """Return the numbers of the live definitions whose own rows may not be readable."""
    return _numbers(connection.execute(_UNREADABLE))


def changed_revisions(connection: sqlite3.Connection) -> list[int]:
    """Return the numbers of the live definitions whose current revision may not be what its digest says."""
    connection.create_function("digest_of", 1, _digest_of, deterministic=True)
    return _numbers(connection.execute(_DIFFERENT))


def _digest_of(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


# Schedules --------------------------------------------------------------------------------------------------------------

_FLOOR = "max(s.watermark, s.effective_from)"
_FREE = " AND ".join(_nothing("held_since can_expire held_reason", "s."))
_HELD = " AND ".join(
    [
        *_instants("candidate held_since", "s."),
        *_are("integer", "can_expire", "s."),
        "CASE WHEN json_valid(s.held_reason) THEN json_type(s.held_reason, '$.code') = 'text' ELSE 0 END",
        f"s.candidate <= {_FLOOR}",
        "NOT EXISTS (SELECT 1 FROM occurrences o WHERE o.schedule = s.number AND o.instant = s.candidate)",
    ]
)
_BEYOND = (
    "SELECT 1 FROM occurrences o WHERE o.schedule = s.number AND o.instant > s.watermark"
    " AND (o.run IS NULL OR o.instant > coalesce(s.passing_until, s.watermark))"
)
_SCHEDULE = " AND ".join(
    [
        *_are("integer", "deployment", "s."),
        *_are("text", "id", "d."),
        *_are("text", "id", "p."),
        *_are("integer", "revision", "d."),
        *_are("integer", "revision", "p."),
        *_instants("created_at", "d."),
        *_objects("diagnostic", "d."),
        *_objects("diagnostic", "p."),
        *_instants("effective_from anchor watermark", "s."),
        *_maybe_instants("next_instant wake_at last_admission paused_at passing_until", "s."),
        f"CASE WHEN s.candidate IS NULL THEN {_FREE} ELSE {_HELD} END",
        f"{_FLOOR} <= ?",
        "s.paused_at IS (SELECT max(paused_at) FROM pauses WHERE schedule = s.number AND resumed_at IS NULL)",
        f"NOT EXISTS ({_BEYOND})",
    ]
)
_STATES = f"""
SELECT s.number FROM schedules s JOIN definitions d ON d.number = s.number JOIN definitions p ON p.number = s.deployment
WHERE d.deleted_at IS NULL AND ({_SCHEDULE}) IS NOT TRUE
"""


def states(connection: sqlite3.Connection, latest: datetime) -> list[int]:
    """Return the numbers of the live schedules whose state may not be readable, or may not agree with their history.

    `latest`: no floor may lie behind it.
    """
    return _numbers(connection.execute(_STATES, (to_micros(latest),)))


# History ----------------------------------------------------------------------------------------------------------------

_NAMES_ITS_RUN = f"""
(o.run IS NULL AND o.status NOT IN ({_RUN_STATUSES})
 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.schedule = o.schedule AND r.instant = o.instant))
OR EXISTS (SELECT 1 FROM runs r WHERE r.number = o.run AND r.schedule = o.schedule AND r.instant = o.instant
           AND r.status = o.status)
"""
_OCCURRENCE = " AND ".join(
    [
        *_are("integer", "place schedule revision", "o."),
        *_instants("instant recorded_at", "o."),
        f"o.status IN ({_ALL_STATUSES})",
        *_may_be("integer", "run lateness span_count", "o."),
        *_maybe_instants("span_first", "o."),
        *_objects("reason", "o."),
        f"({_NAMES_ITS_RUN})",
    ]
)
_ITS_ROW = (
    "SELECT 1 FROM occurrences o WHERE o.schedule = r.schedule AND o.instant = r.instant AND o.run = r.number"
    " AND o.status = r.status"
)
_RUN = " AND ".join(
    [
        "r.number >= 1",
        *_are("integer", "schedule revision deployment deployment_revision attempt resumed_step", "r."),
        *_instants("instant admitted_at", "r."),
        *_maybe_instants("started_at attempt_at ended_at", "r."),
        f"r.status IN ({_RUN_STATUSES})",
        f"(r.max_run IS NULL OR (typeof(r.max_run) = 'integer' AND r.max_run BETWEEN 0 AND {LONGEST}))",
        *_may_be("integer", "max_steps is_overdue output_k", "r."),
        *_may_be("text", "input output resume", "r."),
        *_objects("reason interrupt stop", "r."),
        f"EXISTS ({_ITS_ROW})",
    ]
)


def occurrences(connection: sqlite3.Connection, newest: int) -> list[tuple[int, int]]:
    """Return schedule and place of those of the newest rows of the history that may contradict their runs."""
    rows = "(SELECT * FROM occurrences ORDER BY place DESC LIMIT ?)"
    found = connection.execute(f"SELECT o.schedule, o.place FROM {rows} o WHERE ({_OCCURRENCE}) IS NOT TRUE", (newest,))
    return found.fetchall()


def runs(connection: sqlite3.Connection, newest: int) -> list[int]:
    """Return the numbers of those of the newest scheduled runs that may contradict their occurrences."""
    rows = "(SELECT * FROM runs ORDER BY number DESC LIMIT ?)"
    where = f"r.schedule IS NOT NULL AND ({_RUN}) IS NOT TRUE"
    return _numbers(connection.execute(f"SELECT r.number FROM {rows} r WHERE {where}", (newest,)))


def _numbers(found: sqlite3.Cursor) -> list[int]:
    return [number for (number,) in found if isinstance(number, int)]
