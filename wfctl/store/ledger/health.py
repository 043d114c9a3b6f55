"""What is known of the schedules' health, and what is to be told of it (contract 7.8)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wfctl.core.health_events import WELL, Health, Trouble, Word, health_from_plain, health_to_plain
from wfctl.core.model import Json
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object

_COLUMNS = "n.number, n.schedule, d.id, n.word, n.event, n.coalesced, n.tries, n.is_launched, n.error"
_FROM = "FROM notices n LEFT JOIN definitions d ON d.number = n.schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRow:
    """One thing to tell."""

    number: int
    schedule: int
    schedule_id: str
    word: str
    event: dict[str, Json]
    coalesced: int
    tries: int
    is_launched: bool
    error: str | None


# Health -----------------------------------------------------------------------------------------------------------------


def find(connection: sqlite3.Connection, schedule: int) -> Health:
    """Return what is known of a schedule's health. A row that cannot be read is as none: at worst something is told again."""
    found = connection.execute("SELECT state FROM health WHERE schedule = ?", (schedule,)).fetchone()
    if found is None:
        return WELL
    try:
        return health_from_plain(json.loads(found[0]))
    except (ValueError, TypeError, RecursionError):
        return WELL


def among(connection: sqlite3.Connection, schedules: Sequence[int]) -> set[int]:
    """Return those of these schedules of which something is noted; of the others nothing is known to be wrong."""
    wanted = set(schedules)
    if len(wanted) > _MANY:
        return {number for (number,) in connection.execute("SELECT schedule FROM health")} & wanted
    found = connection.execute(f"SELECT schedule FROM health WHERE schedule IN ({', '.join('?' * len(wanted))})", tuple(wanted))
    return {number for (number,) in found}


_MANY = 500


def save(connection: sqlite3.Connection, schedule: int, health: Health) -> None:
    """Write what is known of a schedule's health; nothing is kept of one that is well."""
    if health.is_well:
        connection.execute("DELETE FROM health WHERE schedule = ?", (schedule,))
        return
    state = json.dumps(health_to_plain(health), separators=(",", ":"))
    connection.execute(
        "INSERT OR REPLACE INTO health (schedule, state, is_missed, is_blocked) VALUES (?, ?, ?, ?)",
        (schedule, state, health.missed is not None, health.blocked is not None),
    )


def missed(connection: sqlite3.Connection) -> set[int]:
    """Return the schedules of which an instant was missed, and none came in time since."""
    return {number for (number,) in connection.execute("SELECT schedule FROM health WHERE is_missed = 1")}


def blocked(connection: sqlite3.Connection) -> set[int]:
    """Return the schedules that are known to be blocked."""
    return {number for (number,) in connection.execute("SELECT schedule FROM health WHERE is_blocked = 1")}


def failing(connection: sqlite3.Connection) -> list[tuple[int, Trouble]]:
    """Return the schedules, not deleted, whose last runs failed, each with since when and how often."""
    found = connection.execute(
        "SELECT h.schedule FROM health h JOIN definitions d ON d.number = h.schedule WHERE d.deleted_at IS NULL"
    ).fetchall()
    known = [(number, find(connection, number).failing) for (number,) in found]
    return [(number, trouble) for number, trouble in known if trouble is not None]


# What is to be told -----------------------------------------------------------------------------------------------------


@guarded("notices", _COLUMNS, "iiTtTiiiT", ["number"])
def _row(values: tuple[Any, ...]) -> NoticeRow:
    number, schedule, schedule_id, word, event, coalesced, tries, is_launched, error = values
    said = json_object(event, "event")
    if said is None or schedule_id is None:
        raise ValueError("there is no event, or no schedule")
    return NoticeRow(
        number=number,
        schedule=schedule,
        schedule_id=schedule_id,
        word=Word(word).value,
        event=dict(said),
        coalesced=coalesced,
        tries=tries,
        is_launched=bool(is_launched),
        error=error,
    )


def add_notice(connection: sqlite3.Connection, schedule: int, word: Word, event: dict[str, Json]) -> None:
    """Enter what is to be told, behind the others; an older one of the same word that is not being told gives way to it.

    So at most one of each word waits for a schedule, however long nobody can be told.
    """
    found = connection.execute(
        "DELETE FROM notices WHERE schedule = ? AND word = ? AND is_launched = 0 RETURNING coalesced", (schedule, word.value)
    ).fetchall()
    coalesced = sum(each + 1 for (each,) in found)
    connection.execute(
        "INSERT INTO notices (schedule, word, event, coalesced, tries, is_launched) VALUES (?, ?, ?, ?, 0, 0)",
        (schedule, word.value, json.dumps(event, separators=(",", ":")), coalesced),
    )


def notices(connection: sqlite3.Connection) -> list[NoticeRow]:
    """Return everything that is to be told, oldest first; what cannot be read is left out, see `drop_unreadable`."""
    rows, _ = _notices(connection)
    return rows


def drop_unreadable(connection: sqlite3.Connection) -> list[int]:
    """Take out what is to be told and cannot be read; return its numbers."""
    _, broken = _notices(connection)
    connection.executemany("DELETE FROM notices WHERE number = ?", [(number,) for number in broken])
    return broken


def _notices(connection: sqlite3.Connection) -> tuple[list[NoticeRow], list[int]]:
    rows, broken = [], []
    for values in connection.execute(f"SELECT {_COLUMNS} {_FROM} ORDER BY n.number").fetchall():
        try:
            rows.append(_row(values))
        except UnreadableRow:
            broken.append(values[0])
    return rows, broken


def mark_launched(connection: sqlite3.Connection, number: int) -> None:
    """Note, before it is launched, that one more try is made."""
    connection.execute("UPDATE notices SET tries = tries + 1, is_launched = 1 WHERE number = ?", (number,))


def note_not_launched(connection: sqlite3.Connection, number: int) -> None:
    """Note that the last try was proved never to have been launched; its number stays used."""
    connection.execute("UPDATE notices SET is_launched = 0 WHERE number = ?", (number,))


def note_failed(connection: sqlite3.Connection, number: int, error: str) -> None:
    """Note that the last try failed, and what by."""
    connection.execute("UPDATE notices SET is_launched = 0, error = ? WHERE number = ?", (error, number))


def remove(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Take out what was told, or is to be told no more."""
    connection.executemany("DELETE FROM notices WHERE number = ?", [(number,) for number in numbers])
