"""A start asks nothing of each schedule in Python: SQLite says of nearly all that nothing is wrong, and nothing has changed."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.schedules import cron
from tests.support.story import SETTINGS, FakeService, World
from wfctl.operations import reconcile
from wfctl.operations.store import init_store
from wfctl.supervisor.desk import status_of

FEW, MANY = 20, 220
TEXT = 'format = 1\ndeployment = "d"\n\n[trigger]\nkind = "cron"\nexpression = "{minute} 3 * * *"\n'


def crowd(root: Path, count: int) -> World:
    """A store with that many schedules, each with some history, two paused, and nothing else to be done at a start."""
    init_store(root).close()
    world = World(root)
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    world.store.create_schedule(schedule_id="often", deployment_id="d", trigger=cron("* * * * *"))
    for number in range(count):
        path = root / "schedules" / f"s{number:03d}.toml"
        path.write_text(TEXT.format(minute=number % 60))
        path.chmod(0o600)
    reconcile.everything(world.store.context)
    for number in range(2):
        world.store.pause_schedule(schedule_id=f"s{number:03d}")
    world.step()
    for _ in range(3):
        world.clock.advance(timedelta(minutes=1))
        world.step()
        world.end()
        world.step()
    world.store.pause_schedule(schedule_id="often")
    reconcile.everything(world.store.context)
    world.stop()
    return world


def calls_of_a_start(world: World) -> Counter[str]:
    """Return how often each function of Python is called from taking the lock until it could say how it is."""
    service = FakeService(world.store, SETTINGS)
    service.fake = world.keeper
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        service.open()
        view = status_of(service)
    finally:
        sys.setprofile(None)
    assert sum(view.schedules.values()) > FEW and not view.problems and not view.blocked
    service.stop()
    service.close()
    return calls


def test_the_work_of_a_start_does_not_grow_with_the_schedules(tmp_path: Path) -> None:
    found = []
    for count in (FEW, MANY):
        world = crowd(tmp_path / str(count), count)
        calls_of_a_start(world)  # loads what is loaded once
        found.append(calls_of_a_start(world))
        world.die()
    few, many = found
    grown = {name: (few[name], calls) for name, calls in many.items() if calls >= few[name] + (MANY - FEW) // 2}
    assert [name.rpartition(":")[2] for name in grown] == ["_digest_of"], "only SQLite's own question for a digest"
