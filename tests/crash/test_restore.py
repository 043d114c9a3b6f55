"""Die at the n-th durable step of `store restore`, n = 1, 2, 3 … until it gets through; running it again finishes it.

In between the store is what it was, what it will be, or refused by everybody (contract 2.8, 7.5).
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.history import go_on, world_with_history
from tests.support.story import START, FakeClock, World
from wfctl.clock import as_clock
from wfctl.errors import DamagedStore
from wfctl.operations.backup import write_backup
from wfctl.operations.restore import restore
from wfctl.operations.store import open_store
from wfctl.operations.views import RestoreView
from wfctl.store.disk import Disk

AFTER = START + timedelta(minutes=8)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: no power is cut here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="wfctl-test-") as name:
        yield Path(name)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A store with three runs; its backup; and what it became since: two more runs, another schedule, an edit."""
    world = world_with_history(tmp_path / "store", 3)
    pinned = tmp_path / "pinned"
    pinned.write_text("1")
    world.store.update_deployment(deployment_id="d", expected_revision=1, files={"pinned": world.store.pin_file(pinned)})
    (world.root / "wfctl.toml").write_text("[supervisor]\nmax_concurrent_runs = 2\n")
    path = tmp_path / "backup"
    with path.open("wb") as target:
        write_backup(world.store.context, target, tmp_path, name="backup", is_compressed=False)
    go_on(world, 2)
    world.store.update_schedule(schedule_id="a", expected_revision=1, notes="since")
    world.store.create_schedule(schedule_id="b", deployment_id="d", trigger={"kind": "interval", "every": "1d"})
    world.stop()
    world.die()
    return path


def put_back(path: Path, root: Path, disk: Disk) -> RestoreView:
    with path.open("rb") as source:
        clock = as_clock(FakeClock(AFTER))
        found = restore(root, source, "backup", disk=disk, clock=clock, agree=lambda view: True)
    assert found is not None
    return found


def revision_of(root: Path) -> int | None:
    """The revision at which a store stands; None where nobody may use it."""
    try:
        with open_store(root, clock=FakeClock(AFTER)) as store:
            assert store.verify_store().ok
            return store.get_schedule(schedule_id="a").revision
    except DamagedStore as error:
        assert "wfctl store restore FILE" in error.message
        return None


def test_laws_hold_after_a_crash_at_every_step(backup: Path, tmp_path: Path) -> None:
    seen: set[int | None] = set()
    for budget in itertools.count():
        root = tmp_path / str(budget)
        shutil.copytree(tmp_path / "store", root)
        try:
            put_back(backup, root, CrashingDisk(budget))
            has_died = False
        except SimulatedCrash:
            has_died = True
        seen.add(revision_of(root))
        view = put_back(backup, root, Disk())
        assert revision_of(root) == 1, f"cut {budget}"
        assert not (root / "restoring").exists()
        assert not (root / ".restore.tmp").exists()
        assert view.kept is not None
        kept = sorted(root.glob("before-restore-*"))
        assert (kept[0] / "schedules" / "b.toml").exists(), f"cut {budget}: what was there is lost"
        with_ledger = [path for path in kept if (path / "ledger.db").exists()]
        assert with_ledger == kept, f"cut {budget}: {kept}"
        assert_goes_on(root, budget)
        shutil.rmtree(root)
        if not has_died:
            assert budget > 25, "it hardly writes"
            break
    assert seen == {1, 2, None}, "before, after, and in between"


def assert_goes_on(root: Path, budget: int) -> None:
    world = World(root, clock=FakeClock(AFTER))
    world.keeper.world.script = lambda request: 0
    go_on(world, 2)
    runs = {run.run_id: run.reason and run.reason["code"] for run in world.runs()}
    old = [f"run-{number:06d}" for number in (1, 2, 3)]
    assert {name: runs[name] for name in old} == dict.fromkeys(old), f"cut {budget}"
    assert (runs["run-000004"], runs["run-000005"]) == ("ledger-restored", "ledger-restored"), f"cut {budget}"
    launched = {request.run for request in world.keeper.world.launches}
    assert launched and min(launched) == "run-000006", f"cut {budget}: {launched}"
    assert world.store.audit_schedule(schedule_id="a").is_balanced, f"cut {budget}"
    assert world.store.verify_store(deep=True).ok, f"cut {budget}"
    assert (root / "wfctl.toml").exists()
    world.stop()
    world.die()


def test_a_new_place_is_finished_by_running_it_again(backup: Path, tmp_path: Path) -> None:
    for budget in itertools.count():
        root = tmp_path / "new" / str(budget)
        try:
            put_back(backup, root, CrashingDisk(budget))
            has_died = False
        except SimulatedCrash:
            has_died = True
        put_back(backup, root, Disk())
        with open_store(root, clock=FakeClock(AFTER)) as store:
            assert store.verify_store(deep=True).ok, f"cut {budget}"
            assert len(store.list_runs().items) == 3
        assert not (root / ".restore.tmp").exists()
        shutil.rmtree(root)
        if not has_died:
            assert budget > 15
            return


def test_another_backup_finishes_the_first_and_goes_on_with_its_own(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    world = World(tmp_path / "store", clock=FakeClock(AFTER))
    with other.open("wb") as target:
        write_backup(world.store.context, target, tmp_path, name="other", is_compressed=True)
    world.die()
    disk = CrashingDisk(10_000)
    shutil.copytree(tmp_path / "store", tmp_path / "counted")
    put_back(backup, tmp_path / "counted", disk)
    begun = disk.seen.index("sync-all") + 12  # well after the marker
    with pytest.raises(SimulatedCrash):
        put_back(backup, tmp_path / "store", CrashingDisk(begun))
    assert revision_of(tmp_path / "store") is None
    broken = tmp_path / "broken"
    broken.write_bytes(b"no backup")
    put_back(other, tmp_path / "store", Disk())
    assert revision_of(tmp_path / "store") == 2
    assert len(list((tmp_path / "store").glob("before-restore-*"))) == 2


def test_a_file_that_is_no_backup_does_not_keep_it_from_being_finished(backup: Path, tmp_path: Path) -> None:
    disk = CrashingDisk(10_000)
    shutil.copytree(tmp_path / "store", tmp_path / "counted")
    put_back(backup, tmp_path / "counted", disk)
    with pytest.raises(SimulatedCrash):
        put_back(backup, tmp_path / "store", CrashingDisk(disk.seen.index("sync-all") + 12))
    (tmp_path / "broken").write_bytes(b"no backup")
    with pytest.raises(DamagedStore, match="the restore that was cut short is finished"):
        put_back(tmp_path / "broken", tmp_path / "store", Disk())
    assert revision_of(tmp_path / "store") == 1
