"""Noting what happens to a schedule's health, and what is to be told of it, in the transaction in which it happens (7.8).

So a crash forgets nothing that happened, and nothing is noted that was rolled back. What is noted a supervisor tells.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from wfctl.core.admission import Decision
from wfctl.core.health_events import RULES, Happening, Word, decide_telling, happening_of
from wfctl.core.instants import format_instant
from wfctl.core.model import Json, Notify, Reason, ScheduleDefinition, Settlement, Status, run_name
from wfctl.errors import MissingExtra
from wfctl.operations.context import Context
from wfctl.operations.round_facts import Due
from wfctl.store.ledger import definitions, health, schedules
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow


def notify_of(context: Context, schedule: int) -> Notify | None:
    """Return the command that is told about a schedule: its own, else that of the settings; None: nobody is."""
    try:
        row = definitions.get(context.ledger.connection, schedule)
        own = context.schedule(schedule, row.revision)[0].notify if row.revision else None
    except UnreadableRow:
        own = None
    return own or _of_settings(context)


def _of_settings(context: Context) -> Notify | None:
    """A supervisor says what its settings are; a command that settles a run that it finds reads them once."""
    if context.notify is None:
        from wfctl.settings import load_settings

        try:
            found = load_settings(context.layout.root, os.environ).notify
        except MissingExtra:
            found = None
        context.notify = lambda: found
    return context.notify()


# What happens -----------------------------------------------------------------------------------------------------------


def note_run(
    context: Context, run: RunRow, status: Status, *, reason: Reason | None, interrupt: Mapping[str, Json] | None = None
) -> None:
    """Within a transaction, note where a run has come to; a run by hand is no schedule's health."""
    happening = happening_of(status, reason)
    if run.schedule is None or happening is None:
        return
    facts: dict[str, Json] = {**_of_run(run), "status": status.value, "reason": reason, "interrupt": interrupt}
    _note(context, run.schedule, happening, context.now(), facts)
    if happening is Happening.COMPLETED and not run.is_overdue:
        _note(context, run.schedule, Happening.IN_TIME, context.now(), facts)


def note_overdue(context: Context, run: RunRow) -> None:
    """Within a transaction, note that a run is overdue."""
    if run.schedule is not None:
        facts = {**_of_run(run), "status": run.status.value}
        _note(context, run.schedule, Happening.OVERDUE, context.now(), facts)


def note_round(
    context: Context, decided: Iterable[tuple[Due, Decision]], noted: Iterable[tuple[Due, Decision]], now: datetime
) -> None:
    """Within the transaction of a round, note what was missed, rejected, and in time again.

    `noted`: those of which an instant did not simply become a run.
    """
    missed = health.missed(context.ledger.connection)
    for due, decision in decided if missed else noted:
        number = due.row.number
        lost = [row for row in decision.settled if happening_of(row.status, row.reason) is Happening.MISSED]
        if lost:
            _note(context, number, Happening.MISSED, now, _of_rows(lost))
        for row in decision.settled:
            if row.status is Status.PREFLIGHT_REJECTED:
                _note(context, number, Happening.FAILED, now, _of_rows([row]))
        if (lost or number in missed) and _comes_in_time(decision, lost, due.rules.definition):
            _note(context, number, Happening.ON_TIME, now, {})


def _comes_in_time(decision: Decision, lost: Sequence[Settlement], definition: ScheduleDefinition) -> bool:
    """Tell whether a run was admitted within the lateness allowance, and nothing was missed after it."""
    return any(
        row.run is not None
        and row.lateness is not None
        and row.lateness <= definition.lateness
        and (not lost or row.instant > lost[-1].instant)
        for row in decision.settled
    )


def look_at_blocked(context: Context, *, is_anew: bool) -> None:
    """Note which schedules have become blocked or no more are, whoever changed that, and while nobody looked.

    `is_anew`: somebody else may be told by now, so what was blocked and not told is looked at as well. Raise IoError, TimedOut.
    """
    with context.ledger.reading() as connection:
        found = _blocked_now(connection)
        known = health.blocked(connection)
    if found == known and not is_anew:
        return
    with context.ledger.transaction() as connection:
        found, known = _blocked_now(connection), health.blocked(connection)
        now = context.now()
        for number in sorted(found if is_anew else found - known):
            trouble = health.find(connection, number).blocked
            if trouble is None or not trouble.is_told:
                _note(context, number, Happening.BLOCKED, now, _of_blocked(connection, number))
        for number in sorted(known - found):
            _note(context, number, Happening.UNBLOCKED, now, {})


def _blocked_now(connection: sqlite3.Connection) -> set[int]:
    """Return the schedules that are blocked, by their own definition or their deployment's; newcomers too."""
    numbers: set[int] = set()
    for row in definitions.blocked(connection):
        if row.kind == "schedule":
            numbers.add(row.number)
        else:
            numbers.update(number for number, _ in schedules.of_deployment(connection, row.number))
    return numbers


# What is told of it -----------------------------------------------------------------------------------------------------


def _note(context: Context, schedule: int, happening: Happening, at: datetime, facts: Mapping[str, Json]) -> None:
    """Bring a schedule's health up to date, and enter what is to be told."""
    connection = context.ledger.connection
    before = health.find(connection, schedule)
    rule = RULES[happening]
    if rule.side is not None and not rule.begins and before.side(rule.side) is None:
        return  # well, as it was
    try:
        row = definitions.get(connection, schedule)
    except UnreadableRow:
        return  # it has not even a name
    notify = None if row.deleted_at is not None and happening is Happening.UNBLOCKED else notify_of(context, schedule)
    after, telling = decide_telling(before, happening, at=at, after=None if notify is None else notify.after)
    if after != before:
        health.save(connection, schedule, after)
    if telling is None:
        return
    event: dict[str, Json] = {
        "schedule_id": row.id,
        "event": telling.word.value,
        "at": format_instant(at),
        "since": format_instant(telling.since),
        "failures": telling.count if telling.word in _ABOUT_FAILURES else None,
        "instant": None,
        "run_id": None,
        "status": None,
        "reason": None,
        "interrupt": None,
    }
    health.add_notice(connection, schedule, telling.word, {**event, **facts})


_ABOUT_FAILURES = frozenset({Word.FAILED, Word.FAILING, Word.RECOVERED})


def _of_run(run: RunRow) -> dict[str, Json]:
    return {"run_id": run.id, "instant": None if run.instant is None else format_instant(run.instant)}


def _of_rows(rows: Sequence[Settlement]) -> dict[str, Json]:
    """What is said of rows of the history: the newest of them."""
    last = rows[-1]
    return {
        "instant": format_instant(last.instant),
        "run_id": None if last.run is None else run_name(last.run),
        "status": last.status.value,
        "reason": None if last.reason is None else dict(last.reason),
    }


def _of_blocked(connection: sqlite3.Connection, number: int) -> dict[str, Json]:
    row = schedules.find(connection, number)
    diagnostic = row.diagnostic if row is not None else definitions.get(connection, number).diagnostic
    return {"reason": None if diagnostic is None else dict(diagnostic)}
