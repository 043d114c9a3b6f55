"""One value of one schedule's records is damaged: no wrong admission, no traceback, the others on time (contract 7.4)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.damage import damage, execute, number_of
from tests.support.story import START, FakeClock, World
from wfctl.errors import Blocked, DamagedStore, WfctlError
from wfctl.operations.store import init_store

MINUTE = timedelta(minutes=1)
SEEDS, CHUNK = 48, 6  #: in every run of the suite; many more with `-m soak`
FINE = ("completed", "running", "admitted", "skipped-overlap")


class Base:
    """A store with some history, a run at work and a held candidate, to be copied for each case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        init_store(folder / "store").close()
        world = World(folder / "store")
        world.store.create_deployment(deployment_id="d", command=["/bin/true"])
        every_minute = {"kind": "cron", "expression": "* * * * *"}
        for name, overlap, misfire in (("a", "skip", "skip"), ("b", "queue", "latest"), ("c", "skip", "skip")):
            world.store.create_schedule(
                schedule_id=name, deployment_id="d", trigger=every_minute, overlap=overlap, misfire=misfire
            )
        world.step()
        for number in range(7):
            world.clock.advance(MINUTE)
            world.step()
            if number % 2:
                world.end()
                world.step()
        self.at, self.keeper = world.clock.now(), world.keeper.world
        world.die()

    def copy(self, folder: Path) -> World:
        """Return a world on a copy, whose keeper still has the runs at work."""
        shutil.copytree(self.folder, folder)
        clock = FakeClock(START)
        clock.advance(self.at - START)
        world = World(folder / "store", clock=clock)
        held = world.keeper.world
        held.running.update(self.keeper.running)
        held.seen |= self.keeper.seen
        for key, request in self.keeper.requests.items():  # exit records are real files: those of the copy
            moved = request.directory.replace(str(self.folder), str(folder))
            held.requests[key] = replace(request, directory=moved)
        return world


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def world(base: Base, tmp_path: Path) -> Iterator[World]:
    found = base.copy(tmp_path / "copy")
    yield found
    found.die()


def play(world: World, minutes: int = 4) -> None:
    for _ in range(minutes):
        world.step()
        world.end()
        world.step()
        world.clock.advance(MINUTE)
        world.step()


def assert_others_on_time(world: World, before: dict[str, int], what: str) -> None:
    for name in "ac":
        view = world.store.get_schedule(schedule_id=name)
        new = world.occurrences(name)[before[name] :]
        assert view.state == "active", f"{what}: {name} is {view.state}: {view.diagnostic}"
        assert len(new) >= 3, f"{what}: {name} was not on time"
        assert all(row.status in FINE for row in new), f"{what}: {[row.status for row in new]}"


def counts(world: World) -> dict[str, int]:
    return {name: len(world.occurrences(name)) for name in "ac"}


def check(world: World, seed: int) -> None:
    what = f"seed {seed}: {damage(world.root, 'b', random.Random(seed))}"
    if what.endswith("None"):
        return
    before = counts(world)
    play(world)
    assert_others_on_time(world, before, what)
    launched = [(request.run, request.k) for request in world.keeper.world.launches]
    assert len(launched) == len(set(launched)), f"{what}: launched twice"
    world.store.list_schedules()
    world.store.list_schedule_occurrences(limit=100)
    world.store.list_runs(limit=100)
    view = world.store.verify_store(deep=True)
    state = world.store.get_schedule(schedule_id="b").state
    if state == "blocked":
        assert view.contradictions or any("still blocked" in note for note in view.notes), f"{what}: {view}"
    else:
        assert not any(each.blocks for each in view.contradictions), f"{what}: goes on with {view.contradictions}"
    for _ in range(2):  # one remedy may bring another contradiction to light
        found = world.store.verify_store(deep=True).contradictions
        if found:
            fixed = world.store.verify_store(names=["b"], fix=sorted({each.code for each in found})).fixed
            assert all(each.ok or "backup" in each.detail for each in fixed), f"{what}: {fixed}"
    before = counts(world)
    play(world)
    assert_others_on_time(world, before, what)
    launched = [(request.run, request.k) for request in world.keeper.world.launches]
    assert len(launched) == len(set(launched)), f"{what}: launched twice after the remedy"


def _chunks(total: int) -> list[range]:
    return [range(first, first + CHUNK) for first in range(0, total, CHUNK)]


@pytest.mark.parametrize("seeds", _chunks(SEEDS), ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_7_4_whatever_is_damaged_blocks_its_own_schedule(base: Base, tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        world = base.copy(tmp_path / str(seed))
        try:
            check(world, seed)
        finally:
            world.die()


@pytest.mark.soak
@pytest.mark.parametrize("seeds", _chunks(1500)[SEEDS // CHUNK :], ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_7_4_whatever_is_damaged_at_length(base: Base, tmp_path: Path, seeds: range) -> None:
    test_7_4_whatever_is_damaged_blocks_its_own_schedule(base, tmp_path, seeds)


# One by one ---------------------------------------------------------------------------------------------------------------

LAST_RUN = "(SELECT max(number) FROM runs WHERE schedule = {b})"
LAST_ROW = "(SELECT max(instant) FROM occurrences WHERE schedule = {b})"
SECOND = "INSERT INTO executions (run, k, step, attempt, mark) SELECT number, 2, 0, 1, '{{}}' FROM runs WHERE "
STATE = "UPDATE schedules SET {0} WHERE number = {{b}}"
CASES = [
    ("unknown-status", "UPDATE runs SET status = 99 WHERE number = " + LAST_RUN),
    ("unknown-status", "UPDATE runs SET status = 'banana' WHERE number = " + LAST_RUN),
    ("status-differs", "UPDATE runs SET status = 14 WHERE number = " + LAST_RUN),
    ("status-differs", "UPDATE occurrences SET status = 1 WHERE schedule = {b} AND run = " + LAST_RUN),
    ("occurrence-without-run", "DELETE FROM runs WHERE number = " + LAST_RUN),
    ("run-without-occurrence", "DELETE FROM occurrences WHERE schedule = {b} AND run = " + LAST_RUN),
    ("run-without-occurrence", "UPDATE occurrences SET run = NULL WHERE schedule = {b} AND run = " + LAST_RUN),
    ("two-unsettled", SECOND + "number = " + LAST_RUN),
    ("unsettled-of-finished", SECOND + "schedule = {b} AND status = 1 LIMIT 1"),
    ("revision-missing", "DELETE FROM revisions WHERE definition = {b}"),
    ("revision-digest", "UPDATE revisions SET content = replace(content, 'queue', 'skip') WHERE definition = {b}"),
    ("watermark-behind", STATE.format("watermark = watermark - 600000000, effective_from = effective_from - 600000000")),
    ("watermark-ahead", STATE.format("watermark = watermark + 86400000000")),
    ("candidate-settled", STATE.format("candidate = " + LAST_ROW.replace("{b}", "schedules.number"))),
    ("candidate-ahead", STATE.format("candidate = candidate + 600000000")),
    ("unreadable", STATE.format("held_reason = 'banana'")),
    ("unreadable", "UPDATE runs SET stop = 'banana' WHERE number = " + LAST_RUN),
    ("state-missing", "DELETE FROM schedules WHERE number = {b}"),
    ("other-deployment", STATE.format("deployment = 999")),
    ("pause-differs", STATE.format("paused_at = 5")),
]


@pytest.mark.parametrize(("code", "statement"), CASES, ids=[f"{code} {number}" for number, (code, _) in enumerate(CASES)])
def test_7_4_found_at_the_start_named_and_remedied(world: World, code: str, statement: str) -> None:
    active = world.store.get_schedule(schedule_id="b").active_runs
    b = number_of(world.root, "b")
    execute(world.root, statement.format(b=b))
    before, launches = counts(world), len(world.keeper.world.launches)
    world.step()
    world.clock.advance(MINUTE)
    world.step()
    world.clock.advance(MINUTE)
    world.step()
    view = world.store.get_schedule(schedule_id="b")
    assert view.state == "blocked", f"{code} was not found"
    assert view.diagnostic is not None and view.diagnostic["code"] == "contradiction"
    assert code in {each["code"] for each in view.diagnostic["contradictions"]}, view.diagnostic
    assert view.diagnostic["rows"]
    assert [
        request for request in world.keeper.world.launches[launches:] if request.environment["WFCTL_SCHEDULE_ID"] == "b"
    ] == []
    with pytest.raises(Blocked):
        world.store.pause_schedule(schedule_id="b")

    world.die()
    world.step()  # another supervisor: a restart clears nothing
    found = world.store.verify_store()
    named = {each.code: each for each in found.contradictions}
    if code in named:
        assert not found.ok and named[code].command == f"wfctl store verify --fix {code} b" and named[code].blocks
        fixed = world.store.verify_store(names=["b"], fix=sorted(named))
    else:  # its run has gone on, and its occurrence shows what its run shows; that alone lets nothing be admitted
        assert code == "status-differs" and any("still blocked" in note for note in found.notes)
        fixed = world.store.verify_store(names=["b"], fix_safe=True)
    assert all(each.ok for each in fixed.fixed), fixed.fixed
    assert world.store.verify_store().ok, world.store.verify_store()
    state = world.store.get_schedule(schedule_id="b").state
    assert state == ("paused" if code == "pause-differs" else "active")
    play(world)
    if state == "active":
        assert world.store.get_schedule(schedule_id="b").state == "active"
        rows = world.occurrences("b")
        assert rows[-1].status in FINE, "it goes on"
    started = [(request.run, request.k) for request in world.keeper.world.launches]
    assert len(started) == len(set(started))
    assert len(active) == 1
    after = counts(world)
    assert all(after[name] > before[name] for name in "ac")


def test_7_4_a_contradiction_that_comes_up_meanwhile_is_met_before_an_admission(world: World) -> None:
    world.step()
    b = number_of(world.root, "b")
    execute(world.root, f"DELETE FROM runs WHERE schedule = {b} AND status BETWEEN 11 AND 13")
    launches = len(world.keeper.world.launches)
    play(world, 2)
    assert world.store.get_schedule(schedule_id="b").state == "blocked"
    assert not [each for each in world.keeper.world.launches[launches:] if each.environment["WFCTL_SCHEDULE_ID"] == "b"]


def test_7_4_a_process_that_lives_keeps_its_run_from_being_settled(world: World) -> None:
    """The remedy is refused: a slot is never freed over a living process."""
    import json
    import os

    from wfctl.linux import boot_id, process_stat

    stat = process_stat(os.getpid())
    assert stat is not None
    mark = json.dumps({"pid": os.getpid(), "start_time": stat.start_time, "boot": boot_id()})
    b = number_of(world.root, "b")
    execute(
        world.root,
        f"INSERT INTO executions (run, k, step, attempt, mark) SELECT number, 2, 0, 1, '{mark}' FROM runs"
        f" WHERE schedule = {b} AND status = 1 LIMIT 1",
    )
    world.step()
    fixed = world.store.verify_store(names=["b"], fix=["unsettled-of-finished"]).fixed
    assert [each.ok for each in fixed] == [False] and str(os.getpid()) in fixed[0].detail
    assert world.store.get_schedule(schedule_id="b").state == "blocked"


def test_7_4_manual_runs_are_left_alone_and_named(world: World) -> None:
    world.step()
    run = world.store.start_run(deployment_id="d")
    world.step()
    number = int(run.run_id[4:])
    execute(world.root, f"INSERT INTO executions (run, k, step, attempt, mark) VALUES ({number}, 9, 0, 1, '{{}}')")
    world.die()
    world.step()
    assert run.run_id in str(world.store.server_status().problems)
    with pytest.raises(Blocked):
        world.store.cancel_run(run_id=run.run_id)
    found = world.store.verify_store(names=[run.run_id])
    assert [each.code for each in found.contradictions] == ["two-unsettled"]
    assert all(each.ok for each in world.store.verify_store(names=[run.run_id], fix=["two-unsettled"]).fixed)
    world.step()
    assert run.run_id not in str(world.store.server_status().problems)


def test_7_4_counters_that_fell_behind_are_raised(world: World) -> None:
    execute(world.root, "UPDATE counters SET run = 1, occurrence = 1")
    assert not world.store.verify_store(dry_run=True).ok
    before = counts(world)
    play(world)
    assert_others_on_time(world, before, "counters")
    execute(world.root, "UPDATE counters SET run = 1, occurrence = 1")
    assert {each.code for each in world.store.verify_store(fix_safe=True).fixed} == {"counter-behind"}
    assert world.store.verify_store().ok


@pytest.mark.parametrize("statement", ["UPDATE counters SET run = 'banana'", "DELETE FROM counters", "DELETE FROM meta"])
def test_7_5_what_all_depends_on_stops_all(world: World, statement: str) -> None:
    execute(world.root, statement)
    with pytest.raises(DamagedStore):
        world.step()


def test_7_4_safe_remedies_are_carried_out_on_one_word(world: World) -> None:
    b = number_of(world.root, "b")
    execute(
        world.root,
        f"UPDATE schedules SET candidate = (SELECT max(instant) FROM occurrences WHERE schedule = {b}) WHERE number = {b}",
    )
    world.step()
    assert world.store.get_schedule(schedule_id="b").state == "blocked"
    view = world.store.verify_store(fix_safe=True)
    assert view.ok and [each.code for each in view.fixed] == ["candidate-settled", "unblocked"]
    execute(world.root, f"UPDATE runs SET status = 14 WHERE schedule = {b} AND status BETWEEN 11 AND 13")
    view = world.store.verify_store(fix_safe=True)
    assert not view.ok and view.fixed == (), "what may free a slot is asked for by name"


def test_7_4_records_mended_by_hand_are_let_go_on_by_word(world: World) -> None:
    """A block is never lifted by itself, though the records agree by now."""
    b = number_of(world.root, "b")
    execute(world.root, f"UPDATE schedules SET watermark = watermark + 86400000000 WHERE number = {b}")
    world.step()
    execute(world.root, f"UPDATE schedules SET watermark = watermark - 86400000000 WHERE number = {b}")
    world.die()
    world.step()
    assert world.store.get_schedule(schedule_id="b").state == "blocked"
    view = world.store.verify_store()
    assert view.ok and any("verify --fix-safe b" in note for note in view.notes)
    world.store.verify_store(names=["b"], fix_safe=True)
    assert world.store.get_schedule(schedule_id="b").state == "active"


def test_7_4_a_deployment_that_is_not_what_it_was_blocks_all_who_name_it(world: World) -> None:
    execute(world.root, "UPDATE revisions SET content = replace(content, '/bin/true', '/bin/date') WHERE definition = 1")
    launches = len(world.keeper.world.launches)
    world.step()
    world.clock.advance(MINUTE)
    world.step()
    assert len(world.keeper.world.launches) == launches, "what is run is what was saved, or nothing is"
    assert {view.state for view in world.store.list_schedules().items} == {"blocked"}
    view = world.store.verify_store(names=["a"], fix=["revision-digest"])
    assert all(each.ok for each in view.fixed), view
    assert world.store.get_deployment(deployment_id="d").state == "active"


def test_the_parsed_form_of_a_revision_is_checked_in_depth(world: World) -> None:
    b = number_of(world.root, "b")
    execute(world.root, f"UPDATE revisions SET plain = replace(plain, 'queue', 'skip') WHERE definition = {b}")
    assert world.store.verify_store().ok
    found = world.store.verify_store(deep=True)
    assert not found.ok and found.contradictions[0].code == "revision-digest" and not found.contradictions[0].blocks


def test_names_and_codes_that_are_not_known_are_refused(world: World) -> None:
    for call in ({"names": ["nobody"]}, {"names": ["b"], "fix": ["nothing"]}, {"fix": ["two-unsettled"]}):
        with pytest.raises(WfctlError):
            world.store.verify_store(**call)  # type: ignore[arg-type]
