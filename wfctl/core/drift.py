"""Whether croniter and the tz database still name the instants that they named when a revision was saved (contract 3.2, 4.2).

The older versions are not here any more to be asked. So a revision keeps what they said: the UTC offsets of its zone for the
years ahead, which are all that an expression needs of a tz database, and samples of its instants. What the tz database has
changed is then exact: today's croniter reads the expression by the offsets kept and by those of today, and the first instant
that differs is found. What croniter has changed shows in the samples, read by the offsets kept.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import CronTrigger, Trigger
from wfctl.core.trigger import CalendarError, CronCalendar, changes_of, expression_of, instants_after, source_of

YEAR = timedelta(days=366)
KEPT = 5 * YEAR  #: how far ahead offsets are kept
SAMPLED = 40  #: instants kept from the beginning on
SAMPLED_AT_CHANGE = 3  #: instants kept from each change of the clock of the first year on
COMPARED = 2_000  #: instants that are looked at in one stretch
_A_DAY = timedelta(days=1)
_JUST_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """All instants in (after, until]."""

    after: datetime
    until: datetime
    instants: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a revision keeps of the calendar it was saved by."""

    source: str  #: where the tz database was read from
    until: datetime  #: how far the offsets reach
    offsets: tuple[tuple[datetime, timedelta], ...]  #: from when on, in whole seconds; the first is where they begin
    samples: tuple[Sample, ...]


class RecordedZone(tzinfo):
    """A zone by its UTC offsets alone, as they were once recorded."""

    def __init__(self, offsets: Sequence[tuple[datetime, timedelta]]) -> None:
        self._offsets = tuple(offset for _, offset in offsets)
        starts = [start.replace(tzinfo=None) for start, _ in offsets[1:]]
        pairs = list(pairwise(self._offsets))
        self._starts = starts  #: of every offset but the first, in UTC
        self._hash = hash((self._offsets, tuple(starts)))
        self._local = (  # on the clock: where the later offset holds for the first, and for the second of two passes
            [start + max(pair) for start, pair in zip(starts, pairs, strict=True)],
            [start + min(pair) for start, pair in zip(starts, pairs, strict=True)],
        )

    def utcoffset(self, when: datetime | None) -> timedelta:
        if when is None:
            return self._offsets[0]
        return self._offsets[bisect_right(self._local[when.fold], when.replace(tzinfo=None, fold=0))]

    def fromutc(self, when: datetime) -> datetime:
        plain = when.replace(tzinfo=None)
        index = bisect_right(self._starts, plain)
        offset = self._offsets[index]
        again = index > 0 and plain - self._starts[index - 1] < self._offsets[index - 1] - offset
        return (plain + offset).replace(tzinfo=self, fold=int(again))

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "recorded"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedZone) and (self._offsets, self._starts) == (other._offsets, other._starts)

    def __hash__(self) -> int:  # asked for at each step of a calendar
        return self._hash


# Recording --------------------------------------------------------------------------------------------------------------


def record(trigger: Trigger, after: datetime) -> Recorded | None:
    """Given a trigger that is saved now, return what is to be kept of its calendar.

    Return None where there is nothing to keep: intervals and one-shots ask neither croniter nor the tz database.
    """
    if not isinstance(trigger, CronTrigger):
        return None
    after = after.replace(microsecond=0)
    try:
        calendar = CronCalendar(trigger)
        samples = tuple(_samples(calendar, after))
    except CalendarError:
        return None  # the schedule is blocked, and says why
    return Recorded(source_of(trigger.timezone), after + KEPT, tuple(_offsets(calendar.zone, after, after + KEPT)), samples)


def _samples(calendar: CronCalendar, after: datetime) -> Iterator[Sample]:
    end = after + YEAR
    first = _sample(calendar, after, end, SAMPLED)
    yield first
    for change, _, _ in changes_of(calendar.zone, first.until, end):
        yield _sample(calendar, change - timedelta(hours=3), end, SAMPLED_AT_CHANGE)


def _sample(calendar: CronCalendar, after: datetime, end: datetime, count: int) -> Sample:
    found = _next(calendar, after, end, count)
    return Sample(after, found[-1] if len(found) == count else end, found)


def _next(calendar: CronCalendar, after: datetime, end: datetime, count: int) -> tuple[datetime, ...]:
    """The first `count` instants of (after, end]."""
    found: list[datetime] = []
    for instant in instants_after(calendar, after):
        if instant > end:
            break
        found.append(instant)
        if len(found) == count:
            break
    return tuple(found)


def _offsets(zone: tzinfo, first: datetime, last: datetime) -> Iterator[tuple[datetime, timedelta]]:
    yield first, _offset_at(zone, first)
    for change, _, following in changes_of(zone, first, last):
        yield change, following


def _offset_at(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def recorded_text(trigger: Trigger, after: datetime) -> str | None:
    """Given a trigger that is saved now, return what is to be kept of its calendar as text; None where nothing is."""
    found = record(trigger, after)
    return None if found is None else to_text(found)


# Text -------------------------------------------------------------------------------------------------------------------


def to_text(recorded: Recorded) -> str:
    """Return what is kept as compact JSON: seconds since the epoch, each but the first counted from the one before it."""
    return json.dumps(
        {
            "source": recorded.source,
            "until": _seconds(recorded.until),
            "offsets": [[_seconds(start), round(offset.total_seconds())] for start, offset in recorded.offsets],
            "samples": [[_seconds(each.after), _seconds(each.until), *_steps(each)] for each in recorded.samples],
        },
        separators=(",", ":"),
    )


def _steps(sample: Sample) -> Iterator[int]:
    before = sample.after
    for instant in sample.instants:
        yield _seconds(instant) - _seconds(before)
        before = instant


def from_text(text: str) -> Recorded:
    """Return what `to_text` wrote. Raise ValueError for anything else."""
    try:
        plain = json.loads(text)
        offsets = tuple((_instant(start), timedelta(seconds=int(offset))) for start, offset in plain["offsets"])
        samples = tuple(_sample_of(*values) for values in plain["samples"])
        found = Recorded(str(plain["source"]), _instant(plain["until"]), offsets, samples)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise ValueError(f"what was recorded of the calendar cannot be read: {error}") from error
    starts = [start for start, _ in offsets]
    if not starts or starts != sorted(set(starts)) or any(abs(offset) >= _A_DAY for _, offset in offsets):
        raise ValueError("what was recorded of the calendar cannot be read: its offsets are none")
    return found


def _sample_of(after: Any, until: Any, *steps: Any) -> Sample:
    instants: list[datetime] = []
    at = int(after)
    for step in steps:
        at += int(step)
        instants.append(_instant(at))
    return Sample(_instant(after), _instant(until), tuple(instants))


def _seconds(instant: datetime) -> int:
    return to_micros(instant) // 1_000_000


def _instant(seconds: Any) -> datetime:
    return from_micros(int(seconds) * 1_000_000)


# Comparing --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """Where two calendars differ first: the instant of each from there on, None where one has none before the other goes on."""

    then: datetime | None
    now: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which the zone's clock stands differently than recorded."""

    since: datetime
    until: datetime
    then: timedelta
    now: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How today's calendar of a trigger differs from the one recorded."""

    since: datetime  #: the time that was compared
    until: datetime
    sampled: int  #: instants that croniter was asked for again
    croniter: Moved | None  #: the first of them that it names differently
    stretches: tuple[Stretch, ...]  #: where the offsets differ, ascending
    zone: Moved | None  #: the first instant that the tz database moves
    gone: int  #: instants recorded that are none any more
    new: int  #: instants that were none
    is_complete: bool  #: whether all that may differ was looked at


def drift_of(trigger: CronTrigger, recorded: Recorded, now: datetime) -> Drift:
    """Given a trigger and what was recorded of its calendar, return how today's differs in the year that begins now.

    Shape: the year ends where the record does; the samples are those recorded, whenever they were. In each stretch at most
    `COMPARED` instants are looked at, and `is_complete` says whether that was all.
    Raise CalendarError where today's gives no answer.
    """
    then, today = CronCalendar(trigger, RecordedZone(recorded.offsets)), CronCalendar(trigger)
    since = max(now.replace(microsecond=0), recorded.offsets[0][0])
    until = min(since + YEAR, recorded.until)
    stretches = tuple(_stretches(then.zone, today.zone, since, until))
    count = _Count()
    for stretch in stretches:
        if not _is_even(trigger, stretch):
            count.compare(then, today, max(since, stretch.since - _A_DAY), min(until, stretch.until + _A_DAY))
    return Drift(
        since=since,
        until=max(since, until),
        sampled=sum(len(sample.instants) for sample in recorded.samples),
        croniter=next((moved for sample in recorded.samples if (moved := _resampled(then, sample)) is not None), None),
        stretches=stretches,
        zone=count.first,
        gone=count.gone,
        new=count.new,
        is_complete=count.is_complete,
    )


def _stretches(then: tzinfo, today: tzinfo, since: datetime, until: datetime) -> Iterator[Stretch]:
    edges = {since, until}
    for zone in (then, today):
        edges.update(change for change, _, _ in changes_of(zone, since, until))
    found: Stretch | None = None
    ordered = sorted(edge for edge in edges if since <= edge <= until)
    for start, end in pairwise(ordered):
        was, stands = _offset_at(then, start), _offset_at(today, start)
        if found is not None and (found.until, found.then, found.now) == (start, was, stands):
            found = Stretch(since=found.since, until=end, then=was, now=stands)
            continue
        if found is not None:
            yield found
        found = Stretch(since=start, until=end, then=was, now=stands) if was != stands else None
    if found is not None:
        yield found


def _is_even(trigger: CronTrigger, stretch: Stretch) -> bool:
    """Tell whether a shift by whole hours moves nothing, because every hour of every day is alike."""
    fields = expression_of(trigger).fields[1:]
    return all(field.is_every for field in fields) and (stretch.now - stretch.then) % timedelta(hours=1) == timedelta(0)


def _resampled(calendar: CronCalendar, sample: Sample) -> Moved | None:
    found = _next(calendar, sample.after, sample.until, len(sample.instants) + 1)
    if found == sample.instants:
        return None
    differing = sorted(set(found) ^ set(sample.instants))
    return _moved_at(sample.instants, found, differing[0]) if differing else None


def _moved_at(then: Sequence[datetime], now: Sequence[datetime], first: datetime) -> Moved:
    return Moved(
        next((each for each in then if each >= first), None),
        next((each for each in now if each >= first), None),
    )


class _Count:
    """What differs between two calendars, counted over stretches of time."""

    def __init__(self) -> None:
        self.first: Moved | None = None
        self.gone = self.new = 0
        self.is_complete = True
        self._until = datetime.min.replace(tzinfo=UTC)  #: up to where all has been compared

    def compare(self, then: CronCalendar, today: CronCalendar, since: datetime, until: datetime) -> None:
        """Compare the instants of [since, until], those that were compared before aside."""
        start = max(since - _JUST_BEFORE, self._until)
        self._until = max(self._until, until)
        old, new = then.next_after(start), today.next_after(start)
        for _ in range(COMPARED):
            if old > until and new > until:
                return
            if old == new:
                old, new = then.next_after(old), today.next_after(new)
                continue
            if self.first is None:
                self.first = Moved(old if old <= until else None, new if new <= until else None)
            if old < new:
                self.gone += 1
                old = then.next_after(old)
            else:
                self.new += 1
                new = today.next_after(new)
        self.is_complete = False
