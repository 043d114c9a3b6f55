"""What `wfctl timeline` draws: the past, what goes on, and what is expected, lane by lane."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from wfctl.operations.views import SpanView, View


class StretchView(View):
    """A stretch of time; null where it lasts."""

    begins: datetime
    ends: datetime | None


class DrawnRunView(View):
    """A run, or with lanes by slot the part of it that holds the slot. It goes on where it has no end."""

    run_id: str
    schedule_id: str | None  #: null: a run started by hand
    deployment_id: str
    instant: datetime | None
    admitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    status: str
    attempt: int
    overdue: bool
    waits: tuple[StretchView, ...]  #: when it waited for input
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    why: str  #: the reason in words; empty where there is none
    expected_end: datetime | None  #: of one that is at work, from what its runs took before
    track: int


class MarkView(View):
    """An instant, or a span of them, that has no run: what became of it, or that it is held, or was consumed by a pause."""

    schedule_id: str
    instant: datetime
    status: str  #: one of the statuses without a run, or `paused`
    span: SpanView | None
    held_since: datetime | None  #: of a held candidate
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    why: str


class DrawnPauseView(View):
    """A paused span of a schedule; it lasts where it has no end."""

    schedule_id: str
    begins: datetime
    ends: datetime | None
    why: str | None  #: what was said when it was paused
    actor: str


class ExpectedView(View):
    """What is expected to become of an instant to come, or of the one that is held."""

    schedule_id: str
    instant: datetime
    status: str  #: `admitted`, or what would become of it instead
    begins: datetime  #: when that is decided; of an admitted one, when its run begins
    ends: datetime | None  #: of a run; null where it outlasts the window
    why: str
    track: int


class LaneView(View):
    """One lane: a schedule, a deployment, an execution slot, runs started by hand, or what did not run."""

    name: str
    kind: str  #: schedule, deployment, slot, manual or unrun
    state: str | None  #: of a schedule
    reading: str | None  #: of a schedule's trigger, in English
    deployment_id: str | None
    diagnostic: Mapping[str, Any] | None
    next_instant: datetime | None
    tracks: int  #: how many runs were at work at once, at least one
    runs: tuple[DrawnRunView, ...]
    marks: tuple[MarkView, ...]
    pauses: tuple[DrawnPauseView, ...]
    expected: tuple[ExpectedView, ...]
    drawn_from: datetime | None  #: set where there is more than is drawn: what is older is left out
    unreadable: int  #: rows that cannot be read


class ClockEventView(View):
    """The clock stepped back, and schedules began anew."""

    at: datetime
    floor: datetime  #: where the clock had been
    schedules: tuple[str, ...]
    withdrawn: int | None


class TimelineView(View):
    """What happened within a window, what goes on, and what is expected."""

    schema: ClassVar[str] = "wfctl/timeline.v1"

    since: datetime
    until: datetime
    now: datetime
    timezone: str
    by: str  #: schedule, deployment or slot
    slots: int
    supervised: bool  #: whether a supervisor is there now
    lanes: tuple[LaneView, ...]
    idle: tuple[str, ...]  #: schedules without anything in this window
    absences: tuple[StretchView, ...]  #: when no supervisor is known to have been there
    clock_events: tuple[ClockEventView, ...]
    expected_until: datetime | None  #: how far ahead it was worked out; null: nothing was to be
    assumed: tuple[str, ...]  #: schedules of whose runs none is over yet: how long they take is assumed
    most: int
    left_out: bool  #: whether there is more than is drawn
