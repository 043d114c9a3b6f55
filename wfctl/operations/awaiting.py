"""Waiting for runs to end, and for an occurrence to come to a state, on top of a watch (contract 11, `wait`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wfctl.core.instants import format_instant
from wfctl.core.model import FINISHED, RUN_STATUSES, UNFINISHED, Status
from wfctl.core.trigger import CalendarError, is_instant
from wfctl.errors import Blocked, NotFound, TimedOut
from wfctl.operations import schedules
from wfctl.operations.context import Context
from wfctl.operations.listing import as_instant, get_occurrence
from wfctl.operations.store import Store
from wfctl.operations.views import OccurrenceView, RunView
from wfctl.operations.watching import Watch, check_timeout, seconds_left
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow
from wfctl.store.locks import is_held

LOOK_EVERY_S = 1.0  #: for what nobody writes down before somebody looks: the end of a run without a driver (6.12)


# Runs ---------------------------------------------------------------------------------------------------------------------


def await_runs(
    store: Store,
    run_ids: Sequence[str],
    *,
    any_one: bool = False,
    timeout: float | None = None,
    on_end: Callable[[RunView], None],
    on_interrupt: Callable[[RunView], None],
) -> list[RunView]:
    """Return the runs that are over, once all of them are, or with `any_one` at least one.

    `on_end` is called for each as it is over, `on_interrupt` once for each time that one waits for input, which is no end.
    Units: `timeout` in seconds. Raise NotFound, before anything is waited for; Blocked for a run whose record cannot be read;
    TimedOut.
    """
    deadline = None if timeout is None else store.context.clock.monotonic() + check_timeout(timeout)
    waiting = list(dict.fromkeys(run_ids))
    over: list[RunView] = []
    asked: set[tuple[str, int | None]] = set()
    with store.watch(run_id=waiting) as changes:
        look_at = list(waiting)
        while True:
            for view in [store.inspect_run(run_id=name) for name in look_at]:
                if view.status is None:
                    raise Blocked(str((view.reason or {}).get("message")), {"run_id": view.run_id})
                if view.status in FINISHED:
                    waiting.remove(view.run_id)
                    over.append(view)
                    on_end(view)
                elif view.status == Status.INTERRUPTED and (view.run_id, view.attempt) not in asked:
                    asked.add((view.run_id, view.attempt))
                    on_interrupt(view)
            if not waiting or (any_one and over):
                return over
            left = seconds_left(store.context.clock, deadline)
            if left == 0.0:
                raise _runs_timed_out(store, waiting, timeout)
            changed = _wait_for_changes(changes, LOOK_EVERY_S if left is None else min(left, LOOK_EVERY_S))
            look_at = [name for name in waiting if name in changed] if changed else list(waiting)


def _wait_for_changes(changes: Watch, seconds: float) -> set[str | None]:
    """Return the runs of which anything was told within that time."""
    changed: set[str | None] = set()
    change = changes.wait(seconds)
    while change is not None:
        changed.add(change.run_id)
        change = changes.wait(0)
    return changed


def _runs_timed_out(store: Store, waiting: Sequence[str], timeout: float | None) -> TimedOut:
    named = ", ".join(f"{name} is still {store.inspect_run(run_id=name).status}" for name in waiting[:3])
    more = f", and {len(waiting) - 3} more" if len(waiting) > 3 else ""
    return TimedOut(f"after {timeout:g} s {named}{more}", {"run_ids": list(waiting), "timeout_s": timeout})


# Occurrences --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """What is known of an occurrence that is waited for."""

    view: OccurrenceView | None = None  #: None: not recorded
    never: str | None = None  #: why it never will be
    passed: set[str] = field(default_factory=set)  #: every status that it was told to have come to


def await_occurrence(
    store: Store,
    schedule_id: str,
    instant: datetime | str,
    *,
    state: Status | None = None,
    timeout: float | None = None,
    on_note: Callable[[str], None],
) -> tuple[OccurrenceView, bool]:
    """Return an occurrence once it has come to `state` (None: completed), or to an end; and whether it came to that state.

    A state that it has passed counts. A coming instant is waited for; `on_note` is told, once each, what keeps it from coming.
    Units: `timeout` in seconds. Raise InvalidArgument, NotFound for an unknown schedule and for an occurrence
    that never will be, TimedOut.
    """
    at = as_instant(instant, "instant")
    assert at is not None
    clock, name = store.context.clock, f"{schedule_id}@{format_instant(at)}"
    deadline = None if timeout is None else clock.monotonic() + check_timeout(timeout)
    wanted = state or Status.COMPLETED
    said: set[str] = set()
    seen = _Seen()
    with store.watch(schedule_id=schedule_id) as changes:
        while True:
            _look(store, schedule_id, at, seen)
            if seen.view is not None:
                if _has_come_to(store, seen, wanted):
                    return seen.view, True
                if _is_at_end(seen.view):
                    return seen.view, False
            elif seen.never is not None:
                raise NotFound(f"{name} will never be: {seen.never}", {"occurrence": name})
            for note in _what_delays(store, schedule_id, seen.view):
                if note not in said:
                    said.add(note)
                    on_note(note)
            left = seconds_left(clock, deadline)
            if left == 0.0:
                stands = "not recorded yet" if seen.view is None else f"still {seen.view.status}"
                raise TimedOut(f"after {timeout:g} s {name} is {stands}", {"occurrence": name, "timeout_s": timeout})
            _note_changes(changes, at, seen, LOOK_EVERY_S if left is None else min(left, LOOK_EVERY_S))


def _look(store: Store, schedule_id: str, instant: datetime, seen: _Seen) -> None:
    with store.context.ledger.reading() as connection:  # one state of the ledger: it is recorded, or yet to come, or neither
        try:
            seen.view, seen.never = get_occurrence(store.context, schedule_id=schedule_id, instant=instant), None
        except NotFound:
            row = schedules.require(connection, schedule_id)
            seen.view = None
            if row.deleted_at is not None:
                seen.never = f"{schedule_id} was deleted"
            else:
                seen.never = _why_never(store.context, states.find(connection, row.number), instant)
    run_id = None if seen.view is None or seen.view.status not in UNFINISHED else seen.view.run_id
    if run_id is not None and store.inspect_run(run_id=run_id).status in FINISHED:  # settled by our looking (6.12)
        seen.view = get_occurrence(store.context, schedule_id=schedule_id, instant=instant)


def _why_never(context: Context, state: ScheduleRow | None, instant: datetime) -> str | None:
    """Return why an instant that is not recorded never will be; None where it may."""
    if state is None or not state.is_readable:
        return None  # blocked: what it will be, once it is mended, nobody can tell
    try:
        definition, _ = context.schedule(state.number, state.revision)
        calendar = schedules.calendar_for(definition, state)
        if not is_instant(calendar, instant):
            coming = calendar.next_after(max(instant, state.floor))
            then = "and none is to come" if coming is None else f"the next one to come is {format_instant(coming)}"
            return f"it is no instant of {state.id}, {then}"
    except (CalendarError, UnreadableRow):
        return None
    if instant <= state.floor:
        began = format_instant(state.floor)
        return f"it passed while {state.id} was paused, or before it was made or changed; {state.id} goes on from {began}"
    if state.paused_at is not None and state.paused_at <= instant <= context.now():
        return f"{state.id} is paused, and what passes meanwhile is never replayed"
    return None


def _has_come_to(store: Store, seen: _Seen, wanted: Status) -> bool:
    assert seen.view is not None
    if seen.view.status == wanted or wanted in seen.passed:
        return True
    if wanted is Status.ADMITTED:
        return seen.view.run_id is not None
    if wanted is Status.RUNNING and seen.view.run_id is not None:
        return store.inspect_run(run_id=seen.view.run_id).started_at is not None
    return False


def _is_at_end(view: OccurrenceView) -> bool:
    """Tell whether nothing more becomes of an occurrence; of one whose row cannot be read, nobody knows that anything will."""
    return view.status is None or Status(view.status) in FINISHED or Status(view.status) not in {*RUN_STATUSES, Status.PENDING}


def _what_delays(store: Store, schedule_id: str, view: OccurrenceView | None) -> list[str]:
    """Return what a person should do something about for the occurrence to go on."""
    notes = []
    if view is not None and view.status == Status.INTERRUPTED and view.run_id is not None:
        asks = (store.inspect_run(run_id=view.run_id).interrupt or {}).get("message")
        notes.append(f"{view.run_id} waits for input{f': {asks}' if asks else ''}; `wfctl run resume {view.run_id}` gives it")
    if view is None or view.status == Status.PENDING:
        if not is_held(store.context.layout.scheduler_lock):
            notes.append("no supervisor runs on this store, and nothing is admitted until one does: `wfctl supervise`")
        with store.context.ledger.reading() as connection:
            row = schedules.require(connection, schedule_id)
            state = states.find(connection, row.number)
        diagnostic: Any = row.diagnostic if state is None else state.diagnostic
        if diagnostic is not None:
            notes.append(f"{schedule_id} is blocked: {diagnostic.get('message')}")
        elif state is not None and state.paused_at is not None:
            notes.append(f"{schedule_id} is paused; `wfctl schedule resume {schedule_id}` lets it go on")
    return notes


def _note_changes(changes: Watch, instant: datetime, seen: _Seen, seconds: float) -> None:
    """Wait for anything to change of the schedule, and remember what the occurrence came to on its way."""
    change = changes.wait(seconds)
    while change is not None:
        if change.instant == instant and change.to is not None:
            seen.passed.add(change.to)
        change = changes.wait(0)
