"""What the clock did to what is consumed: waiting for it after a small step back, beginning anew after a large one (5.14)."""

from __future__ import annotations

import logging
import sqlite3
from datetime import datetime, timedelta

from wfctl.core import changes
from wfctl.core.instants import format_instant
from wfctl.core.model import IntervalTrigger, Json, ScheduleDefinition, Settlement, Span, Status
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, is_instant
from wfctl.operations import upkeep
from wfctl.operations.context import Context
from wfctl.store.ledger import definitions, occurrences, retention, schedules, sessions
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow, savepoint

LOG = logging.getLogger("wfctl.rounds")
_JUST_BEFORE = timedelta(microseconds=1)


def held_back_until(context: Context, now: datetime) -> datetime | None:
    """Return until when some schedule waits because the clock stepped back by up to three hours (5.14); None if none does."""
    with context.ledger.reading() as connection:
        if now >= sessions.clock(connection):
            return None
        floors = [row.floor for row in schedules.ahead_of(connection, now) if row.is_admitting]
    return max((floor for floor in floors if not changes.must_reanchor(floor, now)), default=None)


def reanchor(context: Context, now: datetime) -> list[str]:
    """Where the clock stepped back by more than three hours, begin the schedules anew at `now` (5.14); return their ids."""
    with context.ledger.reading() as connection:
        if now >= sessions.clock(connection):
            return []
        ahead = schedules.ahead_of(connection, now)
        behind = [row for row in ahead if changes.must_reanchor(row.floor, now)]
    waiting = [row for row in ahead if row.candidate and row.wake_at and row.wake_at > row.floor and row not in behind]
    if waiting:
        with context.ledger.transaction() as connection:  # what is held is considered as soon as the clock passes the floor
            for row in waiting:
                schedules.need_attention(connection, [row.number], row.floor)
    if behind:
        with context.ledger.transaction() as connection:  # all at once: the first one's event also takes back the noted clock
            for row in behind:
                try:
                    with savepoint(connection):
                        _reanchor_one(context, connection, row.number, now)
                except UnreadableRow as error:
                    definitions.set_diagnostic(connection, row.number, definitions.contradiction_of(error))
                    schedules.set_wake(connection, row.number, next_instant=None, wake_at=None)
        LOG.warning(
            "the clock stepped back to %s, by more than three hours: %d schedules begin anew there, %s among them",
            format_instant(now),
            len(behind),
            behind[0].id,
            extra={"action": "clock_stepped_back"},
        )
    return [row.id for row in behind]


def _reanchor_one(context: Context, connection: sqlite3.Connection, number: int, now: datetime) -> None:
    row = schedules.find(connection, number)
    if row is None or not changes.must_reanchor(row.floor, now) or definitions.is_contradicted(row.own_diagnostic):
        return
    definition, _ = context.schedule(number, row.revision)
    taken = occurrences.withdraw_after(connection, number, now)
    withdrawn: list[dict[str, Json]] = [
        {"instant": format_instant(each.instant), "status": each.status.value, "place": each.place} for each in taken
    ]
    for each in taken:
        _keep_what_is_past(context, connection, each, now)
    if row.candidate is not None and row.candidate.instant > now:
        withdrawn.append({"instant": format_instant(row.candidate.instant), "status": Status.PENDING.value})
        schedules.hold(connection, number, None)
    pauses = schedules.cut_pauses(connection, number, now)
    withdrawn += [{"paused": [format_instant(start), end and format_instant(end)]} for start, end in pauses]
    passing = occurrences.last_admitted_after(connection, number, now)
    horizon = retention.horizon_of(connection, number)
    if horizon is not None and horizon > now:
        passing = max(passing or horizon, horizon)
    schedules.reanchor(connection, number, now=now, passing_until=passing)
    anchor = changes.anchor_before(definition.trigger, row.anchor, now)
    schedules.begin_anew(connection, number, effective_from=now, anchor=anchor)
    sessions.add_clock_event(connection, number, recorded_at=now, floor=row.floor, revision=row.revision, withdrawn=withdrawn)
    upkeep.refresh_wake(connection, number, definition)


def _keep_what_is_past(context: Context, connection: sqlite3.Connection, taken: OccurrenceRow, now: datetime) -> None:
    """A span row that reaches beyond `now` was taken out whole: put back, at its place, the part that lies before.

    Its instants are those of the revision that it was recorded under. It stands at the last one for which no run was admitted.
    """
    if taken.span is None or taken.span.first > now:
        return
    definition, _ = context.schedule(taken.schedule, taken.revision)
    before = taken.span.first - _JUST_BEFORE
    try:
        calendar = _calendar_of_span(definition, taken.span)
        past = calendar.due(before, now)
        while past.instants:
            admitted = occurrences.admitted_among(connection, taken.schedule, past.instants)
            free = [instant for instant in past.instants if instant not in admitted]
            if free:
                break
            past = calendar.due(before, past.instants[0] - _JUST_BEFORE)
        else:
            return
    except CalendarError:
        return
    count = None
    if taken.span.count is not None:
        listed = sum(instant <= free[-1] for instant in past.instants) + ((past.older.count or 0) if past.older else 0)
        count = listed - occurrences.count_admitted(
            connection, taken.schedule, taken.span.first, free[-1], lambda instant: is_instant(calendar, instant)
        )
    kept = Settlement(
        instant=free[-1],
        status=taken.status,
        reason=taken.reason,
        span=Span(taken.span.first, free[-1], count),
        lateness=taken.recorded_at - free[-1],
    )
    occurrences.append(
        connection, taken.schedule, [kept], revision=taken.revision, recorded_at=taken.recorded_at, places=[taken.place]
    )


def _calendar_of_span(definition: ScheduleDefinition, span: Span) -> Calendar:
    """Return a calendar that names the instants of a span; of an interval, the anchor of that time is no more known."""
    trigger = definition.trigger
    return calendar_of(trigger, span.first - trigger.every if isinstance(trigger, IntervalTrigger) else span.first)
