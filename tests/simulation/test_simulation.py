"""Random stories on the real ledger: the laws hold whatever happens, and the same seed gives the same ledger."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.chance import times
from tests.support.simulation import NAMES, Act, dump, play, random_story, shrink
from tests.support.story import World
from wfctl.operations.store import init_store

_SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of commits are synced here."""
    parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent, prefix="wfctl-test-") as name:
        yield Path(name)


def broken_law(world: World) -> str | None:
    """Return which promise does not hold, or None."""
    launched = [(request.run, request.k) for request in world.keeper.world.launches]
    if len(launched) != len(set(launched)):
        return "an execution was launched twice"
    by_occurrence: dict[tuple[str, str], set[str]] = {}
    for request in world.keeper.world.launches:
        environment = request.environment
        if environment["WFCTL_OCCURRENCE"]:
            key = (environment["WFCTL_SCHEDULE_ID"], environment["WFCTL_OCCURRENCE"])
            by_occurrence.setdefault(key, set()).add(request.run)
    if any(len(runs) > 1 for runs in by_occurrence.values()):
        return "an occurrence had two runs"
    for name in NAMES:
        rows = world.occurrences(name)
        instants = [row.instant for row in rows]
        if len(instants) != len(set(instants)):
            return f"{name}: an instant has two rows"
        audit = world.store.audit_schedule(schedule_id=name)
        if not audit.is_balanced:
            return f"{name}: the audit does not balance: {audit.problems}"
    for run in world.runs():
        if run.status in ("admitted", "running"):
            return f"{run.run_id} is {run.status} for ever"
    return None


def fails(story: Sequence[Act]) -> bool:
    """Tell whether a story breaks a law."""
    with tempfile.TemporaryDirectory(prefix="wfctl-test-") as name:
        world = play(Path(name) / "store", story)
        try:
            return broken_law(world) is not None
        finally:
            world.die()


def test_3_a_clock_step_before_a_restart_does_not_stretch_a_retry_delay(place: Path) -> None:
    """Found by seed 231."""
    world = play(place / "store", [])
    world.store.resume_schedule(schedule_id="b")
    world.clock.set(world.clock.now().replace(minute=4, second=59))
    world.clock.advance(timedelta(seconds=2))
    world.step()
    (run, k), *_ = world.keeper.running
    world.keeper.end(run, k, exit_status=7)
    world.step()
    world.die()
    world.clock.set(world.clock.now() - timedelta(minutes=50))
    world.step()
    world.clock.advance(timedelta(seconds=6))
    world.step()
    assert world.keeper.running == [(run, k + 1)]
    world.die()


@pytest.mark.parametrize("seed", range(times(12)))
def test_a_random_story_breaks_no_law(place: Path, seed: int) -> None:
    """Contract 5.15, 6.1, 6.2, 7.1."""
    story = random_story(seed)
    world = play(place / "store", story)
    broken = broken_law(world)
    world.die()
    if broken:
        shorter = "\n  ".join(map(str, shrink(story, fails)))
        pytest.fail(f"seed {seed}: {broken}\na shorter story that fails:\n  {shorter}")


@pytest.mark.parametrize("seed", [3, 17])
def test_the_same_seed_gives_the_same_ledger(place: Path, seed: int) -> None:
    dumps = []
    for turn in ("first", "second"):
        world = play(place / turn, random_story(seed))
        world.die()
        dumps.append([line.replace(str(place / turn), "STORE") for line in dump(place / turn / "ledger.db")])
    assert dumps[0] == dumps[1]


def test_a_season_of_an_hourly_schedule(place: Path) -> None:
    """1,440 occurrences through the real decision and ledger code, each completed; by hand it may be a year (8,760)."""
    hours = min(times(60), 365) * 24
    init_store(place / "store").close()
    world = World(place / "store")
    world.keeper.world.script = lambda request: 0
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    world.store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "cron", "expression": "0 * * * *"})
    world.step()
    for _ in range(hours):
        world.clock.advance(timedelta(hours=1) if world.clock.now().minute == 0 else timedelta(minutes=29, seconds=30))
        world.step()
    world.step()
    rows = world.occurrences("s")
    assert len(rows) == hours
    assert {row.status for row in rows} == {"completed"}
    assert all(two.instant - one.instant == timedelta(hours=1) for one, two in itertools.pairwise(rows))
    world.die()
