"""Damaging single values of a ledger, as a bad disk or a hand with SQLite would."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

TABLES = ("definitions", "revisions", "schedules", "occurrences", "runs", "executions")
KEYS: dict[str, str] = {
    "definitions": "number = {schedule}",
    "revisions": "definition = {schedule}",
    "schedules": "number = {schedule}",
    "occurrences": "schedule = {schedule}",
    "runs": "schedule = {schedule}",
    "executions": "run IN (SELECT number FROM runs WHERE schedule = {schedule})",
}
#: Columns that name a row: changed, it is another row, and what it was is not to be told from what never was.
NAMES = frozenset({("definitions", "number"), ("definitions", "kind"), ("definitions", "id"), ("revisions", "definition")})
VALUES: tuple[Any, ...] = (
    "banana",
    "",
    "{",
    "[]",
    '{"code": 5}',
    0,
    -1,
    7,
    10,
    13,
    99,
    2**62,
    -(2**62),
    1.5,
    b"\x00\xff",
    None,
)


def connect(root: Path) -> sqlite3.Connection:
    """Return a connection to a store's ledger without any of wfctl's own care."""
    connection = sqlite3.connect(root / "ledger.db", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


def number_of(root: Path, schedule_id: str) -> int:
    """Return the number of a schedule."""
    connection = connect(root)
    try:
        return int(connection.execute("SELECT number FROM definitions WHERE kind = 1 AND id = ?", (schedule_id,)).fetchone()[0])
    finally:
        connection.close()


def execute(root: Path, *statements: str) -> None:
    """Run statements on a store's ledger."""
    connection = connect(root)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def damage(root: Path, schedule_id: str, chance: random.Random) -> str | None:
    """Change one value, or remove one row, of what belongs to a schedule; return what was done, None where SQLite refused."""
    schedule = number_of(root, schedule_id)
    connection = connect(root)
    try:
        table = chance.choice(TABLES)
        where = KEYS[table].format(schedule=schedule)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
        rows = connection.execute(f"SELECT {', '.join(keys)} FROM {table} WHERE {where}").fetchall()
        if not rows:
            return None
        row = chance.choice(rows)
        exactly = " AND ".join(f"{key} = ?" for key in keys)
        if chance.random() < 0.1 and table != "definitions":
            connection.execute(f"DELETE FROM {table} WHERE {exactly}", row)
            return f"removed {table} {row}"
        column = chance.choice([name for name in columns if (table, name) not in NAMES])
        value = chance.choice(VALUES)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {exactly}", (value, *row))
        return f"{table}.{column} of {row} is {value!r}"
    except sqlite3.Error:
        return None
    finally:
        connection.close()
