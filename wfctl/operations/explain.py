"""Explaining an instant: what the ledger knows around it is gathered here, and made sense of by the core (contract 5.10)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from wfctl.core import explanation as told
from wfctl.core.admission import ScheduleFacts
from wfctl.core.audit import ClockEvent, Segment, segments
from wfctl.core.explain import explain as explain_facts
from wfctl.core.explain_lines import away_at, trigger_words
from wfctl.core.explain_settled import begins_at
from wfctl.core.explanation import Busy, ExplanationFacts, InForce, Paused, Presence, RunStory, Session
from wfctl.core.instants import format_instant, from_micros
from wfctl.core.model import Candidate, CronTrigger, Json, Overlap, Status, run_name, run_number
from wfctl.core.trigger import Calendar, CalendarError, calendar_of, is_instant, stamps
from wfctl.errors import InvalidArgument, NotFound, TimedOut, WfctlError
from wfctl.operations import reconcile, schedules, upkeep
from wfctl.operations.audit import revisions_of
from wfctl.operations.context import Context
from wfctl.operations.describe import occurrence_view, run_view
from wfctl.operations.listing import as_instant
from wfctl.operations.views import AlternativeView, ExplanationLineView, ExplanationView, RunView, StatusView
from wfctl.settings import Settings, load_settings
from wfctl.store.ledger import around, occurrences, retention, runs, sessions
from wfctl.store.ledger import definitions as saved
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow
from wfctl.store.locks import is_held, read_owner

_TICK = timedelta(microseconds=1)
_A_WHILE = timedelta(hours=1)  #: how long after it was considered the slots are looked at
_MOST_HOLDERS = 5000  #: runs whose slots are looked at
_MOST_SEGMENTS = 50  #: other triggers that are asked whether they name the instant
_LISTED = 5
_PATIENCE_S = 2.0  #: how long a supervisor is asked how it is
_HARMLESS = frozenset({"settings", "ignored", "contradiction"})  #: problems beside which everything else goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """What the supervisor says of itself."""

    slots: int | None  #: None: not known
    is_draining: bool
    problems: Mapping[str, str]  #: what is wrong, by a word for each

    @property
    def hindrances(self) -> tuple[str, ...]:
        """What of it keeps anything from being admitted."""
        return tuple(message for kind, message in self.problems.items() if kind not in _HARMLESS)


def ask(status: Callable[[float], StatusView]) -> Supervisor | None:
    """Ask a supervisor for its status; return what it says of itself, None where none is there."""
    try:
        view = status(_PATIENCE_S)
    except TimedOut:
        silent = f"the supervisor holds the store and has not answered for {_PATIENCE_S:g}s"
        return Supervisor(slots=None, is_draining=False, problems={"silent": silent})
    except WfctlError:
        return None
    problems = {str(each.get("code")): str(each.get("message")) for each in view.problems}
    return Supervisor(slots=view.slots_total, is_draining=view.state == "draining", problems=problems)


def explain(context: Context, schedule_id: Any, instant: Any, *, supervisor: Supervisor | None) -> ExplanationView:
    """Say what became of an instant, past or to come, and why; what else could have.

    Given: `supervisor`, what a supervisor says of itself, None where none could be asked. Raise NotFound, with the instants
    beside it, for what no trigger of the schedule ever named; InvalidArgument; UnreadableRow.
    """
    if not isinstance(schedule_id, str) or not schedule_id:
        raise InvalidArgument(f"schedule_id must be text, not {schedule_id!r}", {"argument": "schedule_id"})
    at = as_instant(instant, "instant")
    if at is None:
        raise InvalidArgument("instant is missing; name the occurrence as SCHEDULE@INSTANT", {"argument": "instant"})
    reconcile.one(context, "schedule", schedule_id)
    known = supervisor.slots if supervisor is not None else None
    slots = _slots_by_settings(context) if known is None else known
    with context.ledger.reading() as connection:
        row = schedules.require(connection, schedule_id)
        state = states.find(connection, row.number)
        if state is None or not state.is_readable:
            return _never_valid(row, state, at)
        presence = _presence(context, supervisor)
        return _Gathering(context, connection, row, state, at, presence, slots).view()


def _slots_by_settings(context: Context) -> int:
    try:
        return load_settings(context.layout.root, os.environ).max_concurrent_runs
    except WfctlError:
        return Settings().max_concurrent_runs


def _presence(context: Context, supervisor: Supervisor | None) -> Presence | None:
    """Return who holds the store now; what it says of itself where it could be asked."""
    lock = context.layout.scheduler_lock
    owner = read_owner(lock) if is_held(lock) else None
    if owner is None and supervisor is None:
        return None
    return Presence(
        pid=None if owner is None else owner.pid,
        host=None if owner is None else owner.host,
        started_at=None if owner is None else owner.started_at,
        is_draining=supervisor is not None and supervisor.is_draining,
        problems=() if supervisor is None else supervisor.hindrances,
    )


class _Gathering:
    """One instant of one schedule, and what the ledger knows around it."""

    def __init__(
        self,
        context: Context,
        connection: sqlite3.Connection,
        row: DefinitionRow,
        state: ScheduleRow,
        instant: datetime,
        presence: Presence | None,
        slots: int,
    ) -> None:
        self.context, self.connection, self.row, self.state = context, connection, row, state
        self.instant, self.presence, self.slots = instant, presence, slots
        self.now = context.now()
        self.steps = sessions.clock_events(connection, row.number)
        events = [ClockEvent(recorded_at=each.recorded_at, floor=each.floor, revision=each.revision) for each in self.steps]
        revisions = [replace(each, stamps=None) for each in revisions_of(context, connection, row.number)]
        self.segments = segments(revisions, events)
        self.index = max((n for n, each in enumerate(self.segments) if each.begins < instant), default=0)
        self.stories: dict[str, RunStory] = {}

    def view(self) -> ExplanationView:
        """Return the explanation. Raise NotFound."""
        facts = self._facts()
        found = explain_facts(facts)
        situation = facts.situation
        row = situation if isinstance(situation, told.Recorded) else None
        lateness = row.lateness if row is not None else None
        reason: Mapping[str, Json] | None = row.reason if row is not None else None
        if isinstance(situation, told.Held):
            reason = situation.candidate.reason
        if row is not None and row.run in facts.runs:
            reason = facts.runs[str(row.run)].reason
        return ExplanationView(
            schedule_id=self.row.id,
            instant=self.instant,
            is_instant=facts.is_instant,
            situation=found.situation,
            status=None if found.status is None else found.status.value,
            will_run=found.will_run,
            verdict=found.verdict,
            revision=facts.in_force.revision,
            trigger=trigger_words(facts.in_force.trigger, facts.in_force.anchor),
            timezone=getattr(facts.in_force.trigger, "timezone", "UTC"),
            croniter=facts.in_force.croniter,
            tz_database=facts.in_force.tz_database,
            run_id=None if row is None else row.run,
            lateness_s=None if lateness is None else lateness.total_seconds(),
            reason=reason,
            lines=tuple(
                ExplanationLineView(at=each.at, code=each.code, text=each.text, source=each.source, data=each.data)
                for each in found.lines
            ),
            alternatives=tuple(
                AlternativeView(policy=each.policy, outcome=each.outcome, at=each.at, text=each.text)
                for each in found.alternatives
            ),
            commands=found.commands,
        )

    # -- what accounts for it --------------------------------------------------------------------------------------------

    def _facts(self) -> ExplanationFacts:
        held = self.state.candidate
        if held is not None and held.instant == self.instant and self.row.deleted_at is None:
            return self._of_held(held)
        found = occurrences.find(self.connection, self.row.number, self.instant)
        if found is not None and (found.span is None or found.instant == self.instant):
            return self._of_row(found)
        named, why = self._is_named()
        if named is False:
            return self._of_no_instant()
        if found is not None:
            return self._of_row(found)
        situation = self._unrecorded()
        facts = replace(self._common(self._in_force(), situation), is_instant=named, why_unknown=why)
        return replace(facts, active=self._active_now()) if isinstance(situation, told.Open) else facts

    def _common(self, in_force: InForce, situation: told.Situation, moments: Sequence[datetime] = ()) -> ExplanationFacts:
        known = around.sessions(self.connection, [self.instant, *moments])
        return ExplanationFacts(
            schedule_id=self.row.id,
            instant=self.instant,
            now=self.now,
            is_instant=True,
            in_force=in_force,
            situation=situation,
            sessions=tuple(
                Session(
                    pid=each.pid,
                    host=each.host,
                    started_at=each.started_at,
                    seen_at=each.seen_at,
                    ended_at=each.ended_at,
                )
                for each in known
            ),
            knows_all_sessions=around.are_sessions_whole(self.connection),
            presence=self.presence,
            clock_steps=tuple(
                told.ClockStep(at=each.recorded_at, floor=each.floor)
                for each in self.steps
                if each.recorded_at < self.instant <= each.floor
            ),
            calendar=self._calendar(),
            slots=self.slots,
            busy=self._busy(self.now, self.now, self.row.number) or (),
        )

    def _unrecorded(self) -> told.Situation:
        """What accounts for an instant of which there is no row."""
        instant, deleted = self.instant, self.row.deleted_at
        deleted_at = None if deleted is None else from_micros(deleted)
        if self.segments and instant <= self.segments[0].begins:
            return told.Before(begins=self.segments[0].begins)
        if deleted_at is not None and instant > deleted_at:
            return told.Deleted(at=deleted_at)
        pause = around.pause_over(self.connection, self.row.number, instant)
        if pause is not None and (instant <= self.now or pause.resumed_at is not None):
            return _paused(pause, deleted_at)
        horizon = retention.horizon_of(self.connection, self.row.number)
        if horizon is not None and instant < horizon:
            return told.LetGo(horizon=horizon)
        if instant <= self.state.floor:
            return told.Unaccounted(floor=self.state.floor)
        is_due = instant <= self.now
        return told.Open(
            is_due=is_due,
            is_next=self.state.next_instant == instant,
            pause=None if pause is None else _paused(pause, None),
            diagnostic=self.state.diagnostic,
            floor=self.state.floor,
            facts=self._open_facts(),
        )

    def _open_facts(self) -> ScheduleFacts | None:
        """Return the facts for a decision about what is due now, or comes next."""
        calendar = self._calendar()
        if calendar is None:
            return None
        try:
            definition, _ = self.context.schedule(self.row.number, self.row.revision)
            due, passed = upkeep.due_of(self.connection, self.state, calendar, self.now)
        except (CalendarError, UnreadableRow):
            return None
        return ScheduleFacts(
            schedule_id=self.row.id,
            definition=definition,
            floor=self.state.floor,
            candidate=self.state.candidate,
            due=due,
            active=runs.active_of(self.connection, self.row.number),
            last_admission=self.state.last_admission,
            passed=passed,
        )

    def _of_held(self, held: Candidate) -> ExplanationFacts:
        ahead, count = around.ahead_in_queue(
            self.connection, held.held_since, self.state.last_admission, self.row.id, limit=_LISTED
        )
        situation = told.Held(
            candidate=held,
            floor=self.state.floor,
            diagnostic=self.state.diagnostic,
            ahead=tuple(f"{name}@{format_instant(at)}" for name, at in ahead),
            ahead_count=count,
            holders=self._slot_holders(),
        )
        facts = self._common(self._in_force(self.row.revision), situation, [held.held_since])
        return replace(facts, active=self._active_now())

    def _of_row(self, row: OccurrenceRow) -> ExplanationFacts:
        span = occurrence_view(self.context, self.row.id, row).span if row.span is not None else None
        situation = told.Recorded(
            status=row.status,
            recorded_at=row.recorded_at,
            lateness=row.lateness,
            reason=row.reason,
            span=None if row.span is None or span is None else replace(row.span, count=span.count),
            run=None if row.run is None else run_name(row.run),
        )
        names = [str(name) for name in (row.reason or {}).get("runs") or ()]
        names += [] if row.run is None else [run_name(row.run)]
        ends = [] if row.run is None else [self._story(run_name(row.run)).ended_at]
        moments = [row.recorded_at, *(each for each in ends if each is not None)]
        facts = self._common(self._in_force(row.revision or None), situation, moments)
        named, why = self._is_named()
        facts = replace(facts, is_instant=named, why_unknown=why, runs={name: self._story(name) for name in names})
        return facts if row.run is not None else self._with_surroundings(facts, situation, row)

    def _with_surroundings(self, facts: ExplanationFacts, situation: told.Recorded, row: OccurrenceRow) -> ExplanationFacts:
        """Add what another policy would have met, and who settled it."""
        code = (row.reason or {}).get("code")
        deleted = self.row.deleted_at
        if code == "paused":
            pause = around.pause_begun(self.connection, self.row.number, row.recorded_at)
            ended = None if deleted is None else from_micros(deleted)
            return replace(facts, pause=None if pause is None else _paused(pause, ended))
        if code == "edited":
            edit = around.revision_saved(self.connection, self.row.number, row.recorded_at)
            return replace(facts, edit=None if edit is None else self._in_force(edit.revision))
        if code == "newer":
            facts = replace(facts, newer=self._newer((row.reason or {}).get("by")))
        at = begins_at(situation, self.instant, away_at(facts, self.instant) is None)
        if at is None:
            return facts
        active = self._active_then(row, at)
        ends = [run.until for run in active if run.until is not None]
        until = min(self.now, max([at + _A_WHILE, *(end + _TICK for end in ends)]))
        busy = self._busy(at, until, self.row.number)
        older = around.held_before(self.connection, self.row.number, self.instant, at)
        held = self.state.candidate
        if older is None and held is not None and held.instant < self.instant and held.held_since <= at:
            older = held.instant
        return replace(
            facts,
            active=active,
            busy=busy or (),
            calendar=None if busy is None else facts.calendar,  # more than are looked at: nothing is said of other policies
            slots=self._slots_of(row),
            older=None if older is None else _held_then(older, facts.in_force),
        )

    def _slots_of(self, row: OccurrenceRow) -> int:
        limit = (row.reason or {}).get("limit")
        is_capacity = (row.reason or {}).get("code") == "capacity" and isinstance(limit, int)
        return int(limit) if is_capacity and limit is not None else self.slots

    def _active_then(self, row: OccurrenceRow, at: datetime) -> tuple[RunStory, ...]:
        reason = row.reason or {}
        if reason.get("code") == "overlap":
            return tuple(self._story(str(name)) for name in reason.get("runs") or ())
        return tuple(self._story(run_name(number)) for number in around.runs_at(self.connection, self.row.number, at))

    def _newer(self, by: Any) -> told.Recorded | None:
        try:
            at = as_instant(by, "by")
        except InvalidArgument:
            return None
        held = self.state.candidate
        if held is not None and held.instant == at:
            return told.Recorded(status=Status.PENDING, recorded_at=held.held_since, lateness=None, reason=held.reason)
        found = None if at is None else occurrences.find(self.connection, self.row.number, at)
        if found is None:
            return None
        run = None if found.run is None else run_name(found.run)
        return told.Recorded(
            status=found.status, recorded_at=found.recorded_at, lateness=found.lateness, reason=found.reason, run=run
        )

    # -- its calendar ----------------------------------------------------------------------------------------------------

    def _segment(self) -> Segment:
        return self.segments[self.index]

    def _calendar(self) -> Calendar | None:
        segment = self._segment()
        try:
            return calendar_of(segment.trigger, segment.anchor)
        except CalendarError:
            return None

    def _is_named(self) -> tuple[bool | None, str | None]:
        """Tell whether the trigger in force names the instant, None with why where that cannot be known."""
        found = _names(self._segment(), self.instant)
        if isinstance(found, str):
            return None, f"whether its calendar names it cannot be worked out: {found}"
        revision = saved.revision(self.connection, self.row.number, self._segment().period)
        today = stamps()
        is_other = revision is not None and (revision.croniter, revision.tz_database) != today
        if is_other and isinstance(self._segment().trigger, CronTrigger):
            return found, f"read here by croniter {today[0]}, tz {today[1]}"
        return found, None

    def _in_force(self, which: int | None = None) -> InForce:
        """Return a revision, by default the one that was current at the instant; its calendar is that of the time."""
        number = which or self._revision_at()
        definition, revision = self.context.schedule(self.row.number, number)
        segment = next((each for each in reversed(self.segments) if each.trigger == definition.trigger), self._segment())
        return InForce(
            revision=number,
            definition=definition,
            trigger=definition.trigger,
            anchor=segment.anchor,
            recorded_at=from_micros(revision.recorded_at),
            actor=revision.actor,
            croniter=revision.croniter,
            tz_database=revision.tz_database,
        )

    def _revision_at(self) -> int:
        """Return the last revision that was saved before the instant, of the trigger that names it."""
        following = self.segments[self.index + 1].period if self.index + 1 < len(self.segments) else None
        last = self.row.revision if following is None else following - 1
        return around.revision_by(self.connection, self.row.number, self.instant, self._segment().period, last)

    def _of_no_instant(self) -> ExplanationFacts:
        """The trigger in force does not name it: that of another time may, which explains it; else there is no such thing."""
        order = sorted(range(len(self.segments)), key=lambda n: abs(n - self.index))
        for n in order[1 : _MOST_SEGMENTS + 1]:
            segment = self.segments[n]
            if segment.trigger != self._segment().trigger and _names(segment, self.instant) is True:
                until = self.segments[n + 1].begins if n + 1 < len(self.segments) else None
                situation = told.Elsewhere(revision=segment.period, trigger=segment.trigger, since=segment.begins, until=until)
                facts = self._common(self._in_force(self._segment().period), situation)
                return replace(facts, is_instant=False)
        raise self._no_instant()

    def _no_instant(self) -> NotFound:
        before, after = self._beside()
        near = [f"{self.row.id}@{format_instant(each)}" for each in (before, after) if each is not None]
        segment = self._segment()
        words = trigger_words(segment.trigger, segment.anchor)
        name = f"{self.row.id}@{format_instant(self.instant)}"
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        data = {
            "occurrence": name,
            "near": near,
            "before": None if before is None else format_instant(before),
            "after": None if after is None else format_instant(after),
        }
        return NotFound(f"{name} is no instant of revision {segment.period} ({words}){hint}", data)

    def _beside(self) -> tuple[datetime | None, datetime | None]:
        """Return the nearest instants before and after one that is none."""
        segment, calendar = self._segment(), self._calendar()
        if calendar is None:
            return None, None
        try:
            earlier = calendar.due(segment.begins, self.instant, limit=1) if segment.begins < self.instant else None
            later = calendar.next_after(max(self.instant, segment.begins))
        except (CalendarError, OverflowError):
            return None, None
        return (earlier.instants[-1] if earlier is not None and earlier.instants else None), later

    # -- runs and slots --------------------------------------------------------------------------------------------------

    def _story(self, name: str) -> RunStory:
        if name not in self.stories:
            self.stories[name] = self._read_story(name)
        return self.stories[name]

    def _read_story(self, name: str) -> RunStory:
        number = run_number(name)
        try:
            row = None if number is None else runs.find(self.connection, number)
        except UnreadableRow as error:
            return RunStory(id=name, status=None, problem=error.message)
        if row is None:
            return RunStory(id=name, status=None, problem=None)
        return _story_of(run_view(self.context, self.connection, row))

    def _active_now(self) -> tuple[RunStory, ...]:
        return tuple(self._story(name) for name in runs.active_of(self.connection, self.row.number))

    def _slot_holders(self) -> tuple[RunStory, ...]:
        found = around.slot_holders(self.connection, self.now, self.now, most=_MOST_HOLDERS) or []
        stories = [self._story(run_name(number)) for number in found]
        return tuple(run for run in stories if run.status in (Status.ADMITTED, Status.RUNNING))

    def _busy(self, since: datetime, until: datetime, schedule: int) -> tuple[Busy, ...] | None:
        """Return when execution slots were held, less by what the schedule itself admitted from then on; None: too many."""
        found = around.slot_holders(self.connection, since, until, most=_MOST_HOLDERS)
        if found is None:
            return None
        held: list[Busy] = []
        for number in found:
            row = runs.find(self.connection, number)
            if row is None or (row.schedule == schedule and row.admitted_at >= since):
                continue
            if row.attempt == 1 and row.status is not Status.INTERRUPTED:
                held.append(Busy(row.admitted_at, row.ended_at))
            else:
                held += _stretches(self._story(row.id))
        return tuple(held)


def _names(segment: Segment, instant: datetime) -> bool | str:
    """Tell whether a trigger names an instant; why not, where its calendar gives no answer."""
    try:
        return is_instant(calendar_of(segment.trigger, segment.anchor), instant)
    except (CalendarError, OverflowError) as error:
        return str(error)


def _paused(row: around.PauseRow, ended: datetime | None) -> Paused:
    until = row.resumed_at if row.resumed_at is not None else ended
    return Paused(since=row.paused_at, until=until, reason=row.reason, actor=row.actor, resumed_by=row.resumed_by)


def _held_then(instant: datetime, in_force: InForce) -> Candidate:
    """What a schedule held at a time of which only the instant is known: what it waited for is taken from its policy."""
    reason: dict[str, Json] = {"code": "capacity", "limit": None}
    can_expire = in_force.definition.misfire.value == "skip" and in_force.definition.overlap is not Overlap.QUEUE
    return Candidate(instant=instant, held_since=instant, can_expire=can_expire, reason=reason)


def _story_of(view: RunView) -> RunStory:
    if view.status is None:
        return RunStory(id=view.run_id, status=None, problem=str((view.reason or {}).get("message", "")))
    return RunStory(
        id=view.run_id,
        status=Status(view.status),
        schedule_id=view.schedule_id,
        instant=view.instant,
        admitted_at=view.admitted_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
        attempt=view.attempt or 1,
        reason=view.reason,
        interrupt=view.interrupt,
        is_overdue=bool(view.overdue),
        max_run=None if view.max_run_s is None else timedelta(seconds=view.max_run_s),
        place=view.place,
        executions=tuple(
            told.ExecutionStory(
                k=each.k,
                step=each.step,
                attempt=each.attempt,
                started_at=each.started_at,
                ended_at=each.ended_at,
                exit_status=each.exit_status,
                signal=each.signal,
                reason=each.reason,
            )
            for each in view.trace
        ),
    )


def _stretches(run: RunStory) -> Iterable[Busy]:
    """When a run that was resumed held an execution slot: while it waited for input it held none."""
    attempts = sorted({each.attempt for each in run.executions})
    for attempt in attempts:
        own = [each for each in run.executions if each.attempt == attempt]
        since = run.admitted_at if attempt == attempts[0] else own[0].started_at
        is_last = attempt == attempts[-1]
        until = run.ended_at if is_last and run.status is not Status.INTERRUPTED else own[-1].ended_at
        if since is not None:
            yield Busy(since, until)


def _never_valid(row: DefinitionRow, state: ScheduleRow | None, instant: datetime) -> ExplanationView:
    """Nothing is known of the schedule but why: a file that never was valid, or records that cannot be read."""
    diagnostic = dict((state.diagnostic if state is not None else None) or row.diagnostic or {})
    what = "its records cannot be read" if state is not None else "its definition never was valid"
    if row.deleted_at is not None:
        what = "it was deleted, and all that is known of it is its id"
    message = f": {diagnostic['message']}" if diagnostic.get("message") else ""
    verify = (f"wfctl store verify {row.id}",) if state is not None else ()
    return ExplanationView(
        schedule_id=row.id,
        instant=instant,
        is_instant=None,
        situation="blocked",
        status=None,
        will_run=None,
        verdict=f"blocked - nothing runs of this schedule: {what}{message}.",
        revision=row.revision or None,
        trigger=None,
        timezone=None,
        croniter=None,
        tz_database=None,
        run_id=None,
        lateness_s=None,
        reason=diagnostic or None,
        lines=(),
        alternatives=(),
        commands=(*verify, f"wfctl schedule show {row.id}"),
    )
