"""Runs: one an admitted occurrence, or started by hand; every change of state is a compare-and-set (contract 6.1, 6.6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.json_text import dumps
from wfctl.core.model import RUN_STATUSES, Json, Reason, Status, run_name
from wfctl.store.ledger.numbers import RARE, STATUS_NUMBER, STATUS_OF
from wfctl.store.ledger.rows import UnreadableRow, check_span, guarded, json_object, known, merged_by, shown
from wfctl.value import Value

_COLUMNS = """number, schedule, instant, revision, deployment, deployment_revision, status, attempt, resumed_step,
 admitted_at, started_at, attempt_at, ended_at, max_run, max_steps, is_overdue, input, reason, output, output_k,
 interrupt, stop, resume"""
_MICROSECOND = timedelta(microseconds=1)
_WHAT_IS_ADMITTED = attrgetter("number", "schedule", "instant", "revision", "deployment", "deployment_revision", "input")
LAST_NUMBER = 2**62  #: above every run's


class NewRun(Value):
    """What an admission, or a start by hand, pins for good."""

    number: int
    schedule: int | None
    instant: datetime | None
    revision: int | None
    deployment: int
    deployment_revision: int
    admitted_at: datetime
    max_run: timedelta | None
    max_steps: int | None
    input: str | None  #: JSON of a manual run's input; None: the schedule revision's


def admitted_at(run: NewRun, at: datetime) -> NewRun:
    """Return a run as it is admitted at another time."""
    return NewRun.of_all({**vars(run), "admitted_at": at})


class RunRow(Value):
    """One run as the ledger has it."""

    number: int
    schedule: int | None
    instant: datetime | None
    revision: int | None
    deployment: int
    deployment_revision: int
    status: Status
    attempt: int
    resumed_step: int
    admitted_at: datetime
    started_at: datetime | None
    attempt_at: datetime | None
    ended_at: datetime | None
    max_run: timedelta | None
    max_steps: int | None
    is_overdue: bool
    input: str | None
    reason: Reason | None
    output: str | None  #: JSON text
    output_k: int | None  #: the execution whose file holds an output too large for the ledger
    interrupt: Mapping[str, Json] | None
    stop: Reason | None  #: the recorded stop that decides its end (6.11)
    resume: str | None  #: JSON text of the input given on resume

    @property
    def id(self) -> str:
        """The run's id."""
        return run_name(self.number)


class BrokenRun(Value, kw_only=False):
    """A run whose row cannot be trusted: it keeps its id, and nothing is made up for it."""

    number: int
    problem: str

    @property
    def id(self) -> str:
        """The run's id."""
        from wfctl.core.contradictions import name_of_run

        return name_of_run(self.number)


@guarded("runs", _COLUMNS, "iIIIiiiiiiIIIIIITTTITTT", ["number"], schedule="schedule")
def _row(values: tuple[Any, ...]) -> RunRow:
    (number, schedule, instant, revision, deployment, deployment_revision, status, attempt, resumed_step, admitted_at,
     started_at, attempt_at, ended_at, max_run, max_steps, is_overdue, given, reason, output, output_k, interrupt, stop,
     resume) = values  # fmt: skip
    if number < 1:
        raise ValueError(f"number is {number}, and runs are numbered from 1")
    if (schedule is None) != (instant is None) or (schedule is None) != (revision is None):
        raise ValueError("schedule, instant and revision are not all there, or all absent")
    return RunRow(
        number=number,
        schedule=schedule,
        instant=_instant(instant),
        revision=revision,
        deployment=deployment,
        deployment_revision=deployment_revision,
        status=_status(status),
        attempt=attempt,
        resumed_step=resumed_step,
        admitted_at=from_micros(admitted_at),
        started_at=_instant(started_at),
        attempt_at=_instant(started_at if attempt_at is None and attempt == 1 else attempt_at),
        ended_at=_instant(ended_at),
        max_run=as_span(check_span(max_run, "max_run")),
        max_steps=max_steps,
        is_overdue=bool(is_overdue),
        input=given,
        reason=json_object(reason, "reason"),
        output=output,
        output_k=output_k,
        interrupt=json_object(interrupt, "interrupt"),
        stop=json_object(stop, "stop"),
        resume=resume,
    )


COLUMNS, sound = _COLUMNS, _row  #: for `evidence`, which reads what nobody trusts


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _status(number: Any) -> Status:
    status = known(STATUS_OF, number, "status")
    if status not in RUN_STATUSES:
        raise ValueError(f"status is {shown(number)}, {status.value}, which no run has")
    return status


def _text(value: Any) -> str | None:
    return None if value is None else dumps(value)


def as_span(micros: int | None) -> timedelta | None:
    """Given microseconds, return the duration."""
    return None if micros is None else timedelta(microseconds=micros)


def next_number(connection: sqlite3.Connection) -> int:
    """Return the number that the next run gets."""
    return int(connection.execute("SELECT run FROM counters").fetchone()[0]) + 1


def reserve_number(connection: sqlite3.Connection) -> int:
    """Take the next number for a run that is to be entered later; a crash before that leaves a gap, no ghost."""
    return int(connection.execute("UPDATE counters SET run = run + 1 RETURNING run").fetchone()[0])


def insert(connection: sqlite3.Connection, new: Sequence[NewRun]) -> None:
    """Enter admitted runs, under numbers that nobody else was given."""
    if not new:
        return
    connection.executemany(
        "INSERT INTO runs (number, schedule, instant, revision, deployment, deployment_revision, status, attempt, admitted_at,"
        f" max_run, max_steps, input) VALUES (?, ?, ?, ?, ?, ?, {STATUS_NUMBER[Status.ADMITTED]}, 1, ?, ?, ?, ?)",
        [
            (
                run.number,
                run.schedule,
                None if run.instant is None else to_micros(run.instant),
                run.revision,
                run.deployment,
                run.deployment_revision,
                to_micros(run.admitted_at),
                None if run.max_run is None else run.max_run // _MICROSECOND,
                run.max_steps,
                run.input,
            )
            for run in new
        ],
    )
    connection.execute("UPDATE counters SET run = max(run, ?)", (max(run.number for run in new),))


def find(connection: sqlite3.Connection, number: int) -> RunRow | None:
    """Return one run, or None."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE number = ?", (number,)).fetchone()
    return _row(found) if found else None


def as_admitted(new: NewRun) -> RunRow:
    """Return the row of a run as it is right after its admission."""
    return RunRow.of_all(
        {
            "number": new.number,
            "schedule": new.schedule,
            "instant": new.instant,
            "revision": new.revision,
            "deployment": new.deployment,
            "deployment_revision": new.deployment_revision,
            "status": Status.ADMITTED,
            "attempt": 1,
            "resumed_step": 0,
            "admitted_at": new.admitted_at,
            "started_at": None,
            "attempt_at": None,
            "ended_at": None,
            "max_run": new.max_run,
            "max_steps": new.max_steps,
            "is_overdue": False,
            "input": new.input,
            "reason": None,
            "output": None,
            "output_k": None,
            "interrupt": None,
            "stop": None,
            "resume": None,
        }
    )


def is_same_admission(one: NewRun, other: NewRun) -> bool:
    """Tell whether two are the same run, admitted with the same, be it at another time."""
    return _WHAT_IS_ADMITTED(one) == _WHAT_IS_ADMITTED(other)


def changed_since_admission(connection: sqlite3.Connection, first: int, last: int) -> set[int]:
    """Return which runs among these numbers have moved on, or are to be stopped, though they were admitted a moment ago."""
    found = connection.execute(
        "SELECT number FROM runs WHERE number BETWEEN ? AND ? AND (status != ? OR stop IS NOT NULL)",
        (first, last, STATUS_NUMBER[Status.ADMITTED]),
    )
    return {number for (number,) in found}


def numbers_among(connection: sqlite3.Connection, numbers: Iterable[int]) -> set[int]:
    """Return which of these numbers are those of runs."""
    wanted = set(numbers)
    if not wanted:
        return set()
    found = connection.execute("SELECT number FROM runs WHERE number BETWEEN ? AND ?", (min(wanted), max(wanted)))
    return {number for (number,) in found} & wanted


def unknown_among(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[int]:
    """Return which of these numbers are those of no run, and of no execution."""
    found = connection.execute(
        "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM runs WHERE number = value)"
        " AND NOT EXISTS (SELECT 1 FROM executions WHERE run = value)",
        (f"[{','.join(map(str, numbers))}]",),
    )
    return [number for (number,) in found]


def count_with_reason(connection: sqlite3.Connection, code: str) -> int:
    """Return how many failed runs have a reason of that code."""
    found = connection.execute(
        "SELECT count(*) FROM runs WHERE status = ? AND status >= 10 AND reason LIKE ?",
        (STATUS_NUMBER[Status.FAILED], f'{{"code":"{code}"%'),
    )
    return int(found.fetchone()[0])


def active_of(connection: sqlite3.Connection, schedule: int) -> tuple[str, ...]:
    """Return the ids of a schedule's unfinished runs: they hold its overlap slots (5.3)."""
    found = connection.execute(
        "SELECT number FROM runs WHERE schedule = ? AND status BETWEEN 11 AND 13 ORDER BY number", (schedule,)
    )
    return tuple(run_name(number) for (number,) in found)


def slots_used(connection: sqlite3.Connection) -> int:
    """Return how many execution slots scheduled runs hold (5.4)."""
    found = connection.execute(
        "SELECT count(*) FROM runs INDEXED BY runs_unfinished"
        " WHERE schedule IS NOT NULL AND status BETWEEN 11 AND 13 AND status BETWEEN 11 AND 12"
    )
    return int(found.fetchone()[0])


def slots_by_deployment(connection: sqlite3.Connection) -> list[tuple[int, int, int]]:
    """Return (deployment, its revision, how many scheduled runs of it hold an execution slot), for executors of their own."""
    found = connection.execute(
        "SELECT deployment, deployment_revision, count(*) FROM runs INDEXED BY runs_unfinished"
        " WHERE schedule IS NOT NULL AND status BETWEEN 11 AND 13 AND status BETWEEN 11 AND 12"
        " GROUP BY deployment, deployment_revision"
    )
    return [(int(number), int(revision), int(count)) for number, revision, count in found]


def unfinished(connection: sqlite3.Connection) -> list[RunRow]:
    """Return every unfinished run, scheduled or manual; one whose row cannot be read is left to `evidence`."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM runs INDEXED BY runs_unfinished WHERE status BETWEEN 11 AND 13 ORDER BY number"
    ).fetchall()
    return [row for row in map(_row_or_broken, found) if isinstance(row, RunRow)]


def _row_or_broken(values: tuple[Any, ...]) -> RunRow | BrokenRun:
    try:
        return _row(values)
    except UnreadableRow as error:
        return BrokenRun(int(values[0]), error.message)


def change_status(connection: sqlite3.Connection, run: RunRow, to: Status, **fields: Any) -> bool:
    """Move a run from the status it was read with to another, with other columns. Return False when it is no more in it."""
    fields = _stored(fields)
    names = ["status = ?", *(f"{name} = ?" for name in fields)]
    changed = connection.execute(
        f"UPDATE runs SET {', '.join(names)} WHERE number = ? AND status = ?",
        (STATUS_NUMBER[to], *map(_column, fields.values()), run.number, STATUS_NUMBER[run.status]),
    )
    return changed.rowcount == 1


def set_fields(connection: sqlite3.Connection, number: int, **fields: Any) -> None:
    """Write columns of a run that are no part of its status."""
    fields = _stored(fields)
    names = ", ".join(f"{name} = ?" for name in fields)
    connection.execute(f"UPDATE runs SET {names} WHERE number = ?", (*map(_column, fields.values()), number))


def _stored(fields: dict[str, Any]) -> dict[str, Any]:
    """The first attempt begins with the run: that is not written twice."""
    is_first = "started_at" in fields and fields.get("attempt_at") == fields["started_at"]
    return {**fields, "attempt_at": None} if is_first else fields


def _column(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, (Mapping, list)):
        return _text(value)
    return value


def record_stop(connection: sqlite3.Connection, number: int, stop: Reason) -> bool:
    """Record why a run is to end, before the first signal. Return False when it has ended, or a stop is recorded already."""
    changed = connection.execute(
        "UPDATE runs SET stop = ? WHERE number = ? AND stop IS NULL AND status BETWEEN 11 AND 13", (_text(stop), number)
    )
    return changed.rowcount == 1


def page(
    connection: sqlite3.Connection,
    *,
    schedules: Sequence[int] | None,
    deployment: int | None,
    statuses: Collection[Status] | None,
    since: datetime | None,
    until: datetime | None,
    after: int,
    limit: int,
    before: int = LAST_NUMBER,
    newest: bool = False,
) -> list[RunRow | BrokenRun]:
    """Return up to `limit` runs with numbers between two, ascending: the first ones, or the `newest`.

    Given: schedules or a deployment by number (None: all), statuses (None: all), times of admission from `since` on and
    before `until`. Each part is an index range; several are merged by number.
    """
    numbers = None if statuses is None else sorted(STATUS_NUMBER[status] for status in statuses if status in RUN_STATUSES)
    conditions, values = ["number > ? AND number < ?"], [after, before]
    for bound, comparison in ((since, ">="), (until, "<")):
        if bound is not None:
            conditions.append(f"admitted_at {comparison} ?")
            values.append(to_micros(bound))
    if deployment is not None:
        conditions, values = ["deployment = ?", *conditions], [deployment, *values]
    parts: list[tuple[list[str], list[int]]] = [(conditions, values)]
    if schedules is not None:
        parts = [(["schedule = ?", *conditions], [schedule, *values]) for schedule in schedules]
    if numbers is not None and all(number >= RARE for number in numbers):
        rare = f"status = ? AND status >= {RARE}"
        parts = [([*names, rare], [*bound, number]) for names, bound in parts for number in numbers]
    elif numbers is not None:
        among = f"status IN ({', '.join('?' * len(numbers))})"
        parts = [([*names, among], [*bound, *numbers]) for names, bound in parts]
    ranges = [_rows(connection, names, [*bound, limit], newest) for names, bound in parts]
    merged = merged_by(lambda row: row.number, ranges, reverse=newest)
    found = [row for row, _ in zip(merged, range(limit), strict=False)]
    return found[::-1] if newest else found


def _rows(
    connection: sqlite3.Connection, conditions: list[str], values: list[int], newest: bool
) -> Iterator[RunRow | BrokenRun]:
    where, order = " AND ".join(conditions), "number DESC" if newest else "number"
    for found in connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE {where} ORDER BY {order} LIMIT ?", values):
        yield _row_or_broken(found)
