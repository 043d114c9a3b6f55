"""`cancel` ends a run in any unfinished state, with or without a supervisor (contract 6.6, 6.11, 6.14)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.place import FINAL, Place, is_alive
from tests.support.processes import wait_for
from tests.support.story import World
from wfctl import WrongState, open_store
from wfctl.operations.follow import follow
from wfctl.operations.store import init_store

HELD = "echo $$ >$NOTES/pid; while :; do sleep 0.02; done"
ASKS = 'echo \'{"message": "yes?"}\' >$WFCTL_INTERRUPT; exit 75'


def test_6_14_with_a_supervisor_in_every_state(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job(HELD, "held")
        place.job(ASKS, "asks")
        place.job("exit 1", "fails", retries=5, retry_delay="1h")
        for name in ("held", "asks", "fails"):
            place.once(name, name)
        place.supervisor()
        runs = {str(run.schedule_id): run.run_id for run in [place.run(index) for index in range(3)]}
        pid = place.pid("pid")
        place.until(runs["asks"], "interrupted")
        wait_for(lambda: place.store.inspect_run(run_id=runs["fails"]).trace[-1].ended_at, what="the wait for a retry")
        with open_store(place.root) as other:
            for run_id in runs.values():
                other.cancel_run(run_id=run_id, reason="no more")
            for name, run_id in runs.items():
                ended = place.until(run_id, "cancelled")
                assert ended.reason is not None
                assert (ended.reason["code"], ended.reason["note"]) == ("cancelled", "no more")
                assert place.statuses(name) == ["cancelled"]
                with pytest.raises(WrongState):
                    other.cancel_run(run_id=run_id)
        assert not is_alive(pid)
        assert place.store.server_status().slots_used == 0


def test_6_14_without_a_supervisor_what_it_left_behind(tmp_path: Path) -> None:
    """Running, between two executions, interrupted; the cancel returns once the end is on record."""
    with Place(tmp_path) as place:
        place.job(HELD, "held")
        place.job(ASKS, "asks")
        place.job("exit 1", "fails", retries=5, retry_delay="1h")
        for name in ("held", "asks", "fails"):
            place.once(name, name)
        supervisor = place.supervisor("--drain-grace-s", "0")
        runs = {str(run.schedule_id): run.run_id for run in [place.run(index) for index in range(3)]}
        pid = place.pid("pid")
        place.until(runs["asks"], "interrupted")
        place.until(runs["held"], "running")
        wait_for(lambda: place.store.inspect_run(run_id=runs["fails"]).trace[-1].ended_at, what="the wait for a retry")
        assert supervisor.stop() == 0
        for name, run_id in runs.items():
            assert place.store.cancel_run(run_id=run_id).status == "cancelled"
            assert place.statuses(name) == ["cancelled"]
        assert not is_alive(pid)


def test_6_14_an_admitted_run_of_which_nobody_knows_whether_it_was_launched(tmp_path: Path) -> None:
    """The stop is on record before the recovery, so it decides the outcome."""
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    world.store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1m"})
    world.step()
    world.clock.advance(timedelta(minutes=1))
    world.step()
    run = world.runs()[0]
    world.die()
    assert run.status == "admitted"
    assert world.store.cancel_run(run_id=run.run_id).status == "cancelled"
    assert world.occurrences("s")[0].status == "cancelled"
    world.die()


def test_6_14_a_run_that_rests_between_two_steps_goes_no_further(tmp_path: Path) -> None:
    """Its driver is gone and step one is on record: the cancel launches nothing."""
    with Place(tmp_path) as place:
        place.store.create_deployment(
            deployment_id="d",
            steps=[
                {
                    "name": "one",
                    "command": ["/bin/sh", "-c", "echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done"],
                },
                {"name": "two", "command": ["/bin/sh", "-c", "touch $NOTES/two"]},
            ],
            environment={"NOTES": str(place.notes)},
        )
        place.once()
        supervisor = place.supervisor()
        pid = place.pid("pid")
        place.until("run-000001", "running")
        supervisor.kill()
        (place.notes / "go").touch()
        wait_for(lambda: not is_alive(pid), what="the end of step one")
        wait_for(lambda: place.store.inspect_run(run_id="run-000001").trace[0].ended_at, what="its record")
        assert place.store.cancel_run(run_id="run-000001").status == "cancelled"
        assert len(place.store.inspect_run(run_id="run-000001").trace) == 1
        assert not (place.notes / "two").exists()


@pytest.mark.parametrize("driven", ["by this process", "by a background process"])
def test_6_14_a_manual_run_without_a_supervisor(tmp_path: Path, driven: str) -> None:
    """Another process cancels it; the job ignores SIGTERM, so `grace` decides."""
    with Place(tmp_path) as place:
        place.job("trap '' TERM; " + HELD, kill_grace="1h")
        run = place.store.start_run(deployment_id="d", detach=driven == "by a background process")
        if driven == "by this process":
            local = place.store.driver_of(run.run_id)
            assert local is not None
            while not (place.notes / "pid").exists():
                local.step(0.05)
        pid = place.pid("pid")
        with open_store(place.root) as other:
            other.cancel_run(run_id=run.run_id, grace="100ms")
        ended = follow(place.store, run.run_id, timeout=10)
        assert (ended.status, ended.reason["code"] if ended.reason else None) == ("cancelled", "cancelled")
        assert not is_alive(pid)


def test_6_14_a_driven_run_that_waits_for_its_retry(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 1", retries=5, retry_delay="1h")
        run = place.store.start_run(deployment_id="d")
        wait_for(lambda: (trace := place.store.inspect_run(run_id=run.run_id).trace) and trace[-1].ended_at, what="its failure")
        with open_store(place.root) as other:
            other.cancel_run(run_id=run.run_id)
        assert place.until(run.run_id, *FINAL, timeout_s=5).status == "cancelled"
