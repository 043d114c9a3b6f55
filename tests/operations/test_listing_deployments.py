"""Listing deployments: the same of each as when it is asked for by name, and nothing is parsed (contract 8.7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.story import World
from wfctl.operations.store import init_store
from wfctl.store import definitions as files


@pytest.fixture
def world(tmp_path: Path) -> World:
    init_store(tmp_path / "store").close()
    return World(tmp_path / "store")


def add(world: World, *names: str) -> None:
    for name in names:
        world.store.create_deployment(deployment_id=name, command=["/bin/true"], description=f"it is {name}")


def use(world: World, schedule_id: str, deployment_id: str) -> None:
    trigger = {"kind": "interval", "every": "1h"}
    world.store.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=trigger)


def test_each_is_listed_as_it_is_shown_by_itself(world: World) -> None:
    add(world, "used", "unused", "deleted", "broken")
    for name in ("b", "a", "gone"):
        use(world, name, "used")
    use(world, "c", "broken")
    world.store.delete_schedule(schedule_id="gone")
    world.store.delete_deployment(deployment_id="deleted")
    (world.root / "deployments/broken.toml").write_text("format = 2\n")
    (world.root / "deployments/never.toml").write_text("nothing\n")
    listed = {view.id: view for view in world.store.list_deployments(include_deleted=True)}
    assert {name: (view.state, view.schedules) for name, view in listed.items()} == {
        "broken": ("blocked", ("c",)), "deleted": ("deleted", ()), "never": ("blocked", ()), "unused": ("active", ()),
        "used": ("active", ("a", "b")),
    }  # fmt: skip
    assert {name: world.store.get_deployment(deployment_id=name) for name in listed} == listed
    assert [view.id for view in world.store.list_deployments()] == ["broken", "never", "unused", "used"]


def test_pages_are_parts_of_the_whole(world: World) -> None:
    add(world, *(f"d{number}" for number in range(5)))
    use(world, "s", "d3")
    whole = world.store.list_deployments()
    found: list[object] = []
    cursor = None
    while True:
        page = world.store.list_deployments(limit=2, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == list(whole)


@pytest.mark.parametrize("column", ["digest", "plain"])
def test_7_4_one_whose_record_cannot_be_read_does_not_keep_the_others_from_being_listed(world: World, column: str) -> None:
    add(world, "a", "b")
    with world.store.context.ledger.transaction() as connection:
        row = "SELECT number FROM definitions WHERE id = 'a' AND kind = 0"
        connection.execute(f"UPDATE revisions SET {column} = 'x' WHERE definition = ({row})")
    a, b = world.store.list_deployments()
    assert (a.id, b.state) == ("a", "active")


def test_a_thousand_take_no_more_questions_than_ten_and_none_is_parsed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    parsers = {kind: lambda content: pytest.fail("it was parsed") for kind in files.PARSERS}
    for number in range(30):
        add(world, f"d{number}")
        if number in (4, 29):
            monkeypatch.setattr(files, "PARSERS", parsers)
            asked: list[str] = []
            world.store.context.ledger.connection.set_trace_callback(asked.append)
            assert len(world.store.list_deployments()) == number + 1
            world.store.context.ledger.connection.set_trace_callback(None)
            counts.append(len(asked))
            monkeypatch.undo()
    assert counts[0] == counts[1] < 12
