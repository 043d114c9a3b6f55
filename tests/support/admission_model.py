"""A slow, obvious model of deciding: a whole world of schedules kept in lists, written from contract 5 alone.

It shares no code with `wfctl.core`. Time is whole seconds, an instant is one of them, a calendar is a list of them.
The public methods of `Model` are what a story may do to the world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

HOUR = 3600


@dataclass(frozen=True)
class Row:
    """One row of a schedule's history: `members` are the instants it stands for, more than one for a span row."""

    members: tuple[int, ...]
    status: str
    code: str | None = None
    data: Any = None  #: the replacing instant; or (blocking runs, limit); or the full limit of slots
    run: int | None = None


@dataclass
class Held:
    instant: int
    since: int
    can_expire: bool
    code: str


@dataclass
class Plan:
    """One schedule: what a person decided and what the system knows of it."""

    id: str
    calendar: list[int]
    overlap: str
    limit: int
    misfire: str
    lateness: int
    effective_from: int
    watermark: int
    state: str = "active"
    held: Held | None = None
    inherits: Held | None = None  #: the candidate that gave way to a newer instant in this very step
    last_admission: int | None = None
    is_complete: bool = True  #: what preflight would find


class Model:
    """The world: schedules, runs, slots and the clock; `history` is what each schedule's occurrences came to."""

    def __init__(self, slots: int, now: int, plans: list[Plan]) -> None:
        self.slots, self.now, self.plans = slots, now, plans
        self.runs: list[dict[str, Any]] = []
        self.history: dict[str, list[Row]] = {plan.id: [] for plan in plans}
        self.fresh: list[tuple[str, Row]] = []

    def do(self, event: str, *arguments: Any) -> None:
        getattr(self, event)(*arguments)
        for name, row in sorted(self.fresh, key=lambda pair: pair[1].members[-1]):  # 8.2: oldest first within a schedule
            self.history[name].append(row)
        self.fresh = []

    # -- the clock and the runs ------------------------------------------------------------------------------------------

    def clock(self, seconds: int) -> None:
        self.now += seconds

    def capacity(self, slots: int) -> None:
        self.slots = slots

    def preflight(self, which: int, is_complete: bool) -> None:
        self.plans[which].is_complete = is_complete

    def end(self, which: int) -> None:
        self._change_run(which, ("running", "interrupted"), "ended")

    def interrupt(self, which: int) -> None:
        self._change_run(which, ("running",), "interrupted")

    def carry_on(self, which: int) -> None:
        if self._slots_taken() < self.slots:  # 6.13: else refused, nothing changed
            self._change_run(which, ("interrupted",), "running")

    def _change_run(self, which: int, states: tuple[str, ...], becomes: str) -> None:
        runs = [run for run in self.runs if run["state"] in states]
        if runs:
            runs[which % len(runs)]["state"] = becomes

    def _unfinished(self, plan: Plan) -> list[int]:
        return [run["number"] for run in self.runs if run["plan"] == plan.id and run["state"] != "ended"]

    def _slots_taken(self) -> int:
        return len([run for run in self.runs if run["state"] == "running"])

    # -- one step (5.5) --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        lines: dict[str, list[int]] = {}
        for plan in self.plans:
            if plan.state == "active" and self._floor(plan) - self.now > 3 * HOUR:
                self._reanchor(plan)
            if plan.state == "active" and self._floor(plan) <= self.now:
                lines[plan.id] = self._settle_without_room(plan)
        while any(lines.values()):
            plan = min((p for p in self.plans if lines.get(p.id)), key=lambda p: self._place(p, lines[p.id][0]))
            self._consider(plan, lines[plan.id].pop(0))

    def _settle_without_room(self, plan: Plan) -> list[int]:
        """Do (a), (b) and (c); return what is to be considered, ascending."""
        plan.inherits = None
        if plan.held and plan.held.can_expire and self.now - plan.held.instant > plan.lateness:
            self._end_held(plan, "skipped-misfire", "capacity")
        due = self._due(plan)
        self._consume(plan)
        if plan.misfire == "skip":
            missed = self._missed(plan, due)
            if plan.held and any(plan.held.instant < instant for instant in missed):
                self._end_held(plan, "skipped-misfire", "outlived", missed[-1])
            self._note_all(plan, missed, due, "skipped-misfire", "missed")
            return ([plan.held.instant] if plan.held else []) + [t for t in due if t not in missed]
        if not due:
            return [plan.held.instant] if plan.held else []
        plan.inherits = plan.held
        if plan.held:
            self._end_held(plan, "coalesced", "newer", due[-1])
        self._note_all(plan, due[:-1], due, "coalesced", "newer", due[-1])
        return due[-1:]

    def _consider(self, plan: Plan, instant: int) -> None:
        is_candidate = plan.held is not None and plan.held.instant == instant
        runs = self._unfinished(plan)
        if len(runs) >= plan.limit:
            if plan.misfire == "latest" or plan.overlap == "queue":
                self._hold(plan, instant, False, "overlap")
            elif plan.held and is_candidate:
                plan.held.code = "overlap"
            else:
                self._note(plan, Row((instant,), "skipped-overlap", "overlap", (tuple(runs), plan.limit)))
        elif self._slots_taken() >= self.slots:
            self._hold(plan, instant, plan.misfire == "skip", "capacity")
        else:
            if is_candidate:
                plan.held = None
            if plan.is_complete:
                self._admit(plan, instant)
            else:
                self._note(plan, Row((instant,), "preflight-rejected", "preflight"))

    def _hold(self, plan: Plan, instant: int, can_expire: bool, code: str) -> None:
        before = plan.held or plan.inherits
        if plan.held and plan.held.instant != instant:
            self._end_held(plan, "coalesced", "newer", instant)
        since = before.since if before else self.now
        plan.held = Held(instant, since, can_expire and (before is None or before.can_expire), code)

    def _admit(self, plan: Plan, instant: int) -> None:
        number = len(self.runs) + 1
        self.runs.append({"number": number, "plan": plan.id, "instant": instant, "state": "running"})
        plan.last_admission = self.now
        self._note(plan, Row((instant,), "admitted", run=number))

    def _place(self, plan: Plan, instant: int) -> tuple[int, int, float, str]:
        """The order of 5.8: candidates by the time first held, then new instants; whoever was admitted longest ago; id."""
        last = -1.0 if plan.last_admission is None else plan.last_admission
        if plan.held and plan.held.instant == instant:
            return (0, plan.held.since, last, plan.id)
        return (1, instant, last, plan.id)

    # -- what is due -----------------------------------------------------------------------------------------------------

    def _floor(self, plan: Plan) -> int:
        return max(plan.watermark, plan.effective_from)

    def _due(self, plan: Plan) -> list[int]:
        """What the calendar names in (floor, now]; an occurrence that has a run passes quietly (5.14)."""
        admitted = [run["instant"] for run in self.runs if run["plan"] == plan.id]
        return [t for t in plan.calendar if self._floor(plan) < t <= self.now and t not in admitted]

    def _consume(self, plan: Plan) -> None:
        plan.watermark = max([self._floor(plan)] + [t for t in plan.calendar if self._floor(plan) < t <= self.now])

    def _missed(self, plan: Plan, due: list[int]) -> list[int]:
        return [t for t in due if self.now - t > plan.lateness or t not in due[-100:]]

    # -- changes (3.4, 5.11, 5.12) and the clock event of 5.14 -----------------------------------------------------------

    def pause(self, which: int) -> None:
        if self.plans[which].state == "active":
            self._stop(self.plans[which], "paused")
            self.plans[which].state = "paused"

    def resume(self, which: int) -> None:
        if self.plans[which].state == "paused":
            self._begin_anew(self.plans[which])
            self.plans[which].state = "active"

    def delete(self, which: int) -> None:
        if self.plans[which].state == "active":
            self._stop(self.plans[which], "deleted")
        self.plans[which].state = "deleted"

    def trigger(self, which: int, calendar: list[int]) -> None:
        plan = self.plans[which]
        if plan.state == "deleted":
            return
        if plan.state == "active":
            self._stop(plan, "edited")
        plan.calendar = calendar
        self._begin_anew(plan)

    def edit(self, which: int, overlap: str, limit: int, misfire: str, lateness: int) -> None:
        plan = self.plans[which]
        if plan.state == "deleted":
            return
        if plan.state == "active" and (misfire, lateness) != (plan.misfire, plan.lateness):
            due = self._due(plan)
            missed = self._missed(plan, due)
            self._note_all(plan, missed, due, "skipped-misfire", "edited")
            plan.watermark = max([plan.watermark, *missed])
        plan.overlap, plan.limit, plan.misfire, plan.lateness = overlap, limit, misfire, lateness

    def _stop(self, plan: Plan, code: str) -> None:
        due = self._due(plan)
        self._consume(plan)
        self._note_all(plan, due, due, "skipped-misfire", code)
        if plan.held:
            self._end_held(plan, "coalesced", code)

    def _begin_anew(self, plan: Plan) -> None:
        """All before now is consumed, so that a clock that steps back cannot bring it up again."""
        plan.watermark = max(self._floor(plan), self.now)
        plan.effective_from = self.now

    def _reanchor(self, plan: Plan) -> None:
        plan.watermark = plan.effective_from = self.now
        if plan.held and plan.held.instant > self.now:
            plan.held = None
        kept = []
        for row in self.history[plan.id]:
            members = tuple(t for t in row.members if t <= self.now or row.run)
            if members:
                kept.append(replace(row, members=members))
        self.history[plan.id] = kept

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _note(self, plan: Plan, row: Row) -> None:
        self.fresh.append((plan.id, row))

    def _note_all(self, plan: Plan, instants: list[int], due: list[int], status: str, code: str, by: int | None = None) -> None:
        """A row for each of the newest hundred due instants, one for all older (5.2)."""
        older = tuple(t for t in instants if t not in due[-100:])
        for members in [older] * bool(older) + [(t,) for t in instants if t in due[-100:]]:
            self._note(plan, Row(members, status, code, by))

    def _end_held(self, plan: Plan, status: str, code: str, by: int | None = None) -> None:
        assert plan.held
        self._note(plan, Row((plan.held.instant,), status, code, by))
        plan.held = None
