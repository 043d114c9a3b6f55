"""Random stories of one schedule, which must balance, and damage done to its records, which must be found (contract 5.15)."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.schedules import add, at
from tests.support.story import World
from wfctl.errors import WfctlError
from wfctl.operations.store import Store, init_store
from wfctl.operations.views import AuditView
from wfctl.store.disk import Disk
from wfctl.store.ledger.numbers import STATUS_OF

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

TRIGGERS: tuple[dict[str, str], ...] = (
    {"kind": "cron", "expression": "* * * * *"},
    {"kind": "cron", "expression": "*/7 * * * *", "timezone": "Europe/Budapest"},
    {"kind": "cron", "expression": "5,35 * * * *"},
    {"kind": "cron", "expression": "0 */2 * * *", "timezone": "America/New_York"},
    {"kind": "interval", "every": "1m"},
    {"kind": "interval", "every": "7m30s"},
    {"kind": "interval", "every": "2h"},
)
WHILES = (MINUTE, MINUTE, 2 * MINUTE, timedelta(seconds=20), 10 * MINUTE, HOUR, 5 * HOUR, 3 * DAY)
STEPS_BACK = (timedelta(seconds=90), 20 * MINUTE, 3 * HOUR, 4 * HOUR, 9 * HOUR, 2 * DAY)


class Story:
    """One schedule `s` and what happens to it, drawn from a seed."""

    def __init__(self, root: Path, seed: int, *, clock_steps: bool = True) -> None:
        init_store(root).close()
        self.world = World(root)
        self.chance = random.Random(seed)
        self.told: list[str] = []
        self.clock_steps = clock_steps
        self.world.clock.set(at("12:00:30"))
        add(self.world.store, "s", self._some_trigger(), paused=self.chance.random() < 0.1, **self._some_policy())

    def _some_trigger(self) -> dict[str, str]:
        if self.chance.random() < 0.12:
            coming = self.world.clock.now() + self.chance.choice(WHILES)
            return {"kind": "oneshot", "at": coming.isoformat()}
        return dict(self.chance.choice(TRIGGERS))

    def _some_policy(self) -> dict[str, Any]:
        overlap = self.chance.choice(("skip", "queue", "parallel"))
        more = {"max_active_runs": 2} if overlap == "parallel" else {}
        return {
            "overlap": overlap,
            "misfire": self.chance.choice(("skip", "latest")),
            "lateness": self.chance.choice(("10s", "60s", "15m")),
            **more,
        }

    def play(self, acts: int, *, crashes: bool = False) -> None:
        """Let so many things happen."""
        for _ in range(acts):
            name = self.chance.choices(
                ("wait", "step", "end", "pause", "resume", "policy", "trigger", "back", "down", "break", "mend", "hold"),
                weights=(14, 10, 6, 2, 3, 2, 2, 2 if self.clock_steps else 0, 2, 1, 2, 2),
            )[0]
            if crashes and self.chance.random() < 0.15:
                self.world.disk = CrashingDisk(self.chance.randint(1, 12))
                self.world.die()
            self.told.append(name)
            try:
                getattr(self, f"_{name}")()
            except SimulatedCrash:
                self.told[-1] += " †"
                self.world.die()
            except WfctlError as error:
                self.told[-1] += f" ({error.code})"
            self.world.disk = self.world.disk if crashes and self.chance.random() < 0.5 else Disk()
        self.world.die()
        self.world.disk = Disk()

    def _wait(self) -> None:
        self.world.clock.advance(self.chance.choice(WHILES))
        self.told[-1] += f" until {self.world.clock.now():%d %H:%M:%S}"
        if self.chance.random() < 0.8:
            self.world.step()

    def _step(self) -> None:
        now = self.world.clock.now()
        self.world.clock.advance(now.replace(second=0, microsecond=0) + MINUTE - now)
        self.world.step()

    def _hold(self) -> None:
        """Minute by minute with nothing ending, so that instants overlap and are held."""
        for _ in range(self.chance.randint(1, 6)):
            self._step()

    def _end(self) -> None:
        self.world.step()
        self.world.end(exit_status=self.chance.choice((0, 0, 1)))
        self.world.step()

    def _pause(self) -> None:
        self.world.store.pause_schedule(schedule_id="s")

    def _resume(self) -> None:
        self.world.store.resume_schedule(schedule_id="s")

    def _policy(self) -> None:
        self._change(self._some_policy())

    def _change(self, fields: dict[str, Any]) -> None:
        view = self.world.store.get_schedule(schedule_id="s")
        assert view.revision is not None
        self.world.store.update_schedule(schedule_id="s", expected_revision=view.revision, **fields)

    def _trigger(self) -> None:
        trigger = self._some_trigger()
        self.told[-1] += f" {trigger}"
        self._change({"trigger": trigger})

    def _back(self) -> None:
        self.world.clock.set(self.world.clock.now() - self.chance.choice(STEPS_BACK))
        self.told[-1] += f" to {self.world.clock.now():%d %H:%M:%S}"
        if self.chance.random() < 0.7:
            self.world.step()

    def _down(self) -> None:
        self.world.die()
        self.world.clock.advance(self.chance.choice(WHILES))

    def _break(self) -> None:
        """Let the definition be broken by hand, so that the schedule is blocked."""
        path = self.world.root / "schedules" / "s.toml"
        if "broken" not in path.read_text():
            Disk().write_file(path, path.read_bytes() + b"broken = 1\n")
        self.world.store.get_schedule(schedule_id="s")

    def _mend(self) -> None:
        path = self.world.root / "schedules" / "s.toml"
        Disk().write_file(path, path.read_bytes().replace(b"broken = 1\n", b""))
        self.world.store.get_schedule(schedule_id="s")

    def delete(self) -> None:
        """Retire the schedule."""
        self._mend()
        self.world.store.delete_schedule(schedule_id="s")


# Damage -------------------------------------------------------------------------------------------------------------------

Damage = tuple[str, str, tuple[Any, ...]]  #: what is done in words, and as a statement with its values


def damages(connection: sqlite3.Connection, chance: random.Random) -> Iterator[Damage]:
    """Give single damages that must all be found: to some rows, and to every span."""
    rows = connection.execute("SELECT place, instant, status, span_first FROM occurrences ORDER BY instant").fetchall()
    first, floor = connection.execute(
        "SELECT (SELECT min(recorded_at) FROM revisions WHERE definition = s.number), max(watermark, effective_from)"
        " FROM schedules s"
    ).fetchone()
    for place, instant, status, span_first in [row for row in rows if row[3]] + chance.sample(rows, min(12, len(rows))):
        yield f"row {instant} deleted", "DELETE FROM occurrences WHERE place = ?", (place,)
        for other in STATUS_OF:
            if other != status:
                yield f"status {status} made {other}", "UPDATE occurrences SET status = ? WHERE place = ?", (other, place)
        if span_first is not None and span_first < instant:
            middle = (span_first + instant) // 2
            yield "span begun later", "UPDATE occurrences SET span_first = ? WHERE place = ?", (span_first + 1, place)
            yield "span halved", "UPDATE occurrences SET span_first = ? WHERE place = ?", (middle, place)
            yield "span ended earlier", "UPDATE occurrences SET instant = ? WHERE place = ?", (instant - 1, place)
    taken = {row[1] for row in rows}
    for _ in range(6):
        when = chance.randint(min(first, floor) - 10**9, floor + 10**9)
        if when not in taken:
            yield f"row {when} added", _ADDED, (10**9, when, 3, '{"code":"missed"}')
            yield f"run row {when} added", _ADDED, (10**9, when, 1, None)


_ADDED = """INSERT INTO occurrences (schedule, place, instant, status, revision, recorded_at, reason)
 SELECT number, ?, ?, ?, 1, watermark, ? FROM schedules"""


def cuts(connection: sqlite3.Connection) -> Iterator[Damage]:
    """Give cuts of paused spans; one that takes no instant away need not be found."""
    for paused_at, resumed_at in connection.execute("SELECT paused_at, resumed_at FROM pauses").fetchall():
        yield "pause removed", "DELETE FROM pauses WHERE paused_at = ?", (paused_at,)
        if resumed_at is not None and resumed_at - paused_at > 2:
            middle = (paused_at + resumed_at) // 2
            yield "pause begun later", "UPDATE pauses SET paused_at = ? WHERE paused_at = ?", (middle, paused_at)
            yield "pause ended earlier", "UPDATE pauses SET resumed_at = ? WHERE paused_at = ?", (middle, paused_at)


def after(store: Store, damage: Damage) -> AuditView:
    """Return what an audit says after a damage, which is taken back."""
    connection = store.context.ledger.connection
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(damage[1], damage[2])
        return store.audit_schedule(schedule_id="s")
    finally:
        connection.execute("ROLLBACK")
