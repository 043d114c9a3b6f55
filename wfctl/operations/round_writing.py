"""Writing a round: rows, runs and marks together, in one transaction (contract 6.1, 6.3).

A round is first put down as a sheet, which has everything but the moment of writing: when it was recorded and admitted, how
late that was. So it can be made ready before its time, and writing it is little more than handing it to SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from wfctl.core.admission import Decision, Round
from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Candidate, Json, Settlement
from wfctl.operations import telling, upkeep
from wfctl.operations.context import Context
from wfctl.operations.round_facts import Due, Gathered, RoundPlan, data_version
from wfctl.store.ledger import admissions, definitions, executions, occurrences, runs, schedules, sessions
from wfctl.store.ledger.admissions import DueRow
from wfctl.store.ledger.numbers import STATUS_NUMBER
from wfctl.store.ledger.occurrences import RowValues

#: A schedule that moves: watermark, when a run was admitted, next instant, when to look again, number.
_Move = tuple[int, int | None, int | None, int | None, int]
_First = tuple[int, int, int]  #: the first of a schedule's rows: schedule, instant, place


@dataclass(slots=True, kw_only=True)
class Sheet:
    """Everything that a round writes, as if it were written at the moment that it was decided for. Tuples hold microseconds."""

    at: datetime  #: that moment
    version: int  #: of the ledger as it was decided by, see `Gathered`
    commits: int
    broken: Sequence[tuple[int, Mapping[str, Json]]]
    decided: Sequence[tuple[Due, Decision]]
    runs: Sequence[runs.NewRun]
    rows: list[RowValues] = field(default_factory=list)
    unordered: list[_First] = field(default_factory=list)  #: those that may stand behind later instants
    noted: list[tuple[Due, Decision]] = field(default_factory=list)  #: whatever did not simply become a run
    moved: list[_Move] = field(default_factory=list)
    held: list[tuple[int, Candidate | None]] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)  #: schedules of which no admitted instant can come due again
    coming: int | None = None  #: the first instant that comes due next, of all that was decided

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to write."""
        return not (self.rows or self.moved or self.held or self.passed or self.broken)

    def at_moment(self, now: datetime) -> Sheet:
        """Return what is written at another moment instead: what was recorded and admitted then, how late, held since when."""
        if now == self.at:
            return self
        micros = to_micros(now)
        return replace(
            self,
            at=now,
            runs=[runs.admitted_at(run, now) for run in self.runs],
            rows=[
                (number, place, instant, status, revision, micros, micros - instant, run, reason, begin, count)
                for number, place, instant, status, revision, _, _, run, reason, begin, count in self.rows
            ],
            moved=[
                (floor, None if admitted is None else micros, coming, wake, number)
                for floor, admitted, coming, wake, number in self.moved
            ],
            held=[(number, held and _held_from(held, self.at, now)) for number, held in self.held],
        )


def _held_from(held: Candidate, at: datetime, now: datetime) -> Candidate:
    """What is newly held is held from the moment of writing on."""
    return replace(held, held_since=now) if held.held_since == at else held


def sheet_of(gathered: Gathered, decided: Round) -> Sheet:
    """Given what was decided, return all that is to be written of it."""
    schedules = gathered.schedules
    sheet = Sheet(
        at=gathered.at,
        version=gathered.version,
        commits=gathered.commits,
        broken=gathered.broken,
        decided=[(schedules[name], decision) for name, decision in decided.decisions.items()],
        runs=_new_runs(gathered, decided),
    )
    _put_rows(sheet, gathered.next_place)
    at = to_micros(gathered.at)
    for due, decision in sheet.decided:
        _put_state(sheet, due, decision, at)
    return sheet


def _new_runs(gathered: Gathered, decided: Round) -> list[runs.NewRun]:
    new = []
    for number, (name, instant) in enumerate(decided.admitted, gathered.next_run):
        row, rules, _ = gathered.schedules[name]
        new.append(
            runs.NewRun.of_all(
                {
                    "number": number,
                    "schedule": row.number,
                    "instant": instant,
                    "revision": row.revision,
                    "deployment": row.deployment,
                    "deployment_revision": row.deployment_revision,
                    "admitted_at": gathered.at,
                    "max_run": runs.as_span(rules.max_run),
                    "max_steps": rules.definition.max_steps,
                    "input": None,
                }
            )
        )
    return new


def _put_rows(sheet: Sheet, first: int) -> None:
    """Put down the rows of all schedules. Their places follow the instants; they are written in the order of their keys."""
    at = to_micros(sheet.at)
    found: list[tuple[int, str, int, DueRow, Settlement]] = []
    for each in sheet.decided:
        state = each[0].row
        for row in each[1].settled:
            found.append((to_micros(row.instant), state.id, len(found), state, row))
        if len(each[1].settled) != len(each[1].admit):
            sheet.noted.append(each)
    found.sort()
    checked = set()
    for place, (instant, _, _, state, row) in enumerate(found, first):
        number = state.number
        rest = occurrences.rest_of(row)
        sheet.rows.append((number, place, instant, STATUS_NUMBER[row.status], state.revision, at, at - instant, row.run, *rest))
        # Nothing lies behind the watermark, so what comes after the floor comes in order.
        if (state.passing_until is not None or row.instant <= state.floor) and number not in checked:
            checked.add(number)
            sheet.unordered.append((number, instant, place))
    sheet.rows.sort()


def _put_state(sheet: Sheet, due: Due, decision: Decision, at: int) -> None:
    """Put down where a schedule stands then, where that is another place than before."""
    row, rules, calendar = due
    held, floor = decision.candidate, decision.watermark
    watermark, coming, admitted = row.watermark_us, row.next_us, None
    if floor > row.floor:
        following = calendar.next_after(floor)
        coming = None if following is None else to_micros(following)
        watermark = to_micros(floor)
    if decision.admit:
        watermark, admitted = to_micros(max(floor, row.floor)), at
    wake = coming
    if held is not None:
        held_back = row.floor if row.floor > sheet.at else None
        look = upkeep.wake_time(None if coming is None else from_micros(coming), held, rules.definition, held_back)
        wake = None if look is None else to_micros(look)
    if admitted is not None or wake != row.wake_us or coming != row.next_us or watermark != row.watermark_us:
        sheet.moved.append((watermark, admitted, coming, wake, row.number))
    if held != row.candidate:
        sheet.held.append((row.number, held))
    if row.passing_until is not None and max(floor, row.floor) >= row.passing_until:
        sheet.passed.append(row.number)
    if coming is not None and (sheet.coming is None or coming < sheet.coming):
        sheet.coming = coming


def write(context: Context, plan: RoundPlan, decided: Sheet, now: datetime) -> list[runs.NewRun] | None:
    """Write a round in one transaction; None when what it was decided on has changed, and nothing is written."""
    sheet = decided.at_moment(now)
    new = list(sheet.runs)
    if context.ledger.commits != sheet.commits:
        return None
    with context.ledger.transaction() as connection:
        if data_version(connection) != sheet.version:
            return None
        for number, diagnostic in sheet.broken:
            definitions.set_diagnostic(connection, number, diagnostic)
            schedules.set_wake(connection, number, next_instant=None, wake_at=None)
        if sheet.rows:
            occurrences.reserve_places(connection, len(sheet.rows))
            occurrences.append_all(connection, sheet.rows)
            for number, instant, place in sheet.unordered:
                occurrences.note_order(connection, number, instant, place)
        runs.insert(connection, new)
        _mark(context, connection, plan, new)
        admissions.move(connection, sheet.moved)
        schedules.hold_all(connection, sheet.held)
        for number in sheet.passed:
            schedules.clear_passing(connection, number)
        telling.note_round(context, sheet.decided, sheet.noted, now)
        sessions.note_clock(connection, now)
        if plan.session is not None and new:
            sessions.seen(connection, plan.session, now)
    return new


def _mark(context: Context, connection: sqlite3.Connection, plan: RoundPlan, new: Sequence[runs.NewRun]) -> None:
    """Mark the first execution of each run, with what its executor is known by."""
    if not plan.others:
        executions.mark(connection, [(run.number, 1, 0, 1) for run in new], plan.mark_note())
        return
    marks: dict[str, list[tuple[int, int, int, int]]] = {}
    for run in new:
        executor = context.deployment(run.deployment, run.deployment_revision)[0].executor
        marks.setdefault(executor, []).append((run.number, 1, 0, 1))
    for executor, mine in marks.items():
        executions.mark(connection, mine, plan.mark_note(executor))
