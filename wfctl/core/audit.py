"""Recounting a schedule's timeline: each instant is accounted for exactly once (contract 5.15).

The timeline is given in pieces, each in order of instant: rows, span rows, pause spans, the revisions whose triggers name the
instants, and the clock events that took parts back. It is walked once, and what is walked past is forgotten, so that years of
history take no more memory than a day. Spans and pauses are jumped over, and what they cover is counted up to a bound.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from wfctl.core.changes import Cause, anchor_before
from wfctl.core.instants import format_instant
from wfctl.core.model import RUN_STATUSES, CronTrigger, Json, Status, Trigger
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, is_instant

COUNTED = 50_000  #: instants that spans, pauses and holes of one audit are counted up to, all together
LISTED = 100  #: problems that are listed; more are only counted
PAUSED = "paused"  #: the word in the counts for what a pause consumed
_TICK = timedelta(microseconds=1)
_CAUSES = frozenset(cause.value for cause in Cause)
_REASONS: Mapping[Status, frozenset[str]] = {
    Status.COALESCED: frozenset({"newer"}) | _CAUSES,
    Status.SKIPPED_OVERLAP: frozenset({"overlap"}),
    Status.SKIPPED_MISFIRE: frozenset({"missed", "capacity", "outlived"}) | _CAUSES,
    Status.PREFLIGHT_REJECTED: frozenset({"preflight", "preflight-timeout"}),
}
_OF_SPANS = frozenset({Status.COALESCED, Status.SKIPPED_MISFIRE})


# What is given ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A saved state of the schedule: its trigger, and whether the instants it was decided by are those of today's calendar."""

    revision: int
    recorded_at: datetime
    trigger: Trigger
    begins: datetime | None = None  #: where the calendar of a changed trigger begins; None: when it was recorded
    stamps: str | None = None  #: the croniter and tz database it was saved by, where they are not today's


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEvent:
    """The schedule began anew at `recorded_at`, because the clock went back from behind `floor` (contract 5.14)."""

    recorded_at: datetime
    floor: datetime
    revision: int | None = None  #: the one that was current; None: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A recorded occurrence, a span of them, or the held candidate."""

    instant: datetime  #: of a span, its last
    status: Status | None  #: None: a status that no version knows
    revision: int
    reason: Mapping[str, Json] | None = None
    first: datetime | None = None  #: of a span, its first
    count: int | None = None
    run: str | None = None
    run_status: Status | None = None  #: what the run's own record says; None: there is none
    is_restored: bool = False  #: entered for a run directory that an older ledger did not know (2.8)


@dataclass(frozen=True, slots=True)
class Pause:
    """A paused span, up to what is consumed: what lies in (start, end] was consumed by it."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The pieces of one schedule's timeline."""

    revisions: Sequence[Revision]  #: ascending, from the first
    events: Sequence[ClockEvent]  #: in the order in which they happened
    until: datetime  #: consumed up to here, included
    after: datetime | None = None  #: what lies up to here is not looked at
    rows: Iterable[Row] = ()  #: by instant
    spans: Iterable[Row] = ()  #: by instant
    pauses: Iterable[Pause] = ()  #: by start
    candidate: Row | None = None


# What comes out ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit."""

    code: str  #: missing, unexpected, overlap, revision, status, run, count, span or pause
    instant: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A part of the timeline of which only the joins of what is recorded were checked, and why."""

    since: datetime
    until: datetime
    reason: str


@dataclass(slots=True)
class Balance:
    """What the audit found. Counts are None where there are more than are counted, or nobody can tell."""

    since: datetime | None = None
    until: datetime | None = None
    instants: int | None = 0  #: how many the calendar names; where it cannot be asked, how many are recorded
    counts: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys([*(each.value for each in Status), PAUSED], 0))
    kept: int = 0  #: admitted before the clock stepped back, or found again, at times that the calendar does not name
    unchecked: list[Unchecked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    problems_left_out: int = 0

    def add(self, code: str, instant: datetime, message: str) -> None:
        """Note a problem."""
        if len(self.problems) < LISTED:
            self.problems.append(Problem(code, instant, message))
        else:
            self.problems_left_out += 1

    def count(self, word: str, number: int | None) -> None:
        """Count instants, and what became of them."""
        found = self.counts[word]
        self.counts[word] = None if found is None or number is None else found + number
        self.name(number)

    def name(self, number: int | None) -> None:
        """Count instants of which nothing is recorded."""
        self.instants = None if self.instants is None or number is None else self.instants + number


def audit(timeline: Timeline, *, most: int = COUNTED) -> Balance:
    """Walk a timeline and return the balance.

    `most`: how many instants of spans, pauses and holes are counted. Source: contract 5.15.
    """
    return _Walk(timeline, most).balance


# The calendar that held -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """From `begins` on, excluded, the instants are those of one trigger."""

    begins: datetime
    period: int  #: the revision that brought the trigger
    trigger: Trigger
    anchor: datetime
    stamps: str | None

    def calendar(self) -> tuple[Calendar | None, str | None]:
        """Return the calendar, or None and why it cannot be asked."""
        if self.stamps is not None and isinstance(self.trigger, CronTrigger):
            return None, self.stamps
        try:
            calendar = calendar_of(self.trigger, self.anchor)
            calendar.next_after(self.begins)
        except CalendarError as error:
            return None, str(error)
        return calendar, None


def segments(revisions: Sequence[Revision], events: Sequence[ClockEvent]) -> list[Segment]:
    """Play revisions and clock events in the order in which they happened; return what held in the end, by time.

    A clock event takes away what was recorded for later times, and goes on with the trigger that was current.
    """
    found: list[Segment] = []
    coming = list(revisions)
    for event in events:
        while coming and _was_before(coming[0], event):
            _take_in(found, coming.pop(0))
        if not found:
            continue
        current = found[-1]
        while found and found[-1].begins >= event.recorded_at:
            found.pop()
        anchor = anchor_before(current.trigger, current.anchor, event.recorded_at) or current.anchor
        found.append(replace(current, begins=event.recorded_at, anchor=anchor))
    for revision in coming:
        _take_in(found, revision)
    return found


def _was_before(revision: Revision, event: ClockEvent) -> bool:
    if event.revision is not None:
        return revision.revision <= event.revision
    return revision.recorded_at <= event.floor


def _take_in(found: list[Segment], revision: Revision) -> None:
    last = found[-1] if found else None
    begins = revision.begins or revision.recorded_at
    if last is not None:
        begins = max(begins, last.begins)
    if last is None or last.trigger != revision.trigger:
        anchor = revision.recorded_at.replace(microsecond=0)
        found.append(Segment(begins, revision.revision, revision.trigger, anchor, revision.stamps))
    elif last.stamps != revision.stamps:
        found.append(replace(last, begins=begins, stamps=revision.stamps))


# The walk ---------------------------------------------------------------------------------------------------------------

Item = TypeVar("Item")


class _Stream(Generic[Item]):
    """An iterator that shows what comes next."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self.head: Item | None = next(self._items, None)

    def take(self) -> Item:
        """Return what comes next, and go on."""
        found = self.head
        assert found is not None
        self.head = next(self._items, None)
        return found


@dataclass(slots=True)
class _Cover:
    """What accounts for all instants in (low, high]: a pause, or a span row."""

    low: datetime
    high: datetime
    row: Row | None  #: None: a pause
    named: int | None = 0  #: how many instants of it were counted so far
    at: datetime | None = None  #: how far it was walked
    is_whole: bool = True  #: all of it lies in what is audited

    @property
    def words(self) -> str:
        if self.row is None:
            return f"the pause from {format_instant(self.low)} to {format_instant(self.high)}"
        return f"the span from {format_instant(self.low + _TICK)} to {format_instant(self.high)}"


def _covers(timeline: Timeline) -> Iterator[_Cover]:
    pauses = (_Cover(pause.start, pause.end, None) for pause in timeline.pauses if pause.start != pause.end)
    spans = (_Cover((row.first or row.instant) - _TICK, row.instant, row) for row in timeline.spans)
    return heapq.merge(pauses, spans, key=lambda cover: cover.low)


def _points(timeline: Timeline) -> Iterator[Row]:
    held = [timeline.candidate] if timeline.candidate is not None else []
    return heapq.merge(timeline.rows, held, key=lambda row: row.instant)


class _Walk:
    """One pass over a timeline."""

    def __init__(self, timeline: Timeline, most: int) -> None:
        self.balance = Balance()
        self._left = most
        self._events = timeline.events
        self._until = timeline.until
        self._segments = segments(timeline.revisions, timeline.events)
        self._periods = _periods(timeline.revisions)
        self._points = _Stream(_points(timeline))
        self._covers = _Stream(_covers(timeline))
        if self._segments:
            begin = self._segments[0].begins
            self._is_cut = timeline.after is not None and timeline.after > begin
            self._begin = timeline.after if timeline.after is not None and self._is_cut else begin
            self._walk()

    def _walk(self) -> None:
        self.balance.since, self.balance.until = self._begin, self._until
        at = self._begin
        self._beyond(at, "before the schedule's calendar begins")
        for segment, ends in zip(self._segments, [*(each.begins for each in self._segments[1:]), self._until], strict=True):
            high = min(ends, self._until)
            if high <= at:
                continue
            self._segment(segment, at, high)
            at = high
        while self._covers.head is not None:
            cover = self._covers.take()
            if cover.high > self._until:
                what = "pause" if cover.row is None else "unexpected"
                self.balance.add(
                    what, cover.high, f"{cover.words} reaches beyond {format_instant(self._until)}, all that is consumed"
                )
        self._beyond(None, f"after {format_instant(self._until)}, up to which the calendar is consumed")

    def _beyond(self, until: datetime | None, where: str) -> None:
        """Rows up to `until` lie where nothing is this schedule's."""
        while self._points.head is not None and (until is None or self._points.head.instant <= until):
            row = self._points.take()
            if self._may_stay(row):
                self._keep(row)
            else:
                self.balance.add("unexpected", row.instant, f"{_named(row)} is recorded {where}")

    def _segment(self, segment: Segment, low: datetime, high: datetime) -> None:
        calendar, why = segment.calendar()
        if calendar is None:
            self.balance.unchecked.append(Unchecked(low, high, why or ""))
        at = low
        while at < high:
            try:
                at = self._stretch(segment, calendar, at, high)
            except CalendarError as error:  # from here on it cannot be asked
                self.balance.unchecked.append(Unchecked(at, high, str(error)))
                calendar = None

    def _stretch(self, segment: Segment, calendar: Calendar | None, low: datetime, high: datetime) -> datetime:
        """Account for what is covered, or not, from `low` on; return where to go on."""
        cover = self._covers.head
        if cover is None or cover.low > low:
            following = high if cover is None else min(cover.low, high)
            self._between(segment, calendar, low, following)
            return following
        if not self._is_begun(cover, low):
            self._covers.take()
            return low
        high = min(cover.high, high)
        self._within(segment, calendar, cover, low, high)
        cover.at = high
        if high == cover.high:
            self._covers.take()
            if cover.row is not None:
                self._close_span(cover.row, cover, segment, calendar)
        return high

    # -- covered ---------------------------------------------------------------------------------------------------------

    def _is_begun(self, cover: _Cover, at: datetime) -> bool:
        """Tell whether a cover reaches beyond `at`; it must begin there, unless what lies before is not looked at."""
        if cover.high <= cover.low:
            self.balance.add("span", cover.high, f"{cover.words} ends before it begins")
        elif cover.at is None and cover.low < at:
            cover.is_whole = False
            if not (self._is_cut and at == self._begin):
                where = "before the schedule's calendar" if at == self._begin else "in what is accounted for already"
                self.balance.add("overlap", cover.low + _TICK, f"{cover.words} begins {where}")
        return cover.high > at

    def _within(self, segment: Segment, calendar: Calendar | None, cover: _Cover, low: datetime, high: datetime) -> None:
        """Account for a stretch that a pause or a span covers."""
        named = self._count(calendar, low, high)
        while self._points.head is not None and self._points.head.instant <= high:
            row = self._points.take()
            is_named = calendar is not None and is_instant(calendar, row.instant)
            if not self._may_stay(row):
                self.balance.add("overlap", row.instant, f"{_named(row)} is recorded within {cover.words}")
            elif is_named:
                self._record(row, segment)
            else:
                self._keep(row)
            named = named - 1 if is_named and named is not None else named
        if cover.row is None:
            self.balance.count(PAUSED, named)
        else:
            cover.named = None if cover.named is None or named is None else cover.named + named
            self._check_ends(cover, calendar, low, high)

    def _check_ends(self, cover: _Cover, calendar: Calendar | None, low: datetime, high: datetime) -> None:
        """A span begins and ends with an instant."""
        if calendar is None:
            return
        if cover.low == low and not is_instant(calendar, low + _TICK):
            self.balance.add("span", low + _TICK, f"{cover.words} does not begin with an instant of the calendar")
        if cover.high == high and not is_instant(calendar, high):
            self.balance.add("span", high, f"{cover.words} does not end with an instant of the calendar")

    def _close_span(self, row: Row, cover: _Cover, segment: Segment, calendar: Calendar | None) -> None:
        named = row.count if calendar is None else cover.named
        if calendar is not None and row.count is not None and cover.is_whole and named is not None and named != row.count:
            message = f"{cover.words} says that it has {row.count:,} instants, the calendar names {named:,}"
            self.balance.add("count", row.instant, message)
        self._check(row, segment)
        self.balance.count(row.status.value if row.status else Status.SKIPPED_MISFIRE.value, named)

    def _count(self, calendar: Calendar | None, low: datetime, high: datetime) -> int | None:
        """Return how many instants lie in (low, high], None where that is not known, or too many to count."""
        if calendar is None:
            return None
        found = calendar.count(low + _TICK, high, limit=self._left + 1)
        if found > self._left:
            return None
        self._left -= found
        return found

    # -- uncovered -------------------------------------------------------------------------------------------------------

    def _between(self, segment: Segment, calendar: Calendar | None, low: datetime, high: datetime) -> None:
        """Hold the instants of a stretch that nothing covers against its rows."""
        expected = _next(calendar, low, high)
        while True:
            row = self._points.head if self._points.head is not None and self._points.head.instant <= high else None
            if row is None and expected is None:
                return
            if row is not None and calendar is None:
                self._record(self._points.take(), segment)
            elif row is None or (expected is not None and expected < row.instant):
                assert calendar is not None and expected is not None
                end = high if row is None else row.instant - _TICK
                self._missing(calendar, expected, end)
                expected = _next(calendar, end, high)
            elif expected is None or row.instant < expected:
                self._unexpected(self._points.take())
            else:
                self._record(self._points.take(), segment)
                expected = _next(calendar, expected, high)

    def _missing(self, calendar: Calendar, first: datetime, end: datetime) -> None:
        number = self._count(calendar, first - _TICK, end)
        self.balance.name(number)
        if number == 1:
            self.balance.add("missing", first, f"{format_instant(first)} is not accounted for")
            return
        many = "more than can be counted" if number is None else f"{number:,}"
        message = f"{many} instants from {format_instant(first)} to {format_instant(end)} are not accounted for"
        self.balance.add("missing", first, message)

    def _unexpected(self, row: Row) -> None:
        if self._may_stay(row):
            self._keep(row)
        else:
            self.balance.add("unexpected", row.instant, f"{_named(row)} is recorded, and the calendar names no such instant")

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _may_stay(self, row: Row) -> bool:
        """Tell whether a row may lie outside the calendar: it was admitted before the clock stepped back, or found again."""
        if row.run is None:
            return False
        return row.is_restored or any(event.recorded_at < row.instant <= event.floor for event in self._events)

    def _keep(self, row: Row) -> None:
        self._check(row, None)
        self.balance.kept += 1

    def _record(self, row: Row, segment: Segment) -> None:
        self._check(row, segment)
        if row.status is None:
            self.balance.name(1)
        else:
            self.balance.count(row.status.value, 1)

    def _check(self, row: Row, segment: Segment | None) -> None:
        """Check that a row is whole in itself, and of the revision whose calendar held."""
        if segment is not None and self._period_of(row.revision) != segment.period and not self._may_stay(row):
            message = (
                f"{_named(row)} is recorded under revision {row.revision}, where revision {segment.period} names the instants"
            )
            self.balance.add("revision", row.instant, message)
        wrong = _contradiction(row)
        if wrong is not None:
            self.balance.add(wrong[0], row.instant, wrong[1])

    def _period_of(self, revision: int) -> int | None:
        index = bisect_right(self._periods, revision)
        return self._periods[index - 1] if index else None


def _periods(revisions: Sequence[Revision]) -> list[int]:
    """Return the revisions that brought a trigger, ascending."""
    starts: list[int] = []
    last: Trigger | None = None
    for each in revisions:
        if each.trigger != last:
            starts.append(each.revision)
        last = each.trigger
    return starts


def _next(calendar: Calendar | None, after: datetime, until: datetime) -> datetime | None:
    found = calendar.next_after(after) if calendar is not None else None
    return found if found is not None and found <= until else None


def _named(row: Row) -> str:
    return f"{format_instant(row.instant)} {row.status.value if row.status else 'of an unknown status'}"


def _contradiction(row: Row) -> tuple[str, str] | None:
    """Return what a row contradicts itself or its run in: the code of the problem and a sentence."""
    if row.status is None:
        return "status", f"{format_instant(row.instant)} has a status that is not known"
    if row.status is Status.PENDING:
        return None
    if row.run is not None:
        return _contradiction_of_run(row, row.run)
    code = (row.reason or {}).get("code")
    if row.status not in _REASONS:
        return "run", f"{_named(row)} names no run"
    was_held = "held_since" in (row.reason or {})
    if code not in _REASONS[row.status] or (code in _CAUSES and was_held is (row.status is not Status.COALESCED)):
        return "status", f"{_named(row)} does not go with its reason: {code}"
    if row.first is not None and row.status not in _OF_SPANS:
        return "status", f"{_named(row)} stands for a span, which is never {row.status.value}"
    return None


def _contradiction_of_run(row: Row, run: str) -> tuple[str, str] | None:
    if row.status not in RUN_STATUSES:
        return "status", f"{_named(row)} names {run}, which its status says never was"
    if row.run_status is None:
        return "run", f"{_named(row)} names {run}, of which there is no such record"
    if row.run_status is not row.status:
        return "status", f"{_named(row)} contradicts {run}, which is {row.run_status.value}"
    return None
