"""One round: everything due at one moment is decided, and written down in one transaction (contract 5, 6.1, 6.3).

The decision is the core's. Here its facts are gathered and its answer is recorded: rows, runs and marks together, before any
process exists. Preflight may take long, so it is asked outside the transaction, which checks that what was decided on still
stands; else the round is repeated (5.9, 5.13).

A round may also be prepared before its moment, and then only be written when that has come: what was decided ahead holds as
long as nothing that it depends on has changed, the clock included.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from wfctl.core.admission import Round, ScheduleFacts, Verdict, decide_round
from wfctl.core.instants import from_micros
from wfctl.core.model import ScheduleDefinition
from wfctl.errors import DamagedStore
from wfctl.operations import consistency
from wfctl.operations.context import Context
from wfctl.operations.round_facts import Behind as Behind
from wfctl.operations.round_facts import Gathered, gather, subject_of
from wfctl.operations.round_facts import RoundPlan as RoundPlan
from wfctl.operations.round_facts import Subject as Subject
from wfctl.operations.round_writing import Sheet, sheet_of, write
from wfctl.operations.stepback import held_back_until as held_back_until
from wfctl.operations.stepback import reanchor as reanchor
from wfctl.store.ledger import Ledger, admissions, runs, sessions
from wfctl.store.ledger.admissions import DueRow
from wfctl.store.ledger.rows import UnreadableRow

TOLERANCE = timedelta(milliseconds=50)  #: how late a prepared round may be written
_MICROSECOND = timedelta(microseconds=1)


class Question(NamedTuple):
    """A schedule whose preflight is to be asked, as it stands."""

    row: DueRow
    context: Context

    @property
    def definition(self) -> ScheduleDefinition:
        """Its definition, as a whole. Raise UnreadableRow."""
        return self.context.definition(self.row.number, self.row.revision)[0]

    @property
    def subject(self) -> Subject:
        """What the verdict is about."""
        return subject_of(self.row)


#: Asks preflight; what is not answered yet is left out, and its schedules wait for a later round.
Preflight = Callable[[Sequence[Question]], Mapping[Subject, Verdict]]


def same_checks(questions: Sequence[Question]) -> dict[Subject, list[Question]]:
    """Given what is to be asked, return the questions that one check answers, by what the answer is about.

    Where a deployment asks nothing of its input, what it needs is the same for all of its schedules. Raise UnreadableRow.
    """
    groups: dict[Subject, list[Question]] = {}
    for question in questions:
        row = question.row
        deployment, _ = question.context.deployment(row.deployment, row.deployment_revision)
        is_shared = deployment.input_schema is None
        about = (0, 0, row.deployment, row.deployment_revision) if is_shared else question.subject
        groups.setdefault(about, []).append(question)
    return groups


def settle_round(
    context: Context, plan: RoundPlan, preflight: Preflight, now: datetime, behind: Behind | None = None
) -> list[runs.NewRun]:
    """Settle everything due at `now` and return the runs that were admitted, in order, marked and ready to be launched.

    Schedules whose preflight is not answered yet are left for a later round. Given `behind`, so are those far behind that
    are too many for one round, and it says whether there are more. Raise TimedOut, IoError, DamagedStore.
    """
    reanchor(context, now)
    verdicts: dict[Subject, Verdict] = {}
    while True:
        decided = _decided(context, plan, preflight, verdicts, now, behind)
        if decided is None:
            return []
        try:
            admitted = write(context, plan, decided[1], now)
        except DamagedStore as error:
            if not _is_refused(error) or not consistency.look_at_start(context).blocked:
                raise
            continue  # whose records refused what was decided is blocked by now: the others go on
        if admitted is not None:
            _go_on(behind, decided[0])
            return admitted


def _go_on(behind: Behind | None, gathered: Gathered) -> None:
    if behind is not None:
        behind.after, behind.is_more = gathered.behind.after, gathered.behind.is_more


def _is_refused(error: DamagedStore) -> bool:
    return isinstance(error.__cause__, sqlite3.IntegrityError)


def _decided(
    context: Context,
    plan: RoundPlan,
    preflight: Preflight,
    verdicts: dict[Subject, Verdict],
    now: datetime,
    behind: Behind | None = None,
) -> tuple[Gathered, Sheet] | None:
    """Decide what is due at `now`; return what it was decided by and what is to be written, or None where that is nothing."""
    for is_last in (False, True):
        with context.ledger.reading() as connection:
            gathered = gather(context, connection, plan, verdicts, now, behind)
        if not gathered.facts and not gathered.broken:
            _go_on(behind, gathered)
            return None
        try:
            sheet = sheet_of(gathered, _decide(context, gathered, plan, preflight, verdicts))
        except UnreadableRow:
            if is_last:
                raise
            context.known.forget()  # a definition is not what it was any more: whose it is shows when all are read anew
        else:
            if not sheet.is_empty:
                return gathered, sheet
            _go_on(behind, gathered)
            return None
    raise AssertionError("the last time either returns or raises")


def _decide(
    context: Context, gathered: Gathered, plan: RoundPlan, preflight: Preflight, verdicts: dict[Subject, Verdict]
) -> Round:
    """Decide, asking preflight where an instant reaches it; what is not answered yet is left out. Raise UnreadableRow."""
    while True:
        decided = decide_round(
            gathered.facts,
            now=gathered.at,
            free_slots=gathered.free_slots,
            slot_limit=plan.slots,
            next_run=gathered.next_run,
            others=gathered.others,
        )
        if not decided.needs_preflight:
            return decided
        asked = [Question(gathered.schedules[name].row, context) for name in decided.needs_preflight]
        verdicts.update(preflight(asked))
        answers = {question.row.id: verdicts.get(question.subject) for question in asked}
        if all(verdict is not None and verdict.reason is None for verdict in answers.values()):
            return decided  # it was decided as if they passed, and they did
        gathered.facts = [each for each in map(_answered(answers), gathered.facts) if each is not None]


def _answered(answers: Mapping[str, Verdict | None]) -> Callable[[ScheduleFacts], ScheduleFacts | None]:
    def answer(facts: ScheduleFacts) -> ScheduleFacts | None:
        if facts.schedule_id not in answers:
            return facts
        verdict = answers[facts.schedule_id]
        return None if verdict is None else facts._replace(verdict=verdict)

    return answer


# Ahead of its moment ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedRound:
    """A round that was decided for a moment to come; nothing of it is written."""

    at: datetime
    until: datetime  #: the last moment at which it is still what would be decided
    plan: RoundPlan
    sheet: Sheet
    ledger: Ledger
    commits: int  #: of this ledger, when it was decided

    @property
    def runs(self) -> Sequence[runs.NewRun]:
        """The runs that will be admitted, in order, but for the time of their admission."""
        return self.sheet.runs


def prepare_round(context: Context, plan: RoundPlan, preflight: Preflight, at: datetime) -> PreparedRound | None:
    """Decide what will be due at `at`, as `settle_round` would then, and write nothing; preflight is asked now.

    None where nothing will be due, or where it takes more than a round to settle it: records that cannot be trusted, a clock
    that stepped back. Raise TimedOut, IoError, DamagedStore.
    """
    ledger, commits = context.ledger, context.ledger.commits
    with ledger.reading() as connection:
        if at < sessions.clock(connection):
            return None
    decided = _decided(context, plan, preflight, {}, at)
    if decided is None:
        return None
    gathered, sheet = decided
    if gathered.broken or not all(_is_past(facts, at) for facts in gathered.facts):
        return None
    with ledger.reading() as connection:
        wake = admissions.next_wake_after(connection, at)
    ends = [at + TOLERANCE - _MICROSECOND]
    ends += [from_micros(micros) - _MICROSECOND for micros in (wake, sheet.coming) if micros is not None]
    ends += [end for facts in gathered.facts for end in _ends_of_lateness(facts, at)]
    return PreparedRound(at, min(ends), plan, sheet, ledger, commits)


def _is_past(facts: ScheduleFacts, at: datetime) -> bool:
    """Tell whether all that is known of a schedule lies before `at`; a clock that stepped back may have left it otherwise."""
    held = facts.candidate
    is_held_past = held is None or (held.instant <= at and held.held_since < at)
    return facts.floor <= at and is_held_past and (facts.last_admission is None or facts.last_admission < at)


def _ends_of_lateness(facts: ScheduleFacts, at: datetime) -> Iterator[datetime]:
    """Give until when what is on time at `at` still is."""
    allowed = facts.definition.lateness
    for instant in facts.due.instants if facts.candidate is None else (facts.candidate.instant, *facts.due.instants):
        if at - instant <= allowed:
            yield instant + allowed


def commit_prepared(context: Context, plan: RoundPlan, prepared: PreparedRound, now: datetime) -> list[runs.NewRun] | None:
    """At its moment, write a prepared round and return the runs that were admitted, as `settle_round` does.

    None, and nothing is written, where that might decide otherwise by now: something was committed since, the plan is another,
    or `now` is not within what it was decided for. Raise TimedOut, IoError, DamagedStore.
    """
    if context.ledger is not prepared.ledger or context.ledger.commits != prepared.commits or plan != prepared.plan:
        return None
    if not prepared.at <= now <= prepared.until:
        return None
    try:
        return write(context, plan, prepared.sheet, now)
    except DamagedStore as error:
        if not _is_refused(error):
            raise
        return None  # `settle_round` finds out whose records these are
