"""Copies of a ledger: taking one while it is written to, judging one, and what a copy says of itself (contract 2.5, 2.8)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wfctl.core.model import Json
from wfctl.errors import DamagedStore, WfctlError
from wfctl.store.ledger import evidence, executions
from wfctl.store.ledger.connection import connect_to_read, refuse_foreign, translated
from wfctl.store.ledger.schema import DEPLOYMENT, SCHEDULE

_PAGES_AT_ONCE = 4096  #: 16 MiB
_FORMAT_OF_ORIGINS = 4  #: from which on a mark does not hold all of its note


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """What a ledger holds."""

    store_id: str | None
    format: int
    schedules: frozenset[str]  #: ids that are not deleted, as deployments
    deployments: frozenset[str]
    revisions: Mapping[tuple[str, str], int]  #: by kind and id
    occurrences: int
    runs: int
    last_run: int  #: the last number given


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An execution that is marked and has no end, as far as that ledger knows."""

    run: int
    k: int
    mark: Mapping[str, Json]


def take_snapshot(ledger: Path, target: Path) -> None:
    """Copy a ledger as it is at one moment into a new file, whoever writes to it meanwhile: nobody waits for this.

    SQLite's own online backup, within one read transaction; brought to the disk piece by piece, so that no fsync of a writer
    has to wait for all of it. Raise DamagedStore, IoError.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    source = connect_to_read(ledger)
    copy = sqlite3.connect(target, isolation_level=None)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with translated(ledger):
            copy.execute("PRAGMA synchronous = OFF")
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM meta").fetchone()  # from here on it reads the same state
            source.backup(copy, pages=_PAGES_AT_ONCE, progress=lambda status, left, total: os.fdatasync(descriptor), sleep=0.01)
            source.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, which may be read wherever it is put
    finally:
        os.close(descriptor)
        copy.close()
        source.close()


def check_copy(path: Path) -> None:
    """Raise DamagedStore where a ledger is none of ours, of a newer format, or not sound."""
    refuse_foreign(path)
    with opened(path) as connection:
        problems = evidence.integrity_problems(connection, limit=1)
        if not problems:
            evidence.check_counters(connection)
    if problems:
        raise DamagedStore(f"{path.name} is damaged ({problems[0]})", {"problems": problems})


def facts_of(path: Path) -> CopyFacts:
    """Return what a ledger holds. Raise DamagedStore, IoError."""
    with opened(path) as connection:
        stored = connection.execute("SELECT value FROM meta WHERE key = 'store_id'").fetchone()
        names = {
            kind: frozenset(str(name) for (name,) in connection.execute(
                "SELECT id FROM definitions WHERE kind = ? AND deleted_at IS NULL", (kind,)))
            for kind in (SCHEDULE, DEPLOYMENT)
        }  # fmt: skip
        revisions = connection.execute("SELECT kind, id, revision FROM definitions").fetchall()
        counts = evidence.counts(connection)
        last = connection.execute("SELECT max(run, coalesce((SELECT max(number) FROM runs), 0)) FROM counters").fetchone()
        return CopyFacts(
            store_id=None if stored is None else str(stored[0]),
            format=int(connection.execute("PRAGMA user_version").fetchone()[0]),
            schedules=names[SCHEDULE],
            deployments=names[DEPLOYMENT],
            revisions={("schedule" if kind else "deployment", str(name)): revision for kind, name, revision in revisions},
            occurrences=counts["occurrences"],
            runs=counts["runs"],
            last_run=last[0] if last is not None and isinstance(last[0], int) else 0,
        )


def facts_if_readable(path: Path) -> CopyFacts | None:
    """Return what a ledger holds; None where there is none that can be read."""
    try:
        refuse_foreign(path)
        return facts_of(path)
    except (WfctlError, OSError, TypeError, ValueError):
        return None


def run_numbers(connection: sqlite3.Connection) -> Iterator[int]:
    """Give the number of every run that a ledger knows, ascending."""
    for (number,) in connection.execute("SELECT number FROM runs WHERE number > 0 ORDER BY number"):
        yield number


def unsettled(path: Path) -> list[Unsettled]:
    """Return the executions without an end; none where the ledger cannot be read."""
    try:
        with opened(path) as connection:
            is_older = connection.execute("PRAGMA user_version").fetchone()[0] < _FORMAT_OF_ORIGINS
            marks = "mark, NULL" if is_older else executions.MARK
            rows = connection.execute(f"SELECT run, k, {marks} FROM executions WHERE how IS NULL").fetchall()
        return [Unsettled(run, k, executions.note_of(mark, shared)) for run, k, mark, shared in rows if mark]
    except (WfctlError, TypeError, ValueError):
        return []


def raise_run_counter(path: Path, last: int) -> None:
    """In a copy that nobody has open, move the counter of runs past numbers that were given out since it was taken (2.8)."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            connection.execute("UPDATE counters SET run = max(run, ?)", (last,))
    finally:
        connection.close()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to a ledger that nobody writes to. Raise DamagedStore, IoError."""
    connection = connect_to_read(path, is_at_rest=True)
    try:
        with translated(path):
            yield connection
    finally:
        connection.close()
