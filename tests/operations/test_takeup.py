"""Very many definition files at once: few transactions, the same outcome, a crash loses nothing (contract 2.3, 2.4, 3.5)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.schedules import add, admitted, at
from tests.support.story import World
from wfctl.operations import filepass, reconcile, takeup
from wfctl.operations.store import init_store
from wfctl.store.ledger import definitions

MANY = 40
TEXT = """format = 1
deployment = "d"
notes = "number {number}"

[trigger]
kind = "cron"
expression = "{minute} * * * *"
timezone = "Europe/Budapest"
"""


@pytest.fixture(autouse=True)
def nothing_need_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor takes files at once; and none is so young that it is read again."""
    monkeypatch.setattr(reconcile, "SETTLED_AFTER", timedelta(0))
    monkeypatch.setattr(takeup, "_NOTED_FROM_NS", 0)


@pytest.fixture
def crowd(world: World) -> World:
    """A deployment, and many files of schedules that nobody has seen yet."""
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    for number in range(MANY):
        put(world, f"s{number:02d}", TEXT.format(number=number, minute=number % 7))
    return world


def put(world: World, name: str, text: str, kind: str = "schedules") -> Path:
    path = world.root / kind / f"{name}.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def commits(world: World, work: Callable[[], object]) -> int:
    """Return how many transactions wrote something meanwhile."""
    before = world.store.context.ledger.commits
    work()
    return world.store.context.ledger.commits - before


def everything(world: World) -> list[str]:
    return reconcile.everything(world.store.context)


def revisions(world: World) -> dict[str, int]:
    return {row.id: row.revision for row in definitions.list_all(world.store.context.ledger.connection, "schedule")}


def states(world: World) -> dict[str, str]:
    return {view.id: view.state for view in world.store.list_schedules()}


def table(world: World, name: str, *but: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the ledger, without some columns."""
    cursor = world.store.context.ledger.connection.execute(f"SELECT * FROM {name}")
    columns = [column[0] for column in cursor.description]
    return [{key: value for key, value in zip(columns, row, strict=True) if key not in but} for row in cursor]


def test_2_4_many_new_files_are_created_in_few_transactions(crowd: World) -> None:
    crowd.clock.set(at("09:10:15"))
    assert commits(crowd, lambda: everything(crowd)) <= 2
    assert revisions(crowd) == {f"s{number:02d}": 1 for number in range(MANY)}
    views = [crowd.store.get_schedule(schedule_id=name) for name in revisions(crowd)]
    assert {view.effective_from for view in views} == {at("09:10:15")}
    assert {view.next_instant for view in views} == {at(f"10:{minute:02d}") for minute in range(7)}
    assert commits(crowd, lambda: everything(crowd)) == 0, "seen once"
    crowd.clock.set(at("09:59:59"))
    crowd.step()
    crowd.clock.set(at("10:00"))
    crowd.step()
    assert admitted(crowd, "s00") == admitted(crowd, "s07") == [at("10:00")] and admitted(crowd, "s01") == []


def test_2_4_what_is_entered_together_is_what_is_entered_alone(tmp_path: Path) -> None:
    """A file that was broken when it was first seen is entered by itself when it is mended."""
    text = TEXT.format(number=1, minute=1)
    found = []
    for place, first in (("together", text), ("alone", "half of a")):
        init_store(tmp_path / place).close()
        world = World(tmp_path / place)
        world.store.create_deployment(deployment_id="d", command=["/bin/true"])
        path = put(world, "s", first)
        everything(world)
        put(world, "s", text)
        everything(world)
        of_file = ("mtime_ns", "ctime_ns", "inode")
        rows = [table(world, "definitions", *of_file), table(world, "revisions"), table(world, "schedules", "wake_at")]
        found.append(rows)  # what is blocked no more is looked at soon
        (noted,) = (row for row in definitions.list_all(world.store.context.ledger.connection, "schedule"))
        assert noted.signature == reconcile.files.signature_at(path)
        world.die()
    assert found[0] == found[1]


def test_2_4_a_crash_between_transactions_keeps_what_was_taken_up_and_the_rest_is_taken_up_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeup, "_MOST", 3)
    partly = set()
    for budget in range(2 * MANY):
        root = tmp_path / str(budget)
        init_store(root).close()
        world = World(root)
        world.store.create_deployment(deployment_id="d", command=["/bin/true"])
        for number in range(10):
            put(world, f"s{number}", TEXT.format(number=number, minute=number))
        world.store.context.ledger.point = CrashingDisk(budget).point
        try:
            everything(world)
            is_over = True
        except SimulatedCrash:
            is_over = False
        world.die()
        there = revisions(world)
        partly.add(len(there))
        world.step()  # another supervisor starts
        assert revisions(world) == {f"s{number}": 1 for number in range(10)}
        assert len(table(world, "revisions")) == 11 and len(table(world, "schedules")) == 10
        assert there.keys() <= revisions(world).keys() and set(states(world).values()) == {"active"}
        world.die()
        if is_over:
            assert partly == {0, 3, 6, 9, 10}
            return
    raise AssertionError("it never got through")


def test_2_3_of_many_the_broken_ones_block_only_themselves(crowd: World) -> None:
    put(crowd, "s03", "half of a")
    put(crowd, "s04", TEXT.format(number=4, minute=61))
    put(crowd, "s05", TEXT.format(number=5, minute=5).replace('"d"', '"nobody"'))
    (crowd.root / "schedules" / "s06.toml").chmod(0o666)
    assert commits(crowd, lambda: everything(crowd)) <= 2
    found = states(crowd)
    assert {name for name, state in found.items() if state == "blocked"} == {"s03", "s04", "s05", "s06"}
    assert len(found) == MANY
    assert "61" in str(crowd.store.get_schedule(schedule_id="s04").diagnostic)
    for number in (3, 4, 5):
        put(crowd, f"s{number:02d}", TEXT.format(number=number, minute=number))
    (crowd.root / "schedules" / "s06.toml").chmod(0o600)
    everything(crowd)
    assert set(states(crowd).values()) == {"active"} and set(revisions(crowd).values()) == {1}


def test_2_3_many_edits_are_a_revision_each(crowd: World) -> None:
    everything(crowd)
    for number in range(MANY):
        put(crowd, f"s{number:02d}", TEXT.format(number=number, minute=30 + number % 7))
    put(crowd, "s09", "half of a")
    assert commits(crowd, lambda: everything(crowd)) <= 3
    assert revisions(crowd) == {f"s{number:02d}": 1 if number == 9 else 2 for number in range(MANY)}
    assert states(crowd)["s09"] == "blocked" and list(states(crowd).values()).count("active") == MANY - 1
    assert crowd.store.get_schedule(schedule_id="s00").next_instant == at("09:30")
    assert commits(crowd, lambda: everything(crowd)) == 0


def test_2_3_a_copy_of_all_files_is_no_edit(crowd: World) -> None:
    everything(crowd)
    copied = crowd.root / "copied"
    shutil.copytree(crowd.root / "schedules", copied)
    shutil.rmtree(crowd.root / "schedules")
    copied.rename(crowd.root / "schedules")
    assert commits(crowd, lambda: everything(crowd)) <= 2
    assert set(revisions(crowd).values()) == {1} and set(states(crowd).values()) == {"active"}
    assert commits(crowd, lambda: everything(crowd)) == 0, "noted as they are now"


def test_2_3_all_files_gone_and_back(crowd: World) -> None:
    everything(crowd)
    (crowd.root / "schedules").rename(crowd.root / "aside")
    assert commits(crowd, lambda: everything(crowd)) <= 2
    assert set(states(crowd).values()) == {"blocked"}
    (crowd.root / "aside").rename(crowd.root / "schedules")
    assert commits(crowd, lambda: everything(crowd)) <= 2
    assert set(revisions(crowd).values()) == {1} and set(states(crowd).values()) == {"active"}


def test_2_4_what_somebody_else_took_up_meanwhile_is_left_to_them(crowd: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = World(crowd.root, clock=crowd.clock)
    taken = takeup.take_up

    def too_late(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(takeup, "take_up", taken)
        everything(other)
        taken(*arguments, **named)

    monkeypatch.setattr(takeup, "take_up", too_late)
    everything(crowd)
    assert revisions(crowd) == {f"s{number:02d}": 1 for number in range(MANY)}
    for number in range(MANY):
        put(crowd, f"s{number:02d}", TEXT.format(number=number, minute=30))
    monkeypatch.setattr(takeup, "take_up", too_late)
    everything(crowd)
    assert set(revisions(crowd).values()) == {2}
    other.die()


def test_it_says_that_it_goes_on(crowd: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeup, "_MOST", 10)
    said: list[None] = []
    reconcile.everything(crowd.store.context, on_progress=lambda: said.append(None))
    assert len(said) >= MANY // 10


# What a look may not miss ----------------------------------------------------------------------------------------------


@pytest.fixture
def down(world: World) -> Iterator[World]:
    """A schedule whose supervisor has ended, and its file rests."""
    add(world.store, "s", notes="one")
    world.step()
    everything(world)
    world.stop()
    yield world


def test_2_3_a_file_of_the_same_size_and_time_is_noticed_by_the_time_of_its_change(down: World) -> None:
    path = down.root / "schedules" / "s.toml"
    before = path.stat()
    with path.open("r+") as file:  # the same file, as large as it was
        text = file.read().replace('"one"', '"two"')
        file.seek(0)
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)
    assert after.st_ctime_ns != before.st_ctime_ns
    down.step()
    view = down.store.get_schedule(schedule_id="s")
    assert view.revision == 2 and view.definition is not None and view.definition["notes"] == "two"


def test_2_3_a_file_that_changed_a_moment_ago_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes may come so soon after each other that the times of the file are the same."""
    monkeypatch.setattr(takeup, "_NOTED_FROM_NS", 10**12)
    add(world.store, "s")
    put(world, "s", TEXT.format(number=1, minute=1).replace('notes = "number 1"\n', ""))
    everything(world)
    row = definitions.find(world.store.context.ledger.connection, "schedule", "s")
    assert row is not None and row.revision == 2 and row.signature is None
    assert "s" in filepass.look(world.store.context, "schedule").changed
    monkeypatch.setattr(takeup, "_NOTED_FROM_NS", 0)
    everything(world)
    assert "s" not in filepass.look(world.store.context, "schedule").changed
    assert revisions(world) == {"s": 2}


def test_2_4_a_file_dated_in_the_future_rests_as_any_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SETTLED_AFTER", timedelta(seconds=30))
    add(world.store, "s")
    path = put(world, "s", TEXT.format(number=1, minute=1))
    os.utime(path, (time.time() + 86400, time.time() + 86400))
    youngest, _ = reconcile.look_over(world.store.context, timedelta(seconds=30))
    assert youngest is not None and youngest < timedelta(seconds=30) and revisions(world) == {"s": 1}
    monkeypatch.setattr(reconcile.time, "time_ns", lambda: path.stat().st_ctime_ns + 31 * 10**9)
    youngest, _ = reconcile.look_over(world.store.context, timedelta(seconds=30))
    assert youngest is None and revisions(world) == {"s": 2}


def test_2_8_a_deleted_id_costs_no_look_once_its_file_is_gone(world: World) -> None:
    add(world.store, "s")
    world.store.delete_schedule(schedule_id="s")
    seen = filepass.look(world.store.context, "schedule")
    assert not seen.changed and not seen.gone
