"""Explaining any instant of a schedule out of a real ledger (contract 5.10, 9): what is said is what happened."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.chance import times
from tests.support.schedules import add, at, cron
from tests.support.story import World
from tests.support.timeline import Story
from tests.support.waiting import wait_for
from wfctl.core import trigger
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations.views import ExplanationView, from_json

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERY_20 = cron("*/20 * * * *")
STORIES, PARTS = times(2), 4


def explained(world: World, instant: datetime | str, schedule_id: str = "etl") -> ExplanationView:
    return world.store.explain_occurrence(schedule_id=schedule_id, instant=instant)


def said(view: ExplanationView) -> str:
    return "\n".join([view.verdict, *(line.text for line in view.lines)])


def offers(view: ExplanationView) -> list[str]:
    return [each.text for each in view.alternatives]


def to(world: World, text: str, day: int = 1, **more: float) -> None:
    """Let time pass until then, and do a round."""
    world.clock.advance(at(text, day) + timedelta(**more) - world.clock.now())
    world.step()


def settle(world: World, **how: Any) -> None:
    """Let what runs end."""
    world.end(**how)
    world.step()


@pytest.fixture
def etl(world: World) -> World:
    add(world.store, "etl", EVERY_20)
    world.step()
    return world


# Overlap and capacity -----------------------------------------------------------------------------------------------------


def test_5_10_which_run_held_the_slot_and_until_when(etl: World) -> None:
    to(etl, "09:20")
    to(etl, "09:20", seconds=1)
    to(etl, "09:40", milliseconds=412)
    to(etl, "09:51:07")
    settle(etl)
    view = explained(etl, at("09:40"))
    assert view.verdict == "skipped-overlap - it did not run, and will not: run-000001 was running."
    assert "overlap=skip, and run-000001 was running (since 09:20:01Z)" in said(view)
    assert "run-000001 completed, 11m 07s after this instant" in said(view)
    assert (view.status, view.revision, view.lateness_s, view.run_id) == ("skipped-overlap", 1, 0.412, None)
    assert view.reason == {"code": "overlap", "runs": ["run-000001"], "limit": 1}
    assert (view.croniter, view.tz_database) == trigger.stamps()
    assert offers(view) == [
        "overlap=parallel max_active_runs=2 (at once)",
        "overlap=queue (at 09:51:07Z)",
        "misfire=latest (at 09:51:07Z)",
    ]
    assert [each.at for each in view.alternatives] == [at("09:40") + timedelta(milliseconds=412), *[at("09:51:07")] * 2]


@pytest.mark.parametrize("overlap", ["queue", "parallel"])
def test_5_10_what_is_offered_is_what_happens(world: World, overlap: str) -> None:
    """The same day once more, under the policy that was offered: the instant runs when it was said to."""
    more = {"max_active_runs": 2} if overlap == "parallel" else {}
    add(world.store, "etl", EVERY_20, overlap=overlap, **more)
    world.step()
    to(world, "09:20")
    to(world, "09:40", milliseconds=412)
    to(world, "09:51:07")
    settle(world)
    begun = {"queue": at("09:51:07"), "parallel": at("09:40") + timedelta(milliseconds=412)}
    run = explained(world, at("09:40")).run_id
    assert run is not None and world.store.inspect_run(run_id=run).admitted_at == begun[overlap]


def test_5_10_an_interrupted_run_in_the_way_waits_for_input(world: World) -> None:
    world.store.create_deployment(deployment_id="d", steps=[{"name": n, "command": ["/bin/true"]} for n in ("a", "ask")])
    add(world.store, "etl", EVERY_20)
    world.step()
    to(world, "09:20")
    settle(world)
    run, k = world.keeper.running[-1]
    asked = Path(world.keeper.world.requests[run, k].environment["WFCTL_INTERRUPT"])
    asked.write_text(json.dumps({"message": "approve \x1b[31mall?"}))
    settle(world, exit_status=75)
    to(world, "09:40")
    view = explained(world, at("09:40"))
    assert "run-000001 waited for input (since 09:20:00Z)" in said(view)
    assert "run-000001 waits for input still, for 20m: approve \x1b[31mall?" in said(view)
    own = explained(world, at("09:20"))
    assert own.verdict == "interrupted - it ran, and waits for input, for 20m: approve \x1b[31mall?."
    assert own.commands[0] == "wfctl run resume run-000001" and own.will_run is True


def test_5_8_what_is_held_says_what_for_and_who_is_served_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.story.SETTINGS", {"supervisor": {"max_concurrent_runs": 1}, "runs": {"min_free": "0"}})
    for name in ("a", "b", "c"):
        add(world.store, name, cron("0 * * * *"))
    world.step()
    to(world, "10:00")
    first, second = explained(world, at("10:00"), "b"), explained(world, at("10:00"), "c")
    assert (first.status, first.situation, first.will_run) == ("pending", "pending", None)
    assert "unless that takes until after 10:01:00Z (lateness=1m)" in first.verdict
    assert "the next execution slot is its own" in said(first)
    assert "served before it, since they are held for longer: b@2027-03-01T10:00:00Z" in said(second)
    assert offers(first) == ["max_concurrent_runs=2 (at once)"] and offers(second) == ["max_concurrent_runs=3 (at once)"]
    assert "run-000001 is" in said(first)
    to(world, "10:01:01")
    late = explained(world, at("10:00"), "c")
    assert late.verdict.startswith("skipped-misfire - it did not run, and will not: all 1 execution slots were taken")
    to(world, "10:03")
    settle(world)
    assert "misfire=latest (at 10:03:00Z)" in offers(explained(world, at("10:00"), "b"))


def test_5_6_what_is_held_for_overlap_and_what_takes_its_place(world: World) -> None:
    add(world.store, "etl", EVERY_20, overlap="queue")
    world.step()
    to(world, "09:20")
    to(world, "09:40")
    held = explained(world, at("09:40"))
    assert (
        held.verdict == "pending - it is held, and runs when run-000001 ends, unless the newer 10:00:00Z takes its place first."
    )
    assert offers(held) == ["overlap=parallel max_active_runs=2 (at once)"]
    to(world, "10:00")
    gone = explained(world, at("09:40"))
    assert gone.verdict == "coalesced - it did not run, and will not: the newer 10:00:00Z took its place."
    assert "10:00:00Z is pending" in said(gone)
    assert "wfctl occurrence explain etl@2027-03-01T10:00:00Z" in gone.commands


# Absence, lateness and what the machine did ---------------------------------------------------------------------------------


def test_5_10_when_the_supervisor_was_away(etl: World) -> None:
    etl.stop()
    etl.clock.advance(2 * HOUR)
    due = explained(etl, at("10:40"))
    assert due.verdict == "due - it has not run, for 20m 30s: no supervisor is there since 09:00:30Z."
    assert "considered now, 20m 30s late (allowed 1m), it would be skipped-misfire" in said(due)
    assert due.commands[0] == "wfctl supervise"
    etl.step()
    missed = explained(etl, at("10:40"))
    assert "no supervisor was there from 09:00:30Z until 11:00:30Z" in missed.verdict
    assert "began, 2h later" in said(missed)
    assert offers(missed) == ["lateness=21m (at 11:00:30Z)", "misfire=latest (the newer 11:00:00Z would have taken its place)"]


def test_5_10_a_supervisor_that_was_killed_leaves_its_last_trace(etl: World) -> None:
    to(etl, "09:20")
    settle(etl)
    etl.die()
    etl.clock.set(at("10:10"))
    etl.step()
    view = explained(etl, at("09:40"))
    assert "the last trace of the supervisor" in said(view) and "it was killed, or the machine went down" in said(view)
    assert "no supervisor was there from 09:20:00Z until 10:10:00Z" in view.verdict


def test_5_10_what_a_supervisor_skipped_is_no_absence_though_it_was_killed_later(etl: World) -> None:
    to(etl, "09:20")
    to(etl, "09:40")  # skipped: that leaves no trace in its session
    etl.die()
    etl.clock.set(at("10:10"))
    etl.step()
    assert "supervisor was there" not in said(explained(etl, at("09:40")))
    assert "no supervisor was there from 09:40:00Z until 10:10:00Z" in explained(etl, at("10:00")).verdict


def test_5_10_latest_says_which_one_ran_instead(world: World) -> None:
    add(world.store, "etl", EVERY_20, misfire="latest")
    world.step()
    world.stop()
    world.clock.advance(HOUR)
    world.step()
    view = explained(world, at("09:20"))
    assert view.verdict == "coalesced - it did not run, and will not: the newer 10:00:00Z took its place."
    assert "10:00:00Z is admitted as run-000001" in said(view)
    assert offers(view)[0] == "misfire=skip lateness=41m (at 10:00:30Z)"


def test_7_6_a_drain_is_told_before_and_after(etl: World) -> None:
    etl.store.drain()
    to(etl, "09:20:30")
    due = explained(etl, at("09:20"))
    assert "the supervisor is draining, and admits nothing" in due.verdict and due.commands[0] == "wfctl drain --undo"
    assert "considered now, 30s late (allowed 1m), it would run" in said(due)
    assert "but the supervisor is draining" in explained(etl, at("09:40")).verdict
    to(etl, "09:22")
    etl.store.drain(undo=True)
    etl.step()
    assert "it was considered 2m late, and 1m is allowed" in explained(etl, at("09:20")).verdict


def test_2_3_a_blocked_schedule_says_why(etl: World) -> None:
    (etl.root / "schedules" / "etl.toml").write_text("nonsense [")
    etl.clock.set(at("09:20:10"))
    due = explained(etl, at("09:20"))
    assert due.verdict.startswith("due - it has not run, for 10s: the schedule is blocked: schedule etl: line 1")
    assert "blocked - it will not run, unless" in explained(etl, at("09:40")).verdict


# Changes ------------------------------------------------------------------------------------------------------------------


def test_5_11_a_pause_says_who_why_and_until_when(etl: World) -> None:
    etl.store.pause_schedule(schedule_id="etl", reason="disk \x1b[31mswap")
    to(etl, "09:40:10")
    past, coming = explained(etl, at("09:20")), explained(etl, at("10:00"))
    actor = etl.store.context.actor
    assert past.verdict == f"paused - it did not run, and will not: the schedule was paused by {actor} (disk \x1b[31mswap)."
    assert "paused - it will not run, unless the schedule is resumed before it, within 19m 50s" in coming.verdict
    assert (past.will_run, coming.will_run) == (False, None)
    etl.store.resume_schedule(schedule_id="etl")
    assert f"resumed by {actor}; 39m 40s were paused, and are never replayed" in said(explained(etl, at("09:20")))


@pytest.mark.parametrize("change", ["pause", "edit", "delete"])
def test_3_4_what_a_change_settled_names_the_change(world: World, change: str) -> None:
    add(world.store, "etl", EVERY_20, overlap="queue")
    world.step()
    to(world, "09:20")
    to(world, "09:40")
    world.clock.advance(21 * MINUTE)
    if change == "pause":
        world.store.pause_schedule(schedule_id="etl", reason="swap")
    elif change == "edit":
        world.store.update_schedule(schedule_id="etl", expected_revision=1, trigger=cron("7 * * * *"))
    else:
        world.store.delete_schedule(schedule_id="etl")
    actor = world.store.context.actor
    words = {
        "pause": f"the schedule was paused by {actor} (swap)",
        "edit": f"the schedule was edited by {actor}",
        "delete": "the schedule was deleted",
    }
    held, due = explained(world, at("09:40")), explained(world, at("10:00"))
    assert held.verdict == f"coalesced - it did not run, and will not: {words[change]} before it could run."
    assert "what it held, since 2027-03-01T09:40:00Z, was dropped" in said(held)
    assert due.verdict == f"skipped-misfire - it did not run, and will not: {words[change]} before it could run."
    assert "considered" not in [line.code for line in due.lines], "nobody did"
    if change == "edit":
        assert "revision 2" in said(held)
        old = explained(world, at("10:20"))
        assert old.situation == "edited" and old.is_instant is False and old.will_run is False
        assert "revision 1 (*/20 * * * *, UTC) did, until 10:01:00Z" in old.verdict
        new = explained(world, at("09:07"))
        assert "revision 1 (*/20 * * * *, UTC), in force since 09:00:30Z, does not name this time" in new.verdict
    if change == "delete":
        assert explained(world, at("10:20")).verdict == "deleted - it will not run: the schedule was deleted at 10:01:00Z."


def test_5_10_the_revision_is_the_one_of_the_time(etl: World) -> None:
    to(etl, "09:10")
    etl.store.update_schedule(schedule_id="etl", expected_revision=1, notes="a remark")
    to(etl, "09:20")
    settle(etl)
    etl.store.update_schedule(schedule_id="etl", expected_revision=2, lateness="5m")
    assert [explained(etl, at(text)).revision for text in ("09:20", "09:40")] == [2, 3]


def test_3_5_what_lies_before_the_beginning(etl: World) -> None:
    view = explained(etl, at("09:00"))
    assert (view.situation, view.will_run) == ("before", False)
    assert "the schedule began at 09:00:30Z" in view.verdict


def test_5_14_a_clock_that_was_set_back(world: World) -> None:
    world.clock.set(at("15:00:30"))
    add(world.store, "etl", cron("0 * * * *"))
    world.step()
    to(world, "16:00")
    settle(world)
    to(world, "23:00:30")
    settle(world)
    assert explained(world, at("20:00")).status == "skipped-misfire"
    world.clock.set(at("15:30"))
    world.step()
    again = explained(world, at("20:00"))
    assert (again.situation, again.status) == ("coming", None)
    assert "the clock was set back from 23:00:00Z by 7h 30m" in said(again)
    kept = explained(world, at("16:00"))
    assert kept.status == "completed" and "recorded at a time that is still to come" in said(kept)


def test_5_14_a_clock_that_stands_before_what_is_consumed(etl: World) -> None:
    to(etl, "09:20")
    settle(etl)
    etl.clock.set(at("09:05"))
    etl.step()
    view = explained(etl, at("09:40"))
    assert "the clock stepped back" in view.verdict and view.situation == "coming"


def test_10_what_was_let_go_is_said_to_be_unknown(etl: World) -> None:
    for text in ("09:20", "09:40", "10:00"):
        to(etl, text)
        settle(etl)
    etl.clock.advance(MINUTE)
    etl.store.collect_garbage(keep="15m")
    view = explained(etl, at("09:20"))
    assert (view.situation, view.will_run) == ("let-go", None) and "with all up to 09:40:00Z" in view.verdict
    assert explained(etl, at("10:00")).status == "completed"


def test_5_2_a_span_tells_its_members_from_other_times(etl: World) -> None:
    etl.stop()
    etl.clock.advance(timedelta(days=5))
    etl.step()
    member = explained(etl, at("10:40"))
    assert (member.status, member.is_instant) == ("skipped-misfire", True)
    assert "instants from 2027-03-01T09:20:00Z to 2027-03-0" in said(member)
    with pytest.raises(NotFound) as caught:
        explained(etl, at("10:41"))
    assert caught.value.data["near"] == ["etl@2027-03-01T10:40:00Z", "etl@2027-03-01T11:00:00Z"]
    assert not any(each.outcome == "admitted" for each in member.alternatives), (
        "older ones count as missed, whatever is allowed"
    )


# Runs ---------------------------------------------------------------------------------------------------------------------


def test_6_2_the_story_of_a_run(world: World) -> None:
    steps = [{"name": "load", "command": ["/bin/true"], "retries": 1, "retry_delay": "30s"}]
    world.store.create_deployment(deployment_id="d", steps=steps)
    add(world.store, "etl", EVERY_20)
    world.step()
    to(world, "09:20", milliseconds=100)
    settle(world, exit_status=3)
    to(world, "09:20:31")
    settle(world, exit_status=4)
    view = explained(world, at("09:20"))
    assert view.verdict == "failed - it ran, and failed after 31s: exit 4 in step load."
    assert [line.code for line in view.lines] == [
        "instant",
        "admitted",
        "started",
        "execution",
        "execution",
        "ended",
        "meaning",
    ]
    assert "execution 1, step load: exit 3; tried again" in said(view)
    assert "no retry was left" in said(view)
    assert view.reason is not None and view.reason["code"] == "exit" and view.alternatives == ()


def test_5_9_what_preflight_found(etl: World) -> None:
    etl.store.update_deployment(deployment_id="d", expected_revision=1, command=["/no/such"])
    to(etl, "09:20")
    view = explained(etl, at("09:20"))
    assert view.verdict.startswith(
        "preflight-rejected - it did not run, and will not: what its run needs was not there: command:"
    )
    assert view.commands[0] == "wfctl deployment check d"


def test_6_14_who_cancelled_it_and_why(etl: World) -> None:
    to(etl, "09:20")
    etl.store.cancel_run(run_id="run-000001", reason="wrong data")
    etl.step()
    assert f"cancelled by {etl.store.context.actor}: wrong data" in explained(etl, at("09:20")).verdict


def test_6_10_a_launch_that_the_system_refused(etl: World) -> None:
    etl.keeper.refuse("/bin/true", 13)
    to(etl, "09:20")
    etl.step()
    view = explained(etl, at("09:20"))
    assert view.will_run is False and "never started: could not be launched: program: Permission denied" in view.verdict


def test_7_1_an_abandoned_run_says_when_nobody_was_there(etl: World) -> None:
    to(etl, "09:20")
    etl.die()
    etl.keeper.die()
    etl.clock.advance(10 * MINUTE)
    etl.step()
    view = explained(etl, at("09:20"))
    assert view.will_run is None and "abandoned" in view.verdict
    assert "the last trace of the supervisor" in said(view) and "began, 10m later" in said(view)


def test_2_8_a_run_that_an_older_ledger_did_not_know(etl: World) -> None:
    to(etl, "09:20")
    settle(etl)
    with etl.store.context.ledger.transaction() as connection:
        for table in ("occurrences", "runs", "executions"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE counters SET run = 0")
    etl.stop()
    etl.step()
    view = explained(etl, at("09:20"))
    assert view.will_run is None and "found after an older ledger was put back" in view.verdict


# What is no instant, and what is asked for wrongly ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        (at("09:10"), ["etl@2027-03-01T09:20:00Z"]),
        (at("09:21"), ["etl@2027-03-01T09:20:00Z", "etl@2027-03-01T09:40:00Z"]),
        ("2027-03-01T10:21:00+01:00", ["etl@2027-03-01T09:20:00Z", "etl@2027-03-01T09:40:00Z"]),
    ],
)
def test_11_6_what_is_no_instant_names_those_beside_it(etl: World, asked: Any, near: list[str]) -> None:
    with pytest.raises(NotFound) as caught:
        explained(etl, asked)
    assert caught.value.data["near"] == near
    assert caught.value.exit_status == 66 and all(name in caught.value.message for name in caught.value.data["near"])


@pytest.mark.parametrize("asked", ["06:40", "2027-03-01T09:20:00", None, 7, datetime(2027, 3, 1, 9, 20)])
def test_9_what_is_no_time_is_refused(etl: World, asked: Any) -> None:
    with pytest.raises(InvalidArgument):
        explained(etl, asked)


@pytest.mark.parametrize("asked", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)])
def test_9_the_ends_of_the_calendar_are_answered(world: World, asked: datetime) -> None:
    add(world.store, "etl")
    assert explained(world, asked).situation in ("before", "coming")


def test_5_15_what_is_not_accounted_for_is_said_to_be_missing(etl: World) -> None:
    to(etl, "09:20")
    settle(etl)
    with etl.store.context.ledger.transaction() as connection:
        connection.execute("DELETE FROM occurrences")
    view = explained(etl, at("09:20"))
    assert view.situation == "unaccounted" and "wfctl occurrence audit etl" in view.commands


def test_2_3_a_schedule_that_never_was_valid(etl: World) -> None:
    (etl.root / "schedules" / "new.toml").write_text("nonsense [")
    view = explained(etl, at("09:20"), "new")
    assert view.situation == "blocked" and "its definition never was valid" in view.verdict and view.lines == ()


def test_4_3_a_zone_that_is_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add(world.store, "etl", cron("*/20 * * * *", timezone="Europe/Budapest"))
    world.step()
    to(world, "09:20")
    settle(world)
    monkeypatch.setattr(trigger, "_load", lambda name: None)
    trigger.clear_caches()
    past, coming = explained(world, at("09:20")), explained(world, at("10:00"))
    monkeypatch.undo()
    trigger.clear_caches()
    assert past.status == "completed" and past.is_instant is None
    assert coming.is_instant is None and "cannot be worked out" in said(coming)


# Over the doors ------------------------------------------------------------------------------------------------------------


def test_9_the_json_of_every_door_reads_back_as_the_same_value(etl: World) -> None:
    to(etl, "09:20")
    to(etl, "09:40")
    view = explained(etl, at("09:40"))
    written = view.to_json()
    assert written["schema"] == "wfctl/explanation.v1"
    assert from_json(ExplanationView, json.loads(json.dumps(written))).to_json() == written


def test_9_2_the_supervisor_answers_beside_its_loop(etl: World) -> None:
    from wfctl.rpc.methods import dispatch
    from wfctl.rpc.session import Deferred, Encoded

    to(etl, "09:20")
    settle(etl)
    service = etl._service
    assert service is not None
    params = {"schedule_id": "etl", "instant": "2027-03-01T09:20:00Z"}
    answer = dispatch(service._desk, "workflow.schedules.occurrences.explain", params)
    assert isinstance(answer, Deferred) and not answer.is_done
    told: list[Any] = []
    answer.when_done(lambda result, error: told.append(error or result))
    wait_for(lambda: (service.asides.finish_one(), told)[1], "the answer")
    assert isinstance(told[0], Encoded)
    assert json.loads(told[0].answer(1))["result"] == explained(etl, at("09:20")).to_json()


# Random stories -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(PARTS))
def test_5_15_every_instant_of_every_story_is_explained_as_it_is_recorded(tmp_path: Path, part: int) -> None:
    for seed in range(part, STORIES * PARTS, PARTS):
        story = Story(tmp_path / str(seed), seed)
        story.play(40, crashes=seed % 2 == 1)
        _must_explain(story, random.Random(seed), f"seed {seed}: {'; '.join(story.told)}")
        story.world.die()


def _must_explain(story: Story, chance: random.Random, told: str) -> None:
    world = story.world
    balance = world.store.audit_schedule(schedule_id="s")
    rows = world.occurrences("s")
    asked = {row.instant for row in chance.sample(rows, min(25, len(rows))) if row.instant is not None}
    assert balance.since is not None and balance.until is not None
    length = (balance.until - balance.since) // MINUTE
    asked |= {balance.since.replace(second=0, microsecond=0) + chance.randrange(length + 60) * MINUTE for _ in range(40)}
    recorded = {row.instant: row for row in rows}
    for instant in sorted(asked):
        try:
            view = world.store.explain_occurrence(schedule_id="s", instant=instant)
        except NotFound as error:
            assert instant not in recorded, told
            assert all(name.startswith("s@") for name in error.data["near"])
            continue
        assert view.verdict and "None" not in said(view), told
        if instant in recorded:
            assert (view.status, view.run_id) == (recorded[instant].status, recorded[instant].run_id), told
        elif view.is_instant and instant <= balance.until:
            assert view.situation in ("recorded", "paused", "pending", "before"), f"{told}\n{instant} {view}"
        times = [line.at for line in view.lines if line.at is not None]
        assert times == sorted(times), told
