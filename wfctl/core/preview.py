"""What `add`, `edit`, `set` and `resume` show of a trigger beside its reading: next instants and warnings (contract 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from wfctl.core.cron import Expression
from wfctl.core.model import CronTrigger, Trigger
from wfctl.core.trigger import (
    CronCalendar,
    aware_utc,
    calendar_of,
    changes_of,
    expression_of,
    instants_after,
    named_at_offset,
    zone_of,
)

Note = Literal["gap", "fold-first", "fold-second"]
DAYS_AHEAD = 400  #: how far clock changes are looked for, so that each yearly one is among them
_ENOUGH = 100  #: times in one gap or fold that are looked at
_LONGEST_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}  #: days of the months that have fewer than 31, at most
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One instant to come, in UTC and in the trigger's own zone."""

    instant: datetime
    local: datetime
    note: Note | None  #: moved out of a gap, or first or second pass of a repeated hour


@dataclass(frozen=True, slots=True)
class Warning:
    """Something about a trigger that its author may not have meant."""

    code: str  #: a stable word, such as `dst-twice`
    message: str


def preview(trigger: Trigger, anchor: datetime | None, after: datetime, count: int = 5) -> tuple[PreviewRow, ...]:
    """Given a trigger, return its next `count` instants later than `after`, each with what its zone's clock does there.

    Raise CalendarError where its calendar gives no answer.
    """
    calendar = calendar_of(trigger, anchor)
    instants = islice(instants_after(calendar, aware_utc(after)), count)
    if not isinstance(trigger, CronTrigger):
        return tuple(PreviewRow(instant, instant, None) for instant in instants)
    zone = zone_of(trigger.timezone)
    return tuple(PreviewRow(instant, instant.astimezone(zone), _note(trigger, instant)) for instant in instants)


def changed_rows(trigger: Trigger, after: datetime) -> tuple[PreviewRow, ...]:
    """Given a trigger, return the instants that the clock changes of the coming 400 days move or repeat, ascending.

    At most 100 of each change. Raise CalendarError where its calendar gives no answer.
    """
    if not isinstance(trigger, CronTrigger):
        return ()
    calendar = CronCalendar(trigger)
    found: dict[datetime, PreviewRow] = {}
    after = aware_utc(after)
    for change, before, following in changes_of(calendar.zone, after, after + timedelta(days=DAYS_AHEAD)):
        around = max(after, change - abs(before - following) - timedelta(seconds=1))
        for instant in islice(instants_after(calendar, around), 2 * _ENOUGH):
            if instant > change + abs(before - following):
                break
            note = _note(trigger, instant)
            if note is not None:
                found[instant] = PreviewRow(instant, instant.astimezone(calendar.zone), note)
    return tuple(found.values())


def warnings_of(trigger: Trigger, after: datetime) -> tuple[Warning, ...]:
    """Given a trigger, return what its author should know. Only cron has surprises.

    Shape: what its words say first, then the clock changes of the coming 400 days that touch it, ascending.
    Raise CalendarError where its calendar gives no answer. Source: contract 4.1 and 4.6.
    """
    if not isinstance(trigger, CronTrigger):
        return ()
    expression = expression_of(trigger)
    return (*_of_words(expression), *_of_months(expression), *_of_clock_changes(trigger, expression, aware_utc(after)))


def _note(trigger: CronTrigger, instant: datetime) -> Note | None:
    local = instant.astimezone(zone_of(trigger.timezone))
    offset = local.utcoffset()
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        return "fold-second" if local.fold else "fold-first"
    if offset is not None and not any(named_at_offset(trigger, offset, instant, instant + timedelta(seconds=1))):
        return "gap"
    return None


def _of_words(expression: Expression) -> Iterator[Warning]:
    if expression.text != expression.expanded:
        yield Warning("wrapped-range", f"'{expression.text}' wraps around; it is read as '{expression.expanded}'")
    if not expression.has_both_days:
        return
    yield Warning("day-fields-or", "day of month and day of week are both set: either matches, not only both together")
    for stepped, other in ((expression.day, expression.weekday), (expression.weekday, expression.day)):
        if "*/" in stepped.words:
            says = f"'{stepped.words}' in the {stepped.rule.name} stands beside '{other.words}' in the {other.rule.name}"
            yield Warning("step-beside-day-field", f"{says}: either matches here, where Debian's cron wants both")


def _of_months(expression: Expression) -> Iterator[Warning]:
    """Months that a day of month leaves out; with a day of week beside it they are reached all the same."""
    if expression.day.is_star or expression.has_both_days:
        return
    first = expression.day.values[0]
    never = [month for month in expression.month.values if first > _LONGEST_MONTHS.get(month, 31)]
    if never:
        names = ", ".join(_MONTHS[month - 1] for month in never)
        yield Warning("never-in-some-months", f"never in {names}: too short for day {first}")
    elif first == 29 and 2 in expression.month.values:
        yield Warning("never-in-some-months", "in February only in leap years: it has no day 29 in the others")


def _of_clock_changes(trigger: CronTrigger, expression: Expression, after: datetime) -> Iterator[Warning]:
    """Times that a coming clock change repeats or moves. What runs every hour runs on, and needs no warning."""
    if expression.hour.is_every:
        return
    calendar = CronCalendar(trigger)
    for change, before, following in changes_of(calendar.zone, after, after + timedelta(days=DAYS_AHEAD)):
        if following < before:
            yield from _repeated(calendar, change, before, following)
        else:
            yield from _moved(calendar, change, before, following)


def _repeated(calendar: CronCalendar, change: datetime, before: timedelta, following: timedelta) -> Iterator[Warning]:
    length = before - following
    for first in islice(named_at_offset(calendar.trigger, before, change - length, change), _ENOUGH):
        if _is_instant(calendar, first) and _is_instant(calendar, first + length):
            passes = f"at {_shown(calendar, first)} and at {_shown(calendar, first + length)}"
            day = first.astimezone(calendar.zone).date()
            yield Warning("dst-twice", f"runs twice on {day}, when the clock goes back: {passes}")
            return


def _moved(calendar: CronCalendar, change: datetime, before: timedelta, following: timedelta) -> Iterator[Warning]:
    named = next(named_at_offset(calendar.trigger, before, change, change + (following - before)), None)
    if named is None or not _is_instant(calendar, change):
        return
    missing = (named + before).replace(tzinfo=None)
    why = f"{missing:%H:%M} does not exist, it runs at {_shown(calendar, change)}"
    yield Warning("dst-moved", f"is moved on {missing.date()}, when the clock goes forward: {why}")


def _is_instant(calendar: CronCalendar, instant: datetime) -> bool:
    return calendar.next_after(instant - timedelta(seconds=1)) == instant


def _shown(calendar: CronCalendar, instant: datetime) -> str:
    local = instant.astimezone(calendar.zone)
    return f"{local:%H:%M %Z} ({instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ})"
