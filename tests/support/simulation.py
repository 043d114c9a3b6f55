"""From a seed to a story to a result, on the real ledger, with a fake clock and a fake keeper. Same seed, same ledger."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.story import FakeClock, World
from wfctl.errors import WfctlError
from wfctl.operations.store import init_store

#: What is true of the machine and not of the story: it is left out when two ledgers are compared.
_OF_THE_MACHINE = {"mtime_ns", "ctime_ns", "size", "inode", "mark", "pid", "host"}
NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Act:
    """One thing that happens: its name and the numbers that decide how."""

    name: str
    first: float
    second: float

    def __str__(self) -> str:
        return f"{self.name}({self.first:.3f}, {self.second:.3f})"


def random_story(seed: int, length: int = 40) -> list[Act]:
    """Given a seed, return what happens."""
    chance = random.Random(seed)
    names = list(ACTS)
    weights = [8 if name in ("wait", "end") else 1 for name in names]
    return [Act(chance.choices(names, weights)[0], chance.random(), chance.random()) for _ in range(length)]


def play(root: Path, story: Sequence[Act]) -> World:
    """Play a story in a fresh store below `root` and return the world as it then is, with everything at work ended."""
    init_store(root, clock=FakeClock()).close()
    world = World(root)
    world.store.create_deployment(deployment_id="one", command=["/bin/true"])
    two = [{"name": name, "command": ["/bin/true"], "retries": 1, "retry_delay": "5s"} for name in ("first", "second")]
    world.store.create_deployment(deployment_id="two", steps=two)
    triggers: list[dict[str, Any]] = [
        {"kind": "cron", "expression": "* * * * *"},
        {"kind": "cron", "expression": "*/5 * * * *", "timezone": "Europe/Budapest"},
        {"kind": "interval", "every": "90s"},
    ]
    for name, trigger, deployment in zip(NAMES, triggers, ("one", "two", "one"), strict=True):
        world.store.create_schedule(schedule_id=name, deployment_id=deployment, trigger=trigger)
    world.step()
    for act in story:
        try:
            ACTS[act.name](world, act)
        except WfctlError:
            pass  # refused: a deleted schedule, a run that is over
    for _ in range(8):  # steps and retries follow on each other
        world.end()
        world.clock.advance(timedelta(seconds=11))
        world.step()
    for name in NAMES:
        if world.store.get_schedule(schedule_id=name).state == "active":
            world.store.pause_schedule(schedule_id=name)
    for _ in range(8):
        world.end()
        world.clock.advance(timedelta(seconds=11))
        world.step()
    return world


def _name(act: Act) -> str:
    return NAMES[int(act.first * len(NAMES))]


def _wait(world: World, act: Act) -> None:
    world.clock.advance(timedelta(seconds=int(1 + act.first * 150)))
    world.step()


def _sleep(world: World, act: Act) -> None:
    world.clock.advance(timedelta(minutes=int(1 + act.first * 400)))
    world.step()


def _end(world: World, act: Act) -> None:
    running = sorted(world.keeper.world.running)
    if running:
        run, k = running[int(act.first * len(running))]
        status = 0 if act.second < 0.7 else int(act.second * 10)
        world.keeper.end(run, k, **({"signal": 9} if act.second > 0.95 else {"exit_status": status}))
    world.step()


def _kill(world: World, act: Act) -> None:
    world.die()
    world.clock.advance(timedelta(seconds=int(act.first * 200)))
    world.step()


def _kill_keeper(world: World, act: Act) -> None:
    if act.first < 0.3:
        world.keeper.world.running.clear()
        world.keeper.die()
        world.step()
        world.keeper = type(world.keeper)(now=world.clock.now)
        world.die()
    world.step()


def _step_clock(world: World, act: Act) -> None:
    world.clock.set(world.clock.now() + timedelta(minutes=int((act.first - 0.5) * 900)))
    world.step()


def _pause(world: World, act: Act) -> None:
    world.store.pause_schedule(schedule_id=_name(act), reason="story")


def _resume(world: World, act: Act) -> None:
    world.store.resume_schedule(schedule_id=_name(act))


def _policy(world: World, act: Act) -> None:
    overlap = ("skip", "queue", "parallel")[int(act.second * 3)]
    limit = {"max_active_runs": 2} if overlap == "parallel" else {}
    misfire = "latest" if act.second * 30 % 2 < 1 else "skip"
    _update(world, _name(act), overlap=overlap, misfire=misfire, **limit)


def _trigger(world: World, act: Act) -> None:
    _update(world, _name(act), trigger={"kind": "interval", "every": f"{30 + int(act.second * 300)}s"})


def _hand_edit(world: World, act: Act) -> None:
    path = world.root / "schedules" / f"{_name(act)}.toml"
    if not path.exists():
        return  # it was deleted
    text = path.read_text()
    path.write_text(text if act.second < 0.5 else f"{text}\nunknown = 1\n" if act.second > 0.8 else f"# by hand\n{text}")
    world.store.list_schedules()


def _mend(world: World, act: Act) -> None:
    path = world.root / "schedules" / f"{_name(act)}.toml"
    if path.exists():
        path.write_text(path.read_text().replace("\nunknown = 1\n", "\n"))
    world.store.list_schedules()


def _cancel(world: World, act: Act) -> None:
    runs = world.store.list_runs(status="admitted,running").items
    if runs:
        world.step()
        world.store.cancel_run(run_id=runs[int(act.first * len(runs))].run_id)
    world.step()


def _by_hand(world: World, act: Act) -> None:
    world.step()
    world.store.start_run(deployment_id="one")


def _delete(world: World, act: Act) -> None:
    if act.second > 0.8:
        world.store.delete_schedule(schedule_id=_name(act))


def _update(world: World, name: str, **fields: Any) -> None:
    view = world.store.get_schedule(schedule_id=name)
    world.store.update_schedule(schedule_id=name, expected_revision=view.revision or 0, **fields)


ACTS: dict[str, Callable[[World, Act], None]] = {
    "wait": _wait,
    "end": _end,
    "sleep": _sleep,
    "kill": _kill,
    "kill_keeper": _kill_keeper,
    "step_clock": _step_clock,
    "pause": _pause,
    "resume": _resume,
    "policy": _policy,
    "trigger": _trigger,
    "hand_edit": _hand_edit,
    "mend": _mend,
    "cancel": _cancel,
    "by_hand": _by_hand,
    "delete": _delete,
}


def dump(path: Path) -> list[str]:
    """Return every row of a ledger as text, less what is true of the machine."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        lines = []
        for table in tables:
            rows = [
                {key: row[key] for key in row.keys() if key not in _OF_THE_MACHINE}  # noqa: SIM118 - a Row iterates values
                for row in connection.execute(f"SELECT * FROM {table}")
            ]
            lines += sorted(f"{table} {row}" for row in rows if row.get("key") != "store_id")
        return lines
    finally:
        connection.close()


def shrink(story: Sequence[Act], fails: Callable[[Sequence[Act]], bool]) -> list[Act]:
    """Given a story that fails, return a shorter one that fails too: parts are left out as long as it does."""
    left = list(story)
    size = max(1, len(left) // 2)
    while size:
        at = 0
        while at < len(left):
            shorter = left[:at] + left[at + size :]
            if fails(shorter):
                left = shorter
            else:
                at += size
        size //= 2
    return left
