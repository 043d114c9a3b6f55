"""Opening the ledger, its transactions, and what its failures mean (contract 2.5, 2.10, 7.5)."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from wfctl.errors import CannotCreate, DamagedStore, IoError, TimedOut, WfctlError
from wfctl.store.ledger.schema import APPLICATION_ID, FORMAT, MIGRATIONS, TABLES

BUSY_TIMEOUT_S = 20.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Ledger:
    """One connection to a store's ledger. Every write is one `transaction`; what is committed survives a power cut.

    `point` is called with `commit` before each commit and `committed` after it: the seam at which crash tests die.
    """

    def __init__(self, path: Path, *, point: Callable[[str], None] | None = None) -> None:
        """Open an existing ledger. Raise DamagedStore when it is missing or no ledger, or of a newer format; IoError."""
        self.path = path
        self.point = point or (lambda name: None)
        self.commits = 0  #: how many transactions that wrote anything were committed over this connection
        self.connection = _connect(path)
        try:
            with translated(path):
                _prepare(self.connection, path)
        except BaseException:
            self.connection.close()
            raise

    @classmethod
    def create(cls, path: Path) -> None:
        """Make a new ledger with a random store id. Raise CannotCreate."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise CannotCreate(f"cannot make {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
        connection = _connect(path)
        try:
            with translated(path):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; {TABLES}"
                    f"INSERT INTO meta VALUES ('store_id', '{uuid.uuid4()}'); COMMIT;"
                )
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection within one `BEGIN IMMEDIATE` transaction: all of it is committed, or nothing.

        Raise TimedOut when another writer holds the ledger for too long, IoError and DamagedStore as SQLite reports them.
        """
        with translated(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                before = self.connection.total_changes
                yield self.connection
                if self.connection.total_changes == before:
                    self.connection.execute("ROLLBACK")  # nothing to keep: no fsync
                    return
                self.point("commit")  # a crash before it leaves the ledger as it was; after it, all of the change
                self.connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.execute("ROLLBACK")
                raise
        self.commits += 1
        self.point("committed")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection with one consistent view of the ledger."""
        with translated(self.path):
            if self.connection.in_transaction:
                yield self.connection
                return
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.execute("ROLLBACK")

    @property
    def store_id(self) -> str:
        """The random id that `init` gave this store."""
        with self.reading() as connection:
            return str(connection.execute("SELECT value FROM meta WHERE key = 'store_id'").fetchone()[0])


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into what an operator can act on."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _meaning_of(error, path) from error


def _meaning_of(error: sqlite3.Error, path: Path) -> WfctlError:
    number = getattr(error, "sqlite_errorcode", None)
    primary = number & 0xFF if number is not None else None
    data = {"path": str(path), "sqlite": getattr(error, "sqlite_errorname", None)}
    if primary in _DAMAGE:
        return DamagedStore(
            f"{path} is damaged ({error}); it was left as it is: restore a backup with `wfctl store restore`", data
        )
    if primary in _BUSY:
        return TimedOut(f"{path} was held by another writer for {BUSY_TIMEOUT_S:.0f} s; try again", data)
    if isinstance(error, sqlite3.IntegrityError):
        return DamagedStore(f"{path} refused contradictory records ({error}); see `wfctl store verify`", data)
    if primary == sqlite3.SQLITE_ERROR:
        return DamagedStore(f"{path} lacks what this wfctl expects of a ledger ({error})", data)
    return IoError(f"cannot use {path}: {error}", data)


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise DamagedStore(f"{path} is missing, though the store is there; restore a backup with `wfctl store restore`")
    try:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise _meaning_of(error, path) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise DamagedStore(f"{path} is no ledger of wfctl; it was left as it is: restore a backup with `wfctl store restore`")
    if found > FORMAT:
        raise DamagedStore(f"{path} has format {found}, this wfctl knows {FORMAT}; it was left as it is: use a newer wfctl")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    if found < FORMAT:
        _migrate(connection, path, found)


def _migrate(connection: sqlite3.Connection, path: Path, found: int) -> None:
    """Bring an older ledger to today's format in one transaction, after a copy beside it."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.with_name(f"{path.name}.format-{found}.backup")
    shutil.copyfile(path, copy)
    copy.chmod(0o600)
    steps = "".join(MIGRATIONS[number] for number in range(found, FORMAT))
    connection.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {FORMAT}; COMMIT;")
