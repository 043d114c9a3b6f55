"""Timelines made by hand, for tests of how they are drawn: times are minutes after 09:00 of 1 March 2027."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.support.schedules import at
from wfctl.operations.timeline_views import (
    DrawnPauseView,
    DrawnRunView,
    ExpectedView,
    LaneView,
    MarkView,
    StretchView,
    TimelineView,
)
from wfctl.operations.views import SpanView


def minute(number: float) -> datetime:
    """A time."""
    return at("09:00") + timedelta(minutes=number)


def run(begins: float, ends: float | None, status: str = "completed", **more: Any) -> DrawnRunView:
    """A run of the schedule `s`; without an end it goes on."""
    fields: dict[str, Any] = {
        "run_id": f"run-{int(begins) + 1:06}", "schedule_id": "s", "deployment_id": "d", "instant": minute(begins),
        "admitted_at": minute(begins), "started_at": minute(begins), "ended_at": None if ends is None else minute(ends),
        "status": status, "attempt": 1, "overdue": False, "waits": (), "lateness_s": 0.0, "reason": None, "why": "",
        "expected_end": None, "track": 0,
    }  # fmt: skip
    return DrawnRunView(**{**fields, **more})


def mark(instant: float, status: str, **more: Any) -> MarkView:
    """An instant without a run."""
    fields: dict[str, Any] = {
        "schedule_id": "s", "instant": minute(instant), "status": status, "span": None, "held_since": None,
        "lateness_s": None, "reason": None, "why": "",
    }  # fmt: skip
    return MarkView(**{**fields, **more})


def span(first: float, last: float, status: str, count: int | None) -> MarkView:
    """Several instants without a run."""
    return mark(last, status, span=SpanView(first=minute(first), last=minute(last), count=count))


def pause(begins: float, ends: float | None, **more: Any) -> DrawnPauseView:
    """A pause of the schedule `s`."""
    fields: dict[str, Any] = {"schedule_id": "s", "why": None, "actor": "anna"}
    return DrawnPauseView(**{**fields, **more}, begins=minute(begins), ends=None if ends is None else minute(ends))


def expected(begins: float, ends: float | None, status: str = "admitted", track: int = 0) -> ExpectedView:
    """What is to come of the schedule `s`."""
    over = None if ends is None else minute(ends)
    return ExpectedView(
        schedule_id="s", instant=minute(begins), status=status, begins=minute(begins), ends=over, why="", track=track
    )


def lane(*items: Any, **more: Any) -> LaneView:
    """A lane with these runs, marks, pauses and expectations."""
    fields: dict[str, Any] = {
        "name": "s", "kind": "schedule", "state": "active", "reading": "every hour, on the hour, UTC", "deployment_id": "d",
        "diagnostic": None, "next_instant": None, "drawn_from": None, "unreadable": 0,
    }  # fmt: skip
    kinds = {"runs": DrawnRunView, "marks": MarkView, "pauses": DrawnPauseView, "expected": ExpectedView}
    fields |= {name: tuple(item for item in items if isinstance(item, kind)) for name, kind in kinds.items()}
    fields["tracks"] = max([item.track + 1 for item in (*fields["runs"], *fields["expected"])], default=1)
    return LaneView(**{**fields, **more})


def picture(
    *lanes: LaneView, now: float = 90, absences: Sequence[tuple[float, float | None]] = (), **more: Any
) -> TimelineView:
    """Two hours from 09:00, a minute a cell at 125 columns."""
    fields: dict[str, Any] = {
        "since": minute(0), "until": minute(120), "timezone": "UTC", "by": "schedule", "slots": 4, "supervised": True,
        "idle": (), "clock_events": (), "expected_until": minute(120), "assumed": (), "most": 5000, "left_out": False,
    }  # fmt: skip
    gaps = tuple(StretchView(begins=minute(begins), ends=None if ends is None else minute(ends)) for begins, ends in absences)
    return TimelineView(**{**fields, **more}, lanes=lanes, now=minute(now), absences=gaps)
