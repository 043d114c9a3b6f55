"""A store with very many schedules, made in seconds: one is created properly, the others are copies of its rows and file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

TRIGGER = {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"}


def name_of(number: int) -> str:
    """Return the id of one of them, counted from 0."""
    return f"report-{number:06d}"


def make(root: Path, count: int) -> None:
    """Make a store with a deployment and that many daily schedules."""
    from wfctl import init_store
    from wfctl.core.trigger import stamps
    from wfctl.store.ledger import definitions

    with init_store(root) as store:
        store.create_deployment(deployment_id="report", command=["/bin/true"])
        store.create_schedule(schedule_id=name_of(0), deployment_id="report", trigger=TRIGGER, notes="For the finance team")
        with store.context.ledger.transaction() as connection:
            _copy(connection, root / "schedules", count)
            definitions.set_calendar_stamps(connection, " ".join(stamps()))  # else a supervisor works them all out anew


def _copy(connection: sqlite3.Connection, directory: Path, count: int) -> None:
    connection.row_factory = sqlite3.Row
    first = dict(connection.execute("SELECT * FROM definitions WHERE id = ?", (name_of(0),)).fetchone())
    text = (directory / f"{name_of(0)}.toml").read_bytes()
    rows = [{**first, **_write(directory, name_of(i), text), "number": first["number"] + i} for i in range(1, count)]
    names = ", ".join(f":{name}" for name in first)
    connection.executemany(f"INSERT INTO definitions ({', '.join(first)}) VALUES ({names})", rows)
    for table, key in (("revisions", "definition"), ("schedules", "number")):
        columns = [row["name"] for row in connection.execute(f"PRAGMA table_info({table})") if row["name"] != key]
        values = ", ".join(f"t.{name}" for name in columns)
        connection.execute(
            f"INSERT INTO {table} ({key}, {', '.join(columns)}) SELECT d.number, {values} FROM definitions d, {table} t"
            f" WHERE t.{key} = ?1 AND d.number > ?1",
            (first["number"],),
        )
    connection.row_factory = None


def _write(directory: Path, name: str, text: bytes) -> dict[str, object]:
    """Write a definition's file, and return what the ledger notes of it."""
    descriptor = os.open(directory / f"{name}.toml", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, text)
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    return {"id": name, **times, "size": status.st_size, "inode": status.st_ino}
