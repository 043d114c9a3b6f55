"""A store at one glance, for a board: what runs, what comes next, what waits, what is blocked; from the ledger alone."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.model import FINISHED, Status, run_number
from wfctl.operations import listing
from wfctl.operations.context import Context
from wfctl.operations.views import TransitionView
from wfctl.store.ledger import Ledger, definitions, feed, occurrences, runs, schedules
from wfctl.store.ledger.occurrences import OccurrenceRow
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow

MOST = 200  #: unfinished runs that a board names
WITHDRAWN = "withdrawn"  #: what becomes of a held instant that a clock event takes back (5.14)


@dataclass(frozen=True, slots=True)
class Going:
    """An unfinished run."""

    run_id: str
    name: str  #: of its schedule; of one started by hand, of its deployment
    is_manual: bool
    status: Status
    since: datetime
    is_overdue: bool
    message: str | None  #: what it asks for, where it waits for input


@dataclass(frozen=True, slots=True)
class Told:
    """Something that changed: the end or the beginning of a run, an occurrence that was settled, another state."""

    at: datetime
    name: str
    run_id: str | None
    to: str
    reason: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Glance:
    """A store at one moment."""

    going: tuple[Going, ...]  #: admitted or running, longest first
    asking: tuple[Going, ...]  #: interrupted, longest first
    unnamed: int  #: more of both than are named
    slots_used: int
    coming: tuple[tuple[str, datetime], ...]  #: schedules with their next instant, soonest first
    blocked: tuple[tuple[str, str], ...]  #: schedules, each with why
    held_up: tuple[tuple[str, datetime], ...]  #: schedules that wait for the clock, each with until when (5.14)
    counts: Mapping[str, int]  #: of schedules by state


def glance(context: Context, *, coming: int) -> Glance:
    """Look at a store; of what comes next at `coming` schedules."""
    now = context.now()
    with context.ledger.reading() as connection:
        rows = [row for row in schedules.list_all(connection) if row.deleted_at is None]
        broken = [(row.id, row.diagnostic) for row in rows]
        broken += [(row.id, row.diagnostic) for row in definitions.never_valid(connection)]
        unfinished = runs.unfinished(connection)
        used = runs.slots_used(connection)
        named = sorted((_going(connection, run) for run in unfinished[:MOST]), key=lambda each: (each.since, each.run_id))
    admitting = [row for row in rows if row.is_admitting]
    ahead = sorted((row.next_instant, row.id) for row in admitting if row.next_instant is not None)
    blocked = tuple((name, _why(diagnostic)) for name, diagnostic in broken if diagnostic is not None)
    at_end = sum(row.next_instant is None and row.candidate is None for row in admitting)
    return Glance(
        going=tuple(each for each in named if each.status is not Status.INTERRUPTED),
        asking=tuple(each for each in named if each.status is Status.INTERRUPTED),
        unnamed=len(unfinished) - len(named),
        slots_used=used,
        coming=tuple((name, instant) for instant, name in ahead[:coming]),
        blocked=blocked,
        held_up=tuple((row.id, row.floor) for row in admitting if row.floor > now),
        counts={
            "active": len(admitting) - at_end,
            "paused": sum(row.paused_at is not None and row.diagnostic is None for row in rows),
            "blocked": len(blocked),
            "finished": at_end,
        },
    )


def _why(diagnostic: Mapping[str, Any]) -> str:
    return str(diagnostic.get("message") or diagnostic.get("code"))


def _going(connection: sqlite3.Connection, run: RunRow) -> Going:
    message = (run.interrupt or {}).get("message") if run.status is Status.INTERRUPTED else None
    return Going(
        run_id=run.id,
        name=_name_of(connection, run),
        is_manual=run.schedule is None,
        status=run.status,
        since=run.attempt_at or run.started_at or run.admitted_at,
        is_overdue=run.is_overdue,
        message=None if message is None else str(message),
    )


def _name_of(connection: sqlite3.Connection, run: RunRow) -> str:
    return listing.name_of(connection, run.deployment if run.schedule is None else run.schedule)


def lately(context: Context, most: int) -> list[Told]:
    """Return what was settled last, oldest first: where runs stand, and occurrences that became none."""
    everything: dict[str, Any] = dict.fromkeys(("schedules", "statuses", "since", "until"))
    with context.ledger.reading() as connection:
        settled = occurrences.page(connection, **everything, after=0, limit=most, newest=True)
        started = runs.page(connection, **everything, deployment=None, after=0, limit=most, newest=True)
        told = [_of_run(connection, row) for row in started if isinstance(row, RunRow)]
        told += [
            Told(row.recorded_at, listing.name_of(connection, row.schedule), None, row.status.value, row.reason)
            for row in settled
            if isinstance(row, OccurrenceRow) and row.run is None
        ]
    return sorted(told, key=lambda each: each.at)[-most:]


def _of_run(connection: sqlite3.Connection, row: RunRow) -> Told:
    began = row.admitted_at if row.status is Status.ADMITTED else row.started_at or row.admitted_at
    at = row.ended_at if row.status in FINISHED and row.ended_at is not None else began
    return Told(at, _name_of(connection, row), row.id, row.status.value, row.reason)


def told_of(context: Context, view: TransitionView) -> Told:
    """Return a transition in short; a run started by hand goes by its deployment."""
    name, to = view.schedule_id, view.to or WITHDRAWN
    number = run_number(view.run_id) if name is None and view.run_id is not None else None
    if number is not None:
        with context.ledger.reading() as connection, contextlib.suppress(UnreadableRow):
            row = runs.find(connection, number)
            name = None if row is None else _name_of(connection, row)
    return Told(view.at, name or "", view.run_id, to, view.reason)


def stamp(context: Context) -> tuple[Ledger, int, int]:
    """Return what is another one once anybody wrote to the ledger."""
    with context.ledger.reading() as connection:
        return context.ledger, context.ledger.commits, feed.data_version(connection)
