"""What the machine runs out of while a real supervisor is at work: admission stops, says so, and goes on by itself (7.7)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger_check import ledger_check
from tests.support.place import Place
from tests.support.processes import Supervisor, wait_for, wfctl
from tests.support.small import fill_bytes, small_tmpfs, why_not

QUICK = ("--poll-interval-s", "0.2")
GATED = "while [ ! -e {go} ]; do sleep 0.02; done"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 8 MiB."""
    reason = why_not(tmp_path / "probe")
    if reason is not None:
        pytest.skip(reason)
    with small_tmpfs(tmp_path / "small", inodes=1000) as found:
        yield found


def codes(place: Place) -> set[str]:
    """Return what `status` says is wrong, asked by a command of its own."""
    done = wfctl(place.root, "status", "-o", "json", check=False)
    return {problem["code"] for problem in json.loads(done.stdout)["problems"]} if done.stdout else set()


def assert_stopped(place: Place, code: str, supervisor: Supervisor) -> None:
    """Nothing is admitted, the supervisor lives and says why."""
    wait_for(lambda: code in codes(place), what=f"{code} in status")
    wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of what runs")
    runs = len(place.store.list_runs(limit=100).items)
    until = time.monotonic() + 2.2
    wait_for(lambda: time.monotonic() > until, what="two instants")
    assert len(place.store.list_runs(limit=100).items) == runs
    assert supervisor.process.poll() is None


def assert_goes_on(place: Place) -> None:
    wait_for(lambda: not codes(place), what="the end of the problem")
    runs = len(place.store.list_runs(limit=100).items)
    wait_for(lambda: len(place.store.list_runs(limit=100).items) > runs, what="the next run")
    place.store.pause_schedule(schedule_id="s")
    wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of all runs")
    assert {run.status for run in place.store.list_runs(limit=100).items} == {"completed"}
    ledger_check(place.store)


def test_7_7_a_run_that_ends_on_a_full_disk_is_recorded_once_there_is_room(small: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Place(small) as place:
        place.job(GATED.format(go=go))
        place.every_second(overlap="parallel", max_active_runs=2)
        supervisor = place.supervisor(*QUICK)
        first = place.run()
        place.until(first.run_id, "running")
        ballast = fill_bytes(small)
        go.touch()
        wait_for(lambda: "disk" in codes(place), what="the diagnostic")
        wait_for(lambda: supervisor.process.poll() is None and codes(place), what="it still answers")
        ballast.unlink()
        assert place.until(first.run_id, "completed").exit_status == 0
        assert_goes_on(place)


def test_7_7_a_read_only_file_system(small: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Place(small) as place:
        place.job(GATED.format(go=go))
        place.every_second()
        supervisor = place.supervisor(*QUICK)
        first = place.run()
        place.until(first.run_id, "running")
        store = str(place.root)
        subprocess.run(["mount", "--bind", store, store], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", store], check=True)
            wait_for(
                lambda: "read-only" in {each["code"] for each in place.store.server_status().problems}, what="the diagnostic"
            )
            go.touch()  # it ends while its exit record cannot be written
            supervisor.kill()  # and the only one who was told of it is gone
        finally:
            subprocess.run(["umount", "-l", store], check=True)
        place.supervisor(*QUICK)
        assert place.until(first.run_id, "completed").exit_status == 0
        assert_goes_on(place)


def limit(pid: int, which: int, soft: int) -> None:
    """Set a limit of another process."""
    resource.prlimit(pid, which, (soft, resource.prlimit(pid, which)[1]))


def test_7_7_no_descriptors(place: Place) -> None:
    place.job("exit 0")
    place.every_second()
    supervisor = place.supervisor(*QUICK)
    pid = supervisor.process.pid
    place.until(place.run().run_id, "completed")
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    limit(pid, resource.RLIMIT_NOFILE, highest + 3)
    assert_stopped(place, "descriptors", supervisor)
    limit(pid, resource.RLIMIT_NOFILE, before)
    assert_goes_on(place)


def test_7_7_sigxfsz_kills_neither_supervisor_nor_keeper(place: Place) -> None:
    place.job("exit 0")
    place.every_second()
    supervisor = place.supervisor(*QUICK)
    place.until(place.run().run_id, "completed")
    keeper = place.keeper()
    for pid in (supervisor.process.pid, keeper):
        limit(pid, resource.RLIMIT_FSIZE, 0)
    assert_stopped(place, "file-size", supervisor)
    assert place.keeper() == keeper
    for pid in (supervisor.process.pid, keeper):
        limit(pid, resource.RLIMIT_FSIZE, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1])
    assert_goes_on(place)


def test_7_7_a_limit_of_file_sizes_still_ends_a_job_that_exceeds_it(place: Place) -> None:
    """6.4: signals are at their defaults."""
    place.job("ulimit -f 1; exec head -c 4096 /dev/zero >big")
    place.once()
    place.supervisor(*QUICK)
    assert place.until(place.run().run_id, "failed").signal == 25


@contextlib.contextmanager
def pids_group() -> Iterator[Path]:
    """Make a control group that can limit processes; skip where that cannot be."""
    for top in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        group = top / f"wfctl-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / "pids.max").exists():
                break
            group.rmdir()
    else:
        pytest.skip("no control group that limits processes can be made here")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (top / "cgroup.procs").write_text(pid)
        wait_for(lambda: not (group / "cgroup.procs").read_text(), what="the group being empty")
        group.rmdir()


def test_7_7_no_processes(place: Place) -> None:
    with pids_group() as group:
        place.job("exit 0")
        place.every_second()
        supervisor = place.supervisor(*QUICK)
        place.until(place.run().run_id, "completed")
        for pid in (supervisor.process.pid, place.keeper()):
            (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text("1")
        assert_stopped(place, "processes", supervisor)
        (group / "pids.max").write_text("max")
        wait_for(lambda: not codes(place), what="the end of the problem")
        runs = len(place.store.list_runs(limit=100).items)
        wait_for(lambda: len(place.store.list_runs(limit=100).items) > runs, what="the next run")
        place.store.pause_schedule(schedule_id="s")
        wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of all runs")
        ended = place.store.list_runs(limit=100).items
        refused = [run for run in ended if run.status != "completed"]
        assert len(refused) <= 1, "what was just being launched, and no more"
        assert all(run.reason and (run.reason["code"], run.reason["errno"]) == ("launch-failed", 11) for run in refused)
        ledger_check(place.store)
