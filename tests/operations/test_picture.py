"""A window of time as a picture: every situation is in it, it is bounded, and no query reads through what grows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.support.rich_history import History
from tests.support.schedules import add, at, cron
from tests.support.story import World
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations import picture_ahead
from wfctl.operations.picture import timeline
from wfctl.operations.timeline_views import LaneView, TimelineView
from wfctl.operations.views import from_json

NOW = datetime(2027, 3, 1, 12, 8, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    found = History(tmp_path_factory.mktemp("history") / "store", NOW)
    found.live()
    yield found
    found.world.die()


def drawn(history: History, **more: Any) -> TimelineView:
    asked: dict[str, Any] = {"schedule_ids": None, "since": NOW - 12 * HOUR, "until": NOW + 2 * HOUR, "slots": 8}
    return timeline(history.world.store.context, **{**asked, **more})


def draw(world: World, **more: Any) -> TimelineView:
    now = world.clock.now()
    asked: dict[str, Any] = {"schedule_ids": None, "since": now - HOUR, "until": now + HOUR, "slots": 4}
    return timeline(world.store.context, **{**asked, **more})


def lane(view: TimelineView, name: str) -> LaneView:
    return next(each for each in view.lanes if each.name == name)


# What is in it ----------------------------------------------------------------------------------------------------------


def test_every_status_of_the_contract_is_drawn(history: History) -> None:
    view = drawn(history)
    seen = {run.status for each in view.lanes for run in each.runs} | {
        mark.status for each in view.lanes for mark in each.marks
    }
    assert seen == {  # contract 8.3, and what a pause consumed
        "pending", "coalesced", "skipped-overlap", "skipped-misfire", "preflight-rejected", "admitted", "running",
        "interrupted", "completed", "failed", "exhausted", "cancelled", "paused",
    }  # fmt: skip
    assert any(run.overdue for each in view.lanes for run in each.runs if run.status == "running")


def test_a_run_that_waits_for_input_shows_the_wait_and_one_that_was_cancelled_there_when_it_ended(history: History) -> None:
    waiting = lane(drawn(history), "approve-release").runs[0]
    assert [(wait.begins, wait.ends) for wait in waiting.waits] == [(at("09:40"), None)]
    cancelled = next(run for run in lane(drawn(history), "billing.close").runs if run.status == "cancelled")
    assert [(wait.begins, wait.ends) for wait in cancelled.waits] == [(at("06:27"), cancelled.ended_at)]
    assert "not now" in cancelled.why


def test_runs_at_once_lie_on_tracks_of_their_own(history: History) -> None:
    found = lane(drawn(history), "import-mail")
    assert found.tracks >= 2
    for track in range(found.tracks):
        there = sorted((run.admitted_at, run.ended_at or NOW) for run in found.runs if run.track == track)
        assert all(first[1] <= second[0] for first, second in pairwise(there))


def test_a_pause_has_its_reason_and_the_instants_that_it_consumed(history: History) -> None:
    found = lane(drawn(history), "etl-orders")
    (pause,) = found.pauses
    assert (pause.begins, pause.ends, pause.why) == (at("05:18"), at("07:18"), "migration <b>of</b> the orders")
    consumed = [mark.instant for mark in found.marks if mark.status == "paused"]
    assert consumed == [at("05:20") + n * 20 * MINUTE for n in range(6)]


def test_a_pause_of_a_deleted_schedule_ends_with_it(history: History) -> None:
    found = lane(drawn(history), "old-export")
    assert found.state == "deleted" and found.pauses[0].ends == at("09:38")
    assert max(mark.instant for mark in found.marks) < at("09:38")


def test_a_span_of_missed_instants_is_one_mark_with_its_count(history: History) -> None:
    (span,) = [mark.span for mark in lane(drawn(history), "heartbeat").marks if mark.span]
    assert (span.first, span.last, span.count) == (at("01:28"), at("02:08"), 41)


def test_the_held_candidate_says_since_when_and_what_for(history: History) -> None:
    (held,) = [mark for mark in lane(drawn(history), "hourly-report").marks if mark.status == "pending"]
    assert held.instant == at("12:00") and held.held_since == at("12:00") and held.why.startswith("overlap: run-")


def test_absences_blocked_schedules_runs_by_hand_and_what_is_idle(history: History) -> None:
    view = drawn(history)
    assert [(gap.begins, gap.ends) for gap in view.absences] == [(at("01:28"), at("03:48"))]
    assert lane(view, "vacuum").state == "blocked" and lane(view, "vacuum").diagnostic
    assert [run.schedule_id for run in lane(view, "report by hand").runs] == [None]
    assert view.idle == ("weekly-vacuum",)
    assert view.supervised


def test_what_is_expected_comes_from_the_decisions_of_the_supervisor(history: History) -> None:
    view = drawn(history)
    assert view.expected_until == view.until
    report = lane(view, "hourly-report")
    running = next(run for run in report.runs if run.status == "running")
    assert running.expected_end is not None and running.expected_end > NOW
    held = report.expected[0]  # the held one begins when the running one ends: overlap is queue
    assert (held.instant, held.begins, held.status) == (at("12:00"), running.expected_end, "admitted")
    assert [each.instant for each in lane(view, "checks-config").expected] == [at("12:50"), at("13:50")]


def test_an_overlap_that_is_coming_is_expected_to_be_skipped(world: World) -> None:
    add(world.store, "slow", cron("*/10 * * * *"))
    world.step()
    for minute in range(1, 32):
        world.clock.set(at("09:00:30") + minute * MINUTE)
        world.step()
        if minute == 25:
            world.end()
            world.step()
    found = lane(draw(world), "slow").expected
    assert {each.status for each in found} == {"admitted", "skipped-overlap"}


def test_a_step_back_of_the_clock_is_one_event_for_all_that_began_anew(world: World) -> None:
    add(world.store, "a")
    add(world.store, "b")
    world.step()
    world.clock.set(at("18:00:30"))
    world.step()
    world.clock.set(at("12:00:30"))
    world.step()
    (event,) = draw(world).clock_events
    assert event.schedules == ("a", "b") and event.at == at("12:00:30") and event.floor >= at("18:00")


def test_a_supervisor_that_died_is_away_from_when_it_was_last_seen(world: World) -> None:
    add(world.store, "a")
    world.step()
    for _ in range(5):
        world.clock.advance(MINUTE)
        world.step()
        world.end()
    world.die()
    world.clock.advance(30 * MINUTE)
    view = draw(world)
    (gap,) = view.absences
    assert (gap.begins, gap.ends) == (at("09:05:30"), None) and not view.supervised


def test_before_anything_was_made_nobody_was_missing(world: World) -> None:
    add(world.store, "a")
    world.step()
    assert draw(world, since=world.clock.now() - 9 * HOUR).absences == ()


def test_an_empty_store_is_an_empty_picture(world: World) -> None:
    view = draw(world)
    assert (view.lanes, view.idle, view.absences) == ((), (), ())


# Groups -----------------------------------------------------------------------------------------------------------------


def test_by_slot_no_two_runs_hold_one_slot_and_a_waiting_run_holds_none(history: History) -> None:
    view = drawn(history, by="slot")
    for each in (each for each in view.lanes if each.kind == "slot"):
        there = sorted((run.admitted_at, run.ended_at or NOW) for run in each.runs)
        assert all(first[1] <= second[0] for first, second in pairwise(there)), each.name
    waiting = [run for each in view.lanes for run in each.runs if run.schedule_id == "approve-release"]
    assert [run.ended_at for run in waiting] == [at("09:40")]
    assert {mark.status for mark in lane(view, "not run").marks} >= {"skipped-misfire", "pending"}


def test_by_deployment_schedules_that_share_one_share_a_lane(history: History) -> None:
    view = drawn(history, by="deployment")
    assert {run.schedule_id for run in lane(view, "dump").runs} == {"nightly-dump", "old-export"}
    assert {run.schedule_id for run in lane(view, "report").runs} == {"hourly-report", None}


def test_named_schedules_alone_and_shown_even_when_nothing_happens(history: History) -> None:
    view = drawn(history, schedule_ids=["weekly-vacuum", "flaky-sync"])
    assert [each.name for each in view.lanes] == ["flaky-sync", "weekly-vacuum"] and view.idle == ()
    with pytest.raises(NotFound):
        drawn(history, schedule_ids=["nope"])


def test_a_window_that_ends_before_it_begins_is_refused(history: History) -> None:
    with pytest.raises(InvalidArgument):
        drawn(history, until=NOW - 13 * HOUR)
    with pytest.raises(InvalidArgument):
        drawn(history, by="colour")


def test_it_goes_through_json_and_back(history: History) -> None:
    view = drawn(history)
    assert from_json(TimelineView, view.to_json()) == view


# Bounds -----------------------------------------------------------------------------------------------------------------


def test_no_more_is_drawn_than_asked_and_the_lane_says_since_when(history: History) -> None:
    view = drawn(history, most=300)
    assert sum(len(each.runs) + len(each.marks) for each in view.lanes) <= 300 + 20 * len(view.lanes)
    cut = lane(view, "heartbeat")
    assert view.left_out and cut.drawn_from is not None
    assert min(run.admitted_at for run in cut.runs) >= cut.drawn_from
    whole = {run.run_id for run in lane(drawn(history), "heartbeat").runs if run.admitted_at >= cut.drawn_from}
    assert {run.run_id for run in cut.runs} == whole, "from there on all is drawn"
    assert lane(view, "rotate-keys").drawn_from is None, "a lane with little is whole"


def test_what_is_ahead_is_worked_out_for_as_long_as_it_is_few_instants(history: History) -> None:
    context = history.world.store.context
    end = picture_ahead.horizon(context, NOW, NOW + 30 * 24 * HOUR, 500)
    assert end is not None and NOW + HOUR < end < NOW + 12 * HOUR
    assert picture_ahead.horizon(context, NOW, NOW + HOUR, 500) == NOW + HOUR


class Recorder:
    """A connection that remembers each statement with its values."""

    def __init__(self, real: sqlite3.Connection, seen: dict[str, Any]) -> None:
        self.real, self.seen = real, seen

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        self.seen.setdefault(statement, values)
        return self.real.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.parametrize("by", ["schedule", "deployment", "slot"])
def test_no_query_reads_through_a_table_that_grows(history: History, by: str) -> None:
    ledger = history.world.store.context.ledger
    real = ledger.connection
    seen: dict[str, Any] = {}
    ledger._connection = Recorder(real, seen)  # type: ignore[assignment]
    try:
        drawn(history, by=by)
    finally:
        ledger._connection = real
    assert len(seen) > 15
    bad = []
    for statement, values in seen.items():
        if re.match(r"\s*SELECT", statement):
            for *_, detail in real.execute(f"EXPLAIN QUERY PLAN {statement}", values):
                scanned = re.match(r"SCAN (o|r|occurrences|runs|executions|revisions)\b(?!.*runs_unfinished)", detail)
                sorted_of = re.search("FROM (occurrences|runs)(?! INDEXED BY runs_unfinished)", statement)
                is_sorted = "TEMP B-TREE" in detail and sorted_of
                if scanned or is_sorted:
                    bad.append((statement, detail))
    assert bad == []
