"""Plays a story with `decide_round`, keeping beside it only what the contract says a ledger keeps.

Changes of definition and clock events (contract 3.4, 5.11, 5.12, 5.14) are settled here by hand.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.admission_model import HOUR, Row
from wfctl.core.admission import PASSED, REANCHOR_AFTER, Decision, ScheduleFacts, Verdict, decide_round
from wfctl.core.instants import parse_instant
from wfctl.core.model import (
    Candidate,
    DueInstants,
    IntervalTrigger,
    Misfire,
    Overlap,
    Reason,
    ScheduleDefinition,
    Settlement,
    Span,
    run_name,
    run_number,
)

ZERO = datetime(2026, 3, 1, tzinfo=UTC)
START = 6 * HOUR  #: when each story begins, in seconds after ZERO
INCOMPLETE = Verdict(reason={"code": "preflight", "problem": "the working directory is gone"})

Policy = tuple[str, int, str, int]  #: overlap, limit, misfire, lateness
Event = tuple[Any, ...]  #: the name of a method of the model and its arguments


@dataclass(frozen=True)
class Story:
    """What happens: slots, the schedules that are there at first, and the events in order."""

    slots: int
    calendars: tuple[tuple[int, ...], ...]
    policies: tuple[Policy, ...]
    events: tuple[Event, ...]

    def tells_of(self, *names: str) -> bool:
        return any(event[0] in names for event in self.events)

    @property
    def steps_back(self) -> bool:
        return any(event[0] == "clock" and event[1] < 0 for event in self.events)


@dataclass(frozen=True)
class Admission:
    """What was true when a run was admitted."""

    schedule: int
    instant: int
    now: int
    unfinished: int
    limit: int
    slots_taken: int
    slots: int
    late_allowed: bool  #: within lateness, under policy latest, or held free of expiry


@dataclass
class Outcome:
    """How a story went: rows by schedule, what each event left held and consumed, and the admissions."""

    history: dict[str, list[Row]]
    trace: list[Any] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    windows: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)  #: instants that came due, by schedule


def schedule_name(which: int) -> str:
    return "cab"[which % 3] + str(which)


def moment(seconds: int) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def seconds(instant: datetime) -> int:
    return (instant - ZERO) // timedelta(seconds=1)


def definition(overlap: str, limit: int, misfire: str, lateness: int) -> ScheduleDefinition:
    return ScheduleDefinition(
        deployment="report",
        trigger=IntervalTrigger(timedelta(seconds=30)),
        overlap=Overlap(overlap),
        max_active_runs=limit if overlap == "parallel" else None,
        misfire=Misfire(misfire),
        lateness=timedelta(seconds=lateness),
    )


@dataclass
class Kept:
    """What a ledger keeps of a schedule."""

    number: int
    calendar: tuple[int, ...]
    definition: ScheduleDefinition
    watermark: datetime
    effective_from: datetime
    state: str = "active"
    candidate: Candidate | None = None
    last_admission: datetime | None = None
    verdict: Verdict = PASSED

    @property
    def id(self) -> str:
        return schedule_name(self.number)

    @property
    def floor(self) -> datetime:
        return max(self.watermark, self.effective_from)

    def named(self, after: datetime, until: datetime) -> tuple[int, ...]:
        """The calendar's instants in (after, until]."""
        return self.calendar[bisect_right(self.calendar, seconds(after)) : bisect_right(self.calendar, seconds(until))]

    def begin_anew(self, now: datetime) -> None:
        self.watermark, self.effective_from = max(self.floor, now), now


@dataclass
class Run:
    schedule_id: str
    instant: int
    holds: str = "both"  #: or `overlap` (interrupted), or nothing (ended)


class Player:
    """Keeps what the contract says is kept and hands it to `decide_round`; changes and clock events are settled here."""

    def __init__(self, story: Story) -> None:
        pairs = zip(story.calendars, story.policies, strict=True)
        self.kept = [
            Kept(n, calendar, definition(*policy), moment(START), moment(START)) for n, (calendar, policy) in enumerate(pairs)
        ]
        self.slots = story.slots
        self.now = moment(START)
        self.runs: list[Run] = []
        self.outcome = Outcome({kept.id: [] for kept in self.kept}, windows={kept.id: [] for kept in self.kept})

    def play(self, story: Story) -> Outcome:
        for name, *arguments in story.events:
            floors = [kept.floor for kept in self.kept]
            is_clock_event = name == "step" and any(floor - self.now > REANCHOR_AFTER for floor in floors)
            getattr(self, name)(*arguments)
            assert is_clock_event or all(kept.floor >= before for kept, before in zip(self.kept, floors, strict=True))
            held = [
                c and (seconds(c.instant), seconds(c.held_since), c.can_expire, c.reason["code"]) for c in self._candidates()
            ]
            self.outcome.trace.append(((name, *arguments), held, [seconds(kept.floor) for kept in self.kept]))
        return self.outcome

    def _candidates(self) -> list[Candidate | None]:
        return [kept.candidate for kept in self.kept]

    # -- deciding --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        going = [kept for kept in self.kept if kept.state == "active"]
        for kept in going:
            if kept.floor - self.now > REANCHOR_AFTER:
                self._reanchor(kept)
        verdicts: dict[str, Verdict] = {}
        free = self.slots - self._slots_taken()
        while True:
            facts = [self._facts(kept, verdicts.get(kept.id)) for kept in going]
            decided = decide_round(facts, now=self.now, free_slots=free, slot_limit=self.slots, next_run=len(self.runs) + 1)
            if not decided.needs_preflight:
                break
            assert not verdicts.keys() & set(decided.needs_preflight)
            verdicts |= {kept.id: kept.verdict for kept in going if kept.id in decided.needs_preflight}
        assert decided.free_slots == free - len(decided.admitted)
        self._enter_runs(decided.admitted)
        for kept in going:
            decision = decided.decisions[kept.id]
            outcomes = {row.status for row in decision.settled}
            assert (kept.id in verdicts) == bool(outcomes & {"admitted", "preflight-rejected"})  # 5.9: asked only with room
            self._enter(kept, decision)

    def _facts(self, kept: Kept, verdict: Verdict | None) -> ScheduleFacts:
        admitted = self._runs_of(kept)
        due = kept.named(kept.floor, self.now)
        return ScheduleFacts(
            schedule_id=kept.id,
            definition=kept.definition,
            floor=kept.floor,
            candidate=kept.candidate,
            due=as_due(due, admitted),
            active=tuple(run_name(n) for n, run in enumerate(self.runs, 1) if run.schedule_id == kept.id and run.holds),
            last_admission=kept.last_admission,
            passed=frozenset(moment(t) for t in due if t in admitted),
            verdict=verdict,
        )

    def _enter_runs(self, admitted: tuple[tuple[str, datetime], ...]) -> None:
        by_id = {kept.id: kept for kept in self.kept}
        for schedule_id, instant in admitted:
            kept = by_id[schedule_id]
            held = kept.candidate
            is_free = held is not None and not held.can_expire and held.instant == instant
            self.outcome.admissions.append(
                Admission(
                    schedule=kept.number,
                    instant=seconds(instant),
                    now=seconds(self.now),
                    unfinished=len([run for run in self.runs if run.schedule_id == schedule_id and run.holds]),
                    limit=kept.definition.limit,
                    slots_taken=self._slots_taken(),
                    slots=self.slots,
                    late_allowed=is_free
                    or kept.definition.misfire is Misfire.LATEST
                    or self.now - instant <= kept.definition.lateness,
                )
            )
            self.runs.append(Run(schedule_id, seconds(instant)))
            kept.last_admission = self.now

    def _enter(self, kept: Kept, decision: Decision) -> None:
        before = kept.floor
        kept.candidate = decision.candidate
        kept.watermark = decision.watermark
        admitted = [row.instant for row in decision.settled if row.run]
        assert tuple(admitted) == decision.admit
        earlier = self._runs_of(kept) - {seconds(t) for t in decision.admit}
        older = tuple(t for t in kept.named(before, self.now) if t not in earlier)[:-100]
        for row in decision.settled:
            self._write(kept, as_row(row, older))
        self.outcome.windows[kept.id].append(kept.named(before, kept.floor))

    def _runs_of(self, kept: Kept) -> set[int]:
        """The instants that have a run."""
        return {run.instant for run in self.runs if run.schedule_id == kept.id}

    def _write(self, kept: Kept, row: Row) -> None:
        self.outcome.history[kept.id].append(row)

    def _slots_taken(self) -> int:
        return len([run for run in self.runs if run.holds == "both"])

    # -- the world -------------------------------------------------------------------------------------------------------

    def clock(self, by: int) -> None:
        self.now += timedelta(seconds=by)

    def capacity(self, slots: int) -> None:
        self.slots = slots

    def preflight(self, which: int, is_complete: bool) -> None:
        self.kept[which].verdict = PASSED if is_complete else INCOMPLETE

    def end(self, which: int) -> None:
        self._set_run(which, {"both", "overlap"}, "")

    def interrupt(self, which: int) -> None:
        self._set_run(which, {"both"}, "overlap")

    def carry_on(self, which: int) -> None:
        if self._slots_taken() < self.slots:
            self._set_run(which, {"overlap"}, "both")

    def _set_run(self, which: int, holding: set[str], becomes: str) -> None:
        runs = [run for run in self.runs if run.holds in holding]
        if runs:
            runs[which % len(runs)].holds = becomes

    # -- changes: 3.4, 5.11, 5.12 ----------------------------------------------------------------------------------------

    def pause(self, which: int) -> None:
        if self.kept[which].state == "active":
            self._settle_all(self.kept[which], "paused")
            self.kept[which].state = "paused"

    def resume(self, which: int) -> None:
        if self.kept[which].state == "paused":
            self.kept[which].begin_anew(self.now)
            self.kept[which].state = "active"

    def delete(self, which: int) -> None:
        if self.kept[which].state == "active":
            self._settle_all(self.kept[which], "deleted")
        self.kept[which].state = "deleted"

    def trigger(self, which: int, calendar: tuple[int, ...]) -> None:
        kept = self.kept[which]
        if kept.state == "active":
            self._settle_all(kept, "edited")
        if kept.state != "deleted":
            kept.calendar = calendar
            kept.begin_anew(self.now)

    def edit(self, which: int, *policy: Any) -> None:
        kept = self.kept[which]
        before, after = kept.definition, definition(*policy)
        if kept.state == "active" and (before.misfire, before.lateness) != (after.misfire, after.lateness):
            self._settle(kept, "edited", self.now - before.lateness)
        if kept.state != "deleted":
            kept.definition = after

    def _settle_all(self, kept: Kept, code: str) -> None:
        rows = self._settle(kept, code, self.now + timedelta(seconds=1))
        if kept.candidate:
            held = seconds(kept.candidate.instant)
            self.outcome.history[kept.id].insert(-rows or len(self.outcome.history[kept.id]), Row((held,), "coalesced", code))
            kept.candidate = None

    def _settle(self, kept: Kept, code: str, before: datetime) -> int:
        """Settle as missed what is due and older than `before`, or too old to be listed; return how many rows that made."""
        due = kept.named(kept.floor, self.now)
        admitted = self._runs_of(kept)
        fresh = [t for t in due if t not in admitted]
        older, listed = fresh[:-100], [t for t in fresh[-100:] if moment(t) < before]
        groups = [tuple(older)] * bool(older) + [(t,) for t in listed]
        for members in groups:
            self._write(kept, Row(members, "skipped-misfire", code))
        consumed = due if before > self.now else tuple(t for members in groups for t in members)
        self.outcome.windows[kept.id].append(consumed)
        kept.watermark = max([kept.watermark, *map(moment, consumed)])
        return len(groups)

    def _reanchor(self, kept: Kept) -> None:
        """5.14: what admitted nothing and lies later than now is withdrawn."""
        kept.watermark = kept.effective_from = self.now
        if kept.candidate and kept.candidate.instant > self.now:
            kept.candidate = None
        now = seconds(self.now)
        rows = self.outcome.history[kept.id]
        cut = [
            row if row.run else Row(tuple(t for t in row.members if t <= now), row.status, row.code, row.data) for row in rows
        ]
        self.outcome.history[kept.id] = [row for row in cut if row.members]


def as_due(due: tuple[int, ...], admitted: set[int]) -> DueInstants:
    """The newest hundred that have no run, with those that have one among them; the span claims none that has (5.14)."""
    older = [t for t in due if t not in admitted][:-100]
    span = Span(moment(older[0]), moment(older[-1]), len(older)) if older else None
    return DueInstants(tuple(moment(t) for t in due if not older or t > older[-1]), span)


def as_row(settled: Settlement, older: tuple[int, ...]) -> Row:
    members: tuple[int, ...] = (seconds(settled.instant),)
    if settled.span:
        span = settled.span
        assert (seconds(span.first), seconds(span.last), span.count, settled.instant) == (
            older[0],
            older[-1],
            len(older),
            span.last,
        )
        members = older
    reason = settled.reason
    return Row(members, str(settled.status), reason["code"] if reason else None, as_data(reason, settled), settled.run)


def as_data(reason: Reason | None, settled: Settlement) -> Any:
    if reason and "by" in reason:
        return seconds(parse_instant(reason["by"]))
    if reason and settled.status == "skipped-overlap":
        return tuple(run_number(name) for name in reason["runs"]), reason["limit"]
    return None


def play(story: Story) -> Outcome:
    return Player(story).play(story)
