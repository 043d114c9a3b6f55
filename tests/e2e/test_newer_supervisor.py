"""A supervisor of a newer keeper protocol beside an older keeper, and the way back (contract 6.9, 6.10)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.newer import PROTOCOL, NewerSupervisor
from tests.support.place import Place, is_alive, kill
from tests.support.processes import wait_for
from tests.support.steps_side import keepers_of, read_notes
from wfctl.keeper.client import KeeperClient

HELD = """
echo "start - - $WFCTL_RUN_ID $WFCTL_EXECUTION $WFCTL_STEP $$" >>$NOTES/side
while [ ! -e $NOTES/go ]; do sleep 0.02; done
"""
STEPS = [{"name": name, "command": ["/bin/sh", "-c", HELD]} for name in ("first", "second")]


def keeper_of(root: Path, protocol: int) -> int | None:
    """Return the pid of the keeper of that protocol, if one lives."""
    client = KeeperClient.connect(root, protocol)
    if client is None:
        return None
    with client:
        assert client.hello.protocol == protocol
        return client.hello.pid


def test_6_9_it_starts_its_own_keeper_and_lets_the_old_one_run_empty(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.store.create_deployment(deployment_id="d", steps=STEPS, environment={"NOTES": str(place.notes)})
        place.once("s", "d")
        older = place.supervisor()
        side = place.notes / "side"
        wait_for(lambda: len(read_notes(side)) == 1, what="the first step")
        (old,) = keepers_of(place.root)
        older.kill()
        with NewerSupervisor(place.root, tmp_path / "shims") as newer:
            newer.wait_ready()
            assert "1 adopted" in newer.text()
            new = keeper_of(place.root, PROTOCOL)
            assert new is not None
            assert sorted(keepers_of(place.root)) == sorted([old, new])
            (place.notes / "go").touch()
            run = place.until("run-000001", "completed")
            assert [execution.exit_status for execution in run.trace] == [0, 0], "the old one told how its step ended"
            wait_for(lambda: not is_alive(old), what="the end of the old keeper, which has nothing left")
            assert keepers_of(place.root) == [new]
            assert [note.step for note in read_notes(side)] == ["first", "second"]
            assert newer.stop() == 0


def test_6_11_a_run_of_the_old_keeper_is_cancelled_by_the_newer_supervisor(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("echo $$ >$NOTES/pid; sleep 60")
        place.once()
        older = place.supervisor()
        pid = place.pid("pid")
        older.kill()
        with NewerSupervisor(place.root, tmp_path / "shims") as newer:
            newer.wait_ready()
            place.store.cancel_run(run_id="run-000001")
            run = place.until("run-000001", "cancelled")
            assert not is_alive(pid)
            assert run.trace[0].signal == signal.SIGTERM
            assert newer.stop() == 0


def test_6_10_the_old_keeper_is_told_to_forbid_what_lies_unread(tmp_path: Path) -> None:
    """It was asked and has not looked yet: forbidden by it, so never launched by it, and marked anew for the new one."""
    with Place(tmp_path) as place:
        place.job('echo "$WFCTL_EXECUTION" >>$NOTES/ran')
        place.every_second(overlap="parallel", max_active_runs=5)
        older = place.supervisor()
        wait_for(lambda: (place.notes / "ran").exists(), what="a first run")
        (old,) = keepers_of(place.root)
        os.kill(old, signal.SIGSTOP)
        admitted = place.store.list_runs(limit=100).items[-1].run_id
        wait_for(lambda: place.store.list_runs(limit=100).items[-1].run_id != admitted, what="another admission")
        unread = place.store.list_runs(limit=100).items[-1].run_id
        older.kill()
        place.store.pause_schedule(schedule_id="s")
        with NewerSupervisor(place.root, tmp_path / "shims") as newer:
            os.kill(old, signal.SIGCONT)
            newer.wait_ready()
            run = place.until(unread, "completed")
            assert run.exit_status == 0
            wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of all runs")
            assert {run.status for run in place.store.list_runs(limit=100).items} == {"completed"}
            told = (place.notes / "ran").read_text().split()
            assert len(told) == len(place.store.list_runs(limit=100).items), "each run ran once"
            wait_for(lambda: not is_alive(old), what="the end of the old keeper")
            assert newer.stop() == 0


def test_6_9_the_way_back(tmp_path: Path) -> None:
    """An older supervisor adopts from the newer keeper as well; what a dead one held is watched by pid."""
    with Place(tmp_path) as place:
        place.store.create_deployment(deployment_id="d", steps=STEPS, environment={"NOTES": str(place.notes)})
        place.once("s", "d")
        place.once("t", "d")
        side = place.notes / "side"
        with NewerSupervisor(place.root, tmp_path / "shims") as newer:
            newer.wait_ready()
            wait_for(lambda: len(read_notes(side)) == 2, what="both first steps")
            new = keeper_of(place.root, PROTOCOL)
            assert new is not None
            newer.kill()
        older = place.supervisor()
        assert "2 adopted" in older.text()
        kill(new)
        (place.notes / "go").touch()
        for run_id in ("run-000001", "run-000002"):
            run = place.until(run_id, "failed")
            assert run.reason is not None
            assert run.reason["code"] == "outcome-unknown"
        assert len(read_notes(side)) == 2
        assert older.stop() == 0
