"""Naming an occurrence on the command line: SCHEDULE@INSTANT, and help for whoever has only a time of day (contract 11.4).

A time without an offset is refused, as everywhere: it names one instant in UTC and another in the schedule's zone. What is
said then has the names written out, ready to be copied, and says which of them are instants of the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from wfctl.cli import parse, values
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from wfctl.core.trigger import Calendar
    from wfctl.operations.store import Store
    from wfctl.operations.views import ScheduleView

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Fix:
    """One way to write the time in full."""

    name: str
    instant: datetime
    says: str
    is_instant: bool


def occurrence(store: Store, text: str, now: datetime) -> tuple[str, datetime]:
    """Given `SCHEDULE@INSTANT`, return both parts.

    Raise InvalidArgument for a schedule alone, a time of day, or a time without an offset, naming what to write instead;
    NotFound for a schedule that is none.
    """
    schedule_id, at, when = text.partition("@")
    if not at or not when:
        raise _no_instant(store, schedule_id, now)
    if schedule_id and (day := _day(when)) is not None:
        raise _no_time(store, schedule_id, day)
    if schedule_id and (naive := _naive(when)) is not None:
        raise _no_offset(store, schedule_id, when, naive, now)
    return parse.occurrence_name(text)


def _day(when: str) -> date | None:
    found = _DAY.fullmatch(when)
    try:
        return None if found is None else date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return None


def _naive(when: str) -> tuple[date | None, time] | None:
    """Read a time without an offset: with or without its day. None for anything else."""
    day, between, clock = when.replace("t", "T").replace(" ", "T").rpartition("T")
    matched = _CLOCK.fullmatch(clock)
    days = _DAY.fullmatch(day) if between else None
    if matched is None or (between and days is None):
        return None
    try:
        found = time(int(matched[1]), int(matched[2]), int(matched[3] or 0))
        return (None if days is None else date(int(days[1]), int(days[2]), int(days[3]))), found
    except ValueError:
        return None


def _no_instant(store: Store, schedule_id: str, now: datetime) -> InvalidArgument:
    view = store.get_schedule(schedule_id=schedule_id)
    listed = f"`wfctl occurrences {view.id}` lists what is recorded"
    calendar = _calendar(view)
    last = None if calendar is None or view.effective_from is None else _last(calendar, now)
    if last is None:
        example = f"{view.id}@{values.instant(view.next_instant or now.replace(microsecond=0))}"
        return InvalidArgument(f"which instant of {view.id}? write it as\n{example}\n{listed}", {"argument": "instant"})
    name = f"{view.id}@{values.instant(last)}"
    message = f"which instant of {view.id}? write it as\n{name}  its latest, {values.relative(last, now)}\n{listed}"
    return InvalidArgument(message, {"argument": "instant", "latest": name})


def _last(calendar: Calendar, now: datetime) -> datetime | None:
    from wfctl.core.trigger import CalendarError

    for back in (timedelta(days=1), timedelta(days=32), timedelta(days=370)):
        try:
            found = calendar.due(now - back, now, limit=1)
        except (CalendarError, OverflowError):
            return None
        if found.instants:
            return found.instants[-1]
    return None


def _calendar(view: ScheduleView) -> Calendar | None:
    from wfctl.core.trigger import CalendarError, calendar_of, parse_trigger

    try:
        return None if view.definition is None else calendar_of(parse_trigger(view.definition["trigger"]), view.anchor)
    except (CalendarError, ValueError):
        return None


def _no_offset(store: Store, schedule_id: str, when: str, naive: tuple[date | None, time], now: datetime) -> InvalidArgument:
    view = store.get_schedule(schedule_id=schedule_id)
    day, clock = naive
    fixes = list(_fixes(view, day, clock, now, is_minute=when.count(":") == 1))
    fixes.sort(key=lambda fix: not fix.is_instant)
    lacks = "no offset" if day is not None else "no day and no offset"
    width = max(len(fix.name) for fix in fixes)
    lines = "".join(f"\n{fix.name.ljust(width)}  {fix.says}" for fix in fixes)
    zone = _zone_name(view)
    if not any(fix.name[-1] != "Z" for fix in fixes) and zone != "UTC":
        lines += f"\n{clock:%H:%M} does not exist in {zone} that day: a clock change leaves it out"
    message = f"{schedule_id}@{when} has {lacks}; write {'it so' if len(fixes) == 1 else 'one of these'}:{lines}"
    return InvalidArgument(message, {"argument": "instant", "fixes": [fix.name for fix in fixes]})


def _zone_name(view: ScheduleView) -> str:
    trigger = (view.definition or {}).get("trigger") or {}
    return str(trigger.get("timezone") or "UTC")


def _no_time(store: Store, schedule_id: str, day: date) -> InvalidArgument:
    """A day names many instants."""
    from wfctl.core.trigger import CalendarError, zone_of

    view = store.get_schedule(schedule_id=schedule_id)
    try:
        zone = zone_of(_zone_name(view))
        bounds = [datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + timedelta(days=1))]
    except (CalendarError, OverflowError):
        return InvalidArgument(f"{schedule_id}@{day} is a day; name an instant of it, as {day}T06:40:00Z")
    first, last = map(values.instant, bounds)
    message = (
        f"{schedule_id}@{day} is a day; its instants are listed by\nwfctl occurrences {view.id} --since {first} --until {last}"
    )
    return InvalidArgument(message, {"argument": "instant"})


def _fixes(view: ScheduleView, day: date | None, clock: time, now: datetime, *, is_minute: bool) -> Iterator[_Fix]:
    from wfctl.core.trigger import CalendarError, zone_of

    calendar = _calendar(view)
    zones = dict.fromkeys([_zone_name(view), "UTC"])
    seen: set[datetime] = set()
    for zone_name in zones:
        try:
            zone = UTC if zone_name == "UTC" else zone_of(zone_name)
        except CalendarError:
            continue
        for each in [day] if day is not None else _days(now.astimezone(zone), clock):
            for fold in (0, 1):
                local = datetime.combine(each, clock, zone).replace(fold=fold)
                try:
                    instant = local.astimezone(UTC)
                except OverflowError:
                    continue
                if instant in seen or instant.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
                    continue
                seen.add(instant)
                meant = _in_minute(calendar, instant) if is_minute else instant
                yield _fix(view, calendar, meant.astimezone(zone), zone_name, meant, now)


def _days(now: datetime, clock: time) -> list[date]:
    """The day whose time of day came last, and today where that is still to come."""
    today = now.date()
    is_past = now.time() >= clock
    return [today] if is_past else [today - timedelta(days=1), today]


def _in_minute(calendar: Calendar | None, minute: datetime) -> datetime:
    """Return the instant of a calendar in a minute, the last where there are several; the minute itself where there is none."""
    from wfctl.core.trigger import CalendarError

    tick = timedelta(microseconds=1)
    try:
        found = None if calendar is None else calendar.due(minute - tick, minute + timedelta(minutes=1) - tick, limit=1)
    except (CalendarError, OverflowError):
        return minute
    return found.instants[-1] if found is not None and found.instants else minute


def _fix(view: ScheduleView, calendar: Calendar | None, local: datetime, zone: str, instant: datetime, now: datetime) -> _Fix:
    from wfctl.core.trigger import CalendarError, is_instant

    written = values.instant(instant) if zone == "UTC" else local.isoformat()
    try:
        is_named = calendar is not None and is_instant(calendar, instant)
    except (CalendarError, OverflowError):
        is_named = False
    clock = local.strftime("%a %H:%M:%S" if local.second else "%a %H:%M")
    says = f"{clock} in {zone}, {values.relative(instant, now)}"
    return _Fix(f"{view.id}@{written}", instant, says if is_named else f"{says}: no instant of it", is_named)
