"""Waiting for runs and for occurrences: what is an end, what is not, and what will never be (contract 11.6, `wait`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.schedules import add, at
from tests.support.story import World
from wfctl.core.instants import format_instant
from wfctl.core.model import Status
from wfctl.errors import InvalidArgument, NotFound, TimedOut
from wfctl.operations.awaiting import await_occurrence, await_runs

MINUTE = timedelta(minutes=1)


def minutes(world: World, count: int = 1) -> None:
    for _ in range(count):
        world.clock.advance(MINUTE)
        world.step()
        world.step()  # takes in what was reported of the launches


def wait_for_runs(world: World, *names: str, **given: Any) -> tuple[list[str], list[str]]:
    """Look once; return the runs that are over, and those that were said to wait for input."""
    asked: list[str] = []
    over = await_runs(
        world.store, names, timeout=0, on_end=lambda view: None, on_interrupt=lambda view: asked.append(view.run_id), **given
    )
    return [view.run_id for view in over], asked


def look(world: World, instant: datetime, state: Status | None = None) -> tuple[str | None, bool, list[str]]:
    """Look once for an occurrence of `s`; return its status, whether that is what was waited for, and what was noted."""
    notes: list[str] = []
    view, is_there = await_occurrence(world.store, "s", instant, state=state, timeout=0, on_note=notes.append)
    return view.status, is_there, notes


def test_runs_are_waited_for_until_all_are_over_or_any(world: World) -> None:
    add(world.store, "s", overlap="parallel", max_active_runs=2)
    minutes(world, 2)
    first, second = "run-000001", "run-000002"
    with pytest.raises(TimedOut, match="run-000001 is still running, run-000002 is still running") as late:
        wait_for_runs(world, first, second)
    assert late.value.data["run_ids"] == [first, second]
    world.keeper.end(first, 1, exit_status=3)
    world.step()
    assert wait_for_runs(world, second, first, any_one=True) == ([first], [])
    with pytest.raises(TimedOut, match="run-000002"):
        wait_for_runs(world, first, second)
    world.end()
    world.step()
    assert wait_for_runs(world, first, second, first) == ([first, second], [])


def test_to_wait_for_input_is_no_end_and_is_said(world: World) -> None:
    add(world.store, "s")
    minutes(world)
    world.store.context.layout.run("run-000001").execution(1).interrupt.write_text('{"message": "sure?"}')
    world.end(exit_status=75)
    world.step()
    asked: list[str] = []
    with pytest.raises(TimedOut, match="still interrupted"):
        await_runs(
            world.store, ["run-000001"], timeout=0, on_end=lambda view: None, on_interrupt=lambda it: asked.append(it.run_id)
        )
    assert asked == ["run-000001"]
    notes: list[str] = []
    with pytest.raises(TimedOut):
        await_occurrence(world.store, "s", at("09:01"), timeout=0, on_note=notes.append)
    assert notes == ["run-000001 waits for input: sure?; `wfctl run resume run-000001` gives it"]
    assert look(world, at("09:01"), Status.INTERRUPTED) == ("interrupted", True, [])


def test_an_unknown_run_is_refused_before_anything_is_waited_for(world: World) -> None:
    add(world.store, "s")
    minutes(world)
    with pytest.raises(NotFound, match="run-000009"):
        wait_for_runs(world, "run-000001", "run-000009")


@pytest.mark.parametrize(
    ("state", "is_there"),
    [
        pytest.param(None, True, id="it completed"),
        pytest.param(Status.ADMITTED, True, id="it was admitted once"),
        pytest.param(Status.RUNNING, True, id="it was running once"),
        pytest.param(Status.FAILED, False, id="it ended otherwise"),
        pytest.param(Status.INTERRUPTED, False, id="it never waited for input"),
    ],
)
def test_a_state_that_was_passed_counts(world: World, state: Status | None, is_there: bool) -> None:
    add(world.store, "s")
    minutes(world)
    world.end()
    world.step()
    assert look(world, at("09:01"), state) == ("completed", is_there, [])


def test_what_was_skipped_is_at_its_end(world: World) -> None:
    add(world.store, "s")
    minutes(world, 2)
    assert look(world, at("09:02")) == ("skipped-overlap", False, [])
    assert look(world, at("09:02"), Status.SKIPPED_OVERLAP) == ("skipped-overlap", True, [])
    with pytest.raises(TimedOut, match="s@2027-03-01T09:01:00Z is still running"):
        look(world, at("09:01"))


def test_an_instant_to_come_is_waited_for_and_what_keeps_it_from_coming_is_said(world: World) -> None:
    add(world.store, "s")
    world.step()
    notes: list[str] = []

    def wait() -> None:
        with pytest.raises(TimedOut, match="is not recorded yet"):
            await_occurrence(world.store, "s", "2027-03-01T10:00:00Z", timeout=0, on_note=notes.append)

    wait()
    assert notes == []
    world.store.pause_schedule(schedule_id="s")
    wait()
    assert notes == ["s is paused; `wfctl schedule resume s` lets it go on"]
    world.store.resume_schedule(schedule_id="s")
    world.stop()
    wait()
    assert notes[1:] == ["no supervisor runs on this store, and nothing is admitted until one does: `wfctl supervise`"]


@pytest.mark.parametrize(
    ("happens", "instant", "why"),
    [
        pytest.param(
            lambda world: None,
            at("10:00:30"),
            "no instant of s, the next one to come is 2027-03-01T10:01:00Z",
            id="no instant",
        ),
        pytest.param(lambda world: None, at("08:00"), "before it was made", id="before its creation"),
        pytest.param(lambda world: world.store.delete_schedule(schedule_id="s"), at("10:00"), "s was deleted", id="deleted"),
        pytest.param(
            lambda world: (world.store.pause_schedule(schedule_id="s"), world.clock.advance(MINUTE)),
            at("09:01"),
            "s is paused, and what passes meanwhile is never replayed",
            id="passed while it is paused",
        ),
        pytest.param(
            lambda world: (
                world.store.pause_schedule(schedule_id="s"),
                world.clock.advance(MINUTE),
                world.store.resume_schedule(schedule_id="s"),
            ),
            at("09:01"),
            "it passed while s was paused",
            id="passed while it was paused",
        ),
        pytest.param(
            lambda world: world.store.update_schedule(
                schedule_id="s", expected_revision=1, trigger={"kind": "oneshot", "at": "2027-03-01T09:30:00Z"}
            ),
            at("10:00"),
            "no instant of s, and none is to come",
            id="an edit took it",
        ),
    ],
)  # fmt: skip
def test_what_will_never_be_is_not_waited_for(world: World, happens: Any, instant: datetime, why: str) -> None:
    add(world.store, "s")
    world.step()
    happens(world)
    with pytest.raises(NotFound) as never:
        look(world, instant)
    assert never.value.message.startswith(f"s@{format_instant(instant)} will never be: ")
    assert why in never.value.message


def test_a_schedule_that_is_not_there_and_a_time_that_is_none_are_refused(world: World) -> None:
    with pytest.raises(NotFound):
        await_occurrence(world.store, "nonsense", at("10:00"), timeout=0, on_note=print)
    add(world.store, "s")
    with pytest.raises(InvalidArgument):
        await_occurrence(world.store, "s", "noon", timeout=0, on_note=print)
