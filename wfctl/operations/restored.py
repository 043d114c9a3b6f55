"""Run directories that the ledger does not know: an older ledger was put back (contract 2.8).

Each says in `run.json` whose run it is. It is entered as `failed`, reason `ledger-restored`, so that neither its id nor its
occurrence is ever used again. What cannot say so keeps its id from being used again, and is left for a person to look at. A run
that the ledger knows, and that went further than it knows, is ended likewise.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from wfctl.core.definition import is_valid_id
from wfctl.core.instants import to_micros
from wfctl.core.model import Json, Settlement, Status, run_name
from wfctl.core.steps import Ended
from wfctl.keeper.records import record_path
from wfctl.operations.context import Context
from wfctl.store import rundir
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions, evidence, executions, occurrences, runs, schedules
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow
from wfctl.store.locks import is_held
from wfctl.store.rundir import RunIdentity

LOG = logging.getLogger("wfctl.restored")
_AT_ONCE = 100  #: entered in one transaction
_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)
REASON: dict[str, Json] = {"code": "ledger-restored"}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A directory of `runs/` that the ledger does not know."""

    number: int
    path: Path
    identity: RunIdentity | None  #: None: it does not say, or not legibly
    is_empty: bool  #: nothing was ever recorded in it


def unknown_directories(context: Context) -> list[Unknown]:
    """Return the run directories that the ledger does not know and that no command is about to use, ascending."""
    connection = context.ledger.connection
    names: dict[int, str] = {}
    for part in rundir.numbered_directories(context.layout):
        names |= {number: part[number] for number in runs.unknown_among(connection, part)}
    found = []
    for number in sorted(names):
        paths = context.layout.run(names[number])
        if paths.driver_lock.exists() and is_held(paths.driver_lock):
            continue  # a run by hand is just being entered
        try:
            identity = rundir.read_identity(paths)
        except ValueError:
            identity = None
        if identity is not None and not _is_of(identity, names[number]):
            identity = None
        if identity is not None and _is_named(connection, number, identity):
            continue  # the ledger knows it, and has lost its row: that is a contradiction (7.4)
        found.append(Unknown(number, paths.root, identity, identity is None and _is_empty(paths.root)))
    return found


def _is_of(identity: RunIdentity, name: str) -> bool:
    """Tell whether an identity is what wfctl writes into the directory of that name."""
    ids = [identity.deployment_id, *([identity.schedule_id] if identity.schedule_id is not None else [])]
    are_ids = all(isinstance(each, str) and is_valid_id(each) for each in ids)
    is_whole = (identity.schedule_id is None) == (identity.instant is None)
    return identity.run_id == name and are_ids and is_whole and isinstance(identity.deployment_revision, int)


def _is_named(connection: sqlite3.Connection, number: int, identity: RunIdentity) -> bool:
    """Tell whether the occurrence that a directory says it is of names that very run."""
    row = None if identity.schedule_id is None else definitions.find(connection, "schedule", identity.schedule_id)
    there = None if row is None else evidence.occurrence_at(connection, row.number, identity.instant)
    return there is not None and there.run == number


def _is_empty(directory: Path) -> bool:
    """Tell whether a directory was only reserved: it holds directories and a lock, and nothing that was recorded."""
    return all(
        (path.is_dir() and not path.is_symlink()) or (path.name == "driver" and path.parent == directory)
        for path in directory.rglob("*")
    )


def enter_unknown(context: Context) -> list[str]:
    """At the start of a supervisor, enter what the ledger does not know; return what to tell the operator."""
    try:
        found = unknown_directories(context)
    except OSError as error:
        return [f"the run directories cannot be looked at: {error.strerror}"]
    notes = []
    for first in range(0, len(found), _AT_ONCE):
        part = found[first : first + _AT_ONCE]
        with context.ledger.transaction() as connection:
            evidence.raise_counters(connection, run=max(each.number for each in part))
            for each in part:
                if each.identity is not None:
                    _enter(connection, each.number, each.identity, context.now())
    _end_what_went_on(context)
    for each in found:
        name = run_name(each.number)
        if each.identity is not None:
            LOG.warning(
                "%s was not known to the ledger, which seems to be an older one put back: entered as failed",
                name,
                extra={"action": "run_restored", "run": name},
            )
        elif each.is_empty:
            rundir.remove_run(context.layout.run(name))
        else:
            notes.append(f"{each.path} does not say whose run it is; it is left as it is, and its id is not used again")
    return notes


def _enter(connection: sqlite3.Connection, number: int, identity: RunIdentity, now: datetime) -> None:
    deployment = _number_of(connection, "deployment", identity.deployment_id, now)
    schedule, instant, revision = None, identity.instant, identity.revision
    if identity.schedule_id is not None and instant is not None:
        schedule = _number_of(connection, "schedule", identity.schedule_id, now)
        if not _enter_occurrence(connection, number, schedule, instant, revision or 0, now):
            schedule = instant = revision = None  # the ledger has another run for it: the id alone is kept from being used
    revision = (revision or 0) if schedule is not None else None
    new = runs.NewRun(
        number=number,
        schedule=schedule,
        instant=instant if schedule is not None else None,
        revision=revision,
        deployment=deployment,
        deployment_revision=identity.deployment_revision,
        admitted_at=now,
        max_run=None,
        max_steps=None,
        input=None if schedule is not None else "{}",
    )
    runs.insert(connection, [new])
    run = runs.find(connection, number)
    assert run is not None
    runs.change_status(connection, run, Status.FAILED, reason=REASON, ended_at=now)


def _enter_occurrence(
    connection: sqlite3.Connection, number: int, schedule: int, instant: datetime, revision: int, now: datetime
) -> bool:
    """Give the instant to the run; False when the ledger has another run for it."""
    if evidence.run_at(connection, schedule, instant) is not None:
        return False
    there = evidence.occurrence_at(connection, schedule, instant)
    if there is None:
        row = Settlement(instant=instant, status=Status.FAILED, reason=None, run=number)
        place = occurrences.reserve_places(connection, 1)
        occurrences.append(connection, schedule, [row], revision=revision, recorded_at=now, places=[place])
    elif there.run is None:
        occurrences.give_to_run(connection, schedule, instant, number, Status.FAILED)
    else:
        return False
    state = schedules.find(connection, schedule)
    if state is not None and state.is_readable:
        if state.candidate is not None and state.candidate.instant == instant:
            schedules.hold(connection, schedule, None)
        if instant > state.watermark:
            schedules.let_pass(connection, schedule, instant)
    return True


def _number_of(connection: sqlite3.Connection, kind: Kind, name: str, now: datetime) -> int:
    """Return the number of a definition; an id that the ledger does not know either is retired from here on."""
    row = definitions.find(connection, kind, name)
    if row is not None:
        return row.number
    number = definitions.insert(connection, kind, name, created_at=to_micros(now))
    definitions.mark_deleted(connection, number, at=to_micros(now))
    return number


def went_on(context: Context) -> list[tuple[RunRow, int]]:
    """Return the unfinished runs whose directory has executions that the ledger never marked, each with the last of them.

    A mark is durable before its execution's directory is made, so an older ledger was put back: to go on from it would do again
    what was done already.
    """
    connection = context.ledger.connection
    found = []
    for run in runs.unfinished(connection):
        paths = context.layout.run(run.id)
        if paths.driver_lock.exists() and is_held(paths.driver_lock):
            continue  # a command is at work on it
        last = max((k for k in _executions_in(paths.root) if record_path(paths.execution(k).root).exists()), default=0)
        try:
            known = [row.k for row in executions.of_run(connection, run.number)]  # after the look: a supervisor may be at work
        except UnreadableRow:
            continue  # a contradiction, which has its own remedy (7.4)
        if last > max(known, default=0):
            found.append((run, last))
    return found


def _executions_in(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if _NUMBER.fullmatch(name)]  # noqa: PTH208 - names only
    except OSError:
        return []


def _end_what_went_on(context: Context) -> None:
    found = went_on(context)
    if not found:
        return
    now = context.now()
    with context.ledger.transaction() as connection:
        for run, _ in found:
            for row in executions.of_run(connection, run.number):
                if row.how is None:
                    executions.settle(connection, row, how=Ended.UNKNOWN, started_at=row.started_at, ended_at=now)
            runs.change_status(connection, run, Status.FAILED, reason=REASON, ended_at=now, interrupt=None, stop=None)
            if run.schedule is not None and run.instant is not None:
                occurrences.set_status(connection, run.schedule, run.instant, Status.FAILED)
                schedules.slot_freed(connection, run.schedule, now)
    for run, k in found:
        LOG.warning(
            "%s went on to execution %d, which the ledger does not know: an older one seems to be put back; the run is failed",
            run.id,
            k,
            extra={"action": "run_restored", "run": run.id},
        )


def restored_count(connection: sqlite3.Connection) -> int:
    """Return how many runs were entered because an older ledger was put back."""
    return runs.count_with_reason(connection, str(REASON["code"]))
