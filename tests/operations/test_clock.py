"""The wall clock jumps: back a little, back a lot, forward (contract 5.14; field reports FR-02, FR-03, FR-07)."""

from __future__ import annotations

import json
import logging
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.schedules import add, admitted, at, cron, history
from tests.support.story import World
from wfctl.core.instants import format_instant

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def drive(world: World, until: datetime, every: timedelta = MINUTE) -> None:
    """Step on the minute until then; each run ends before the next step."""
    while world.clock.now() < until:
        now = world.clock.now()
        following = now.replace(second=0, microsecond=0) + every
        world.clock.advance(min(following, until) - now)
        world.step()
        world.end()
        world.step()


def jump(world: World, to: datetime) -> None:
    world.clock.set(to)
    world.step()


def settle(world: World) -> None:
    """Let what runs end."""
    world.end()
    world.step()


def events(world: World) -> list[dict[str, Any]]:
    """What clock events withdrew, flattened, oldest first."""
    found = world.store.context.ledger.connection.execute("SELECT withdrawn FROM clock_events ORDER BY schedule, number")
    return [each for (text,) in found for each in json.loads(text)]


def count_of_events(world: World) -> int:
    return int(world.store.context.ledger.connection.execute("SELECT count(*) FROM clock_events").fetchone()[0])


def test_fr_02_round_1_a_step_back_of_two_hours_waits_and_says_until_when(world: World) -> None:
    world.clock.set(at("15:00:30"))
    add(world.store, "tick")
    world.step()
    jump(world, at("17:00:30"))
    settle(world)
    drive(world, at("17:01"))
    assert admitted(world, "tick") == [at("17:00"), at("17:01")]
    before = history(world, "tick")

    jump(world, at("15:01:30"))
    view = world.store.get_schedule(schedule_id="tick")
    assert view.state == "active" and view.waits_until == at("17:01") and view.next_instant == at("17:02")
    drive(world, at("15:06:30"))
    assert history(world, "tick") == before and count_of_events(world) == 0
    drive(world, at("17:03"))
    assert admitted(world, "tick") == [at("17:00"), at("17:01"), at("17:02"), at("17:03")]
    assert world.store.get_schedule(schedule_id="tick").waits_until is None


@pytest.mark.parametrize(
    ("back", "waits"),
    [
        pytest.param(3 * HOUR, True, id="three hours wait"),
        pytest.param(3 * HOUR + timedelta(seconds=1), False, id="a second more begins anew"),
    ],
)
def test_5_14_the_boundary(world: World, back: timedelta, waits: bool) -> None:
    world.clock.set(at("15:00:30"))
    add(world.store, "tick")
    drive(world, at("15:05"))
    jump(world, at("15:05") - back)
    view = world.store.get_schedule(schedule_id="tick")
    assert (view.waits_until == at("15:05")) is waits
    assert view.effective_from == (at("15:00:30") if waits else at("15:05") - back)
    drive(world, at("15:05") - back + 2 * MINUTE)
    assert len(admitted(world, "tick")) == (5 if waits else 7)


def test_fr_02_round_2_a_step_back_of_eight_hours_begins_anew(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.clock.set(at("15:00:30"))
    add(world.store, "tick")
    drive(world, at("15:02"))
    jump(world, at("23:00:30"))
    settle(world)
    drive(world, at("23:01"))
    assert admitted(world, "tick") == [at("15:01"), at("15:02"), at("23:00"), at("23:01")]

    with caplog.at_level(logging.WARNING, "wfctl"):
        jump(world, at("15:04:30"))
        drive(world, at("15:06"))
    steps = [line for line in caplog.records if getattr(line, "action", None) == "clock_stepped_back"]
    assert len(steps) == 1, "one log line for the step back"
    assert count_of_events(world) == 1
    view = world.store.get_schedule(schedule_id="tick")
    assert view.waits_until is None and view.effective_from == at("15:04:30") and view.state == "active"
    assert admitted(world, "tick") == [at("15:01"), at("15:02"), at("23:00"), at("23:01"), at("15:05"), at("15:06")]
    rows = world.occurrences("tick")
    assert all(row.instant <= at("15:06") for row in rows if row.run_id is None), "what admitted nothing is withdrawn"
    assert not [row for row in rows if row.span and row.span.last > at("15:04:30")]
    assert any(each.get("status") == "skipped-misfire" for each in events(world))

    jump(world, at("22:58:30"))  # and past the instants that were admitted in the false future
    settle(world)
    drive(world, at("23:03"))
    found = admitted(world, "tick")
    assert found[-4:] == [at("22:58"), at("22:59"), at("23:02"), at("23:03")]
    assert len(found) == len(set(found))
    assert world.store.get_schedule(schedule_id="tick").state == "active"


def test_5_14_a_span_is_cut_at_the_new_now(world: World) -> None:
    world.clock.set(at("06:00:30"))
    add(world.store, "tick")
    world.step()
    jump(world, at("23:00:30"))  # 1,020 instants: the newest 100 have rows, the others a span 06:01 to 21:20
    span = world.occurrences("tick")[0].span
    assert span is not None and (span.first, span.last, span.count) == (at("06:01"), at("21:20"), 920)
    world.end()
    jump(world, at("09:30:30"))
    rows = world.occurrences("tick")
    assert [(row.span.first, row.span.last, row.span.count) for row in rows if row.span] == [(at("06:01"), at("09:30"), 210)]
    assert rows[0].status == "skipped-misfire" and rows[0].reason is not None and rows[0].reason["code"] == "missed"
    assert [row.instant for row in rows if not row.span] == [at("23:00")], "the admitted one stays"
    assert world.store.get_occurrence(schedule_id="tick", instant=at("08:00")).span is not None
    drive(world, at("09:32"))
    assert history(world, "tick")[-2:] == ["09:31 completed", "09:32 completed"]


def test_5_14_a_span_of_an_older_trigger_is_cut_by_that_trigger(world: World) -> None:
    """The span row has the instants of the revision it was recorded under, not of what the schedule became since."""
    world.clock.set(at("00:00:30"))
    add(world.store, "tick", {"kind": "interval", "every": "1m"})
    world.step()
    jump(world, at("20:00:45"))
    world.end()
    world.step()
    world.store.update_schedule(schedule_id="tick", expected_revision=1, trigger=cron("0 21 * * *"))
    world.step()
    jump(world, at("04:30:15"))
    spans = [row.span for row in world.occurrences("tick") if row.span]
    assert [(span.first, span.last, span.count) for span in spans] == [(at("00:01:30"), at("04:29:30"), 269)]
    assert world.store.get_schedule(schedule_id="tick").next_instant == at("21:00")


def test_5_14_a_cut_span_never_ends_on_an_admitted_instant(world: World) -> None:
    world.clock.set(at("20:00:30"))
    add(world.store, "tick")
    drive(world, at("20:01"))
    jump(world, at("10:00:30"))  # 20:01 is admitted in the false future
    world.clock.set(at("23:00:30"))
    world.step()  # missed: a span from 10:01 to past 20:01, which passes quietly within it
    world.end()
    span = world.occurrences("tick")[1].span
    assert span is not None and span.first == at("10:01") and span.last > at("20:01")
    assert world.store.get_occurrence(schedule_id="tick", instant=at("15:00")).span == span
    jump(world, at("20:01:15"))  # less than three hours: nothing yet
    assert [row.span for row in world.occurrences("tick") if row.span] == [span]
    world.clock.set(at("23:30:30", 2))
    world.step()
    world.end()
    jump(world, at("20:01:15"))
    spans = [row.span for row in world.occurrences("tick") if row.span]
    assert [(cut.first, cut.last) for cut in spans] == [(at("10:01"), at("20:00"))]
    found = [row.instant for row in world.occurrences("tick")]
    assert len(found) == len(set(found)) and at("20:01") in found
    assert world.store.get_schedule(schedule_id="tick").state == "active"


@pytest.mark.parametrize("misfire", ["skip", "latest"])
@pytest.mark.parametrize("count", [3, 130])
def test_5_14_admitted_instants_pass_quietly_when_they_come_again(world: World, misfire: str, count: int) -> None:
    """Also more than the 100 that are listed, and whether they come one by one or all at once."""
    world.clock.set(at("12:00:30"))
    add(world.store, "tick", misfire=misfire)
    drive(world, at("12:00:00") + count * MINUTE)
    first = admitted(world, "tick")
    assert len(first) == count
    jump(world, at("08:00:30"))
    jump(world, at("12:00:00") + (count + 5) * MINUTE)  # all of it comes again at once
    for _ in range(3):
        world.end()
        world.step()
    again = admitted(world, "tick")
    assert again[:count] == first and len(again) == len(set(again))
    assert len(again) == count + 1, "only the newest, which is on time, is admitted"
    assert len(world.runs()) == count + 1
    now = world.clock.now()
    drive(world, now + MINUTE)
    assert admitted(world, "tick")[-1] == now + MINUTE
    instants = [row.instant for row in world.occurrences("tick")]
    assert len(instants) == len(set(instants))
    assert all(at("08:01") <= each for each in instants)


def test_5_14_admitted_instants_within_a_span_are_not_counted_by_it(world: World) -> None:
    world.clock.set(at("12:00:30"))
    add(world.store, "tick", {"kind": "interval", "every": "1m"})
    for _ in range(5):
        world.clock.advance(MINUTE)
        world.step()
        settle(world)
    taken = admitted(world, "tick")
    jump(world, at("08:00:30"))
    jump(world, at("16:00:30"))
    span = next(row.span for row in world.occurrences("tick") if row.span)
    assert span is not None and span.first == at("08:01:30")
    grid = (span.last - span.first) // MINUTE + 1
    assert span.count == grid - len(taken)


def test_5_14_a_candidate_later_than_now_is_withdrawn(world: World) -> None:
    world.clock.set(at("12:00:30"))
    add(world.store, "tick", overlap="queue")
    world.clock.set(at("12:01"))
    world.step()
    world.clock.set(at("12:02"))
    world.step()
    held = world.store.get_schedule(schedule_id="tick").candidate
    assert held is not None and held.instant == at("12:02")
    jump(world, at("08:00:30"))
    assert world.store.get_schedule(schedule_id="tick").candidate is None
    assert {"instant": format_instant(at("12:02")), "status": "pending"} in events(world)
    world.end()
    world.step()
    assert admitted(world, "tick") == [at("12:01")]


def test_5_14_a_candidate_of_the_past_is_kept(world: World) -> None:
    world.clock.set(at("12:00:30"))
    add(world.store, "hourly", cron("0 * * * *"), overlap="queue", misfire="latest")
    for moment in (at("13:00"), at("14:00")):
        world.clock.set(moment)
        world.step()
    world.clock.set(at("23:30"))
    world.store.update_schedule(schedule_id="hourly", expected_revision=1, lateness="5m")  # settles what was missed meanwhile
    held = world.store.get_schedule(schedule_id="hourly").candidate
    assert held is not None and held.instant == at("14:00")
    jump(world, at("14:10"))
    held = world.store.get_schedule(schedule_id="hourly").candidate
    assert held is not None and held.instant == at("14:00")


def test_5_14_pauses_of_the_false_future_are_cut(world: World) -> None:
    world.clock.set(at("20:00:30"))
    add(world.store, "tick")
    world.step()
    world.store.pause_schedule(schedule_id="tick", reason="maintenance")
    jump(world, at("10:00:30"))
    view = world.store.get_schedule(schedule_id="tick")
    assert view.state == "paused" and view.paused_at == at("10:00:30") and view.pause_reason == "maintenance"
    drive(world, at("10:02"))
    assert history(world, "tick") == []
    world.store.resume_schedule(schedule_id="tick")
    drive(world, at("10:04"))
    assert admitted(world, "tick") == [at("10:03"), at("10:04")]


def test_5_14_every_schedule_begins_anew_in_one_transaction(world: World) -> None:
    """A crash between two of them would leave the second silent: the noted clock is taken back with the first."""
    world.clock.set(at("20:00:30"))
    for name in ("a", "b", "c"):
        add(world.store, name)
    drive(world, at("20:01"))
    statements: list[str] = []
    world.clock.set(at("10:00:30"))
    world._service.context.ledger.connection.set_trace_callback(statements.append)  # type: ignore[union-attr]
    world.step()
    world._service.context.ledger.connection.set_trace_callback(None)  # type: ignore[union-attr]
    inserts = [i for i, text in enumerate(statements) if text.startswith("INSERT INTO clock_events")]
    assert len(inserts) == 3
    assert "COMMIT" not in statements[inserts[0] : inserts[-1]]


def test_5_14_a_blocked_and_a_deleted_schedule_do_not_stand_in_the_way(world: World) -> None:
    world.clock.set(at("20:00:30"))
    for name in ("a", "b", "c"):
        add(world.store, name)
    drive(world, at("20:01"))
    (world.root / "schedules" / "a.toml").write_text("broken")
    assert world.store.get_schedule(schedule_id="a").state == "blocked"
    world.store.delete_schedule(schedule_id="b")
    jump(world, at("10:00:30"))
    drive(world, at("10:02"))
    assert admitted(world, "c") == [at("20:01"), at("10:01"), at("10:02")]
    assert admitted(world, "a") == admitted(world, "b") == [at("20:01")]


def test_5_14_a_step_back_seen_first_by_a_new_supervisor(world: World) -> None:
    world.clock.set(at("20:00:30"))
    add(world.store, "tick")
    drive(world, at("20:02"))
    world.die()
    world.clock.set(at("10:00:30"))
    world.step()
    drive(world, at("10:01"))
    assert admitted(world, "tick") == [at("20:01"), at("20:02"), at("10:01")]


def test_5_14_twice_back_and_forth(world: World) -> None:
    world.clock.set(at("12:00:30"))
    add(world.store, "tick")
    drive(world, at("12:02"))
    for _ in range(2):
        jump(world, at("06:00:30"))
        drive(world, at("06:01"))
        jump(world, at("12:00:30"))
        drive(world, at("12:03"))
    found = admitted(world, "tick")
    assert len(found) == len(set(found))
    assert sorted(found) == [at("06:01"), at("12:00"), at("12:01"), at("12:02"), at("12:03")]
    assert count_of_events(world) == 2
    instants = [row.instant for row in world.occurrences("tick")]
    assert len(instants) == len(set(instants))


# Forward -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("away", "span"),
    [
        pytest.param(timedelta(hours=8), True, id="eight hours"),
        pytest.param(timedelta(minutes=90), False, id="90 minutes, a row each"),
        pytest.param(timedelta(days=3653), True, id="ten years"),
    ],
)
def test_fr_03_after_sleep_at_most_one_run_each(world: World, away: timedelta, span: bool) -> None:
    for name, misfire in (("a", "skip"), ("b", "latest")):
        add(world.store, name, misfire=misfire)
    world.step()
    world.clock.advance(away + timedelta(seconds=20))  # the newest minute is more than 60 s late for nobody: 50 s
    began = time.perf_counter()
    world.step()
    assert time.perf_counter() - began < 2.0
    newest = world.clock.now().replace(second=0)
    assert admitted(world, "a") == admitted(world, "b") == [newest]
    for name, status, code in (("a", "skipped-misfire", "missed"), ("b", "coalesced", "newer")):
        rows = world.occurrences(name)
        listed = [row for row in rows if row.span is None]
        assert len(listed) == min(100, away // MINUTE), "the newest hundred have a row each"
        assert [row.instant for row in listed] == [newest - i * MINUTE for i in reversed(range(len(listed)))]
        assert all(row.status == status and row.reason and row.reason["code"] == code for row in rows[:-1])
        assert (rows[0].span is not None) is span
        if span:
            found = rows[0].span
            assert found is not None and found.first == at("09:01") and found.last == listed[0].instant - MINUTE
            assert found.count == ((found.last - found.first) // MINUTE + 1 if away < timedelta(days=1) else None)
    world.end()
    drive(world, newest + MINUTE)
    assert admitted(world, "a")[-1] == admitted(world, "b")[-1] == newest + MINUTE


def test_fr_03_what_is_more_than_a_minute_late_is_caught_up_by_latest_alone(world: World) -> None:
    for name, misfire in (("a", "skip"), ("b", "latest")):
        add(world.store, name, cron("*/10 * * * *"), misfire=misfire)
    world.step()
    world.clock.set(at("17:05"))
    world.step()
    assert admitted(world, "a") == [] and admitted(world, "b") == [at("17:00")]


def test_fr_07_a_long_job_does_not_push_the_timetable(world: World) -> None:
    add(world.store, "n", cron("*/5 * * * *"))
    ends = None
    for _ in range(120):
        now = world.clock.now()
        world.clock.advance(now.replace(second=0) + MINUTE - now)
        if ends is not None and world.clock.now() >= ends:
            world.end()
            ends = None
        world.step()
        if world.keeper.running and ends is None:
            ends = world.clock.now() + 7 * MINUTE
    rows = world.occurrences("n")
    assert [row.instant for row in rows] == [at("09:05") + i * 5 * MINUTE for i in range(24)]
    assert [row.status for row in rows[:4]] == ["completed", "skipped-overlap", "completed", "skipped-overlap"]
    for row in rows:
        if row.run_id:
            assert row.lateness_s == 0
        else:
            assert row.reason is not None and row.reason["code"] == "overlap" and row.reason["runs"]


def test_4_4_nothing_shifts_the_grid_of_an_interval(world: World) -> None:
    anchor = add(world.store, "grid", {"kind": "interval", "every": "10m"}).anchor
    assert anchor == at("09:00:30")
    drive(world, at("09:20:30"))
    world.store.pause_schedule(schedule_id="grid")
    world.clock.set(at("09:47"))
    world.store.resume_schedule(schedule_id="grid")
    world.die()
    jump(world, at("13:00:31"))
    jump(world, at("09:05"))  # re-anchored
    assert world.store.get_schedule(schedule_id="grid").anchor == anchor
    drive(world, at("09:31"))
    assert all((instant - anchor) % timedelta(minutes=10) == timedelta(0) for instant in admitted(world, "grid"))


def test_4_4_an_interval_made_in_the_false_future_keeps_its_grid_and_is_not_silent_until_then(world: World) -> None:
    world.clock.set(at("20:00:30"))
    anchor = add(world.store, "grid", {"kind": "interval", "every": "7m"}).anchor
    world.step()
    jump(world, at("10:00:10"))
    view = world.store.get_schedule(schedule_id="grid")
    assert view.anchor is not None and anchor is not None and view.next_instant is not None
    assert view.anchor <= at("10:00:10") < view.next_instant <= at("10:07:10")
    assert (view.next_instant - anchor) % timedelta(minutes=7) == timedelta(0)
    jump(world, view.next_instant)
    assert admitted(world, "grid") == [view.next_instant]
