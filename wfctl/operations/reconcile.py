"""Taking up what was done to definition files by hand (contract 2.3, 2.4, 2.9, 3.5).

Whoever looks first records it: any command on that definition at once, a supervisor once the file has been left alone for a
second. What cannot be read, parsed or trusted blocks that one schedule and says why; nothing is repaired silently.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.definition import is_valid_id
from wfctl.core.instants import to_micros
from wfctl.core.model import Json
from wfctl.core.trigger import CalendarError, calendar_of
from wfctl.errors import InvalidDefinition, IoError, NotFound, Problem, WfctlError
from wfctl.operations.context import Context, DryRun
from wfctl.operations.filepass import KINDS as KINDS
from wfctl.operations.filepass import Pass, look
from wfctl.operations.filepass import everything as everything
from wfctl.operations.saving import diagnostic_of, finish_write, remove_leftover
from wfctl.store import definitions as files
from wfctl.store.definitions import FileState
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions, schedules
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.rows import UnreadableRow

Named = tuple[Kind, str]
SETTLED_AFTER = timedelta(seconds=1)  #: a supervisor takes a file once it has been unchanged for so long


def one(context: Context, kind: Kind, name: str) -> None:
    """Bring ledger and file of one definition together, whatever the file's age. Raise IoError when a write is refused."""
    if not is_valid_id(name):
        return
    row = definitions.find(context.ledger.connection, kind, name)
    state = files.read_definition_file(context.layout, kind, name)
    if row is None:
        if not state.is_missing:
            _take_up_new(context, kind, name, state)
    elif row.deleted_at is not None:
        return
    elif definitions.is_contradicted(row.diagnostic):
        return  # whatever its file says now: only an explicit remedy lets anything be decided by it again (7.4)
    elif not row.is_written and _is_at(state, row.prior_digest, row.digest):
        finish_write(context, kind, name)
        if row.diagnostic is not None:  # it was blocked before the write could be finished
            with context.ledger.transaction() as connection:
                _unblock(context, connection, row)
    elif state.is_missing:
        said = f"{kind}s/{name}.toml is gone; put it back"
        _block(context, row, {"code": "missing-file", **_about(context, kind, name, said)})
    elif state.problem is not None:
        _block(context, row, {"code": "not-trusted", **_about(context, kind, name, state.problem.message)})
    else:
        _compare(context, row, state)


def these(context: Context, named: Iterable[Named], *, settled_for: timedelta) -> tuple[timedelta | None, list[str]]:
    """As `everything`, for some definitions, and for all that are blocked, whatever they lacked, or whose write is unfinished.

    Return how long ago the youngest of the files changed that are not taken up, None where there is none, and what is to be
    reported.
    """
    ages: list[timedelta] = []
    ignored: list[str] = []
    blocked = {(row.kind, row.id) for row in definitions.blocked(context.ledger.connection)}
    unfinished = definitions.unwritten(context.ledger.connection)
    for kind, name in sorted({*named, *blocked, *unfinished}):  # deployments first: schedules name them
        row = definitions.find(context.ledger.connection, kind, name)
        signature = files.signature_at(context.layout.definition(kind, name))
        is_as_noted = row is not None and row.signature == signature and row.is_written and row.diagnostic is None
        if is_as_noted and row is not None and row.deleted_at is None:
            continue
        if signature is not None and (row is None or row.deleted_at is None):
            age = _age(context, max(signature[:2]))
            if row is None or row.signature != signature:
                ages.append(age)
            if age < settled_for:
                continue
        if row is not None or signature is not None:
            ignored += _look_again(context, kind, name)
    return min(ages) if ages else None, ignored


def take_up(context: Context, kind: Kind, seen: Pass, settled_for: timedelta | None) -> list[str]:
    """Look at the files that a pass found changed or gone, as `everything` says; return what is to be reported."""
    ignored: list[str] = []
    deleted = definitions.deleted_ids(context.ledger.connection, kind)
    for name, signature in seen.changed.items():
        if settled_for is not None and name not in deleted and _age(context, max(signature[:2])) < settled_for:
            continue
        ignored += _look_again(context, kind, name)
    for name in seen.gone:
        ignored += _look_again(context, kind, name)
    return ignored


def _look_again(context: Context, kind: Kind, name: str) -> list[str]:
    row = definitions.find(context.ledger.connection, kind, name)
    if row is not None and row.deleted_at is not None:
        report = remove_leftover(context, kind, row)
        return [report] if report else []
    try:
        one(context, kind, name)
    except UnreadableRow as error:
        if row is not None:
            _block(context, row, definitions.contradiction_of(error))
    except IoError as error:
        if error.data.get("errno") not in _REFUSED:
            raise
        return [f"{error.message}; the change is saved, and its file is written as soon as that can be"]  # the others go on
    return []


_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def _age(context: Context, changed_ns: int) -> timedelta:
    import time

    return timedelta(microseconds=max(0, time.time_ns() - changed_ns) // 1000)  # of the file system, not of the store's clock


def youngest_change(context: Context) -> timedelta | None:
    """Return how long ago the youngest definition file was changed that is not taken up, or is broken; None where none is."""
    ages: list[timedelta] = []
    for kind in KINDS:
        known = definitions.signatures(context.ledger.connection, kind)
        for name, signature in look(context, kind).changed.items():
            seen = known.get(name)
            if seen is None or seen[0] != signature:
                ages.append(_age(context, max(signature[:2])))
    return min(ages) if ages else None


def clear_deleted(context: Context, kind: Kind, name: str) -> str | None:
    """Remove the file of a deleted definition; return what to report when it is not the one that was deleted."""
    row = definitions.find(context.ledger.connection, kind, name)
    return remove_leftover(context, kind, row) if row is not None and row.deleted_at is not None else None


# One file ---------------------------------------------------------------------------------------------------------------


def _is_at(state: FileState, prior: str | None, wanted: str | None) -> bool:
    """Tell whether the file stands where an unfinished write left it: before, or after."""
    if state.problem is not None:
        return False
    found = None if state.content is None else files.digest(state.content)
    return found in (prior, wanted)


def _compare(context: Context, row: DefinitionRow, state: FileState) -> None:
    assert state.content is not None
    digest = files.digest(state.content)
    if digest == row.digest:
        if row.diagnostic is not None and row.diagnostic.get("code") == "calendar" and not _is_calendar_back(context, row):
            return
        with context.ledger.transaction() as connection:
            definitions.note_written(connection, row.number, digest, state.signature)
            if row.diagnostic is not None:
                _unblock(context, connection, row)
        return
    # The same broken content as before is checked again: what it lacked, such as its deployment, may be there by now.
    _take_up_edit(context, row, state.content)


def _is_calendar_back(context: Context, row: DefinitionRow) -> bool:
    """Tell whether a calendar that could not be worked out can be again: its zone is back (4.3)."""
    state = schedules.find(context.ledger.connection, row.number)
    if state is None:
        return False
    definition, _ = context.schedule(row.number, row.revision)
    try:
        calendar = calendar_of(definition.trigger, state.anchor)
        calendar.next_after(state.floor)
        if state.floor < context.now():
            calendar.due(state.floor, context.now())
    except CalendarError:
        return False
    return True


def _take_up_edit(context: Context, row: DefinitionRow, content: bytes) -> None:
    """Record a changed content as a new revision, or block with the reason."""
    now = context.now()
    try:
        with context.ledger.transaction() as connection:
            current = definitions.get(connection, row.number)
            if (
                current.revision != row.revision
                or current.deleted_at is not None
                or definitions.is_contradicted(current.diagnostic)
            ):
                return  # somebody else was first
            _save_edit(context, connection, current, content, now)
            if current.diagnostic is not None:
                _unblock(context, connection, current)
        one(context, row.kind, row.id)  # notes the file's signature
    except (InvalidDefinition, NotFound) as error:
        _block(context, row, {**_diagnostic(context, row.kind, row.id, error), "digest": files.digest(content)})


def _save_edit(context: Context, connection: sqlite3.Connection, row: DefinitionRow, content: bytes, now: datetime) -> None:
    from wfctl.operations import deployments
    from wfctl.operations import schedules as operations

    plain = _parsed(context, row.kind, row.id, content)
    if row.kind == "deployment":
        deployments.apply(context, connection, row, deployments.draft(row.id, plain, content=content), is_on_disk=True)
        return
    state = schedules.find(connection, row.number)
    old = None if state is None else context.schedule(row.number, row.revision)[0]
    subject = f"schedule {row.id}"
    made = operations.draft(context, connection, plain, subject=subject, after=now, content=content, old=old)
    if state is None or old is None:
        operations.insert(context, connection, row.id, made, now=now, is_on_disk=True)
        return
    if old.max_steps is not None and made.definition.max_steps is None:
        problem = Problem("max_steps", f"cannot be cleared once set; put max_steps = {old.max_steps} back")
        raise InvalidDefinition.of(subject, [problem])
    operations.apply(context, connection, state, old, made, now=now, is_on_disk=True)


def try_out(context: Context, kind: Kind, name: str, content: bytes) -> None:
    """Raise what would be wrong with a content as the file of a definition that is there; nothing is kept."""
    with contextlib.suppress(DryRun), context.ledger.transaction() as connection:
        row = definitions.find(connection, kind, name)
        if row is not None:
            _save_edit(context, connection, row, content, context.now())
        raise DryRun(None)


def _take_up_new(context: Context, kind: Kind, name: str, state: FileState) -> None:
    """Enter a file that appeared under an unused id: a creation at the time it is seen, or a blocked newcomer."""
    now = context.now()
    diagnostic: Mapping[str, Json] | None = None
    try:
        if state.content is None:
            raise InvalidDefinition(state.problem.message if state.problem else "it cannot be read")
        with context.ledger.transaction() as connection:
            if definitions.find(connection, kind, name) is not None:
                return
            number = definitions.insert(connection, kind, name, created_at=to_micros(now))
            _save_edit(context, connection, definitions.get(connection, number), state.content, now)
        one(context, kind, name)
        return
    except (InvalidDefinition, NotFound) as error:
        diagnostic = _diagnostic(context, kind, name, error)
    with context.ledger.transaction() as connection:
        if definitions.find(connection, kind, name) is None:
            number = definitions.insert(connection, kind, name, created_at=to_micros(now))
            seen = files.digest(state.content) if state.content is not None else None
            definitions.set_diagnostic(connection, number, {**diagnostic, "digest": seen})


def _parsed(context: Context, kind: Kind, name: str, content: bytes) -> dict[str, Any]:
    """Return the plain form of a file, checked in itself, so that problems come with their lines."""
    subject = f"{kind} {name}"
    if kind == "deployment":
        files.deployment_from_toml(content, subject)
    else:
        files.schedule_from_toml(content, subject)
    return files.parse_toml(content, subject)


def _diagnostic(context: Context, kind: Kind, name: str, error: WfctlError) -> dict[str, Json]:
    path = context.layout.definition(kind, name)
    if isinstance(error, InvalidDefinition):
        return diagnostic_of(error, path)
    return {"code": error.code, "file": str(path), "message": error.message, "problems": []}


def _about(context: Context, kind: Kind, name: str, message: str) -> dict[str, Json]:
    return {"file": str(context.layout.definition(kind, name)), "message": message, "problems": []}


# Blocking ---------------------------------------------------------------------------------------------------------------


def _block(context: Context, row: DefinitionRow, diagnostic: Mapping[str, Json]) -> None:
    """Block what a definition decides about: nothing of it is consumed or admitted until it can be trusted again."""
    if row.diagnostic == diagnostic:
        return
    with context.ledger.transaction() as connection:
        current = definitions.get(connection, row.number)
        if (
            current.revision != row.revision
            or current.deleted_at is not None
            or definitions.is_contradicted(current.diagnostic)
        ):
            return  # somebody changed or deleted it meanwhile
        definitions.set_diagnostic(connection, row.number, diagnostic)
        for number in _decided_by(connection, row):
            schedules.set_wake(connection, number, next_instant=None, wake_at=None)


def _unblock(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> None:
    """Let admission go on; what passed meanwhile is missed, as after downtime."""
    from wfctl.operations import upkeep

    definitions.set_diagnostic(connection, row.number, None)
    for number in _decided_by(connection, row):
        state = schedules.find(connection, number)
        if state is not None and state.diagnostic is None:
            definition, _ = context.schedule(number, state.revision)
            upkeep.refresh_wake(connection, number, definition, attention=context.now())


def _decided_by(connection: sqlite3.Connection, row: DefinitionRow) -> list[int]:
    if row.kind == "deployment":
        return [number for number, _ in schedules.of_deployment(connection, row.number)]
    return [row.number]
