"""Die at the n-th durable write, n = 1, 2, 3 … to the end of the story; a new supervisor goes on, and the laws hold.

Each time the new supervisor dies as well, half a story later: so each write is cut, in half as many stories.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.story import World
from wfctl.errors import Exists, RevisionConflict, WrongState
from wfctl.operations.store import init_store
from wfctl.store.disk import Disk

MINUTE = timedelta(minutes=1)
PARTS = 4
Act = Callable[[World], object]


def _create(world: World) -> None:
    for name, command in (("one", {"command": ["/bin/true"]}), ("two", _TWO_STEPS)):
        try:
            world.store.create_deployment(deployment_id=name, **command)  # type: ignore[arg-type]
        except Exists:
            pass
    every_minute = {"kind": "cron", "expression": "* * * * *"}
    for name, deployment, policy in (("a", "one", "skip"), ("b", "two", "queue")):
        try:
            world.store.create_schedule(schedule_id=name, deployment_id=deployment, trigger=every_minute, overlap=policy)
        except Exists:
            pass


_TWO_STEPS = {"steps": [{"name": "first", "command": ["/bin/true"]}, {"name": "second", "command": ["/bin/true"]}]}


def _minute(world: World) -> None:
    world.clock.advance(MINUTE)
    world.step()


def _end(world: World) -> None:
    world.end()
    world.step()
    world.step()


def _fail(world: World) -> None:
    world.end(exit_status=3)
    world.step()


def _edit(world: World) -> None:
    revision = world.store.get_schedule(schedule_id="a").revision
    if revision == 1:
        try:
            world.store.update_schedule(schedule_id="a", expected_revision=1, notes="edited", overlap="queue")
        except RevisionConflict:
            pass


def _hand_edit(world: World) -> None:
    path = world.root / "schedules" / "b.toml"
    text = path.read_text()
    if "by hand" not in text:
        Disk().write_file(path, text.replace('overlap = "queue"', 'notes = "by hand"\noverlap = "queue"').encode())
    world.store.get_schedule(schedule_id="b")


def _pause(world: World) -> None:
    world.store.pause_schedule(schedule_id="a", reason="maintenance")


def _resume(world: World) -> None:
    world.store.resume_schedule(schedule_id="a")


def _cancel(world: World) -> None:
    world.step()  # so that a supervisor is there to be asked
    for run in world.store.list_runs(status="running").items[:1]:
        try:
            world.store.cancel_run(run_id=run.run_id)
        except WrongState:
            pass
    world.step()


def _pause_b(world: World) -> None:
    world.store.pause_schedule(schedule_id="b")


def _delete(world: World) -> None:
    world.store.delete_schedule(schedule_id="b")


STORY: list[Act] = [
    _create, World.step, _minute, _end, _minute, _minute, _fail, _edit, _minute, _end, _hand_edit, _minute, _pause,
    _minute, _end, _resume, _minute, _minute, _cancel, _end, _end, _delete, _minute, _end, _end, _end,
]  # fmt: skip


def _create_asking(world: World) -> None:
    asking = {"steps": [{"name": name, "command": ["/bin/true"]} for name in ("build", "ask", "publish")]}
    for name, command in (("asks", asking), ("hangs", {"command": ["/bin/true"], "retries": 1, "retry_delay": "1s"})):
        try:
            world.store.create_deployment(deployment_id=name, **command)  # type: ignore[arg-type]
        except Exists:
            pass
    hourly = {"kind": "cron", "expression": "0 * * * *"}
    every_minute = {"kind": "cron", "expression": "* * * * *"}
    for name, deployment, trigger in (("a", "asks", hourly), ("b", "hangs", every_minute)):
        try:
            world.store.create_schedule(schedule_id=name, deployment_id=deployment, trigger=trigger, max_run="5m")
        except Exists:
            pass


def _ask(world: World) -> None:
    """Let the step that asks stop with a question, if it is at work."""
    for run, k in list(world.keeper.world.running):
        environment = world.keeper.world.requests[(run, k)].environment
        if environment["WFCTL_STEP"] == "ask" and "WFCTL_RESUME" not in environment:
            Path(environment["WFCTL_INTERRUPT"]).write_text('{"message": "go on?"}')
            world.keeper.end(run, k, exit_status=75)
    world.step()


def _answer(world: World) -> None:
    world.step()
    for run in world.store.list_runs(status="interrupted").items:
        try:
            world.store.resume_run(run_id=run.run_id, input={"approved": True})
        except WrongState:
            pass
    world.step()


def _hour(world: World) -> None:
    world.clock.set(world.clock.now().replace(minute=59, second=30))
    world.clock.advance(MINUTE)
    world.step()


def _overrun(world: World) -> None:
    """Let what is at work pass its `max_run` and be ended for it."""
    world.step()
    world.clock.advance(6 * MINUTE)
    for _ in range(3):
        world.step()


def _drain(world: World) -> None:
    world.step()
    world.store.drain()
    world.clock.advance(MINUTE)
    world.step()
    world.store.drain(undo=True)
    world.step()


ASKING: list[Act] = [
    _create_asking, World.step, _hour, _fail, World.step, _end, _ask, _answer, _end, _end, _overrun, _drain, _hour, _end, _ask,
    _minute, _end, _answer, _end, _end, _end, _pause, _pause_b, _end, _end, _end, _end,
]  # fmt: skip


def play(world: World, story: list[Act], second: Disk) -> int:
    """Play a story; where the world's disk lets a process die, go on with the same act in a new one. Return the deaths.

    `second` is the disk of the second process, which may die, too; the third one lives.
    """
    deaths = 0
    for act in story:
        for _ in range(3):
            try:
                act(world)
                break
            except SimulatedCrash:
                deaths += 1
                world.die()
                world.disk = second if deaths == 1 else Disk()
    return deaths


def cut_stories(folder: Path, story: list[Act], part: int) -> Iterator[tuple[World, str]]:
    """Play a story with one write after another cut; give each world at its end, and what to say of it."""
    half = _writes(folder / "whole", story) // 2 + 3  # a new process makes some writes of its own
    assert half > 25, "the story hardly writes"
    for budget in range(part, half, PARTS):
        world = _world(folder / str(budget))
        world.disk = CrashingDisk(budget)
        deaths = play(world, story, CrashingDisk(half))
        assert deaths, f"cut {budget} was none"
        world.die()
        world.disk = Disk()
        yield world, f"cuts {budget} and {half} later"
        world.die()


def _world(root: Path) -> World:
    init_store(root).close()
    return World(root)


def _writes(root: Path, story: list[Act]) -> int:
    """Return how many writes a story makes where nobody dies."""
    world = _world(root)
    disk = world.disk = CrashingDisk(10_000)
    assert play(world, story, Disk()) == 0
    world.die()
    return len(disk.seen)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: every cut syncs a story's worth of commits, and no power is cut here."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="wfctl-test-") as name:
        yield Path(name)


@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold_after_a_crash_at_every_write(tmp_path: Path, part: int) -> None:
    """Contract 2.4, 5.13, 5.15, 6.1, 6.2, 7.1. The cuts are dealt out in parts, for the sake of several processors."""
    for world, where in cut_stories(tmp_path, STORY, part):
        assert_laws(world, where)


def assert_laws(world: World, where: str) -> None:
    verified = world.store.verify_store(deep=True)
    assert verified.ok and not verified.notes, f"{where}: {verified.contradictions} {verified.notes}"
    launched = [(request.run, request.k) for request in world.keeper.world.launches]
    assert len(launched) == len(set(launched)), f"{where}: launched twice"
    occurrences = [
        (request.environment["WFCTL_SCHEDULE_ID"], request.environment["WFCTL_OCCURRENCE"], request.environment["WFCTL_STEP"])
        for request in world.keeper.world.launches
    ]
    assert len(occurrences) == len(set(occurrences)), f"{where}: a step of an occurrence ran twice"
    for name in ("a", "b"):
        rows = world.occurrences(name)
        instants = [row.instant for row in rows]
        assert instants == sorted(set(instants)), f"{where}: {name} repeats or disorders {instants}"
        gaps = [(one, two) for one, two in itertools.pairwise(instants) if two - one != MINUTE]
        assert len(gaps) <= (1 if name == "a" else 0), f"{where}: {name} lost instants at {gaps}"  # a was paused once
        runs = [row.run_id for row in rows if row.run_id]
        assert len(runs) == len(set(runs))
        audit = world.store.audit_schedule(schedule_id=name)
        assert audit.is_balanced and not audit.unchecked, f"{where}: {name}: {audit.problems}"
    for run in world.runs():
        assert run.status in ("completed", "failed", "cancelled"), f"{where}: {run.run_id} is {run.status} for ever"
        if run.status == "failed":
            assert run.reason and run.reason["code"] in ("exit", "not-started"), f"{where}: {run.reason}"
        assert all(execution.exit_status is not None or run.status != "completed" for execution in run.trace)
    assert world.store.get_schedule(schedule_id="b").state == "deleted"
    assert world.store.get_schedule(schedule_id="a").revision == 2, where
    assert not (world.root / "schedules" / "b.toml").exists()


@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold_when_runs_ask_are_resumed_overrun_and_drained(tmp_path: Path, part: int) -> None:
    """Contract 6.8, 6.11, 6.13, 7.6 with every write cut once."""
    for world, where in cut_stories(tmp_path, ASKING, part):
        _assert_asking_laws(world, where)


def _assert_asking_laws(world: World, where: str) -> None:
    launched = [(request.run, request.k) for request in world.keeper.world.launches]
    assert len(launched) == len(set(launched)), f"{where}: launched twice"
    for run in world.runs():
        assert run.status in ("completed", "failed", "interrupted"), f"{where}: {run.run_id} is {run.status} for ever"
        if run.reason:
            assert run.reason["code"] in ("exit", "deadline", "not-started"), f"{where}: {run.run_id} {run.reason}"
        attempts = [execution.attempt for execution in run.trace]
        assert attempts == sorted(attempts)
        assert run.attempt <= 2, f"{where}: one answer made {run.attempt} attempts"
        by_step: dict[str, int] = {}
        for execution in run.trace:
            by_step[execution.step] = by_step.get(execution.step, 0) + 1
        assert by_step.get("publish", 0) <= 1, f"{where}: published twice"
    for name in ("a", "b"):
        instants = [row.instant for row in world.occurrences(name)]
        assert instants == sorted(set(instants))
        audit = world.store.audit_schedule(schedule_id=name)
        assert audit.is_balanced, f"{where}: {name}: {audit.problems}"


@pytest.mark.parametrize("act", ["pause", "delete"])
def test_5_13_a_change_that_returned_is_never_followed_by_an_admission(tmp_path: Path, act: str) -> None:
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    _create(world)
    world.step()
    getattr(world.store, f"{act}_schedule")(schedule_id="a")
    world.clock.advance(MINUTE)
    world.step()
    assert not world.occurrences("a")
    world.die()
