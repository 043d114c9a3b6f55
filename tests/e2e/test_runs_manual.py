"""Runs started by hand where no supervisor lives, and what happens when one comes (contract 6.12, 6.14)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.place import Place, is_alive, kill
from tests.support.processes import WFCTL, clean_environment, wait_for
from wfctl import PreflightFailed, open_store
from wfctl.errors import TimedOut
from wfctl.linux import process_stat
from wfctl.operations.follow import follow

HELD = "echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done"


def test_6_12_a_run_is_driven_by_whoever_follows_it(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 3", retries=1, retry_delay="50ms")
        run = place.store.start_run(deployment_id="d", input={"a": 1}, detach=False)
        assert (run.kind, run.schedule_id, run.status) == ("manual", None, "admitted")
        ended = follow(place.store, run.run_id)
        assert (ended.status, ended.exit_status, len(ended.trace), ended.input) == ("failed", 3, 2, {"a": 1})
        place.job(HELD, "held")
        held = place.store.start_run(deployment_id="held", detach=False)
        with pytest.raises(TimedOut):
            follow(place.store, held.run_id, timeout=0.3)
        place.store.hand_over(run_id=held.run_id)
        (place.notes / "go").touch()
        assert follow(place.store, held.run_id).status == "completed"


def test_6_12_a_preflight_failure_is_an_error_and_no_run(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.store.create_deployment(deployment_id="d", command=["no-such-program-anywhere"])
        with pytest.raises(PreflightFailed):
            place.store.start_run(deployment_id="d")
        assert place.store.list_runs().items == ()
        assert not list((place.root / "runs").iterdir())


def test_6_12_detached_a_background_process_drives_all_steps(tmp_path: Path) -> None:
    """It is in nobody's session, holds nothing of its starter, and ends with the run."""
    with Place(tmp_path) as place:
        place.store.create_deployment(
            deployment_id="d",
            steps=[
                {"name": "one", "command": ["/bin/sh", "-c", HELD], "timeout": "20s"},
                {"name": "two", "command": ["/bin/sh", "-c", "exit 0"]},
            ],
            environment={"NOTES": str(place.notes)},
        )
        run = place.store.start_run(deployment_id="d")
        place.pid("pid")
        driver = _driver_of(place.root, run.run_id)
        stat = process_stat(driver)
        assert stat is not None
        assert stat.session != os.getsid(0)
        (place.notes / "go").touch()
        ended = place.until(run.run_id, "completed")
        assert [each.step for each in ended.trace] == ["one", "two"]
        wait_for(lambda: not is_alive(driver), what="the end of the driver")


def test_6_12_the_driver_killed_whoever_looks_settles_the_run(tmp_path: Path) -> None:
    """What comes next is not launched by who only looks: the next driver does."""
    with Place(tmp_path) as place:
        place.store.create_deployment(
            deployment_id="two",
            steps=[
                {"name": "one", "command": ["/bin/sh", "-c", HELD]},
                {"name": "two", "command": ["true"]},
            ],
            environment={"NOTES": str(place.notes)},
        )
        place.job(HELD)
        first = place.store.start_run(deployment_id="d")
        place.pid("pid")
        kill(_driver_of(place.root, first.run_id))
        assert place.store.inspect_run(run_id=first.run_id).status == "running"
        (place.notes / "go").touch()
        wait_for(lambda: place.store.inspect_run(run_id=first.run_id).status == "completed", what="settled by a look")
        (place.notes / "go").unlink()
        (place.notes / "pid").unlink()
        second = place.store.start_run(deployment_id="two")
        place.pid("pid")
        kill(_driver_of(place.root, second.run_id))
        pid = place.pid("pid")
        (place.notes / "go").touch()
        wait_for(lambda: not is_alive(pid), what="the end of step one")
        seen = wait_for(
            lambda: (run := place.store.inspect_run(run_id=second.run_id)).trace[0].ended_at and run, what="its record"
        )
        assert seen.status == "running"
        assert len(seen.trace) == 1
        place.supervisor()
        assert [each.step for each in place.until(second.run_id, "completed").trace] == ["one", "two"]


def test_6_12_a_supervisor_leaves_a_driven_run_alone_and_adopts_it_when_its_driver_is_gone(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job(HELD)
        run = place.store.start_run(deployment_id="d")
        pid = place.pid("pid")
        driver = _driver_of(place.root, run.run_id)
        supervisor = place.supervisor("--until-idle", "--drain-grace-s", "0.1")
        assert "adopted" not in supervisor.text()
        kill(driver)
        assert is_alive(pid)
        (place.notes / "go").touch()
        assert place.until(run.run_id, "completed").exit_status == 0
        assert supervisor.process.wait(20) == 0


def test_6_12_the_command_passes_output_and_outcome_on_and_ctrl_c_leaves_the_run(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("echo out; echo err >&2; exit 3")
        place.job(HELD, "held")
        start = [*WFCTL, "--store", str(place.root), "run", "start"]
        done = subprocess.run([*start, "d"], capture_output=True, text=True, env=clean_environment(), timeout=30, check=False)
        assert (done.returncode, done.stdout) == (1, "out\n")
        assert "err\n" in done.stderr
        with subprocess.Popen(
            [*start, "held"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), start_new_session=True
        ) as command:
            pid = place.pid("pid")
            assert command.stderr is not None
            assert b"started" in command.stderr.readline()  # from here on it follows
            command.send_signal(signal.SIGINT)
            assert command.wait(20) == 130
        assert is_alive(pid)
        (place.notes / "go").touch()
        assert place.until("run-000002", "completed").exit_status == 0


def test_6_12_with_a_supervisor_that_one_starts_it_beside_every_limit(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job(HELD)
        place.once()
        place.supervisor("--max-concurrent-runs", "1")
        place.pid("pid")
        with open_store(place.root) as other:
            runs = [other.start_run(deployment_id="d") for _ in range(2)]
            assert all(run.kind == "manual" for run in runs)
            for run in runs:
                place.until(run.run_id, "running")
            assert other.server_status().slots_used == 1
        (place.notes / "go").touch()
        for run in runs:
            assert follow(place.store, run.run_id).status == "completed"
        assert not (place.root / "runs" / runs[0].run_id / "driver").exists()


def _driver_of(root: Path, run_id: str) -> int:
    """Return the pid of the background process that holds the run's lock."""
    lock = (root / "runs" / run_id / "driver").stat()

    def holders() -> list[int]:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return [int(line[4]) for line in lines if line[5].rpartition(":")[2] == str(lock.st_ino)]

    def found() -> list[int]:
        mine = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"wfctl.operations.background" in words and str(root).encode() in words:
                    mine.append(int(entry.name))
        return mine

    assert wait_for(holders, what="the driver's lock")
    return int(wait_for(found, what="the driver")[0])
