"""Taking up what stands in definition files, many of them in one transaction (contract 2.3, 2.4, 2.9, 3.5).

A first start, a copy put back, a search and replace: a hundred thousand files may have changed at once, and a transaction for
each would take minutes. So files are read and checked first, while nothing is held, and then taken up together, with what was
known of each looked at again. A crash leaves what was taken up until then; the next one who looks takes up the rest.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.instants import to_micros
from wfctl.core.model import Json, MaxRun, ScheduleDefinition, Trigger
from wfctl.core.trigger import CalendarError, calendar_of
from wfctl.errors import InvalidDefinition, NotFound, Problem, WfctlError
from wfctl.operations.context import Context
from wfctl.operations.saving import diagnostic_of, made_revision
from wfctl.store import definitions as files
from wfctl.store.definitions import FileState
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions, schedules, sessions
from wfctl.store.ledger.definitions import DefinitionRow, RevisionRow, Signature
from wfctl.store.ledger.rows import UnreadableRow, savepoint

_MOST, _LONGEST_S = 500, 0.25  #: files of one transaction, and how long is spent on reading them
_FORESEEN = 4096  #: calendars whose answers are kept while many files are taken up
_NOTED_FROM_NS = 50_000_000  #: a file that changed less long ago may change again without its times telling of it


@dataclass(frozen=True, slots=True)
class File:
    """One definition's file, and what the ledger said of it just before it was read."""

    kind: Kind
    name: str
    row: DefinitionRow | None
    state: FileState
    digest: str | None
    is_racy: bool  #: it changed so recently that another change may look the same
    plain: Mapping[str, Any] | None = None  #: what it says, of a schedule
    read: ScheduleDefinition | None = None
    error: InvalidDefinition | None = None  #: why that is not valid in itself

    @property
    def signature(self) -> Signature | None:
        """What is noted of it, so that it need not be read again."""
        return None if self.is_racy else self.state.signature

    @property
    def is_as_noted(self) -> bool:
        """Tell whether nothing is to be taken up."""
        if self.row is None:
            return self.state.is_missing
        is_there = self.state.signature is not None and self.state.signature == self.row.signature
        return is_there and self.digest == self.row.digest and self.row.is_written and self.row.diagnostic is None

    @property
    def is_closed(self) -> bool:
        """Tell whether no file is taken up over what the ledger says: the id is retired, or only a remedy may go on (7.4)."""
        row = self.row
        return row is not None and (row.deleted_at is not None or definitions.is_contradicted(row.diagnostic))

    @property
    def is_half_written(self) -> bool:
        """Tell whether it stands where an unfinished write left it: before, or after (2.4)."""
        row = self.row
        if row is None or row.is_written or self.state.problem is not None or self.is_closed:
            return False
        return self.digest in (row.prior_digest, row.digest)


def read(context: Context, kind: Kind, name: str, row: DefinitionRow | None) -> File:
    """Read one file, and what it says if that is new."""
    return file_of(kind, name, row, files.read_definition_file(context.layout, kind, name))


def file_of(kind: Kind, name: str, row: DefinitionRow | None, state: FileState) -> File:
    """Return a file that was read, with what it says if that is new."""
    digest = None if state.content is None else files.digest(state.content)
    is_racy = state.signature is not None and time.time_ns() - state.signature[1] < _NOTED_FROM_NS
    found = File(kind, name, row, state, digest, is_racy)
    if state.content is None or kind == "deployment" or (row is not None and row.digest == digest) or found.is_closed:
        return found
    plain, value, error = None, None, None
    try:
        plain, value = files.read_schedule(state.content, f"{kind} {name}")
    except InvalidDefinition as problem:
        error = problem
    return File(kind, name, row, state, digest, is_racy, plain, value, error)


def read_all(context: Context, kind: Kind, names: Sequence[str]) -> Iterator[list[File]]:
    """Read these files, as many at a time as are to be taken up together."""
    batch: list[File] = []
    begun = time.monotonic()
    for first in range(0, len(names), _MOST):
        part = names[first : first + _MOST]
        rows = definitions.find_many(context.ledger.connection, kind, part)
        for name in part:
            batch.append(read(context, kind, name, rows.get(name)))
            if len(batch) == _MOST or time.monotonic() - begun > _LONGEST_S:
                yield batch
                batch, begun = [], time.monotonic()
    if batch:
        yield batch


class Foreseen:
    """What calendars that all begin at one time answer, each asked once."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Trigger, MaxRun, datetime], tuple[int | None, str | None]] = {}

    def __call__(self, trigger: Trigger, max_run: MaxRun, after: datetime) -> tuple[int | None, str | None]:
        from wfctl.operations.schedules import foreseen

        key = (trigger, max_run, after)
        found = self._answers.get(key)
        if found is None:
            found = foreseen(trigger, max_run, after)
            if len(self._answers) >= _FORESEEN:
                self._answers.clear()
            self._answers[key] = found
        return found


def _look_ahead(context: Context, batch: Sequence[File], after: datetime, foresee: Foreseen) -> None:
    """Before a transaction begins, work out what it will need: what calendars answer, and what deployments say."""
    read = [file.read for file in batch if file.read is not None]
    for each in read:
        with contextlib.suppress(CalendarError):  # said again, to who asks what is wrong
            foresee(each.trigger, each.max_run, after)
    for name in {each.deployment for each in read}:
        row = definitions.find(context.ledger.connection, "deployment", name)
        if row is not None and row.revision:
            with contextlib.suppress(UnreadableRow):
                context.deployment(row.number, row.revision)


# Within one transaction -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _New:
    """Schedules to be entered together."""

    rows: list[tuple[str, RevisionRow, Signature | None]]
    states: list[tuple[int, datetime | None]]  #: of each: its deployment, and its next instant unless that is blocked


def take_up(
    context: Context, batch: Sequence[File], *, seen_at: datetime | None = None, foresee: Foreseen | None = None
) -> None:
    """In one transaction, take up files of one kind that were read; what somebody else changed meanwhile is left to them.

    `seen_at`: when new ones were seen, which is when they are created (None: now). Raise TimedOut, IoError.
    """
    batch = [file for file in batch if not (file.is_as_noted or file.is_closed or file.is_half_written)]
    if not batch:
        return
    now = context.now()
    created_at, foresee = seen_at or now, foresee or Foreseen()
    _look_ahead(context, [file for file in batch if file.row is None], created_at, foresee)
    _look_ahead(context, [file for file in batch if file.row is not None], now, foresee)
    with context.ledger.transaction() as connection:
        current = definitions.find_many(connection, batch[0].kind, [file.name for file in batch])
        touched: list[tuple[int, str, Signature]] = []
        new = _New([], [])
        for file in batch:
            row = current.get(file.name)
            if not _is_still_so(row, file.row):
                continue
            try:
                if row is None:
                    _enter(context, connection, file, created_at, foresee, new)
                elif file.state.content is None or file.digest != row.digest or row.diagnostic is not None:
                    _change(context, connection, row, file, now, foresee)
                elif file.signature is not None and file.digest is not None:
                    touched.append((row.number, file.digest, file.signature))
            except UnreadableRow as error:
                if row is not None:
                    block(connection, row, definitions.contradiction_of(error))
        definitions.note_files(connection, touched)
        _insert(connection, new, created_at)


def _is_still_so(row: DefinitionRow | None, before: DefinitionRow | None) -> bool:
    if row is None or before is None:
        return row is before
    return (row.revision, row.digest, row.is_written, row.deleted_at, row.diagnostic) == (
        before.revision,
        before.digest,
        before.is_written,
        before.deleted_at,
        before.diagnostic,
    )


def _change(
    context: Context, connection: sqlite3.Connection, row: DefinitionRow, file: File, now: datetime, foresee: Foreseen
) -> None:
    """Take up what became of the file of a definition: an edit is a new revision; what cannot be trusted blocks."""
    if file.state.is_missing:
        said = f"{file.kind}s/{file.name}.toml is gone; put it back"
        block(connection, row, {"code": "missing-file", **_about(context, file, said)})
        return
    if file.state.problem is not None:
        block(connection, row, {"code": "not-trusted", **_about(context, file, file.state.problem.message)})
        return
    assert file.digest is not None
    try:
        with savepoint(connection):
            if file.digest != row.digest:
                save_edit(context, connection, row, file, now, foresee)
            elif (
                row.diagnostic is not None and row.diagnostic.get("code") == "calendar" and not _is_calendar_back(context, row)
            ):
                return
            if row.diagnostic is not None:
                unblock(context, connection, row)
            definitions.note_written(connection, row.number, file.digest, file.signature)
    except (InvalidDefinition, NotFound) as error:
        # The same broken content as before is checked again: what it lacked, such as its deployment, may be there by now.
        block(connection, row, {**_diagnostic(context, file, error), "digest": file.digest})


def save_edit(
    context: Context,
    connection: sqlite3.Connection,
    row: DefinitionRow,
    file: File,
    now: datetime,
    foresee: Foreseen | None = None,
) -> None:
    """Make what a file says the next revision. Raise InvalidDefinition, NotFound."""
    from wfctl.operations import deployments
    from wfctl.operations import schedules as operations

    assert file.state.content is not None
    content = file.state.content
    if file.error is not None:
        raise file.error
    if row.kind == "deployment":
        plain = files.read_deployment(content, f"deployment {row.id}")[0]
        deployments.apply(context, connection, row, deployments.draft(row.id, plain, content=content), is_on_disk=True)
        return
    assert file.plain is not None
    state = schedules.find(connection, row.number)
    old = None if state is None else context.schedule(row.number, row.revision)[0]
    subject = f"schedule {row.id}"
    made = operations.draft(
        context, connection, file.plain, subject=subject, after=now, content=content, read=file.read, old=old, foresee=foresee
    )
    if state is None or old is None:
        operations.insert(context, connection, row.id, made, now=now, is_on_disk=True)
        return
    if old.max_steps is not None and made.definition.max_steps is None:
        problem = Problem("max_steps", f"cannot be cleared once set; put max_steps = {old.max_steps} back")
        raise InvalidDefinition.of(subject, [problem])
    operations.apply(context, connection, state, old, made, now=now, is_on_disk=True)


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


# Newcomers --------------------------------------------------------------------------------------------------------------


def _enter(context: Context, connection: sqlite3.Connection, file: File, now: datetime, foresee: Foreseen, new: _New) -> None:
    """Enter a file that appeared under an unused id: a creation at the time it is seen, or a blocked newcomer."""
    try:
        if file.state.content is None:
            raise InvalidDefinition(file.state.problem.message if file.state.problem else "it cannot be read")
        if file.kind == "schedule":
            _prepare(context, connection, file, now, foresee, new)
            return
        with savepoint(connection):
            number = definitions.insert(connection, file.kind, file.name, created_at=to_micros(now))
            save_edit(context, connection, definitions.get(connection, number), file, now)
            definitions.note_written(connection, number, str(file.digest), file.signature)
    except (InvalidDefinition, NotFound) as error:
        number = definitions.insert(connection, file.kind, file.name, created_at=to_micros(now))
        definitions.set_diagnostic(connection, number, {**_diagnostic(context, file, error), "digest": file.digest})


def _prepare(context: Context, connection: sqlite3.Connection, file: File, now: datetime, foresee: Foreseen, new: _New) -> None:
    """Check a new schedule against the store, and put it with those to be entered. Raise InvalidDefinition, NotFound."""
    from wfctl.operations import schedules as operations

    if file.error is not None:
        raise file.error
    assert file.plain is not None and file.state.content is not None
    subject = f"schedule {file.name}"
    made = operations.draft(
        context, connection, file.plain, subject=subject, after=now, content=file.state.content, read=file.read, foresee=foresee
    )
    revision = made_revision(
        context,
        1,
        plain=made.plain,
        content=made.content,
        max_run_us=made.max_run_us,
        at=now,
        begins=now,
        calendar=made.calendar,
    )
    coming = calendar_of(made.definition.trigger, now.replace(microsecond=0)).next_after(now)
    new.rows.append((file.name, revision, file.signature))
    new.states.append((made.deployment.number, coming if made.deployment.diagnostic is None else None))


def _insert(connection: sqlite3.Connection, new: _New, now: datetime) -> None:
    """Enter the new schedules, each as `schedules.insert` enters one."""
    if not new.rows:
        return
    numbers = definitions.add_all(connection, "schedule", new.rows)
    states = [(number, deployment, coming) for number, (deployment, coming) in zip(numbers, new.states, strict=True)]
    schedules.insert_all(connection, states, now=now)
    sessions.note_clock(connection, now)


# Blocking ---------------------------------------------------------------------------------------------------------------


def block(connection: sqlite3.Connection, row: DefinitionRow, diagnostic: Mapping[str, Json]) -> None:
    """Block what a definition decides about: nothing of it is consumed or admitted until it can be trusted again."""
    if row.diagnostic == diagnostic:
        return
    definitions.set_diagnostic(connection, row.number, diagnostic)
    for number in _decided_by(connection, row):
        schedules.set_wake(connection, number, next_instant=None, wake_at=None)


def unblock(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> None:
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


def _diagnostic(context: Context, file: File, error: WfctlError) -> dict[str, Json]:
    path = context.layout.definition(file.kind, file.name)
    if isinstance(error, InvalidDefinition):
        return diagnostic_of(error, path)
    return {"code": error.code, "file": str(path), "message": error.message, "problems": []}


def _about(context: Context, file: File, message: str) -> dict[str, Json]:
    return {"file": str(context.layout.definition(file.kind, file.name)), "message": message, "problems": []}
