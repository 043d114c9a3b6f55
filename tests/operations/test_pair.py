"""Two hosts as a pair: what docs/standby.md says of a failover by the disk itself, and by a store that is behind."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.history import go_on, world_with_history
from tests.support.schedules import at
from tests.support.story import FakeClock, World
from wfctl.clock import as_clock
from wfctl.operations.backup import write_backup
from wfctl.operations.restore import restore
from wfctl.store.disk import Disk

MINUTE = timedelta(minutes=1)


@pytest.fixture
def first(tmp_path: Path) -> World:
    """The first host: three minutes, a backup, two more minutes, and a last run that is at work when the host goes."""
    world = world_with_history(tmp_path / "first", 3)
    world.store.update_schedule(schedule_id="a", expected_revision=1, misfire="latest", lateness="10s")
    with (tmp_path / "backup").open("wb") as target:
        write_backup(world.store.context, target, tmp_path, name="backup", is_compressed=False)
    go_on(world, 2)
    world.keeper.world.script = None
    go_on(world, 1)
    assert list(world.keeper.world.running) == [("run-000006", 1)]
    world.die()
    return world


def _second(root: Path) -> World:
    world = World(root, clock=FakeClock(at("09:08:30")))  # a host of its own: another keeper, which knows nothing
    world.keeper.world.script = lambda request: 0
    return world


def _restored(tmp_path: Path) -> World:
    root = tmp_path / "second"
    world = _second(root)
    with (tmp_path / "backup").open("rb") as source:
        assert restore(root, source, "backup", disk=Disk(), clock=as_clock(world.clock), agree=lambda view: True) is not None
    return world


def _launched(world: World) -> list[str]:
    return [request.environment["WFCTL_OCCURRENCE"][11:16] for request in world.keeper.world.launches]


def test_the_disk_itself_is_as_after_a_power_cut(first: World, tmp_path: Path) -> None:
    shutil.copytree(first.root, tmp_path / "second")
    second = _second(tmp_path / "second")
    go_on(second, 0)
    second.step()
    reasons = {run.run_id: (run.status, run.reason and run.reason["code"]) for run in second.runs()}
    assert reasons["run-000006"] == ("failed", "abandoned"), "it may have had effects, and is not repeated"
    assert _launched(second) == ["09:08"], "misfire = latest catches up with the newest instant alone"
    assert second.store.audit_schedule(schedule_id="a").is_balanced
    second.die()


def test_a_restored_backup_that_was_paused_runs_nothing_of_the_past(first: World, tmp_path: Path) -> None:
    second = _restored(tmp_path)
    second.store.pause_schedule(schedule_id="a", reason="failover")
    second.step()
    second.clock.advance(MINUTE)
    second.step()
    assert _launched(second) == [], "neither what the first host may have run, nor what came due meanwhile"
    second.store.resume_schedule(schedule_id="a")
    second.step()
    assert _launched(second) == []
    go_on(second, 1)
    assert _launched(second) == ["09:10"]
    assert second.store.audit_schedule(schedule_id="a").is_balanced
    second.die()


def test_without_the_pause_latest_runs_the_newest_missed_instant(first: World, tmp_path: Path) -> None:
    second = _restored(tmp_path)
    second.step()
    assert _launched(second) == ["09:08"], "which is why the page says to pause"
    second.die()


def test_the_directories_of_the_first_host_protect_its_ids(first: World, tmp_path: Path) -> None:
    second = _restored(tmp_path)
    for number in (4, 5, 6):
        shutil.copytree(first.root / f"runs/run-{number:06d}", second.root / f"runs/run-{number:06d}", dirs_exist_ok=True)
    go_on(second, 1)
    reasons = {run.run_id: run.reason and run.reason["code"] for run in second.runs()}
    assert [reasons[f"run-{number:06d}"] for number in (4, 5, 6)] == ["ledger-restored"] * 3
    assert min(request.run for request in second.keeper.world.launches) == "run-000007"
    second.die()
