"""What the system decided about each schedule: watermark, candidate, pause, and when it needs attention next."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from wfctl.core.instants import from_micros, to_micros
from wfctl.core.json_text import dumps
from wfctl.core.model import Candidate, Json
from wfctl.store.ledger.definitions import contradiction_of
from wfctl.store.ledger.rows import UnreadableRow, guarded, json_object
from wfctl.store.ledger.schema import WAITS_FOR_CAPACITY, WAITS_FOR_OVERLAP
from wfctl.value import Value

COLUMNS = """s.number, d.id, d.revision, d.diagnostic, d.deleted_at, d.created_at, s.deployment, p.id, p.revision,
 p.diagnostic, s.effective_from, s.anchor, s.watermark, s.next_instant, s.wake_at, s.candidate, s.held_since, s.can_expire,
 s.held_reason, s.last_admission, s.paused_at, s.passing_until"""
KINDS = "itiTIiitiTiiiIIIIITIII"  #: what they hold, as `guarded` has it
FROM = """FROM schedules s JOIN definitions d ON d.number = s.number JOIN definitions p ON p.number = s.deployment"""


class ScheduleRow(Value):
    """One schedule's state, with what decides whether it may admit."""

    number: int
    id: str
    revision: int
    own_diagnostic: Mapping[str, Json] | None
    deleted_at: datetime | None
    created_at: datetime
    deployment: int
    deployment_id: str
    deployment_revision: int
    deployment_diagnostic: Mapping[str, Json] | None
    effective_from: datetime
    anchor: datetime
    watermark: datetime
    next_instant: datetime | None
    wake_at: datetime | None
    candidate: Candidate | None
    last_admission: datetime | None
    paused_at: datetime | None
    passing_until: datetime | None
    is_readable: bool = True  #: False: all but its name stands for nothing, and it is blocked

    @property
    def floor(self) -> datetime:
        """Everything up to here is consumed or never was this schedule's (contract 5.1)."""
        return max(self.watermark, self.effective_from)

    @property
    def diagnostic(self) -> Mapping[str, Json] | None:
        """Why it is blocked, if it is: its own file, or that of its deployment (contract 3.5)."""
        if self.own_diagnostic is None and self.deployment_diagnostic is not None:
            return {**self.deployment_diagnostic, "deployment_id": self.deployment_id}
        return self.own_diagnostic

    @property
    def is_admitting(self) -> bool:
        """Tell whether it is active and unblocked."""
        return self.deleted_at is None and self.paused_at is None and self.diagnostic is None


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else to_micros(instant)


def row_of(values: tuple[Any, ...]) -> ScheduleRow:
    """Given its columns, return a schedule's state. One that cannot be read is blocked, whatever its file says (7.4).

    Raise UnreadableRow for one without an id.
    """
    try:
        return _sound(values)
    except UnreadableRow as error:
        number, name, revision = values[:3]
        if not isinstance(number, int) or not isinstance(name, str):
            raise
        nothing = from_micros(0)
        return ScheduleRow(
            number=number,
            id=name,
            revision=revision if isinstance(revision, int) else 0,
            own_diagnostic=contradiction_of(error),
            deleted_at=None if values[4] is None else nothing,
            created_at=nothing,
            deployment=values[6] if isinstance(values[6], int) else 0,
            deployment_id=str(values[7]),
            deployment_revision=0,
            deployment_diagnostic=None,
            effective_from=nothing,
            anchor=nothing,
            watermark=nothing,
            next_instant=None,
            wake_at=None,
            candidate=None,
            last_admission=None,
            paused_at=None,
            passing_until=None,
            is_readable=False,
        )


@guarded("schedules", COLUMNS, KINDS, ["number"])
def _sound(values: tuple[Any, ...]) -> ScheduleRow:
    (number, name, revision, diagnostic, deleted_at, created_at, deployment, deployment_id, deployment_revision,
     deployment_diagnostic, effective_from, anchor, watermark, next_instant, wake_at, candidate, held_since, can_expire,
     held_reason, last_admission, paused_at, passing_until) = values  # fmt: skip
    held = None
    if candidate is not None:
        held = Candidate(
            instant=from_micros(candidate),
            held_since=from_micros(held_since),
            can_expire=bool(can_expire),
            reason=held_for(held_reason),
        )
    return ScheduleRow(
        number=number,
        id=name,
        revision=revision,
        own_diagnostic=json_object(diagnostic, "diagnostic"),
        deleted_at=_instant(deleted_at),
        created_at=from_micros(created_at),
        deployment=deployment,
        deployment_id=deployment_id,
        deployment_revision=deployment_revision,
        deployment_diagnostic=json_object(deployment_diagnostic, "the deployment's diagnostic"),
        effective_from=from_micros(effective_from),
        anchor=from_micros(anchor),
        watermark=from_micros(watermark),
        next_instant=_instant(next_instant),
        wake_at=_instant(wake_at),
        candidate=held,
        last_admission=_instant(last_admission),
        paused_at=_instant(paused_at),
        passing_until=_instant(passing_until),
    )


def held_for(text: str | None) -> Mapping[str, Json]:
    """Given the column of it, return what a candidate waits for. Raise ValueError where it says nothing."""
    reason = json_object(text, "held_reason")
    if reason is None or not isinstance(reason.get("code"), str):
        raise ValueError("a candidate is held, and not what for")
    return reason


def _rows(found: Iterable[tuple[Any, ...]]) -> Iterator[ScheduleRow]:
    """Give the rows of a query; one that has not even an id is left to `evidence`."""
    for values in found:
        with contextlib.suppress(UnreadableRow):
            yield row_of(values)


def find(connection: sqlite3.Connection, number: int) -> ScheduleRow | None:
    """Return one schedule's state, or None for a definition that never was valid."""
    found = connection.execute(f"SELECT {COLUMNS} {FROM} WHERE s.number = ?", (number,)).fetchone()
    return row_of(found) if found else None


def find_many(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[ScheduleRow]:
    """Return the states of several schedules, in the order given."""
    rows = (find(connection, number) for number in numbers)
    return [row for row in rows if row is not None]


def insert(
    connection: sqlite3.Connection,
    number: int,
    *,
    deployment: int,
    now: datetime,
    anchor: datetime,
    next_instant: datetime | None,
) -> None:
    """Enter a new schedule, whose calendar begins at `now`."""
    connection.execute(
        "INSERT INTO schedules (number, deployment, effective_from, anchor, watermark, next_instant, wake_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, deployment, to_micros(now), to_micros(anchor), to_micros(now), _micros(next_instant), _micros(next_instant)),
    )


def insert_all(connection: sqlite3.Connection, new: Iterable[tuple[int, int, datetime | None]], *, now: datetime) -> None:
    """Enter new schedules whose calendars begin at `now`: number, deployment, next instant."""
    begin, anchor = to_micros(now), to_micros(now.replace(microsecond=0))
    connection.executemany(
        "INSERT INTO schedules (number, deployment, effective_from, anchor, watermark, next_instant, wake_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, deployment, begin, anchor, begin, _micros(coming), _micros(coming)) for number, deployment, coming in new],
    )


def next_wake(connection: sqlite3.Connection) -> datetime | None:
    """Return when the first schedule needs attention."""
    found = connection.execute("SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL").fetchone()
    return _instant(found[0])


def count_waking(connection: sqlite3.Connection, until: datetime, most: int) -> int:
    """Return how many schedules need attention by then; `most` where they are as many or more."""
    found = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM schedules WHERE wake_at IS NOT NULL AND wake_at <= ? LIMIT ?)",
        (to_micros(until), most),
    )
    return int(found.fetchone()[0])


def next_due(connection: sqlite3.Connection) -> tuple[str, datetime] | None:
    """Return the id and instant of the schedule that comes due first."""
    found = connection.execute(
        "SELECT d.id, s.next_instant FROM schedules s JOIN definitions d ON d.number = s.number"
        " WHERE s.wake_at IS NOT NULL ORDER BY s.wake_at LIMIT 1"
    ).fetchone()
    return (found[0], from_micros(found[1])) if found and found[1] is not None else None


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many schedules there are that are not deleted: `total`, and of them `paused` and `blocked`."""
    total = connection.execute("SELECT count(*) FROM definitions WHERE +kind = 1 AND deleted_at IS NULL").fetchone()[0]
    paused = connection.execute(
        "SELECT count(*) FROM schedules s JOIN definitions d ON d.number = s.number"
        " WHERE s.paused_at IS NOT NULL AND d.deleted_at IS NULL"
    ).fetchone()[0]
    blocked, both = connection.execute(f"SELECT count(*), total(s.paused_at IS NOT NULL) {_BLOCKED}").fetchone()
    never_valid = connection.execute(
        "SELECT count(*) FROM definitions INDEXED BY definitions_blocked"
        " WHERE diagnostic IS NOT NULL AND kind = 1 AND revision = 0 AND deleted_at IS NULL"
    ).fetchone()[0]
    return {"total": total, "paused": paused - int(both), "blocked": blocked + never_valid}


_BLOCKED = f"""{FROM} WHERE d.deleted_at IS NULL AND (
 s.number IN (SELECT number FROM definitions WHERE diagnostic IS NOT NULL AND kind = 1)
 OR s.deployment IN (SELECT number FROM definitions WHERE diagnostic IS NOT NULL AND kind = 0))"""


def blocked(connection: sqlite3.Connection) -> list[ScheduleRow]:
    """Return the schedules that are blocked, by their own definition or their deployment's, by id; no newcomers."""
    return list(_rows(connection.execute(f"SELECT {COLUMNS} {_BLOCKED} ORDER BY d.id")))


def with_candidate(connection: sqlite3.Connection, numbers: Sequence[int] | None) -> list[ScheduleRow]:
    """Return the schedules that hold a candidate, by id; all of them, or those of the given numbers."""
    if numbers is not None:
        rows = [row for row in find_many(connection, numbers) if row.candidate is not None]
    else:
        rows = list(_rows(connection.execute(f"SELECT {COLUMNS} {FROM} WHERE s.candidate IS NOT NULL")))
    return sorted(rows, key=lambda row: row.id)


def list_all(connection: sqlite3.Connection) -> Iterator[ScheduleRow]:
    """Give every schedule's state, deleted ones too, by id."""
    yield from _rows(connection.execute(f"SELECT {COLUMNS} {FROM} ORDER BY d.id"))


def of_deployment(connection: sqlite3.Connection, deployment: int) -> list[tuple[int, str]]:
    """Return number and id of the undeleted schedules that name a deployment."""
    return connection.execute(
        "SELECT s.number, d.id FROM schedules s JOIN definitions d ON d.number = s.number"
        " WHERE s.deployment = ? AND d.deleted_at IS NULL ORDER BY d.id",
        (deployment,),
    ).fetchall()


def ahead_of(connection: sqlite3.Connection, now: datetime) -> list[ScheduleRow]:
    """Return the undeleted schedules whose floor lies after `now`: the clock stepped back (contract 5.14)."""
    found = connection.execute(
        f"SELECT {COLUMNS} {FROM} WHERE d.deleted_at IS NULL AND max(s.watermark, s.effective_from) > ?", (to_micros(now),)
    )
    return list(_rows(found))


def advance(connection: sqlite3.Connection, number: int, *, watermark: datetime, last_admission: datetime | None) -> None:
    """Move the watermark, and the time of the last admission where there was one."""
    connection.execute(
        "UPDATE schedules SET watermark = ?, last_admission = coalesce(?, last_admission) WHERE number = ?",
        (to_micros(watermark), _micros(last_admission), number),
    )


def hold(connection: sqlite3.Connection, number: int, candidate: Candidate | None) -> None:
    """Write the candidate, or that there is none."""
    hold_all(connection, [(number, candidate)])


def hold_all(connection: sqlite3.Connection, held: Iterable[tuple[int, Candidate | None]]) -> None:
    """Write the candidates of schedules, or that they have none."""
    connection.executemany(
        "UPDATE schedules SET candidate = ?, held_since = ?, can_expire = ?, waits_for = ?, held_reason = ? WHERE number = ?",
        [(*_NOTHING_HELD, number) if candidate is None else (*_held(candidate), number) for number, candidate in held],
    )


_NOTHING_HELD = (None, None, None, None, None)


def _held(candidate: Candidate) -> tuple[int, int, bool, int, str]:
    waits_for = WAITS_FOR_CAPACITY if candidate.reason["code"] == "capacity" else WAITS_FOR_OVERLAP
    reason = dumps(candidate.reason)
    return to_micros(candidate.instant), to_micros(candidate.held_since), candidate.can_expire, waits_for, reason


def set_wake(connection: sqlite3.Connection, number: int, *, next_instant: datetime | None, wake_at: datetime | None) -> None:
    """Write what comes next, and when the schedule needs attention."""
    connection.execute(
        "UPDATE schedules SET next_instant = ?, wake_at = ? WHERE number = ?", (_micros(next_instant), _micros(wake_at), number)
    )


def need_attention(connection: sqlite3.Connection, numbers: Iterable[int], at: datetime) -> None:
    """Ask for a look at these schedules at the next round: a run of theirs ended, a block was lifted."""
    connection.executemany(
        "UPDATE schedules SET wake_at = min(coalesce(wake_at, ?), ?) WHERE number = ? AND paused_at IS NULL",
        [(to_micros(at), to_micros(at), number) for number in numbers],
    )


def slot_freed(connection: sqlite3.Connection, number: int, at: datetime) -> None:
    """Ask for a look at a schedule that holds a candidate: a run of it ended. A blocked one is looked at when it no more is."""
    connection.execute(
        "UPDATE schedules SET wake_at = min(coalesce(wake_at, ?), ?) WHERE number = ? AND candidate IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM definitions WHERE number IN (schedules.number, schedules.deployment) AND diagnostic IS NOT NULL)",
        (to_micros(at), to_micros(at), number),
    )


def begin_anew(
    connection: sqlite3.Connection,
    number: int,
    *,
    effective_from: datetime,
    anchor: datetime | None = None,
) -> None:
    """Move `effective_from`, and after a trigger change the anchor."""
    connection.execute(
        "UPDATE schedules SET effective_from = ?, anchor = coalesce(?, anchor) WHERE number = ?",
        (to_micros(effective_from), _micros(anchor), number),
    )


def set_deployment(connection: sqlite3.Connection, number: int, deployment: int) -> None:
    """Point the schedule at another deployment."""
    connection.execute("UPDATE schedules SET deployment = ? WHERE number = ?", (deployment, number))


def reanchor(connection: sqlite3.Connection, number: int, *, now: datetime, passing_until: datetime | None) -> None:
    """Set floor and `effective_from` back to `now`; admitted instants up to `passing_until` pass quietly (contract 5.14)."""
    connection.execute(
        "UPDATE schedules SET watermark = ?, effective_from = ?, passing_until = ? WHERE number = ?",
        (to_micros(now), to_micros(now), _micros(passing_until), number),
    )


def pause(connection: sqlite3.Connection, number: int, *, at: datetime, reason: str | None, actor: str) -> None:
    """Record the begin of a paused span."""
    connection.execute("UPDATE schedules SET paused_at = ? WHERE number = ?", (to_micros(at), number))
    connection.execute(  # a pause that ended in the very microsecond in which it began covers nothing, and gives way
        "INSERT OR REPLACE INTO pauses (schedule, paused_at, reason, actor) VALUES (?, ?, ?, ?)",
        (number, to_micros(at), reason, actor),
    )


def resume(connection: sqlite3.Connection, number: int, *, at: datetime, actor: str) -> None:
    """Record the end of the paused span and begin the calendar anew at `at`."""
    connection.execute(
        "UPDATE pauses SET resumed_at = ?, resumed_by = ? WHERE schedule = ? AND resumed_at IS NULL",
        (to_micros(at), actor, number),
    )
    connection.execute("UPDATE schedules SET paused_at = NULL, effective_from = ? WHERE number = ?", (to_micros(at), number))


def current_pause(connection: sqlite3.Connection, number: int) -> tuple[datetime, str | None, str] | None:
    """Return since when, why and by whom the schedule is paused, if it is."""
    found = connection.execute(
        "SELECT paused_at, reason, actor FROM pauses WHERE schedule = ? AND resumed_at IS NULL ORDER BY paused_at DESC LIMIT 1",
        (number,),
    ).fetchone()
    return (from_micros(found[0]), found[1], found[2]) if found else None


def let_pass(connection: sqlite3.Connection, number: int, until: datetime) -> None:
    """Note that up to `until` instants may come due that have a run already: they pass quietly."""
    connection.execute(
        "UPDATE schedules SET passing_until = max(coalesce(passing_until, ?), ?) WHERE number = ?",
        (to_micros(until), to_micros(until), number),
    )


def clear_passing(connection: sqlite3.Connection, number: int) -> None:
    """Note that no admitted instant can come due again."""
    connection.execute("UPDATE schedules SET passing_until = NULL WHERE number = ?", (number,))


def cut_pauses(connection: sqlite3.Connection, number: int, now: datetime) -> list[tuple[datetime, datetime | None]]:
    """Take back what paused spans have after `now`; return the parts taken; one that lasts has no end (5.14)."""
    found = connection.execute(
        "SELECT paused_at, resumed_at, reason, actor, resumed_by FROM pauses"
        " WHERE schedule = ? AND coalesce(resumed_at, ?) > ?",
        (number, to_micros(now) + 1, to_micros(now)),
    ).fetchall()
    taken: list[tuple[datetime, datetime | None]] = []
    for paused_at, resumed_at, reason, actor, resumed_by in found:
        start = max(paused_at, to_micros(now))
        if resumed_at is not None or paused_at > to_micros(now):
            taken.append((from_micros(start), _instant(resumed_at)))
        connection.execute("DELETE FROM pauses WHERE schedule = ? AND paused_at = ?", (number, paused_at))
        begins = min(paused_at, to_micros(now))
        ends = None if resumed_at is None else to_micros(now)
        if ends is None or begins < ends:
            connection.execute(
                "INSERT OR REPLACE INTO pauses VALUES (?, ?, ?, ?, ?, ?)", (number, begins, ends, reason, actor, resumed_by)
            )
    connection.execute(
        "UPDATE schedules SET paused_at = min(paused_at, ?) WHERE number = ? AND paused_at IS NOT NULL",
        (to_micros(now), number),
    )
    return taken
