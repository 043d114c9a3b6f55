"""Opening the ledger: its format, its settings, and what is refused and left as it is (contract 2.5, 7.5)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from wfctl.errors import CannotCreate, DamagedStore, IoError, TimedOut
from wfctl.store.ledger import Ledger, connection, copies, definitions, executions, schema
from wfctl.store.ledger.schema import APPLICATION_ID, FORMAT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "ledger.db"
    Ledger.create(found)
    return found


def everything_in(directory: Path) -> dict[str, str]:
    """Digest by name of every file, but for the shared memory that readers of any kind need."""
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in directory.iterdir() if each.suffix != ".db-shm"
    }


def pragma(ledger: Ledger, name: str) -> object:
    return ledger.connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_2_5_settings_of_every_connection(path: Path) -> None:
    ledger = Ledger(path)
    assert pragma(ledger, "journal_mode") == "wal"
    assert pragma(ledger, "synchronous") == 2, "FULL"
    assert pragma(ledger, "foreign_keys") == 1
    assert pragma(ledger, "busy_timeout") == connection.BUSY_TIMEOUT_S * 1000
    assert pragma(ledger, "user_version") == FORMAT
    assert pragma(ledger, "application_id") == APPLICATION_ID
    ledger.close()


def test_2_5_writers_begin_immediately(path: Path) -> None:
    ledger, seen = Ledger(path), []
    ledger.connection.set_trace_callback(seen.append)
    with ledger.transaction() as rows:
        rows.execute("UPDATE counters SET run = 1")
    assert seen[0] == "BEGIN IMMEDIATE" and seen[-1] == "COMMIT"
    ledger.close()


def test_2_5_a_transaction_is_kept_whole_or_not_at_all(path: Path) -> None:
    ledger = Ledger(path)
    with pytest.raises(RuntimeError), ledger.transaction() as rows:
        rows.execute("UPDATE counters SET run = 7")
        raise RuntimeError
    assert ledger.connection.execute("SELECT run FROM counters").fetchone() == (0,)
    assert not ledger.connection.in_transaction and not ledger.is_writing and ledger.commits == 0
    ledger.close()


def test_a_transaction_that_wrote_nothing_commits_nothing(path: Path) -> None:
    points: list[str] = []
    ledger = Ledger(path, point=points.append)
    with ledger.transaction() as rows:
        rows.execute("SELECT * FROM counters").fetchall()
    assert points == [] and ledger.commits == 0
    with ledger.transaction() as rows:
        rows.execute("UPDATE counters SET run = 1")
    assert points == ["commit", "committed"] and ledger.commits == 1
    ledger.close()


def test_2_9_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        Ledger.create(tmp_path / "ledger.db")
    finally:
        os.umask(old)
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_2_5_the_store_id_is_random_and_stays(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    Ledger.create(other)
    ids = []
    for each in (path, path, other):
        ledger = Ledger(each)
        ids.append(ledger.store_id)
        ledger.close()
    assert ids[0] == ids[1] != ids[2]


def test_a_ledger_is_never_made_over_another(path: Path) -> None:
    before = everything_in(path.parent)
    with pytest.raises(CannotCreate):
        Ledger.create(path)
    assert everything_in(path.parent) == before


# What is refused -----------------------------------------------------------------------------------------------------------


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as rows:
        rows.execute(f"PRAGMA user_version = {FORMAT + 1}")
    rows.close()


def _newer_after_a_crash(path: Path) -> None:
    """The newer format stands in the write-ahead log alone: its writer died before moving it into the file."""
    crashed = path.with_name("crashed.db")
    rows = sqlite3.connect(path, isolation_level=None)
    rows.execute(f"PRAGMA user_version = {FORMAT + 1}")
    rows.execute("CREATE TABLE of_the_future (x)")
    shutil.copyfile(path, crashed)
    shutil.copyfile(f"{path}-wal", f"{crashed}-wal")
    rows.close()
    shutil.move(crashed, path)
    shutil.move(f"{crashed}-wal", f"{path}-wal")


def _header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 16)


def _page(path: Path) -> None:
    """The page of the schema is torn behind the header."""
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 200)


def _text(path: Path) -> None:
    path.write_text("this is no database at all, whatever its name may say" * 100)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _other_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as rows:
        rows.execute("CREATE TABLE counters (id)")
    rows.close()


def _cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(_newer, f"format {FORMAT + 1}", id="a newer format"),
        pytest.param(_newer_after_a_crash, f"format {FORMAT + 1}", id="a newer format, after a crash"),
        pytest.param(_header, "damaged", id="a damaged header"),
        pytest.param(_text, "damaged", id="a text"),
        pytest.param(_empty, "no ledger", id="an empty file"),
        pytest.param(_other_database, "no ledger", id="somebody else's database"),
    ],
)
def test_7_5_what_is_refused_stays_as_it_is(path: Path, spoil: Callable[[Path], None], says: str) -> None:
    spoil(path)
    before = everything_in(path.parent)
    for _ in range(2):
        with pytest.raises(DamagedStore, match=says) as caught:
            Ledger(path)
        assert str(path) in caught.value.message and caught.value.exit_status == 65
    assert everything_in(path.parent) == before


@pytest.mark.parametrize("spoil", [_page, _cut_short])
def test_7_5_damage_behind_the_header_is_damage_wherever_it_is_met(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    before = everything_in(path.parent)
    with pytest.raises(DamagedStore):
        ledger = Ledger(path)
        try:
            with ledger.reading() as rows:
                for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    rows.execute(f"SELECT * FROM {name}").fetchall()
                rows.execute("SELECT * FROM runs").fetchall()
                found = rows.execute("PRAGMA integrity_check").fetchall()
            if found != [("ok",)]:
                raise DamagedStore(str(found[0]))
        finally:
            ledger.close()
    assert everything_in(path.parent) == before


def test_7_5_a_missing_ledger_is_never_an_empty_one(path: Path) -> None:
    path.unlink()
    with pytest.raises(DamagedStore, match="missing"):
        Ledger(path)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_7_5_an_unreadable_ledger_is_no_missing_one(path: Path) -> None:
    path.chmod(0)
    with pytest.raises(IoError):
        Ledger(path)


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("moved.db"), os.mkfifo, Path.mkdir], ids=["link", "pipe", "directory"]
)
def test_2_9_a_ledger_that_is_no_regular_file_is_neither_followed_nor_waited_for(
    path: Path, make: Callable[[Path], None]
) -> None:
    path.rename(path.with_name("moved.db"))
    make(path)
    before = everything_in(path.with_name("moved.db").parent) if path.is_symlink() else {}
    with pytest.raises(DamagedStore, match="no regular file"):
        Ledger(path)
    assert not path.is_symlink() or everything_in(path.parent) == before


def test_2_5_another_writer_is_waited_for_and_then_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    one, two = Ledger(path), Ledger(path)
    with one.transaction() as rows:
        rows.execute("UPDATE counters SET run = 1")
        with pytest.raises(TimedOut, match="another writer"), two.transaction():
            pass
        with two.reading() as seen:  # readers are never held up
            assert seen.execute("SELECT run FROM counters").fetchone() == (0,)
    one.close()
    two.close()


# Migration -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of today, seen by a wfctl that is two formats further."""
    ledger = Ledger(path)
    with ledger.transaction() as rows:
        rows.execute("UPDATE counters SET run = 41")
    ledger.close()
    monkeypatch.setattr(connection, "FORMAT", FORMAT + 2)
    monkeypatch.setattr(
        connection,
        "MIGRATIONS",
        {
            FORMAT: "CREATE TABLE one (text TEXT DEFAULT 'a;b'); INSERT INTO one (text) VALUES ('first; second');",
            FORMAT + 1: "ALTER TABLE counters ADD COLUMN more INTEGER; UPDATE counters SET run = run + 1;",
        },
    )
    return path


def _backup(path: Path) -> Path:
    return path.with_name(f"ledger.db.format-{FORMAT}.backup")


def _state(path: Path) -> tuple[int, list[str], int]:
    rows = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        version = rows.execute("PRAGMA user_version").fetchone()[0]
        tables = [name for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE name = 'one'")]
        return version, tables, rows.execute("SELECT run FROM counters").fetchone()[0]
    finally:
        rows.close()


def test_2_5_an_older_format_is_migrated_after_a_copy(older: Path) -> None:
    ledger = Ledger(older)
    assert pragma(ledger, "user_version") == FORMAT + 2
    assert ledger.connection.execute("SELECT run, more FROM counters").fetchone() == (42, None)
    assert ledger.connection.execute("SELECT text FROM one").fetchone() == ("first; second",)
    ledger.close()
    assert _state(_backup(older)) == (FORMAT, [], 41)
    assert _backup(older).stat().st_mode & 0o777 == 0o600
    Ledger(older).close()
    assert _state(older) == (FORMAT + 2, ["one"], 42), "a second opening migrates nothing"


def test_2_5_the_copy_has_what_still_was_in_the_write_ahead_log(older: Path) -> None:
    reader = sqlite3.connect(older)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM counters").fetchall()  # keeps the log from being moved into the file
    writer = sqlite3.connect(older, isolation_level=None)
    writer.execute("UPDATE counters SET run = 99")
    Ledger(older).close()
    assert _state(_backup(older)) == (FORMAT, [], 99)
    reader.close()
    writer.close()


def test_2_5_a_migration_that_fails_leaves_the_old_format(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrations = {**connection.MIGRATIONS, FORMAT + 1: "UPDATE counters SET run = 7; INSERT INTO nowhere VALUES (1);"}
    monkeypatch.setattr(connection, "MIGRATIONS", migrations)
    with pytest.raises(DamagedStore):
        Ledger(older)
    assert _state(older) == (FORMAT, [], 41)
    assert _state(_backup(older)) == (FORMAT, [], 41)


def test_2_5_a_crash_within_a_migration_leaves_the_old_format(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MIGRATIONS", {**connection.MIGRATIONS, FORMAT + 1: "SELECT die();"})
    connect = connection._connect

    def deadly(path: Path, mode: str = "rw") -> sqlite3.Connection:
        found = connect(path, mode)
        found.create_function("die", 0, lambda: os._exit(9))
        return found

    child = os.fork()
    if not child:
        monkeypatch.setattr(connection, "_connect", deadly)
        try:
            Ledger(older)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert _state(older) == (FORMAT, [], 41)
    monkeypatch.setattr(connection, "MIGRATIONS", {**connection.MIGRATIONS, FORMAT + 1: "UPDATE counters SET run = 50;"})
    Ledger(older).close()
    assert _state(older) == (FORMAT + 2, ["one"], 50), "the next one begins again"


def test_2_5_two_that_come_at_once_migrate_once(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = connection._migrate

    def late(rows: sqlite3.Connection, path: Path) -> None:
        monkeypatch.setattr(connection, "_migrate", real)
        Ledger(path).close()  # another process is first
        real(rows, path)

    monkeypatch.setattr(connection, "_migrate", late)
    Ledger(older).close()
    assert _state(older) == (FORMAT + 2, ["one"], 42)


def test_2_5_the_copy_goes_back_as_a_ledger(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(older).close()
    _backup(older).replace(older)
    monkeypatch.setattr(connection, "FORMAT", FORMAT)
    ledger = Ledger(older)
    assert pragma(ledger, "journal_mode") == "wal"
    assert ledger.connection.execute("SELECT run FROM counters").fetchone() == (41,)
    ledger.close()


def test_every_format_has_its_migration() -> None:
    assert sorted(schema.MIGRATIONS) == list(range(1, FORMAT))


_BEFORE_4 = (
    "ALTER TABLE executions DROP COLUMN origin; DROP TABLE origins; DROP TABLE foreseen;"
    " ALTER TABLE revisions ADD COLUMN calendar TEXT; PRAGMA user_version = 3;"
)


def _shape(rows: sqlite3.Connection) -> dict[str, list[object]]:
    """Each table with its columns, each index with what it holds, however they came to be."""
    names = rows.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    return {
        name: rows.execute(f"PRAGMA {kind}_{'xinfo' if kind == 'index' else 'info'}({name})").fetchall() for kind, name in names
    }


def test_2_5_executions_of_format_3_keep_their_marks(path: Path) -> None:
    fresh = sqlite3.connect(path, isolation_level=None)
    shape = _shape(fresh)
    fresh.executescript(_BEFORE_4)
    note = '{"boot":"b","since_ns":7,"keeper":"store","pid":8,"start_time":9}'
    rows = [
        (1, 1, 0, 1, *[None] * 11),  # without a note, as no version leaves one
        (2, 1, 0, 1, 1, 10, 20, 0, None, 5, 6, 0, '{"errno":2}', '{"code":"cancelled"}', None),
        (2, 2, 1, 1, None, 30, None, None, None, None, None, None, None, None, note),
    ]
    fresh.executemany(f"INSERT INTO executions VALUES ({', '.join('?' * len(rows[0]))})", rows)
    fresh.close()
    ledger = Ledger(path)
    assert pragma(ledger, "user_version") == FORMAT
    assert _shape(ledger.connection) == shape, "as in a new ledger"
    assert ledger.connection.execute("SELECT * FROM executions ORDER BY run, k").fetchall() == [(*row, None) for row in rows]
    unsettled = [(row.run, row.k, dict(row.mark)) for row in executions.unsettled(ledger.connection)]
    assert unsettled == [(1, 1, {}), (2, 2, json.loads(note))]
    ledger.close()
    for copy in (path.with_name("ledger.db.format-3.backup"), path):
        assert [(each.run, each.k, each.mark) for each in copies.unsettled(copy)] == [(2, 2, json.loads(note))]


def test_2_5_revisions_of_format_3_keep_their_calendars(path: Path) -> None:
    fresh = sqlite3.connect(path, isolation_level=None)
    fresh.executescript(_BEFORE_4)
    fresh.execute("INSERT INTO definitions (number, kind, id, revision, written, created_at) VALUES (1, 1, 's', 3, 1, 0)")
    for revision, calendar in ((1, '{"until":1}'), (2, None), (3, b"damaged")):
        fresh.execute(
            "INSERT INTO revisions (definition, revision, recorded_at, actor, croniter, tz_database, digest, content, plain,"
            " begins, calendar) VALUES (1, ?, 5, 'somebody', '7.0.0', '2024a', 'd', 'text', '{}', 6, ?)",
            (revision, calendar),
        )
    fresh.close()
    ledger = Ledger(path)
    found = definitions.revisions(ledger.connection, 1, after=0, limit=9)
    assert [(row.revision, row.content, row.begins, row.calendar) for row in found] == [
        (1, "text", 6, '{"until":1}'), (2, "text", 6, None), (3, "text", 6, None),
    ]  # fmt: skip
    definitions.add_revision(ledger.connection, 1, definitions.RevisionRow(**{**vars(found[0]), "revision": 4}))
    added = definitions.revision(ledger.connection, 1, 4)
    assert added is not None
    assert vars(added) == {**vars(found[0]), "revision": 4}
    ledger.close()


def test_2_5_revisions_of_format_2_stay_and_keep_no_calendar(path: Path) -> None:
    """What format 3 adds is taken away again, as an older wfctl left it."""
    fresh = sqlite3.connect(path, isolation_level=None)
    columns = fresh.execute("PRAGMA table_info(revisions)").fetchall()
    fresh.executescript(_BEFORE_4)
    tables = {name for (name,) in fresh.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for name in tables & {"health", "notices"}:
        fresh.execute(f"DROP TABLE {name}")
    fresh.executescript(
        "ALTER TABLE revisions DROP COLUMN calendar; PRAGMA user_version = 2;"
        " INSERT INTO definitions (number, kind, id, revision, digest, written, created_at) VALUES (1, 1, 's', 1, 'd', 1, 0);"
        " INSERT INTO revisions (definition, revision, recorded_at, actor, croniter, tz_database, digest, content, plain)"
        " VALUES (1, 1, 0, 'somebody', '7.0.0', '2024a', 'd', 'text', '{}');"
    )
    fresh.close()
    ledger = Ledger(path)
    assert pragma(ledger, "user_version") == FORMAT
    assert ledger.connection.execute("PRAGMA table_info(revisions)").fetchall() == columns, "as in a new ledger"
    assert tables <= {name for (name,) in ledger.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found = definitions.revision(ledger.connection, 1, 1)
    assert found is not None and (found.content, found.tz_database, found.calendar) == ("text", "2024a", None)
    ledger.close()
    copy = sqlite3.connect(path.with_name("ledger.db.format-2.backup"))
    assert copy.execute("PRAGMA user_version").fetchone() == (2,)
    assert copy.execute("SELECT actor FROM revisions").fetchall() == [("somebody",)]
    copy.close()
