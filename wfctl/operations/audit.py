"""Auditing a schedule: its timeline is gathered from the ledger, piece by piece, and recounted by the core (contract 5.15)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.audit import Balance, ClockEvent, Pause, Revision, Row, Timeline
from wfctl.core.audit import audit as recount
from wfctl.core.instants import format_instant, from_micros
from wfctl.core.model import Status, run_name
from wfctl.core.trigger import stamps
from wfctl.operations import schedules
from wfctl.operations.context import Context
from wfctl.operations.listing import as_instant
from wfctl.operations.views import AuditProblemView, AuditView, UncheckedView
from wfctl.store.ledger import definitions, retention, sessions, timeline
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.definitions import RevisionRow
from wfctl.store.ledger.schedules import ScheduleRow
from wfctl.store.ledger.timeline import RecordedRow

_JUST_BEFORE = timedelta(microseconds=1)
_REVISIONS_AT_ONCE = 100


def audit(context: Context, schedule_id: str, *, since: Any = None) -> AuditView:
    """Check that a schedule's instants are each accounted for exactly once, and count what became of them.

    Given: `since` leaves out the instants before it, as the retention horizon does anyway.
    Raise NotFound, InvalidArgument; UnreadableRow where a row does not even say which instant it is about.
    """
    asked = as_instant(since, "since")
    with context.ledger.reading() as connection:
        row = schedules.require(connection, schedule_id)
        state = states.find(connection, row.number)
        if state is None:
            return _view(schedule_id, Balance(), [], None)
        horizon = retention.horizon_of(connection, row.number)
        first = max((each for each in (asked, horizon) if each is not None), default=None)
        after = None if first is None else first - _JUST_BEFORE
        events = sessions.clock_events(connection, row.number)
        balance = recount(_timeline(context, connection, state, events, after))
        _check_pause(connection, state, balance)
        _check_runs(connection, state, after, balance)
        if after is not None and balance.since == after:
            balance.since = first
    return _view(schedule_id, balance, events, horizon)


def _timeline(
    context: Context,
    connection: sqlite3.Connection,
    state: ScheduleRow,
    events: list[sessions.ClockEventRow],
    after: datetime | None,
) -> Timeline:
    held = state.candidate
    if held is not None and after is not None and held.instant <= after:
        held = None
    return Timeline(
        revisions=list(revisions_of(context, connection, state.number)),
        events=[ClockEvent(recorded_at=each.recorded_at, floor=each.floor, revision=each.revision) for each in events],
        until=state.floor,
        after=after,
        rows=map(_row, timeline.rows(connection, state.number, after=after)),
        spans=map(_row, timeline.spans(connection, state.number, after=after)),
        pauses=(
            Pause(start, state.floor if end is None else end)  # an edit consumes what was paused before it
            for start, end in timeline.pauses(connection, state.number, after=after)
        ),
        candidate=None if held is None else Row(instant=held.instant, status=Status.PENDING, revision=state.revision),
    )


def revisions_of(context: Context, connection: sqlite3.Connection, number: int) -> Iterator[Revision]:
    """Give the revisions of a schedule as a timeline knows them, from the first."""
    today = stamps()
    after = 0
    while True:
        found = definitions.revisions(connection, number, after=after, limit=_REVISIONS_AT_ONCE)
        for each in found:
            yield Revision(
                revision=each.revision,
                recorded_at=from_micros(each.recorded_at),
                begins=None if each.begins is None else from_micros(each.begins),
                trigger=context.schedule(number, each.revision)[0].trigger,
                stamps=_other_stamps(each, today),
            )
        if len(found) < _REVISIONS_AT_ONCE:
            return
        after = found[-1].revision


def _other_stamps(row: RevisionRow, today: tuple[str, str]) -> str | None:
    """Say by which croniter and tz database a revision was saved, where these are not today's."""
    if (row.croniter, row.tz_database) == today:
        return None
    saved = f"croniter {row.croniter} with tz {row.tz_database}"
    return f"revision {row.revision} was saved with {saved}; here is croniter {today[0]} with tz {today[1]}"


def _row(row: RecordedRow) -> Row:
    return Row(
        instant=row.instant,
        status=row.status,
        revision=row.revision,
        reason=row.reason,
        first=row.first,
        count=row.count,
        run=None if row.run is None else run_name(row.run) if row.run > 0 else f"run {row.run}",
        run_status=row.run_status,
        is_restored=row.is_restored,
    )


def _check_pause(connection: sqlite3.Connection, state: ScheduleRow, balance: Balance) -> None:
    """What the schedule says of its pause must be what the paused spans say."""
    begun = timeline.open_pauses(connection, state.number)
    if begun != [each for each in [state.paused_at] if each is not None]:
        since = "is not paused" if state.paused_at is None else f"is paused since {format_instant(state.paused_at)}"
        spans = " and ".join(f"since {format_instant(each)}" for each in begun) or "in none"
        at = next(iter(begun), None) or state.paused_at or state.floor
        balance.add("pause", at, f"the schedule {since}; by its paused spans {spans}")


def _check_runs(connection: sqlite3.Connection, state: ScheduleRow, after: datetime | None, balance: Balance) -> None:
    for instant, number in timeline.runs_without_row(connection, state.number, after=after):
        message = f"{run_name(number)} was admitted for {format_instant(instant)}, of which the history does not know"
        balance.add("run", instant, message)


def _view(schedule_id: str, balance: Balance, events: list[sessions.ClockEventRow], horizon: datetime | None) -> AuditView:
    problems = sorted(balance.problems, key=lambda each: each.instant)
    return AuditView(
        schedule_id=schedule_id,
        since=balance.since,
        until=balance.until,
        horizon=horizon,
        instants=balance.instants,
        counts=balance.counts,
        kept=balance.kept,
        withdrawn=sum(event.withdrawn for event in events),
        is_balanced=not problems,
        unchecked=tuple(UncheckedView(since=each.since, until=each.until, reason=each.reason) for each in balance.unchecked),
        problems=tuple(AuditProblemView(code=each.code, instant=each.instant, message=each.message) for each in problems),
        problems_left_out=balance.problems_left_out,
    )
