"""Opening the ledger, its transactions, and what its failures mean (contract 2.5, 2.10, 7.5)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING

from wfctl.errors import CannotCreate, DamagedStore, InvalidArgument, IoError, TimedOut, WfctlError, WrongState
from wfctl.store.ledger.schema import APPLICATION_ID, FORMAT, MIGRATIONS, TABLES

if TYPE_CHECKING:
    from pathlib import Path

BUSY_TIMEOUT_S = 20.0
RESTORE = "put a backup back with `wfctl store restore FILE`"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SPECIAL = frozenset("%?#")  #: in the address of a file


class Ledger:
    """One connection to a store's ledger. Every write is one `transaction`; what is committed survives a power cut.

    `point` is called with `commit` before each commit and `committed` after it: the seam at which crash tests die.
    """

    def __init__(self, path: Path | str, *, point: Callable[[str], None] | None = None) -> None:
        """Open an existing ledger. Raise DamagedStore when it is missing or no ledger, or of a newer format; IoError."""
        self._path = os.fspath(path)
        self.point = point or (lambda name: None)
        self.commits = 0  #: how many transactions that wrote anything were committed over this connection
        self.is_writing = False  #: within `transaction`: what is read may yet be rolled back
        refuse_foreign(path)
        self._connection: sqlite3.Connection | None = _connect(path)
        try:
            with translated(path):
                _prepare(self.connection, path)
        except BaseException:
            self.connection.close()
            raise

    @classmethod
    def create(cls, path: Path) -> None:
        """Make a new ledger with a random store id. Raise CannotCreate."""
        import uuid

        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise CannotCreate(f"cannot make {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
        connection = _connect(path)
        try:
            with translated(path):
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is written, or never
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; {TABLES}"
                    f"INSERT INTO meta VALUES ('store_id', '{uuid.uuid4()}'); COMMIT;"
                )
        finally:
            connection.close()

    @property
    def path(self) -> Path:
        """The file."""
        from pathlib import Path

        return Path(self._path)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection. Raise WrongState once closed."""
        if self._connection is None:
            raise WrongState("this store is closed; open it again")
        return self._connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection within one `BEGIN IMMEDIATE` transaction: all of it is committed, or nothing.

        Raise TimedOut when another writer holds the ledger for too long, IoError and DamagedStore as SQLite reports them.
        """
        with translated(self._path):
            self.connection.execute("BEGIN IMMEDIATE")
            self.is_writing = True
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
            finally:
                self.is_writing = False
        self.commits += 1
        self.point("committed")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection with one consistent view of the ledger."""
        with translated(self._path):
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
            found = connection.execute("SELECT value FROM meta WHERE key = 'store_id'").fetchone()
        if found is None or not isinstance(found[0], str):
            raise DamagedStore(f"{self._path} does not say which store it is of; {RESTORE}")
        return found[0]


@contextlib.contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn what SQLite raises into what an operator can act on."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _meaning_of(error, path) from error
    except UnicodeEncodeError as error:  # what was asked for, or is to be written; nothing like it is stored
        raise InvalidArgument("this is no text: it has bytes that are no UTF-8, or lone surrogates") from error


def _meaning_of(error: sqlite3.Error, path: Path | str) -> WfctlError:
    number = getattr(error, "sqlite_errorcode", None)
    primary = number & 0xFF if number is not None else None
    data = {"path": str(path), "sqlite": getattr(error, "sqlite_errorname", None)}
    if primary in _DAMAGE:
        return DamagedStore(f"{path} is damaged ({error}); it was left as it is: {RESTORE}", data)
    if primary in _BUSY:
        return TimedOut(f"{path} was held by another writer for {BUSY_TIMEOUT_S:.0f} s; try again", data)
    if isinstance(error, sqlite3.IntegrityError):
        return DamagedStore(f"{path} refused contradictory records ({error}); see `wfctl store verify`", data)
    if primary == sqlite3.SQLITE_ERROR:
        return DamagedStore(f"{path} lacks what this wfctl expects of a ledger ({error})", data)
    return IoError(f"cannot use {path}: {error}", data)


def _connect(path: Path | str, mode: str = "rw") -> sqlite3.Connection:
    try:
        is_regular = stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        message = f"{path} is missing, though the store is there; {RESTORE}"
        raise DamagedStore(message) from None
    except OSError as error:
        raise IoError(f"cannot use {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
    if not is_regular:  # a link would be followed, a pipe waited for (2.9)
        raise DamagedStore(f"{path} is no regular file; put the ledger itself there, or restore a backup")
    try:
        connection = sqlite3.connect(
            f"file:{_quoted(path)}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise _meaning_of(error, path) from error
    connection.text_factory = _text
    return connection


def _quoted(path: Path | str) -> str:
    """Return a path as an address of SQLite has it."""
    text = os.fspath(path)
    if text.isascii() and not _SPECIAL.intersection(text):
        return text
    return "".join(f"%{byte:02X}" if byte > 127 or chr(byte) in _SPECIAL else chr(byte) for byte in os.fsencode(text))


def connect_to_read(path: Path | str, *, is_at_rest: bool = False) -> sqlite3.Connection:
    """Return a connection that cannot write. `is_at_rest`: where there is no write-ahead log, none is made for it either.

    Raise DamagedStore for what is no file, IoError.
    """
    has_log = os.path.exists(f"{path}-wal")  # noqa: PTH110
    return _connect(path, "ro&immutable=1" if is_at_rest and not has_log else "ro")


def open_beside(path: Path | str) -> sqlite3.Connection:
    """Return another connection to a ledger that is open already. Raise DamagedStore for what is no file, IoError."""
    connection = _connect(path)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


#: One text that is not UTF-8 any more must not keep the rows around it from being read; digests tell of it (7.4).
_text = methodcaller("decode", "utf-8", "replace")


def refuse_foreign(path: Path | str) -> None:
    """Look at what is no ledger of ours, or of a newer format, without a way to write: it stays as it is, byte for byte.

    A connection that may write would move its write-ahead log into it when closed. SQLite must do the looking: a descriptor of
    our own, when closed, would let go of every lock that this process has on the file. Where there is no log, nobody has it
    open, and what is said to be immutable is read without making one.
    """
    probe = connect_to_read(path, is_at_rest=True)
    try:
        with translated(path):
            application = probe.execute("PRAGMA application_id").fetchone()[0]
            found = probe.execute("PRAGMA user_version").fetchone()[0]
    finally:
        probe.close()
    if application != APPLICATION_ID:
        raise DamagedStore(f"{path} is no ledger of wfctl; it was left as it is: {RESTORE}")
    if found > FORMAT:
        raise DamagedStore(f"{path} has format {found}, this wfctl knows {FORMAT}; it was left as it is: use a newer wfctl")


def _prepare(connection: sqlite3.Connection, path: Path | str) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")  # a copy put back may be in another mode
    connection.execute("PRAGMA synchronous = FULL")
    if _format_of(connection) < FORMAT:
        from pathlib import Path

        _migrate(connection, Path(path))


def _format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring an older ledger to today's format in one transaction, after a copy beside it."""
    connection.execute("BEGIN IMMEDIATE")  # before looking: of two that come at once, the second finds it done
    try:
        found = _format_of(connection)
        if found < FORMAT:
            _back_up(path, path.with_name(f"{path.name}.format-{found}.backup"))
            for number in range(found, FORMAT):
                for statement in _statements(MIGRATIONS[number]):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _back_up(path: Path, copy: Path) -> None:
    """Copy the ledger as it was last committed, what is still in its write-ahead log included; durable before we go on."""
    temporary = copy.with_name(f".{copy.name}.tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    source, target = _connect(path, "ro"), sqlite3.connect(temporary, isolation_level=None)
    try:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, which may be read wherever it is put
    finally:
        target.close()
        source.close()
    temporary.replace(copy)
    directory = os.open(copy.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _statements(script: str) -> Iterator[str]:
    """Give the statements of a script one by one: `executescript` would commit first."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
