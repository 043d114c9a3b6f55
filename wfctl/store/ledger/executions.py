"""Executions: the mark is durable before its process exists; a marked execution is launched at most once (contract 6.2)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Json, Reason
from wfctl.core.steps import Ended, ExecutionEnd
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object, known
from wfctl.store.ledger.schema import ENDED_NUMBER, ENDED_OF
from wfctl.value import Value

_MICROSECOND = timedelta(microseconds=1)
_COLUMNS = (
    """run, k, step, attempt, how, started_at, ended_at, exit_status, signal, cpu, max_rss, left_behind, detail, stop, mark"""
)


class ExecutionRow(Value):
    """One execution: marked, perhaps started, perhaps settled."""

    run: int
    k: int
    step: int
    attempt: int
    how: Ended | None  #: None: not settled
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None
    signal: int | None
    cpu: timedelta | None
    max_rss_bytes: int | None
    left_behind: int | None
    detail: Mapping[str, Json] | None
    stop: Reason | None
    mark: Mapping[str, Json]  #: while unsettled: boot, since_ns (boot time of the mark), pid, start_time, keeper


@guarded("executions", _COLUMNS, "iiiiIIIIIIIITTT", ["run", "k"])
def _row(values: tuple[Any, ...]) -> ExecutionRow:
    run, k, step, attempt, how, started_at, ended_at, exit_status, signal, cpu, max_rss, left_behind, detail, stop, mark = (
        values
    )
    return ExecutionRow(
        run=run,
        k=k,
        step=step,
        attempt=attempt,
        how=None if how is None else known(ENDED_OF, how, "how"),
        started_at=None if started_at is None else from_micros(started_at),
        ended_at=None if ended_at is None else from_micros(ended_at),
        exit_status=exit_status,
        signal=signal,
        cpu=None if cpu is None else timedelta(microseconds=cpu),
        max_rss_bytes=max_rss,
        left_behind=left_behind,
        detail=json_object(detail, "detail"),
        stop=json_object(stop, "stop"),
        mark=json_object(mark, "mark") or {},
    )


COLUMNS, sound = _COLUMNS, _row  #: for `evidence`, which reads what nobody trusts


def mark(connection: sqlite3.Connection, marks: Iterable[tuple[int, int, int, int]], note: Mapping[str, Json]) -> None:
    """Mark executions (run, k, step, attempt): durable before any of their processes exists."""
    text = json.dumps(note, separators=(",", ":"))
    connection.executemany(
        "INSERT INTO executions (run, k, step, attempt, mark) VALUES (?, ?, ?, ?, ?)", [(*each, text) for each in marks]
    )


def of_run(connection: sqlite3.Connection, run: int) -> list[ExecutionRow]:
    """Return a run's executions, by k."""
    return [
        _row(values) for values in connection.execute(f"SELECT {_COLUMNS} FROM executions WHERE run = ? ORDER BY k", (run,))
    ]


def find(connection: sqlite3.Connection, run: int, k: int) -> ExecutionRow | None:
    """Return one execution, or None."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM executions WHERE run = ? AND k = ?", (run, k)).fetchone()
    return _row(found) if found else None


def unsettled(connection: sqlite3.Connection) -> list[ExecutionRow]:
    """Return every execution that is marked and not settled; one whose row cannot be read is left to `evidence`."""
    found: list[ExecutionRow] = []
    for values in connection.execute(f"SELECT {_COLUMNS} FROM executions WHERE how IS NULL ORDER BY run, k"):
        with contextlib.suppress(UnreadableRow):
            found.append(_row(values))
    return found


def runs_among(connection: sqlite3.Connection, numbers: Iterable[int]) -> set[int]:
    """Return which of these runs have an execution."""
    wanted = set(numbers)
    if not wanted:
        return set()
    found = connection.execute("SELECT DISTINCT run FROM executions WHERE run BETWEEN ? AND ?", (min(wanted), max(wanted)))
    return {number for (number,) in found} & wanted


def note_started(
    connection: sqlite3.Connection, row: ExecutionRow, *, started_at: datetime, identity: Mapping[str, Json]
) -> None:
    """Write down the process: pid, start time and boot make it known again (7.1)."""
    note = json.dumps({**row.mark, **identity}, separators=(",", ":"))
    connection.execute(
        "UPDATE executions SET started_at = ?, mark = ? WHERE run = ? AND k = ? AND how IS NULL",
        (to_micros(started_at), note, row.run, row.k),
    )


def settle(
    connection: sqlite3.Connection,
    row: ExecutionRow,
    *,
    how: Ended,
    started_at: datetime | None,
    ended_at: datetime,
    exit_status: int | None = None,
    signal: int | None = None,
    cpu: timedelta | None = None,
    max_rss_bytes: int | None = None,
    left_behind: int | None = None,
    detail: Mapping[str, Json] | None = None,
) -> bool:
    """Write how an execution ended. Return False when it is settled already: of two who know, the first wins."""
    changed = connection.execute(
        "UPDATE executions SET how = ?, started_at = ?, ended_at = ?, exit_status = ?, signal = ?, cpu = ?, max_rss = ?,"
        " left_behind = ?, detail = ?, mark = NULL WHERE run = ? AND k = ? AND how IS NULL",
        (
            ENDED_NUMBER[how],
            None if started_at is None else to_micros(started_at),
            to_micros(ended_at),
            exit_status,
            signal,
            None if cpu is None else cpu // _MICROSECOND,
            max_rss_bytes,
            left_behind,
            json.dumps(detail) if detail else None,
            row.run,
            row.k,
        ),
    )
    return changed.rowcount == 1


def record_stop(connection: sqlite3.Connection, row: ExecutionRow, stop: Reason) -> bool:
    """Record why this execution alone is stopped, before the first signal."""
    changed = connection.execute(
        "UPDATE executions SET stop = ? WHERE run = ? AND k = ? AND how IS NULL AND stop IS NULL",
        (json.dumps(stop), row.run, row.k),
    )
    return changed.rowcount == 1


def ends(rows: Sequence[ExecutionRow]) -> list[ExecutionEnd]:
    """Given settled executions, return them as the core knows them; what their files said is added by who reads those."""
    return [
        ExecutionEnd(
            k=row.k,
            step=row.step,
            attempt=row.attempt,
            how=row.how,
            ended_at=row.ended_at,
            exit_status=row.exit_status,
            signal=row.signal,
            errno=(row.detail or {}).get("errno"),
            what=(row.detail or {}).get("what"),
            stop=row.stop,
        )
        for row in rows
        if row.how is not None and row.ended_at is not None
    ]
