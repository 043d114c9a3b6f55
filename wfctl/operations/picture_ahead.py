"""The parts of a picture that no row of the history says: what is expected, and when no supervisor was there."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from wfctl.core.model import Status
from wfctl.core.reasons import phrase
from wfctl.core.trigger import CalendarError
from wfctl.errors import WfctlError
from wfctl.operations.context import Context
from wfctl.operations.schedules import calendar_for
from wfctl.operations.simulating import LONGEST, Forecast, forecast
from wfctl.operations.timeline_views import ExpectedView, StretchView
from wfctl.store.ledger import around, past, picture, schedules
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.locks import is_held

MOST = 2000  #: instants that are played ahead
_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is expected, by schedule, and of the runs at work."""

    until: datetime | None
    by_schedule: Mapping[str, tuple[ExpectedView, ...]] = field(default_factory=dict)
    ends: Mapping[str, datetime] = field(default_factory=dict)  #: by run
    assumed: tuple[str, ...] = ()


NOTHING = Ahead(None)


def look_ahead(context: Context, *, until: datetime, slots: int) -> Ahead:
    """Return what the supervisor would decide up to `until`, or for as long as that comes to no more than MOST instants."""
    now = context.now()
    end = horizon(context, now, min(until, now + LONGEST), MOST)
    if end is None:
        return NOTHING
    try:
        found = forecast(context, until=end, slots=slots)
    except (CalendarError, UnreadableRow):
        return NOTHING
    expected: dict[str, list[ExpectedView]] = {}
    for row in found.played.rows:
        admitted = row.settlement.status is Status.ADMITTED
        expected.setdefault(row.schedule_id, []).append(
            ExpectedView(
                schedule_id=row.schedule_id,
                instant=row.settlement.instant,
                status=row.settlement.status.value,
                begins=row.decided_at,
                ends=row.ended_at if admitted else row.decided_at,
                why=phrase(row.settlement.reason),
                track=0,
            )
        )
    return Ahead(
        end,
        {name: tuple(rows) for name, rows in expected.items()},
        _ends(found),
        tuple(name for name, number in found.numbers.items() if found.estimates.of(name, number).origin == "assumed"),
    )


def _ends(found: Forecast) -> dict[str, datetime]:
    return {
        each.run_id: min(found.plan.since + each.course.legs[0].lasts, found.plan.until)
        for each in found.plan.ongoing
        if each.course.legs[0].holds_slot
    }


def horizon(context: Context, now: datetime, until: datetime, most: int) -> datetime | None:
    """Return how far ahead, up to `until`, no more than `most` instants come due; None where that is not even a moment."""
    with context.ledger.reading() as connection:
        calendars = []
        for row in schedules.list_all(connection):
            if row.is_admitting and row.is_readable:
                try:
                    definition, _ = context.schedule(row.number, row.revision)
                    calendars.append((calendar_for(definition, row), max(row.floor, now)))
                except (CalendarError, UnreadableRow):
                    continue
    length = until - now
    for _ in range(_HALVINGS):
        left = most
        for calendar, floor in calendars:
            try:
                left -= calendar.count(floor + _TICK, now + length, limit=left + 1)
            except CalendarError:
                continue
            if left < 0:
                break
        if left >= 0:
            return now + length
        length /= 2
    return None


_TICK = timedelta(microseconds=1)


# When nobody was there --------------------------------------------------------------------------------------------------


def is_supervised(context: Context) -> bool:
    """Tell whether a supervisor is there now."""
    try:
        return is_held(context.layout.scheduler_lock)
    except WfctlError:
        return False


def absences(context: Context, connection: sqlite3.Connection, since: datetime, until: datetime) -> tuple[StretchView, ...]:
    """Return when no supervisor is known to have been there within [since, until), from when there was anything to do."""
    made = picture.oldest_definition(connection)
    begins = until if made is None else max(since, made)
    if begins >= until:
        return ()
    gaps = past.absences(connection, begins, until)
    first = picture.last_session(connection)
    if gaps and gaps[0][0] == begins and first is not None and not around.are_sessions_whole(connection):
        gaps = gaps[1:] if _is_before_the_first(connection, gaps[0][1]) else gaps
    if first is not None and first[1] is None and not is_supervised(context):
        gone = max(first[0], begins)  # it left no end: it was there as long as anything shows it
        for session in around.sessions(connection, [until]):
            gone = max(gone, session.seen_at)
        if gone < until:
            gaps = [*(gap for gap in gaps if gap[1] <= gone), (gone, until)]
    now = context.now()
    open_end = until >= now and not is_supervised(context)
    return tuple(StretchView(begins=low, ends=None if open_end and high >= until else high) for low, high in gaps if low < high)


def _is_before_the_first(connection: sqlite3.Connection, ends: datetime) -> bool:
    """Tell whether a gap ends where the first session begins that is still known: older ones were let go."""
    known = around.sessions(connection, [ends])
    return not any(each.started_at < ends for each in known)
