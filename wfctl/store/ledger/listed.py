"""All schedules for a list: one walk through the tables, instead of several questions about each (contract 8.7).

Read here is only what needs no second look: schedules that are active, hold nothing, and whose rows say what such rows can say.
Of the others it gives the name alone, for whoever describes one schedule with care.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from wfctl.core.ids import run_name
from wfctl.store.ledger.rows import LONGEST

_INTEGERS = "d.number d.revision d.created_at s.deployment s.effective_from s.anchor s.watermark"
_PERHAPS = "s.next_instant s.wake_at s.last_admission s.passing_until r.max_run"
_NOTHING = "d.deleted_at d.diagnostic s.candidate s.paused_at"
_TEXTS = "d.id r.plain"
_INSTANTS = "s.effective_from s.anchor s.watermark s.next_instant"
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  #: of what a calendar has, in microseconds
_SOUND = " AND ".join(
    [f"{name} IS NULL" for name in _NOTHING.split()]
    + [f"typeof({name}) = 'integer'" for name in _INTEGERS.split()]
    + [f"typeof({name}) IN ('integer', 'null')" for name in _PERHAPS.split()]
    + [f"typeof({name}) = 'text'" for name in _TEXTS.split()]
    + [f"coalesce({name}, 0) BETWEEN {_FIRST} AND {_LAST}" for name in _INSTANTS.split()]
    + ["r.digest = d.digest", f"coalesce(r.max_run, 0) BETWEEN 0 AND {LONGEST}"]
    + ["s.deployment IN (SELECT number FROM definitions WHERE kind = 0 AND diagnostic IS NULL)"]
)
_LIST = f"""
SELECT d.number, d.id, d.deleted_at IS NOT NULL, d.revision, iif({_SOUND}, r.plain, NULL), r.max_run, s.effective_from,
 s.anchor, s.watermark, s.next_instant FROM definitions d
 LEFT JOIN schedules s ON s.number = d.number
 LEFT JOIN revisions r ON r.definition = d.number AND r.revision = d.revision
 WHERE d.kind = 1 AND d.id > ? ORDER BY d.id"""
Listed = tuple[int, str, int, int, str | None, int | None, int, int, int, int | None]


def schedules(connection: sqlite3.Connection, *, after: str = "") -> Iterator[Listed]:
    """Give all schedules whose ids come behind `after`, by id, deleted ones too.

    Shape: number, id, whether it is deleted, revision and plain form (JSON) of that, max_run, effective_from, anchor,
    watermark, next_instant; times in microseconds. Without a plain form only number, id and deletion can be relied on.
    """
    return connection.execute(_LIST, (after,))


def active_runs(connection: sqlite3.Connection) -> dict[int, tuple[str, ...]]:
    """Return the ids of the unfinished runs of all schedules, by the numbers of these."""
    found: dict[int, tuple[str, ...]] = {}
    for schedule, number in connection.execute(
        "SELECT schedule, number FROM runs INDEXED BY runs_unfinished"
        " WHERE status BETWEEN 11 AND 13 AND schedule IS NOT NULL ORDER BY schedule, number"
    ):
        found[schedule] = (*found.get(schedule, ()), run_name(number))
    return found


_SOUND_DEPLOYMENT = " AND ".join(
    ["d.deleted_at IS NULL", "d.diagnostic IS NULL", "typeof(d.revision) = 'integer'", "typeof(d.created_at) = 'integer'"]
    + [f"typeof({name}) = 'text'" for name in ("d.id", "r.plain", "r.digest")]
    + ["r.digest = d.digest"]
)
_DEPLOYMENTS = f"""
SELECT d.number, d.id, d.deleted_at IS NOT NULL, d.revision, iif({_SOUND_DEPLOYMENT}, r.plain, NULL), r.digest
 FROM definitions d LEFT JOIN revisions r ON r.definition = d.number AND r.revision = d.revision
 WHERE d.kind = 0 AND d.id > ? ORDER BY d.id"""
ListedDeployment = tuple[int, str, int, int, str | None, str | None]


def deployments(connection: sqlite3.Connection, *, after: str = "") -> Iterator[ListedDeployment]:
    """Give all deployments whose ids come behind `after`, by id, deleted ones too.

    Shape: number, id, whether it is deleted, revision, plain form (JSON) and digest of that. Without a plain form only number,
    id and deletion can be relied on.
    """
    return connection.execute(_DEPLOYMENTS, (after,))


def users_of_deployments(connection: sqlite3.Connection) -> dict[int, list[str]]:
    """Return the ids of the undeleted schedules that name each deployment, by the numbers of these."""
    found: dict[int, list[str]] = {}
    for deployment, name in connection.execute(
        "SELECT s.deployment, d.id FROM definitions d JOIN schedules s ON s.number = d.number"
        " WHERE d.kind = 1 AND d.deleted_at IS NULL ORDER BY d.id"
    ):
        found.setdefault(deployment, []).append(name)
    return found
