"""One round: everything due at one moment is decided, and written down in one transaction (contract 5, 6.1, 6.3).

The decision is the core's. Here its facts are gathered and its answer is recorded: rows, runs and marks together, before any
process exists. Preflight may take long, so it is asked outside the transaction, which checks that what was decided on still
stands; else the round is repeated (5.9, 5.13).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from wfctl.core import changes
from wfctl.core.admission import Decision, Round, ScheduleFacts, Verdict, decide_round
from wfctl.core.instants import format_instant
from wfctl.core.model import IntervalTrigger, Json, Reason, ScheduleDefinition, Settlement, Span, Status
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, is_instant
from wfctl.errors import DamagedStore
from wfctl.operations import consistency, telling, upkeep
from wfctl.operations.context import Context
from wfctl.operations.schedules import calendar_for
from wfctl.store.ledger import definitions, executions, occurrences, retention, runs, schedules, sessions
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow, savepoint
from wfctl.store.ledger.schedules import ScheduleRow

LOG = logging.getLogger("wfctl.rounds")
_CHUNK = 64  #: candidates waiting for capacity looked at beyond the free slots

#: Which definitions a verdict is about: schedule and deployment, with their revisions.
Subject = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Question:
    """A schedule whose preflight is to be asked, as it stands."""

    row: ScheduleRow
    definition: ScheduleDefinition

    @property
    def subject(self) -> Subject:
        """What the verdict is about."""
        return (self.row.number, self.row.revision, self.row.deployment, self.row.deployment_revision)


#: Asks preflight; what is not answered yet is left out, and its schedules wait for a later round.
Preflight = Callable[[Sequence[Question]], Mapping[Subject, Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What the supervisor brings to a round."""

    slots: int  #: `max_concurrent_runs`
    session: int | None  #: its session in the ledger
    absent_until: datetime | None = None  #: when it came back: lateness before that is explained by `absent_from`
    absent_from: datetime | None = None
    mark_note: Callable[[], Mapping[str, Json]] = field(default=dict)  #: what is written with a mark (6.2)


@dataclass(slots=True)
class _Gathered:
    rows: dict[str, ScheduleRow]
    definitions: dict[str, ScheduleDefinition]
    facts: list[ScheduleFacts]
    broken: list[tuple[ScheduleRow, Mapping[str, Json]]]  #: those to be blocked, each with why
    free_slots: int
    next_run: int
    version: int


def settle_round(context: Context, plan: RoundPlan, preflight: Preflight, now: datetime) -> list[runs.NewRun]:
    """Settle everything due at `now` and return the runs that were admitted, in order, marked and ready to be launched.

    Schedules whose preflight is not answered yet are left for a later round. Raise TimedOut, IoError, DamagedStore.
    """
    reanchor(context, now)
    verdicts: dict[Subject, Verdict] = {}
    while True:
        with context.ledger.reading() as connection:
            gathered = _gather(context, connection, plan, verdicts, now)
        decided, unanswered = _decide(gathered, plan, preflight, verdicts, now)
        if not gathered.facts and not gathered.broken:
            return []
        try:
            admitted = _write(context, plan, gathered, decided, unanswered, now)
        except DamagedStore as error:
            if not isinstance(error.__cause__, sqlite3.IntegrityError) or not consistency.look_at_start(context).blocked:
                raise
            continue  # whose records refused what was decided is blocked by now: the others go on
        if admitted is not None:
            return admitted


def _decide(
    gathered: _Gathered, plan: RoundPlan, preflight: Preflight, verdicts: dict[Subject, Verdict], now: datetime
) -> tuple[Round, frozenset[str]]:
    """Decide, asking preflight where an instant reaches it; return the round, and the schedules that must wait."""
    unanswered: set[str] = set()
    while True:
        facts = [each for each in gathered.facts if each.schedule_id not in unanswered]
        decided = decide_round(
            facts, now=now, free_slots=gathered.free_slots, slot_limit=plan.slots, next_run=gathered.next_run
        )
        if not decided.needs_preflight:
            return decided, frozenset(unanswered)
        asked = [Question(gathered.rows[name], gathered.definitions[name]) for name in decided.needs_preflight]
        verdicts.update(preflight(asked))
        answers = {question.row.id: verdicts.get(question.subject) for question in asked}
        unanswered |= {name for name, verdict in answers.items() if verdict is None}
        gathered.facts = [replace(each, verdict=answers.get(each.schedule_id) or each.verdict) for each in gathered.facts]


# Facts ------------------------------------------------------------------------------------------------------------------


def _gather(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    verdicts: Mapping[Subject, Verdict],
    now: datetime,
) -> _Gathered:
    free = plan.slots - runs.slots_used(connection)
    gathered = _Gathered({}, {}, [], [], free, runs.next_number(connection), _data_version(connection))
    found = schedules.due(connection, now)
    if free > 0:
        found += schedules.waiting_for_capacity(connection, limit=free + _CHUNK, skip=0)
    for row in found:
        if row.id in gathered.rows or not row.is_admitting:
            if not row.is_readable and row.own_diagnostic is not None:
                gathered.broken.append((row, row.own_diagnostic))
            continue
        try:
            _gather_one(context, connection, plan, gathered, row, verdicts, now)
        except UnreadableRow as error:
            gathered.broken.append((row, consistency.doubt(context, connection, row.number, error)))
    return gathered


def _data_version(connection: sqlite3.Connection) -> int:
    """SQLite's own count of what other connections committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _gather_one(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    gathered: _Gathered,
    row: ScheduleRow,
    verdicts: Mapping[Subject, Verdict],
    now: datetime,
) -> None:
    definition, _ = context.schedule(row.number, row.revision)
    context.deployment(row.deployment, row.deployment_revision)  # what cannot be read is found before it is decided by
    active = runs.active_of(connection, row.number)
    if not consistency.is_sound(connection, row, definition, len(active)):
        gathered.broken.append((row, consistency.doubt(context, connection, row.number)))
        return
    try:
        due, passed = upkeep.due_of(connection, row, calendar_for(definition, row), now)
    except CalendarError as error:
        gathered.broken.append((row, upkeep.calendar_diagnostic(row.id, error)))
        return
    gathered.rows[row.id] = row
    gathered.definitions[row.id] = definition
    gathered.facts.append(
        ScheduleFacts(
            schedule_id=row.id,
            definition=definition,
            floor=row.floor,
            candidate=row.candidate,
            due=due,
            active=active,
            last_admission=row.last_admission,
            passed=passed,
            verdict=verdicts.get(Question(row, definition).subject),
            absence=_absence(plan, row),
        )
    )


def _absence(plan: RoundPlan, row: ScheduleRow) -> Reason | None:
    """Return what explains the lateness of instants that passed while no supervisor was there (5.10)."""
    if plan.absent_from is None or plan.absent_until is None or row.floor >= plan.absent_until:
        return None
    return {"absent": {"from": format_instant(plan.absent_from), "until": format_instant(plan.absent_until)}}


# Writing ----------------------------------------------------------------------------------------------------------------


def _write(
    context: Context, plan: RoundPlan, gathered: _Gathered, decided: Round, unanswered: frozenset[str], now: datetime
) -> list[runs.NewRun] | None:
    """Write a round in one transaction; None when what it was decided on has changed, and nothing is written."""
    with context.ledger.transaction() as connection:
        if _data_version(connection) != gathered.version:
            return None
        for row, diagnostic in gathered.broken:
            definitions.set_diagnostic(connection, row.number, diagnostic)
            schedules.set_wake(connection, row.number, next_instant=None, wake_at=None)
        _append_rows(connection, gathered, decided, now)
        new = _new_runs(context, gathered, decided, now)
        runs.insert(connection, new)
        executions.mark(connection, [(run.number, 1, 0, 1) for run in new], plan.mark_note())
        for name, decision in decided.decisions.items():
            _write_state(connection, gathered.rows[name], gathered.definitions[name], decision, now)
        telling.note_round(context, gathered.rows, gathered.definitions, decided.decisions, now)
        sessions.note_clock(connection, now)
        if plan.session is not None and new:
            sessions.seen(connection, plan.session, now)
    return new


def _append_rows(connection: sqlite3.Connection, gathered: _Gathered, decided: Round, now: datetime) -> None:
    """Record all rows of the round; over all schedules their places follow the instants."""
    rows: list[tuple[datetime, str, Settlement]] = [
        (settlement.instant, name, settlement)
        for name, decision in decided.decisions.items()
        for settlement in decision.settled
    ]
    if not rows:
        return
    rows.sort(key=lambda each: (each[0], each[1]))
    first = occurrences.reserve_places(connection, len(rows))
    by_schedule: dict[str, tuple[list[Settlement], list[int]]] = {}
    for place, (_, name, settlement) in enumerate(rows, first):
        settlements, places = by_schedule.setdefault(name, ([], []))
        settlements.append(settlement)
        places.append(place)
    for name, (settlements, places) in by_schedule.items():
        row = gathered.rows[name]
        occurrences.append(connection, row.number, settlements, revision=row.revision, recorded_at=now, places=places)


def _new_runs(context: Context, gathered: _Gathered, decided: Round, now: datetime) -> list[runs.NewRun]:
    new = []
    for offset, (name, instant) in enumerate(decided.admitted):
        row, definition = gathered.rows[name], gathered.definitions[name]
        _, saved = context.schedule(row.number, row.revision)
        new.append(
            runs.NewRun(
                number=gathered.next_run + offset,
                schedule=row.number,
                instant=instant,
                revision=row.revision,
                deployment=row.deployment,
                deployment_revision=row.deployment_revision,
                admitted_at=now,
                max_run=runs.as_span(saved.max_run),
                max_steps=definition.max_steps,
                input=None,
            )
        )
    return new


def _write_state(
    connection: sqlite3.Connection, row: ScheduleRow, definition: ScheduleDefinition, decision: Decision, now: datetime
) -> None:
    floor = max(decision.watermark, row.floor)
    if floor != row.floor or decision.admit:
        schedules.advance(connection, row.number, watermark=floor, last_admission=now if decision.admit else None)
    if decision.candidate != row.candidate:
        schedules.hold(connection, row.number, decision.candidate)
    if row.passing_until is not None and floor >= row.passing_until:
        schedules.clear_passing(connection, row.number)
    coming = calendar_for(definition, row).next_after(floor) if floor != row.floor else row.next_instant
    held_back = row.floor if decision.candidate is not None and row.floor > now else None
    wake_at = upkeep.wake_time(coming, decision.candidate, definition, held_back)
    if coming != row.next_instant or wake_at != row.wake_at:
        schedules.set_wake(connection, row.number, next_instant=coming, wake_at=wake_at)


# The clock --------------------------------------------------------------------------------------------------------------


def held_back_until(context: Context, now: datetime) -> datetime | None:
    """Return until when some schedule waits because the clock stepped back by up to three hours (5.14); None if none does."""
    with context.ledger.reading() as connection:
        if now >= sessions.clock(connection):
            return None
        floors = [row.floor for row in schedules.ahead_of(connection, now) if row.is_admitting]
    return max((floor for floor in floors if not changes.must_reanchor(floor, now)), default=None)


def reanchor(context: Context, now: datetime) -> list[str]:
    """Where the clock stepped back by more than three hours, begin the schedules anew at `now` (5.14); return their ids."""
    with context.ledger.reading() as connection:
        if now >= sessions.clock(connection):
            return []
        ahead = schedules.ahead_of(connection, now)
        behind = [row for row in ahead if changes.must_reanchor(row.floor, now)]
    waiting = [row for row in ahead if row.candidate and row.wake_at and row.wake_at > row.floor and row not in behind]
    if waiting:
        with context.ledger.transaction() as connection:  # what is held is considered as soon as the clock passes the floor
            for row in waiting:
                schedules.need_attention(connection, [row.number], row.floor)
    if behind:
        with context.ledger.transaction() as connection:  # all at once: the first one's event also takes back the noted clock
            for row in behind:
                try:
                    with savepoint(connection):
                        _reanchor_one(context, connection, row.number, now)
                except UnreadableRow as error:
                    definitions.set_diagnostic(connection, row.number, definitions.contradiction_of(error))
                    schedules.set_wake(connection, row.number, next_instant=None, wake_at=None)
        LOG.warning(
            "the clock stepped back to %s, by more than three hours: %d schedules begin anew there, %s among them",
            format_instant(now),
            len(behind),
            behind[0].id,
            extra={"action": "clock_stepped_back"},
        )
    return [row.id for row in behind]


def _reanchor_one(context: Context, connection: sqlite3.Connection, number: int, now: datetime) -> None:
    row = schedules.find(connection, number)
    if row is None or not changes.must_reanchor(row.floor, now) or definitions.is_contradicted(row.own_diagnostic):
        return
    definition, _ = context.schedule(number, row.revision)
    taken = occurrences.withdraw_after(connection, number, now)
    withdrawn: list[dict[str, Json]] = [
        {"instant": format_instant(each.instant), "status": each.status.value, "place": each.place} for each in taken
    ]
    for each in taken:
        _keep_what_is_past(context, connection, each, now)
    if row.candidate is not None and row.candidate.instant > now:
        withdrawn.append({"instant": format_instant(row.candidate.instant), "status": Status.PENDING.value})
        schedules.hold(connection, number, None)
    pauses = schedules.cut_pauses(connection, number, now)
    withdrawn += [{"paused": [format_instant(start), end and format_instant(end)]} for start, end in pauses]
    passing = occurrences.last_admitted_after(connection, number, now)
    horizon = retention.horizon_of(connection, number)
    if horizon is not None and horizon > now:
        passing = max(passing or horizon, horizon)
    schedules.reanchor(connection, number, now=now, passing_until=passing)
    anchor = changes.anchor_before(definition.trigger, row.anchor, now)
    schedules.begin_anew(connection, number, effective_from=now, anchor=anchor)
    sessions.add_clock_event(connection, number, recorded_at=now, floor=row.floor, revision=row.revision, withdrawn=withdrawn)
    upkeep.refresh_wake(connection, number, definition)


def _keep_what_is_past(context: Context, connection: sqlite3.Connection, taken: OccurrenceRow, now: datetime) -> None:
    """A span row that reaches beyond `now` was taken out whole: put back, at its place, the part that lies before.

    Its instants are those of the revision that it was recorded under. It stands at the last one for which no run was admitted.
    """
    if taken.span is None or taken.span.first > now:
        return
    definition, _ = context.schedule(taken.schedule, taken.revision)
    before = taken.span.first - _JUST_BEFORE
    try:
        calendar = _calendar_of_span(definition, taken.span)
        past = calendar.due(before, now)
        while past.instants:
            admitted = occurrences.admitted_among(connection, taken.schedule, past.instants)
            free = [instant for instant in past.instants if instant not in admitted]
            if free:
                break
            past = calendar.due(before, past.instants[0] - _JUST_BEFORE)
        else:
            return
    except CalendarError:
        return
    count = None
    if taken.span.count is not None:
        listed = sum(instant <= free[-1] for instant in past.instants) + ((past.older.count or 0) if past.older else 0)
        count = listed - occurrences.count_admitted(
            connection, taken.schedule, taken.span.first, free[-1], lambda instant: is_instant(calendar, instant)
        )
    kept = Settlement(
        instant=free[-1],
        status=taken.status,
        reason=taken.reason,
        span=Span(taken.span.first, free[-1], count),
        lateness=taken.recorded_at - free[-1],
    )
    occurrences.append(
        connection, taken.schedule, [kept], revision=taken.revision, recorded_at=taken.recorded_at, places=[taken.place]
    )


def _calendar_of_span(definition: ScheduleDefinition, span: Span) -> Calendar:
    """Return a calendar that names the instants of a span; of an interval, the anchor of that time is no more known."""
    trigger = definition.trigger
    return calendar_of(trigger, span.first - trigger.every if isinstance(trigger, IntervalTrigger) else span.first)


_JUST_BEFORE = timedelta(microseconds=1)
