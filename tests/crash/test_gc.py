"""Die at the n-th durable write of `store gc`, n = 1, 2, 3 … until it gets through; what goes on afterwards keeps the laws.

Directories are set aside before the ledger forgets their runs, and removed after it (contract 2.8, 6.1, 10).
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.history import go_on, world_with_history
from tests.support.story import World
from wfctl.operations.store import open_store
from wfctl.store.disk import Disk

KEPT = 3


def dies(world: World, budget: int) -> bool:
    """Let `store gc` run in a process that dies after so many primitives; return whether it did."""
    store = open_store(world.root, clock=world.clock, disk=CrashingDisk(budget))
    try:
        store.collect_garbage(keep_runs=KEPT)
    except SimulatedCrash:
        return True
    finally:
        store.context.ledger.close()
    return False


def test_laws_hold_after_a_crash_at_every_write_of_gc(tmp_path: Path) -> None:
    template = tmp_path / "template"
    world_with_history(template, 6, schedules=("a", "b")).die()
    for budget in itertools.count():
        root = tmp_path / str(budget)
        shutil.copytree(template, root)
        world = World(root)
        world.keeper.world.script = lambda request: 0
        world.clock.set(world.clock.now().replace(minute=6))
        has_died = dies(world, budget)
        assert_laws(world, budget)
        world.die()
        world.disk = Disk()
        go_on(world, 1)  # a new supervisor goes on with what is left
        world.store.collect_garbage(keep_runs=KEPT)
        assert_laws(world, budget)
        for name in ("a", "b"):
            assert [row.instant.minute for row in world.occurrences(name)] == [5, 6, 7], f"cut {budget}"
        assert {path.name for path in (root / "runs").iterdir()} == {run.run_id for run in world.runs()}, f"cut {budget}"
        world.die()
        shutil.rmtree(root)
        if not has_died:
            assert budget > 10, "it hardly writes"
            return


def assert_laws(world: World, budget: int) -> None:
    runs = {run.run_id: run for run in world.runs()}
    known = {path.name for path in (world.root / "runs").glob("run-*")}
    assert known <= set(runs), f"cut {budget}: directories that the ledger does not know"
    assert all(run.reason is None for run in runs.values()), f"cut {budget}: a run came back as something else"
    for name in ("a", "b"):
        rows = world.occurrences(name)
        assert [row.instant for row in rows][-KEPT:] == sorted(row.instant for row in rows)[-KEPT:]
        assert {row.run_id for row in rows} == {run.run_id for run in runs.values() if run.schedule_id == name}, f"cut {budget}"
        assert {row.run_id for row in rows[-KEPT:]} <= known, f"cut {budget}: what is kept has lost its directory"
        assert world.store.audit_schedule(schedule_id=name).is_balanced, f"cut {budget}"


@pytest.mark.parametrize("what", ["aside", "in place"])
def test_what_a_crash_left_goes_with_the_next_one(tmp_path: Path, what: str) -> None:
    world = world_with_history(tmp_path / "store", 4)
    directory = world.root / "runs" / "run-000001"
    if what == "aside":
        directory.rename(directory.with_name(".gone.run-000001"))
    else:
        shutil.rmtree(directory)
    world.store.collect_garbage(keep_runs=2)
    assert {path.name for path in (world.root / "runs").iterdir()} == {"run-000003", "run-000004"}
    assert [run.run_id for run in world.runs()] == ["run-000003", "run-000004"]
    world.die()
