"""What the ledger's rows say beside each other, read without trusting any of them (contract 7.4).

Every query is an index range: of one schedule, of what is unfinished or unsettled, or of statuses that no version writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.contradictions import OccurrenceFacts, RunFacts
from wfctl.core.instants import to_micros
from wfctl.core.model import RUN_STATUSES, Status
from wfctl.errors import DamagedStore
from wfctl.store.ledger import definitions, executions, occurrences, runs
from wfctl.store.ledger.connection import RESTORE
from wfctl.store.ledger.numbers import STATUS_OF
from wfctl.store.ledger.rows import UnreadableRow, try_micros
from wfctl.store.ledger.schema import DEPLOYMENT, SCHEDULE

_UNFINISHED = "BETWEEN 11 AND 13"
_NEVER = 253_402_300_800_000_000  #: microseconds up to the year 10000; text sorts behind all numbers too
_LARGEST = 16  #: the largest number that stands for a status; text sorts behind all numbers


# Occurrences and runs ---------------------------------------------------------------------------------------------------


def _occurrence(values: tuple[Any, ...]) -> OccurrenceFacts:
    place, schedule, instant, status, *_ = values
    run = values[7]
    problem = None
    try:
        occurrences.sound(values)
    except UnreadableRow as error:
        problem = str(error.data["problem"])
    return OccurrenceFacts(
        place=place,
        schedule=schedule,
        instant=try_micros(instant),
        status=_status(status),
        run=run if isinstance(run, int) else None,
        problem=problem,
        is_status_unknown=_status(status) is None,
    )


def _run(values: tuple[Any, ...]) -> RunFacts:
    number, schedule, instant, _, _, _, status, *_ = values
    problem = None
    try:
        runs.sound(values)
    except UnreadableRow as error:
        problem = str(error.data["problem"])
    found = _status(status)
    return RunFacts(
        number=number,
        schedule=schedule if isinstance(schedule, int) else None,
        instant=try_micros(instant),
        status=found if found in RUN_STATUSES else None,
        problem=problem,
        is_status_unknown=found not in RUN_STATUSES,
    )


def _status(number: Any) -> Status | None:
    return STATUS_OF.get(number) if isinstance(number, int) else None


def occurrences_of(connection: sqlite3.Connection, schedule: int, *, newest: int | None = None) -> Iterator[OccurrenceFacts]:
    """Give the rows of a schedule, the newest ones first: so many, or all."""
    limit = -1 if newest is None else newest
    for values in connection.execute(
        f"SELECT {occurrences.COLUMNS} FROM occurrences WHERE schedule = ? ORDER BY place DESC LIMIT ?", (schedule, limit)
    ):
        yield _occurrence(values)


def doubtful_occurrences(connection: sqlite3.Connection) -> Iterator[OccurrenceFacts]:
    """Give every row that says that its run is not finished, or whose status no version writes."""
    for condition in (f"status {_UNFINISHED}", f"status > {_LARGEST}"):
        for values in connection.execute(
            f"SELECT {occurrences.COLUMNS} FROM occurrences INDEXED BY occurrences_rare WHERE +status >= 10 AND {condition}"
        ):
            yield _occurrence(values)


def occurrence_at(connection: sqlite3.Connection, schedule: int, instant: datetime | None) -> OccurrenceFacts | None:
    """Return the row of exactly that instant."""
    if instant is None:
        return None
    found = connection.execute(
        f"SELECT {occurrences.COLUMNS} FROM occurrences WHERE schedule = ? AND instant = ?", (schedule, to_micros(instant))
    ).fetchone()
    return None if found is None else _occurrence(found)


def occurrence_in(connection: sqlite3.Connection, schedule: int, place: int) -> OccurrenceFacts | None:
    """Return the row of a schedule that was recorded in exactly that place."""
    found = connection.execute(
        f"SELECT {occurrences.COLUMNS} FROM occurrences WHERE schedule = ? AND place = ?", (schedule, place)
    ).fetchone()
    return None if found is None else _occurrence(found)


def runs_of(connection: sqlite3.Connection, schedule: int | None, *, newest: int | None = None) -> Iterator[RunFacts]:
    """Give the runs of a schedule, or those by hand, the newest first: so many, or all."""
    limit = -1 if newest is None else newest
    for values in connection.execute(
        f"SELECT {runs.COLUMNS} FROM runs WHERE schedule IS ? ORDER BY number DESC LIMIT ?", (schedule, limit)
    ):
        yield _run(values)


def doubtful_runs(connection: sqlite3.Connection) -> Iterator[RunFacts]:
    """Give every unfinished run, and those whose status no version writes."""
    for condition in (f"status {_UNFINISHED} AND status >= 10", f"status > {_LARGEST} AND status >= 10", "status = 10"):
        for values in connection.execute(f"SELECT {runs.COLUMNS} FROM runs WHERE {condition}"):
            yield _run(values)


def run(connection: sqlite3.Connection, number: int | None) -> RunFacts | None:
    """Return a run by its number."""
    found = connection.execute(f"SELECT {runs.COLUMNS} FROM runs WHERE number = ?", (number,)).fetchone()
    return None if found is None else _run(found)


def run_at(connection: sqlite3.Connection, schedule: int, instant: datetime | None) -> RunFacts | None:
    """Return the run that was admitted for an instant."""
    if instant is None:
        return None
    found = connection.execute(
        f"SELECT {runs.COLUMNS} FROM runs WHERE schedule = ? AND instant = ?", (schedule, to_micros(instant))
    ).fetchone()
    return None if found is None else _run(found)


def instants_beyond(
    connection: sqlite3.Connection, schedule: int, watermark: datetime, passing_until: datetime | None, *, limit: int = 5
) -> tuple[datetime, ...]:
    """Return the latest instants with a row behind the watermark, ascending, but for those that may pass quietly (5.14)."""
    passing = to_micros(watermark if passing_until is None else passing_until)
    found = connection.execute(
        "SELECT instant FROM occurrences WHERE schedule = ? AND instant > ? AND (run IS NULL OR instant > ?)"
        " ORDER BY instant DESC LIMIT ?",
        (schedule, to_micros(watermark), passing, limit),
    )
    instants = [try_micros(micros) for (micros,) in found]
    return tuple(reversed([instant for instant in instants if instant is not None]))


def open_pause(connection: sqlite3.Connection, schedule: int) -> datetime | None:
    """Return when the paused span began that lasts."""
    found = connection.execute(
        "SELECT paused_at FROM pauses WHERE schedule = ? AND resumed_at IS NULL ORDER BY paused_at DESC LIMIT 1", (schedule,)
    ).fetchone()
    return None if found is None else try_micros(found[0])


def last_instant(connection: sqlite3.Connection, schedule: int) -> datetime | None:
    """Return the latest instant of a schedule that has a row."""
    found = connection.execute(
        "SELECT instant FROM occurrences WHERE schedule = ? AND instant < ? ORDER BY instant DESC LIMIT 1", (schedule, _NEVER)
    ).fetchone()
    return None if found is None else try_micros(found[0])


# Executions -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unsettled:
    """One run's executions that are not settled."""

    run: int
    ks: tuple[int, ...]


def unsettled(connection: sqlite3.Connection, number: int | None = None) -> list[Unsettled]:
    """Return the unsettled executions by run: of every run, or of one."""
    by_run: dict[int, list[int]] = {}
    where, values = ("", ()) if number is None else (" AND run = ?", (number,))
    for name, k in connection.execute(f"SELECT run, k FROM executions WHERE how IS NULL{where} ORDER BY run, k", values):
        by_run.setdefault(name, []).append(k)
    return [Unsettled(name, tuple(ks)) for name, ks in by_run.items()]


def unreadable_executions(connection: sqlite3.Connection, number: int | None) -> list[tuple[int, int, str]]:
    """Return run, k and problem of the executions that cannot be read: of one run, or of all."""
    where, values = ("", ()) if number is None else (" WHERE run = ?", (number,))
    found = []
    for row in connection.execute(f"SELECT {executions.COLUMNS} FROM executions{where}", values):
        try:
            executions.sound(row)
        except UnreadableRow as error:
            found.append((row[0], row[1], str(error.data["problem"])))
    return found


# Definitions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One saved state of a definition, and what is known of its content."""

    number: int
    kind: str
    id: str
    revision: int
    recorded: str | None  #: the digest that it is recorded with; None: it is not there
    wanted: str | None  #: the digest that the definition's own row has for its current revision; None: not current
    content: Any


def snapshots(connection: sqlite3.Connection, numbers: Sequence[int] | None = None) -> Iterator[Snapshot]:
    """Give the current revision of each live definition: of all, or of those numbered."""
    where = "" if numbers is None else f" AND d.number IN ({', '.join(map(str, numbers))})"
    for number, kind, name, revision, wanted, recorded, content in connection.execute(
        "SELECT d.number, d.kind, d.id, d.revision, d.digest, r.digest, r.content FROM definitions d"
        " LEFT JOIN revisions r ON r.definition = d.number AND r.revision = d.revision"
        f" WHERE d.deleted_at IS NULL AND d.revision <> 0{where}"
    ):
        yield Snapshot(number, "schedule" if kind == SCHEDULE else "deployment", str(name), revision, recorded, wanted, content)


def pinned(connection: sqlite3.Connection, number: int) -> Iterator[Snapshot]:
    """Give the snapshots that a run is pinned to: its deployment's, and its schedule's."""
    found = connection.execute(
        "SELECT deployment, deployment_revision, schedule, revision FROM runs WHERE number = ?", (number,)
    ).fetchone()
    if found is None:
        return
    for definition, which in (found[:2], found[2:]):
        if definition is not None:
            yield _snapshot(connection, definition, which)


def _snapshot(connection: sqlite3.Connection, number: int, revision: int) -> Snapshot:
    named = connection.execute("SELECT kind, id FROM definitions WHERE number = ?", (number,)).fetchone()
    found = connection.execute(
        "SELECT digest, content FROM revisions WHERE definition = ? AND revision = ?", (number, revision)
    ).fetchone()
    kind, name = named or (DEPLOYMENT, f"number {number}")
    recorded, content = found or (None, None)
    return Snapshot(number, "schedule" if kind == SCHEDULE else "deployment", str(name), revision, recorded, None, content)


def all_revisions(connection: sqlite3.Connection) -> Iterator[tuple[Snapshot, Any]]:
    """Give every saved state that is not a live definition's current one, with its parsed form as text."""
    for number, kind, name, revision, recorded, content, plain in connection.execute(
        "SELECT d.number, d.kind, d.id, r.revision, r.digest, r.content, r.plain FROM revisions r"
        " JOIN definitions d ON d.number = r.definition ORDER BY d.number, r.revision"
    ):
        each = "schedule" if kind == SCHEDULE else "deployment"
        yield Snapshot(number, each, str(name), revision, recorded, None, content), plain


def unreadable_definitions(
    connection: sqlite3.Connection, numbers: Sequence[int] | None = None
) -> list[tuple[int, str, str, str]]:
    """Return number, kind, id and problem of the definitions whose own row cannot be read: of all, or of those numbered."""
    found = []
    where = "" if numbers is None else f" AND number IN ({', '.join(map(str, numbers))})"
    for row in connection.execute(f"SELECT {definitions.COLUMNS} FROM definitions WHERE deleted_at IS NULL{where}"):
        try:
            definitions.sound(row)
        except UnreadableRow as error:
            kind = "deployment" if row[1] == DEPLOYMENT else "schedule"
            found.append((row[0], kind, str(row[2]), str(error.data["problem"])))
    return found


def without_state(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return number and id of the schedules that were valid once and have no state."""
    found = connection.execute(
        "SELECT d.number, d.id FROM definitions d LEFT JOIN schedules s ON s.number = d.number"
        " WHERE d.kind = ? AND d.revision <> 0 AND d.deleted_at IS NULL AND s.number IS NULL",
        (SCHEDULE,),
    )
    return [(number, str(name)) for number, name in found]


def without_deployment(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return number and id of the schedules that are entered with a deployment that is not there."""
    found = connection.execute(
        "SELECT d.number, d.id FROM schedules s JOIN definitions d ON d.number = s.number"
        " LEFT JOIN definitions p ON p.number = s.deployment AND p.kind = ? WHERE p.number IS NULL AND d.deleted_at IS NULL",
        (DEPLOYMENT,),
    )
    return [(number, str(name)) for number, name in found]


def schedule_names(connection: sqlite3.Connection) -> dict[int, str]:
    """Return the id of every schedule, deleted ones too, by number."""
    return {number: str(name) for number, name in connection.execute(
        "SELECT number, id FROM definitions WHERE kind = ?", (SCHEDULE,))}  # fmt: skip


def schedule_name(connection: sqlite3.Connection, number: object) -> str:
    """Return the id of the schedule of that number; of none, a question mark."""
    found = connection.execute("SELECT id FROM definitions WHERE number = ? AND kind = ?", (number, SCHEDULE)).fetchone()
    return "?" if found is None else str(found[0])


# The ledger as a whole --------------------------------------------------------------------------------------------------


def check_counters(connection: sqlite3.Connection) -> None:
    """Raise DamagedStore where the numbers that only grow cannot be read: then no id is safe from being used again."""
    found = connection.execute("SELECT occurrence, run, clock FROM counters").fetchone()
    if found is None or not all(isinstance(number, int) for number in found):
        raise DamagedStore(f"the counters of the ledger cannot be read; {RESTORE}")


_LAST_PLACE = "SELECT place FROM occurrences WHERE place < 4611686018427387904 ORDER BY place DESC LIMIT 1"
_LAST_RUN = "SELECT number FROM runs ORDER BY number DESC LIMIT 1"
_LAST_EXECUTED = "SELECT run FROM executions WHERE run < 4611686018427387904 ORDER BY run DESC LIMIT 1"


def counters_behind(connection: sqlite3.Connection) -> list[str]:
    """Return which of the counters are behind what was given out already, as sentences."""
    occurrence, run_count = connection.execute("SELECT occurrence, run FROM counters").fetchone()
    place, number, executed = (
        (connection.execute(query).fetchone() or (0,))[0] for query in (_LAST_PLACE, _LAST_RUN, _LAST_EXECUTED)
    )
    number = max(number, executed)
    found = []
    if occurrence < place:
        found.append(f"the counter of places stands at {occurrence}, and {place} is taken")
    if run_count < number:
        found.append(f"the counter of runs stands at {run_count}, and {number} is taken")
    return found


def raise_counters(connection: sqlite3.Connection, *, run: int = 0) -> None:
    """Move the counters past everything that was given out: they only grow, so this takes nothing back."""
    connection.execute(
        f"UPDATE counters SET occurrence = max(occurrence, coalesce(({_LAST_PLACE}), 0)),"
        f" run = max(run, ?, coalesce(({_LAST_RUN}), 0), coalesce(({_LAST_EXECUTED}), 0))",
        (run,),
    )


def integrity_problems(connection: sqlite3.Connection, *, limit: int = 20) -> list[str]:
    """Return what SQLite itself finds wrong with the file; empty when it is sound."""
    lines = [str(line) for (line,) in connection.execute(f"PRAGMA integrity_check({limit})")]
    return [line for line in lines if line != "ok"]


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many rows there are of each class of record."""
    tables: Iterable[str] = ("definitions", "revisions", "occurrences", "runs", "executions", "pauses", "clock_events")
    return {table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables}
