"""The facts of a round: what its decisions depend on, gathered as of one moment (contract 5.1, 5.3, 5.4).

All of it is one consistent view of the ledger. What cannot be trusted is set apart with the reason, to be blocked (7.4).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from wfctl.core.admission import ScheduleFacts, Slots, Verdict
from wfctl.core.instants import format_instant
from wfctl.core.model import LOCAL, DueInstants, Json, Reason
from wfctl.core.trigger import Calendar, CalendarError
from wfctl.operations import consistency, upkeep
from wfctl.operations.context import Context
from wfctl.operations.known import Rules
from wfctl.store.ledger import admissions, runs
from wfctl.store.ledger.admissions import DueRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schedules import ScheduleRow

_CHUNK = 64  #: candidates waiting for capacity looked at beyond the free slots
_ALL = 1 << 30
_NOTHING_DUE = DueInstants()
_NONE_PASSED: frozenset[datetime] = frozenset()
_FAR = timedelta(minutes=5)  #: a schedule that needed attention that long ago is far behind
_FEW = 8  #: so many of them are settled along with the others
_PORTION, _PORTION_S = 16, 0.02  #: else so many at once, and no more once that long was taken to find out what they missed

#: Which definitions a verdict is about: schedule and deployment, with their revisions.
Subject = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What the supervisor brings to a round."""

    slots: int  #: `max_concurrent_runs`
    session: int | None  #: its session in the ledger
    absent_until: datetime | None = None  #: when it came back: lateness before that is explained by `absent_from`
    absent_from: datetime | None = None
    mark_note: Callable[..., Mapping[str, Json]] = field(default=dict)  #: what is written with an executor's mark (6.2)
    #: by name: how many runs other executors may have at once; None: nothing is admitted to that one for now
    others: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class Behind:
    """How far the schedules were gone through that stand far behind.

    After a long absence there may be thousands of them, each with a hundred rows to record: they are settled in portions, a
    round each, so that what comes due meanwhile is not kept waiting.
    """

    after: admissions.Place | None = None  #: the last one of the portion before
    is_more: bool = False  #: there are some behind it


class Due(NamedTuple):
    """One schedule of a round: its state, what decides about it, and its calendar."""

    row: DueRow
    rules: Rules
    calendar: Calendar


@dataclass(slots=True)
class Gathered:
    """The facts of one moment."""

    at: datetime
    free_slots: int
    next_run: int
    next_place: int  #: in the order of recording
    version: int  #: SQLite's own count of what other connections committed
    commits: int  #: and that of this one
    others: dict[str, Slots] = field(default_factory=dict)  #: the slots of other executors
    schedules: dict[str, Due] = field(default_factory=dict)
    facts: list[ScheduleFacts] = field(default_factory=list)
    broken: list[tuple[int, Mapping[str, Json]]] = field(default_factory=list)  #: those to be blocked, by number, each with why
    behind: Behind = field(default_factory=Behind)  #: where the portion ended


def gather(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    verdicts: Mapping[Subject, Verdict],
    now: datetime,
    behind: Behind | None = None,
) -> Gathered:
    """Return what is to be decided at `now`, and by what; a verdict that is known already is among the facts.

    Given `behind`, of many schedules that are far behind only the next portion.
    """
    used = used_slots(context, connection) if plan.others else {LOCAL: runs.slots_used(connection)}
    free = plan.slots - used.get(LOCAL, 0)
    version, commits = data_version(connection), context.ledger.commits
    gathered = Gathered(now, free, *admissions.next_numbers(connection), version, commits)
    for name, limit in plan.others.items():
        gathered.others[name] = Slots(0, 0) if limit is None else Slots(limit - used.get(name, 0), limit)
    in_portions = behind is not None and admissions.has_more_behind(connection, now - _FAR, _FEW)
    found = admissions.due(connection, now, after=now - _FAR if in_portions else None)
    if max([free, *(slots.free for slots in gathered.others.values())]) > 0:
        # Before one that waits for an executor with room any number may stand that wait for another.
        found += admissions.waiting_for_capacity(connection, limit=_ALL if plan.others else free + _CHUNK)
    for row in found:
        _gather_any(context, connection, plan, gathered, row, verdicts)
    if behind is not None and in_portions:
        _gather_portion(context, connection, plan, gathered, verdicts, behind)
    return gathered


def _gather_portion(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    gathered: Gathered,
    verdicts: Mapping[Subject, Verdict],
    behind: Behind,
) -> None:
    begun = context.clock.monotonic()
    portion = admissions.behind(connection, gathered.at - _FAR, after=behind.after, limit=_PORTION)
    for place, row in portion:
        if row is not None:
            _gather_any(context, connection, plan, gathered, row, verdicts)
        gathered.behind = Behind(place, is_more=True)
        if context.clock.monotonic() - begun > _PORTION_S:
            return
    if len(portion) < _PORTION:  # the end is reached: what is left there waits for something
        gathered.behind = Behind()


def _gather_any(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    gathered: Gathered,
    row: DueRow | ScheduleRow,
    verdicts: Mapping[Subject, Verdict],
) -> None:
    if isinstance(row, ScheduleRow):
        assert row.own_diagnostic is not None
        gathered.broken.append((row.number, row.own_diagnostic))
    elif row.id not in gathered.schedules:
        try:
            _gather_one(context, connection, plan, gathered, row, verdicts)
        except UnreadableRow as error:
            gathered.broken.append((row.number, consistency.doubt(context, connection, row.number, error)))


def used_slots(context: Context, connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many execution slots the scheduled runs of each executor hold (5.4)."""
    used: dict[str, int] = {}
    for deployment, revision, count in runs.slots_by_deployment(connection):
        try:
            name = context.deployment(deployment, revision)[0].executor
        except UnreadableRow:
            name = LOCAL  # a slot that is held is never given on because of a record
        used[name] = used.get(name, 0) + count
    return used


def data_version(connection: sqlite3.Connection) -> int:
    """Return SQLite's own count of what other connections committed."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def subject_of(row: DueRow) -> Subject:
    """Return what the verdict about a schedule is about, as it stands."""
    return (row.number, row.revision, row.deployment, row.deployment_revision)


def _gather_one(
    context: Context,
    connection: sqlite3.Connection,
    plan: RoundPlan,
    gathered: Gathered,
    row: DueRow,
    verdicts: Mapping[Subject, Verdict],
) -> None:
    rules = context.known.rules(context, row)
    executor = context.known.executor(context, row) if plan.others else LOCAL
    if plan.others.get(executor, 0) is None:
        return  # it is considered once its executor can be used
    if rules is None or row.is_doubtful:
        gathered.broken.append((row.number, consistency.doubt(context, connection, row.number)))
        return
    floor, passed = row.floor, _NONE_PASSED
    try:
        calendar = rules.calendar or rules.calendar_from(row.anchor)
        if row.passing_until is not None:
            due, passed = upkeep.due_of(connection, row, calendar, gathered.at)
        else:
            due = calendar.due(floor, gathered.at) if floor < gathered.at else _NOTHING_DUE
    except CalendarError as error:
        gathered.broken.append((row.number, upkeep.calendar_diagnostic(row.id, error)))
        return
    gathered.schedules[row.id] = Due(row, rules, calendar)
    gathered.facts.append(
        ScheduleFacts(
            row.id,
            rules.definition,
            floor,
            row.candidate,
            due,
            row.active,
            row.last_admission,
            executor,
            passed,
            verdict=verdicts.get(subject_of(row)) if verdicts else None,
            absence=None if plan.absent_until is None else _absence(plan, floor),
        )
    )


def _absence(plan: RoundPlan, floor: datetime) -> Reason | None:
    """Return what explains the lateness of instants that passed while no supervisor was there (5.10)."""
    if plan.absent_from is None or plan.absent_until is None or floor >= plan.absent_until:
        return None
    return {"absent": {"from": format_instant(plan.absent_from), "until": format_instant(plan.absent_until)}}
