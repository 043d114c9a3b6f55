"""What those who watch read again and again: whether anything was written, and where things stand, in as few rows as can be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from wfctl.core.model import Status
from wfctl.store.ledger.numbers import STATUS_OF
from wfctl.store.ledger.rows import try_micros
from wfctl.store.ledger.schema import SCHEDULE

_NEWEST = 64  #: run numbers looked at for those that are reserved and not entered yet

Brief = tuple[Any, ...]  #: as `schedules` gives them; `ScheduleBrief.of` names the parts


class ScheduleBrief(NamedTuple):
    """Where a schedule stands, in what tells a change of it."""

    number: int
    id: str
    revision: int
    is_blocked: int
    paused_at: int | None
    candidate: int | None
    is_at_end: int  #: no instant lies ahead

    @property
    def held(self) -> datetime | None:
        """The instant of its candidate."""
        return try_micros(self.candidate)


def data_version(connection: sqlite3.Connection) -> int:
    """Return SQLite's own count of what other connections committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def ends(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the last place of the history and the largest number of a run."""
    place = connection.execute("SELECT max(place) FROM occurrences").fetchone()[0]
    number = connection.execute("SELECT max(number) FROM runs").fetchone()[0]
    return int(place or 0), int(number or 0)


def gaps(connection: sqlite3.Connection, last: int) -> set[int]:
    """Return the numbers shortly before `last` that no run has: a command may have reserved them and enter them yet (6.12)."""
    first = max(1, last - _NEWEST)
    found = connection.execute("SELECT number FROM runs WHERE number BETWEEN ? AND ?", (first, last))
    return set(range(first, last)) - {number for (number,) in found}


def unfinished(connection: sqlite3.Connection) -> dict[int, tuple[Status, int]]:
    """Return status and attempt of every unfinished run, by number."""
    found = connection.execute(
        "SELECT number, status, attempt FROM runs INDEXED BY runs_unfinished WHERE status BETWEEN 11 AND 13"
    )
    return {number: (STATUS_OF[status], attempt) for number, status, attempt in found if isinstance(attempt, int)}


def schedules(connection: sqlite3.Connection) -> list[Brief]:
    """Return where every schedule that is not deleted stands. Two lists are equal where nothing of them changed."""
    return connection.execute(
        "SELECT d.number, d.id, d.revision, d.diagnostic IS NOT NULL OR p.diagnostic IS NOT NULL, s.paused_at, s.candidate,"
        " s.next_instant IS NULL FROM definitions d LEFT JOIN schedules s ON s.number = d.number"
        " LEFT JOIN definitions p ON p.number = s.deployment WHERE d.kind = ? AND d.deleted_at IS NULL",
        (SCHEDULE,),
    ).fetchall()


def schedules_digest(connection: sqlite3.Connection) -> tuple[Any, ...]:
    """Return what is another one once anything changes that `schedules` shows; it costs less where there are thousands."""
    definitions = connection.execute(
        "SELECT count(*), sum(revision * number % 2147483647), sum(number * (diagnostic IS NOT NULL)),"
        " sum(number * (deleted_at IS NOT NULL)) FROM definitions"
    )
    states = connection.execute(
        "SELECT sum(number * (paused_at IS NOT NULL)), max(paused_at), sum(candidate / 1000 * number % 2147483647),"
        " sum(number * (next_instant IS NULL)), sum(deployment * number % 2147483647) FROM schedules"
    )
    return (*definitions.fetchone(), *states.fetchone())


def by_number(briefs: Iterable[Brief]) -> dict[int, Brief]:
    """Return them by the number of their schedule; what has none, or no id, is left to `evidence`."""
    return {each[0]: each for each in briefs if isinstance(each[0], int) and isinstance(each[1], str)}
