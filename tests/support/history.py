"""A store with a history that was made up in no time: for what reads or prunes much of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.story import FakeClock, World
from wfctl.operations.store import init_store

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
_EACH = {MINUTE: "* * * * *", HOUR: "0 * * * *"}


def world_with_history(
    root: Path, times: int, *, schedules: tuple[str, ...] = ("a",), each: timedelta = MINUTE, clock: FakeClock | None = None
) -> World:
    """Return a store whose schedules came due so many times, each minute or each hour, each run completed at once."""
    init_store(root).close()
    world = World(root, clock=clock)
    world.keeper.world.script = lambda request: 0
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    trigger = {"kind": "cron", "expression": _EACH[each]}
    for name in schedules:
        world.store.create_schedule(schedule_id=name, deployment_id="d", trigger=trigger)
    world.step()
    go_on(world, times, each)
    return world


def go_on(world: World, times: int, each: timedelta = MINUTE) -> None:
    """Let that pass so many times, each with its runs."""
    for _ in range(times):
        world.clock.advance(each)
        world.step()
        world.step()
