"""What each thing in a timeline is called, and what is said of it: the text equivalent of every bar and mark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from wfctl.cli import values
from wfctl.cli.text import count_of, escape

if TYPE_CHECKING:
    from wfctl.operations.timeline_views import (
        DrawnPauseView,
        DrawnRunView,
        ExpectedView,
        LaneView,
        MarkView,
        StretchView,
        TimelineView,
    )

#: What can be drawn, the worst first, which is what wins where two meet; and what is said of it in a legend.
KINDS: dict[str, str] = {
    "failed": "failed",
    "exhausted": "exhausted: max_steps used up",
    "preflight-rejected": "rejected by preflight",
    "skipped-misfire": "skipped: too late",
    "skipped-overlap": "skipped: overlap",
    "cancelled": "cancelled",
    "overdue": "running, overdue",
    "interrupted": "interrupted: waits for input",
    "pending": "held: waits to be admitted",
    "running": "running",
    "admitted": "admitted",
    "coalesced": "coalesced with a newer one",
    "paused": "consumed by a pause",
    "completed": "completed",
    "unlikely": "will not run, as expected",
    "expected": "expected",
}


def kind_of(run: DrawnRunView) -> str:
    """Return as what a run is drawn: its status, or that it is overdue while it runs."""
    return "overdue" if run.overdue and run.status == "running" else run.status


def kind_of_expected(expected: ExpectedView) -> str:
    """Return as what something expected is drawn."""
    return "expected" if expected.status == "admitted" else "unlikely"


@dataclass(frozen=True, slots=True)
class Said:
    """One bar or mark in words: its row in a table, and all of it in one sentence."""

    kind: str
    lane: str
    schedule_id: str
    instant: str
    what: str
    begins: str
    ends: str
    took: str
    why: str
    run_id: str

    @property
    def text(self) -> str:
        """Return the sentence."""
        of = f" of {self.instant}" if self.instant else ""
        times = f", {self.begins} to {self.ends}" if self.begins and self.ends else f", {self.begins}" if self.begins else ""
        took = f" ({self.took})" if self.took else ""
        run = f", {self.run_id}" if self.run_id else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.schedule_id}{of}: {self.what}{times}{took}{run}{why}"


class Words:
    """The words of one picture, in its zone."""

    def __init__(self, view: TimelineView, zone: tzinfo, *, for_programs: bool = False) -> None:
        self.view, self.zone, self._for_programs = view, zone, for_programs
        first, last = (each.astimezone(zone).date() for each in (view.since, view.until))
        self._has_days = first != last

    def at(self, instant: datetime | None) -> str:
        """Return a time as one reads it in this picture: with its day where there is more than one; empty for None."""
        if instant is None:
            return ""
        if self._for_programs:
            return values.instant(instant)
        local = instant.astimezone(self.zone)
        clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
        return f"{local:%a %d %b} {clock}" if self._has_days else clock

    @property
    def zone_name(self) -> str:
        """Return the zone's name, and its abbreviation now where that is another."""
        name, short = self.view.timezone, f"{self.view.now.astimezone(self.zone):%Z}"
        return escape(name if name == short or short[:1] in "+-" else f"{name} ({short})")

    def window(self) -> str:
        """Return the window: from when to when, and how long that is."""
        since, until = (f"{each.astimezone(self.zone):%a %d %b %Y %H:%M}" for each in (self.view.since, self.view.until))
        return f"{since} to {until} ({values.duration(self.view.until - self.view.since)})"

    def all(self) -> Iterator[Said]:
        """Give everything that is drawn, lane by lane, in the order of time."""
        for lane in self.view.lanes:
            found = [(run.admitted_at, self.run(lane, run)) for run in lane.runs]
            found += [(mark.instant, self.mark(lane, mark)) for mark in lane.marks]
            found += [(pause.begins, self.pause(lane, pause)) for pause in lane.pauses]
            found += [(each.begins, self.expected(lane, each)) for each in lane.expected]
            yield from (said for _, said in sorted(found, key=lambda pair: pair[0]))

    def run(self, lane: LaneView, run: DrawnRunView) -> Said:
        """Say what became of a run."""
        kind = kind_of(run)
        over = run.ended_at
        parts = [] if run.overdue is False or kind == "overdue" else ["it was overdue"]
        late = run.admitted_at - run.instant if run.instant is not None else timedelta(0)
        if late >= timedelta(seconds=1):
            parts.append(f"started {values.duration(late)} after its instant")
        parts += [f"waited for input from {self.at(wait.begins)} to {self.at(wait.ends) or 'now'}" for wait in run.waits]
        if run.expected_end is not None and run.expected_end > self.view.now:
            parts.append(f"expected to end about {self.at(run.expected_end)}")
        what = "running, and overdue" if kind == "overdue" else _WHAT.get(kind, kind)
        return Said(
            kind=kind,
            lane=lane.name,
            schedule_id=run.schedule_id or f"{run.deployment_id} (by hand)",
            instant=self.at(run.instant),
            what="; ".join([what, *parts]),
            begins=self.at(run.admitted_at),
            ends=self.at(over) if over is not None else "now",
            took=values.duration((over or self.view.now) - run.admitted_at),
            why=run.why,
            run_id=run.run_id,
        )

    def mark(self, lane: LaneView, mark: MarkView) -> Said:
        """Say what became of an instant without a run."""
        what = _WHAT.get(mark.status, mark.status)
        instant = self.at(mark.instant)
        if mark.span is not None:
            number = "several instants" if mark.span.count is None else count_of(mark.span.count, "instant")
            what, instant = f"{what}, {number}", f"{self.at(mark.span.first)} to {self.at(mark.span.last)}"
        if mark.held_since is not None:
            what = f"{what} since {self.at(mark.held_since)}"
        return Said(mark.status, lane.name, mark.schedule_id, instant, what, "", "", "", mark.why, "")

    def pause(self, lane: LaneView, pause: DrawnPauseView) -> Said:
        """Say of a pause how long it was, why and by whom."""
        why = f"by {pause.actor}" + (f": {pause.why}" if pause.why else "")
        took = values.duration((pause.ends or max(self.view.now, pause.begins)) - pause.begins)
        ends = self.at(pause.ends) or "now"
        return Said("pause", lane.name, pause.schedule_id, "", "paused", self.at(pause.begins), ends, took, why, "")

    def expected(self, lane: LaneView, each: ExpectedView) -> Said:
        """Say what is expected to become of an instant."""
        what = "expected to run" if each.status == "admitted" else f"expected to be {each.status}"
        took = values.duration(each.ends - each.begins) if each.ends is not None and each.status == "admitted" else ""
        begins = self.at(each.begins) if each.status == "admitted" else ""
        ends = (self.at(each.ends) or "after this picture ends") if each.status == "admitted" else ""
        kind = kind_of_expected(each)
        return Said(kind, lane.name, each.schedule_id, self.at(each.instant), what, begins, ends, took, each.why, "")

    def absence(self, gap: StretchView) -> str:
        """Say when nobody was there."""
        since, until = max(gap.begins, self.view.since), gap.ends or self.view.now
        return f"no supervisor from {self.at(since)} to {self.at(gap.ends) or 'now'} ({values.duration(until - since)})"

    # -- about all of it -------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return how many there are of each kind, the worst first; what is expected last."""
        counts: dict[str, int] = {}
        seen: set[str] = set()
        for lane in self.view.lanes:
            for run in lane.runs:
                if run.run_id not in seen:
                    seen.add(run.run_id)
                    counts[kind_of(run)] = counts.get(kind_of(run), 0) + 1
            for mark in lane.marks:
                number = (mark.span.count or 1) if mark.span is not None else 1
                counts[mark.status] = counts.get(mark.status, 0) + number
            for each in lane.expected:
                kind = kind_of_expected(each)
                counts[kind] = counts.get(kind, 0) + 1
        order = ["completed", *(kind for kind in KINDS if kind != "completed")]
        return ", ".join(f"{counts[kind]:,} {_COUNTED.get(kind, kind)}" for kind in order if kind in counts)

    def lane_notes(self) -> list[tuple[str, str]]:
        """Return what is to be said of lanes as they stand now: the lane and a sentence."""
        found = []
        for lane in self.view.lanes:
            if lane.state == "blocked":
                found.append((lane.name, f"is blocked: {_diagnosis(lane)}; see wfctl schedule show {lane.name}"))
            for pause in lane.pauses if lane.state == "paused" else ():
                if pause.ends is None:
                    why = f": {pause.why}" if pause.why else ""
                    found.append((lane.name, f"is paused since {self.at(pause.begins)} by {pause.actor}{why}"))
            for mark in lane.marks:
                if mark.held_since is not None:
                    found.append((mark.schedule_id, f"holds {self.at(mark.instant)}" + (f": {mark.why}" if mark.why else "")))
            if lane.state == "deleted":
                found.append((lane.name, "is deleted"))
            if lane.unreadable:
                found.append((lane.name, f"has {count_of(lane.unreadable, 'row')} that cannot be read; see wfctl store verify"))
            if lane.drawn_from is not None:
                found.append((lane.name, f"is drawn from {self.at(lane.drawn_from)} on: there is more than fits"))
        return found

    def notes(self) -> list[str]:
        """Return what is to be said of the whole picture."""
        view = self.view
        found = [self.absence(gap) for gap in view.absences]
        for event in view.clock_events:
            back = values.duration(event.floor - event.at)
            number = count_of(len(event.schedules), "schedule")
            found.append(f"the clock was set back by {back}, to {self.at(event.at)}: {number} began anew")
        if view.until > view.now and not view.supervised:
            found.append("no supervisor is running: what is expected comes only if one is started")
        if view.expected_until is not None and view.expected_until < view.until:
            found.append(f"what is expected is worked out up to {self.at(view.expected_until)} only: there is too much of it")
        elif view.expected_until is None and view.until > view.now:
            found.append("what is expected could not be worked out")
        if view.assumed:
            named = ", ".join(view.assumed[:5]) + (" and others" if len(view.assumed) > 5 else "")
            found.append(f"no run of {named} is over yet: 1m is assumed")
        if view.left_out:
            found.append(
                f"more than {view.most:,} runs and marks: older ones are left out; choose a shorter time or fewer schedules"
            )
        if view.idle:
            named = ", ".join(view.idle[:8]) + (f" and {len(view.idle) - 8} more" if len(view.idle) > 8 else "")
            found.append(f"nothing in this time: {named}")
        return found


def _diagnosis(lane: LaneView) -> str:
    """Return the first line of why a schedule is blocked, without its name."""
    said = str((lane.diagnostic or {}).get("message") or "its records cannot be trusted")
    return said.partition("\n")[0].rstrip(":").removeprefix(f"schedule {lane.name}: ")


_WHAT = {
    "pending": "held, waits to be admitted",
    "paused": "consumed by a pause",
    "skipped-misfire": "skipped, too late",
    "skipped-overlap": "skipped, overlap",
    "preflight-rejected": "rejected by preflight",
    "interrupted": "interrupted, waits for input",
}
_COUNTED = {"pending": "held", "paused": "consumed by a pause", "unlikely": "not expected to run", "overdue": "running overdue"}
