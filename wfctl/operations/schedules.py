"""Schedules: create, read, update, pause, resume, delete (contract 3, 5.11, 5.12)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from wfctl.core import changes, drift
from wfctl.core.definition import check_id, schedule_from_plain, schedule_to_plain
from wfctl.core.instants import to_micros
from wfctl.core.model import DueInstants, MaxRun, OneshotTrigger, ScheduleDefinition, Trigger
from wfctl.core.near import near_data
from wfctl.core.plain import suggestion
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, check_fires, resolve_max_run
from wfctl.errors import Blocked, Deleted, Exists, InvalidArgument, InvalidDefinition, Problem, RevisionConflict
from wfctl.operations import finding, reconcile, upkeep
from wfctl.operations.context import Context, DryRun
from wfctl.operations.finding import not_found as not_found
from wfctl.operations.inputs import check_input
from wfctl.operations.memo import remembered
from wfctl.operations.saving import as_written, finish_write_quietly, save_revision
from wfctl.store.definitions import schedule_from_toml, to_toml
from wfctl.store.ledger import definitions, schedules, sessions
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.schedules import ScheduleRow

FIELDS = (
    "deployment", "notes", "overlap", "max_active_runs", "misfire", "lateness", "max_run", "max_steps", "notify", "trigger",
    "input",
)  # fmt: skip
#: what is written without its table by whoever knows the options of `schedule add`
_IN_TRIGGER = {"cron": "trigger.expression"} | {name: f"trigger.{name}" for name in ("expression", "timezone", "every", "at")}
_NEVER_UNSET = {"deployment": "every schedule names one", "trigger": "every schedule has one"}


@dataclass(frozen=True, slots=True)
class Draft:
    """A definition that is valid in itself and in this store, ready to be saved."""

    definition: ScheduleDefinition
    plain: Mapping[str, Any]
    content: bytes
    max_run_us: int | None
    calendar: str | None  #: what is kept of it (drift)
    deployment: DefinitionRow  #: that it names, as it stands


# Finding ----------------------------------------------------------------------------------------------------------------


def require(connection: sqlite3.Connection, schedule_id: str) -> DefinitionRow:
    """Return the definition row of a schedule, deleted or not. Raise NotFound, with near ids, for one that never was."""
    return finding.require(connection, "schedule", schedule_id)


def _require_live(connection: sqlite3.Connection, schedule_id: str) -> tuple[DefinitionRow, ScheduleRow]:
    """Return a schedule that may be changed. Raise NotFound, Deleted, Blocked, InvalidDefinition where it never was valid."""
    row = require(connection, schedule_id)
    if row.deleted_at is not None:
        raise Deleted(
            f"schedule {schedule_id} was deleted; its history stays readable, its id stays retired", {"id": schedule_id}
        )
    refuse_contradicted(row)
    state = schedules.find(connection, row.number)
    if state is None:
        raise never_valid(row)
    return row, state


def never_valid(row: DefinitionRow) -> InvalidDefinition:
    """Return the error for a definition of which no valid text was ever seen."""
    found = row.diagnostic or {}
    message = f"{row.kind} {row.id} is blocked: {found.get('message', 'it never was valid')}"
    return InvalidDefinition(message, diagnosed(row), problems=Problem.all_from_json(found.get("problems")))


def diagnosed(row: DefinitionRow) -> dict[str, Any]:
    """Return an error's data about a definition that is blocked. The diagnostic has a code of its own, so it stands apart."""
    return {"kind": row.kind, "id": row.id, "diagnostic": row.diagnostic}


# Validating -------------------------------------------------------------------------------------------------------------


def draft(
    context: Context,
    connection: sqlite3.Connection,
    plain: Mapping[str, Any],
    *,
    subject: str,
    after: datetime,
    content: bytes | None = None,
    read: ScheduleDefinition | None = None,
    old: ScheduleDefinition | None = None,
    foresee: Foresee | None = None,
) -> Draft:
    """Given a definition's plain form, return it checked against the store: deployment, input, calendar.

    `content` is the text of a file that says it already, `read` what was read of it, `old` what is replaced; `foresee` does
    what `foreseen` does. Raise InvalidDefinition, or NotFound for the deployment (3.5).
    """
    compose = partial(_composed, plain, subject, content, read)
    definition, words, text = remembered(subject, plain, compose) if content is None else compose()
    deployment = definitions.find(connection, "deployment", definition.deployment)
    if deployment is None or deployment.deleted_at is not None:
        raise not_found(connection, "deployment", definition.deployment)
    if deployment.revision == 0:
        raise InvalidDefinition(f"{subject}: deployment {definition.deployment} is blocked", diagnosed(deployment))
    target, _ = context.deployment(deployment.number, deployment.revision)
    if target.input_schema is not None:
        bound = [target.input_schema, definition.input]
        problems = remembered("input", bound, lambda: check_input(target.input_schema, definition.input))
        if problems:
            raise InvalidDefinition.of(subject, problems)
    if old is None or changes.changes_trigger(old, definition):  # a finished one-shot may still get a remark
        check_fires(definition.trigger, after)
    limit_us, calendar = (foresee or foreseen)(definition.trigger, definition.max_run, after)
    return Draft(definition, words, text, limit_us, calendar, deployment)


Foresee = Callable[[Trigger, MaxRun, datetime], tuple[int | None, str | None]]


def foreseen(trigger: Trigger, max_run: MaxRun, after: datetime) -> tuple[int | None, str | None]:
    """Return what a calendar that begins is asked once: the limit of an attempt in microseconds, and what is kept of it."""
    limit = resolve_max_run(max_run, trigger, after.replace(microsecond=0), after)
    return None if limit is None else round(limit.total_seconds() * 1_000_000), drift.recorded_text(trigger, after)


def _composed(
    plain: Mapping[str, Any], subject: str, content: bytes | None, read: ScheduleDefinition | None
) -> tuple[ScheduleDefinition, Mapping[str, Any], bytes]:
    definition = schedule_from_plain(plain, subject=subject) if read is None else read
    words = as_written(schedule_to_plain(definition), plain)
    return definition, words, to_toml(words, subject) if content is None else content


def plain_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Given API arguments, return the plain form they describe: absent ones left out, `deployment_id` as `deployment`."""
    named = {("deployment" if key == "deployment_id" else key): value for key, value in fields.items()}
    unknown = [key for key in named if key not in FIELDS]
    if unknown:
        raise _unknown_argument(unknown[0])
    return {key: value for key, value in named.items() if value is not None}


def _unknown_argument(name: str) -> InvalidArgument:
    """Say what a name that is no field was perhaps meant to be: one below `trigger`, or one that is near."""
    inner = _IN_TRIGGER.get(name)
    if inner is None:
        data = {"argument": name, **near_data(name, FIELDS)}
        return InvalidArgument(f"unknown argument {name!r}{suggestion(name, FIELDS)}", data)
    data = {"argument": name, "value": name, "near": [inner]}
    return InvalidArgument(f'unknown argument {name!r}; did you mean "{inner}"?', data)


# Creating ---------------------------------------------------------------------------------------------------------------


def create(
    context: Context, schedule_id: str, fields: Mapping[str, Any], *, paused: bool, reason: str | None, dry_run: bool = False
) -> int:
    """Create a schedule and return its number; nothing before now is ever its own (3.5).

    Raise InvalidDefinition, NotFound for the deployment, Exists for an id that is or was in use.
    """
    check_id(schedule_id, "schedule id")
    plain = plain_of(fields)
    if isinstance(plain.get("deployment"), str):
        reconcile.one(context, "deployment", plain["deployment"])
    reconcile.one(context, "schedule", schedule_id)
    now = context.now()
    with context.changing() as connection:
        refuse_used(connection, "schedule", schedule_id)
        made = draft(context, connection, plain, subject=f"schedule {schedule_id}", after=now)
        context.end_trial(schedule_from_toml, made.content)
        number = insert(context, connection, schedule_id, made, now=now, is_on_disk=False)
        if paused:
            _begin_pause(connection, number, now=now, reason=reason, actor=context.actor)
            upkeep.refresh_wake(connection, number, made.definition)
        if dry_run:
            raise DryRun(_described(context, connection, number))
    finish_write_quietly(context, "schedule", schedule_id)
    return number


def refuse_used(connection: sqlite3.Connection, kind: Any, name: str) -> None:
    """Raise Exists for an id that is in use, or ever was (2.8)."""
    row = definitions.find(connection, kind, name)
    if row is None:
        return
    state = "was deleted, and ids are never used again" if row.deleted_at is not None else "exists already"
    raise Exists(f"{kind} {name} {state}; choose another id", {"kind": kind, "id": name})


def insert(
    context: Context, connection: sqlite3.Connection, schedule_id: str, made: Draft, *, now: datetime, is_on_disk: bool
) -> int:
    """Within a transaction, enter a new schedule whose calendar begins at `now`, and return its number."""
    row = definitions.find(connection, "schedule", schedule_id)
    number = row.number if row else definitions.insert(connection, "schedule", schedule_id, created_at=to_micros(now))
    _save(context, connection, number, made, is_on_disk=is_on_disk, at=now, begins=now)
    deployment = definitions.find(connection, "deployment", made.definition.deployment)
    assert deployment is not None
    schedules.insert(
        connection, number, deployment=deployment.number, now=now, anchor=now.replace(microsecond=0), next_instant=None
    )
    sessions.note_clock(connection, now)
    upkeep.refresh_wake(connection, number, made.definition)
    return number


def _save(
    context: Context,
    connection: sqlite3.Connection,
    number: int,
    made: Draft,
    *,
    is_on_disk: bool,
    at: datetime,
    begins: datetime | None,
) -> None:
    save_revision(
        context,
        connection,
        definitions.get(connection, number),
        plain=made.plain,
        content=made.content,
        max_run_us=made.max_run_us,
        is_on_disk=is_on_disk,
        at=at,
        begins=begins,
        calendar=made.calendar,
    )


# Updating ---------------------------------------------------------------------------------------------------------------


def update(
    context: Context,
    schedule_id: str,
    expected_revision: int,
    fields: Mapping[str, Any],
    unset: Sequence[str],
    *,
    dry_run: bool = False,
) -> int:
    """Patch the given fields, for admissions from now on (3.2 to 3.4), and return the schedule's number.

    Raise NotFound, Deleted, RevisionConflict when the revision is not the one expected, InvalidDefinition.
    """
    patch = plain_of(fields)
    if isinstance(patch.get("deployment"), str):
        reconcile.one(context, "deployment", patch["deployment"])
    reconcile.one(context, "schedule", schedule_id)
    now = context.now()
    with context.changing() as connection:
        row, state = _require_live(connection, schedule_id)
        refuse_blocked(row)
        refuse_stale("schedule", schedule_id, expected_revision, row.revision)
        old, saved = context.schedule(row.number, row.revision)
        plain = patched(saved.plain, patch, unset, old)
        made = draft(context, connection, plain, subject=f"schedule {schedule_id}", after=now, old=old)
        context.end_trial(schedule_from_toml, made.content)
        apply(context, connection, state, old, made, now=now, is_on_disk=False)
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    finish_write_quietly(context, "schedule", schedule_id)
    return row.number


def refuse_blocked(row: DefinitionRow) -> None:
    """Raise Blocked where the file cannot be trusted: what stands there is not what the change was made for (2.3, 2.4).

    A trigger whose calendar cannot be worked out any more is mended by a change, so that is let through.
    """
    refuse_contradicted(row)
    found = row.diagnostic
    if found is not None and found.get("code") != "calendar":
        raise Blocked(
            f"{row.kind} {row.id} is blocked, so nothing was changed: {found.get('message')}; mend {found.get('file')} first, "
            f"as with `wfctl {row.kind} edit {row.id}`",
            diagnosed(row),
        )


def refuse_contradicted(row: DefinitionRow) -> None:
    """Raise Blocked where the ledger's own records contradict each other: nothing is settled by them (7.4)."""
    found = row.diagnostic
    if found is not None and definitions.is_contradicted(found):
        raise Blocked(
            f"{row.kind} {row.id} is blocked, so nothing was changed: {found.get('message')}",
            diagnosed(row),
        )


def refuse_stale(kind: str, name: str, expected: Any, found: int) -> None:
    """Raise RevisionConflict unless the change was made for the revision that is current (3.2)."""
    if not isinstance(expected, int) or isinstance(expected, bool) or expected < 1:
        raise InvalidArgument(f"expected_revision must be a revision's number, such as {found}, not {expected!r}")
    if expected != found:
        raise RevisionConflict(
            f"{kind} {name} is at revision {found}, this change was made for revision {expected}; nothing was changed: "
            f"look at it with `wfctl {kind} show {name}` and try again",
            {"kind": kind, "id": name, "expected_revision": expected, "revision": found},
        )


def patched(
    current: Mapping[str, Any], patch: Mapping[str, Any], unset: Sequence[str], old: ScheduleDefinition
) -> dict[str, Any]:
    """Return the plain form after a patch: tables replaced whole, `unset` cleared, the limit dropped with parallel (3.2)."""
    plain = {**current, **patch}
    for name in unset:
        name = "deployment" if name == "deployment_id" else name
        if name not in FIELDS:
            data = {"argument": name, **near_data(name, FIELDS)}
            raise InvalidArgument(f"cannot unset {name!r}{suggestion(name, FIELDS)}", data)
        if name in _NEVER_UNSET:
            raise InvalidDefinition.of("the change", [Problem(name, f"cannot be unset: {_NEVER_UNSET[name]}")])
        if name in patch:
            raise InvalidArgument(f"{name} is both set and unset", {"argument": name})
        plain.pop(name, None)
    if plain.get("overlap") not in ("parallel", "allow") and "max_active_runs" not in patch:
        plain.pop("max_active_runs", None)
    if old.max_steps is not None and plain.get("max_steps") is None:
        problem = Problem("max_steps", "cannot be cleared once set; raise it, or create the schedule anew under another id")
        raise InvalidDefinition.of("the change", [problem])
    return plain


def apply(
    context: Context,
    connection: sqlite3.Connection,
    state: ScheduleRow,
    old: ScheduleDefinition,
    made: Draft,
    *,
    now: datetime,
    is_on_disk: bool,
) -> None:
    """Within a transaction, make a checked definition the current revision, settling first what it must not reach (3.4)."""
    new = made.definition
    moves = changes.changes_trigger(old, new)
    if moves or changes.changes_misfire(old, new):
        _close_for_edit(connection, state, old, moves=moves, now=now)
    begins = max(now, state.floor) if moves else None
    _save(context, connection, state.number, made, is_on_disk=is_on_disk, at=now, begins=begins)
    if moves:
        schedules.hold(connection, state.number, None)
        schedules.begin_anew(connection, state.number, effective_from=now, anchor=now.replace(microsecond=0))
        sessions.note_clock(connection, now)
    deployment = definitions.find(connection, "deployment", new.deployment)
    assert deployment is not None
    schedules.set_deployment(connection, state.number, deployment.number)
    upkeep.refresh_wake(connection, state.number, new, attention=now)


def _close_for_edit(
    connection: sqlite3.Connection, state: ScheduleRow, old: ScheduleDefinition, *, moves: bool, now: datetime
) -> None:
    if state.paused_at is not None:
        return  # what was due before the pause is settled, and what passed since is the pause's
    due = _due_for_closing(connection, state, old, now)
    if moves:
        closing = changes.close_all(due, state.candidate, cause=changes.Cause.EDITED, now=now)
    else:
        closing = changes.close_missed(due, lateness=old.lateness, now=now)
    upkeep.close(connection, state, closing, now=now)


def _due_for_closing(
    connection: sqlite3.Connection, state: ScheduleRow, definition: ScheduleDefinition, now: datetime
) -> DueInstants:
    try:
        due, passed = upkeep.due_of(connection, state, calendar_for(definition, state), now)
    except CalendarError:
        return DueInstants()  # its zone is gone: what it would have been due for, nobody can tell
    return upkeep.unpassed(due, passed)


def calendar_for(definition: ScheduleDefinition, state: ScheduleRow) -> Calendar:
    """Return the calendar of a schedule as it stands. Raise CalendarError."""
    return calendar_of(definition.trigger, state.anchor)


# Pausing, resuming, deleting --------------------------------------------------------------------------------------------


def pause(context: Context, schedule_id: str, *, reason: str | None, dry_run: bool = False) -> int:
    """Stop admission; active runs go on. What was due is settled, the candidate dropped. Idempotent (5.11)."""
    reconcile.one(context, "schedule", schedule_id)
    now = context.now()
    with context.ledger.transaction() as connection:
        row, state = _require_live(connection, schedule_id)
        if state.paused_at is None:
            definition, _ = context.schedule(row.number, row.revision)
            _close_all(connection, state, definition, changes.Cause.PAUSED, now=now)
            begins = max(now, state.floor)  # a clock that stepped back, or a quicker round, may have consumed what lies ahead
            _begin_pause(connection, row.number, now=begins, reason=reason, actor=context.actor)
            upkeep.refresh_wake(connection, row.number, definition)
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    return row.number


def _begin_pause(connection: sqlite3.Connection, number: int, *, now: datetime, reason: str | None, actor: str) -> None:
    schedules.hold(connection, number, None)
    schedules.pause(connection, number, at=now, reason=reason, actor=actor)


def _close_all(
    connection: sqlite3.Connection, state: ScheduleRow, definition: ScheduleDefinition, cause: changes.Cause, *, now: datetime
) -> None:
    due = _due_for_closing(connection, state, definition, now)
    upkeep.close(connection, state, changes.close_all(due, state.candidate, cause=cause, now=now), now=now)


def resume(context: Context, schedule_id: str, *, dry_run: bool = False) -> int:
    """Admit again from now on; paused time is never replayed. Idempotent (5.11)."""
    reconcile.one(context, "schedule", schedule_id)
    now = context.now()
    with context.ledger.transaction() as connection:
        row, state = _require_live(connection, schedule_id)
        if state.paused_at is not None:
            definition, _ = context.schedule(row.number, row.revision)
            schedules.resume(connection, row.number, at=max(now, state.floor), actor=context.actor)
            schedules.advance(connection, row.number, watermark=max(state.floor, now), last_admission=None)
            sessions.note_clock(connection, now)
            upkeep.refresh_wake(connection, row.number, definition)
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    return row.number


def delete(context: Context, schedule_id: str, *, dry_run: bool = False) -> int:
    """Retire the schedule and its id; runs and history stay, active runs go on. Idempotent (5.12)."""
    reconcile.one(context, "schedule", schedule_id)
    now = context.now()
    with context.ledger.transaction() as connection:
        row = require(connection, schedule_id)
        if row.deleted_at is None:
            refuse_contradicted(row)
            state = schedules.find(connection, row.number)
            if state is not None:
                definition, _ = context.schedule(row.number, row.revision)
                if state.paused_at is None:
                    _close_all(connection, state, definition, changes.Cause.DELETED, now=now)
                schedules.hold(connection, row.number, None)
            definitions.mark_deleted(connection, row.number, at=to_micros(now))
            schedules.set_wake(connection, row.number, next_instant=None, wake_at=None)
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    reconcile.clear_deleted(context, "schedule", schedule_id)
    return row.number


def is_settled_oneshot(state: ScheduleRow, definition: ScheduleDefinition) -> bool:
    """Tell whether a one-shot has had its instant and holds no candidate: it shows `finished` (4.5)."""
    passed = isinstance(definition.trigger, OneshotTrigger) and definition.trigger.at <= state.floor
    return passed and state.candidate is None


def _described(context: Context, connection: sqlite3.Connection, number: int) -> Any:
    from wfctl.operations.describe_definitions import schedule_view

    return schedule_view(context, connection, definitions.get(connection, number))
