"""System calls of supervisor and keeper fail, or kill them, while runs of several steps are at work.

The steps keep their own record. What holds: nothing twice, no limit exceeded, everything recorded and accounted for; what the
machine refused is said; and once the fault is over it goes on by itself, with the process that was there before.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import strace
from tests.support.processes import WFCTL, Supervisor, clean_environment, wait_for, wfctl
from tests.support.steps_side import Law, Note, check_laws, keepers_of, kill_keepers, noting_steps, read_notes
from wfctl import open_store

SLOTS = 4
STEPS = ("step-1", "step-2")
LAWS = {"one": Law(STEPS), "two": Law(STEPS, limit=2)}
NOBODY_SAW = frozenset({"outcome-unknown", "abandoned", "not-started"})
SPAWN = "clone,clone3,vfork,fork"
DURABLE = "fsync,fdatasync"
#: what the victim is killed at the n-th of: the calls around launches, reports, records and commits
DEADLY = {
    "supervisor": ("fsync,fdatasync", "pwrite64", "sendto,sendmsg", "mkdir,mkdirat", "openat", "epoll_wait,poll,ppoll"),
    "keeper": (SPAWN, "fsync,fdatasync", "pwrite64", "sendto,sendmsg", "openat", "wait4", "fallocate"),
}
SWEEP = int(os.environ.get("WFCTL_TEST_FAULTS", "1"))


@functools.cache
def _why_not() -> str | None:
    return strace.why_not()


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    reason = _why_not()
    if reason is not None:
        pytest.skip(f"FAULTS OF SYSTEM CALLS ARE NOT TESTED: {reason}")


class Stage:
    """A store with two schedules of short runs each second, a supervisor, and the record of the steps."""

    def __init__(self, folder: Path) -> None:
        self.store, self.side = folder / "store", folder / "side"
        wfctl(self.store, "init")
        with open_store(self.store) as api:
            api.create_deployment(deployment_id="d", steps=noting_steps(self.side, (0.1, 0.2)))
            every = {"kind": "interval", "every": "1s"}
            api.create_schedule(schedule_id="one", deployment_id="d", trigger=every, overlap="skip")
            api.create_schedule(schedule_id="two", deployment_id="d", trigger=every, overlap="parallel", max_active_runs=2)
        self.supervisor = self.new_supervisor().wait_ready()

    def new_supervisor(self) -> Supervisor:
        return Supervisor(self.store, "--max-concurrent-runs", str(SLOTS))

    def notes(self) -> list[Note]:
        return read_notes(self.side)

    def has_run_since(self, known: int) -> bool:
        """Tell whether both schedules had a run that began after so many lines of the record, and came to its end."""
        fresh = self.notes()[known:]
        begun = {(note.schedule, note.run) for note in fresh if note.what == "start" and note.step == STEPS[0]}
        ended = {(note.schedule, note.run) for note in fresh if note.what == "end" and note.step == STEPS[-1]}
        return {name for name, _ in begun & ended} == set(LAWS)

    def wait_for_runs(self) -> None:
        known = len(self.notes())
        wait_for(lambda: self.has_run_since(known), timeout_s=30, what=f"new runs of both; it says {self.supervisor.text()}")

    def victim(self, name: str) -> int:
        if name == "supervisor":
            return self.supervisor.process.pid
        return int(wait_for(lambda: keepers_of(self.store), what="a keeper")[0])

    def finish(self, may_fail_for: frozenset[str]) -> dict[str, list[str]]:
        """Let everything end, hold it against the laws, and return the statuses of the runs."""
        with open_store(self.store) as api:
            for name in LAWS:
                api.pause_schedule(schedule_id=name)
            wait_for(lambda: not api.list_runs(status="admitted,running").items, timeout_s=30, what="the end of all runs")
            problems = api.server_status().to_json().get("problems")
            assert not problems, f"it still complains: {problems}"
        assert self.supervisor.stop() == 0
        return check_laws(self.store, self.notes(), LAWS, slots=SLOTS, may_fail_for=may_fail_for, when="after the faults")

    def close(self) -> None:
        if self.supervisor.process.poll() is None:
            self.supervisor.kill()
        kill_keepers(self.store)


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_2_10_7_7_the_supervisor_gets_over_failed_syncs(stage: Stage, error: str) -> None:
    """It admits nothing, says so, trusts nothing it held, and goes on once syncs succeed (contract 2.10, 7.7)."""
    stage.wait_for_runs()
    with strace.Faults(stage.victim("supervisor"), DURABLE, f"error={error}"):
        wait_for(lambda: "nothing is admitted until" in stage.supervisor.text(), what="a diagnostic")
        known = len(stage.notes())
        assert stage.supervisor.process.poll() is None
    wait_for(lambda: stage.has_run_since(known), timeout_s=30, what=f"going on; it says {stage.supervisor.text()}")
    statuses = stage.finish(frozenset())
    assert set(statuses["one"]) == set(statuses["two"]) == {"completed"}


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_6_9_a_keeper_that_cannot_sync_records_still_reports(stage: Stage, error: str) -> None:
    """No outcome is lost, no execution repeated (contract 6.9)."""
    stage.wait_for_runs()
    with strace.Faults(stage.victim("keeper"), DURABLE, f"error={error}:when=1..4"):
        stage.wait_for_runs()
    stage.wait_for_runs()
    statuses = stage.finish(frozenset())
    assert set(statuses["one"]) == set(statuses["two"]) == {"completed"}


def test_6_10_7_7_a_keeper_that_gets_no_process_refuses_and_goes_on(stage: Stage) -> None:
    """A launch that the system refused is `launch-failed` with its errno, and the next ones run (contract 6.10, 7.7)."""
    stage.wait_for_runs()
    with strace.Faults(stage.victim("keeper"), SPAWN, "error=EAGAIN"), open_store(stage.store) as api:
        wait_for(lambda: api.list_runs(status="failed").items, what="a refused launch")
        failed = api.list_runs(status="failed").items[0]
        assert (failed.reason["code"], failed.reason["errno"], failed.reason["what"]) == ("launch-failed", 11, "fork")
        assert "launch was refused" in stage.supervisor.text()
    stage.wait_for_runs()
    stage.finish(frozenset({"launch-failed"}))


def test_7_7_a_supervisor_that_gets_no_process_waits_for_one(stage: Stage) -> None:
    """Neither a thread nor a new keeper can be had; both come back by themselves (contract 6.9, 7.7)."""
    stage.wait_for_runs()
    with strace.Faults(stage.victim("supervisor"), SPAWN, "error=EAGAIN"):
        kill_keepers(stage.store)
        wait_for(lambda: "nothing is admitted" in stage.supervisor.text(), what="a diagnostic")
        assert stage.supervisor.process.poll() is None
    stage.wait_for_runs()
    stage.finish(NOBODY_SAW)


@pytest.mark.parametrize("victim", sorted(DEADLY))
def test_6_2_killed_at_the_nth_call(stage: Stage, victim: str) -> None:
    """Killed around launches, reports, records and commits; the next one goes on (contract 6.2, 6.9, 6.10, 7.1)."""
    for calls in DEADLY[victim]:
        for n in range(1, SWEEP + 1):
            pid = stage.victim(victim)
            with strace.Faults(pid, calls, f"signal=SIGKILL:when={n}"):
                wait_for(_is_gone(stage, victim, pid), what=f"the end of the {victim} at call {n} of {calls}")
            if victim == "supervisor":
                stage.supervisor.process.wait(10)
                stage.supervisor = stage.new_supervisor().wait_ready()
            else:
                wait_for(lambda: keepers_of(stage.store), what="another keeper")
    stage.wait_for_runs()
    statuses = stage.finish(NOBODY_SAW if victim == "keeper" else frozenset({"not-started"}))
    assert "completed" in statuses["one"]


def _is_gone(stage: Stage, victim: str, pid: int) -> Callable[[], bool]:
    if victim == "supervisor":
        return lambda: stage.supervisor.process.poll() is not None
    return lambda: pid not in keepers_of(stage.store)


def test_7_1_killed_at_the_nth_sync_of_its_start(stage: Stage) -> None:
    """Recovery itself is cut, again and again, until it gets through (contract 7.1)."""
    stage.wait_for_runs()
    stage.supervisor.kill()
    kill_keepers(stage.store)
    for n in range(1, 9):
        done = subprocess.run(
            [
                *strace.dying_at(DURABLE, n),
                *WFCTL,
                "--store",
                str(stage.store),
                "supervise",
                "--max-concurrent-runs",
                str(SLOTS),
            ],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (-9, 137), (n, done.stderr)
    stage.supervisor = stage.new_supervisor().wait_ready()
    stage.wait_for_runs()
    stage.finish(NOBODY_SAW)
