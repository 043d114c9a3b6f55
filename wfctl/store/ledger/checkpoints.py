"""Moving the write-ahead log into the ledger's file, and giving room back: beside what is urgent, in small pieces.

SQLite has whoever commits move the log once it is long: some megabytes are written and synced then, within the commit. An
admission must not wait for that. A connection that commits what is urgent leaves it to somebody else.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from wfctl.store.ledger.connection import open_beside, translated

_AT_LAST = 32_768  #: pages of the log, 128 MiB, at which even an urgent commit moves them: nobody else has come to it
_LEAST_KIB, _MOST_KIB = 2_048, 16_384  #: held of the ledger; the first is SQLite's own
_SCHEDULES_A_KIB = 6
_SPARE = 256  #: free pages that are kept: what is written next goes there
_AT_ONCE = 64  #: pages given back in one transaction


def leave(connection: sqlite3.Connection) -> None:
    """Have commits of this connection leave the log where it is: somebody else moves it in time."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {_AT_LAST}")


def hold_more(connection: sqlite3.Connection) -> None:
    """Have a connection that writes all the time hold more pages where there are very many schedules.

    A round of many touches as many pages of each index. With few, what SQLite holds by itself is enough for any history.
    """
    count = int(connection.execute("SELECT count(*) FROM schedules").fetchone()[0])
    connection.execute(f"PRAGMA cache_size = -{min(_LEAST_KIB + count // _SCHEDULES_A_KIB, _MOST_KIB)}")


@contextlib.contextmanager
def left(connection: sqlite3.Connection) -> Iterator[None]:
    """Have commits leave the log where it is meanwhile: the body moves it."""
    before = connection.execute("PRAGMA wal_autocheckpoint").fetchone()[0]
    leave(connection)
    try:
        yield
    finally:
        connection.execute(f"PRAGMA wal_autocheckpoint = {before}")


def move(connection: sqlite3.Connection) -> None:
    """Move what is in the log into the file, as far as no reader needs it there. Writers go on meanwhile."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def move_beside(path: Path) -> None:
    """The same over a connection of its own. Raise IoError, DamagedStore."""
    connection = open_beside(path)
    try:
        with translated(path):
            move(connection)
    finally:
        connection.close()


def give_back(connection: sqlite3.Connection) -> bool:
    """Give a few free pages at the end of the file back to the file system; return whether there are more.

    Only a ledger that was made so can: one of an older version keeps its size, and its free pages are written to again.
    """
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    if free <= _SPARE or connection.execute("PRAGMA auto_vacuum").fetchone()[0] != 2:
        return False
    # As a script: it gives a row for each page, and `execute` takes the first alone.
    connection.executescript(f"PRAGMA incremental_vacuum({min(_AT_ONCE, free - _SPARE)})")
    return free - _AT_ONCE > _SPARE
