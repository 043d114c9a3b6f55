"""Interrupted runs: they wait, hold their overlap slot and no execution slot, and go on with input (6.5, 6.13, 7.2, 7.6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.story import World
from wfctl.errors import Draining, InvalidArgument, InvalidDefinition, NoSupervisor, NotFound, Saturated, WrongState
from wfctl.keeper.protocol import LaunchRequest
from wfctl.operations.store import init_store

MINUTE = timedelta(minutes=1)
EVERY_MINUTE = {"kind": "cron", "expression": "* * * * *"}
ASKING = {
    "message": "approve?",
    "schema": {"type": "object", "required": ["approved"], "properties": {"approved": {"type": "boolean"}}},
}
STEPS = [{"name": name, "command": ["/bin/true"]} for name in ("prepare", "ask", "finish")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    init_store(tmp_path / "store").close()
    made = World(tmp_path / "store")
    made.store.create_deployment(deployment_id="d", steps=STEPS)
    made.store.create_schedule(schedule_id="s", deployment_id="d", trigger=EVERY_MINUTE, overlap="queue")
    made.step()
    yield made
    made.die()


def interrupt(world: World, asking: object = ASKING) -> str:
    """Let the next minute's run stop at its second step to ask; return its id."""
    world.clock.advance(MINUTE)
    world.step()
    world.end()
    world.step()
    (run, k) = world.keeper.running[-1]
    request = world.keeper.world.requests[(run, k)]
    Path(request.environment["WFCTL_INTERRUPT"]).write_text(json.dumps(asking))
    Path(request.environment["WFCTL_CHECKPOINT"]).write_text("so far")
    world.end(exit_status=75)
    world.step()
    assert world.store.inspect_run(run_id=run).status == "interrupted"
    return run


def launched(world: World, run: str) -> list[LaunchRequest]:
    return [request for request in world.keeper.world.launches if request.run == run]


def test_6_13_a_resume_runs_the_interrupted_step_again_with_the_input(world: World) -> None:
    run = interrupt(world)
    view = world.store.resume_run(run_id=run, input={"approved": True})
    assert (view.status, view.attempt, view.interrupt) == ("running", 2, None)
    again = launched(world, run)[-1]
    assert (again.k, again.environment["WFCTL_STEP"], again.environment["WFCTL_ATTEMPT"]) == (3, "ask", "2")
    assert json.loads(Path(again.environment["WFCTL_RESUME"]).read_text()) == {"approved": True}
    assert Path(again.environment["WFCTL_CHECKPOINT"]).read_text() == "so far"
    world.end()
    world.step()
    world.end()
    world.step()
    done = world.store.inspect_run(run_id=run)
    assert done.status == "completed"
    assert [execution.step for execution in done.trace] == ["prepare", "ask", "ask", "finish"]
    assert [execution.attempt for execution in done.trace] == [1, 1, 2, 2]


def test_7_2_it_keeps_its_overlap_slot_and_holds_no_execution_slot(world: World) -> None:
    run = interrupt(world)
    world.clock.advance(MINUTE)
    world.step()
    schedule = world.store.get_schedule(schedule_id="s")
    assert schedule.candidate is not None and schedule.candidate.reason["runs"] == [run]
    assert world.store.server_status().slots_used == 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param({}, InvalidDefinition, id="what the schema requires is missing"),
        pytest.param({"approved": "yes"}, InvalidDefinition, id="of the wrong type"),
        pytest.param([True], InvalidArgument, id="no object"),
    ],
)
def test_6_13_an_input_that_the_job_does_not_accept_changes_nothing(
    world: World, given: object, error: type[Exception]
) -> None:
    run = interrupt(world)
    before = world.store.inspect_run(run_id=run).to_json()
    with pytest.raises(error):
        world.store.resume_run(run_id=run, input=given)  # type: ignore[arg-type]
    assert world.store.inspect_run(run_id=run).to_json() == before
    assert len(launched(world, run)) == 2


def test_6_13_a_resume_is_refused_while_saturated_or_draining_and_changes_nothing(world: World) -> None:
    run = interrupt(world)
    world.store.create_deployment(deployment_id="busy", command=["/bin/true"])
    for number in range(4):
        world.store.create_schedule(schedule_id=f"busy-{number}", deployment_id="busy", trigger=EVERY_MINUTE)
    world.clock.advance(MINUTE)
    world.step()
    assert world.store.server_status().slots_used == 4
    with pytest.raises(Saturated):
        world.store.resume_run(run_id=run, input={"approved": True})
    world.end()
    world.step()
    assert world.store.drain().state == "draining"
    with pytest.raises(Draining):
        world.store.resume_run(run_id=run, input={"approved": True})
    assert world.store.inspect_run(run_id=run).attempt == 1
    world.store.drain(undo=True)
    assert world.store.resume_run(run_id=run, input={"approved": True}).attempt == 2


def test_6_13_only_a_run_that_waits_can_be_resumed_and_only_once(world: World) -> None:
    run = interrupt(world)
    world.store.resume_run(run_id=run, input={"approved": True})
    with pytest.raises(WrongState):
        world.store.resume_run(run_id=run, input={"approved": True})
    with pytest.raises(NotFound):
        world.store.resume_run(run_id="run-000099", input={})


def test_6_13_a_scheduled_run_needs_the_supervisor(world: World) -> None:
    run = interrupt(world)
    world.die()
    with pytest.raises(NoSupervisor):
        world.store.resume_run(run_id=run, input={"approved": True})


def test_7_1_it_stays_resumable_over_a_restart(world: World) -> None:
    run = interrupt(world)
    world.die()
    world.clock.advance(timedelta(days=3))
    world.step()
    assert world.store.resume_run(run_id=run, input={"approved": True}).status == "running"


def test_6_8_waiting_for_input_does_not_count_against_max_run(world: World) -> None:
    run = interrupt(world)
    limit = world.store.inspect_run(run_id=run).max_run_s
    assert limit is not None
    world.clock.advance(timedelta(seconds=10 * limit))
    world.store.resume_run(run_id=run, input={"approved": True})
    world.step()
    world.step()
    assert world.store.inspect_run(run_id=run).status == "running"
    world.clock.advance(timedelta(seconds=limit + 1))
    world.step()
    world.step()
    assert (world.store.inspect_run(run_id=run).reason or {})["code"] == "deadline"


def test_6_14_an_interrupted_run_can_be_cancelled(world: World) -> None:
    run = interrupt(world)
    assert world.store.cancel_run(run_id=run).status == "cancelled"
    assert (world.occurrences("s")[0].reason or {})["code"] == "cancelled"


def test_7_6_a_drain_stops_admission_and_what_came_due_meanwhile_is_missed(world: World) -> None:
    world.store.drain()
    world.clock.advance(5 * MINUTE)
    world.step()
    assert not world.occurrences("s")
    world.store.drain(undo=True)
    world.step()
    assert [row.status for row in world.occurrences("s")] == ["skipped-misfire"] * 4 + ["admitted"]


def test_7_6_a_late_resume_is_cancelled_at_the_end_of_a_drain_and_another_run_is_not(world: World) -> None:
    run = interrupt(world)
    world.store.create_deployment(deployment_id="plain", command=["/bin/true"])
    world.store.create_schedule(schedule_id="other", deployment_id="plain", trigger=EVERY_MINUTE)
    world.clock.advance(MINUTE)
    world.step()
    (other,) = [name for name, _ in world.keeper.running]
    world.store.resume_run(run_id=run, input={"approved": True})
    world.step()
    world.stop()
    ended = world.store.inspect_run(run_id=run)
    assert (ended.status, (ended.reason or {})["code"]) == ("failed", "drained")
    assert world.store.inspect_run(run_id=other).status == "running"
    assert [stopped[0] for stopped in world.keeper.world.stops] == [run]
