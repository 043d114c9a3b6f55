"""A store with very many schedules, made in seconds: one of each trigger is created properly, the others are copies of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

TRIGGER = {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"}
ZONES = ("UTC", "Europe/Budapest", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
NOT_DUE = timedelta(hours=2)  #: that far ahead at least is the first instant of what `far_triggers` gives


def name_of(number: int) -> str:
    """Return the id of one of them, counted from 0."""
    return f"report-{number:06d}"


def far_triggers(count: int) -> list[dict[str, str]]:
    """Return so many different triggers, none of which comes due within two hours: daily, weekly, monthly and yearly ones."""
    from wfctl import next_instants

    now = datetime.now(UTC)
    found: list[dict[str, str]] = []
    for i in range(20 * count):
        minute, hour, day, month = (i + i // 60) % 60, i * 5 // 7 % 24, 1 + i // 11 % 28, 1 + i % 12
        dates = ("* * *", f"* * {i % 7}", f"{day} * *", f"{day} {month} *", "* * mon-fri", f"*/2 {month} *")[i // 5 % 6]
        trigger = {"kind": "cron", "expression": f"{minute} {hour} {dates}", "timezone": ZONES[i % len(ZONES)]}
        if trigger not in found and next_instants(trigger, now, 1)[0] - now > NOT_DUE:
            found.append(trigger)
        if len(found) == count:
            return found
    raise ValueError(f"no {count} triggers are far away")


def make(root: Path, count: int, triggers: Sequence[Mapping[str, Any]] = (TRIGGER,)) -> None:
    """Make a store with a deployment and that many schedules, of these triggers in turn."""
    from wfctl import init_store
    from wfctl.core.trigger import stamps
    from wfctl.store.ledger import definitions

    with init_store(root) as store:
        store.create_deployment(deployment_id="report", command=["/bin/true"])
        own = list(triggers)[:count]
        for number, trigger in enumerate(own):
            name = name_of(number)
            store.create_schedule(schedule_id=name, deployment_id="report", trigger=dict(trigger), notes="For the finance team")
        with store.context.ledger.transaction() as connection:
            _copy(connection, root / "schedules", count, len(own))
            definitions.set_calendar_stamps(connection, " ".join(stamps()))  # else a supervisor works them all out anew


def _copy(connection: sqlite3.Connection, directory: Path, count: int, own: int) -> None:
    """Copy the rows and files of the first `own` schedules in turn, until there are `count`."""
    connection.row_factory = sqlite3.Row
    columns = "SELECT * FROM definitions WHERE id = ?"
    firsts = [dict(connection.execute(columns, (name_of(i),)).fetchone()) for i in range(own)]
    texts = [(directory / f"{name_of(i)}.toml").read_bytes() for i in range(own)]
    begin = firsts[0]["number"]
    rows = [
        {**firsts[i % own], **_write(directory, name_of(i), texts[i % own]), "number": begin + i} for i in range(own, count)
    ]
    names = ", ".join(f":{name}" for name in firsts[0])
    connection.executemany(f"INSERT INTO definitions ({', '.join(firsts[0])}) VALUES ({names})", rows)
    for table, key in (("revisions", "definition"), ("foreseen", "definition"), ("schedules", "number")):
        named = [row["name"] for row in connection.execute(f"PRAGMA table_info({table})") if row["name"] != key]
        values = ", ".join(f"t.{name}" for name in named)
        connection.execute(
            f"INSERT INTO {table} ({key}, {', '.join(named)}) SELECT d.number, {values} FROM definitions d"
            f" JOIN {table} t ON t.{key} = ?1 + (d.number - ?1) % ?2 WHERE d.number >= ?1 + ?2",
            (begin, own),
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
