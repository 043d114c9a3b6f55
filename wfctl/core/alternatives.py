"""What another policy would have done with one instant: the production decision, asked again on changed facts (contract 5.10).

The instant is played from the moment at which it was considered: at each end of a run, each slot that becomes free and each
instant that comes due, `decide_admission` is asked. The play is believed only where, under the policy as it was, it ends as
it did in truth; else something mattered that is not known, and no alternative is offered. It assumes that the policy was
changed just before the instant, that preflight would have passed, and that other schedules would have done the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from wfctl.core.admission import PASSED, Decision, ScheduleFacts, decide_admission
from wfctl.core.duration import format_duration
from wfctl.core.explanation import Alternative, Busy, RunStory
from wfctl.core.instants import format_instant, moment, parse_instant
from wfctl.core.model import Candidate, Json, Misfire, Overlap, Reason, ScheduleDefinition, Settlement, Status
from wfctl.core.trigger import Calendar, CalendarError

_MOST_STEPS = 500  #: moments that are looked at
_TICK = timedelta(microseconds=1)
_SOON = timedelta(seconds=5)
_HANDED_ON = timedelta(seconds=2)  #: a slot that is taken so soon after it became free was never free for anybody else
ADMITTED, PENDING = Status.ADMITTED.value, Status.PENDING.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One instant as it was about to be considered."""

    schedule_id: str
    definition: ScheduleDefinition
    calendar: Calendar
    instant: datetime
    at: datetime  #: when it was considered
    until: datetime  #: up to when the play goes on
    active: tuple[RunStory, ...]  #: the schedule's own unfinished runs
    busy: tuple[Busy, ...]  #: who held the execution slots, from `at` on
    slots: int | None  #: None: not known, and taken as enough
    held: Candidate | None = None  #: what the schedule held: an older instant, or this one
    ahead: int | None = None  #: of what is held now: who gets a slot before it; None: not known


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the instant, when, and why. PENDING: it waits still."""

    outcome: str
    at: datetime | None
    reason: Reason | None


def fate(setting: Setting) -> Fate:
    """Play an instant, and return what becomes of it. Raise CalendarError."""
    floor, held, at = setting.instant - _TICK, setting.held, setting.at
    if held is not None and held.instant == setting.instant:
        floor = setting.instant
    taken: list[RunStory] = []
    for _ in range(_MOST_STEPS):
        decision = _decide(setting, floor, held, (*setting.active, *taken), at)
        row = next((row for row in decision.settled if _is_about(row, setting.instant)), None)
        if row is not None:
            return Fate(row.status.value, at, row.reason)
        # What else was admitted takes its room for a time that nobody knows.
        taken += [RunStory(id=format_instant(each), status=Status.RUNNING) for each in decision.admit]
        floor, held = max(floor, decision.watermark), decision.candidate
        following = _next_moment(setting, at, floor, held)
        if following is None or following > setting.until:
            break
        at = following
    return Fate(PENDING, None, None if held is None else held.reason)


def _decide(setting: Setting, floor: datetime, held: Candidate | None, active: Sequence[RunStory], at: datetime) -> Decision:
    slots = setting.slots if setting.slots is not None else len(setting.busy) + 1
    facts = ScheduleFacts(
        schedule_id=setting.schedule_id,
        definition=setting.definition,
        floor=floor,
        candidate=held,
        due=setting.calendar.due(floor, at),
        active=tuple(run.id for run in active if run.until is None or run.until > at),
        verdict=PASSED,
    )
    return decide_admission(facts, now=at, free_slots=slots - _taken(setting.busy, at), slot_limit=slots)


def _taken(busy: Sequence[Busy], at: datetime) -> int:
    return sum(each.since - _HANDED_ON <= at and (each.until is None or each.until > at) for each in busy)


def _is_about(row: Settlement, instant: datetime) -> bool:
    return row.instant == instant or (row.span is not None and row.span.first <= instant <= row.span.last)


def _next_moment(setting: Setting, at: datetime, floor: datetime, held: Candidate | None) -> datetime | None:
    """Return when something changes next: room, what is due, or the end of what is held."""
    coming = setting.calendar.next_after(max(floor, at))
    times = [run.until for run in setting.active if run.until is not None]
    times += [each.until for each in setting.busy if each.until is not None]
    times += [time for time in (coming,) if time is not None]
    if held is not None and held.can_expire:
        times.append(held.instant + setting.definition.lateness + _TICK)
    return min((time for time in times if time > at), default=None)


# Variations ---------------------------------------------------------------------------------------------------------------


def alternatives(setting: Setting, outcome: str) -> tuple[Alternative, ...]:
    """Given an instant and what became of it (a status, or PENDING), return what changed policies would have done.

    Shape: those under which it runs first, the earliest before the others; what changes nothing is left out. None where its own
    policy, played, does not give that outcome, or the calendar gives no answer.
    """
    try:
        if fate(setting).outcome != outcome:
            return ()
        found = [_alternative(setting, policy, changed) for policy, changed in _variations(setting)]
    except (CalendarError, OverflowError):
        return ()
    ran = [each for each in found if each.outcome == ADMITTED]
    others = (each for each in found if each.outcome not in (ADMITTED, outcome))
    return (*sorted(ran, key=lambda each: each.at or setting.until), *others)


def _variations(setting: Setting) -> Iterator[tuple[Mapping[str, Json], Setting]]:
    """Give changes of one policy, or of two that belong together, as data and as the setting that they make."""
    was = setting.definition

    def with_(policy: Mapping[str, Json], **fields: object) -> tuple[Mapping[str, Json], Setting]:
        return policy, replace(setting, definition=replace(was, **fields))  # type: ignore[arg-type]

    if was.overlap is not Overlap.QUEUE:
        yield with_({"overlap": "queue"}, overlap=Overlap.QUEUE, max_active_runs=None)
    room = max(2, len(setting.active) + 1 + (setting.held is not None and setting.held.instant != setting.instant))
    if room > was.limit:
        policy = {"overlap": "parallel", "max_active_runs": room}
        yield with_(policy, overlap=Overlap.PARALLEL, max_active_runs=room)
    patient = enough_lateness(setting.at - setting.instant)
    if was.misfire is Misfire.SKIP:
        yield with_({"misfire": "latest"}, misfire=Misfire.LATEST)
        if patient > was.lateness:
            yield with_({"lateness": format_duration(patient)}, lateness=patient)
    elif patient > was.lateness:
        yield with_({"misfire": "skip", "lateness": format_duration(patient)}, misfire=Misfire.SKIP, lateness=patient)
    else:
        yield with_({"misfire": "skip"}, misfire=Misfire.SKIP)
    longest = _until_a_slot_is_free(setting)
    if longest is not None and was.misfire is Misfire.SKIP and longest > max(was.lateness, patient):
        yield with_({"lateness": format_duration(longest)}, lateness=longest)
    if setting.slots is not None and _taken(setting.busy, setting.at) >= setting.slots:
        more = _taken(setting.busy, setting.at) + (setting.ahead or 0) + 1
        yield {"max_concurrent_runs": more}, replace(setting, slots=more)


def _until_a_slot_is_free(setting: Setting) -> timedelta | None:
    """Return how late the instant would be when an execution slot became free; None where one was free, or none became so."""
    if setting.slots is None or _taken(setting.busy, setting.at) < setting.slots:
        return None
    ends = sorted(each.until for each in setting.busy if each.until is not None and each.until > setting.at)
    free = next((end for end in ends if _taken(setting.busy, end) < (setting.slots or 0)), None)
    return None if free is None else enough_lateness(free - setting.instant)


def enough_lateness(late: timedelta) -> timedelta:
    """Given how late an instant was, return an allowance that covers it, as a person would write it."""
    seconds = math.ceil(late.total_seconds())
    unit = next((unit for above, unit in ((172_800, 86_400), (7_200, 3_600), (60, 60)) if seconds > above), 1)
    return timedelta(seconds=max(1, math.ceil(seconds / unit) * unit))


def _alternative(setting: Setting, policy: Mapping[str, Json], changed: Setting) -> Alternative:
    found = fate(changed)
    said = _said(setting, found)
    if "max_concurrent_runs" in policy and setting.ahead is None:
        said += ", had nothing else been held for a slot"
    return Alternative(policy, found.outcome, found.at, f"{words_of(policy)} ({said})")


def words_of(policy: Mapping[str, Json]) -> str:
    """Return changed fields as `schedule set` takes them: `overlap=parallel max_active_runs=2`."""
    return " ".join(f"{name}={value}" for name, value in policy.items())


def _said(setting: Setting, found: Fate) -> str:
    reason = found.reason or {}
    if found.outcome == ADMITTED:
        assert found.at is not None
        is_now = setting.ahead is not None  # asked about what is held now
        is_soon = found.at <= setting.at and (is_now or found.at - setting.instant <= _SOON)
        return "at once" if is_soon else f"at {moment(found.at, setting.instant)}"
    if found.outcome == PENDING:
        runs = ", ".join(str(run) for run in reason.get("runs") or ())
        return f"it would still wait for {runs or 'an execution slot'}"
    if found.outcome == Status.COALESCED.value:
        return f"the newer {_by(reason, setting.instant)} would have taken its place"
    why = {"overlap": "no room by overlap", "capacity": "no execution slot", "missed": "too late", "outlived": "outlived"}
    return f"{found.outcome}: {why.get(str(reason.get('code')), reason.get('code'))}"


def _by(reason: Reason, beside: datetime) -> str:
    try:
        return moment(parse_instant(reason.get("by")), beside)  # type: ignore[arg-type]
    except ValueError:
        return "instant"
