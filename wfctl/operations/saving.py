"""Saving definitions so that the commit decides, and taking up hand edits (contract 2.2 to 2.4).

A change commits its content and digest as *wanted*, together with its revision; then the file is written; then that is noted.
A crash before the commit leaves nothing of it. After the commit, whoever looks next finds the file at the digest before and
finishes the write. Any other digest is an edit by hand. The file is written while the ledger is held for writing, so that a
slow writer never puts an older content over a newer one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wfctl.core.duration import parse_duration
from wfctl.core.instants import to_micros
from wfctl.core.model import Json
from wfctl.core.trigger import stamps
from wfctl.errors import InvalidDefinition, IoError
from wfctl.operations.context import Context
from wfctl.store import definitions as files
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions as ledger

#: Durations are kept as they were written: 90s stays 90s.
_DURATIONS = frozenset({"lateness", "max_run", "every", "kill_grace", "retry_delay", "timeout", "time_limit"})
_DEFAULT_WORDS: dict[str, str] = {"lateness": "60s", "kill_grace": "10s", "retry_delay": "10s"}


def as_written(canonical: Mapping[str, Json], given: Mapping[str, Any]) -> dict[str, Json]:
    """Given a definition's canonical plain form and what was written, return it with durations in the words that were used."""
    kept: dict[str, Json] = {}
    for key, value in canonical.items():
        written = given.get(key)
        if key == "steps" and isinstance(value, list) and isinstance(written, (list, tuple)):
            kept[key] = [as_written(step, words) for step, words in zip(value, written, strict=True)]
        elif key in ("trigger", "slurm") and isinstance(value, Mapping) and isinstance(written, Mapping):
            kept[key] = as_written(value, written)
        elif key in _DURATIONS and isinstance(value, str):
            kept[key] = _same_words(value, written if isinstance(written, str) else _DEFAULT_WORDS.get(key, value))
        else:
            kept[key] = value
    return kept


def _same_words(canonical: str, words: str) -> str:
    if words == canonical:  # the word "auto" is no duration
        return words
    try:
        return words if parse_duration(words) == parse_duration(canonical) else canonical
    except ValueError:
        return canonical


def save_revision(
    context: Context,
    connection: sqlite3.Connection,
    row: ledger.DefinitionRow,
    *,
    plain: Mapping[str, Json],
    content: bytes,
    max_run_us: int | None,
    is_on_disk: bool,
    at: datetime | None = None,
    begins: datetime | None = None,
    calendar: str | None = None,
) -> None:
    """Within a transaction, make the next revision of a definition, wanted on disk unless it `is_on_disk` already.

    `at`: when it takes effect (None: now); `begins`: where the calendar of its trigger begins, if that is another one;
    `calendar`: what is kept of it, to tell later whether it has drifted.
    """
    revision = made_revision(
        context,
        row.revision + 1,
        plain=plain,
        content=content,
        max_run_us=max_run_us,
        at=at or context.now(),
        begins=begins,
        calendar=calendar,
    )
    ledger.add_revision(connection, row.number, revision)
    if is_on_disk:
        ledger.note_written(connection, row.number, revision.digest, None)
    else:
        ledger.want(connection, row.number, prior_digest=row.digest)


def made_revision(
    context: Context,
    which: int,
    *,
    plain: Mapping[str, Json],
    content: bytes,
    max_run_us: int | None,
    at: datetime,
    begins: datetime | None,
    calendar: str | None,
) -> ledger.RevisionRow:
    """Return a revision of a definition as it is recorded, with who made it and by which croniter and tz database."""
    croniter, tz_database = stamps()
    return ledger.RevisionRow(
        revision=which,
        recorded_at=to_micros(at),
        actor=context.actor,
        croniter=croniter,
        tz_database=tz_database,
        digest=files.digest(content),
        content=content.decode(),
        plain=plain,
        max_run=max_run_us,
        begins=None if begins is None else to_micros(begins),
        calendar=calendar,
    )


def finish_write(context: Context, kind: Kind, name: str) -> None:
    """Bring the file to what is wanted, unless it is there already or was edited by hand meanwhile.

    Raise IoError when the disk refuses; the change stands all the same, and the next one who looks finishes it.
    """
    with context.ledger.transaction() as connection:
        row = ledger.find(connection, kind, name)
        if row is None or row.is_written or row.digest is None or row.deleted_at is not None:
            return
        state = files.read_definition_file(context.layout, kind, name)
        found = None if state.content is None else files.digest(state.content)
        if found != row.digest:
            if found != row.prior_digest or state.problem is not None:
                return  # an edit by hand: reconcile takes it up
            wanted = ledger.revision(connection, row.number, row.revision)
            assert wanted is not None
            context.disk.write_file(context.layout.definition(kind, name), wanted.content.encode())
            state = files.read_definition_file(context.layout, kind, name)
        ledger.note_written(connection, row.number, row.digest, state.signature)


def finish_write_quietly(context: Context, kind: Kind, name: str) -> str | None:
    """Finish the write of a change that is committed; return why it must wait, if it must. It is no failure of the change."""
    try:
        finish_write(context, kind, name)
    except (IoError, OSError) as error:
        return str(error)
    return None


def remove_leftover(context: Context, kind: Kind, row: ledger.DefinitionRow) -> str | None:
    """Remove the file of a deleted id if it is at its last content; return what to report when it is another one (2.4)."""
    state = files.read_definition_file(context.layout, kind, row.id)
    if state.is_missing:
        return None
    path = context.layout.definition(kind, row.id)
    if state.content is not None and files.digest(state.content) == row.digest:
        context.disk.remove_file(path)
        return None
    return f"{path} is ignored: {kind} {row.id} was deleted, and ids are never reused; move it to another name"


def diagnostic_of(error: InvalidDefinition, path: object) -> dict[str, Json]:
    """Given why a file is not valid, return the diagnostic that blocks: code, file, message and problems with lines."""
    return {
        "code": "invalid-definition",
        "file": str(path),
        "message": error.message,
        "problems": [problem.to_json() for problem in error.problems],
    }
