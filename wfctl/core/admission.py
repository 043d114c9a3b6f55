"""Deciding which due instants become runs: misfire, overlap, capacity and preflight (contract 5).

`decide_round` settles all schedules of one moment; `decide_admission` is the same for a single one. The supervisor, `simulate`
and the tests call these and nothing else, so what is predicted is what happens.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from wfctl.core.instants import format_instant
from wfctl.core.model import (
    LOCAL,
    Candidate,
    DueInstants,
    Misfire,
    Overlap,
    Reason,
    ScheduleDefinition,
    Settlement,
    Status,
    run_name,
)

LIST_LIMIT = 100  #: the newest due instants that get a row each (5.2)
REANCHOR_AFTER = timedelta(hours=3)  #: a step back beyond this re-anchors the schedule (5.14)
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What preflight said (5.9): `reason` is None when all is there, else the reason of the rejection."""

    reason: Reason | None = None


PASSED = Verdict()


_NOTHING_DUE = DueInstants()


class ScheduleFacts(NamedTuple):
    """All that a decision about one active, unblocked schedule depends on. Instants are aware UTC."""

    schedule_id: str
    definition: ScheduleDefinition
    floor: datetime  #: the later of the watermark and `effective_from`
    candidate: Candidate | None = None
    due: DueInstants = _NOTHING_DUE  #: the trigger's instants in (floor, now], the newest 100 listed
    active: tuple[str, ...] = ()  #: ids of its unfinished scheduled runs
    last_admission: datetime | None = None
    executor: str = LOCAL  #: whose slots its runs take
    passed: frozenset[datetime] = frozenset()  #: due instants admitted before the clock stepped back (5.14)
    verdict: Verdict | None = None  #: None: preflight was not asked yet
    absence: Reason | None = (
        None  #: when no supervisor was there, if it explains the lateness: data for the reason of a misfire
    )


class Slots(NamedTuple):
    """The execution slots of one executor (5.4)."""

    free: int
    limit: int


class Decision(NamedTuple):
    """What one step settled for a schedule. Writing it is the store's job; starting `admit` is the keeper's."""

    watermark: datetime  #: consumed up to and including this UTC instant
    candidate: Candidate | None  #: the one instant still held
    admit: tuple[datetime, ...]  #: the instants to turn into runs now, ascending
    settled: tuple[Settlement, ...]  #: rows and span rows for the history, oldest first, the admitted ones among them
    needs_preflight: bool = False  #: an instant reached preflight without a verdict: ask, then decide again


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The decisions of one moment, by schedule id, and the order in which runs are numbered."""

    decisions: Mapping[str, Decision]
    admitted: tuple[tuple[str, datetime], ...]  #: (schedule id, instant); the n-th is run `next_run + n`
    needs_preflight: tuple[str, ...]
    free_slots: int  #: what is left


def decide_admission(
    facts: ScheduleFacts, *, now: datetime, free_slots: int, slot_limit: int | None = None, next_run: int = 1
) -> Decision:
    """Given one schedule's facts, return its decision at `now`, as if it alone were due.

    Shape: see `Decision`. Raise ValueError for a naive `now`.
    Source: contract 5.1 to 5.6.
    """
    decided = decide_round([facts], now=now, free_slots=free_slots, slot_limit=slot_limit, next_run=next_run)
    return decided.decisions[facts.schedule_id]


def decide_round(
    all_facts: Iterable[ScheduleFacts],
    *,
    now: datetime,
    free_slots: int,
    slot_limit: int | None = None,
    next_run: int = 1,
    others: Mapping[str, Slots] | None = None,
) -> Round:
    """Given the facts of every schedule that may have something to settle, decide them all at `now`.

    Units: `free_slots` of `slot_limit` execution slots of this machine are free, `others` has those of other executors by name;
    `next_run` is the number that the first admitted run gets.
    Shape: candidates are considered first, longest held first, then new instants by instant; ties go to the schedule whose last
    admission is longest ago, then by id (5.8). Each consideration sees the room that those before it left (5.5).
    A schedule without a verdict that needs one is decided as if preflight passed, and named in `needs_preflight`.
    Raise ValueError for a naive `now`.
    Source: contract 5.1 to 5.8.
    """
    if now.tzinfo is None:
        raise ValueError("`now` must be an aware datetime")
    capacity = _Capacity(
        rooms={name: _Room(slots.free, slots.limit) for name, slots in (others or {}).items()},
        local=_Room(free_slots, free_slots if slot_limit is None else slot_limit),
        next_run=next_run,
    )
    steps = {facts.schedule_id: _Step(facts, now) for facts in all_facts}
    again: list[_Turn] = []  # those that have another instant to consider
    for turn in sorted(step.turn() for step in steps.values() if step.waiting):
        while again and again[0] < turn:
            _consider(steps[heapq.heappop(again)[-1]], capacity, again)
        _consider(steps[turn[-1]], capacity, again)
    while again:
        _consider(steps[heapq.heappop(again)[-1]], capacity, again)
    return Round(
        decisions={schedule_id: step.decision() for schedule_id, step in steps.items()},
        admitted=tuple(capacity.admitted),
        needs_preflight=tuple(schedule_id for schedule_id, step in steps.items() if step.needs_preflight),
        free_slots=capacity.local.free,
    )


_Turn = tuple[int, datetime, datetime, str]  #: what the order of considerations goes by (5.8); the id makes it one of a kind


def _consider(step: _Step, capacity: _Capacity, again: list[_Turn]) -> None:
    step.consider_next(capacity)
    if step.waiting:
        heapq.heappush(again, step.turn())


@dataclass(slots=True)
class _Room:
    free: int
    limit: int


@dataclass(slots=True)
class _Capacity:
    """The execution slots that one round hands out (5.4)."""

    rooms: dict[str, _Room]  #: of executors other than this machine
    local: _Room
    next_run: int
    admitted: list[tuple[str, datetime]] = field(default_factory=list)

    def room(self, executor: str) -> _Room:
        return self.local if executor == LOCAL else self.rooms.get(executor, self.local)

    def take(self, room: _Room, schedule_id: str, instant: datetime) -> int:
        room.free -= 1
        number = self.next_run + len(self.admitted)
        self.admitted.append((schedule_id, instant))
        return number


class _Step:
    """One schedule's way through a round: what is settled without asking for room first, then one consideration at a time."""

    __slots__ = (
        "active",
        "admit",
        "candidate",
        "facts",
        "is_skip",
        "last_admission",
        "needs_preflight",
        "now",
        "settled",
        "waiting",
        "watermark",
    )

    def __init__(self, facts: ScheduleFacts, now: datetime) -> None:
        self.facts = facts
        self.is_skip = facts.definition.misfire is Misfire.SKIP
        self.now = now
        self.candidate = facts.candidate
        self.active = facts.active
        self.last_admission = facts.last_admission
        self.watermark = facts.floor
        self.settled: list[Settlement] = []
        self.admit: list[datetime] = []
        self.waiting: list[datetime] = []  #: still to be considered, newest first
        self.needs_preflight = False
        if now >= facts.floor:  # a clock that stands before the floor consumes and admits nothing (5.14)
            self._settle_what_needs_no_room()

    # -- what is settled whatever the room -------------------------------------------------------------------------------

    def _settle_what_needs_no_room(self) -> None:
        if self.candidate:
            self._expire(self.candidate)
        due, passed = self.facts.due, self.facts.passed
        instants = tuple(instant for instant in due.instants if instant not in passed) if passed else due.instants
        if due.instants:
            self.watermark = due.instants[-1]
        elif due.older:
            self.watermark = due.older.last
        chosen = self._skip_missed(instants) if self.is_skip else self._coalesce(instants)
        self.waiting = sorted(chosen, reverse=True) if len(chosen) > 1 else chosen

    def _expire(self, held: Candidate) -> None:
        if held.can_expire and self._lateness(held.instant) > self.facts.definition.lateness:  # 5.5 (a)
            reason = held.reason if held.reason.get("code") == "capacity" else {"code": "capacity"}
            self._settle(held.instant, Status.SKIPPED_MISFIRE, reason)
            self.candidate = None

    def _skip_missed(self, instants: Sequence[datetime]) -> list[datetime]:
        """Misfire skip, 5.5 (b): settle what is missed; what is left is the candidate and each on-time instant."""
        allowed, older = self.facts.definition.lateness, self.facts.due.older
        if older is None and (not instants or self._lateness(instants[0]) <= allowed):
            return self._with_candidate(instants)  # nothing was
        missed = [instant for instant in instants if self._lateness(instant) > allowed]
        newest_missed = missed[-1] if missed else older.last if older else None
        if self.candidate and newest_missed and self.candidate.instant < newest_missed:
            outlived = {"code": "outlived", "by": format_instant(newest_missed)}
            self._settle(self.candidate.instant, Status.SKIPPED_MISFIRE, outlived)
            self.candidate = None
        reason: Reason = {"code": "missed", "allowed_s": allowed.total_seconds(), **(self.facts.absence or {})}
        self._settle_older(Status.SKIPPED_MISFIRE, reason)
        for instant in missed:
            self._settle(instant, Status.SKIPPED_MISFIRE, reason)
        return self._with_candidate(instants[len(missed) :])

    def _coalesce(self, instants: Sequence[datetime]) -> list[datetime]:
        """Misfire latest, 5.5 (c): of the candidate and all that is due only the newest is considered."""
        if not instants:
            if self.facts.due.older:
                self._settle_older(Status.COALESCED, {"code": "newer", "by": format_instant(self.facts.due.instants[-1])})
            return self._with_candidate([])
        newest = instants[-1]
        if len(instants) == 1 and self.candidate is None and self.facts.due.older is None:
            return [newest]
        reason: Reason = {"code": "newer", "by": format_instant(newest), **(self.facts.absence or {})}
        if self.candidate:
            # It stays in `self.candidate` until the newest is considered, which inherits from it if it must be held (5.6).
            self._settle(self.candidate.instant, Status.COALESCED, {"code": "newer", "by": format_instant(newest)})
        self._settle_older(Status.COALESCED, reason)
        for instant in instants[:-1]:
            self._settle(instant, Status.COALESCED, reason)
        return [newest]

    def _settle_older(self, status: Status, reason: Reason) -> None:
        span = self.facts.due.older
        if span:
            lateness = self._lateness(span.last)
            self.settled.append(Settlement(instant=span.last, status=status, reason=reason, span=span, lateness=lateness))

    def _with_candidate(self, instants: Sequence[datetime]) -> list[datetime]:
        if self.candidate is None or self.candidate.instant > self.now:
            return list(instants)
        return [self.candidate.instant, *instants]

    # -- one consideration -----------------------------------------------------------------------------------------------

    def turn(self) -> _Turn:
        """Return the place of the next consideration in the order of 5.8."""
        last = self.last_admission or _LONG_AGO
        if self.candidate and self.candidate.instant == self.waiting[-1]:
            return (0, self.candidate.held_since, last, self.facts.schedule_id)
        return (1, self.waiting[-1], last, self.facts.schedule_id)

    def consider_next(self, capacity: _Capacity) -> None:
        """Consider one instant: room by overlap, then by capacity, then preflight, then admitted (the table of 5.5)."""
        instant = self.waiting.pop()
        room = capacity.room(self.facts.executor)
        if len(self.active) >= self.facts.definition.limit:
            self._without_overlap_room(instant)
        elif room.free <= 0:
            whose = {} if room is capacity.local else {"executor": self.facts.executor}
            reason = {"code": "capacity", "limit": room.limit, **whose}
            self._hold(instant, can_expire=self.is_skip, reason=reason)
        elif self.facts.verdict and self.facts.verdict.reason:
            self._drop_held(instant)
            self._settle(instant, Status.PREFLIGHT_REJECTED, self.facts.verdict.reason)
        else:
            self.needs_preflight |= self.facts.verdict is None
            self._admit(instant, capacity, room)

    def _without_overlap_room(self, instant: datetime) -> None:
        reason: Reason = {"code": "overlap", "runs": list(self.active), "limit": self.facts.definition.limit}
        if not self.is_skip or self.facts.definition.overlap is Overlap.QUEUE:
            self._hold(instant, can_expire=False, reason=reason)
        elif self._is_held(instant):  # stays held, whatever the policy has become since; its expiry is left as it is
            assert self.candidate
            self.candidate = replace(self.candidate, reason=reason)
        else:
            self._settle(instant, Status.SKIPPED_OVERLAP, reason)

    def _is_held(self, instant: datetime) -> bool:
        return self.candidate is not None and self.candidate.instant == instant

    def _hold(self, instant: datetime, *, can_expire: bool, reason: Reason) -> None:
        """Hold the instant; one already held is replaced, and what it had of first-held time and freedom is inherited (5.6)."""
        held = self.candidate
        if held and held.instant != instant and self.is_skip:
            self._settle(held.instant, Status.COALESCED, {"code": "newer", "by": format_instant(instant)})
        self.candidate = Candidate(
            instant=instant,
            held_since=held.held_since if held else self.now,
            can_expire=can_expire and (held is None or held.can_expire),
            reason=reason,
        )

    def _admit(self, instant: datetime, capacity: _Capacity, room: _Room) -> None:
        number = capacity.take(room, self.facts.schedule_id, instant)
        if self.candidate is not None:
            self._drop_held(instant)
        self._settle(instant, Status.ADMITTED, None, run=number)
        self.admit.append(instant)
        self.active = (*self.active, run_name(number))
        self.last_admission = self.now

    def _drop_held(self, instant: datetime) -> None:
        # Under misfire latest the candidate was coalesced into the newest; under skip only the candidate itself ends here.
        if self._is_held(instant) or not self.is_skip:
            self.candidate = None

    def _lateness(self, instant: datetime) -> timedelta:
        return self.now - instant

    def _settle(self, instant: datetime, status: Status, reason: Reason | None, *, run: int | None = None) -> None:
        late = self.now - instant
        self.settled.append(
            Settlement.of_all(
                {"instant": instant, "status": status, "reason": reason, "span": None, "lateness": late, "run": run}
            )
        )

    def decision(self) -> Decision:
        return Decision(
            watermark=self.watermark,
            candidate=self.candidate,
            admit=tuple(self.admit),
            settled=tuple(sorted(self.settled, key=lambda row: row.instant) if len(self.settled) > 1 else self.settled),
            needs_preflight=self.needs_preflight,
        )
