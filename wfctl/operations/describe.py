"""Occurrences and runs of the ledger as the views that every door returns (contract 8.7)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from wfctl.core.json_text import loads
from wfctl.core.model import LOCAL, ONE_COMMAND_STEP, Span, Status, run_name
from wfctl.core.steps import Ended
from wfctl.operations.context import Context
from wfctl.operations.shown import ExecutionView, OccurrenceView, RunView, SpanView
from wfctl.store.ledger import definitions, executions, occurrences, runs, schedules
from wfctl.store.ledger.definitions import RevisionRow
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.occurrences import BrokenOccurrence, OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import BrokenRun, RunRow
from wfctl.store.ledger.schedules import ScheduleRow

_BELOW_A_THOUSAND = 1000


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


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


class Named:
    """The definitions that the runs of a list name, each read once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[int, str] = {}
        self._revisions: dict[tuple[int, int], RevisionRow | None] = {}

    def id_of(self, number: int) -> str:
        """Return the id of a definition. Raise UnreadableRow."""
        if number not in self._ids:
            self._ids[number] = definitions.get(self._connection, number).id
        return self._ids[number]

    def revision(self, number: int, which: int) -> RevisionRow | None:
        """Return one revision of a definition, or None. Raise UnreadableRow."""
        if (number, which) not in self._revisions:
            self._revisions[(number, which)] = definitions.revision(self._connection, number, which)
        return self._revisions[(number, which)]


def run_view(context: Context, connection: sqlite3.Connection, row: RunRow | BrokenRun, named: Named | None = None) -> RunView:
    """Return a run; one that is only admitted has no trace, output or checkpoint: nothing is made up (8.4).

    Of a run whose record cannot be read, what it is called and why (7.4). `named`: what is known from the runs before it.
    """
    if isinstance(row, BrokenRun):
        return broken_run_view(row.id, row.problem)
    try:
        return _sound_run_view(context, connection, row, named or Named(connection))
    except UnreadableRow as error:
        return broken_run_view(row.id, error.message)


def broken_run_view(run_id: str, problem: str) -> RunView:
    """Return what is known of a run whose record cannot be read: its id, and why."""
    unknown: dict[str, Any] = dict.fromkeys(RunView.field_names())
    return RunView(**{**unknown, "run_id": run_id, "reason": _ambiguous(problem), "trace": ()})


def _sound_run_view(context: Context, connection: sqlite3.Connection, row: RunRow, named: Named) -> RunView:
    names = _step_names(row, named)
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
        schedule_id=None if row.schedule is None else named.id_of(row.schedule),
        instant=row.instant,
        revision=row.revision,
        deployment_id=named.id_of(row.deployment),
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
        input=_or_null(lambda: _shown_input(context, row, named)),
        output=_or_null(lambda: _output(context, row)),
        checkpoint=_or_null(lambda: _checkpoint(context, row)),
        interrupt=row.interrupt if row.status is Status.INTERRUPTED else None,
        trace=trace,
        admitted_at=row.admitted_at,
        place=_or_null(lambda: _place(context, row, named)),
    )


def _place(context: Context, row: RunRow, named: Named) -> Mapping[str, Any] | None:
    """Return where on a cluster a run is, as was last written down; None for one of this machine."""
    saved = named.revision(row.deployment, row.deployment_revision)
    executor = None if saved is None else saved.plain.get("executor")
    if executor in (None, LOCAL):
        return None
    last = max((each.k for each in executions.of_run(context.ledger.connection, row.number)), default=1)
    word: Mapping[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        word = loads((context.layout.run(row.id).execution(last).root / str(executor)).read_text("utf-8"))
    return {"executor": executor, **{name: word.get(name) for name in ("job", "node", "state", "reason")}}


def _step_names(row: RunRow, named: Named) -> dict[int, str]:
    """Return the names of a run's steps; none where the revision that it is pinned to is not there."""
    try:
        saved = named.revision(row.deployment, row.deployment_revision)
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
    elif reason is None and row.how in (Ended.ABANDONED, Ended.UNKNOWN, Ended.ENDED_OUTSIDE):
        code = "abandoned" if row.how is Ended.ABANDONED else "outcome-unknown"
        reason = {"code": code, **((row.detail or {}).get("cause") or {})}
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


def _shown_input(context: Context, row: RunRow, named: Named) -> Any:
    """As `bound_input`, out of what is kept to be shown: that it is what was saved is checked where it is run."""
    if row.input is not None or row.schedule is None or row.revision is None:
        return bound_input(context, row)
    saved = named.revision(row.schedule, row.revision)
    given = None if saved is None else saved.plain.get("input") or {}
    return {**given} if isinstance(given, dict) else given


def bound_input(context: Context, row: RunRow) -> Any:
    """Return the input a run was admitted with: a manual run's own, else that of the schedule revision."""
    if row.input is not None:
        return loads(row.input)
    if row.schedule is None or row.revision is None:
        return {}
    return dict(context.definition(row.schedule, row.revision)[0].input)


def _output(context: Context, row: RunRow) -> Any:
    if row.output is not None:
        return loads(row.output)
    if row.output_k is not None:
        from wfctl.store import rundir

        return rundir.read_output(context.layout.run(row.id), row.output_k).value
    return None


def _checkpoint(context: Context, row: RunRow) -> Any:
    if row.status in (Status.ADMITTED, Status.RUNNING) or not context.layout.has_checkpoint(row.id):
        return None
    from wfctl.store import rundir

    checkpoint = rundir.read_checkpoint(context.layout.run(row.id))
    return checkpoint.to_json() if checkpoint else None
