"""`wfctl schedule lint`: what is to be said of schedules, or of a definition that is not in the store (contract 4.6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from wfctl.core import drift, lint
from wfctl.core.lint import Finding, Stamps, Stand
from wfctl.core.model import CronTrigger, ScheduleDefinition
from wfctl.core.trigger import CalendarError, shortest_gap, source_of, stamps
from wfctl.errors import Deleted
from wfctl.operations import reconcile, schedules
from wfctl.operations.context import Context
from wfctl.operations.inputs import check_input
from wfctl.operations.views import View
from wfctl.store.ledger import definitions
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.definitions import DefinitionRow, RevisionRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow

_SHORTEST = timedelta(minutes=1)
_ENOUGH = 2  #: instants that passed without a run


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView(View):
    """One thing that was found about a schedule."""

    schedule_id: str
    code: str
    severity: str  #: warning or note
    message: str
    hint: str | None


def lint_schedules(context: Context, names: Sequence[str], *, with_drift: bool) -> list[FindingView]:
    """Return what is to be said of the named schedules, or of all, by id. Raise NotFound, Deleted.

    `with_drift`: of their calendars too, compared with what was recorded when their revisions were saved.
    """
    for name in names:
        reconcile.one(context, "schedule", name)
    if not names:
        reconcile.everything(context)
    with context.ledger.reading() as connection:
        if names:
            rows = [schedules.require(connection, name) for name in sorted(set(names))]
            for row in rows:
                if row.deleted_at is not None:
                    raise Deleted(f"schedule {row.id} was deleted; there is nothing to lint", {"id": row.id})
        else:
            rows = [row for row in definitions.list_all(connection, "schedule") if row.deleted_at is None]
        return [_view(row.id, found) for row in rows for found in _of_row(context, connection, row, with_drift)]


def drifting(context: Context) -> list[str]:
    """Return the schedules whose calendar reads differently today than when their revision was saved."""
    found = []
    with context.ledger.reading() as connection:
        for row in definitions.list_all(connection, "schedule"):
            if row.deleted_at is not None or row.diagnostic is not None or not row.revision:
                continue
            try:
                definition, saved = context.schedule(row.number, row.revision)
            except UnreadableRow:
                continue
            if isinstance(definition.trigger, CronTrigger) and (saved.croniter, saved.tz_database) != stamps():
                drifted = _of_drift(definition.trigger, saved, context.now())
                found += [row.id] if any(each.code == "calendar-drift" for each in drifted) else []
    return found


def lint_definition(name: str, definition: ScheduleDefinition, now: datetime, context: Context | None) -> list[FindingView]:
    """Return what is to be said of a definition that is not in the store; in the context of one where there is one."""
    found = list(_of_definition(definition, now))
    found += lint.of_gap(definition, _gap(definition, now))
    if context is not None:
        with context.ledger.reading() as connection:
            found += _of_deployment(context, connection, definition)
    return [_view(name, each) for each in found]


def _view(name: str, found: Finding) -> FindingView:
    return FindingView(schedule_id=name, code=found.code, severity=found.severity, message=found.message, hint=found.hint)


def _of_row(context: Context, connection: sqlite3.Connection, row: DefinitionRow, with_drift: bool) -> Iterator[Finding]:
    state = states.find(connection, row.number)
    if state is None or not state.is_readable:
        yield from lint.of_diagnostic(row.diagnostic or (state and state.diagnostic) or {"code": "unreadable"})
        return
    try:
        definition, saved = context.schedule(row.number, row.revision)
    except UnreadableRow as error:
        yield from lint.of_diagnostic(state.diagnostic or {"code": "contradiction", "message": error.message})
        return
    now = context.now()
    if state.diagnostic is None:
        yield from _of_definition(definition, now)
    yield from lint.of_stand(definition, _stand(context, connection, state, definition, now), now)
    if with_drift and state.diagnostic is None and isinstance(definition.trigger, CronTrigger):
        yield from _of_drift(definition.trigger, saved, now)


def _of_definition(definition: ScheduleDefinition, now: datetime) -> Iterator[Finding]:
    try:
        yield from lint.of_definition(definition, now)
    except CalendarError as error:
        yield from lint.of_diagnostic({"code": "calendar", "message": str(error)})


def _stand(
    context: Context, connection: sqlite3.Connection, state: ScheduleRow, definition: ScheduleDefinition, now: datetime
) -> Stand:
    is_sound = state.diagnostic is None
    return Stand(
        since=state.effective_from,
        shortest_gap=_gap(definition, now) if is_sound else None,
        passed=_passed(state, definition) if is_sound and state.last_admission is None else 0,
        has_run=state.last_admission is not None,
        is_finished=schedules.is_settled_oneshot(state, definition),
        paused_at=state.paused_at,
        diagnostic=state.diagnostic,
        input_problems=_input_problems(context, connection, definition) if is_sound else (),
    )


def _gap(definition: ScheduleDefinition, now: datetime) -> timedelta | None:
    if isinstance(definition.trigger, CronTrigger) and definition.lateness <= _SHORTEST:
        return None  # no two instants of cron are nearer: not worth the search
    try:
        return shortest_gap(definition.trigger, now)
    except CalendarError:
        return None


def _passed(state: ScheduleRow, definition: ScheduleDefinition) -> int:
    try:
        return schedules.calendar_for(definition, state).count(state.effective_from, state.watermark, limit=_ENOUGH)
    except CalendarError:
        return 0


def _input_problems(context: Context, connection: sqlite3.Connection, definition: ScheduleDefinition) -> list[str]:
    row = definitions.find(connection, "deployment", definition.deployment)
    if row is None or row.deleted_at is not None or not row.revision:
        return []
    try:
        target, _ = context.deployment(row.number, row.revision)
    except UnreadableRow:
        return []
    return [str(problem) for problem in check_input(target.input_schema, definition.input)]


def _of_deployment(context: Context, connection: sqlite3.Connection, definition: ScheduleDefinition) -> Iterator[Finding]:
    """What a store has against a definition that is to come into it."""
    row = definitions.find(connection, "deployment", definition.deployment)
    if row is None or row.deleted_at is not None:
        yield lint.no_deployment(definition.deployment)
        return
    if row.diagnostic is not None:
        yield from lint.of_diagnostic(row.diagnostic)
    yield from lint.of_input(_input_problems(context, connection, definition))


def _of_drift(trigger: CronTrigger, saved: RevisionRow, now: datetime) -> Iterator[Finding]:
    recorded = None
    if saved.calendar is not None:
        try:
            recorded = drift.from_text(saved.calendar)
        except ValueError:
            recorded = None  # damaged: as good as none, and said to be none
    croniter, tz_database = stamps()
    before = Stamps(saved.croniter, saved.tz_database, None if recorded is None else recorded.source)
    today = Stamps(croniter, tz_database, source_of(trigger.timezone))
    try:
        found = None if recorded is None else drift.drift_of(trigger, recorded, now)
    except CalendarError as error:
        yield from lint.of_diagnostic({"code": "calendar", "message": str(error)})
        return
    yield from lint.of_drift(trigger, saved.revision, before, today, found)
