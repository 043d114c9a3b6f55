"""Every instant is accounted for exactly once, and what is not is found (contract 5.15)."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.chance import times
from tests.support.schedules import add, at, cron
from tests.support.story import World
from tests.support.timeline import Story, after, cuts, damages
from tests.support.waiting import wait_for
from wfctl.cli import app
from wfctl.core import trigger
from wfctl.core.instants import to_micros
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations import audit
from wfctl.operations.views import AuditView

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
PARTS, STORIES = 4, times(3)


def audited(world: World, schedule_id: str = "tick", **asked: Any) -> AuditView:
    return world.store.audit_schedule(schedule_id=schedule_id, **asked)


def counts(view: AuditView) -> dict[str, int | None]:
    return {status: count for status, count in view.counts.items() if count}


def codes(view: AuditView) -> list[str]:
    return [problem.code for problem in view.problems]


def sql(world: World, statement: str, *values: Any) -> None:
    with world.store.context.ledger.transaction() as connection:
        connection.execute(statement, values)


def minutes(world: World, count: int) -> None:
    for _ in range(count):
        now = world.clock.now()
        world.clock.advance(now.replace(second=0) + MINUTE - now)
        world.step()
        world.end()
        world.step()


# Random stories -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", [False, True], ids=["no crashes", "crashes"])
@pytest.mark.parametrize("part", range(PARTS))
def test_5_15_every_story_balances(tmp_path: Path, part: int, crashes: bool) -> None:
    for seed in range(part, STORIES * PARTS, PARTS):
        story = Story(tmp_path / str(seed), seed)
        story.play(40, crashes=crashes)
        _must_balance(story, seed)
        story.delete()
        _must_balance(story, seed)
        story.world.die()


def _must_balance(story: Story, seed: int) -> None:
    view = story.world.store.audit_schedule(schedule_id="s")
    said = f"seed {seed}: {'; '.join(story.told)}"
    assert view.is_balanced and not view.unchecked, f"{said}\n{view.problems}"
    assert view.instants == sum(count or 0 for count in view.counts.values()), said


@pytest.mark.parametrize("part", range(PARTS))
def test_5_15_every_single_damage_is_found(tmp_path: Path, part: int) -> None:
    for seed in range(1000 + part, 1000 + times(2) * PARTS, PARTS):
        story = Story(tmp_path / str(seed), seed)
        story.play(30)
        store, chance = story.world.store, random.Random(seed)
        before = store.audit_schedule(schedule_id="s")
        assert before.is_balanced, story.told
        connection = store.context.ledger.connection
        for damage in damages(connection, chance):
            assert not after(store, damage).is_balanced, f"seed {seed}: {damage}\n{'; '.join(story.told)}"
        for damage in cuts(connection):
            found = after(store, damage)
            assert not found.is_balanced or found.counts == before.counts, f"seed {seed}: {damage}\n{'; '.join(story.told)}"
        story.world.die()


# What is said -------------------------------------------------------------------------------------------------------------


def test_5_15_the_balance_of_a_quiet_hour(world: World) -> None:
    add(world.store, "tick", overlap="skip")
    minutes(world, 3)
    world.store.pause_schedule(schedule_id="tick")
    world.clock.advance(10 * MINUTE)
    world.store.resume_schedule(schedule_id="tick")
    world.clock.advance(5 * MINUTE)
    world.step()
    view = audited(world)
    assert view.is_balanced and view.problems == () and view.unchecked == () and view.withdrawn == view.kept == 0
    assert counts(view) == {"completed": 3, "paused": 10, "skipped-misfire": 3, "admitted": 1, "skipped-overlap": 1}
    assert (view.instants, view.since, view.until) == (18, at("09:00:30"), at("09:18"))
    assert view.to_json()["schema"] == "wfctl/audit.v1" and view.to_json()["counts"]["coalesced"] == 0


def test_5_15_since_leaves_out_what_lies_before(world: World) -> None:
    add(world.store, "tick")
    minutes(world, 9)
    view = audited(world, since=at("09:05"))
    assert (view.instants, view.since) == (5, at("09:05")) and view.is_balanced
    world.clock.advance(8 * HOUR)
    world.step()
    world.end()
    world.step()
    span = next(row.span for row in world.occurrences("tick") if row.span)
    view = audited(world, since=span.first + 10 * MINUTE)
    whole = audited(world)
    assert view.is_balanced and whole.instants is not None and view.instants == whole.instants - 9 - 10
    assert audited(world, since=world.clock.now() + HOUR).instants == 0
    with pytest.raises(InvalidArgument):
        audited(world, since="yesterday")
    with pytest.raises(NotFound):
        audited(world, "nobody")


def test_5_15_what_lies_before_the_retention_horizon_is_not_looked_at(world: World) -> None:
    add(world.store, "tick")
    minutes(world, 6)
    instant = at("09:04")
    sql(world, "DELETE FROM occurrences WHERE instant < ?", to_micros(instant))
    assert codes(audited(world)) == ["missing", "run", "run", "run"]
    sql(world, "UPDATE schedules SET horizon = ?", to_micros(instant))
    view = audited(world)
    assert view.is_balanced and (view.instants, view.horizon) == (3, instant)


def test_5_15_what_is_held_is_pending(world: World) -> None:
    add(world.store, "tick", overlap="queue")
    for _ in range(3):
        world.clock.advance(MINUTE)
        world.step()
    view = audited(world)
    assert view.is_balanced and counts(view) == {"running": 1, "coalesced": 1, "pending": 1}
    sql(world, "UPDATE schedules SET candidate = NULL")
    assert codes(audited(world)) == ["missing"]


def test_5_15_blocked_time_consumes_nothing(world: World) -> None:
    add(world.store, "tick")
    minutes(world, 2)
    path = world.root / "schedules" / "tick.toml"
    kept = path.read_bytes()
    path.write_bytes(b"broken")
    world.store.get_schedule(schedule_id="tick")
    world.clock.advance(10 * MINUTE)
    world.step()
    view = audited(world)
    assert view.is_balanced and view.instants == 2
    path.write_bytes(kept)
    world.store.get_schedule(schedule_id="tick")
    world.step()
    assert audited(world).is_balanced and audited(world).instants == 12


def test_5_15_a_file_that_never_was_valid_has_no_instants(world: World) -> None:
    (world.root / "schedules" / "new.toml").write_text("broken")
    world.store.list_schedules()
    view = audited(world, "new")
    assert view.is_balanced and view.instants == 0 and view.since is None


@pytest.mark.parametrize("kind", ["cron", "interval"])
def test_5_15_another_tz_database_leaves_only_the_joins_to_check(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    given = {"cron": cron("* * * * *"), "interval": {"kind": "interval", "every": "1m"}}[kind]
    add(world.store, "tick", given)
    minutes(world, 3)
    world.store.update_schedule(schedule_id="tick", expected_revision=1, notes="same trigger")
    world.clock.advance(8 * HOUR)
    world.step()
    monkeypatch.setattr(audit, "stamps", lambda: ("7.0.0", "2099z"))
    view = audited(world)
    assert view.is_balanced
    if kind == "interval":  # a grid does not depend on either
        assert view.unchecked == () and view.instants == 482  # 09:01:30 to 17:02:30
        return
    assert [part.since for part in view.unchecked] == [at("09:00:30"), at("09:03")] and "2099z" in view.unchecked[0].reason
    assert view.instants is None and view.counts["completed"] == 3, "how many a span of cron covers, nobody can tell"
    sql(world, "DELETE FROM occurrences WHERE place = 2")
    assert codes(audited(world)) == ["run"], "a hole in the calendar is not seen, a run without a row is"
    span = next(row.span for row in world.occurrences("tick") if row.span)
    sql(world, "UPDATE occurrences SET span_first = ? WHERE span_first IS NOT NULL", to_micros(span.last + HOUR))
    assert "span" in codes(audited(world)), "it begins after its end"


def test_5_15_a_revision_saved_with_todays_calendar_is_recounted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add(world.store, "tick")
    minutes(world, 3)
    sql(world, "UPDATE revisions SET tz_database = '1999a'")
    world.store.update_schedule(schedule_id="tick", expected_revision=1, notes="same trigger")
    minutes(world, 3)
    view = audited(world)
    assert view.is_balanced and [(part.since, part.until) for part in view.unchecked] == [(at("09:00:30"), at("09:03"))]
    sql(world, "DELETE FROM occurrences WHERE instant = ?", to_micros(at("09:05")))
    assert "missing" in codes(audited(world))


def test_5_15_a_zone_that_is_gone_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add(world.store, "tick", cron("* * * * *", timezone="Europe/Budapest"))
    minutes(world, 2)
    monkeypatch.setattr(trigger, "_load", lambda name: None)
    trigger.clear_caches()
    view = audited(world)
    monkeypatch.undo()
    trigger.clear_caches()
    assert view.is_balanced and len(view.unchecked) == 1 and "Europe/Budapest" in view.unchecked[0].reason


def test_5_15_what_a_clock_event_withdrew_is_not_counted(world: World) -> None:
    world.clock.set(at("20:00:30"))
    add(world.store, "tick")
    minutes(world, 3)
    world.store.update_schedule(schedule_id="tick", expected_revision=1, trigger=cron("7 * * * *"))
    world.clock.set(at("23:30"))
    world.step()  # a run of each trigger in the false future, and rows that are withdrawn
    world.store.pause_schedule(schedule_id="tick")
    world.clock.set(at("10:00"))
    world.step()
    world.store.resume_schedule(schedule_id="tick")
    world.clock.set(at("21:08"))
    world.step()
    view = audited(world)
    assert view.is_balanced and view.instants == 12, "10:07 to 21:07"
    assert view.kept == 3 and view.withdrawn == 5


@pytest.mark.parametrize("act", ["pause", "trigger"])
def test_5_15_a_change_while_the_clock_stands_before_what_is_consumed(world: World, act: str) -> None:
    """A pause begins behind what is consumed, and so does the calendar of a new trigger: nothing is accounted for twice."""
    add(world.store, "tick")
    minutes(world, 5)
    world.clock.set(at("09:02:30"))
    if act == "pause":
        assert world.store.pause_schedule(schedule_id="tick").paused_at == at("09:05")
        world.clock.set(at("09:03:30"))
        world.store.resume_schedule(schedule_id="tick")
        assert world.store.get_schedule(schedule_id="tick").next_instant == at("09:06")
    else:
        world.store.update_schedule(schedule_id="tick", expected_revision=1, trigger={"kind": "interval", "every": "20s"})
    world.clock.set(at("09:07:10"))
    world.step()
    view = audited(world)
    assert view.is_balanced, view.problems
    assert view.instants == (7 if act == "pause" else 5 + 7)  # 09:05:10 to 09:07:10


def test_5_15_an_admitted_instant_off_the_grid_is_not_taken_off_the_count_of_a_span(world: World) -> None:
    """Found by the audit: a span over a run of an older trigger, admitted in a false future, said one instant too few."""
    world.clock.set(at("12:00:30"))
    add(world.store, "tick")
    minutes(world, 2)
    world.clock.advance(timedelta(seconds=10))
    world.store.update_schedule(schedule_id="tick", expected_revision=1, trigger={"kind": "interval", "every": "90s"})
    world.clock.set(at("06:00:10"))
    world.step()
    world.clock.set(at("18:00:10"))
    world.step()
    span = next(row.span for row in world.occurrences("tick") if row.span)
    assert span.first < at("12:01") < span.last and span.count == (span.last - span.first) // timedelta(seconds=90) + 1
    view = audited(world)
    assert view.is_balanced and view.kept == 2


def test_5_2_many_years_are_jumped_over(world: World) -> None:
    add(world.store, "tick")
    world.clock.advance(3653 * timedelta(days=1))
    world.step()
    view = audited(world)
    assert view.is_balanced and view.instants is None and view.counts["skipped-misfire"] is None
    assert view.to_json()["counts"]["skipped-misfire"] is None


def test_5_15_no_more_problems_are_listed_than_can_be_read(world: World) -> None:
    add(world.store, "tick", cron("*/2 * * * *"))
    minutes(world, 4)
    with world.store.context.ledger.transaction() as connection:
        for n in range(150):
            connection.execute(
                "INSERT INTO occurrences (schedule, place, instant, status, revision, recorded_at) VALUES (2, ?, ?, 9, 1, 0)",
                (1000 + n, to_micros(at("09:01")) + n),
            )
    view = audited(world)
    assert len(view.problems) == 100 and view.problems_left_out == 50 and not view.is_balanced


def test_9_the_supervisor_answers_beside_its_loop(world: World) -> None:
    """Contract 9.2: years of history are recounted on a thread of their own; the loop goes on meanwhile."""
    from wfctl.rpc.methods import dispatch
    from wfctl.rpc.session import Deferred

    add(world.store, "tick")
    minutes(world, 2)
    service = world._service
    assert service is not None
    answer = dispatch(service._desk, "workflow.schedules.audit", {"schedule_id": "tick"})
    refused = dispatch(service._desk, "workflow.schedules.audit", {"schedule_id": "nobody"})
    assert isinstance(answer, Deferred) and not answer.is_done
    told: list[tuple[Any, Any]] = []
    answer.when_done(lambda result, error: told.append((result, error)))
    refused.when_done(lambda result, error: told.append((result, error)))
    wait_for(lambda: (service.asides.finish_one(), len(told) == 2)[1], "both answers")
    balance = json.loads(told[0][0].answer(1))["result"]
    assert balance["is_balanced"] and balance["instants"] == 2
    assert isinstance(told[1][1], NotFound)


# Command ------------------------------------------------------------------------------------------------------------------


def test_11_6_the_command_says_whether_it_balances(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    add(world.store, "tick")
    minutes(world, 3)
    line = ["--store", str(world.root), "occurrence", "audit", "tick"]
    assert app.run(line) == 0
    said = capsys.readouterr().out
    assert said.startswith("tick  balanced") and "calendar instants  3" in said and "completed          3" in said
    assert app.run([*line, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["completed"] == 3
    sql(world, "UPDATE revisions SET croniter = '6.0.0'")
    assert (app.run(line), app.run([*line, "--strict"])) == (0, 1)
    assert "not recounted" in capsys.readouterr().out
    sql(world, "UPDATE occurrences SET status = 14 WHERE place = 2")
    assert app.run(line) == 1
    said = capsys.readouterr().out
    assert "not balanced" in said and "contradicts run-000002, which is completed" in said
    assert app.run([*line[:-1], "nobody"]) == 66
