"""100,000 runs of `true`: no descriptor, no zombie and no memory is lost, and the store stays as small as `[history]` says.

    WFCTL_SOAK_RUNS=100000 python -m pytest -m soak -n0 -s tests/soak

It takes about as many seconds as there are hundreds of runs. Contract 6.9, 10; every figure is printed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.steps_side import keepers_of
from wfctl.linux import living_pids, process_stat

RUNS = int(os.environ.get("WFCTL_SOAK_RUNS", "100000"))
SCHEDULES = int(os.environ.get("WFCTL_SOAK_SCHEDULES", "100"))
KEPT = 5  #: runs and occurrences of a schedule that `[history]` keeps
WARM = max(5 * SCHEDULES, RUNS // 20)  #: runs after which caches and pools are filled
MEMORY = 16 * 1024 * 1024  #: how much more a process may hold at the end than when it was warm
LONGEST_S = 60 + RUNS / 10


@dataclass(frozen=True)
class Sample:
    """What a process holds."""

    descriptors: int
    resident: int
    zombies: int

    def __str__(self) -> str:
        return f"{self.descriptors} descriptors, {self.resident / 2**20:.1f} MiB, {self.zombies} zombies"


def descriptors_of(pid: int) -> dict[str, str]:
    """Return what the descriptors of a process stand for."""
    return {path.name: os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 - some name no file


def sample(pid: int) -> Sample:
    """Look at a process that has nothing to do."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    stats = [stat for stat in map(process_stat, living_pids()) if stat is not None]
    return Sample(
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 - names only
        resident=pages * resource.getpagesize(),
        zombies=sum(stat.parent == pid and stat.state == "Z" for stat in stats),
    )


def bytes_of(root: Path) -> int:
    """Return how many bytes of the disk a store takes; what is just being let go may or may not count."""
    found = 0
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                found += Path(folder, name).lstat().st_blocks * 512
    return found


@pytest.mark.soak
def test_soak(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.settings(f'[history]\nkeep_runs = {KEPT}\n[runs]\nmin_free = "0"\n')
        place.store.create_deployment(deployment_id="d", command=["/bin/true"])
        for number in range(SCHEDULES):
            place.every_second(f"s-{number:03d}", lateness="1s")
        supervisor = place.supervisor("--max-concurrent-runs", str(SCHEDULES))
        (keeper,) = keepers_of(place.root)
        pids = {"supervisor": supervisor.process.pid, "keeper": keeper}

        def done() -> int:
            with sqlite3.connect(f"file:{place.root / 'ledger.db'}?mode=ro", uri=True) as ledger:
                (last,) = ledger.execute("SELECT coalesce(max(number), 0) FROM runs").fetchone()
            ledger.close()
            return int(last)

        def is_quiet() -> bool:
            return place.store.server_status().slots_used == 0

        def pause(*, now: bool) -> None:
            place.store.drain(undo=not now)

        def until(runs: int) -> None:
            while done() < runs:
                assert supervisor.process.poll() is None, supervisor.text()[-2000:]
                assert keepers_of(place.root) == [keeper]
                assert time.monotonic() < deadline, f"only {done()} runs in {LONGEST_S:.0f} s"
                time.sleep(0.5)

        begun = time.monotonic()
        deadline = begun + LONGEST_S
        until(WARM)
        pause(now=True)
        wait_for(is_quiet, timeout_s=60, what="the end of all runs")
        warm, size = {name: sample(pid) for name, pid in pids.items()}, bytes_of(place.root)
        pause(now=False)
        until(RUNS)
        pause(now=True)
        wait_for(is_quiet, timeout_s=60, what="the end of all runs")
        took = time.monotonic() - begun
        print(f"\n{done()} runs in {took:.0f} s, {done() / took:.0f} a second")
        failed = place.store.list_runs(status="failed,exhausted,cancelled", limit=5).items
        assert not failed, failed
        check_history(place, size)
        for name, pid in pids.items():
            wait_for(
                lambda pid=pid, most=warm[name].descriptors: sample(pid).descriptors <= most,  # type: ignore[misc]
                timeout_s=60,
                what=f"{warm[name].descriptors} descriptors of the {name}, not {descriptors_of(pid)}",
            )
            end = sample(pid)
            print(f"{name}: {warm[name]}, then {end}")
            assert end.zombies == 0
            assert end.resident <= warm[name].resident + MEMORY
        assert supervisor.stop() == 0


def check_history(place: Place, size: int) -> None:
    """The store holds what `[history]` keeps, and little more."""
    most = SCHEDULES * KEPT * 2

    def directories() -> int:
        return sum(1 for _ in (place.root / "runs").iterdir())

    wait_for(lambda: directories() <= most, timeout_s=120, what=f"{most} run directories at most, not {directories()}")
    for number in (0, SCHEDULES - 1):
        assert place.store.audit_schedule(schedule_id=f"s-{number:03d}").is_balanced
    end = bytes_of(place.root)
    print(f"store: {size / 2**20:.1f} MiB after {WARM} runs, {end / 2**20:.1f} MiB at the end, {directories()} run directories")
    assert end <= 2 * size + 8 * 1024 * 1024
