"""What is told to those who watch: each change once, in order, from the ledger alone (contract 9, `watch`)."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.schedules import add, at
from tests.support.story import World
from tests.support.waiting import wait_for
from wfctl.core.lifecycle import states_between
from wfctl.core.model import Status
from wfctl.errors import InvalidArgument, NotFound, WrongState
from wfctl.operations.listing import newest_occurrences, newest_runs
from wfctl.operations.transitions import Feed
from wfctl.operations.views import TransitionView, from_json
from wfctl.operations.watching import from_now_on
from wfctl.store.ledger import runs

MINUTE = timedelta(minutes=1)


@pytest.fixture
def feed(world: World) -> Feed:
    """What watches the store from before anything is in it, over a connection of its own."""
    return Feed(world.store.context)


def told(feed: Feed, most: int = 1000) -> list[str]:
    """What the feed has to tell, in words: `09:01 pending>admitted run-000001`, `run-000001 running>completed`."""
    found = feed.look(most)
    while feed.has_more:
        found += feed.look(most)
    return [words(view) for view in found]


def words(view: TransitionView) -> str:
    change = f"{view.from_ or ''}>{view.to or ''}"
    if view.kind == "schedule":
        return f"{view.schedule_id} {change}"
    if view.kind == "run":
        return f"{view.run_id} {change}"
    return f"{view.instant:%H:%M} {change}" + (f" {view.run_id}" if view.run_id else "")


def begin(world: World, feed: Feed, schedule_id: str = "s", **fields: Any) -> None:
    """Make a schedule that comes due each minute, the first time at 09:01, and let the feed hear of it."""
    add(world.store, schedule_id, **fields)
    feed.look()


def minutes(world: World, count: int = 1) -> None:
    """Let time pass, and the supervisor do its round each minute."""
    for _ in range(count):
        world.clock.advance(MINUTE)
        world.step()


# Runs and occurrences -------------------------------------------------------------------------------------------------------


def test_a_run_is_told_from_its_admission_to_its_end(world: World, feed: Feed) -> None:
    begin(world, feed)
    world.step()
    minutes(world)
    assert told(feed) == ["09:01 >admitted run-000001"]
    world.step()
    assert told(feed) == ["run-000001 admitted>running"]
    world.end(exit_status=3)
    world.step()
    (end,) = feed.look()
    assert (end.kind, end.schedule_id, end.instant, end.from_, end.to) == ("run", "s", at("09:01"), "running", "failed")
    assert end.reason is not None and end.reason["code"] == "exit"
    assert (end.at, end.revision, end.attempt) == (world.clock.now(), 1, 1)
    assert told(feed) == []


def test_nothing_is_lost_of_a_run_that_began_and_ended_between_two_looks(world: World, feed: Feed) -> None:
    begin(world, feed)
    world.keeper.world.script = lambda request: 0
    minutes(world)
    world.step()
    assert told(feed) == ["09:01 >admitted run-000001", "run-000001 admitted>running", "run-000001 running>completed"]


def test_a_queue_is_told_in_the_order_in_which_it_moved(world: World, feed: Feed) -> None:
    begin(world, feed, overlap="queue")
    minutes(world, 2)
    assert "09:02 >pending" in told(feed)
    minutes(world)
    assert told(feed) == ["09:02 pending>coalesced", "09:03 >pending"]
    world.end()
    world.step()
    assert told(feed) == ["run-000001 running>completed", "09:03 pending>admitted run-000002"]


def test_what_a_pause_drops_was_pending(world: World, feed: Feed) -> None:
    begin(world, feed, overlap="queue")
    minutes(world, 2)
    feed.look()
    world.store.pause_schedule(schedule_id="s", reason="maintenance")
    changes = feed.look()
    assert [words(view) for view in changes] == ["s active>paused", "09:02 pending>coalesced"]
    assert changes[0].reason is not None and changes[0].reason["reason"] == "maintenance"


def test_what_a_step_back_of_the_clock_takes_back_is_told_as_gone(world: World, feed: Feed) -> None:
    begin(world, feed, overlap="queue")
    minutes(world, 2)
    feed.look()
    world.clock.set(at("09:00") - timedelta(hours=4))  # contract 5.14: more than three hours
    world.step()
    (gone,) = [view for view in feed.look() if view.instant == at("09:02")]
    assert (gone.from_, gone.to, gone.reason) == ("pending", None, {"code": "clock"})


def test_a_skip_says_why_and_a_span_what_it_spans(world: World, feed: Feed) -> None:
    begin(world, feed)
    minutes(world, 2)
    assert "09:02 >skipped-overlap" in told(feed)
    world.die()
    world.clock.advance(timedelta(hours=3))
    fresh = Feed(world.store.context)
    world.step()
    (span,) = [view for view in fresh.look(1000) if view.span is not None]
    assert (span.to, span.reason and span.reason["code"]) == ("skipped-misfire", "missed")
    assert span.span is not None and span.span.first == at("09:03")


def test_a_run_by_hand_is_told_as_a_run(world: World, feed: Feed) -> None:
    begin(world, feed)
    world.step()
    world.store.start_run(deployment_id="d")
    world.step()
    world.store.cancel_run(run_id="run-000001")
    world.step()
    changes = feed.look()
    assert [words(view) for view in changes] == [
        "run-000001 >admitted",
        "run-000001 admitted>running",
        "run-000001 running>cancelled",
    ]
    assert {(view.schedule_id, view.instant, view.revision) for view in changes} == {(None, None, None)}


def test_interruption_and_resume_are_told_each(world: World, feed: Feed) -> None:
    begin(world, feed)
    minutes(world)
    world.step()
    feed.look()
    paths = world.store.context.layout.run("run-000001").execution(1)
    paths.interrupt.write_text('{"message": "go on?"}')
    world.end(exit_status=75)
    world.step()
    assert told(feed) == ["run-000001 running>interrupted"]
    world.store.resume_run(run_id="run-000001", input={})
    world.step()
    world.end()
    world.step()
    changes = feed.look()
    assert [words(view) for view in changes] == ["run-000001 interrupted>running", "run-000001 running>completed"]
    assert {view.attempt for view in changes} == {2}


def test_a_number_that_was_reserved_early_and_entered_late_is_told(world: World, feed: Feed) -> None:
    begin(world, feed)
    with world.store.context.ledger.transaction() as connection:
        number = runs.reserve_number(connection)  # as a `run start` without a supervisor does (6.12)
    minutes(world)
    world.end()
    world.step()
    assert told(feed)[0] == "09:01 >admitted run-000002"
    late = runs.NewRun(
        number=number, schedule=None, instant=None, revision=None, deployment=1, deployment_revision=1,
        admitted_at=world.clock.now(), max_run=None, max_steps=None, input="{}",
    )  # fmt: skip
    with world.store.context.ledger.transaction() as connection:
        runs.insert(connection, [late])
        row = runs.find(connection, number)
        assert row is not None
        runs.change_status(connection, row, Status.CANCELLED, ended_at=world.clock.now())
    assert told(feed) == ["run-000001 >admitted", "run-000001 admitted>cancelled"]
    assert told(feed) == []


@pytest.mark.parametrize(
    ("before", "now", "has_started", "passed"),
    [
        pytest.param(("admitted", 1), ("admitted", 1), False, [], id="nothing happened"),
        pytest.param(("admitted", 1), ("running", 1), True, ["running 1"], id="it began"),
        pytest.param(("admitted", 1), ("failed", 1), False, ["failed 1"], id="it never began"),
        pytest.param(("admitted", 1), ("completed", 1), True, ["running 1", "completed 1"], id="it began and ended"),
        pytest.param(("running", 1), ("completed", 1), True, ["completed 1"], id="it ended"),
        pytest.param(("interrupted", 1), ("cancelled", 1), True, ["cancelled 1"], id="it was cancelled while it waited"),
        pytest.param(("running", 1), ("running", 2), True, ["interrupted 1", "running 2"], id="it was resumed"),
        pytest.param(
            ("admitted", 1),
            ("interrupted", 3),
            True,
            ["running 1", "interrupted 1", "running 2", "interrupted 2", "running 3", "interrupted 3"],
            id="it waited three times",
        ),
    ],
)
def test_6_6_the_way_of_a_run_is_never_in_doubt(
    before: tuple[str, int], now: tuple[str, int], has_started: bool, passed: list[str]
) -> None:
    found = states_between((Status(before[0]), before[1]), (Status(now[0]), now[1]), has_started=has_started)
    assert [f"{status.value} {attempt}" for status, attempt in found] == passed


# Schedules ------------------------------------------------------------------------------------------------------------------


def test_the_life_of_a_schedule_is_told(world: World, feed: Feed) -> None:
    store = world.store
    add(store, "s")
    assert told(feed) == ["s >active"]
    store.update_schedule(schedule_id="s", expected_revision=1, notes="n")
    (edited,) = feed.look()
    assert (words(edited), edited.revision) == ("s active>active", 2)
    assert edited.reason == {"code": "edited", "actor": store.context.actor}
    store.pause_schedule(schedule_id="s")
    assert told(feed) == ["s active>paused"]
    store.resume_schedule(schedule_id="s")
    assert told(feed) == ["s paused>active"]
    path = store.context.layout.schedules / "s.toml"
    kept = path.read_bytes()
    path.write_text("broken [")
    store.list_schedules()
    (blocked,) = feed.look()
    assert words(blocked) == "s active>blocked" and blocked.reason is not None and "message" in blocked.reason
    path.write_bytes(kept)
    store.list_schedules()
    assert told(feed) == ["s blocked>active"]
    store.delete_schedule(schedule_id="s")
    (deleted,) = feed.look()
    assert (words(deleted), deleted.at) == ("s active>deleted", world.clock.now())
    assert told(feed) == []


def test_a_one_shot_is_finished_once_it_had_its_instant(world: World, feed: Feed) -> None:
    begin(world, feed, trigger={"kind": "oneshot", "at": "2027-03-01T09:01:00Z"})
    minutes(world)
    assert "s active>finished" in told(feed)
    world.store.update_schedule(schedule_id="s", expected_revision=1, trigger={"kind": "oneshot", "at": "2027-03-01T10:00:00Z"})
    assert told(feed) == ["s finished>active"]


# How much ------------------------------------------------------------------------------------------------------------------


def test_much_at_once_comes_in_pieces_and_each_change_once(world: World, feed: Feed) -> None:
    for number in range(40):
        add(world.store, f"s{number:02}")
    feed.look(1000)
    world.keeper.world.script = lambda request: 0
    world.clock.advance(MINUTE)
    world.step()
    pieces = [feed.look(7)]
    while feed.has_more:
        pieces.append(feed.look(7))
    assert len(pieces) > 4
    changes = [view for piece in pieces for view in piece]
    kinds = [(view.kind, view.to) for view in changes]
    admitted = kinds.count(("occurrence", "admitted"))
    assert admitted == 4  # contract 5.4: as many as there are slots
    assert kinds.count(("occurrence", "pending")) == 36
    world.step()
    while feed.look(7) or feed.has_more:
        pass
    names = {view.schedule_id for view in changes}
    assert len(names) == 40


def test_a_look_at_what_did_not_change_reads_no_table(world: World, feed: Feed) -> None:
    begin(world, feed)
    asked: list[str] = []
    world.store.context.ledger.connection.set_trace_callback(asked.append)
    assert feed.look() == []
    world.store.context.ledger.connection.set_trace_callback(None)
    assert not any("SELECT" in statement for statement in asked), asked


def test_nothing_reads_through_a_table_that_grows(world: World, feed: Feed) -> None:
    begin(world, feed)
    begin(world, feed, "t")
    asked: list[str] = []
    connection = world.store.context.ledger.connection
    connection.set_trace_callback(asked.append)
    minutes(world, 2)
    told(feed)
    Feed(world.store.context)
    chosen: list[dict[str, Any]] = [
        {"schedule_id": None, "status": None, "since": None},
        {"schedule_id": "s", "status": None, "since": None},
        {"schedule_id": ["s", "t"], "status": "failed", "since": None},
        {"schedule_id": None, "status": ["failed", "running"], "since": None},
        {"schedule_id": "s", "status": "completed", "since": at("09:00")},
    ]
    for given in chosen:
        newest_occurrences(world.store.context, limit=5, **given)
        newest_runs(world.store.context, limit=5, deployment_id=None, **given)
    newest_runs(world.store.context, limit=5, deployment_id="d", **chosen[0])
    connection.set_trace_callback(None)
    read = [each for each in set(asked) if each.startswith("SELECT")]
    assert len(read) > 20
    for statement in read:
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        bad = [
            step for step in plan
            if re.match(r"SCAN (occurrences|runs|executions|revisions)\b(?!.*runs_unfinished)", step) or "TEMP B-TREE" in step
        ]  # fmt: skip
        is_last = "max(place)" in statement or "max(number)" in statement
        assert is_last or not bad, (statement, plan)


def test_what_another_process_writes_is_seen(world: World, feed: Feed) -> None:
    from wfctl.operations.store import open_store

    with open_store(world.root, clock=world.clock) as other:
        add(other, "s")
    assert told(feed) == ["s >active"]


# Store.watch ----------------------------------------------------------------------------------------------------------------


def test_the_watch_of_a_store_takes_what_is_chosen(world: World) -> None:
    store = world.store
    add(store, "a")
    add(store, "b")
    with store.watch(schedule_id="a") as of_a, store.watch(status=["completed", "paused"]) as ends:
        minutes(world)
        world.step()
        run_id = next(run.run_id for run in world.runs() if run.schedule_id == "b")
        with store.watch(run_id=run_id) as of_run:
            store.pause_schedule(schedule_id="b")
            world.end()
            world.step()
            assert words(of_run.wait(0)) == f"{run_id} running>completed"  # type: ignore[arg-type]
            assert of_run.wait(0) is None
        assert {view.schedule_id for view in iter(lambda: of_a.wait(0), None)} == {"a"}
        assert sorted(view.to or "" for view in iter(lambda: ends.wait(0), None)) == ["completed", "completed", "paused"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param({"schedule_id": "nonsense"}, NotFound, id="no such schedule"),
        pytest.param({"run_id": "run-000009"}, NotFound, id="no such run"),
        pytest.param({"status": "complete"}, InvalidArgument, id="no such status"),
        pytest.param({"status": []}, InvalidArgument, id="no status at all"),
        pytest.param({"timeout": -1}, InvalidArgument, id="a timeout before now"),
        pytest.param({"timeout": "5s"}, InvalidArgument, id="a timeout that is no number"),
    ],
)
def test_a_watch_of_what_is_not_there_is_refused(world: World, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        world.store.watch(**given)


def test_a_watch_ends_after_its_timeout_and_when_it_is_closed(world: World) -> None:
    with world.store.watch(timeout=60) as changes:
        world.clock.advance(MINUTE)
        assert list(changes) == [] and changes.is_over
    changes = world.store.watch()
    changes.close()
    assert list(changes) == []
    left = world.store.watch()
    world.store.close()
    with pytest.raises(WrongState):
        next(left)
    world._store = None


def test_nothing_falls_between_a_look_and_the_watch_that_begins_with_it(world: World) -> None:
    add(world.store, "s")
    ids, changes = from_now_on(world.store, lambda context: [view.id for view in world.store.list_schedules()])
    add(world.store, "t")
    assert ids == ["s"]
    assert [words(view) for view in iter(lambda: changes.wait(0), None)] == ["t >active"]


def test_a_thread_that_waits_is_told_of_what_another_does(tmp_path: Path) -> None:
    from wfctl import init_store

    with init_store(tmp_path / "own") as store:
        seen: list[TransitionView] = []
        with store.watch(timeout=30) as changes:
            reader = threading.Thread(target=lambda: seen.append(next(changes)))
            reader.start()
            add(store, "s")
            reader.join(20)
        wait_for(lambda: seen, "the change")
    assert words(seen[0]) == "s >active"


def test_a_transition_comes_back_from_its_json_as_it_was(world: World, feed: Feed) -> None:
    add(world.store, "s")
    (view,) = feed.look()
    plain = view.to_json()
    assert (plain["schema"], plain["from"], plain["to"]) == ("wfctl/transition.v1", None, "active")
    assert from_json(TransitionView, plain) == view
