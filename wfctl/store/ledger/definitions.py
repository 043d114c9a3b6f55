"""Definitions and their revisions: what is wanted on disk, what is known of the file, and whether it can be trusted."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wfctl.core.json_text import dumps
from wfctl.store.layout import Kind
from wfctl.store.ledger.rows import UnreadableRow, check_span, guarded, json_object
from wfctl.store.ledger.schema import KIND_NUMBER
from wfctl.value import Value

Signature = tuple[int, int, int, int]  #: mtime and ctime in nanoseconds, size, inode
#: Of one file: its name, its signature, and whether it is to be looked at whatever that is.
Noted = tuple[str, int | None, int | None, int | None, int | None, int]

_COLUMNS = """number, kind, id, revision, digest, prior_digest, written, mtime_ns, ctime_ns, size, inode, diagnostic,
 created_at, deleted_at"""


class DefinitionRow(Value):
    """What the ledger knows of one definition. Times are microseconds since the epoch."""

    number: int
    kind: Kind
    id: str
    revision: int
    digest: str | None
    prior_digest: str | None
    is_written: bool
    signature: Signature | None
    diagnostic: Mapping[str, Any] | None
    created_at: int
    deleted_at: int | None


class RevisionRow(Value):
    """One saved state of a definition."""

    revision: int
    recorded_at: int
    actor: str
    croniter: str
    tz_database: str
    digest: str
    content: str
    plain: Mapping[str, Any]
    max_run: int | None
    begins: int | None = None  #: of a schedule: where the calendar of a changed trigger begins
    calendar: str | None = None  #: of a cron schedule: what to compare later calendars with; nothing is decided by it


class RevisionText(Value):
    """What a saved state says, without what is known of it besides."""

    digest: str
    content: str
    max_run: int | None


CONTRADICTION = "contradiction"  #: the code of a diagnostic that only an explicit remedy clears (7.4)


def is_contradicted(diagnostic: Mapping[str, Any] | None) -> bool:
    """Tell whether a diagnostic says that the ledger's own records contradict each other."""
    return diagnostic is not None and diagnostic.get("code") == CONTRADICTION


def contradiction_of(error: UnreadableRow) -> dict[str, Any]:
    """Return the diagnostic for a definition one of whose rows cannot be read."""
    row = f"{error.data['table']} {error.data['row']}"
    return {
        "code": CONTRADICTION,
        "message": f"{row} cannot be trusted: {error.data['problem']}; see `wfctl store verify`",
        "rows": [row],
        "contradictions": [{"code": "unreadable", "rows": [row], "message": error.data["problem"]}],
    }


def _row(values: tuple[Any, ...]) -> DefinitionRow:
    """A definition that cannot be read is blocked, and known by its id all the same. Raise UnreadableRow without one."""
    try:
        return _sound(values)
    except UnreadableRow as error:
        number, kind, name, revision = values[:4]
        if not isinstance(number, int) or not isinstance(name, str):
            raise
        return DefinitionRow(
            number=number,
            kind="schedule" if kind else "deployment",
            id=name,
            revision=revision if isinstance(revision, int) else 0,
            digest=None,
            prior_digest=None,
            is_written=True,
            signature=None,
            diagnostic=contradiction_of(error),
            created_at=0,
            deleted_at=None,
        )


@guarded("definitions", _COLUMNS, "iitiTTiIIIITiI", ["number"])
def _sound(values: tuple[Any, ...]) -> DefinitionRow:
    (
        number,
        kind,
        name,
        revision,
        digest,
        prior,
        written,
        mtime_ns,
        ctime_ns,
        size,
        inode,
        diagnostic,
        created_at,
        deleted_at,
    ) = values
    return DefinitionRow(
        number=number,
        kind="schedule" if kind else "deployment",
        id=name,
        revision=revision,
        digest=digest,
        prior_digest=prior,
        is_written=bool(written),
        signature=None if mtime_ns is None else (mtime_ns, ctime_ns, size, inode),
        diagnostic=json_object(diagnostic, "diagnostic"),
        created_at=created_at,
        deleted_at=deleted_at,
    )


def _rows(found: Iterable[tuple[Any, ...]]) -> Iterator[DefinitionRow]:
    """Give the rows of a query; one that has not even an id is left to `evidence`."""
    for values in found:
        with contextlib.suppress(UnreadableRow):
            yield _row(values)


COLUMNS, sound = _COLUMNS, _sound  #: for `evidence`, which reads what nobody trusts


def find(connection: sqlite3.Connection, kind: Kind, name: str) -> DefinitionRow | None:
    """Return what is known of that id, deleted or not; None when it was never used."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM definitions WHERE kind = ? AND id = ?", (KIND_NUMBER[kind], name))
    values = found.fetchone()
    return _row(values) if values else None


def get(connection: sqlite3.Connection, number: int) -> DefinitionRow:
    """Return the definition of that number. Raise UnreadableRow where there is none: numbers are only kept of what is."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM definitions WHERE number = ?", (number,)).fetchone()
    if found is None:
        raise UnreadableRow.of("definitions", str(number), "it is not there")
    return _row(found)


def find_many(connection: sqlite3.Connection, kind: Kind, names: Sequence[str]) -> dict[str, DefinitionRow]:
    """Return what is known of those of these ids that were ever used, deleted or not."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM definitions WHERE kind = ? AND id IN ({', '.join('?' * len(names))})",
        (KIND_NUMBER[kind], *names),
    )
    return {row.id: row for row in _rows(found)}


def name_of(connection: sqlite3.Connection, number: int) -> str | None:
    """Return the id of the definition of that number, None where there is none."""
    found = connection.execute("SELECT id FROM definitions WHERE number = ?", (number,)).fetchone()
    return None if found is None else str(found[0])


def names_of(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return the ids of the definitions of these numbers; those that are not there are left out."""
    found: dict[int, str] = {}
    for first in range(0, len(numbers), _AT_ONCE):
        part = numbers[first : first + _AT_ONCE]
        places = ", ".join("?" * len(part))
        found.update(connection.execute(f"SELECT number, id FROM definitions WHERE number IN ({places})", part).fetchall())
    return found


def list_all(connection: sqlite3.Connection, kind: Kind) -> list[DefinitionRow]:
    """Return every definition of a kind, deleted ones too, by id."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM definitions WHERE kind = ? ORDER BY id", (KIND_NUMBER[kind],))
    return list(_rows(found))


def signatures(connection: sqlite3.Connection, kind: Kind) -> dict[str, tuple[Signature | None, bool]]:
    """Return, by id, the signature of each live definition's file, and whether a look at the file is due whatever it is."""
    found = connection.execute(
        "SELECT id, mtime_ns, ctime_ns, size, inode, written, diagnostic IS NOT NULL, deleted_at IS NOT NULL FROM definitions"
        " WHERE kind = ?",
        (KIND_NUMBER[kind],),
    )
    return {
        name: (None if mtime_ns is None else (mtime_ns, ctime_ns, size, inode), bool(not written or broken or deleted))
        for name, mtime_ns, ctime_ns, size, inode, written, broken, deleted in found
    }


def noted_files(connection: sqlite3.Connection, kind: Kind) -> dict[str, Noted]:
    """Return what is noted of the file of every live definition, by the file's name."""
    by = "+kind" if kind == "schedule" else "kind"  # nearly all are schedules: by the index they would be read here and there
    found = connection.execute(
        "SELECT id || '.toml', mtime_ns, ctime_ns, size, inode, written = 0 OR diagnostic IS NOT NULL FROM definitions"
        f" WHERE {by} = ? AND deleted_at IS NULL",
        (KIND_NUMBER[kind],),
    )
    return {noted[0]: noted for noted in found}


def note_files(connection: sqlite3.Connection, seen: Iterable[tuple[int, str, Signature]]) -> None:
    """Note for each definition, by number, that its file was seen to hold the content of that digest, if that is wanted."""
    connection.executemany(
        "UPDATE definitions SET mtime_ns = ?, ctime_ns = ?, size = ?, inode = ? WHERE number = ? AND digest = ? AND written = 1"
        " AND diagnostic IS NULL AND deleted_at IS NULL",
        [(*signature, number, digest) for number, digest, signature in seen],
    )


def insert(connection: sqlite3.Connection, kind: Kind, name: str, *, created_at: int) -> int:
    """Enter a new id with no revision yet and return its number."""
    cursor = connection.execute(
        "INSERT INTO definitions (kind, id, revision, written, created_at) VALUES (?, ?, 0, 1, ?)",
        (KIND_NUMBER[kind], name, created_at),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def add_revision(connection: sqlite3.Connection, number: int, row: RevisionRow) -> None:
    """Record a revision and make it the current one."""
    connection.execute(_ADD_REVISION, _values_of(number, row))
    _foresee(connection, [(number, row)])
    connection.execute("UPDATE definitions SET revision = ?, digest = ? WHERE number = ?", (row.revision, row.digest, number))


_ADD_REVISION = (
    "INSERT INTO revisions (definition, revision, recorded_at, actor, croniter, tz_database, digest, content, plain, max_run,"
    " begins) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _values_of(number: int, row: RevisionRow) -> tuple[Any, ...]:
    return (
        number,
        row.revision,
        row.recorded_at,
        row.actor,
        row.croniter,
        row.tz_database,
        row.digest,
        row.content,
        dumps(row.plain),
        row.max_run,
        row.begins,
    )


def _foresee(connection: sqlite3.Connection, new: Iterable[tuple[int, RevisionRow]]) -> None:
    kept = [(number, row.revision, row.calendar) for number, row in new if row.calendar is not None]
    connection.executemany("INSERT INTO foreseen (definition, revision, calendar) VALUES (?, ?, ?)", kept)


_AT_ONCE = 500  # numbers in one statement
_UNKNOWN = (None, None, None, None)


def add_all(connection: sqlite3.Connection, kind: Kind, new: Sequence[tuple[str, RevisionRow, Signature | None]]) -> range:
    """Enter many unused ids, each with its first revision and, where known, the file that holds it; return their numbers."""
    first = int(connection.execute("SELECT coalesce(max(number), 0) FROM definitions").fetchone()[0]) + 1
    numbers = range(first, first + len(new))
    connection.executemany(
        "INSERT INTO definitions (number, kind, id, revision, digest, written, mtime_ns, ctime_ns, size, inode, created_at)"
        " VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        [
            (number, KIND_NUMBER[kind], name, row.revision, row.digest, *(signature or _UNKNOWN), row.recorded_at)
            for number, (name, row, signature) in zip(numbers, new, strict=True)
        ],
    )
    entered = [(number, row) for number, (_, row, _) in zip(numbers, new, strict=True)]
    connection.executemany(_ADD_REVISION, [_values_of(number, row) for number, row in entered])
    _foresee(connection, entered)
    return numbers


def want(connection: sqlite3.Connection, number: int, *, prior_digest: str | None) -> None:
    """Note that the file is to be brought from `prior_digest` (None: no file) to the current revision (contract 2.4)."""
    connection.execute(
        "UPDATE definitions SET written = 0, prior_digest = ?, mtime_ns = NULL, diagnostic = NULL WHERE number = ?",
        (prior_digest, number),
    )


def note_written(connection: sqlite3.Connection, number: int, digest: str, signature: Signature | None) -> None:
    """Note that the file holds the content of that digest, unless a newer one is wanted by now."""
    mtime_ns, ctime_ns, size, inode = signature or (None, None, None, None)
    connection.execute(
        "UPDATE definitions SET written = 1, prior_digest = NULL, mtime_ns = ?, ctime_ns = ?, size = ?, inode = ?,"
        " diagnostic = NULL WHERE number = ? AND digest = ?",
        (mtime_ns, ctime_ns, size, inode, number, digest),
    )


def set_diagnostic(connection: sqlite3.Connection, number: int, diagnostic: Mapping[str, Any] | None) -> None:
    """Set or clear why the definition cannot be trusted."""
    import json

    text = json.dumps(diagnostic, ensure_ascii=False) if diagnostic else None
    connection.execute("UPDATE definitions SET diagnostic = ?, mtime_ns = NULL WHERE number = ?", (text, number))


def mark_deleted(connection: sqlite3.Connection, number: int, *, at: int) -> None:
    """Retire the id for good."""
    connection.execute("UPDATE definitions SET deleted_at = ?, diagnostic = NULL WHERE number = ?", (at, number))


def revision(connection: sqlite3.Connection, number: int, which: int) -> RevisionRow | None:
    """Return one revision of a definition, or None."""
    found = connection.execute(f"{_REVISIONS} WHERE definition = ? AND revision = ?", (number, which)).fetchone()
    return _revision(found) if found else None


def text_of(connection: sqlite3.Connection, number: int, which: int) -> RevisionText | None:
    """Return what one revision of a definition says, or None."""
    found = connection.execute(
        f"SELECT {_TEXT_COLUMNS} FROM revisions WHERE definition = ? AND revision = ?", (number, which)
    ).fetchone()
    return _text(found) if found else None


def required_revision(connection: sqlite3.Connection, number: int, which: int) -> RevisionRow:
    """Return one revision of a definition. Raise UnreadableRow where it is not there."""
    found = revision(connection, number, which)
    if found is None:
        raise UnreadableRow.of("revisions", f"{number}/{which}", "it is not there")
    return found


def revisions(connection: sqlite3.Connection, number: int, *, after: int, limit: int) -> list[RevisionRow]:
    """Return revisions after a given one, ascending."""
    found = connection.execute(
        f"{_REVISIONS} WHERE definition = ? AND revision > ? ORDER BY revision LIMIT ?", (number, after, limit)
    )
    return [_revision(values) for values in found]


_REVISION_COLUMNS = """definition, revision, recorded_at, actor, croniter, tz_database, digest, content, plain, max_run,
 begins, (SELECT f.calendar FROM foreseen f WHERE f.definition = r.definition AND f.revision = r.revision)"""
_REVISIONS = f"SELECT {_REVISION_COLUMNS} FROM revisions r"


_TEXT_COLUMNS = "definition, revision, digest, content, max_run"


@guarded("revisions", _TEXT_COLUMNS, "iittI", ["definition", "revision"])
def _text(values: tuple[Any, ...]) -> RevisionText:
    _, _, digest, content, max_run = values
    return RevisionText(digest=digest, content=content, max_run=check_span(max_run, "max_run"))


@guarded("revisions", _REVISION_COLUMNS, "iiittttttII*", ["definition", "revision"])
def _revision(values: tuple[Any, ...]) -> RevisionRow:
    _, which, recorded_at, actor, croniter, tz_database, digest, content, plain, max_run, begins, calendar = values
    return RevisionRow(
        revision=which,
        recorded_at=recorded_at,
        actor=actor,
        croniter=croniter,
        tz_database=tz_database,
        digest=digest,
        content=content,
        plain=json_object(plain, "plain") or {},
        max_run=check_span(max_run, "max_run"),
        begins=begins,
        calendar=calendar if isinstance(calendar, str) else None,  # a damaged one is as good as none
    )


def count_revisions(connection: sqlite3.Connection) -> int:
    """Return how many revisions were ever saved: it grows with every change that is taken up."""
    return int(connection.execute("SELECT coalesce(sum(revision), 0) FROM definitions").fetchone()[0])


def calendar_stamps(connection: sqlite3.Connection) -> str | None:
    """Return by which croniter and tz database the next instants in the ledger were worked out."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'calendar'").fetchone()
    return None if found is None else str(found[0])


def set_calendar_stamps(connection: sqlite3.Connection, stamps: str) -> None:
    """Write by which croniter and tz database the next instants in the ledger are worked out."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('calendar', ?)", (stamps,))


def never_valid(connection: sqlite3.Connection) -> list[DefinitionRow]:
    """Return the files of schedules that appeared and never were valid: all that is known of them is why."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM definitions WHERE kind = ? AND revision = 0 AND deleted_at IS NULL ORDER BY id",
        (KIND_NUMBER["schedule"],),
    )
    return list(_rows(found))


def blocked(connection: sqlite3.Connection) -> list[DefinitionRow]:
    """Return every live definition that blocks, deployments first, by id."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM definitions WHERE diagnostic IS NOT NULL AND deleted_at IS NULL ORDER BY kind, id"
    )
    return list(_rows(found))


def unwritten(connection: sqlite3.Connection) -> list[tuple[Kind, str]]:
    """Return kind and id of the live definitions whose files are not known to hold what is wanted."""
    found = connection.execute("SELECT kind, id FROM definitions WHERE written = 0 AND deleted_at IS NULL")
    return [("schedule" if kind else "deployment", name) for kind, name in found if isinstance(name, str)]


def live_ids(connection: sqlite3.Connection, kind: Kind) -> list[str]:
    """Return the ids of a kind that are in use."""
    found = connection.execute("SELECT id FROM definitions WHERE kind = ? AND deleted_at IS NULL", (KIND_NUMBER[kind],))
    return [name for (name,) in found if isinstance(name, str)]


def deleted_ids(connection: sqlite3.Connection, kind: Kind) -> frozenset[str]:
    """Return the retired ids of a kind."""
    found = connection.execute("SELECT id FROM definitions WHERE kind = ? AND deleted_at IS NOT NULL", (KIND_NUMBER[kind],))
    return frozenset(name for (name,) in found)
