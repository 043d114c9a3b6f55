"""A supervisor with a cluster: its slots, its problems, and what a reload makes of it (contract 3.0, 5.4, 7.7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_slurm import FakeSlurm
from tests.support.schedules import add, history
from tests.support.story import SETTINGS, FakeService, World
from tests.support.waiting import wait_for
from wfctl import init_store
from wfctl.errors import PreflightFailed
from wfctl.slurm import tasks
from wfctl.slurm.absent import MISSING
from wfctl.slurm.executor import SlurmExecutor

MINUTE = timedelta(minutes=1)


class ClusterWorld(World):
    """A store with a supervisor over a fake keeper and a made-up Slurm, which runs jobs only when told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "store")
        init_store(self.root).close()
        self.fake = FakeSlurm(root / "slurm")
        self.shared = root / "shared"
        self.shared.mkdir()
        self.given: dict[str, Any] = {
            "shared": str(self.shared), "bin": str(self.fake.bin), "poll_interval_s": 0.1, "max_concurrent_runs": 2,
        }  # fmt: skip
        self.has_cluster = True

    def step(self) -> Any:
        if self._service is None:
            more = {"executors": {"slurm": self.given}} if self.has_cluster else {}
            self._service = FakeService(self.store, {**SETTINGS, **more})
            self._service.fake = self.keeper
        return self._service.step()

    @property
    def service(self) -> FakeService:
        assert self._service is not None
        return self._service

    def until(self, condition: Any, what: str) -> Any:
        """Step until something holds; small jobs are run meanwhile."""

        def look() -> Any:
            self.fake.run_probes()
            self.step()
            return condition()

        return wait_for(look, what)

    def busy(self) -> list[str]:
        """Return the runs that a thread of the executor is at work on."""
        executor = self.service.driver.executors["slurm"]
        assert isinstance(executor, SlurmExecutor)
        return [job.run for job in executor._state.living() if job.is_busy]

    def deployment(self, name: str = "far", **fields: Any) -> None:
        self.store.create_deployment(deployment_id=name, command=["/bin/true"], executor="slurm", **fields)

    def status(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run in self.runs():
            found.setdefault(str(run.status), []).append(str(run.deployment_id))
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ClusterWorld]:
    made = ClusterWorld(tmp_path)
    yield made
    made.stop()


def test_3_0_a_scheduled_run_is_a_job_and_its_end_the_runs(world: ClusterWorld) -> None:
    world.deployment()
    add(world.store, "s", deployment_id="far")
    world.clock.advance(MINUTE)
    world.until(world.fake.jobs, "the job")
    assert world.status() == {"admitted": ["far"]}
    assert world.keeper.world.launches == [], "it is none of the keeper's"
    world.fake.run("run-000001-1")
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")
    assert history(world, "s") == ["09:01 completed"]


def test_5_4_the_cluster_has_slots_of_its_own(world: ClusterWorld) -> None:
    world.deployment()
    world.store.create_deployment(deployment_id="near", command=["/bin/true"])
    for n in range(3):
        add(world.store, f"far-{n}", deployment_id="far")
    for n in range(5):
        add(world.store, f"near-{n}", deployment_id="near")
    world.clock.advance(MINUTE)
    world.step()
    assert [name for names in world.status().values() for name in sorted(names)].count("far") == 2
    assert [name for names in world.status().values() for name in names].count("near") == 4
    view = world.store.server_status()
    assert (view.slots_used, view.slots_total) == (4, 4)
    assert view.executors == ({"name": "slurm", "slots_used": 2, "slots_total": 2},)
    held = [row for row in world.store.list_schedule_occurrences().items if row.status == "pending"]
    assert sorted(row.reason.get("executor", "local") for row in held if row.reason) == ["local", "slurm"]
    world.end(exit_status=0)
    world.step()
    assert len(world.runs()) == 7, "a slot of this machine is for this machine"


def test_7_7_while_the_controller_is_away_nothing_is_admitted_to_it_and_the_rest_is(world: ClusterWorld) -> None:
    world.deployment()
    world.store.create_deployment(deployment_id="near", command=["/bin/true"])
    add(world.store, "far", deployment_id="far")
    add(world.store, "near", deployment_id="near")
    world.clock.advance(MINUTE)
    world.until(world.fake.jobs, "the job")
    world.end(exit_status=0)
    world.fake.down()
    world.until(lambda: "slurm" in world.service.problems, "the problem")
    for _ in range(3):
        world.clock.advance(MINUTE)
        world.step()
        world.end(exit_status=0)
        world.step()
    assert [row.status for row in world.occurrences("near")] == ["completed"] * 4
    assert history(world, "far") == ["09:01 admitted"], "what comes due is left for later"
    world.fake.up()
    world.fake.run("run-000001-1")
    world.until(lambda: world.status().get("completed", []).count("far") == 1, "the end")
    assert "slurm" not in world.service.problems
    world.step()
    assert history(world, "far")[1:3] == ["09:02 skipped-misfire missed", "09:03 skipped-misfire missed"]


def test_7_1_a_supervisor_that_comes_back_while_the_controller_is_away_keeps_what_runs(world: ClusterWorld) -> None:
    world.deployment()
    run = world.store
    add(run, "far", deployment_id="far")
    world.clock.advance(MINUTE)
    world.until(world.fake.jobs, "the job")
    process = world.fake.start("run-000001-1")
    process.wait(10)
    world.die()
    world.fake.down()
    world.step()
    assert world.status() == {"admitted": ["far"]}
    world.fake.end("run-000001-1", "COMPLETED")
    world.fake.up()
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")


def test_5_9_without_a_cluster_in_the_settings_it_is_rejected_before_a_run(world: ClusterWorld) -> None:
    world.has_cluster = False
    world.deployment()
    add(world.store, "s", deployment_id="far")
    world.clock.advance(MINUTE)
    world.step()
    row = world.occurrences("s")[0]
    assert row.status == "preflight-rejected"
    assert row.reason is not None
    assert row.reason["problems"][0]["message"] == MISSING
    with pytest.raises(PreflightFailed, match="no cluster"):
        world.store.start_run(deployment_id="far")


def test_settings_that_lose_the_cluster_leave_its_runs_as_they_are(world: ClusterWorld) -> None:
    world.deployment()
    add(world.store, "s", deployment_id="far")
    world.clock.advance(MINUTE)
    world.until(world.fake.jobs, "the job")
    world.die()
    world.has_cluster = False
    for _ in range(3):
        world.step()
    assert world.status() == {"admitted": ["far"]}
    world.die()
    world.has_cluster = True
    world.step()
    world.fake.run("run-000001-1")
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")


def test_6_10_a_run_that_could_not_be_sent_in_time_is_not_started(world: ClusterWorld) -> None:
    world.deployment()
    add(world.store, "s", deployment_id="far", lateness="30s")
    add(world.store, "patient", deployment_id="far", misfire="latest")
    world.clock.advance(MINUTE)
    world.until(lambda: len(world.fake.jobs()) == 2, "the jobs")  # a node has seen the folder by now
    for name in ("run-000001-1", "run-000002-1"):
        world.fake.run(name)
    world.until(lambda: world.status() == {"completed": ["far", "far"]}, "their ends")
    world.fake.down()
    world.clock.advance(MINUTE)
    world.step()
    assert len(world.runs()) == 4, "nobody has asked since it went away"
    world.until(lambda: "slurm" in world.service.problems and not world.busy(), "the problem")
    world.clock.advance(timedelta(seconds=40))
    world.fake.up()
    world.until(lambda: world.status().get("failed") == ["far"], "the one that is too late")
    reasons = {run.schedule_id: run.reason for run in world.runs() if run.status == "failed"}
    assert {name: reason["code"] for name, reason in reasons.items() if reason} == {"s": "not-started"}
    other = next(run.run_id for run in world.runs() if run.schedule_id == "patient" and run.status == "admitted")
    world.until(lambda: any(job["name"].endswith(f"{other}-2") for job in world.fake.jobs()), "the other, marked anew")


ENDS = {
    "TIMEOUT": "time-limit",
    "OUT_OF_MEMORY": "out-of-memory",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node-failed",
    "CANCELLED": "cancelled-outside",
    "": "outcome-unknown",  # the controller has forgotten it
}


def test_6_9_each_end_from_outside_has_its_own_reason_and_nothing_is_tried_again(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SILENCE_S", 0.3)
    world.given["max_concurrent_runs"] = 20
    world.deployment(retries=3)
    for state in ENDS:
        add(world.store, f"ends-{state.lower() or 'forgotten'}", deployment_id="far")
    world.clock.advance(MINUTE)
    world.until(lambda: len(world.fake.jobs()) == len(ENDS), "the jobs")
    said = {run.schedule_id: run.run_id for run in world.runs()}
    for state in ENDS:
        name = f"{said['ends-' + (state.lower() or 'forgotten')]}-1"
        place = world.shared / world.store.context.ledger.store_id / name.rpartition("-")[0] / "1"
        (place / "claim").write_text('{"by": "job", "job": "1", "node": "n1", "at": 1}\n')  # its program was begun
        if state:
            world.fake.end(name, state, 9)
        else:
            world.fake.forget(name)
    world.until(lambda: all(run.status == "failed" for run in world.runs()), "their ends")
    world.clock.advance(timedelta(seconds=20))
    world.step()
    for state, code in ENDS.items():
        run = next(run for run in world.runs() if run.schedule_id == f"ends-{state.lower() or 'forgotten'}")
        assert run.reason is not None
        assert (run.status, run.reason["code"], [each.k for each in run.trace]) == ("failed", code, [1]), state
        assert run.reason["effects"]
    assert len(world.fake.jobs()) == len(ENDS) - 1, "nothing was submitted again"


def recording(world: ClusterWorld) -> Path:
    """Make a deployment whose runs write their name, due in a minute; return the file."""
    side = world.root.parent / "side"
    command = ["/bin/sh", "-c", f'echo "$WFCTL_RUN_ID $WFCTL_EXECUTION" >> {side}']
    world.store.create_deployment(deployment_id="far", command=command, executor="slurm")
    add(world.store, "s", deployment_id="far")
    world.until(lambda: True, "a first step")
    world.clock.advance(MINUTE)
    return side


def test_6_2_a_crash_between_the_mark_and_the_submission_launches_once(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = recording(world)
    with monkeypatch.context() as nothing:
        nothing.setattr(SlurmExecutor, "launch", lambda self, requests: None)
        world.step()
    assert world.status() == {"admitted": ["far"]}
    assert world.fake.jobs() == []
    world.die()
    world.until(world.fake.jobs, "the job, marked anew")
    for job in world.fake.jobs():
        world.fake.run(job["name"])
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")
    assert side.read_text() == "run-000001 2\n", "the first never was, and never can be"
    assert len(world.fake.jobs()) == 1


def test_6_2_a_crash_between_the_submission_and_its_note_launches_once(world: ClusterWorld) -> None:
    side = recording(world)
    world.step()
    wait_for(lambda: world.fake.run_probes() or world.fake.jobs(), "the job")
    world.die()
    world.until(lambda: True, "the next supervisor")
    assert world.status() == {"admitted": ["far"]}
    world.fake.run("run-000001-1")
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")
    assert side.read_text() == "run-000001 1\n"
    assert len(world.fake.jobs()) == 1


def test_6_2_a_submission_that_arrives_after_its_run_was_settled_runs_nothing(world: ClusterWorld) -> None:
    side = recording(world)
    world.step()
    job = wait_for(lambda: world.fake.run_probes() or world.fake.jobs(), "the job")[0]
    world.die()
    world.fake.forget("run-000001-1")  # as though it still were on its way
    world.until(world.fake.jobs, "the job, marked anew")
    world.fake.run("run-000001-2")
    world.until(lambda: world.status() == {"completed": ["far"]}, "its end")
    with world.fake.state() as state:
        state["jobs"].append(job)
    assert world.fake.run("run-000001-1") == 0
    assert side.read_text() == "run-000001 2\n"
