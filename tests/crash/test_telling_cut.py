"""Die at every durable write of a story of failures and recoveries: each change of health is told once (contract 7.8).

The keeper outlives each crash, so even what was being told during it is known to have been told.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.schedules import add
from tests.support.story import World
from wfctl import init_store
from wfctl.errors import Exists
from wfctl.keeper.protocol import LaunchRequest
from wfctl.store.disk import Disk
from wfctl.store.ledger import health

Act = Callable[[World], object]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: no power is cut here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="wfctl-test-") as name:
        yield Path(name)


def _create(world: World) -> None:
    try:
        add(world.store, "a", notify={"command": ["/bin/true"]})
    except Exists:
        pass


def _minute(world: World) -> None:
    world.clock.advance(timedelta(minutes=1))


def _end(exit_status: int) -> Act:
    def act(world: World) -> None:
        for key in [key for key in world.keeper.running if key[0].startswith("run-")]:
            world.keeper.end(*key, exit_status=exit_status)
        world.step()

    return act


_ROUND: list[Act] = [World.step, World.step]
STORY: list[Act] = [_create, World.step]
for _status in (0, 1, 1, 0):
    STORY += [_minute, *_ROUND, _end(_status), *_ROUND]


def _play(root: Path, budget: int) -> tuple[World, list[tuple[str, str]], bool]:
    """Play the story, dying once; return the world, what was told, and whether it died."""
    told: list[tuple[str, str]] = []
    init_store(root).close()
    world = World(root)
    world.disk = CrashingDisk(budget)
    has_died = False

    def run(request: LaunchRequest) -> int | None:
        if not request.run.startswith("notice-"):
            return None
        assert request.stdin is not None
        event = json.loads(Path(request.stdin).read_text())
        told.append((event["event"], event["run_id"]))
        return 0

    world.keeper.world.script = run
    for act in STORY:
        try:
            act(world)
        except SimulatedCrash:
            has_died = True
            world.die()
            world.disk = Disk()
            act(world) if act is not _minute else None
    for _ in range(4):
        world.step()
    return world, told, has_died


def _expected(world: World) -> list[tuple[str, str]]:
    """What the history that there is asks to be told."""
    told, is_failing = [], False
    for row in world.occurrences("a"):
        assert row.run_id is not None and row.status in ("completed", "failed"), row
        if row.status == "failed" and not is_failing:
            told.append(("failed", row.run_id))
        elif row.status == "completed" and is_failing:
            told.append(("recovered", row.run_id))
        is_failing = row.status == "failed"
    return told


def test_7_8_each_change_of_health_is_told_once_wherever_it_died(tmp_path: Path) -> None:
    for budget in itertools.count():
        world, told, has_died = _play(tmp_path / str(budget), budget)
        assert told == _expected(world), f"died at write {budget}"
        assert health.notices(world.store.context.ledger.connection) == []
        assert not list((tmp_path / str(budget) / "notices").iterdir())
        world.die()
        if not has_died:
            assert told == [("failed", "run-000002"), ("recovered", "run-000004")]
            return
