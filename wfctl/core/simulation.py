"""What would happen: the production decision on a virtual clock.

`simulate` plays schedules, changes to them, absences of the supervisor and the courses of runs over a span of time. Every
admission is `decide_round`'s, every change is settled by `core.changes`; here are only the clock, the slots and the runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from wfctl.core import changes
from wfctl.core.admission import PASSED, Decision, ScheduleFacts, Slots, Verdict, decide_round
from wfctl.core.instants import format_instant
from wfctl.core.model import LOCAL, Candidate, DueInstants, Reason, ScheduleDefinition, Settlement, Status, run_name
from wfctl.core.trigger import Calendar, calendar_of

_ENDS, _CHANGES, _RETURNS, _WAKES = range(4)  #: the order of what happens at one time
_ASKED = 64  #: candidates that wait for capacity looked at beyond the free slots, as in a round of the supervisor
_JUST_AFTER = timedelta(microseconds=1)
_NOTHING_DUE = DueInstants()


# What is played -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of a run: executing, or interrupted, when it holds its overlap slot but none of the execution slots."""

    lasts: timedelta
    holds_slot: bool = True


@dataclass(frozen=True, slots=True)
class Course:
    """How a run goes once it is admitted, and how it ends."""

    legs: tuple[Leg, ...]  #: at least one
    status: Status = Status.COMPLETED

    @classmethod
    def of(cls, lasts: timedelta, status: Status = Status.COMPLETED) -> Course:
        """Return the course of a run that executes without a break."""
        return cls((Leg(lasts),), status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A schedule as it stands when the play begins."""

    schedule_id: str
    definition: ScheduleDefinition
    anchor: datetime  #: of an interval
    floor: datetime  #: consumed up to here
    candidate: Candidate | None = None
    last_admission: datetime | None = None
    is_paused: bool = False
    executor: str = LOCAL  #: whose slots its runs take


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """A run that is there when the play begins. One by hand belongs to no schedule and holds nothing that counts here."""

    schedule_id: str
    instant: datetime
    run_id: str
    course: Course  #: what is left of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a person does to a schedule at some time."""

    at: datetime
    schedule_id: str
    what: Literal["pause", "resume", "delete", "edit"]
    definition: ScheduleDefinition | None = None  #: the new one of an edit


Courses = Callable[[str, datetime, datetime], Course]  #: (schedule id, instant, admitted at) -> how that run goes
Verdicts = Callable[[str, datetime], Verdict]  #: (schedule id, now) -> what preflight says


def _passes(schedule_id: str, now: datetime) -> Verdict:
    return PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is played. Instants are aware UTC; `downtime` are spans in which no supervisor is there, ascending."""

    subjects: Sequence[Subject]
    since: datetime
    until: datetime
    slots: int  #: of this machine
    courses: Courses
    others: Mapping[str, int] = field(default_factory=dict)  #: the slots of other executors, by name
    ongoing: Sequence[Ongoing] = ()
    changes: Sequence[Change] = ()
    downtime: Sequence[tuple[datetime, datetime]] = ()
    verdicts: Verdicts = _passes
    next_run: int = 1


# What comes of it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One settled instant, or span of them; of an admitted one also when its run ends, and how."""

    schedule_id: str
    settlement: Settlement
    decided_at: datetime
    status: Status  #: of the settlement; of an admitted one that of its run at the end of the play
    ended_at: datetime | None = None  #: None: no run, or one that outlasts the play


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What happened in a play."""

    rows: tuple[Played, ...]  #: in the order of deciding
    held: Mapping[str, Candidate]  #: what is still held at the end
    usage: tuple[tuple[datetime, int], ...]  #: (from when, execution slots in use)

    @property
    def peak(self) -> int:
        """The most execution slots in use at once."""
        return max((used for _, used in self.usage), default=0)


@dataclass(slots=True)
class Tally:
    """The play of one schedule in numbers."""

    fires: int = 0  #: instants that came due
    admitted: int = 0
    coalesced: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  #: by `status: code`
    rejected: int = 0
    longest_wait: timedelta = timedelta(0)  #: from the instant to the admission
    peak_runs: int = 0  #: unfinished at once


def tally(played: Simulation, schedule_ids: Sequence[str]) -> dict[str, Tally]:
    """Count a play by schedule; those to which nothing happened are there with zeros. A span counts its members."""
    tallies = {name: Tally() for name in schedule_ids}
    spans: dict[str, list[tuple[datetime, int]]] = {}
    for row in played.rows:
        one = tallies.setdefault(row.schedule_id, Tally())
        count = (row.settlement.span.count or 1) if row.settlement.span else 1
        one.fires += count
        match row.settlement.status:
            case Status.ADMITTED:
                one.admitted += 1
                one.longest_wait = max(one.longest_wait, row.decided_at - row.settlement.instant)
                spans.setdefault(row.schedule_id, []).append((row.decided_at, 1))
                if row.ended_at is not None:
                    spans[row.schedule_id].append((row.ended_at, -1))
            case Status.COALESCED:
                one.coalesced += count
            case Status.PREFLIGHT_REJECTED:
                one.rejected += count
            case status:
                key = f"{status.value}: {(row.settlement.reason or {}).get('code')}"
                one.skipped[key] = one.skipped.get(key, 0) + count
    for name, steps in spans.items():
        now = 0
        for _, step in sorted(steps):  # at one time ends come before beginnings, as -1 does before 1
            now += step
            tallies[name].peak_runs = max(tallies[name].peak_runs, now)
    return tallies


# The play -----------------------------------------------------------------------------------------------------------------


def simulate(plan: Plan) -> Simulation:
    """Play a plan from `since` up to and including `until`, and return what happened.

    Shape: the same plan gives the same result, whatever the machine. Deciding takes no time; a supervisor that returns decides
    at once. A trigger whose calendar gives no answer raises CalendarError. Clock steps are not played.
    Raise ValueError for a naive instant. Source: contract 5; the loop is that of `wfctl supervise` (3.4, 5.8, 5.11, 6.3).
    """
    if plan.since.tzinfo is None or plan.until.tzinfo is None:
        raise ValueError("`since` and `until` must be aware datetimes")
    return _Play(plan).play()


@dataclass(slots=True, eq=False)
class _Schedule:
    """What the ledger would keep of a schedule."""

    subject: Subject
    definition: ScheduleDefinition
    calendar: Calendar
    floor: datetime
    candidate: Candidate | None
    last_admission: datetime | None
    is_paused: bool
    is_deleted: bool = False
    active: list[str] = field(default_factory=list)
    coming: datetime | None = None
    wakes: datetime | None = None

    @property
    def waits_for_capacity(self) -> bool:
        return self.candidate is not None and self.candidate.reason.get("code") == "capacity" and self.is_admitting

    @property
    def is_admitting(self) -> bool:
        return not (self.is_paused or self.is_deleted)


@dataclass(slots=True, eq=False)
class _Run:
    schedule: _Schedule
    run_id: str
    course: Course
    row: int | None  #: its place among the rows; None: it was there before
    leg: int = 0

    @property
    def holds_slot(self) -> bool:
        return self.leg < len(self.course.legs) and self.course.legs[self.leg].holds_slot


class _Play:
    """The state of a play, and its loop over what happens next."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = plan.since
        self.used = 0  #: slots of this machine
        self.used_elsewhere = dict.fromkeys(plan.others, 0)
        self.next_run = plan.next_run
        self.rows: list[Played] = []
        self.usage: list[tuple[datetime, int]] = []
        self.away: datetime | None = None  #: since when no supervisor is there
        self.absence: tuple[datetime, datetime] | None = None
        self._count = 0
        self._heap: list[tuple[datetime, int, int, object]] = []
        self._attention: dict[str, _Schedule] = {}
        self._unseen: list[_Run] = []  #: ends of runs that nobody took in yet
        self.schedules = {subject.schedule_id: self._enter(subject) for subject in plan.subjects}
        for ongoing in plan.ongoing:
            self._begin(_Run(self.schedules[ongoing.schedule_id], ongoing.run_id, ongoing.course, None))
        for name, schedule in self.schedules.items():
            if schedule.candidate is not None and not schedule.active:
                self._attention[name] = schedule  # what it waited for is gone
        for change in plan.changes:
            self._at(change.at, _CHANGES, change)
        for begins, ends in plan.downtime:
            if begins <= plan.since < ends:
                self.away = begins
            elif begins > plan.since:
                self._at(begins, _ENDS, (begins, ends))
            if ends > plan.since:
                self._at(ends, _RETURNS, (begins, ends))
        self._note_usage()

    def _enter(self, subject: Subject) -> _Schedule:
        schedule = _Schedule(
            subject=subject,
            definition=subject.definition,
            calendar=calendar_of(subject.definition.trigger, subject.anchor),
            floor=subject.floor,
            candidate=subject.candidate,
            last_admission=subject.last_admission,
            is_paused=subject.is_paused,
        )
        self._reckon(schedule)
        return schedule

    def play(self) -> Simulation:
        self._decide()
        while self._heap and self._heap[0][0] <= self.plan.until:
            self.now = max(self.now, self._heap[0][0])
            while self._heap and self._heap[0][0] <= self.now:
                at, kind, _, what = heapq.heappop(self._heap)
                self._happens(at, kind, what)
            self._decide()
            self._note_usage()
        held = {name: schedule.candidate for name, schedule in self.schedules.items() if schedule.candidate is not None}
        return Simulation(rows=tuple(self.rows), held=held, usage=tuple(self.usage))

    # -- what happens by itself ------------------------------------------------------------------------------------------

    def _at(self, at: datetime, kind: int, what: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, kind, self._count, what))

    def _happens(self, at: datetime, kind: int, what: object) -> None:
        if isinstance(what, _Run):
            self._leg_ends(what, at)
        elif isinstance(what, Change):
            self._change(what)
        elif isinstance(what, _Schedule):
            if what.wakes == at:
                self._attention[what.subject.schedule_id] = what
        elif isinstance(what, tuple) and kind == _ENDS:
            self.away = what[0]
        elif isinstance(what, tuple):
            self._return(*what)

    def _begin(self, run: _Run) -> None:
        run.schedule.active.append(run.run_id)
        self._take(run, int(run.holds_slot))
        self._at(self.now + run.course.legs[0].lasts, _ENDS, run)

    def _take(self, run: _Run, slots: int) -> None:
        executor = run.schedule.subject.executor
        if executor in self.used_elsewhere:
            self.used_elsewhere[executor] += slots
        else:
            self.used += slots

    def _leg_ends(self, run: _Run, at: datetime) -> None:
        was_held = run.holds_slot
        run.leg += 1
        if run.leg < len(run.course.legs):
            self._take(run, run.holds_slot - was_held)
            self._at(at + run.course.legs[run.leg].lasts, _ENDS, run)
            return
        if run.row is not None:
            self.rows[run.row] = replace(self.rows[run.row], status=run.course.status, ended_at=at)
        self._take(run, -int(was_held))
        if self.away is None:
            self._take_in(run)
        else:
            self._unseen.append(run)

    def _take_in(self, run: _Run) -> None:
        run.schedule.active.remove(run.run_id)
        if run.schedule.candidate is not None:
            self._attention[run.schedule.subject.schedule_id] = run.schedule

    def _return(self, begins: datetime, ends: datetime) -> None:
        """The supervisor is there again: it takes in what ended, then looks at everything that is due."""
        self.away = None
        self.absence = (begins, ends)
        for run in self._unseen:
            self._take_in(run)
        self._unseen.clear()

    # -- what people do --------------------------------------------------------------------------------------------------

    def _change(self, change: Change) -> None:
        schedule = self.schedules[change.schedule_id]
        if schedule.is_deleted:
            return
        match change.what:
            case "pause" if not schedule.is_paused:
                self._close_all(schedule, changes.Cause.PAUSED)
                schedule.is_paused = True
            case "resume" if schedule.is_paused:
                schedule.is_paused = False
                schedule.floor = max(schedule.floor, self.now)
            case "delete":
                if not schedule.is_paused:
                    self._close_all(schedule, changes.Cause.DELETED)
                schedule.is_deleted = True
            case "edit" if change.definition is not None:
                self._edit(schedule, change.definition)
        self._reckon(schedule, is_new=True)

    def _close_all(self, schedule: _Schedule, cause: changes.Cause) -> None:
        self._close(schedule, changes.close_all(self._due(schedule), schedule.candidate, cause=cause, now=self.now))
        schedule.candidate = None

    def _close(self, schedule: _Schedule, closing: changes.Closing) -> None:
        for settlement in closing.settled:
            self._record(schedule, settlement)
        if closing.watermark is not None:
            schedule.floor = max(schedule.floor, closing.watermark)

    def _edit(self, schedule: _Schedule, new: ScheduleDefinition) -> None:
        old = schedule.definition
        moves = changes.changes_trigger(old, new)
        if not schedule.is_paused:
            if moves:
                self._close_all(schedule, changes.Cause.EDITED)
            elif changes.changes_misfire(old, new):
                self._close(schedule, changes.close_missed(self._due(schedule), lateness=old.lateness, now=self.now))
        schedule.definition = new
        if moves:
            schedule.candidate = None
            schedule.calendar = calendar_of(new.trigger, self.now.replace(microsecond=0))
            schedule.floor = max(schedule.floor, self.now)
        self._attention[schedule.subject.schedule_id] = schedule

    # -- deciding --------------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Do what a round of the supervisor does, for all that needs attention now."""
        if self.away is not None:
            return
        concerned = {name: each for name, each in self._attention.items() if each.is_admitting}
        self._attention.clear()
        free = self.plan.slots - self.used
        others = {name: Slots(limit - self.used_elsewhere[name], limit) for name, limit in self.plan.others.items()}
        if max([free, *(slots.free for slots in others.values())]) > 0:
            concerned |= {each.subject.schedule_id: each for each in self._waiting(len(self.schedules) if others else free)}
        if not concerned:
            return
        facts = [self._facts(name, each) for name, each in concerned.items()]
        decided = decide_round(
            facts, now=self.now, free_slots=free, slot_limit=self.plan.slots, next_run=self.next_run, others=others
        )
        self._write(concerned, decided.decisions)

    def _waiting(self, free: int) -> Iterator[_Schedule]:
        waiting = (each for each in self.schedules.values() if each.waits_for_capacity)
        return iter(heapq.nsmallest(free + _ASKED, waiting, key=_held_longest))

    def _facts(self, name: str, schedule: _Schedule) -> ScheduleFacts:
        return ScheduleFacts(
            schedule_id=name,
            definition=schedule.definition,
            floor=schedule.floor,
            candidate=schedule.candidate,
            due=self._due(schedule),
            active=tuple(schedule.active),
            last_admission=schedule.last_admission,
            executor=schedule.subject.executor,
            verdict=self.plan.verdicts(name, self.now),
            absence=self._absence_of(schedule),
        )

    def _absence_of(self, schedule: _Schedule) -> Reason | None:
        if self.absence is None or schedule.floor >= self.absence[1]:
            return None
        begins, ends = self.absence
        return {"absent": {"from": format_instant(begins), "until": format_instant(ends)}}

    def _due(self, schedule: _Schedule) -> DueInstants:
        is_due = schedule.coming is not None and schedule.coming <= self.now
        return schedule.calendar.due(schedule.floor, self.now) if is_due else _NOTHING_DUE

    def _write(self, concerned: Mapping[str, _Schedule], decisions: Mapping[str, Decision]) -> None:
        starts: list[tuple[int, _Schedule, Settlement, int]] = []
        for name, decision in decisions.items():
            schedule = concerned[name]
            for settlement in decision.settled:
                row = self._record(schedule, settlement)
                if settlement.run is not None:
                    starts.append((settlement.run, schedule, settlement, row))
            moved = decision.watermark > schedule.floor
            schedule.floor = max(schedule.floor, decision.watermark)
            schedule.candidate = decision.candidate
            if decision.admit:
                schedule.last_admission = self.now
            self._reckon(schedule, is_new=moved)
        for number, schedule, settlement, row in sorted(starts, key=lambda start: start[0]):
            course = self.plan.courses(schedule.subject.schedule_id, settlement.instant, self.now)
            self._begin(_Run(schedule, run_name(number), course, row))
            self.next_run = max(self.next_run, number + 1)

    def _record(self, schedule: _Schedule, settlement: Settlement) -> int:
        status = Status.RUNNING if settlement.status is Status.ADMITTED else settlement.status
        self.rows.append(
            Played(schedule_id=schedule.subject.schedule_id, settlement=settlement, decided_at=self.now, status=status)
        )
        return len(self.rows) - 1

    def _reckon(self, schedule: _Schedule, *, is_new: bool = True) -> None:
        """Work out when the schedule needs attention next: its next instant, or the end of its candidate's lateness."""
        if is_new:
            schedule.coming = schedule.calendar.next_after(schedule.floor)
        times = [schedule.coming] if schedule.coming is not None else []
        if schedule.candidate is not None and schedule.candidate.can_expire:
            times.append(schedule.candidate.instant + schedule.definition.lateness + _JUST_AFTER)
        wakes = min(times) if times and schedule.is_admitting else None
        if wakes != schedule.wakes:
            schedule.wakes = wakes
            if wakes is not None:
                self._at(wakes, _WAKES, schedule)

    def _note_usage(self) -> None:
        if not self.usage or self.usage[-1][1] != self.used:
            self.usage.append((self.now, self.used))


def _held_longest(schedule: _Schedule) -> tuple[datetime, datetime, str]:
    assert schedule.candidate is not None
    last = schedule.last_admission or datetime.min.replace(tzinfo=schedule.candidate.held_since.tzinfo)
    return schedule.candidate.held_since, last, schedule.subject.schedule_id
