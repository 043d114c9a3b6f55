"""What stood around one instant: supervisors, pauses, clock events, runs and slots at that time (contract 5.10)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime

from wfctl.core.instants import from_micros, to_micros
from wfctl.store.ledger.definitions import RevisionRow, revision
from wfctl.store.ledger.schema import WAITS_FOR_CAPACITY
from wfctl.value import Value

_BY_COMMANDS = tuple(f'{{"code":"{code}"' for code in ("paused", "edited", "deleted"))
_FEW = 20  #: rows among which the last decision of a supervisor is looked for
_OLDER = 100  #: older rows among which what was held is looked for
_LOOKED_BACK = 20_000  #: runs before a moment among which those are looked for that had not ended by then


class SessionRow(Value):
    """One stay of a supervisor."""

    pid: int
    host: str
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None


class PauseRow(Value):
    """One paused span; it lasts where it has no end."""

    paused_at: datetime
    resumed_at: datetime | None
    reason: str | None
    actor: str
    resumed_by: str | None


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def sessions(connection: sqlite3.Connection, moments: Iterable[datetime]) -> list[SessionRow]:
    """Return the sessions around some moments: for each the last that had begun by then, and the first that began later."""
    columns = "number, pid, host, started_at, seen_at, ended_at"
    found: dict[int, SessionRow] = {}
    for moment in moments:
        at = to_micros(moment)
        for where in ("started_at <= ? ORDER BY number DESC", "started_at > ? ORDER BY number"):
            row = connection.execute(f"SELECT {columns} FROM sessions WHERE {where} LIMIT 1", (at,)).fetchone()
            if row is not None:
                number, pid, host, started_at, seen_at, ended_at = row
                trace = seen_at if ended_at is not None else max(seen_at, _last_decision(connection, number))
                found[number] = SessionRow(
                    pid=pid,
                    host=host,
                    started_at=from_micros(started_at),
                    seen_at=from_micros(trace),
                    ended_at=_instant(ended_at),
                )
    return [found[number] for number in sorted(found)]


def are_sessions_whole(connection: sqlite3.Connection) -> bool:
    """Tell whether the first session ever is still known: none was let go with old history."""
    return connection.execute("SELECT min(number) FROM sessions").fetchone()[0] in (None, 1)


def _last_decision(connection: sqlite3.Connection, session: int) -> int:
    """Return when a supervisor that left no end recorded its last decision, as far as a few rows show it; 0 for never.

    What a command recorded, by a pause, an edit or a delete, is no trace of a supervisor.
    """
    following = connection.execute(
        "SELECT started_at FROM sessions WHERE number > ? ORDER BY number LIMIT 1", (session,)
    ).fetchone()
    low, high = 0, int(connection.execute("SELECT occurrence FROM counters").fetchone()[0])
    while following is not None and low < high:  # places ascend with the time of recording
        middle = (low + high + 1) // 2
        row = connection.execute(
            "SELECT place, recorded_at FROM occurrences WHERE place <= ? ORDER BY place DESC LIMIT 1", (middle,)
        ).fetchone()
        if row is None or row[1] < following[0]:
            low = middle
        else:
            high = row[0] - 1
    last = high if following is None else low
    rows = connection.execute(
        "SELECT recorded_at, reason FROM occurrences WHERE place <= ? ORDER BY place DESC LIMIT ?", (last, _FEW)
    )
    return next((at for at, reason in rows if not str(reason or "").startswith(_BY_COMMANDS)), 0)


def pause_over(connection: sqlite3.Connection, schedule: int, instant: datetime) -> PauseRow | None:
    """Return the paused span that consumes an instant: what lies in (begin, end]."""
    at = to_micros(instant)
    return _pause(connection, "paused_at < ? AND (resumed_at IS NULL OR resumed_at >= ?)", (schedule, at, at))


def pause_begun(connection: sqlite3.Connection, schedule: int, at: datetime) -> PauseRow | None:
    """Return the paused span that began at a moment, or was first seen to begin after it: the one that settled what was due."""
    return _pause(connection, "paused_at >= ?", (schedule, to_micros(at)), order="ASC")


def _pause(connection: sqlite3.Connection, where: str, values: tuple[int, ...], order: str = "DESC") -> PauseRow | None:
    found = connection.execute(
        f"SELECT paused_at, resumed_at, reason, actor, resumed_by FROM pauses WHERE schedule = ? AND {where}"
        f" ORDER BY paused_at {order} LIMIT 1",
        values,
    ).fetchone()
    if found is None:
        return None
    paused_at, resumed_at, reason, actor, resumed_by = found
    return PauseRow(
        paused_at=from_micros(paused_at),
        resumed_at=_instant(resumed_at),
        reason=reason,
        actor=actor,
        resumed_by=resumed_by,
    )


def revision_saved(connection: sqlite3.Connection, schedule: int, at: datetime) -> RevisionRow | None:
    """Return the first revision that was saved at a moment or later."""
    found = connection.execute(
        "SELECT revision FROM revisions WHERE definition = ? AND recorded_at >= ? ORDER BY revision LIMIT 1",
        (schedule, to_micros(at)),
    ).fetchone()
    return revision(connection, schedule, found[0]) if found else None


def revision_by(connection: sqlite3.Connection, schedule: int, at: datetime, first: int, last: int) -> int:
    """Return the newest revision from `first` to `last` that was saved before a moment, else `first`."""
    found = connection.execute(
        "SELECT max(revision) FROM revisions WHERE definition = ? AND revision BETWEEN ? AND ? AND recorded_at < ?",
        (schedule, first, last, to_micros(at)),
    ).fetchone()
    return first if found[0] is None else int(found[0])


def held_before(connection: sqlite3.Connection, schedule: int, instant: datetime, at: datetime) -> datetime | None:
    """Return the older instant that a schedule held when it considered `instant`, at `at`: it was settled only later."""
    found = connection.execute(
        "SELECT instant FROM (SELECT instant, recorded_at FROM occurrences WHERE schedule = ? AND instant < ?"
        " AND +span_first IS NULL ORDER BY instant DESC LIMIT ?) WHERE recorded_at > ? LIMIT 1",
        (schedule, to_micros(instant), _OLDER, to_micros(at)),
    ).fetchone()
    return _instant(found[0]) if found else None


def runs_at(connection: sqlite3.Connection, schedule: int, at: datetime) -> list[int]:
    """Return the numbers of a schedule's runs that were admitted before a moment and not over by then."""
    moment = to_micros(at)
    last = _last_run_by(connection, at)
    ended = connection.execute(
        "SELECT number FROM runs WHERE schedule = ? AND number BETWEEN ? AND ? AND admitted_at < ? AND ended_at > ?",
        (schedule, last - _LOOKED_BACK, last, moment, moment),
    )
    going = connection.execute(
        "SELECT number FROM runs WHERE schedule = ? AND status BETWEEN 11 AND 13 AND admitted_at < ?", (schedule, moment)
    )
    return sorted(number for (number,) in [*ended, *going])


def slot_holders(connection: sqlite3.Connection, since: datetime, until: datetime, *, most: int) -> list[int] | None:
    """Return the numbers of the scheduled runs that were at work at some time between two moments; None: too many."""
    first, last = _last_run_by(connection, since) - _LOOKED_BACK, _last_run_by(connection, until)
    ended = connection.execute(
        "SELECT number FROM runs WHERE number BETWEEN ? AND ? AND schedule IS NOT NULL AND ended_at > ? LIMIT ?",
        (first, last, to_micros(since), most + 1),
    ).fetchall()
    going = connection.execute(
        "SELECT number FROM runs WHERE schedule IS NOT NULL AND status BETWEEN 11 AND 13 AND admitted_at <= ? LIMIT ?",
        (to_micros(until), most + 1),
    ).fetchall()
    return None if len(ended) + len(going) > most else sorted(number for (number,) in [*ended, *going])


def _last_run_by(connection: sqlite3.Connection, at: datetime) -> int:
    """Return the number of the last run admitted by a moment, found by halves, since numbers ascend with time."""
    low, high = 0, int(connection.execute("SELECT run FROM counters").fetchone()[0])
    while low < high:
        middle = (low + high + 1) // 2
        found = connection.execute(
            "SELECT number, admitted_at FROM runs WHERE number <= ? ORDER BY number DESC LIMIT 1", (middle,)
        ).fetchone()
        if found is None or found[1] <= to_micros(at):
            low = middle
        else:
            high = found[0] - 1
    return low


def ahead_in_queue(
    connection: sqlite3.Connection, held_since: datetime, last_admission: datetime | None, schedule_id: str, *, limit: int
) -> tuple[list[tuple[str, datetime]], int]:
    """Return the candidates that get an execution slot before one that is held since then: the first, and how many (5.8)."""
    last = 0 if last_admission is None else to_micros(last_admission)
    order = (to_micros(held_since), last, schedule_id)
    where = (
        f"FROM schedules s JOIN definitions d ON d.number = s.number WHERE s.waits_for = {WAITS_FOR_CAPACITY} AND"
        " d.deleted_at IS NULL AND d.diagnostic IS NULL AND (s.held_since, coalesce(s.last_admission, 0), d.id) < (?, ?, ?)"
    )
    found = connection.execute(
        f"SELECT d.id, s.candidate {where} ORDER BY s.held_since, coalesce(s.last_admission, 0), d.id LIMIT ?", (*order, limit)
    ).fetchall()
    count = connection.execute(f"SELECT count(*) {where}", order).fetchone()[0]
    return [(name, from_micros(instant)) for name, instant in found], count
