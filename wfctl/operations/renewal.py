"""Working out next instants anew where croniter or the tz database is another than they were worked out by (contract 3.2, 4.2).

A new tz database changes the next instants of few schedules, and there may be very many schedules: what did not change is not
written, and schedules of the same expression and zone ask croniter together. Nothing is held for long; a crash in between
costs no more than beginning again. Intervals and one-shots ask neither.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import CronTrigger
from wfctl.core.trigger import CalendarError, calendar_of, clear_caches, stamps
from wfctl.operations import upkeep
from wfctl.operations.context import Context
from wfctl.store.ledger import calendars, definitions, schedules
from wfctl.store.ledger.calendars import CronRow
from wfctl.store.ledger.rows import UnreadableRow

_AT_ONCE = 1000  #: schedules of one transaction


def renew_calendars(context: Context, on_progress: Callable[[], None] | None = None) -> bool:
    """Bring the next instants up to date with today's croniter and tz database; return whether they were worked out anew.

    `on_progress` is called again and again meanwhile. Raise TimedOut, IoError.
    """
    clear_caches()
    today = " ".join(stamps())
    with context.ledger.reading() as connection:
        if definitions.calendar_stamps(connection) == today:
            return False
    answers = _Answers()
    last = 0
    while True:
        with context.ledger.reading() as connection:
            rows = calendars.cron_rows(connection, after=last, limit=_AT_ONCE)
        if not rows:
            break
        last = rows[-1].number
        _renew(context, rows, answers)
        if on_progress is not None:
            on_progress()
    with context.ledger.transaction() as connection:
        definitions.set_calendar_stamps(connection, today)
    clear_caches()  # it may have learnt of more expressions than will soon be asked for
    return True


def _renew(context: Context, rows: list[CronRow], answers: _Answers) -> None:
    changed: list[tuple[CronRow, int, int | None]] = []
    doubtful: list[int] = []
    for row in rows:
        try:
            if row.trigger is None:  # to be read in full
                raise CalendarError
            coming = answers.next_after(row.trigger, row.floor)
        except CalendarError:
            doubtful.append(row.number)
            continue
        wake_at = None if row.is_paused else min(coming, coming if row.wake_at is None else row.wake_at)
        if (coming, wake_at) != (row.next_instant, row.wake_at):
            changed.append((row, coming, wake_at))
    if not changed and not doubtful:
        return
    with context.ledger.transaction() as connection:
        calendars.renew_wakes(connection, changed)
        for number in doubtful:
            _renew_one(context, connection, number)


def _renew_one(context: Context, connection: sqlite3.Connection, number: int) -> None:
    """Work out anew what comes next for a schedule that holds a candidate, or whose calendar fails, or that is not readable."""
    row = schedules.find(connection, number)
    if row is None or row.deleted_at is not None or row.diagnostic is not None:
        return
    try:
        definition, _ = context.schedule(row.number, row.revision)
        upkeep.refresh_wake(connection, number, definition, attention=row.wake_at)
    except UnreadableRow as error:
        definitions.set_diagnostic(connection, number, definitions.contradiction_of(error))
        schedules.set_wake(connection, number, next_instant=None, wake_at=None)


class _Answers:
    """What calendars answered: the next instant after one time is also that after any later one before it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, int]] = {}  #: by expression and zone: after which time, which instant

    def next_after(self, trigger: tuple[str, str], floor: int) -> int:
        """Return the first instant after a time, in microseconds. Raise CalendarError."""
        begins, coming = self._known.get(trigger, (0, 0))
        if not begins <= floor < coming:
            found: datetime | None = calendar_of(CronTrigger(*trigger)).next_after(from_micros(floor))
            if found is None:
                raise CalendarError
            coming = to_micros(found)
            self._known[trigger] = (floor, coming)
        return coming
