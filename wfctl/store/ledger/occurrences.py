"""Occurrences: one row an instant, clustered by schedule and the order of recording, which is how they are paged (8.1, 8.2)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.json_text import dumps
from wfctl.core.model import Json, Settlement, Span, Status
from wfctl.store.ledger.numbers import RARE, STATUS_NUMBER, STATUS_OF
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object, known, merged_by, try_micros
from wfctl.value import Value

_MICROSECOND = timedelta(microseconds=1)
LAST_PLACE = 2**62  #: behind every row
_COLUMNS = "place, schedule, instant, status, revision, recorded_at, lateness, run, reason, span_first, span_count"


class OccurrenceRow(Value):
    """One row of the history."""

    place: int
    schedule: int
    instant: datetime
    status: Status
    revision: int
    recorded_at: datetime
    lateness: timedelta | None
    run: int | None
    reason: Mapping[str, Json] | None
    span: Span | None


class BrokenOccurrence(Value, kw_only=False):
    """A row of the history that cannot be trusted: it keeps its place, and nothing is made up for it."""

    place: int
    schedule: int
    instant: datetime | None
    problem: str


@guarded("occurrences", _COLUMNS, "iiiiiiIITII", ["schedule", "place"], schedule="schedule")
def _row(values: tuple[Any, ...]) -> OccurrenceRow:
    place, schedule, instant, status, revision, recorded_at, lateness, run, reason, span_first, span_count = values
    if run is not None and run < 1:
        raise ValueError(f"run is {run}, and runs are numbered from 1")
    return OccurrenceRow(
        place=place,
        schedule=schedule,
        instant=from_micros(instant),
        status=known(STATUS_OF, status, "status"),
        revision=revision,
        recorded_at=from_micros(recorded_at),
        lateness=None if lateness is None else timedelta(microseconds=lateness),
        run=run,
        reason=json_object(reason, "reason"),
        span=None if span_first is None else Span(from_micros(span_first), from_micros(instant), span_count),
    )


COLUMNS, sound = _COLUMNS, _row  #: for `evidence`, which reads what nobody trusts


def append(
    connection: sqlite3.Connection,
    schedule: int,
    rows: Sequence[Settlement],
    *,
    revision: int,
    recorded_at: datetime,
    places: Sequence[int],
) -> None:
    """Record rows of one schedule, oldest first, at the places given, which ascend."""
    if not rows:
        return
    recorded = to_micros(recorded_at)
    append_all(
        connection,
        [
            (schedule, place, to_micros(row.instant), STATUS_NUMBER[row.status], revision, recorded,
             None if row.lateness is None else row.lateness // _MICROSECOND, row.run, *rest_of(row))
            for place, row in zip(places, rows, strict=True)
        ],
    )  # fmt: skip
    note_order(connection, schedule, to_micros(rows[0].instant), places[0])


#: Of one row: schedule, place, instant, number of its status, revision, when recorded, lateness, run, and what `rest_of` gives.
RowValues = tuple[int, int, int, int, int, int, int | None, int | None, str | None, int | None, int | None]


def append_all(connection: sqlite3.Connection, rows: Iterable[RowValues]) -> None:
    """Record rows of many schedules; of each in the order of their places. Times are microseconds."""
    connection.executemany(
        "INSERT INTO occurrences (schedule, place, instant, status, revision, recorded_at, lateness, run, reason, span_first,"
        " span_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def rest_of(row: Settlement) -> tuple[str | None, int | None, int | None]:
    """Return what the last columns hold: reason, and of a span its first instant and how many."""
    span = row.span
    reason = None if row.reason is None else dumps(row.reason)
    return (reason, None, None) if span is None else (reason, to_micros(span.first), span.count)


def note_order(connection: sqlite3.Connection, schedule: int, oldest: int, place: int) -> None:
    """Note where a row, of an instant in microseconds, was recorded behind one of a later instant."""
    ahead = connection.execute(
        "SELECT 1 FROM occurrences WHERE schedule = ? AND instant > ? AND place < ? LIMIT 1", (schedule, oldest, place)
    )
    if ahead.fetchone():
        connection.execute("UPDATE schedules SET is_disordered = 1 WHERE number = ?", (schedule,))


def reserve_places(connection: sqlite3.Connection, count: int) -> int:
    """Take `count` places in the order of recording and return the first."""
    found = connection.execute("UPDATE counters SET occurrence = occurrence + ? RETURNING occurrence", (count,)).fetchone()
    return int(found[0]) - count + 1


def last_place(connection: sqlite3.Connection) -> int:
    """Return the last place that was given in the order of recording; 0 when none was."""
    return int(connection.execute("SELECT occurrence FROM counters").fetchone()[0])


def settled_after(connection: sqlite3.Connection, place: int, limit: int) -> list[OccurrenceRow]:
    """Return up to `limit` readable rows without a run that were recorded behind a place, in that order."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM occurrences INDEXED BY occurrences_by_place WHERE place > ? AND run IS NULL"
        " ORDER BY place LIMIT ?",
        (place, limit),
    )
    rows = []
    for values in found:
        with contextlib.suppress(UnreadableRow):
            rows.append(_row(values))
    return rows


def count_settled(connection: sqlite3.Connection, place: int) -> int:
    """Return how many rows without a run were recorded behind a place."""
    found = connection.execute("SELECT count(*) FROM occurrences WHERE place > ? AND run IS NULL", (place,))
    return int(found.fetchone()[0])


def find(connection: sqlite3.Connection, schedule: int, instant: datetime) -> OccurrenceRow | None:
    """Return the row of that instant, or the span row that it lies in."""
    at = (schedule, to_micros(instant))
    found = connection.execute(f"SELECT {_COLUMNS} FROM occurrences WHERE schedule = ? AND instant = ?", at).fetchone()
    if found is not None:
        return _row(found)
    # Not simply the next row: after a clock event admitted occurrences may lie within a span (5.14).
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM occurrences WHERE schedule = ? AND instant > ? AND span_first IS NOT NULL"
        " ORDER BY instant LIMIT 1",
        at,
    ).fetchone()
    row = None if found is None else _row(found)
    return row if row is not None and row.span is not None and row.span.first <= instant else None


def beside(connection: sqlite3.Connection, schedule: int, instant: datetime) -> list[datetime]:
    """Return the instants recorded just before and just after one that is not."""
    at = (schedule, to_micros(instant))
    before = connection.execute("SELECT max(instant) FROM occurrences WHERE schedule = ? AND instant < ?", at).fetchone()
    after = connection.execute("SELECT min(instant) FROM occurrences WHERE schedule = ? AND instant > ?", at).fetchone()
    return [from_micros(micros) for (micros,) in (before, after) if isinstance(micros, int)]


def set_status(connection: sqlite3.Connection, schedule: int, instant: datetime, status: Status) -> None:
    """Let an admitted occurrence show what its run shows (contract 6.6)."""
    connection.execute(
        "UPDATE occurrences SET status = ? WHERE schedule = ? AND instant = ?",
        (STATUS_NUMBER[status], schedule, to_micros(instant)),
    )


def give_to_run(connection: sqlite3.Connection, schedule: int, instant: datetime, run: int, status: Status) -> None:
    """Let the row of an instant name the run that was admitted for it."""
    connection.execute(
        "UPDATE occurrences SET run = ?, status = ?, reason = NULL WHERE schedule = ? AND instant = ?",
        (run, STATUS_NUMBER[status], schedule, to_micros(instant)),
    )


def admitted_among(connection: sqlite3.Connection, schedule: int, instants: Sequence[datetime]) -> frozenset[datetime]:
    """Return which of these instants already have a row: they were admitted before the clock stepped back (5.14)."""
    if not instants:
        return frozenset()
    found = connection.execute(
        "SELECT instant FROM occurrences WHERE schedule = ? AND instant BETWEEN ? AND ?",
        (schedule, to_micros(instants[0]), to_micros(instants[-1])),
    )
    return frozenset(from_micros(micros) for (micros,) in found) & frozenset(instants)


def count_admitted(
    connection: sqlite3.Connection, schedule: int, first: datetime, last: datetime, is_named: Callable[[datetime], bool]
) -> int:
    """Return for how many instants from `first` to `last` a run was admitted; only those that the calendar names count."""
    found = connection.execute(
        "SELECT instant FROM occurrences WHERE schedule = ? AND instant BETWEEN ? AND ? AND run IS NOT NULL",
        (schedule, to_micros(first), to_micros(last)),
    )
    return sum(is_named(from_micros(micros)) for (micros,) in found)


def last_admitted_after(connection: sqlite3.Connection, schedule: int, instant: datetime) -> datetime | None:
    """Return the latest admitted instant that lies after `instant`."""
    found = connection.execute(
        "SELECT max(instant) FROM occurrences WHERE schedule = ? AND instant > ? AND run IS NOT NULL",
        (schedule, to_micros(instant)),
    ).fetchone()
    return None if found[0] is None else from_micros(found[0])


def withdraw_after(connection: sqlite3.Connection, schedule: int, instant: datetime) -> list[OccurrenceRow]:
    """Take out the rows later than `instant` that admitted nothing, and return them (contract 5.14)."""
    where = "schedule = ? AND instant > ? AND run IS NULL"
    found = connection.execute(f"SELECT {_COLUMNS} FROM occurrences WHERE {where}", (schedule, to_micros(instant))).fetchall()
    connection.execute(f"DELETE FROM occurrences WHERE {where}", (schedule, to_micros(instant)))
    return [_row(values) for values in found]


def page(
    connection: sqlite3.Connection,
    *,
    schedules: Sequence[int] | None,
    statuses: Collection[Status] | None,
    since: datetime | None,
    until: datetime | None,
    after: int,
    limit: int,
    before: int = LAST_PLACE,
    newest: bool = False,
) -> list[OccurrenceRow | BrokenOccurrence]:
    """Return up to `limit` rows between two places, in the order of recording: the first ones, or the `newest`.

    Given: `schedules` by number (None: all), `statuses` (None: all), instants from `since` on and before `until`.
    Each part is an index range; several are merged by place.
    """
    numbers = None if statuses is None else sorted(STATUS_NUMBER[status] for status in statuses if status in STATUS_NUMBER)
    if numbers == []:
        return []
    if schedules is None and (since or until):
        schedules = _with_rows_within(connection, since, until)
    parts: list[_Range] = []
    for schedule in [None] if schedules is None else schedules:
        parts += _ranges(connection, schedule, numbers, since, until, (after, before))
    ranges = [_rows(connection, part, limit, newest) for part in parts]
    merged = merged_by(lambda row: row.place, ranges, reverse=newest)
    found = [row for row, _ in zip(merged, range(limit), strict=False)]
    return found[::-1] if newest else found


class _Range(Value, kw_only=False):
    """One stretch of an index; `index` is named where SQLite would rather read through all rows of a schedule."""

    index: str
    conditions: Sequence[str]
    values: Sequence[int]


def _ranges(
    connection: sqlite3.Connection,
    schedule: int | None,
    numbers: list[int] | None,
    since: datetime | None,
    until: datetime | None,
    between: tuple[int, int],
) -> Iterator[_Range]:
    """Give the index ranges that together hold what is asked for of one schedule, or of all."""
    conditions: list[str] = []
    values: list[int] = []
    if schedule is not None:
        conditions, values = ["schedule = ?"], [schedule]
    if since or until:
        assert schedule is not None
        between = _narrow(connection, schedule, since, until, between, conditions, values)
    conditions, values = [*conditions, "place > ? AND place < ?"], [*values, *between]
    if numbers is None:
        yield _Range("", conditions, values)
    elif all(number >= RARE for number in numbers):
        index = "INDEXED BY " + ("occurrences_rare" if schedule is None else "occurrences_rare_of_schedule")
        for number in numbers:
            yield _Range(index, [*conditions, f"status = ? AND +status >= {RARE}"], [*values, number])
    else:
        yield _Range("", [*conditions, f"status IN ({', '.join('?' * len(numbers))})"], [*values, *numbers])


def _narrow(
    connection: sqlite3.Connection,
    schedule: int,
    since: datetime | None,
    until: datetime | None,
    between: tuple[int, int],
    conditions: list[str],
    values: list[int],
) -> tuple[int, int]:
    """Add the bounds of instants; where rows stand in their order, bound the places too, so that the range is short.

    Return the places between which the range lies: there may be one bound at each end, SQLite heeds no second.
    """
    after, before = between
    disordered = connection.execute("SELECT is_disordered FROM schedules WHERE number = ?", (schedule,)).fetchone()
    for bound, comparison in ((since, ">="), (until, "<")):
        if bound is None:
            continue
        conditions.append(f"instant {comparison} ?")
        values.append(to_micros(bound))
        if disordered and disordered[0]:
            continue
        place = connection.execute(
            "SELECT place FROM occurrences WHERE schedule = ? AND instant >= ? ORDER BY instant LIMIT 1",
            (schedule, to_micros(bound)),
        ).fetchone()
        if place and bound is since:
            after = max(after, place[0] - 1)
        elif place:
            before = min(before, place[0])
    return after, before


def _rows(connection: sqlite3.Connection, part: _Range, limit: int, newest: bool) -> Iterator[OccurrenceRow | BrokenOccurrence]:
    where = " AND ".join(part.conditions)
    order = "place DESC" if newest else "place"
    for found in connection.execute(
        f"SELECT {_COLUMNS} FROM occurrences {part.index} WHERE {where} ORDER BY {order} LIMIT ?", [*part.values, limit]
    ):
        with contextlib.suppress(UnreadableRow):  # one without a place has none in a list either; `store verify` names it
            yield _row_or_broken(found)


def _row_or_broken(values: tuple[Any, ...]) -> OccurrenceRow | BrokenOccurrence:
    """One row that cannot be read does not keep the others from being listed. Raise UnreadableRow where even its key cannot."""
    try:
        return _row(values)
    except UnreadableRow as error:
        place, schedule, instant = values[:3]
        if not isinstance(place, int) or not isinstance(schedule, int):
            raise
        return BrokenOccurrence(place, schedule, try_micros(instant), error.message)


def _with_rows_within(connection: sqlite3.Connection, since: datetime | None, until: datetime | None) -> list[int]:
    low = to_micros(since) if since else -(2**62)
    high = to_micros(until) if until else 2**62
    return [
        number
        for (number,) in connection.execute("SELECT number FROM schedules").fetchall()
        if connection.execute(
            "SELECT 1 FROM occurrences WHERE schedule = ? AND instant >= ? AND instant < ? LIMIT 1", (number, low, high)
        ).fetchone()
    ]
