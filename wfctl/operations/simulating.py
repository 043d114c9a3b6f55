"""Playing a store's schedules on a virtual clock: what is to come, and what was, decided as the supervisor decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wfctl.core.admission import PASSED, Verdict
from wfctl.core.instants import from_micros
from wfctl.core.model import LOCAL, ScheduleDefinition, Status
from wfctl.core.simulation import Change, Course, Leg, Ongoing, Plan, Simulation, Subject, simulate, tally
from wfctl.core.trigger import resolve_max_run
from wfctl.errors import InvalidArgument
from wfctl.operations import schedules as schedule_operations
from wfctl.operations.clusters import rooms_of
from wfctl.operations.context import Context
from wfctl.operations.estimates import Estimates, Rule, rule_of
from wfctl.operations.views import SimulatedView, SimulationView
from wfctl.store.ledger import definitions, past, runs, schedules, timeline
from wfctl.store.ledger.definitions import DefinitionRow, RevisionRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow

LONGEST = timedelta(days=400)
_AT_LEAST = timedelta(seconds=1)  #: what is left of a run that already takes longer than expected
_LAG = timedelta(seconds=1)  #: how late a supervisor that is there decides, at most

# What is to come --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """A play of what is to come, and what it was played with."""

    plan: Plan
    played: Simulation
    estimates: Estimates
    numbers: Mapping[str, int | None]  #: the schedules' own numbers in the ledger


def forecast(
    context: Context,
    *,
    until: datetime,
    slots: int,
    durations: Any = None,
    downtime: Sequence[tuple[datetime, datetime]] = (),
    instead: Mapping[str, ScheduleDefinition] | None = None,
    seed: int = 0,
) -> Forecast:
    """Play the store's schedules as they stand, from now to `until`.

    Every active schedule takes part, since all share the slots. `instead` replaces definitions by schedule id, or adds some;
    `durations` is what `rule_of` takes; `downtime` are spans without a supervisor. Raise InvalidArgument.
    """
    now = context.now()
    if not now < until <= now + LONGEST:
        raise InvalidArgument(f"the end must lie ahead, by at most {LONGEST.days} days", {"argument": "until"})
    if slots < 1:
        raise InvalidArgument("there must be at least one slot", {"argument": "slots"})
    rule = rule_of(durations)
    replaced = dict(instead or {})
    with context.ledger.reading() as connection:
        found = {row.id: row for row in schedules.list_all(connection) if row.deleted_at is None and row.diagnostic is None}
        current = {name: context.schedule(row.number, row.revision)[0] for name, row in found.items()}
        subjects = [
            replace(_subject(name, row, replaced.get(name), current[name], now), executor=_executor(context, row))
            for name, row in found.items()
        ]
        subjects += [
            Subject(schedule_id=name, definition=definition, anchor=now.replace(microsecond=0), floor=now)
            for name, definition in replaced.items()
            if name not in found
        ]
        numbers = {subject.schedule_id: _number(found, subject.schedule_id) for subject in subjects}
        estimates = Estimates(connection, rule, seed, {each.schedule_id: _limit(each, now) for each in subjects})
        for name, number in numbers.items():
            estimates.of(name, number)
        plan = Plan(
            subjects=subjects,
            since=now,
            until=until,
            slots=slots,
            courses=lambda name, instant, at: estimates.course(name, instant),
            others={name: max(limit, slots) for name, limit in rooms_of(context).items()},
            ongoing=_ongoing(connection, {row.number: name for name, row in found.items()}, estimates, now),
            downtime=downtime,
            next_run=runs.next_number(connection),
        )
        return Forecast(plan, simulate(plan), estimates, numbers)


def _executor(context: Context, row: ScheduleRow) -> str:
    try:
        return context.deployment(row.deployment, row.deployment_revision)[0].executor
    except UnreadableRow:
        return LOCAL


def _number(found: Mapping[str, ScheduleRow], name: str) -> int | None:
    return found[name].number if name in found else None


def _subject(name: str, row: ScheduleRow, new: ScheduleDefinition | None, old: ScheduleDefinition, now: datetime) -> Subject:
    """Return a schedule as it stands; a changed trigger begins anew at `now`, as an edit would have it (3.4)."""
    subject = Subject(
        schedule_id=name,
        definition=new or old,
        anchor=row.anchor,
        floor=row.floor,
        candidate=row.candidate,
        last_admission=row.last_admission,
        is_paused=row.paused_at is not None,
    )
    if new is None or new.trigger == old.trigger:
        return subject
    return replace(subject, anchor=now.replace(microsecond=0), floor=now, candidate=None)


def _limit(subject: Subject, now: datetime) -> timedelta | None:
    definition = subject.definition
    return resolve_max_run(definition.max_run, definition.trigger, subject.anchor, now)


def _ongoing(connection: sqlite3.Connection, names: Mapping[int, str], estimates: Estimates, now: datetime) -> list[Ongoing]:
    """Return the scheduled runs that are there. One that waits for input is taken to wait on."""
    found = []
    for run in runs.unfinished(connection):
        name = names.get(run.schedule) if run.schedule is not None else None
        if name is None or run.instant is None:
            continue
        expected = estimates.course(name, run.instant)
        left = max(_AT_LEAST, sum((leg.lasts for leg in expected.legs), timedelta(0)) - (now - run.admitted_at))
        waits = run.status is Status.INTERRUPTED
        course = Course((Leg(LONGEST * 2, holds_slot=False),)) if waits else Course.of(left, expected.status)
        found.append(Ongoing(schedule_id=name, instant=run.instant, run_id=run.id, course=course))
    return found


def simulation_view(found: Forecast, names: Sequence[str] | None, *, seed: int) -> SimulationView:
    """Return a forecast in numbers, for the schedules named, else for all."""
    played = tally(found.played, [subject.schedule_id for subject in found.plan.subjects])
    shown = [name for name in sorted(played) if names is None or name in names]
    return SimulationView(
        since=found.plan.since,
        until=found.plan.until,
        slots=found.plan.slots,
        peak_slots=found.played.peak,
        seed=seed,
        schedules=tuple(
            SimulatedView(
                schedule_id=name,
                fires=played[name].fires,
                admitted=played[name].admitted,
                skipped=dict(sorted(played[name].skipped.items())),
                coalesced=played[name].coalesced,
                held=name in found.played.held,
                longest_wait_s=played[name].longest_wait.total_seconds(),
                peak_runs=played[name].peak_runs,
                duration_s=found.estimates.of(name, found.numbers[name]).lasts.total_seconds(),
                duration_from=found.estimates.of(name, found.numbers[name]).origin,
            )
            for name in shown
        ),
    )


# What was ---------------------------------------------------------------------------------------------------------------


def replay_plan(context: Context, *, until: datetime, slots: int) -> Plan:
    """Return the recorded history as a plan: every definition, pause, absence and run as it was, from the first on.

    Played, it gives the dispositions that were recorded, where the clock never stepped and nothing was blocked. Rows that went
    by retention are played all the same.
    """
    with context.ledger.reading() as connection:
        rows = [row for row in definitions.list_all(connection, "schedule") if row.revision > 0]
        told = {row.id: _history(context, connection, row) for row in rows}
        since = min((history.begins for history in told.values()), default=until)
        lengths = {name: history.courses for name, history in told.items()}
        rejected = {name: history.rejected for name, history in told.items()}
        return Plan(
            subjects=[history.subject for history in told.values()],
            since=since,
            until=until,
            slots=slots,
            courses=lambda name, instant, at: _as_it_was(lengths[name].get(instant), at),
            changes=[change for history in told.values() for change in history.changes],
            downtime=_joined([*past.absences(connection, since, until), *past.stops(connection)]),
            verdicts=lambda name, now: _verdict(rejected[name], now),
        )


@dataclass(frozen=True, slots=True)
class _History:
    subject: Subject
    begins: datetime
    changes: tuple[Change, ...]
    courses: Mapping[datetime, tuple[datetime, Course]]  #: by instant: when it was admitted, and how it went from there
    rejected: Mapping[datetime, Any]  #: when preflight refused, with its reason


def _joined(spans: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the same spans of time, ascending, those that overlap as one."""
    found: list[tuple[datetime, datetime]] = []
    for begins, ends in sorted(spans):
        if found and begins <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ends))
        else:
            found.append((begins, ends))
    return found


def _as_it_was(known: tuple[datetime, Course] | None, at: datetime) -> Course:
    """Return how the run of an instant goes when it is admitted at `at`: it ends when it really did.

    The supervisor decides some milliseconds after what it decides about; without this they would add up from one run to the
    next that waits for it.
    """
    if known is None:
        return Course.of(timedelta(0))
    admitted_at, course = known
    lag = admitted_at - at
    if not timedelta(0) < lag <= _LAG:
        return course
    first, *others = course.legs
    return replace(course, legs=(replace(first, lasts=first.lasts + lag), *others))


def _verdict(rejected: Mapping[datetime, Any], now: datetime) -> Verdict:
    reason = rejected.get(now)
    return PASSED if reason is None else Verdict(reason=reason)


def _history(context: Context, connection: sqlite3.Connection, row: DefinitionRow) -> _History:
    saved = _revisions(connection, row.number)
    first, _ = context.schedule(row.number, 1)
    begins = from_micros(saved[0].recorded_at)
    changes = [
        Change(
            at=from_micros(each.recorded_at),
            schedule_id=row.id,
            what="edit",
            definition=context.schedule(row.number, each.revision)[0],
        )
        for each in saved[1:]
    ]
    for paused_at, resumed_at in timeline.pauses(connection, row.number, after=None):
        changes.append(Change(at=paused_at, schedule_id=row.id, what="pause"))
        if resumed_at is not None:
            changes.append(Change(at=resumed_at, schedule_id=row.id, what="resume"))
    if row.deleted_at is not None:
        changes.append(Change(at=from_micros(row.deleted_at), schedule_id=row.id, what="delete"))
    subject = Subject(schedule_id=row.id, definition=first, anchor=begins.replace(microsecond=0), floor=begins)
    courses = {
        run.instant: (run.admitted_at, _course(connection, run)) for run in past.runs_of(connection, row.number, since=begins)
    }
    rejected = {
        each.instant: each.reason
        for each in timeline.rows(connection, row.number, after=None)
        if each.status is Status.PREFLIGHT_REJECTED
    }
    return _History(subject, begins, tuple(changes), courses, rejected)


def _revisions(connection: sqlite3.Connection, number: int) -> list[RevisionRow]:
    found: list[RevisionRow] = []
    while page := definitions.revisions(connection, number, after=found[-1].revision if found else 0, limit=100):
        found += page
    return found


def _course(connection: sqlite3.Connection, run: past.PastRun) -> Course:
    """Return how a recorded run went: executing, and in between, where it was interrupted, waiting."""
    waits = past.waits_of(connection, run.number) if run.attempt > 1 or run.status is Status.INTERRUPTED else []
    legs: list[Leg] = []
    at = run.admitted_at
    for begins, ends in waits:
        if ends is None and run.ended_at is not None:
            break
        legs.append(Leg(max(timedelta(0), begins - at)))
        legs.append(Leg(LONGEST * 2 if ends is None else ends - begins, holds_slot=False))
        at = begins if ends is None else ends
    if run.status is not Status.INTERRUPTED:
        legs.append(Leg(LONGEST * 2 if run.ended_at is None else max(timedelta(0), run.ended_at - at)))
    return Course(tuple(legs), run.status)


# A change, before it is saved -------------------------------------------------------------------------------------------

_REPLAYED = timedelta(days=30)
_LATER = datetime.max.replace(tzinfo=UTC)  #: when a supervisor that is away will be back: not within what is replayed
_MOST_REPLAYED = 3000  #: instants; a calendar with more is replayed over fewer days


def replay_change(
    context: Context, schedule_id: str, new: ScheduleDefinition
) -> tuple[datetime, dict[str, tuple[Any, Any]]] | None:
    """Given a changed definition, return since when the past was replayed, and what it would have been, before and after.

    Both are played with the lengths that runs really had (the median where an instant had none), the absences of the
    supervisor, and as many slots as are wanted. None where there is no past to learn from, or the trigger is another one.
    """
    now = context.now()
    with context.ledger.reading() as connection:
        row = definitions.find(connection, "schedule", schedule_id)
        state = None if row is None else schedules.find(connection, row.number)
        if row is None or state is None:
            return None
        old, _ = context.schedule(row.number, row.revision)
        lengths = past.newest_lengths(connection, row.number, 1)
        if not lengths or old.trigger != new.trigger:
            return None
        since = _replayed_from(old, state, now)
        courses = {run.instant: _course(connection, run) for run in past.runs_of(connection, row.number, since=since)}
        estimates = Estimates(connection, Rule(), 0, {})
        estimates.of(schedule_id, row.number)
        absences = [(begins, ends if ends < now else _LATER) for begins, ends in past.absences(connection, since, now)]

    def play(definition: ScheduleDefinition) -> Any:
        subject = Subject(schedule_id=schedule_id, definition=definition, anchor=state.anchor, floor=since)
        plan = Plan(
            subjects=[subject],
            since=since,
            until=now,
            slots=10_000,
            courses=lambda name, instant, at: courses.get(instant) or estimates.course(name, instant),
            downtime=absences,
        )
        return tally(simulate(plan), [schedule_id])[schedule_id]

    before, after = play(old), play(new)
    counts = {"admitted": (before.admitted, after.admitted), "coalesced": (before.coalesced, after.coalesced)}
    for name in sorted({*before.skipped, *after.skipped}):
        counts[name] = (before.skipped.get(name, 0), after.skipped.get(name, 0))
    counts["longest wait"] = (before.longest_wait, after.longest_wait)
    counts["most at once"] = (before.peak_runs, after.peak_runs)
    return since, counts


def _replayed_from(definition: ScheduleDefinition, state: ScheduleRow, now: datetime) -> datetime:
    calendar = schedule_operations.calendar_for(definition, state)
    since = max(state.created_at, now - _REPLAYED)
    if calendar.count(since, now, limit=_MOST_REPLAYED + 1) <= _MOST_REPLAYED:
        return since
    newest = calendar.due(since, now, limit=_MOST_REPLAYED)
    return newest.instants[0] - timedelta(microseconds=1)


def slots_of(context: Context, environ: Mapping[str, str]) -> int:
    """Return how many runs the store's supervisor lets go on at once."""
    from wfctl.settings import load_settings

    return load_settings(context.layout.root, environ).max_concurrent_runs


def names_known(context: Context, names: Sequence[str]) -> None:
    """Check that schedules are there. Raise NotFound with what was perhaps meant."""
    with context.ledger.reading() as connection:
        for name in names:
            schedule_operations.require(connection, name)
