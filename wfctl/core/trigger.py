"""Triggers -> instants: cron, interval, one-shot (contract 4). The only import of croniter and zoneinfo.

croniter owns the calendar, DST gaps and folds included. What is done to it is asking in the right way, and checking the answer:

- A repeated hour is asked about twice. croniter 7.0.0 loses the second pass of `45 1 1 11 *` in New York when it is asked
  from before it and gives it when asked from within, so that what is due would depend on where the watermark happens to stand.
  Here each next instant is a function of the time alone: where a second pass begins croniter is asked again, at its UTC offset.
- An answer must be strictly later than the question, and come within eight years; an exception of croniter is a CalendarError.
"""

from __future__ import annotations

import re
import threading
import zoneinfo
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Protocol

from wfctl.core.cron import Expression, ExpressionRefused, parse_expression
from wfctl.core.duration import format_duration, parse_duration
from wfctl.core.instants import format_instant, parse_instant
from wfctl.core.model import CronTrigger, DueInstants, IntervalTrigger, MaxRun, OneshotTrigger, Span, Trigger
from wfctl.core.near import near
from wfctl.errors import InvalidArgument, InvalidDefinition, Problem

if TYPE_CHECKING:
    from croniter import croniter

YEARS_SEARCHED = 8  #: inclusive: 29 February 2096 to 2104 (contract 4.2)
NEWEST = 100  #: due instants that get a row each (contract 5.2)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
generation = 0  #: grows when calendars made before are no more to be asked
_NOTHING_DUE = DueInstants()
_FEW = 8  #: forward steps tried before a start is looked for backwards
_KEYS = {"cron": ("expression", "timezone"), "interval": ("every",), "oneshot": ("at",)}
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9][A-Za-z0-9_+-]*)*", re.ASCII)
_NOT_ZONES = frozenset({"localtime", "Factory", "posixrules"})


class CalendarError(ValueError):
    """The calendar gave no usable answer: a zone that is gone, a search without end, an exception of croniter.

    At creation it is a refusal; later it blocks the schedule (contract 4.2, 4.3).
    """


# Plain dicts <-> values -------------------------------------------------------------------------------------------------------


def parse_trigger(plain: Mapping[str, Any], *, path: str = "trigger") -> Trigger:
    """Given the trigger of a definition as a plain dict, return it as a value in its normal form.

    Raise InvalidDefinition, with every problem and its key path, for anything outside contract 4.1, 4.3, 4.4 and 4.5. That it
    ever fires is asked by `check_fires`.
    """
    trigger, problems = read_trigger(plain, path=path)
    if trigger is None or problems:
        raise InvalidDefinition.of("the trigger is not valid", problems)
    return trigger


def read_trigger(plain: object, *, path: str = "trigger") -> tuple[Trigger | None, tuple[Problem, ...]]:
    """As `parse_trigger`, for a caller that gathers problems: return the trigger, or None and what is wrong with it."""
    if not isinstance(plain, Mapping):
        return None, (Problem(path, f'{_briefly(plain)} is not a table; write kind = "cron" with expression and timezone'),)
    kind = plain.get("kind")
    if kind is None:
        return None, (Problem(f"{path}.kind", f"is missing; write one of {', '.join(_KEYS)}"),)
    if not isinstance(kind, str) or kind not in _KEYS:
        said = f"{_briefly(kind)} is unknown; {_did_you_mean(str(kind), _KEYS)}"
        return None, (Problem(f"{path}.kind", said, near=tuple(near(kind, _KEYS))),)
    values = {key: value for key, value in plain.items() if value is not None and key != "kind"}
    problems = [_unknown_key(kind, str(key), path) for key in values if key not in _KEYS[kind]]
    trigger = {"cron": _read_cron, "interval": _read_interval, "oneshot": _read_oneshot}[kind](values, path, problems)
    return (None if problems else trigger), tuple(problems)


def trigger_to_plain(trigger: Trigger) -> dict[str, Any]:
    """Given a trigger, return the plain dict that `parse_trigger` reads back."""
    match trigger:
        case CronTrigger(expression, zone):
            return {"kind": "cron", "expression": expression, "timezone": zone}
        case IntervalTrigger(every):
            return {"kind": "interval", "every": format_duration(every)}
        case OneshotTrigger(at):
            return {"kind": "oneshot", "at": format_instant(at)}


def expression_of(trigger: CronTrigger) -> Expression:
    """Given a cron trigger, return its five fields as read. Raise CalendarError where they cannot be."""
    try:
        return _expression(trigger.expression)
    except ExpressionRefused as refused:
        raise CalendarError(str(refused)) from refused


_expression = lru_cache(maxsize=4096)(parse_expression)


def _read_cron(values: Mapping[str, Any], path: str, problems: list[Problem]) -> CronTrigger | None:
    text, zone = values.get("expression"), values.get("timezone", "UTC")
    expression = None
    if not isinstance(text, str):
        said = "is missing" if text is None else f"{_briefly(text)} is not text"
        problems.append(Problem(f"{path}.expression", f"{said}; write five fields, such as '30 2 * * 1-5'"))
    else:
        try:
            expression = _expression(text)
        except ExpressionRefused as refused:
            places = zip(refused.messages, refused.marks, strict=True)
            problems.extend(Problem(f"{path}.expression", said, near=refused.near, mark=mark) for said, mark in places)
    if not is_zone(zone):
        problems.append(Problem(f"{path}.timezone", _zone_refusal(zone), near=tuple(similar_zones(zone))))
        return None
    return CronTrigger(expression.text, zone) if expression else None


def _read_interval(values: Mapping[str, Any], path: str, problems: list[Problem]) -> IntervalTrigger | None:
    text = values.get("every")
    if text is None:
        problems.append(Problem(f"{path}.every", 'is missing; write a duration, such as "10m"'))
        return None
    try:
        every = parse_duration(text)
    except ValueError as error:
        problems.append(Problem(f"{path}.every", str(error), near=getattr(error, "near", ())))
        return None
    if every < _SECOND:
        problems.append(Problem(f"{path}.every", f"{text!r} is shorter than a second; write 1s or more"))
        return None
    return IntervalTrigger(every)


def _read_oneshot(values: Mapping[str, Any], path: str, problems: list[Problem]) -> OneshotTrigger | None:
    at = values.get("at")
    if at is None:
        problems.append(Problem(f"{path}.at", "is missing; write an instant, such as 2026-12-01T09:00:00+01:00"))
        return None
    try:
        return OneshotTrigger(parse_instant(at.isoformat() if isinstance(at, datetime) else at))
    except ValueError as error:
        problems.append(Problem(f"{path}.at", str(error)))
        return None


def _unknown_key(kind: str, key: str, path: str) -> Problem:
    owner = next((other for other, keys in _KEYS.items() if key in keys), None)
    if owner is not None:
        return Problem(f"{path}.{key}", f'belongs to kind = "{owner}", not to "{kind}"; remove it or change the kind')
    known = (*_KEYS[kind], "kind")
    return Problem(f"{path}.{key[:80]}", f"is unknown; {_did_you_mean(key, known)}", near=tuple(near(key, known)), is_key=True)


def _did_you_mean(word: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = near(word, known, 1)
    return f"did you mean {close[0]}?" if close else f"write one of {', '.join(known)}"


def _briefly(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Zones ------------------------------------------------------------------------------------------------------------------------


def valid_zones() -> frozenset[str]:
    """Return the names of all zones of contract 4.3. It reads a directory tree: for suggestions and listings."""
    return frozenset(zoneinfo.available_timezones() - _NOT_ZONES)


def is_zone(name: object) -> bool:
    """Given anything, return whether it is the exact name of a zone of contract 4.3."""
    if not isinstance(name, str):
        return False
    if name in _found_zones:
        return True
    if not _is_zone(name):
        return False
    _found_zones.add(name)  # looking costs more than the rest of a definition; what is not there may come any time
    return True


_found_zones: set[str] = set()


def _is_zone(name: str) -> bool:
    if len(name) > 100 or not _ZONE_NAME.fullmatch(name):
        return False
    if name in _NOT_ZONES or name.split("/")[0] in ("posix", "right"):
        return False
    if _load(name) is None:
        return False
    # A file system that ignores case finds 'utc' too; only there is the list of names worth reading.
    return _load(name.swapcase()) is None or name in valid_zones()


def _load(name: str) -> zoneinfo.ZoneInfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):  # python 3.11: a directory is IsADirectoryError
        return None


def _zone_refusal(name: object) -> str:
    if not isinstance(name, str):
        return f"{_briefly(name)} is not text; write the name of a zone, such as Europe/Budapest"
    if name in _NOT_ZONES:
        return f"'{name}' depends on the machine; write the name of a place, such as Europe/Budapest, or UTC"
    if re.fullmatch(r"(?:UTC|GMT)?[+-]\d{1,2}(?::?\d\d)?", name):
        return (
            f"'{name}' is an offset; write the name of a place, such as Europe/Budapest, which knows its clock changes, or UTC"
        )
    close = similar_zones(name)
    advice = f"did you mean {' or '.join(close)}?" if close else "write a name such as Europe/Budapest, or UTC"
    return f"{_briefly(name)} is unknown to this machine's tz database; {advice}"


def similar_zones(name: object) -> list[str]:
    """Given what is no zone, return the names of zones that were perhaps meant, the nearest first."""
    if not isinstance(name, str):
        return []
    zones = sorted(valid_zones())
    plain = name.strip().lower().replace(" ", "_")[:100]
    same = [zone for zone in zones if zone.lower() == plain]
    places = [zone for zone in zones if zone.lower().rpartition("/")[2] == plain]
    return same or places[:3] or near(name, zones, 2)


@lru_cache(maxsize=1024)
def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """Given the name of a zone, return it. Raise CalendarError where it is gone."""
    zone = _load(name) if is_zone(name) else None
    if zone is None:
        raise CalendarError(f"the zone {_briefly(name)} is not in this machine's tz database; install it, or change `timezone`")
    return zone


@lru_cache(maxsize=1024)
def source_of(name: str) -> str:
    """Given the name of a zone, return where zoneinfo reads it from: a folder of the system, or the package tzdata."""
    from pathlib import Path

    return next((folder for folder in zoneinfo.TZPATH if (Path(folder) / name).is_file()), "the package tzdata")


def changes_of(zone: tzinfo, first: datetime, last: datetime) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """Given a zone, yield its changes of UTC offset in (first, last): the instant, the offset before it, and from it on."""
    for year in range(first.year, last.year + 1):
        for change in _changes_of_year(zone, year):
            if first < change[0] < last:
                yield change


@lru_cache(maxsize=4096)
def _changes_of_year(zone: tzinfo, year: int) -> tuple[tuple[datetime, timedelta, timedelta], ...]:
    if year >= datetime.max.year - 1:
        return ()
    day = datetime(year, 1, 1, tzinfo=UTC)
    days = [day + timedelta(days=number) for number in range((datetime(year + 1, 1, 1, tzinfo=UTC) - day).days + 1)]
    return tuple(_change_between(zone, *pair) for pair in pairwise(days) if _offset(zone, pair[0]) != _offset(zone, pair[1]))


@lru_cache(maxsize=4096)
def _setbacks_of_year(zone: tzinfo, year: int) -> tuple[tuple[datetime, timedelta, timedelta], ...]:
    """Return the changes by which hours are repeated: few zones have more than one a year, many none."""
    return tuple(each for each in _changes_of_year(zone, year) if each[2] < each[1])


def _change_between(zone: tzinfo, low: datetime, high: datetime) -> tuple[datetime, timedelta, timedelta]:
    before, after = _offset(zone, low), _offset(zone, high)
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high, before, after


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


# croniter ---------------------------------------------------------------------------------------------------------------------


class _Asker:
    """One croniter object, asked from anywhere. It keeps state, so one thread at a time."""

    __slots__ = ("_iterator", "_lock", "_zone", "text")

    def __init__(self, expression: Expression, zone: tzinfo) -> None:
        self._iterator = _make_croniter(expression, zone)
        self._lock = threading.Lock()
        self._zone = zone
        self.text = expression.text

    def next(self, instant: datetime) -> datetime:
        """The first answer later than the instant. Raise CalendarError where croniter has none or fails."""
        found = self._ask("get_next", instant)
        if found <= instant:
            raise CalendarError(f"croniter answered {found} as the next instant of '{self.text}' after {instant}")
        return found

    def previous(self, instant: datetime) -> datetime | None:
        """An answer before the instant, or None where croniter has none, fails, or does not go back."""
        try:
            found = self._ask("get_prev", instant)
        except CalendarError:
            return None
        return found if found < instant else None

    def _ask(self, method: str, instant: datetime) -> datetime:
        try:
            # croniter keeps the start as a float: whole seconds stay exact, and no instant lies between two of them.
            start = instant.replace(microsecond=0).astimezone(self._zone)
            with self._lock:
                found: datetime = getattr(self._iterator, method)(datetime, start_time=start)
            return found.astimezone(UTC)
        except Exception as error:  # contract 4.2: any exception of it
            raise CalendarError(f"croniter found no instant of '{self.text}': {error}") from error


def _make_croniter(expression: Expression, zone: tzinfo) -> croniter:
    from croniter import croniter

    start = datetime(2000, 1, 1, tzinfo=UTC).astimezone(zone)
    try:
        made = croniter(expression.spelled, start, ret_type=datetime, max_years_between_matches=YEARS_SEARCHED)
        read = made.expanded
    except Exception as error:  # contract 4.2: any exception of it
        raise CalendarError(f"croniter does not take '{expression.text}': {error}") from error
    if read != _expected_reading(expression):
        raise CalendarError(f"croniter reads '{expression.text}' differently: {read}")
    return made


def _expected_reading(expression: Expression) -> list[list[Any]]:
    """What croniter 7.0.0 holds of the spelled-out fields: a full list is `*`, unless both day fields are restricted."""
    days = (expression.day, expression.weekday)
    return [
        ["*"] if field.is_star or (field.is_every and not (field in days and expression.has_both_days)) else list(field.values)
        for field in expression.fields
    ]


@lru_cache(maxsize=4096)
def _asker(text: str, zone: tzinfo) -> _Asker:
    return _Asker(_expression(text), zone)


@lru_cache(maxsize=256)
def _asker_at_offset(text: str, offset: timedelta) -> _Asker:
    return _Asker(_expression(text), timezone(offset))


def named_at_offset(trigger: CronTrigger | str, offset: timedelta, first: datetime, last: datetime) -> Iterator[datetime]:
    """Given a cron trigger or its expression, yield the times in [first, last) that it names on a clock of that one offset."""
    asker = _asker_at_offset(trigger if isinstance(trigger, str) else trigger.expression, offset)
    found = asker.next(first - _SECOND)
    while found < last:
        yield found
        found = asker.next(found)


@lru_cache(maxsize=8192)
def _next_of_cron(expression: str, zone: tzinfo, instant: datetime) -> datetime:
    """The first instant later than the given one, whatever was asked before."""
    found = _asker(expression, zone).next(instant)
    for year in range(instant.year, found.year + 1):
        for change, before, after in _setbacks_of_year(zone, year):
            if instant < change < found:
                again = next(named_at_offset(expression, after, change, change + (before - after)), None)
                if again is not None:
                    return min(found, again)
    return found


@lru_cache(maxsize=8192)
def _earlier_of_cron(expression: str, zone: tzinfo, instant: datetime) -> datetime | None:
    """A time before the instant to start from, or None: it need not be an instant of the calendar."""
    return _asker(expression, zone).previous(instant)


def clear_caches() -> None:
    """Forget what was learnt of zones, so that a tz database that changed is read again."""
    global generation
    generation += 1
    zoneinfo.ZoneInfo.clear_cache()
    _found_zones.clear()
    for cached in (zone_of, source_of, _changes_of_year, _setbacks_of_year, _asker, _next_of_cron, _earlier_of_cron,
                   _cron_calendar, stamps):  # fmt: skip
        cached.cache_clear()


# Calendars --------------------------------------------------------------------------------------------------------------------


class Calendar(Protocol):
    """The instants of a trigger. All times are aware UTC; a naive one is a ValueError."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later, or None when there is none. Raise CalendarError as contract 4.2 says."""

    def due(self, after: datetime, until: datetime, *, limit: int = NEWEST) -> DueInstants:
        """Return the instants in (after, until]: the newest `limit` ascending, the older ones as a span, never enumerated."""

    def count(self, first: datetime, last: datetime, *, limit: int = 1000) -> int:
        """Return how many instants lie in [first, last], at most `limit` of them counted (contract 5.2)."""


def calendar_of(trigger: Trigger, anchor: datetime | None = None) -> Calendar:
    """Given a trigger and, for an interval, its anchor, return its calendar. Raise CalendarError where it has none any more."""
    if isinstance(trigger, CronTrigger):
        return _cron_calendar(trigger.expression, trigger.timezone)
    if isinstance(trigger, OneshotTrigger):
        return OneshotCalendar(trigger.at)
    if anchor is None:
        raise ValueError("an interval needs its anchor")
    return IntervalCalendar(trigger.every, aware_utc(anchor).replace(microsecond=0))


@lru_cache(maxsize=16384)
def _cron_calendar(expression: str, zone: str) -> CronCalendar:
    """All schedules of the same expression and zone share one calendar, and what it learnt last."""
    return CronCalendar(CronTrigger(expression, zone))


class CronCalendar:
    """Contract 4.2: forward steps are the truth, backward ones only find a start.

    Given `zone`, the trigger is read by that one instead of the zone of this machine that it names.
    """

    __slots__ = ("_known", "trigger", "zone")

    def __init__(self, trigger: CronTrigger, zone: tzinfo | None = None) -> None:
        expression_of(trigger)
        self.trigger = trigger
        self.zone: tzinfo = zone or zone_of(trigger.timezone)
        self._known: tuple[datetime, ...] = ()  #: up to three, each of them the answer to the one before it

    def next_after(self, instant: datetime) -> datetime:
        known = self._known  # from one round to the next the same steps are asked for
        if known and known[0] == instant:
            return known[1]
        if len(known) == 3 and known[1] == instant:
            return known[2]
        instant = aware_utc(instant)
        found = _next_of_cron(self.trigger.expression, self.zone, instant)
        is_next = known and known[-1] == instant
        self._known = (*known[-2:], found) if is_next else (instant, found)  # replaced as a whole: threads share it
        return found

    def due(self, after: datetime, until: datetime, *, limit: int = NEWEST) -> DueInstants:
        after, until = aware_utc(after), aware_utc(until)
        first = self.next_after(after) if after < until else None
        if first is None or first > until:
            return _NOTHING_DUE
        if self.next_after(first) > until:  # as nearly always
            return DueInstants.of_all({"instants": (first,), "older": None})
        few = self._forward(after, until, min(_FEW, limit) + 1)
        if len(few) <= min(_FEW, limit):
            return DueInstants(tuple(few))
        newest = self._newest(after, until, limit + 1)
        if len(newest) <= limit:
            return DueInstants(tuple(newest))
        return DueInstants(tuple(newest[1:]), Span(few[0], newest[0], None))

    def count(self, first: datetime, last: datetime, *, limit: int = 1000) -> int:
        return len(self._forward(aware_utc(first) - _MICROSECOND, aware_utc(last), limit))

    def _forward(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The oldest `limit` instants of (after, until]."""
        found: list[datetime] = []
        while after < until and len(found) < limit:
            after = self.next_after(after)
            if after <= until:
                found.append(after)
        return found

    def _newest(self, after: datetime, until: datetime, wanted: int) -> list[datetime]:
        """The newest instants of (after, until], at most `wanted`; enough steps back, then forward from there."""
        steps = wanted + 1
        while True:
            start = self._start(after, until, steps)
            newest: deque[datetime] = deque(maxlen=wanted)
            found = start
            while (found := self.next_after(found)) <= until:
                newest.append(found)
            if len(newest) == wanted or start <= after:
                return list(newest)
            steps *= 2

    def _start(self, after: datetime, until: datetime, steps: int) -> datetime:
        """A time some steps before the end of (after, until], not before its floor."""
        start = until
        for _ in range(steps):
            # Where croniter knows no step back, twice as far back is as good a start.
            found = _earlier_of_cron(self.trigger.expression, self.zone, start)
            earlier = found or start - max(until - start, timedelta(hours=1))
            if earlier <= after:
                return after
            start = earlier
        return start


@dataclass(frozen=True, slots=True)
class IntervalCalendar:
    """Contract 4.4: `anchor + k * every`, k >= 1."""

    every: timedelta
    anchor: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        return self._at(self._index(instant) + 1)

    def due(self, after: datetime, until: datetime, *, limit: int = NEWEST) -> DueInstants:
        first, last = self._index(after) + 1, self._index(until)
        if last < first:
            return _NOTHING_DUE
        newest = max(first, last - limit + 1)
        older = Span(self._grid(first), self._grid(newest - 1), newest - first) if newest > first else None
        return DueInstants(instants=tuple(self._grid(k) for k in range(newest, last + 1)), older=older)

    def count(self, first: datetime, last: datetime, *, limit: int = 1000) -> int:
        return min(limit, max(0, self._index(last) - self._index(first - _MICROSECOND)))

    def _index(self, instant: datetime) -> int:
        """The k of the newest instant that is not later, 0 before the first."""
        return max(0, (aware_utc(instant) - self.anchor) // self.every)

    def _grid(self, k: int) -> datetime:
        return self.anchor + k * self.every

    def _at(self, k: int) -> datetime | None:
        try:
            return self._grid(k)
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class OneshotCalendar:
    """Contract 4.5: one instant."""

    at: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        return self.at if self.at > aware_utc(instant) else None

    def due(self, after: datetime, until: datetime, *, limit: int = NEWEST) -> DueInstants:
        is_due = aware_utc(after) < self.at <= aware_utc(until)
        return DueInstants(instants=(self.at,), older=None) if is_due else _NOTHING_DUE

    def count(self, first: datetime, last: datetime, *, limit: int = 1000) -> int:
        return int(aware_utc(first) <= self.at <= aware_utc(last))


def aware_utc(instant: datetime) -> datetime:
    """Given an aware datetime, return it in UTC. Raise ValueError for a naive one."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime is no instant")
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)


# Questions --------------------------------------------------------------------------------------------------------------------


def check_fires(trigger: Trigger, after: datetime, *, path: str = "trigger") -> None:
    """Given a trigger about to be created, see that it fires: for cron within eight years, for a one-shot later than `after`.

    Raise InvalidDefinition otherwise. Source: contract 3.5 and 4.2.
    """
    if isinstance(trigger, OneshotTrigger) and trigger.at <= aware_utc(after):
        message = f"{format_instant(trigger.at)} is not later than now, {format_instant(after)}; write an instant to come"
        raise InvalidDefinition.of("the trigger is not valid", [Problem(f"{path}.at", message)])
    if isinstance(trigger, CronTrigger):
        version = stamps()[0]
        if version.split(".")[0] != "7":
            message = f"croniter {version} is installed and its calendar is not the one of 7.x; install croniter>=7,<8"
            raise InvalidDefinition.of("the trigger cannot be read", [Problem(f"{path}.expression", message)])
        try:
            calendar_of(trigger).next_after(after)
        except CalendarError as error:
            raise _refusal(trigger, error, path) from error


def _refusal(trigger: CronTrigger, error: CalendarError, path: str = "trigger") -> InvalidDefinition:
    message = str(error)
    if type(error.__cause__).__name__ == "CroniterBadDateError":
        when = f"never fires: it names no time within {YEARS_SEARCHED} years"
        message = f"'{trigger.expression}' {when}; write a day that its months have"
    return InvalidDefinition.of("the trigger is not valid", [Problem(f"{path}.expression", message)])


def next_instants(trigger: Mapping[str, Any] | Trigger, after: datetime, count: int) -> tuple[datetime, ...]:
    """Given a trigger, as a plain dict or a value, return its first `count` instants later than `after`.

    Units: aware UTC datetimes, ascending; for an interval `after` is the anchor. Fewer only where the trigger has no more.
    Raise InvalidDefinition for a trigger that is wrong or never fires, InvalidArgument for a naive `after` or a count below 1.
    Source: contract 9.4, 4.2, 4.4 and 4.5.
    """
    if not isinstance(after, datetime) or after.tzinfo is None:
        raise InvalidArgument(f"`after` must be a datetime with an offset, not {_briefly(after)}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidArgument(f"`count` must be a whole number of 1 or more, not {_briefly(count)}")
    value = trigger if isinstance(trigger, CronTrigger | IntervalTrigger | OneshotTrigger) else parse_trigger(trigger)
    try:
        return tuple(islice(instants_after(calendar_of(value, after), aware_utc(after)), count))
    except CalendarError as error:
        assert isinstance(value, CronTrigger)
        raise _refusal(value, error) from error


def instants_after(calendar: Calendar, instant: datetime | None) -> Iterator[datetime]:
    """Given a calendar, yield its instants strictly later than the given one, ascending, without end for most."""
    while instant is not None and (instant := calendar.next_after(instant)) is not None:
        yield instant


def is_instant(calendar: Calendar, instant: datetime) -> bool:
    """Tell whether a calendar names an instant. Raise CalendarError."""
    return calendar.next_after(instant - _MICROSECOND) == instant


def resolve_max_run(max_run: MaxRun, trigger: Trigger, anchor: datetime | None, after: datetime) -> timedelta | None:
    """Given the `max_run` of a definition, return how long an attempt may execute, None for unlimited.

    Source: contract 6.8: `auto` is five times the smallest gap between successive instants with the same UTC offset among the
    next 100 within 366 days, within 5 minutes and 7 days; a one-shot has none.
    """
    if max_run == "none":
        return None
    if isinstance(max_run, timedelta):
        return max_run
    shortest = shortest_gap(trigger, aware_utc(after))
    if shortest is None:
        return None if isinstance(trigger, OneshotTrigger) else timedelta(days=7)
    return min(max(5 * shortest, timedelta(minutes=5)), timedelta(days=7))


def shortest_gap(trigger: Trigger, after: datetime) -> timedelta | None:
    """Given a trigger, return the smallest gap between successive instants with the same UTC offset (contract 6.8).

    Shape: of a cron trigger, among the next 100 within 366 days after `after`; None where there are no two.
    """
    if isinstance(trigger, IntervalTrigger):
        return trigger.every
    if isinstance(trigger, OneshotTrigger):
        return None
    calendar = CronCalendar(trigger)
    instants = calendar._forward(after, after + timedelta(days=366), 100)
    offsets = [_offset(calendar.zone, instant) for instant in instants]
    gaps = [
        later - earlier
        for (earlier, later), (offset, following) in zip(pairwise(instants), pairwise(offsets), strict=True)
        if offset == following
    ]
    return min(gaps, default=None)


@lru_cache(maxsize=1)
def stamps() -> tuple[str, str]:
    """Return the versions of croniter and of the tz database, which each revision keeps (contract 3.2)."""
    from importlib.metadata import version

    return version("croniter"), _tz_version()


def _tz_version() -> str:
    """The version of the database that zoneinfo reads: the system's, else that of the package tzdata."""
    from importlib import import_module
    from pathlib import Path

    for folder in zoneinfo.TZPATH:
        try:
            with (Path(folder) / "tzdata.zi").open(encoding="utf-8") as lines:
                match = re.match(r"# version (\w+)", lines.readline(200))
        except (OSError, ValueError):
            continue
        if match:
            return match[1]
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return "unknown"
