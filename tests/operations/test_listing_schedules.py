"""Listing schedules: quick for the many that are well, and the same of each as when it is asked for by name (contract 8.7)."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.story import World
from wfctl.operations.listing_schedules import ListedSchedule, rows_of
from wfctl.operations.shown import ScheduleView
from wfctl.operations.store import init_store

EACH_MINUTE = {"kind": "cron", "expression": "* * * * *", "timezone": "Europe/Budapest"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    for name in ("d", "broken"):
        world.store.create_deployment(deployment_id=name, command=["/bin/true"])
    return world


def add(world: World, name: str, **fields: object) -> None:
    given = {"deployment_id": "d", "trigger": EACH_MINUTE, **fields}
    world.store.create_schedule(schedule_id=name, **given)  # type: ignore[arg-type]


def test_each_is_listed_as_it_is_shown_by_itself(world: World) -> None:
    soon = world.clock.now() + timedelta(seconds=90)
    add(world, "active", input={"a": [1, {"b": 1.5}]}, max_run="none")
    add(world, "blocked", deployment_id="broken")
    add(world, "deleted")
    add(world, "edited", notes="by hand")
    add(world, "finished", trigger={"kind": "oneshot", "at": soon.isoformat()})
    add(world, "held", overlap="queue")
    add(world, "interval", trigger={"kind": "interval", "every": "10m"}, overlap="parallel", max_active_runs=2)
    add(world, "paused")
    add(world, "waiting", trigger={"kind": "oneshot", "at": (soon + timedelta(days=9)).isoformat()})
    for _ in range(3):
        world.step()
        world.clock.advance(timedelta(minutes=1))
    world.step()
    world.store.pause_schedule(schedule_id="paused", reason="for a while")
    world.store.delete_schedule(schedule_id="deleted")
    for path in (world.root / "deployments/broken.toml", world.root / "schedules/edited.toml"):
        path.write_text("format = 2\n")
    listed = {view.id: view for view in world.store.list_schedules(include_deleted=True)}
    assert {name: view.state for name, view in listed.items()} == {
        "active": "active", "blocked": "blocked", "deleted": "deleted", "edited": "blocked", "finished": "finished",
        "held": "active", "interval": "active", "paused": "paused", "waiting": "active",
    }  # fmt: skip
    assert listed["held"].candidate is not None and listed["active"].active_runs
    assert {name: world.store.get_schedule(schedule_id=name) for name in listed} == listed
    rows, _ = rows_of(world.store.context, include_deleted=True, status=None, limit=None, cursor=None)
    assert {row.id for row in rows if isinstance(row, ListedSchedule)} == {"active", "finished", "interval", "waiting"}
    for row in rows:
        assert {name: getattr(row, name) for name in ScheduleView.field_names()} == vars(listed[row.id])
        assert row.to_json() == listed[row.id].to_json()


def test_a_clock_that_stepped_back_is_seen_in_the_list(world: World) -> None:
    add(world, "a")
    world.clock.advance(timedelta(minutes=5))
    world.step()
    world.clock.advance(timedelta(minutes=-2))
    (view,) = world.store.list_schedules()
    assert view.waits_until is not None
    assert view == world.store.get_schedule(schedule_id="a")


def test_pages_and_states_choose_as_they_do_of_all(world: World) -> None:
    for number in range(7):
        add(world, f"s{number}", paused=number % 3 == 0)
    found: list[str] = []
    cursor = None
    while True:
        page = world.store.list_schedules(status="active", limit=2, cursor=cursor)
        found += [view.id for view in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == ["s1", "s2", "s4", "s5"]
    assert [view.id for view in world.store.list_schedules(status="paused")] == ["s0", "s3", "s6"]


def test_many_that_are_well_take_no_more_questions_than_few(world: World) -> None:
    counts = []
    for number in range(40):
        if number in (4, 39):
            asked: list[str] = []
            world.store.context.ledger.connection.set_trace_callback(asked.append)
            assert len(world.store.list_schedules()) == number
            world.store.context.ledger.connection.set_trace_callback(None)
            counts.append(len(asked))
        add(world, f"s{number}")
    assert counts[0] == counts[1] < 12


def test_each_file_is_looked_at_once_and_none_is_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Counter[str] = Counter()
    opened: list[str] = []

    class Entry:
        def __init__(self, real: os.DirEntry[str]) -> None:
            self.name, self._real = real.name, real

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            looks[self.name] += 1
            return self._real.stat(follow_symlinks=follow_symlinks)

    @contextlib.contextmanager
    def scandir(path: str) -> Iterator[Iterator[Entry]]:
        with real_scandir(path) as entries:
            yield map(Entry, entries)

    for number in range(9):
        add(world, f"s{number}")
    world.store.list_schedules()
    real_scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "open", lambda path, *_, **__: opened.append(str(path)))
    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, lambda path, **_: opened.append(str(path)))
    assert len(world.store.list_schedules()) == 9
    monkeypatch.undo()
    assert looks == {f"{name}.toml": 1 for name in ("d", "broken", *(f"s{number}" for number in range(9)))}
    assert opened == []


def test_what_is_special_takes_a_few_questions_each(world: World) -> None:
    for number in range(8):
        add(world, f"s{number}", paused=number < 4)
    asked: list[str] = []
    world.store.context.ledger.connection.set_trace_callback(asked.append)
    world.store.list_schedules()
    world.store.context.ledger.connection.set_trace_callback(None)
    assert len(asked) < 12 + 4 * 5


@pytest.mark.parametrize("column", ["effective_from", "anchor", "watermark", "next_instant"])
def test_7_4_an_instant_that_no_calendar_has_is_not_made_up(world: World, column: str) -> None:
    add(world, "a")
    add(world, "b")
    with world.store.context.ledger.transaction() as connection:
        row = "SELECT number FROM definitions WHERE id = 'a' AND kind = 1"
        connection.execute(f"UPDATE schedules SET {column} = {2**62} WHERE number = ({row})")
    a, b = world.store.list_schedules()
    assert (a.state, b.state) == ("blocked", "active")
    assert a == world.store.get_schedule(schedule_id="a")
