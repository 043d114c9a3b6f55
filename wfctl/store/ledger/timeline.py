"""The pieces of one schedule's timeline as an audit reads them: each in order of instant, one row at a time (contract 5.15)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.model import Json, Status
from wfctl.store.ledger.numbers import STATUS_OF
from wfctl.store.ledger.rows import guarded

_COLUMNS = (
    "o.schedule, o.place, o.instant, o.status, o.revision, o.reason, o.span_first, o.span_count, o.run, r.status, r.schedule,"
    " r.instant, r.reason"
)
_FROM = "FROM occurrences o LEFT JOIN runs r ON r.number = o.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow:
    """One row of the history, with what the record of its run says. What cannot be read is None: it is for the audit to say."""

    instant: datetime
    status: Status | None
    revision: int
    reason: Mapping[str, Json] | None
    first: datetime | None
    count: int | None
    run: int | None
    run_status: Status | None  #: None where there is no such run, or it is of another occurrence
    is_restored: bool


def _read(values: tuple[Any, ...]) -> RecordedRow:
    schedule, _, instant, status, revision, reason, first, count, run, run_status, run_schedule, run_instant, why = values
    is_its = run_schedule == schedule and run_instant == instant
    return RecordedRow(
        instant=from_micros(instant),
        status=_status(status),
        revision=revision,
        reason=_object(reason),
        first=None if first is None else from_micros(first),
        count=count,
        run=run,
        run_status=_status(run_status) if is_its else None,
        is_restored=is_its and (_object(why) or {}).get("code") == "ledger-restored",
    )


_row = guarded("occurrences", _COLUMNS, "iii*i*III****", ["schedule", "place"], schedule="schedule")(_read)


def _status(number: Any) -> Status | None:
    return STATUS_OF.get(number) if isinstance(number, int) else None


def _object(text: Any) -> Mapping[str, Json] | None:
    try:
        found = json.loads(text) if text else None
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def rows(connection: sqlite3.Connection, schedule: int, *, after: datetime | None) -> Iterator[RecordedRow]:
    """Give the rows of single instants later than `after`, by instant."""
    for values in connection.execute(
        f"SELECT {_COLUMNS} {_FROM} WHERE o.schedule = ? AND o.instant > ? AND +o.span_first IS NULL ORDER BY o.instant",
        (schedule, _low(after)),
    ):
        yield _row(values)


def spans(connection: sqlite3.Connection, schedule: int, *, after: datetime | None) -> Iterator[RecordedRow]:
    """Give the span rows that reach beyond `after`, by instant."""
    for values in connection.execute(
        f"SELECT {_COLUMNS} {_FROM} WHERE o.schedule = ? AND o.instant > ? AND o.span_first IS NOT NULL ORDER BY o.instant",
        (schedule, _low(after)),
    ):
        yield _row(values)


def pauses(
    connection: sqlite3.Connection, schedule: int, *, after: datetime | None
) -> Iterator[tuple[datetime, datetime | None]]:
    """Give the paused spans that reach beyond `after`, by begin; one that lasts has no end."""
    for paused_at, resumed_at in connection.execute(
        "SELECT paused_at, resumed_at FROM pauses WHERE schedule = ? AND (resumed_at IS NULL OR resumed_at > ?)"
        " ORDER BY paused_at",
        (schedule, _low(after)),
    ):
        yield from_micros(paused_at), None if resumed_at is None else from_micros(resumed_at)


def open_pauses(connection: sqlite3.Connection, schedule: int) -> list[datetime]:
    """Return when the paused spans began that did not end yet: at most one, in a sound ledger."""
    found = connection.execute("SELECT paused_at FROM pauses WHERE schedule = ? AND resumed_at IS NULL", (schedule,))
    return [from_micros(paused_at) for (paused_at,) in found]


def runs_without_row(
    connection: sqlite3.Connection, schedule: int, *, after: datetime | None
) -> Iterator[tuple[datetime, int]]:
    """Give instant and number of the runs admitted for instants later than `after` of which the history knows nothing."""
    for instant, number in connection.execute(
        "SELECT r.instant, r.number FROM runs r WHERE r.schedule = ? AND r.instant > ? AND NOT EXISTS"
        " (SELECT 1 FROM occurrences o WHERE o.schedule = r.schedule AND o.instant = r.instant AND o.run = r.number)"
        " ORDER BY r.instant",
        (schedule, _low(after)),
    ):
        yield from_micros(instant), number


def _low(after: datetime | None) -> int:
    return -(2**62) if after is None else to_micros(after)
