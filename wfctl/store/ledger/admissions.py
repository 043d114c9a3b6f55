"""What a round reads of the ledger and writes to it, for all of its schedules at once (contract 6.1, 6.3).

A thousand schedules that are due together are read by one statement, with all that their decisions depend on, and written by
one for each table: what a round costs is what SQLite needs for its rows. What is read is checked as everywhere (7.4).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from wfctl.core.instants import EPOCH, from_micros, to_micros
from wfctl.core.model import Candidate, run_name
from wfctl.store.ledger.rows import UnreadableRow, guarded
from wfctl.store.ledger.schedules import COLUMNS, FROM, KINDS, ScheduleRow, held_for, row_of
from wfctl.store.ledger.schema import WAITS_FOR_CAPACITY

_MOST = to_micros(datetime.max.replace(tzinfo=EPOCH.tzinfo))
_LEAST = to_micros(datetime.min.replace(tzinfo=EPOCH.tzinfo))


class DueRow(NamedTuple):
    """One active, unblocked schedule as a round sees it. What ends in `_us` is microseconds, of instants since the epoch."""

    number: int
    id: str
    revision: int
    deployment: int
    deployment_id: str
    deployment_revision: int
    anchor_us: int
    watermark_us: int
    next_us: int | None
    wake_us: int | None
    floor: datetime  #: everything up to here is consumed or never was this schedule's (contract 5.1)
    candidate: Candidate | None
    last_admission: datetime | None
    passing_until: datetime | None
    active: tuple[str, ...]  #: the ids of its unfinished runs: they hold its overlap slots (5.3)
    is_doubtful: bool  #: its state, its history and its runs do not say the same

    @property
    def anchor(self) -> datetime:
        """Where the grid of an interval begins."""
        return from_micros(self.anchor_us)


# Reading ----------------------------------------------------------------------------------------------------------------

#: Each schedule's state, its unfinished runs, how many rows of its history say that their run is unfinished, and whether there
#: is a row behind its watermark, but for those that may pass quietly (5.14), or one of what it holds.
_FACTS = f"""SELECT {COLUMNS},
 (SELECT group_concat(number) FROM runs INDEXED BY runs_unfinished WHERE schedule = s.number AND status BETWEEN 11 AND 13),
 (SELECT count(*) FROM occurrences INDEXED BY occurrences_rare_of_schedule
   WHERE schedule = s.number AND +status >= 10 AND status BETWEEN 11 AND 13),
 EXISTS (SELECT 1 FROM occurrences WHERE schedule = s.number AND instant > s.watermark
   AND (run IS NULL OR instant > coalesce(s.passing_until, s.watermark)))
 OR EXISTS (SELECT 1 FROM occurrences WHERE schedule = s.number AND instant = s.candidate)
 {FROM}"""
_STATE = len(COLUMNS.split(","))
_WAKE = [name.strip() for name in COLUMNS.split(",")].index("s.wake_at")


def due(connection: sqlite3.Connection, now: datetime, *, after: datetime | None = None) -> list[DueRow | ScheduleRow]:
    """Return the schedules that need attention by `now` and may admit; one that cannot be read as a ScheduleRow.

    Given `after`, those that needed it by then are left out.
    """
    found = connection.execute(
        f"{_FACTS} WHERE s.wake_at IS NOT NULL AND s.wake_at <= ? AND s.wake_at > ? ORDER BY s.wake_at, s.number",
        (to_micros(now), _LEAST - 1 if after is None else to_micros(after)),
    )
    return _rows(found)


def has_more_behind(connection: sqlite3.Connection, by: datetime, few: int) -> bool:
    """Tell whether more than a few schedules needed attention by some time."""
    query = "SELECT 1 FROM schedules WHERE wake_at IS NOT NULL AND wake_at <= ? LIMIT 1 OFFSET ?"
    return connection.execute(query, (to_micros(by), few)).fetchone() is not None


#: Where a walk through the schedules that need attention stands: when one of them needs it, and its number.
Place = tuple[int, int]


def behind(
    connection: sqlite3.Connection, by: datetime, *, after: Place | None, limit: int
) -> list[tuple[Place, DueRow | ScheduleRow | None]]:
    """Return the first schedules behind a place that needed attention by some time, as `due` does; None: it may not admit."""
    found = connection.execute(
        f"{_FACTS} WHERE s.wake_at IS NOT NULL AND s.wake_at <= ? AND (s.wake_at, s.number) > (?, ?)"
        " ORDER BY s.wake_at, s.number LIMIT ?",
        (to_micros(by), *(after or (_LEAST - 1, 0)), limit),
    ).fetchall()
    return [((values[_WAKE], values[0]), next(iter(_rows([values])), None)) for values in found]


def waiting_for_capacity(connection: sqlite3.Connection, *, limit: int) -> list[DueRow | ScheduleRow]:
    """Return schedules whose candidate waits for an execution slot, longest held first (contract 5.8), as `due` does."""
    found = connection.execute(
        f"{_FACTS} WHERE s.waits_for = {WAITS_FOR_CAPACITY} ORDER BY s.held_since, s.last_admission LIMIT ?", (limit,)
    )
    return _rows(found)


def next_numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the number that the next run gets, and the place that the next row of the history gets."""
    run, place = connection.execute("SELECT run, occurrence FROM counters").fetchone()
    return int(run) + 1, int(place) + 1


def next_wake_after(connection: sqlite3.Connection, instant: datetime) -> int | None:
    """Return when the first schedule needs attention after an instant, in microseconds; None: none does."""
    found = connection.execute(
        "SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL AND wake_at > ?", (to_micros(instant),)
    ).fetchone()
    return None if found[0] is None else int(found[0])


def _rows(found: Iterable[tuple[Any, ...]]) -> list[DueRow | ScheduleRow]:
    rows: list[DueRow | ScheduleRow] = []
    for values in found:
        with contextlib.suppress(UnreadableRow):  # one that has not even an id is left to `evidence`
            try:
                row: DueRow | ScheduleRow | None = _due(values)
            except UnreadableRow:
                row = row_of(values[:_STATE])
            if row is not None:
                rows.append(row)
    return rows


@guarded("schedules", f"{COLUMNS}, active, unfinished, is_contradicted", f"{KINDS}Tii", ["number"])
def _due(values: tuple[Any, ...]) -> DueRow | None:
    """Return the row of a schedule; None where it is paused, deleted or blocked."""
    (number, name, revision, diagnostic, deleted_at, created_at, deployment, deployment_id, deployment_revision,
     deployment_diagnostic, effective_from, anchor, watermark, next_instant, wake_at, candidate, held_since, can_expire,
     held_reason, last_admission, paused_at, passing_until, unfinished, recorded, is_contradicted) = values  # fmt: skip
    if diagnostic or deployment_diagnostic or deleted_at is not None or paused_at is not None:
        if not row_of(values[:_STATE]).is_readable:
            raise ValueError("it cannot be read")
        return None
    for micros in (created_at, anchor, next_instant, wake_at):  # what is not worked with here must be an instant all the same
        if micros is not None and not _LEAST <= micros <= _MOST:
            raise ValueError(f"{micros} is no instant")
    floor = max(watermark, effective_from)
    held = None
    if candidate is not None:
        held = Candidate(
            instant=from_micros(candidate),
            held_since=from_micros(held_since),
            can_expire=bool(can_expire),
            reason=held_for(held_reason),
        )
    runs = () if unfinished is None else sorted(map(int, unfinished.split(",")))
    return DueRow(
        number,
        name,
        revision,
        deployment,
        deployment_id,
        deployment_revision,
        anchor,
        watermark,
        next_instant,
        wake_at,
        floor=from_micros(floor),
        candidate=held,
        last_admission=None if last_admission is None else from_micros(last_admission),
        passing_until=None if passing_until is None else from_micros(passing_until),
        active=tuple([run_name(run) for run in runs if run > 0]) if runs else (),
        is_doubtful=bool(is_contradicted or recorded != len(runs) or (runs and runs[0] < 1) or (held and candidate > floor)),
    )


# Writing ----------------------------------------------------------------------------------------------------------------


def move(connection: sqlite3.Connection, moved: Iterable[tuple[int, int | None, int | None, int | None, int]]) -> None:
    """Write where schedules stand: watermark, last admission where there was one, next instant, when to look again; number.

    All but the number are microseconds.
    """
    connection.executemany(
        "UPDATE schedules SET watermark = ?, last_admission = coalesce(?, last_admission), next_instant = ?, wake_at = ?"
        " WHERE number = ?",
        moved,
    )
