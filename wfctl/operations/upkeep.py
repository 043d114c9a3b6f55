"""What every change of a schedule ends with: rows recorded, the next instant known, and when attention is due."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from wfctl.core.changes import Closing
from wfctl.core.model import Candidate, DueInstants, Json, ScheduleDefinition, Settlement, Span
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, is_instant
from wfctl.store.ledger import definitions, occurrences, retention, schedules, sessions
from wfctl.store.ledger.schedules import ScheduleRow

_JUST_AFTER = timedelta(microseconds=1)


class Standing(Protocol):
    """Where a schedule stands, as `ScheduleRow` and `DueRow` have it."""

    @property
    def number(self) -> int:
        """The number of its definition."""

    @property
    def floor(self) -> datetime:
        """Everything up to here is consumed or never was this schedule's."""

    @property
    def passing_until(self) -> datetime | None:
        """Up to here instants may come due again that have a run."""


def due_of(
    connection: sqlite3.Connection, row: Standing, calendar: Calendar, now: datetime
) -> tuple[DueInstants, frozenset[datetime]]:
    """Return what is due in (floor, now], and which of it was admitted before the clock stepped back (5.14).

    Raise CalendarError.
    """
    if row.floor >= now:
        return DueInstants(), frozenset()
    due = calendar.due(row.floor, now)
    if row.passing_until is None:
        return due, frozenset()
    passed = _passed_among(connection, row, due)
    while due.older is not None and len(passed) == len(due.instants):  # all that is listed passes quietly: list what is older
        due = calendar.due(row.floor, due.instants[0] - _JUST_AFTER)
        passed = _passed_among(connection, row, due)
    return replace(due, older=_unpassed(connection, row, calendar, due.older)), passed


def _passed_among(connection: sqlite3.Connection, row: Standing, due: DueInstants) -> frozenset[datetime]:
    """Of instants whose history is no more kept nobody knows whether a run was admitted: they pass quietly, all of them."""
    known = occurrences.admitted_among(connection, row.number, due.instants)
    horizon = retention.horizon_of(connection, row.number)
    return known if horizon is None else known | frozenset(each for each in due.instants if each < horizon)


def _unpassed(connection: sqlite3.Connection, row: Standing, calendar: Calendar, span: Span | None) -> Span | None:
    """A span row stands at its last instant, which must have no row yet, and does not count what was admitted within it."""
    if span is None or row.passing_until is None or span.first > row.passing_until:
        return span
    last: datetime | None = span.last
    while last is not None and occurrences.admitted_among(connection, row.number, [last]):
        shorter = calendar.due(row.floor, last - _JUST_AFTER, limit=1)
        last = shorter.instants[0] if shorter.instants else None
    if last is None:
        return None
    admitted = occurrences.count_admitted(
        connection, row.number, span.first, span.last, lambda instant: is_instant(calendar, instant)
    )
    return Span(span.first, last, None if span.count is None else span.count - admitted)


def unpassed(due: DueInstants, passed: frozenset[datetime]) -> DueInstants:
    """Return what is due less what a run was admitted for already."""
    return replace(due, instants=tuple(instant for instant in due.instants if instant not in passed)) if passed else due


def record(
    connection: sqlite3.Connection, row: ScheduleRow, rows: Sequence[Settlement], *, now: datetime, revision: int | None = None
) -> None:
    """Record rows of one schedule, oldest first, under its current revision or the one given."""
    if rows:
        first = occurrences.reserve_places(connection, len(rows))
        places = range(first, first + len(rows))
        occurrences.append(connection, row.number, rows, revision=revision or row.revision, recorded_at=now, places=places)


def close(connection: sqlite3.Connection, row: ScheduleRow, closing: Closing, *, now: datetime) -> None:
    """Record what a change settled before it took effect, and move the watermark behind it."""
    record(connection, row, closing.settled, now=now)
    if closing.watermark is not None:
        schedules.advance(connection, row.number, watermark=max(row.watermark, closing.watermark), last_admission=None)
    sessions.note_clock(connection, now)


def refresh_wake(
    connection: sqlite3.Connection, number: int, definition: ScheduleDefinition, *, attention: datetime | None = None
) -> datetime | None:
    """Work out and write what comes next for a schedule, as it stands now; return its next instant.

    `attention`: a look is wanted at that time whatever the calendar says.
    """
    row = schedules.find(connection, number)
    assert row is not None
    if row.deleted_at is not None or row.diagnostic is not None:
        schedules.set_wake(connection, number, next_instant=None, wake_at=None)
        return None
    try:
        coming = calendar_of(definition.trigger, row.anchor).next_after(row.floor)
    except CalendarError as error:
        definitions.set_diagnostic(connection, number, calendar_diagnostic(row.id, error))
        schedules.set_wake(connection, number, next_instant=None, wake_at=None)
        return None
    wake_at = None if row.paused_at else wake_time(coming, row.candidate, definition, attention)
    schedules.set_wake(connection, number, next_instant=coming, wake_at=wake_at)
    return coming


def wake_time(
    coming: datetime | None, candidate: Candidate | None, definition: ScheduleDefinition, attention: datetime | None = None
) -> datetime | None:
    """Return when an active schedule needs attention: its next instant, the end of its candidate's lateness, or `attention`."""
    times = [time for time in (coming, attention) if time is not None]
    if candidate is not None and candidate.can_expire:
        times.append(candidate.instant + definition.lateness + _JUST_AFTER)
    return min(times) if times else None


def calendar_diagnostic(schedule_id: str, error: Exception) -> dict[str, Json]:
    """Return why a schedule whose calendar can no more be worked out is blocked (4.2, 4.3)."""
    return {
        "code": "calendar",
        "message": f"the calendar of {schedule_id} cannot be worked out: {error}; change its trigger with `wfctl schedule set`",
    }
