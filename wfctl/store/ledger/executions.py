"""Executions: the mark is durable before its process exists; a marked execution is launched at most once (contract 6.2)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.json_text import dumps, loads
from wfctl.core.model import Json, Reason
from wfctl.core.steps import Ended, ExecutionEnd
from wfctl.store.ledger.numbers import ENDED_NUMBER, ENDED_OF
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object, known, shown
from wfctl.value import Value

_MICROSECOND = timedelta(microseconds=1)
_STORED = "run, k, step, attempt, how, started_at, ended_at, exit_status, signal, cpu, max_rss, left_behind, detail, stop"
MARK = "mark, (SELECT note FROM origins WHERE origins.number = executions.origin)"
_COLUMNS = f"{_STORED}, {MARK}"
_SHARED = ("boot", "keeper", "protocol")  #: what the notes of many marks have in common
_OWN = ("since_ns", "pid", "start_time")


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


@guarded("executions", f"{_STORED}, mark, origin", "iiiiIIIIIIIITTTT", ["run", "k"])
def _row(values: tuple[Any, ...]) -> ExecutionRow:
    (run, k, step, attempt, how, started_at, ended_at, exit_status, signal, cpu, max_rss, left_behind, detail, stop, mark,
     shared) = values  # fmt: skip
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
        mark=note_of(mark, shared),
    )


COLUMNS, sound = _COLUMNS, _row  #: for `evidence`, which reads what nobody trusts


def mark(connection: sqlite3.Connection, marks: Iterable[tuple[int, int, int, int]], note: Mapping[str, Json]) -> None:
    """Mark executions (run, k, step, attempt): durable before any of their processes exists."""
    noted = _as_noted(connection, note)
    connection.executemany(
        "INSERT INTO executions (run, k, step, attempt, mark, origin) VALUES (?, ?, ?, ?, ?, ?)",
        [(*each, *noted) for each in marks],
    )


def _as_noted(connection: sqlite3.Connection, note: Mapping[str, Json]) -> tuple[str, int | None]:
    """Return a note as it is written: its own part, and the number of what it shares with others.

    A settled execution keeps nothing of it, and what a row once held leaves a gap in the file: so its own part is short.
    """
    own = [note[name] for name in _OWN if name in note]
    if not own or len(note) != len(own) + sum(name in note for name in _SHARED) or "since_ns" not in note or len(own) == 2:
        return dumps(note), None
    shared = dumps({name: note[name] for name in _SHARED if name in note})
    found = connection.execute("SELECT number FROM origins WHERE note = ?", (shared,)).fetchone()
    if found is None:
        found = connection.execute("INSERT INTO origins (note) VALUES (?) RETURNING number", (shared,)).fetchone()
    return dumps(own), int(found[0])


def note_of(mark: str | None, shared: str | None) -> Mapping[str, Json]:
    """Return the note of a mark, given what `MARK` reads; nothing where there is none. Raise ValueError for what is no note."""
    if mark is None or not mark.startswith("["):
        return json_object(mark, "mark") or {}
    try:
        own = loads(mark)
    except (ValueError, RecursionError):
        raise ValueError(f"mark is no JSON: {shown(mark)}") from None
    return {**(json_object(shared, "origin") or {}), **dict(zip(_OWN, own, strict=False))}


def note_if_readable(mark: Any, shared: Any) -> Mapping[str, Json]:
    """Return the note of a mark, as far as it is one."""
    try:
        return note_of(mark, shared)
    except (ValueError, TypeError, AttributeError):
        return {}


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


def note_started(
    connection: sqlite3.Connection, row: ExecutionRow, *, started_at: datetime, identity: Mapping[str, Json]
) -> None:
    """Write down the process: pid, start time and boot make it known again (7.1)."""
    noted = _as_noted(connection, {**row.mark, **identity})
    connection.execute(
        "UPDATE executions SET started_at = ?, mark = ?, origin = ? WHERE run = ? AND k = ? AND how IS NULL",
        (to_micros(started_at), *noted, row.run, row.k),
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
        " left_behind = ?, detail = ?, mark = NULL, origin = NULL WHERE run = ? AND k = ? AND how IS NULL",
        (
            ENDED_NUMBER[how],
            None if started_at is None else to_micros(started_at),
            to_micros(ended_at),
            exit_status,
            signal,
            None if cpu is None else cpu // _MICROSECOND,
            max_rss_bytes,
            left_behind,
            _ascii(detail) if detail else None,
            row.run,
            row.k,
        ),
    )
    return changed.rowcount == 1


def _ascii(value: Mapping[str, Json]) -> str:
    """What a process or a person is named by may be no text of UTF-8."""
    import json

    return json.dumps(value)


def record_stop(connection: sqlite3.Connection, row: ExecutionRow, stop: Reason) -> bool:
    """Record why this execution alone is stopped, before the first signal."""
    changed = connection.execute(
        "UPDATE executions SET stop = ? WHERE run = ? AND k = ? AND how IS NULL AND stop IS NULL",
        (_ascii(stop), row.run, row.k),
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
            message=(row.detail or {}).get("message"),
            cause=(row.detail or {}).get("cause"),
            stop=row.stop,
        )
        for row in rows
        if row.how is not None and row.ended_at is not None
    ]
