"""A store at one glance: what a board shows, read from the ledger alone (contract 9.3)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.story import World
from wfctl.operations.glance import glance, lately, stamp, told_of
from wfctl.operations.store import init_store
from wfctl.operations.transitions import Feed


def world_of(tmp_path: Path) -> World:
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    return world


def test_what_is_there_is_named(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    store, context = world.store, world.store.context
    for number in range(1, 8):
        store.create_schedule(schedule_id=f"s{number}", deployment_id="d", trigger={"kind": "interval", "every": f"{number}m"})
    store.pause_schedule(schedule_id="s3")
    file = world.root / "schedules" / "s4.toml"
    file.write_text(file.read_text().replace("interval", "intervall"))
    world.clock.advance(timedelta(seconds=60))
    world.step()
    found = glance(context, coming=3)
    assert [(each.name, each.is_manual, each.message) for each in found.going] == [("s1", False, None)]
    assert [name for name, _ in found.coming] == ["s1", "s2", "s5"], "the soonest, without the paused and the blocked one"
    assert [name for name, _ in found.blocked] == ["s4"]
    assert "intervall" in found.blocked[0][1]
    assert found.counts == {"active": 5, "paused": 1, "blocked": 1, "finished": 0}
    assert (found.slots_used, found.asking, found.held_up, found.unnamed) == (1, (), (), 0)
    world.die()


def test_a_oneshot_that_is_over_is_finished(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    at = (world.clock.now() + timedelta(minutes=1)).isoformat()
    world.store.create_schedule(schedule_id="once", deployment_id="d", trigger={"kind": "oneshot", "at": at})
    assert glance(world.store.context, coming=3).counts["active"] == 1
    world.clock.advance(timedelta(minutes=1))
    world.step()
    assert glance(world.store.context, coming=3).counts == {"active": 0, "paused": 0, "blocked": 0, "finished": 1}
    world.die()


def test_what_happened_before_and_since_is_told_alike(tmp_path: Path) -> None:
    """A board that begins later shows of each run and occurrence where it stands; one that was there saw it come to that."""
    world = world_of(tmp_path)
    store, context = world.store, world.store.context
    feed = Feed(context)
    before = stamp(context)
    assert stamp(context) == before
    store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1m"})
    assert stamp(context) != before
    for _ in range(3):
        world.clock.advance(timedelta(minutes=1))
        world.step()
    world.clock.advance(timedelta(seconds=5))
    world.end(exit_status=3)
    world.step()
    told = [told_of(context, view) for view in feed.look()]
    since = [each for each in told if each.run_id or each.to.startswith("skipped")]
    assert {each.to for each in since} == {"admitted", "running", "skipped-overlap", "failed"}
    shown = lately(context, 10)
    assert [(each.name, each.to) for each in shown] == [("s", "skipped-overlap"), ("s", "skipped-overlap"), ("s", "failed")]
    assert shown == [each for each in since if each.to not in ("admitted", "running")]
    assert lately(context, 1) == shown[-1:]
    world.die()


def test_a_run_by_hand_goes_by_its_deployment(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.step()
    feed = Feed(world.store.context)
    run = world.store.start_run(deployment_id="d").run_id
    world.step()
    found = glance(world.store.context, coming=3)
    assert [(each.run_id, each.name, each.is_manual) for each in found.going] == [(run, "d", True)]
    assert {(each.name, each.run_id) for each in (told_of(world.store.context, view) for view in feed.look())} == {("d", run)}
    assert [(each.name, each.run_id) for each in lately(world.store.context, 10)] == [("d", run)]
    world.die()
