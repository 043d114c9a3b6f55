"""Rows of the ledger as the views that every door returns (contract 8.7)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from wfctl.core.instants import from_micros
from wfctl.core.model import ONE_COMMAND_STEP, Span, Status, run_name
from wfctl.core.steps import Ended
from wfctl.operations.context import Context
from wfctl.operations.views import (
    CandidateView,
    DeploymentView,
    ExecutionView,
    OccurrenceView,
    RevisionView,
    RunView,
    ScheduleView,
    SpanView,
    plain,
)
from wfctl.store.ledger import definitions, executions, occurrences, runs, schedules
from wfctl.store.ledger.definitions import DefinitionRow, RevisionRow
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.occurrences import BrokenOccurrence, OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import BrokenRun, RunRow
from wfctl.store.ledger.schedules import ScheduleRow

_BELOW_A_THOUSAND = 1000


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


# Schedules and deployments ----------------------------------------------------------------------------------------------


def schedule_view(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> ScheduleView:
    """Given a schedule's definition row, return it as it stands."""
    from dataclasses import replace

    from wfctl.operations.schedules import is_settled_oneshot

    state = schedules.find(connection, row.number)
    if state is None or not state.is_readable:
        return _without_state(row, state)
    try:
        definition, saved = context.schedule(row.number, row.revision)
    except UnreadableRow as error:
        return _without_state(row, replace(state, own_diagnostic=state.own_diagnostic or definitions.contradiction_of(error)))
    paused = schedules.current_pause(connection, row.number) if state.paused_at else None
    held = state.candidate
    now = context.now()
    return ScheduleView(
        id=row.id,
        state=_state_of(state, is_settled_oneshot(state, definition)),
        diagnostic=state.diagnostic,
        revision=row.revision,
        effective_from=state.effective_from,
        next_instant=None if state.paused_at else state.next_instant,
        candidate=None
        if held is None
        else CandidateView(instant=held.instant, held_since=held.held_since, can_expire=held.can_expire, reason=held.reason),
        active_runs=runs.active_of(connection, row.number),
        definition=plain(saved.plain),
        anchor=state.anchor,
        watermark=state.watermark,
        waits_until=state.floor if state.is_admitting and state.floor > now else None,
        max_run_s=None if saved.max_run is None else saved.max_run / 1_000_000,
        paused_at=paused[0] if paused else None,
        pause_reason=paused[1] if paused else None,
        pause_actor=paused[2] if paused else None,
    )


def _state_of(state: ScheduleRow, is_finished: bool) -> str:
    """Return the first that applies of deleted, blocked, paused, finished, active (8.7)."""
    if state.deleted_at is not None:
        return "deleted"
    if state.diagnostic is not None:
        return "blocked"
    if state.paused_at is not None:
        return "paused"
    return "finished" if is_finished else "active"


def _without_state(row: DefinitionRow, state: ScheduleRow | None = None) -> ScheduleView:
    """Nothing is known but why: a file that never was valid, or records that cannot be read (7.4)."""
    return ScheduleView(
        id=row.id,
        state="deleted" if row.deleted_at is not None else "blocked",
        diagnostic=row.diagnostic if state is None else state.diagnostic or row.diagnostic,
        revision=row.revision or None,
        effective_from=None,
        next_instant=None,
        candidate=None,
        active_runs=(),
        definition=None,
        anchor=None,
        watermark=None,
        waits_until=None,
        max_run_s=None,
        paused_at=None,
        pause_reason=None,
        pause_actor=None,
    )


def deployment_view(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> DeploymentView:
    """Given a deployment's definition row, return it as it stands."""
    saved, diagnostic = None, row.diagnostic
    try:
        saved = context.deployment(row.number, row.revision)[1] if row.revision else None
    except UnreadableRow as error:
        diagnostic = diagnostic or definitions.contradiction_of(error)
    state = "deleted" if row.deleted_at is not None else "blocked" if diagnostic is not None else "active"
    return DeploymentView(
        id=row.id,
        state=state,
        diagnostic=diagnostic,
        revision=row.revision or None,
        definition=plain(saved.plain) if saved else None,
        digest=f"sha256:{saved.digest}" if saved else None,
        schedules=tuple(name for _, name in schedules.of_deployment(connection, row.number)),
    )


def revision_view(row: RevisionRow) -> RevisionView:
    """Return one saved state of a definition."""
    return RevisionView(
        revision=row.revision,
        recorded_at=from_micros(row.recorded_at),
        actor=row.actor,
        croniter=row.croniter,
        tz_database=row.tz_database,
        content=row.content,
        definition=plain(row.plain),
    )


# Occurrences ------------------------------------------------------------------------------------------------------------


def occurrence_view(context: Context, schedule_id: str, row: OccurrenceRow | BrokenOccurrence) -> OccurrenceView:
    """Return a recorded occurrence, or span of them; of a row that cannot be read, what it is called and why."""
    if isinstance(row, BrokenOccurrence):
        return OccurrenceView(
            schedule_id=schedule_id,
            instant=row.instant,
            status=None,
            run_id=None,
            revision=None,
            lateness_s=None,
            reason=_ambiguous(row.problem),
            span=None,
            recorded_at=None,
        )
    return OccurrenceView(
        schedule_id=schedule_id,
        instant=row.instant,
        status=row.status.value,
        run_id=None if row.run is None else run_name(row.run),
        revision=row.revision,
        lateness_s=_seconds(row.lateness),
        reason=row.reason if row.run is None else _reason_of_run(context, row.run),
        span=None if row.span is None else _span_view(context, row),
        recorded_at=row.recorded_at,
    )


def _reason_of_run(context: Context, number: int) -> Mapping[str, Any] | None:
    """An admitted occurrence shows what its run shows (6.6), and why."""
    try:
        run = runs.find(context.ledger.connection, number)
    except UnreadableRow as error:
        return _ambiguous(error.message)
    return None if run is None else run.reason


def _ambiguous(problem: str) -> Mapping[str, Any]:
    """The reason shown for a record that cannot be read: nothing is made up (7.4)."""
    return {"code": "ambiguous", "message": problem}


def _span_view(context: Context, row: OccurrenceRow) -> SpanView:
    """The count of a span is exact for an interval; of a cron it is worked out when shown, up to 1,000 (5.2)."""
    assert row.span is not None
    count = _counted(context, row, row.span) if row.span.count is None else row.span.count
    return SpanView(first=row.span.first, last=row.span.last, count=count)


def _counted(context: Context, row: OccurrenceRow, span: Span) -> int | None:
    from wfctl.core.trigger import CalendarError, calendar_of, is_instant

    connection = context.ledger.connection
    try:
        definition, _ = context.schedule(row.schedule, row.revision)
        state = schedules.find(connection, row.schedule)
        if state is None:
            return None
        calendar = calendar_of(definition.trigger, state.anchor)
        counted = calendar.count(span.first, span.last, limit=_BELOW_A_THOUSAND + 1)
        within = occurrences.count_admitted(
            connection, row.schedule, span.first, span.last, lambda instant: is_instant(calendar, instant)
        )
    except (CalendarError, UnreadableRow):
        return None
    return counted - within if counted <= _BELOW_A_THOUSAND else None


def pending_view(state: ScheduleRow) -> OccurrenceView:
    """Return the held candidate as the row that stands for it until it is settled (8.1)."""
    held = state.candidate
    assert held is not None
    return OccurrenceView(
        schedule_id=state.id,
        instant=held.instant,
        status=Status.PENDING.value,
        run_id=None,
        revision=state.revision,
        lateness_s=None,
        reason=held.reason,
        span=None,
        recorded_at=held.held_since,
    )


# Runs -------------------------------------------------------------------------------------------------------------------


def run_view(context: Context, connection: sqlite3.Connection, row: RunRow | BrokenRun) -> RunView:
    """Return a run; one that is only admitted has no trace, output or checkpoint: nothing is made up (8.4).

    Of a run whose record cannot be read, what it is called and why (7.4).
    """
    if isinstance(row, BrokenRun):
        return broken_run_view(row.id, row.problem)
    try:
        return _sound_run_view(context, connection, row)
    except UnreadableRow as error:
        return broken_run_view(row.id, error.message)


def broken_run_view(run_id: str, problem: str) -> RunView:
    """Return what is known of a run whose record cannot be read: its id, and why."""
    unknown: dict[str, Any] = dict.fromkeys(RunView.field_names())
    return RunView(**{**unknown, "run_id": run_id, "reason": _ambiguous(problem), "trace": ()})


def _sound_run_view(context: Context, connection: sqlite3.Connection, row: RunRow) -> RunView:
    names = _step_names(context, row)
    done = [] if row.status is Status.ADMITTED else executions.of_run(connection, row.number)
    trace = tuple(
        _execution_view(execution, names.get(execution.step, f"step {execution.step + 1}"))
        for execution in done
        if _is_traced(execution)
    )
    last = trace[-1] if trace else None
    return RunView(
        run_id=row.id,
        kind="manual" if row.schedule is None else "scheduled",
        schedule_id=None if row.schedule is None else definitions.get(connection, row.schedule).id,
        instant=row.instant,
        revision=row.revision,
        deployment_id=definitions.get(connection, row.deployment).id,
        deployment_revision=row.deployment_revision,
        status=row.status.value,
        attempt=row.attempt,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_status=last.exit_status if last else None,
        signal=last.signal if last else None,
        reason=row.reason,
        max_run_s=_seconds(row.max_run),
        overdue=row.is_overdue,
        input=_or_null(lambda: _shown_input(context, row)),
        output=_or_null(lambda: _output(context, row)),
        checkpoint=_or_null(lambda: _checkpoint(context, row)),
        interrupt=row.interrupt if row.status is Status.INTERRUPTED else None,
        trace=trace,
        admitted_at=row.admitted_at,
    )


def _step_names(context: Context, row: RunRow) -> dict[int, str]:
    """Return the names of a run's steps; none where the revision that it is pinned to is not there."""
    try:
        saved = definitions.revision(context.ledger.connection, row.deployment, row.deployment_revision)
        steps = [] if saved is None else saved.plain.get("steps") or [{"name": ONE_COMMAND_STEP}]
        return {number: str(step["name"]) for number, step in enumerate(steps)}
    except (UnreadableRow, LookupError, TypeError):
        return {}


def _or_null(read: Callable[[], Any]) -> Any:
    """Null is what is unknown: a part that cannot be read keeps nobody from seeing the rest."""
    try:
        return read()
    except (UnreadableRow, ValueError):
        return None


def _is_traced(row: ExecutionRow) -> bool:
    """A mark alone is not in the trace (6.6); an execution that was refused, or is lost, is."""
    return row.started_at is not None or row.how not in (None, Ended.NOT_LAUNCHED)


def _execution_view(row: ExecutionRow, step: str) -> ExecutionView:
    reason: Mapping[str, Any] | None = row.stop
    if reason is None and row.how is Ended.REFUSED:
        reason = {"code": "launch-failed", **(row.detail or {})}
    elif reason is None and row.how in (Ended.ABANDONED, Ended.UNKNOWN):
        reason = {"code": "abandoned" if row.how is Ended.ABANDONED else "outcome-unknown"}
    return ExecutionView(
        k=row.k,
        step=step,
        attempt=row.attempt,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_status=row.exit_status,
        signal=row.signal,
        cpu_s=_seconds(row.cpu),
        max_rss_bytes=row.max_rss_bytes,
        left_behind=row.left_behind,
        reason=reason,
    )


def _shown_input(context: Context, row: RunRow) -> Any:
    """As `bound_input`, out of what is kept to be shown: that it is what was saved is checked where it is run."""
    if row.input is not None or row.schedule is None or row.revision is None:
        return bound_input(context, row)
    saved = definitions.revision(context.ledger.connection, row.schedule, row.revision)
    return None if saved is None else saved.plain.get("input") or {}


def bound_input(context: Context, row: RunRow) -> Any:
    """Return the input a run was admitted with: a manual run's own, else that of the schedule revision."""
    if row.input is not None:
        return json.loads(row.input)
    if row.schedule is None or row.revision is None:
        return {}
    return dict(context.schedule(row.schedule, row.revision)[0].input)


def _output(context: Context, row: RunRow) -> Any:
    from wfctl.store import rundir

    if row.output is not None:
        return json.loads(row.output)
    if row.output_k is not None:
        return rundir.read_output(context.layout.run(row.id), row.output_k).value
    return None


def _checkpoint(context: Context, row: RunRow) -> Any:
    if row.status in (Status.ADMITTED, Status.RUNNING):
        return None
    from wfctl.store import rundir

    checkpoint = rundir.read_checkpoint(context.layout.run(row.id))
    return checkpoint.to_json() if checkpoint else None
