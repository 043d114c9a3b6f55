"""Writing a round: rows, runs and marks together, in one transaction (contract 6.1, 6.3).

A round is first put down as a sheet, which has everything but the moment of writing: when it was recorded and admitted, how
late that was. So it can be made ready before its time, and writing it is little more than handing it to SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter

from wfctl.core.admission import Decision, Round
from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Candidate, Json
from wfctl.operations import telling, upkeep
from wfctl.operations.context import Context
from wfctl.operations.round_facts import Due, Gathered, RoundPlan, data_version
from wfctl.store.ledger import admissions, definitions, executions, occurrences, runs, schedules, sessions
from wfctl.store.ledger.numbers import STATUS_NUMBER

#: A row of the history: schedule, place behind the first of the round, instant, status, revision, run, reason and span.
_Row = tuple[int, int, int, int, int, int | None, str | None, int | None, int | None]
#: A schedule that moves: watermark, whether a run was admitted, next instant, when to look again, number.
_Move = tuple[int, bool, int | None, int | None, int]
_First = tuple[int, int, int]  #: the first of a schedule's rows: schedule, instant, place


@dataclass(slots=True, kw_only=True)
class Sheet:
    """Everything that a round writes, but for the moment of writing. Instants in tuples are microseconds."""

    at: datetime  #: the moment that it was decided for
    version: int  #: of the ledger as it was decided by, see `Gathered`
    broken: Sequence[tuple[int, Mapping[str, Json]]]
    decided: Sequence[tuple[Due, Decision]]
    runs: Sequence[runs.NewRun]  #: as admitted at `at`
    rows: list[_Row] = field(default_factory=list)
    unordered: list[_First] = field(default_factory=list)  #: those that may stand behind later instants
    moved: list[_Move] = field(default_factory=list)
    held: list[tuple[int, Candidate | None]] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)  #: schedules of which no admitted instant can come due again
    coming: int | None = None  #: the first instant that comes due next, of all that was decided

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to write."""
        return not (self.rows or self.moved or self.held or self.passed or self.broken)


def sheet_of(gathered: Gathered, decided: Round) -> Sheet:
    """Given what was decided, return all that is to be written of it."""
    both = [(gathered.schedules[name], decision) for name, decision in decided.decisions.items()]
    sheet = Sheet(
        at=gathered.at,
        version=gathered.version,
        broken=gathered.broken,
        decided=both,
        runs=_new_runs(gathered, decided),
    )
    _put_rows(sheet)
    for due, decision in both:
        _put_state(sheet, due, decision)
    return sheet


def _new_runs(gathered: Gathered, decided: Round) -> list[runs.NewRun]:
    new = []
    for number, (name, instant) in enumerate(decided.admitted, gathered.next_run):
        due = gathered.schedules[name]
        row = due.row
        new.append(
            runs.NewRun(
                number=number,
                schedule=row.number,
                instant=instant,
                revision=row.revision,
                deployment=row.deployment,
                deployment_revision=row.deployment_revision,
                admitted_at=gathered.at,
                max_run=runs.as_span(due.rules.max_run),
                max_steps=due.rules.definition.max_steps,
                input=None,
            )
        )
    return new


def _put_rows(sheet: Sheet) -> None:
    """Put down the rows of all schedules. Their places follow the instants; they are written in the order of their keys."""
    found = [(to_micros(row.instant), due.row.id, due.row, row) for due, decision in sheet.decided for row in decision.settled]
    found.sort(key=itemgetter(0, 1))
    doubtful = {
        due.row.number
        for due, decision in sheet.decided
        if decision.settled and (due.row.passing_until is not None or decision.settled[0].instant <= due.row.floor)
    }
    for place, (instant, _, state, row) in enumerate(found):
        number = state.number
        rest = occurrences.rest_of(row)
        sheet.rows.append((number, place, instant, STATUS_NUMBER[row.status], state.revision, row.run, *rest))
        if number in doubtful:  # nothing lies behind the watermark, so what comes after the floor comes in order
            sheet.unordered.append((number, instant, place))
            doubtful.remove(number)
    sheet.rows.sort()


def _put_state(sheet: Sheet, due: Due, decision: Decision) -> None:
    """Put down where a schedule stands then, where that is another place than before."""
    row = due.row
    held = decision.candidate
    floor = max(decision.watermark, row.floor)
    watermark, coming = row.watermark_us, row.next_us
    if floor != row.floor:
        following = due.calendar.next_after(floor)
        coming = None if following is None else to_micros(following)
    if floor != row.floor or decision.admit:
        watermark = to_micros(floor)
    wake = coming
    if held is not None:
        held_back = row.floor if row.floor > sheet.at else None
        at = upkeep.wake_time(None if coming is None else from_micros(coming), held, due.rules.definition, held_back)
        wake = None if at is None else to_micros(at)
    if decision.admit or (watermark, coming, wake) != (row.watermark_us, row.next_us, row.wake_us):
        sheet.moved.append((watermark, bool(decision.admit), coming, wake, row.number))
    if held != row.candidate:
        sheet.held.append((row.number, held))
    if row.passing_until is not None and floor >= row.passing_until:
        sheet.passed.append(row.number)
    if coming is not None and (sheet.coming is None or coming < sheet.coming):
        sheet.coming = coming


def write(context: Context, plan: RoundPlan, sheet: Sheet, now: datetime) -> list[runs.NewRun] | None:
    """Write a round in one transaction; None when what it was decided on has changed, and nothing is written."""
    micros = to_micros(now)
    new = list(sheet.runs) if now == sheet.at else [runs.admitted_at(run, now) for run in sheet.runs]
    with context.ledger.transaction() as connection:
        if data_version(connection) != sheet.version:
            return None
        for number, diagnostic in sheet.broken:
            definitions.set_diagnostic(connection, number, diagnostic)
            schedules.set_wake(connection, number, next_instant=None, wake_at=None)
        if sheet.rows:
            first = occurrences.reserve_places(connection, len(sheet.rows))
            occurrences.append_all(
                connection,
                [
                    (number, first + place, instant, status, revision, micros, micros - instant, run, reason, begin, count)
                    for number, place, instant, status, revision, run, reason, begin, count in sheet.rows
                ],
            )
            for number, instant, place in sheet.unordered:
                occurrences.note_order(connection, number, instant, first + place)
        runs.insert(connection, new)
        _mark(context, connection, plan, new)
        admissions.move(
            connection,
            [(floor, micros if admits else None, coming, wake, number) for floor, admits, coming, wake, number in sheet.moved],
        )
        schedules.hold_all(connection, [_held_from(each, sheet.at, now) for each in sheet.held])
        for number in sheet.passed:
            schedules.clear_passing(connection, number)
        telling.note_round(context, sheet.decided, now)
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


def _held_from(each: tuple[int, Candidate | None], at: datetime, now: datetime) -> tuple[int, Candidate | None]:
    """What is newly held is held from the moment of writing on."""
    number, held = each
    return each if held is None or held.held_since != at or at == now else (number, replace(held, held_since=now))
