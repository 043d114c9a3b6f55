"""A directory that was made ahead and is gone when the keeper wants it: nothing was launched, and the run is (6.3, 6.10)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.schedules import add, cron
from tests.support.story import World
from wfctl.core.model import Status
from wfctl.keeper.protocol import RefusedAt
from wfctl.operations.store import init_store


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A supervisor whose keeper finds no directory, a minute before the next instant of one schedule."""
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    add(world.store, "s", cron("* * * * *"), deployment_id="d")
    world.step()
    world.keeper.refuse("/bin/true", errno.ENOENT, RefusedAt.RECORD)
    world.clock.advance(timedelta(minutes=1))
    yield world
    world.stop()
    world.die()


def test_6_10_the_run_is_launched_in_one_of_its_own(world: World) -> None:
    world.step()
    world.keeper.world.refusals.clear()
    world.step()
    world.step()
    assert [(each.run, each.k) for each in world.keeper.world.launches] == [("run-000001", 1), ("run-000001", 2)]
    assert world.store.inspect_run(run_id="run-000001").status == Status.RUNNING


def test_a_second_execution_whose_directory_is_gone_is_refused_for_good(world: World) -> None:
    for _ in range(6):
        world.step()
    assert [each.k for each in world.keeper.world.launches] == [1, 2]
    assert world.store.inspect_run(run_id="run-000001").status == Status.FAILED
