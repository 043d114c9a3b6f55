"""Schedules and deployments of the ledger as the views that every door returns (contract 8.7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from wfctl.core.instants import from_micros, parse_instant
from wfctl.operations.context import Context
from wfctl.operations.shown import CandidateView, DeploymentView, RevisionView, ScheduleView, plain
from wfctl.store.ledger import definitions, schedules
from wfctl.store.ledger.definitions import DefinitionRow, RevisionRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow


def schedule_view(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> ScheduleView:
    """Given a schedule's definition row, return it as it stands."""
    from wfctl.store.ledger import runs

    state = schedules.find(connection, row.number)
    if state is None or not state.is_readable:
        return _without_state(row, state)
    try:
        saved = context.schedule(row.number, row.revision)[1]
    except UnreadableRow as error:
        return _without_state(row, _diagnosed(state, error))
    return _with_state(context, connection, state, saved, runs.active_of(connection, row.number))


def listed_schedule(
    context: Context, connection: sqlite3.Connection, row: DefinitionRow, active_runs: tuple[str, ...]
) -> ScheduleView:
    """Return a schedule as a list shows it: that its text is the one that was saved is for those to check who go by it."""
    state = schedules.find(connection, row.number)
    if state is None or not state.is_readable:
        return _without_state(row, state)
    try:
        saved = definitions.required_revision(connection, row.number, row.revision)
        return _with_state(context, connection, state, saved, active_runs)
    except UnreadableRow as error:
        return _without_state(row, _diagnosed(state, error))


def _diagnosed(state: ScheduleRow, error: UnreadableRow) -> ScheduleRow:
    from dataclasses import replace

    return replace(state, own_diagnostic=state.own_diagnostic or definitions.contradiction_of(error))


def _with_state(
    context: Context, connection: sqlite3.Connection, state: ScheduleRow, saved: RevisionRow, active_runs: tuple[str, ...]
) -> ScheduleView:
    paused = schedules.current_pause(connection, state.number) if state.paused_at else None
    held = state.candidate
    now = context.now()
    return ScheduleView(
        id=state.id,
        state=_state_of(state, _is_settled_oneshot(state, saved)),
        diagnostic=state.diagnostic,
        revision=state.revision,
        effective_from=state.effective_from,
        next_instant=None if state.paused_at else state.next_instant,
        candidate=None
        if held is None
        else CandidateView(instant=held.instant, held_since=held.held_since, can_expire=held.can_expire, reason=held.reason),
        active_runs=active_runs,
        definition=plain(saved.plain),
        anchor=state.anchor,
        watermark=state.watermark,
        waits_until=state.floor if state.is_admitting and state.floor > now else None,
        max_run_s=None if saved.max_run is None else saved.max_run / 1_000_000,
        paused_at=paused[0] if paused else None,
        pause_reason=paused[1] if paused else None,
        pause_actor=paused[2] if paused else None,
    )


def _is_settled_oneshot(state: ScheduleRow, saved: RevisionRow) -> bool:
    """A one-shot that has had its instant and holds no candidate is finished (4.5). Raise UnreadableRow."""
    try:
        trigger = saved.plain["trigger"]
        return trigger["kind"] == "oneshot" and parse_instant(trigger["at"]) <= state.floor and state.candidate is None
    except (LookupError, TypeError, ValueError) as error:
        raise UnreadableRow.of("revisions", f"{state.number}/{saved.revision}", "its trigger is none") from error


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
    named_by = tuple(name for _, name in schedules.of_deployment(connection, row.number))
    try:
        return _deployment(row, context.deployment(row.number, row.revision)[1] if row.revision else None, named_by)
    except UnreadableRow as error:
        return _deployment(row, None, named_by, definitions.contradiction_of(error))


def listed_deployment(
    context: Context, connection: sqlite3.Connection, row: DefinitionRow, named_by: tuple[str, ...]
) -> DeploymentView:
    """Return a deployment as a list shows it: that its text is the one that was saved is for those to check who go by it."""
    try:
        saved = definitions.required_revision(connection, row.number, row.revision) if row.revision else None
        return _deployment(row, saved, named_by)
    except UnreadableRow as error:
        return _deployment(row, None, named_by, definitions.contradiction_of(error))


def _deployment(
    row: DefinitionRow, saved: RevisionRow | None, named_by: tuple[str, ...], problem: Mapping[str, Any] | None = None
) -> DeploymentView:
    diagnostic = row.diagnostic or problem
    return DeploymentView(
        id=row.id,
        state="deleted" if row.deleted_at is not None else "blocked" if diagnostic is not None else "active",
        diagnostic=diagnostic,
        revision=row.revision or None,
        definition=plain(saved.plain) if saved else None,
        digest=f"sha256:{saved.digest}" if saved else None,
        schedules=named_by,
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
