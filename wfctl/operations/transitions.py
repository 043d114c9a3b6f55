"""What changed since one last looked, told from the ledger alone: whoever wrote it, in whichever process (contract 9, `watch`).

Nothing scans the history. Occurrences are read on from the last place, runs from the last number, and beside those only the
unfinished runs and where the schedules stand are held in mind. Of a run the ledger knows every status that it went through, so
none is lost however much happened between two looks.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from wfctl.core.instants import from_micros
from wfctl.core.lifecycle import states_between
from wfctl.core.model import FINISHED, OneshotTrigger, Status, run_name
from wfctl.core.near import near_data
from wfctl.core.plain import suggestion
from wfctl.errors import InvalidArgument
from wfctl.operations import listing, schedules
from wfctl.operations.context import Context
from wfctl.operations.views import SpanView, TransitionView
from wfctl.store.ledger import Ledger, definitions, feed, occurrences, runs
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.feed import Brief, ScheduleBrief
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow

AT_ONCE = 100  #: rows of a kind taken in by one look, so that no look takes long
_GAPS = 256  #: how far back numbers without a run are held in mind
STATES = ("active", "paused", "finished", "blocked", "deleted")  #: of a schedule (8.7)
WORDS = (*(status.value for status in Status), *STATES)

# What happened at one moment is told in this order: a change, then what it led to.
_OF_SCHEDULE, _OF_KNOWN_RUN, _OF_OCCURRENCE, _OF_NEW_RUN = range(4)


# What is wanted -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a watch is about; None: whatever it is."""

    schedules: frozenset[str] | None = None
    runs: frozenset[str] | None = None
    words: frozenset[str] | None = None  #: statuses and states that something comes to

    def takes(self, view: TransitionView) -> bool:
        """Tell whether a transition is wanted."""
        return (
            (self.schedules is None or view.schedule_id in self.schedules)
            and (self.runs is None or view.run_id in self.runs)
            and (self.words is None or view.to in self.words)
        )


def choose(context: Context, *, schedule_id: Any, run_id: Any, status: Any) -> Chosen:
    """Given the arguments of a watch, return what it is about. Raise InvalidArgument, NotFound."""
    names, ids = listing.as_choice(schedule_id, "schedule_id"), listing.as_choice(run_id, "run_id")
    words = listing.as_choice(status, "status")
    for word in words or ():
        if word not in WORDS:
            message = f"unknown status {word!r}{suggestion(word, WORDS)}"
            raise InvalidArgument(message, {"argument": "status", "known": sorted(WORDS), **near_data(word, sorted(WORDS))})
    with context.ledger.reading() as connection:
        for name in names or ():
            schedules.require(connection, name)
        for name in ids or ():
            listing.require_run(connection, name)
    return Chosen(*(None if each is None else frozenset(each) for each in (names, ids, words)))


# What changed -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """Transitions of one look, put in the order in which they happened."""

    items: list[tuple[datetime, int, TransitionView]] = field(default_factory=list)

    def add(self, view: TransitionView, rank: int, *, not_before: datetime | None = None) -> datetime:
        """Take one in; of what belongs together the later is never told first, whatever the clock did. Return its place."""
        at = view.at if not_before is None else max(view.at, not_before)
        self.items.append((at, rank, view))
        return at

    def in_order(self) -> list[TransitionView]:
        """Return them in their order."""
        return [view for _, _, view in sorted(self.items, key=lambda item: item[:2])]


class Feed:
    """Tells what changed in a ledger since the feed was made, or last asked. For one thread, as its context is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.has_more = False  #: the last look did not come to the end
        with context.ledger.reading() as connection:
            self._seen = self._stamp(connection)
            self._place, self._number = feed.ends(connection)
            self._gaps = feed.gaps(connection, self._number)
            self._runs = feed.unfinished(connection)
            self._digest: tuple[Any, ...] | None = feed.schedules_digest(connection)
            self._schedules = feed.by_number(feed.schedules(connection))

    def look(self, most: int = AT_ONCE) -> list[TransitionView]:
        """Return what changed, in order; up to about `most`, after which `has_more` says to look again.

        Where nothing was written this costs next to nothing. Raise as the ledger does.
        """
        with self._context.ledger.reading() as connection:
            stamp = self._stamp(connection)
            if stamp == self._seen and not self.has_more:
                return []
            found = _Found()
            self.has_more = not self._take_in(connection, found, most)
            self._seen = stamp
        return found.in_order()

    def _stamp(self, connection: sqlite3.Connection) -> tuple[Ledger, int, int]:
        """What is another one once anybody wrote: the ledger opened anew, a commit of ours, a commit of others."""
        return self._context.ledger, self._context.ledger.commits, feed.data_version(connection)

    def _take_in(self, connection: sqlite3.Connection, found: _Found, most: int) -> bool:
        """Take in what is new, each kind after the other; False when there is more of one."""
        return (
            self._take_occurrences(connection, found, most)
            and self._take_new_runs(connection, found, most)
            and self._take_known_runs(connection, found, most)
            and self._take_schedules(connection, found, most)
        )

    # -- occurrences -----------------------------------------------------------------------------------------------------

    def _take_occurrences(self, connection: sqlite3.Connection, found: _Found, most: int) -> bool:
        everything: dict[str, Any] = dict.fromkeys(("schedules", "statuses", "since", "until"))
        rows = occurrences.page(connection, **everything, after=self._place, limit=most)
        for row in rows:
            self._place = row.place
            if isinstance(row, OccurrenceRow) and (row.run is None or row.run not in self._runs):
                self._tell_occurrence(connection, found, row)
        return len(rows) < most

    def _tell_occurrence(self, connection: sqlite3.Connection, found: _Found, row: OccurrenceRow) -> None:
        status = row.status
        if row.run is not None:
            status = self._first_status(connection, row.run)
            self._runs[row.run] = (status, 1)  # its admission is told; what became of it since is told from here on
        view = _view(
            "occurrence",
            schedule_id=self._name_of(connection, row.schedule),
            instant=row.instant,
            run_id=None if row.run is None else run_name(row.run),
            from_=Status.PENDING.value if self._held_by(row.schedule) == row.instant else None,
            to=status.value,
            reason=row.reason if row.run is None else None,
            at=row.recorded_at,
            revision=row.revision,
            attempt=None if row.run is None else 1,
            lateness_s=None if row.lateness is None else row.lateness.total_seconds(),
            span=None if row.span is None else SpanView(first=row.span.first, last=row.span.last, count=row.span.count),
        )
        found.add(view, _OF_OCCURRENCE)

    def _held_by(self, number: int) -> datetime | None:
        brief = self._schedules.get(number)
        return None if brief is None else ScheduleBrief(*brief).held

    def _name_of(self, connection: sqlite3.Connection, number: int) -> str:
        brief = self._schedules.get(number)
        return str(brief[1]) if brief is not None else listing.name_of(connection, number)

    # -- runs ------------------------------------------------------------------------------------------------------------

    def _first_status(self, connection: sqlite3.Connection, number: int) -> Status:
        """A run begins as admitted, save one that was found after an older ledger was put back (2.8)."""
        run = _run_of(connection, number)
        is_restored = run is not None and (run.reason or {}).get("code") == "ledger-restored"
        return Status.FAILED if is_restored else Status.ADMITTED

    def _take_new_runs(self, connection: sqlite3.Connection, found: _Found, most: int) -> bool:
        everything: dict[str, Any] = dict.fromkeys(("schedules", "deployment", "statuses", "since", "until"))
        rows = runs.page(connection, **everything, after=self._number, limit=most)
        for row in rows:
            self._gaps.update(range(max(self._number + 1, row.number - _GAPS), row.number))
            self._number = row.number
            if isinstance(row, RunRow):
                self._tell_run(connection, found, row, _OF_NEW_RUN)
        self._gaps = {number for number in self._gaps if number > self._number - _GAPS}
        return len(rows) < most

    def _take_known_runs(self, connection: sqlite3.Connection, found: _Found, most: int) -> bool:
        now = feed.unfinished(connection)
        changed = [number for number, stands in self._runs.items() if now.get(number) != stands]
        changed += now.keys() - self._runs.keys()
        changed += runs.numbers_among(connection, self._gaps) - set(changed)
        for number in sorted(changed)[:most]:
            row = _run_of(connection, number)
            self._gaps.discard(number)
            if row is None:  # pruned, or not to be read any more
                self._runs.pop(number, None)
            else:
                self._tell_run(connection, found, row, _OF_KNOWN_RUN if number in self._runs else _OF_NEW_RUN)
        return len(changed) <= most

    def _tell_run(self, connection: sqlite3.Connection, found: _Found, row: RunRow, rank: int) -> None:
        """Tell everything that became of a run since it was last looked at, its admission too where that is news."""
        at = None
        if row.number not in self._runs:
            first = self._first_status(connection, row.number)
            self._runs[row.number] = (first, 1)
            kind = "run" if row.schedule is None else "occurrence"
            at = found.add(self._view_of_run(connection, row, None, (first, 1), kind), rank)
        before = self._runs[row.number]
        for stands in states_between(before, (row.status, row.attempt), has_started=row.started_at is not None):
            at = found.add(self._view_of_run(connection, row, before[0], stands, "run"), rank, not_before=at)
            before = stands
        if row.status in FINISHED:
            del self._runs[row.number]
        else:
            self._runs[row.number] = (row.status, row.attempt)

    def _view_of_run(
        self, connection: sqlite3.Connection, row: RunRow, from_: Status | None, stands: tuple[Status, int], kind: str
    ) -> TransitionView:
        status, attempt = stands
        is_last = stands == (row.status, row.attempt)
        return _view(
            kind,
            schedule_id=None if row.schedule is None else self._name_of(connection, row.schedule),
            instant=row.instant,
            run_id=row.id,
            from_=None if from_ is None else from_.value,
            to=status.value,
            reason=row.reason if is_last else None,
            at=self._time_of(row, status, attempt),
            revision=row.revision,
            attempt=attempt,
        )

    def _time_of(self, row: RunRow, status: Status, attempt: int) -> datetime:
        """When a run came to a status, as far as its record says; else now."""
        known = None
        if status is Status.ADMITTED:
            known = row.admitted_at
        elif status is Status.RUNNING:
            known = row.started_at if attempt == 1 else row.attempt_at if attempt == row.attempt else None
        elif status in FINISHED:
            known = row.ended_at
        return known or self._context.now()

    # -- schedules -------------------------------------------------------------------------------------------------------

    def _take_schedules(self, connection: sqlite3.Connection, found: _Found, most: int) -> bool:
        digest = feed.schedules_digest(connection)
        if digest == self._digest:
            return True
        known, now = self._schedules, feed.by_number(feed.schedules(connection))
        changed = [number for number, brief in now.items() if brief != known.get(number)]
        changed += known.keys() - now.keys()
        for number in changed[:most]:
            before, brief = known.pop(number, None), now.get(number)
            if brief is not None:
                known[number] = brief
            with contextlib.suppress(UnreadableRow):  # `store verify` tells of it
                if brief is not None:
                    self._tell_schedule(connection, found, before, ScheduleBrief(*brief))
                elif before is not None:
                    self._tell_deleted(connection, found, ScheduleBrief(*before))
        self._digest = digest if len(changed) <= most else None
        return len(changed) <= most

    def _tell_schedule(self, connection: sqlite3.Connection, found: _Found, before: Brief | None, now: ScheduleBrief) -> None:
        state = self._state_of(now)
        if before is None:
            found.add(self._view_of_schedule(now, None, state, self._created_at(connection, now)), _OF_SCHEDULE)
            self._tell_candidate(connection, found, None, now)
            return
        old = ScheduleBrief(*before)
        was, at = self._state_of(old), None
        if now.revision != old.revision:
            becomes = was if state == "paused" else state  # the pause is told apart
            saved = definitions.revision(connection, now.number, now.revision)
            edited = {"code": "edited", "actor": saved.actor if saved else None}
            time = from_micros(saved.recorded_at) if saved else self._context.now()
            at = found.add(self._view_of_schedule(now, was, becomes, time, edited), _OF_SCHEDULE)
            was = becomes
        if state != was:
            time, reason = self._why(connection, now, state)
            found.add(self._view_of_schedule(now, was, state, time, reason), _OF_SCHEDULE, not_before=at)
        self._tell_candidate(connection, found, old, now)

    def _tell_deleted(self, connection: sqlite3.Connection, found: _Found, old: ScheduleBrief) -> None:
        row = definitions.get(connection, old.number)
        at = self._context.now() if row.deleted_at is None else from_micros(row.deleted_at)
        reason = {"code": "deleted"}
        found.add(self._view_of_schedule(old, self._state_of(old), "deleted", at, reason), _OF_SCHEDULE)

    def _tell_candidate(
        self, connection: sqlite3.Connection, found: _Found, old: ScheduleBrief | None, now: ScheduleBrief
    ) -> None:
        """A candidate ends in a row, which is told as such; only a clock event takes one back without (5.14)."""
        was, held = None if old is None else old.held, now.held
        if was == held:
            return
        if was is not None and not _is_recorded(connection, now.number, was):
            view = self._view_of_candidate(now, was, Status.PENDING.value, None, {"code": "clock"})
            found.add(view, _OF_OCCURRENCE)
        state = None if held is None else states.find(connection, now.number)
        if held is not None and state is not None and state.candidate is not None:
            view = self._view_of_candidate(now, held, None, Status.PENDING.value, state.candidate.reason)
            found.add(view, _OF_OCCURRENCE)

    def _view_of_candidate(
        self, brief: ScheduleBrief, instant: datetime, from_: str | None, to: str | None, reason: Mapping[str, Any]
    ) -> TransitionView:
        given: dict[str, Any] = {"from_": from_, "to": to, "reason": reason, "at": self._context.now()}
        return _view("occurrence", schedule_id=brief.id, instant=instant, revision=brief.revision or None, **given)

    def _view_of_schedule(
        self, brief: ScheduleBrief, from_: str | None, to: str, at: datetime, reason: Mapping[str, Any] | None = None
    ) -> TransitionView:
        given: dict[str, Any] = {"from_": from_, "to": to, "at": at, "reason": reason}
        return _view("schedule", schedule_id=brief.id, revision=brief.revision or None, **given)

    def _state_of(self, brief: ScheduleBrief) -> str:
        """Return the state that a schedule shows (8.7), as far as its brief tells it."""
        if brief.is_blocked:
            return "blocked"
        if brief.paused_at is not None:
            return "paused"
        is_finished = brief.is_at_end and brief.candidate is None and self._is_oneshot(brief)
        return "finished" if is_finished else "active"

    def _is_oneshot(self, brief: ScheduleBrief) -> bool:
        try:
            return isinstance(self._context.schedule(brief.number, brief.revision)[0].trigger, OneshotTrigger)
        except UnreadableRow:
            return False

    def _created_at(self, connection: sqlite3.Connection, brief: ScheduleBrief) -> datetime:
        return from_micros(definitions.get(connection, brief.number).created_at)

    def _why(self, connection: sqlite3.Connection, now: ScheduleBrief, state: str) -> tuple[datetime, Mapping[str, Any] | None]:
        """Return when and why a schedule came to a state, as far as that is recorded."""
        pause = states.current_pause(connection, now.number) if state == "paused" else None
        if pause is not None:
            began, reason, actor = pause
            return began, {"code": "paused", "actor": actor, "reason": reason}
        if state == "blocked":
            found = states.find(connection, now.number)
            row = definitions.get(connection, now.number)
            return self._context.now(), (None if found is None else found.diagnostic) or row.diagnostic
        return self._context.now(), None


def _view(kind: str, **given: Any) -> TransitionView:
    absent = dict.fromkeys(("schedule_id", "instant", "run_id", "revision", "attempt", "lateness_s", "span"))
    return TransitionView(kind=kind, **{**absent, **given})


def _run_of(connection: sqlite3.Connection, number: int) -> RunRow | None:
    try:
        return runs.find(connection, number)
    except UnreadableRow:
        return None


def _is_recorded(connection: sqlite3.Connection, schedule: int, instant: datetime) -> bool:
    try:
        return occurrences.find(connection, schedule, instant) is not None
    except UnreadableRow:
        return True


def shown(chosen: Collection[str] | None) -> tuple[str, ...] | None:
    """Return a part of what was chosen as a view shows it."""
    return None if chosen is None else tuple(sorted(chosen))
