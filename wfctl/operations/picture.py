"""A window of time as a picture: what ran, what did not and why, what goes on, and what is expected."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wfctl.core.audit import ClockEvent, segments
from wfctl.core.instants import from_micros
from wfctl.core.model import FINISHED, HOLDS_EXECUTION_SLOT, Status, run_name
from wfctl.core.reading import reading_of
from wfctl.core.reasons import phrase
from wfctl.core.tracks import assign_tracks
from wfctl.core.trigger import CalendarError, instants_after
from wfctl.errors import InvalidArgument
from wfctl.operations import picture_ahead, reconcile, schedules
from wfctl.operations.audit import revisions_of
from wfctl.operations.context import Context
from wfctl.operations.describe import occurrence_view
from wfctl.operations.describe_definitions import schedule_view
from wfctl.operations.picture_ahead import Ahead
from wfctl.operations.timeline_views import (
    ClockEventView,
    DrawnPauseView,
    DrawnRunView,
    ExpectedView,
    LaneView,
    MarkView,
    StretchView,
    TimelineView,
)
from wfctl.operations.views import SpanView
from wfctl.store.ledger import definitions, past, picture, sessions
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.picture import DrawnRun, Found, Numbers
from wfctl.store.ledger.rows import UnreadableRow

GROUPINGS = ("schedule", "deployment", "slot")
MOST = 5000  #: runs and marks of a picture
_LEAST = 20  #: of them that every lane may have
_MOST_PAUSED = 200  #: instants of a lane that are shown as consumed by a pause
_COUNTED_SPANS = 20  #: spans of a lane whose instants are counted
_TICK = timedelta(microseconds=1)
_A_WAIT = timedelta(seconds=1)
_EVER = datetime.max.replace(tzinfo=UTC)
UNRUN, BY_HAND = "not run", "by hand"


def timeline(
    context: Context,
    *,
    schedule_ids: Sequence[str] | None,
    since: datetime,
    until: datetime,
    slots: int,
    timezone: str = "UTC",
    by: str = "schedule",
    most: int = MOST,
) -> TimelineView:
    """Return what happened within [since, until), what goes on, and what is expected there.

    Given: the schedules by id, or None for all and the runs started by hand; `slots`, how many runs may go on at once; at most
    `most` runs and marks, of which each lane gets a share, the newest first. What is to come is decided by the very code of the
    supervisor, for as long ahead as it comes to no more than a few thousand instants.
    Raise InvalidArgument, NotFound.
    """
    if since >= until:
        raise InvalidArgument("the window ends before it begins", {"argument": "until"})
    if by not in GROUPINGS:
        raise InvalidArgument(f"lanes are by {', '.join(GROUPINGS)}, not {by!r}", {"argument": "by"})
    reconcile.everything(context)
    now = context.now()
    ahead = picture_ahead.look_ahead(context, until=until, slots=slots) if until > now else picture_ahead.NOTHING
    with context.ledger.reading() as connection:
        known = definitions.list_all(connection, "schedule")
        if schedule_ids is None:
            rows = [row for row in known if row.revision > 0 or row.deleted_at is None]
        else:
            rows = [schedules.require(connection, name) for name in sorted(set(schedule_ids))]
        window = _Window(context, connection, since, min(until, now), until, now, ahead)
        parts = _parts(window, rows, most, with_manual=schedule_ids is None)
        events = _clock_events(connection, {row.number: row.id for row in known}, {row.number for row in rows}, since, until)
        absences = picture_ahead.absences(context, connection, since, min(until, now))
    lanes = _GROUPS[by](parts, slots, now)
    shown = [lane for lane in lanes if schedule_ids is not None or by == "slot" or _has_something(lane)]
    return TimelineView(
        since=since,
        until=until,
        now=now,
        timezone=timezone,
        by=by,
        slots=slots,
        supervised=picture_ahead.is_supervised(context),
        lanes=tuple(shown),
        idle=tuple(lane.name for lane in lanes if lane not in shown and lane.state not in (None, "deleted")),
        absences=absences,
        clock_events=events,
        expected_until=ahead.until,
        assumed=tuple(sorted(name for name in ahead.assumed if name in {row.id for row in rows})),
        most=most,
        left_out=any(lane.drawn_from is not None for lane in shown),
    )


def _has_something(lane: LaneView) -> bool:
    return bool(lane.runs or lane.marks or lane.pauses or lane.expected or lane.unreadable or lane.state == "blocked")


# Gathering --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Window:
    """What is looked at, and by what."""

    context: Context
    connection: sqlite3.Connection
    since: datetime
    recorded_until: datetime  #: nothing later is recorded
    until: datetime
    now: datetime
    ahead: Ahead
    numbers: Numbers = field(init=False)
    deployments: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = picture.numbers_within(self.connection, self.since, self.until)

    def deployment(self, number: int) -> str:
        """Return the id of a deployment."""
        if number not in self.deployments:
            try:
                self.deployments[number] = definitions.get(self.connection, number).id
            except UnreadableRow:
                self.deployments[number] = f"number-{number}"
        return self.deployments[number]


def _parts(window: _Window, rows: Sequence[DefinitionRow], most: int, *, with_manual: bool) -> list[LaneView]:
    """Return a lane for each schedule, and for each deployment with runs started by hand. The share of each: two rounds."""
    manual = definitions.list_all(window.connection, "deployment") if with_manual else []
    makers: list[Callable[[int], LaneView]] = [_schedule_maker(window, row) for row in rows]
    makers += [_manual_maker(window, row) for row in manual]
    share = max(_LEAST, most // max(1, len(makers)))
    lanes = [make(share) for make in makers]
    cut = [index for index, lane in enumerate(lanes) if lane.drawn_from is not None]
    left = most - sum(len(lane.runs) + len(lane.marks) for lane in lanes)
    if cut and left > share:
        for index in cut:
            lanes[index] = makers[index](share + left // len(cut))
    return lanes


def _schedule_maker(window: _Window, row: DefinitionRow) -> Callable[[int], LaneView]:
    return lambda most: _schedule_lane(window, row, most)


def _manual_maker(window: _Window, row: DefinitionRow) -> Callable[[int], LaneView]:
    return lambda most: _manual_lane(window, row, most)


def _schedule_lane(window: _Window, row: DefinitionRow, most: int) -> LaneView:
    connection, since, until = window.connection, window.since, window.recorded_until
    state = states.find(connection, row.number)
    view = schedule_view(window.context, connection, row)
    runs = picture.runs_of(connection, row.number, window.numbers, since, until + _TICK, most)
    settled = picture.settled_of(connection, row.number, since, window.until, most)
    spans = picture.spans_of(connection, row.number, since, window.until)
    drawn_from = _newest(runs, settled, most)
    kept = drawn_from or since
    drawn = [_run_view(window, each, row.id) for each in runs.items if drawn_from is None or each.admitted_at >= kept]
    marks = [
        *(_mark(window, row.id, each, is_counted=index < _COUNTED_SPANS) for index, each in enumerate(spans.items)),
        *(_mark(window, row.id, each) for each in settled.items if each.instant >= kept),
    ]
    pauses = _pauses(window, row)
    if pauses:
        marks += _consumed(window, row, pauses, {mark.instant for mark in marks})
    if state is not None and state.candidate is not None and row.deleted_at is None:
        marks.append(_held(window, row.id, state))
    return LaneView(
        name=row.id,
        kind="schedule",
        state=view.state,
        reading=_reading(window, row),
        deployment_id=None if view.definition is None else view.definition.get("deployment"),
        diagnostic=view.diagnostic,
        next_instant=view.next_instant,
        **_tracked(drawn, window.ahead.by_schedule.get(row.id, ()), window.now),
        marks=tuple(sorted(marks, key=_by_instant)),
        pauses=pauses,
        drawn_from=drawn_from,
        unreadable=runs.unreadable + settled.unreadable + spans.unreadable,
    )


def _manual_lane(window: _Window, row: DefinitionRow, most: int) -> LaneView:
    limits = (window.numbers, window.since, window.recorded_until + _TICK)
    found = picture.manual_runs_of(window.connection, row.number, *limits, most)
    drawn = [_run_view(window, each, None) for each in found.items]
    return LaneView(
        name=f"{row.id} {BY_HAND}",
        kind="manual",
        state=None,
        reading=None,
        deployment_id=row.id,
        diagnostic=None,
        next_instant=None,
        **_tracked(drawn, (), window.now),
        marks=(),
        pauses=(),
        drawn_from=found.items[-1].admitted_at if found.has_more and found.items else None,
        unreadable=found.unreadable,
    )


def _by_instant(mark: MarkView) -> datetime:
    return mark.instant


def _newest(runs: Found, settled: Found, most: int) -> datetime | None:
    """Return since when everything is drawn where there is more than that; None where all is."""
    times = sorted([*(each.admitted_at for each in runs.items), *(each.instant for each in settled.items)], reverse=True)
    bounds = [times[most - 1]] if len(times) > most else []
    if runs.has_more and runs.items:
        bounds.append(runs.items[-1].admitted_at)
    if settled.has_more and settled.items:
        bounds.append(settled.items[-1].instant)
    return max(bounds, default=None)


def _waits(window: _Window, run: DrawnRun) -> list[tuple[datetime, datetime | None]]:
    """Return when a run waited for input. What is shorter than a second is no wait: an end is recorded after it happened."""
    if run.attempt == 1 and run.status not in (Status.INTERRUPTED, Status.CANCELLED):
        return []
    found = past.waits_of(window.connection, run.number)
    if run.status is Status.INTERRUPTED:
        return found
    over = run.ended_at if run.status in FINISHED and run.ended_at is not None else window.now
    closed = [(begins, over if ends is None else ends) for begins, ends in found]
    return [(begins, ends) for begins, ends in closed if ends - begins >= _A_WAIT]


def _run_view(window: _Window, run: DrawnRun, schedule_id: str | None) -> DrawnRunView:
    waits = _waits(window, run)
    return DrawnRunView(
        run_id=run_name(run.number),
        schedule_id=schedule_id,
        deployment_id=window.deployment(run.deployment),
        instant=run.instant,
        admitted_at=run.admitted_at,
        started_at=run.started_at,
        ended_at=run.ended_at if run.status in FINISHED else None,
        status=run.status.value,
        attempt=run.attempt,
        overdue=run.is_overdue,
        waits=tuple(StretchView(begins=begins, ends=ends) for begins, ends in waits),
        lateness_s=_seconds(run.lateness),
        reason=run.reason,
        why=phrase(run.reason),
        expected_end=window.ahead.ends.get(run_name(run.number)) if run.status in HOLDS_EXECUTION_SLOT else None,
        track=0,
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _mark(window: _Window, schedule_id: str, row: Any, is_counted: bool = False) -> MarkView:
    view = occurrence_view(window.context, schedule_id, row) if is_counted else None
    span = view.span if view is not None else None
    if row.span is not None and span is None:
        span = SpanView(first=row.span.first, last=row.span.last, count=row.span.count)
    return MarkView(
        schedule_id=schedule_id,
        instant=row.instant,
        status=row.status.value,
        span=span,
        held_since=None,
        lateness_s=_seconds(row.lateness),
        reason=row.reason,
        why=phrase(row.reason),
    )


def _held(window: _Window, schedule_id: str, state: states.ScheduleRow) -> MarkView:
    held = state.candidate
    assert held is not None
    return MarkView(
        schedule_id=schedule_id,
        instant=held.instant,
        status=Status.PENDING.value,
        span=None,
        held_since=held.held_since,
        lateness_s=_seconds(window.now - held.instant),
        reason=held.reason,
        why=phrase(held.reason),
    )


def _reading(window: _Window, row: DefinitionRow) -> str | None:
    try:
        return reading_of(window.context.schedule(row.number, row.revision)[0].trigger)
    except (UnreadableRow, CalendarError):
        return None


# Pauses -----------------------------------------------------------------------------------------------------------------


def _pauses(window: _Window, row: DefinitionRow) -> tuple[DrawnPauseView, ...]:
    """Return the paused spans of a schedule; one that a delete ended ends there."""
    deleted = None if row.deleted_at is None else from_micros(row.deleted_at)
    found = picture.pauses_of(window.connection, row.number, window.since, window.until)
    return tuple(
        DrawnPauseView(
            schedule_id=row.id,
            begins=each.paused_at,
            ends=each.resumed_at or deleted,
            why=each.reason,
            actor=each.actor,
        )
        for each in found
        if each.resumed_at is not None or deleted is None or deleted > window.since
    )


def _consumed(window: _Window, row: DefinitionRow, pauses: Sequence[DrawnPauseView], recorded: set[datetime]) -> list[MarkView]:
    """Return the instants that pauses consumed, or will as long as they last, as far as the calendar can be asked."""
    found: list[MarkView] = []
    try:
        events = [
            ClockEvent(recorded_at=each.recorded_at, floor=each.floor, revision=each.revision)
            for each in sessions.clock_events(window.connection, row.number)
        ]
        held = segments(list(revisions_of(window.context, window.connection, row.number)), events)
    except UnreadableRow:
        return found
    for pause in pauses:
        first = max(window.since - _TICK, pause.begins)
        last = min(window.until - _TICK, pause.ends or window.until)
        for index, segment in enumerate(held):
            ends = held[index + 1].begins if index + 1 < len(held) else last
            calendar, _ = replace(segment, stamps=None).calendar()
            if calendar is None:
                continue
            for instant in instants_after(calendar, max(first, segment.begins)):
                if instant > min(last, ends) or len(found) >= _MOST_PAUSED:
                    break
                if instant not in recorded:
                    found.append(_paused_mark(row.id, instant, pause))
    return found


def _paused_mark(schedule_id: str, instant: datetime, pause: DrawnPauseView) -> MarkView:
    reason = {"code": "paused", "actor": pause.actor, "reason": pause.why}
    return MarkView(
        schedule_id=schedule_id,
        instant=instant,
        status="paused",
        span=None,
        held_since=None,
        lateness_s=None,
        reason=reason,
        why=phrase(reason),
    )


# Clock events -----------------------------------------------------------------------------------------------------------


def _clock_events(
    connection: sqlite3.Connection, names: Mapping[int, str], wanted: set[int], since: datetime, until: datetime
) -> tuple[ClockEventView, ...]:
    """Return the clock events, those of one step of the clock together."""
    together: dict[datetime, list[picture.DrawnClockEvent]] = {}
    for each in picture.clock_events_within(connection, since, until):
        if each.schedule in wanted:
            together.setdefault(each.at, []).append(each)
    return tuple(
        ClockEventView(
            at=at,
            floor=max(each.floor for each in found),
            schedules=tuple(sorted(names.get(each.schedule, f"number-{each.schedule}") for each in found)),
            withdrawn=None if any(each.withdrawn is None for each in found) else sum(each.withdrawn or 0 for each in found),
        )
        for at, found in together.items()
    )


# Lanes ------------------------------------------------------------------------------------------------------------------


def _tracked(runs: Sequence[DrawnRunView], expected: Sequence[ExpectedView], now: datetime) -> dict[str, Any]:
    """Return the fields of a lane that its runs and what is expected of it make up, each on a track of its own."""
    drawn = sorted(runs, key=lambda run: (run.admitted_at, run.run_id))
    will_run = [each for each in expected if each.status == Status.ADMITTED.value]
    spans = [(run.admitted_at, _end_of(run, now)) for run in drawn] + [(each.begins, each.ends or _EVER) for each in will_run]
    tracks = assign_tracks(spans)
    on_track = dict(zip(map(id, will_run), tracks[len(drawn) :], strict=True))
    return {
        "tracks": max(tracks, default=0) + 1,
        "runs": tuple(replace(run, track=track) for run, track in zip(drawn, tracks, strict=False)),
        "expected": tuple(replace(each, track=on_track.get(id(each), 0)) for each in expected),
    }


def _end_of(run: DrawnRunView, now: datetime) -> datetime:
    if run.ended_at is not None:
        return run.ended_at
    return _EVER if run.status == Status.INTERRUPTED.value else max(now, run.expected_end or now)


def _by_schedule(parts: Sequence[LaneView], slots: int, now: datetime) -> list[LaneView]:
    return list(parts)


def _by_deployment(parts: Sequence[LaneView], slots: int, now: datetime) -> list[LaneView]:
    names = {lane.deployment_id for lane in parts if lane.deployment_id is not None}
    names |= {run.deployment_id for lane in parts for run in lane.runs}
    return [
        _joined(
            name,
            "deployment",
            [lane for lane in parts if lane.deployment_id == name],
            [run for lane in parts for run in lane.runs if run.deployment_id == name],
            now,
        )
        for name in sorted(names)
    ]


def _joined(name: str, kind: str, lanes: Sequence[LaneView], runs: Sequence[DrawnRunView], now: datetime) -> LaneView:
    """Return several lanes as one."""
    cut = [lane.drawn_from for lane in lanes if lane.drawn_from is not None]
    return LaneView(
        name=name,
        kind=kind,
        state=None,
        reading=None,
        deployment_id=name if kind == "deployment" else None,
        diagnostic=None,
        next_instant=None,
        **_tracked(runs, [each for lane in lanes for each in lane.expected], now),
        marks=tuple(sorted((mark for lane in lanes for mark in lane.marks), key=_by_instant)),
        pauses=tuple(pause for lane in lanes for pause in lane.pauses),
        drawn_from=max(cut, default=None),
        unreadable=sum(lane.unreadable for lane in lanes),
    )


def _by_slot(parts: Sequence[LaneView], slots: int, now: datetime) -> list[LaneView]:
    """Return a lane for each execution slot, with the stretches in which runs held it; below them what holds none."""
    scheduled = [lane for lane in parts if lane.kind == "schedule"]
    held = [part for lane in scheduled for run in lane.runs for part in _holding(run, now)]
    tracked = _tracked(held, [each for lane in scheduled for each in lane.expected if each.status == "admitted"], now)
    lanes = []
    for slot in range(max(slots, tracked["tracks"])):
        lane = _joined(f"slot {slot + 1}", "slot", [], [], now)
        runs = tuple(replace(run, track=0) for run in tracked["runs"] if run.track == slot)
        expected = tuple(replace(each, track=0) for each in tracked["expected"] if each.track == slot)
        lanes.append(replace(lane, runs=runs, expected=expected))
    unrun = _joined(UNRUN, "unrun", [replace(lane, expected=()) for lane in scheduled], [], now)
    waiting = tuple(each for lane in scheduled for each in lane.expected if each.status != "admitted")
    others = [replace(unrun, expected=waiting), *(lane for lane in parts if lane.kind == "manual")]
    return lanes + [lane for lane in others if _has_something(lane)]


def _holding(run: DrawnRunView, now: datetime) -> list[DrawnRunView]:
    """Return the stretches of a run in which it held its slot: not while it waited for input (contract 5.4)."""
    found, begins = [], run.admitted_at
    for wait in run.waits:
        found.append(replace(run, admitted_at=begins, ended_at=wait.begins, status=Status.INTERRUPTED.value, waits=()))
        if wait.ends is None:
            return found
        begins = wait.ends
    return [*found, replace(run, admitted_at=begins, waits=())]


_GROUPS: dict[str, Callable[[Sequence[LaneView], int, datetime], list[LaneView]]] = {
    "schedule": _by_schedule,
    "deployment": _by_deployment,
    "slot": _by_slot,
}
