"""After a long absence: what is missed is settled in portions, and what is due on time does not wait for it (5.1, 5.2, 6.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.rounds import Rounds, preflight
from tests.support.schedules import MINUTELY, add
from tests.support.story import World
from wfctl.core.admission import PASSED, Verdict
from wfctl.operations import round_facts
from wfctl.operations.rounds import Behind, Question, Subject, settle_round
from wfctl.operations.store import init_store
from wfctl.supervisor.service import _STALL_S

DAY, YEAR = timedelta(days=1), timedelta(days=365)
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"overlap": "queue"},
    {"misfire": "latest"},
    {"misfire": "latest", "overlap": "parallel", "max_active_runs": 2},
    {"lateness": "10m"},
)


def left_alone(root: Path, count: int, span: timedelta, *, name: Callable[[int], str] = "s{:03d}".format) -> Rounds:
    """A store with so many schedules of each minute, that nobody looked at for so long; and one that is new and due."""
    rounds = Rounds.new(root, slots=1000)
    for number in range(count):
        policies = POLICIES[number % len(POLICIES)]
        rounds.store.create_schedule(schedule_id=name(number), deployment_id="d", trigger=MINUTELY, **policies)
    rounds.clock.advance(span - timedelta(seconds=1))
    rounds.store.create_schedule(schedule_id="new", deployment_id="d", trigger={"kind": "interval", "every": "1s"})
    rounds.clock.advance(timedelta(seconds=1))
    return rounds


def settled(rounds: Rounds) -> dict[str, list[tuple[Any, ...]]]:
    """What became of each schedule's instants, whenever it was recorded."""
    connection = rounds.context.ledger.connection
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for name, *row in connection.execute(
        "SELECT d.id, o.instant, o.status, json_extract(o.reason, '$.code'), o.lateness, o.span_first, o.span_count,"
        " o.run IS NOT NULL"
        " FROM occurrences o JOIN definitions d ON d.number = o.schedule ORDER BY o.schedule, o.place"
    ):
        rows.setdefault(name, []).append(tuple(row))
    return rows


def admitted_at(rounds: Rounds, name: str) -> bool:
    return any(row[-1] for row in settled(rounds).get(name, []))


def test_what_is_due_on_time_is_admitted_with_the_first_portion(tmp_path: Path) -> None:
    rounds = left_alone(tmp_path / "store", 40, YEAR)
    behind = Behind()
    admitted = settle_round(rounds.context, rounds.plan, preflight, rounds.clock.now(), behind)
    assert admitted_at(rounds, "new") and behind.is_more
    assert len(settled(rounds)) == 1 + round_facts._PORTION == len(admitted)
    rounds.clock.advance(timedelta(seconds=1))
    settle_round(rounds.context, rounds.plan, preflight, rounds.clock.now(), behind)
    assert len(settled(rounds)["new"]) == 2, "and so is what comes due meanwhile"
    rounds.close()


def test_in_portions_the_same_becomes_of_each_instant(tmp_path: Path) -> None:
    whole = left_alone(tmp_path / "whole", 40, YEAR)
    parts = whole.copy(tmp_path / "parts")
    settle_round(whole.context, whole.plan, preflight, whole.clock.now())
    behind, portions = Behind(), 0
    while portions == 0 or behind.is_more:
        settle_round(parts.context, parts.plan, preflight, parts.clock.now(), behind)
        portions += 1
    assert portions > 2 and settled(whole) == settled(parts)
    assert {len(rows) for name, rows in settled(parts).items() if name != "new"} == {101}, "a span row, and the newest 100"
    assert whole.next_wake() == parts.next_wake()
    whole.close()
    parts.close()


@pytest.mark.parametrize(
    ("count", "span"), [pytest.param(8, YEAR, id="a few far behind"), pytest.param(40, timedelta(minutes=4), id="not so far")]
)
def test_6_3_what_is_little_is_settled_at_once(tmp_path: Path, count: int, span: timedelta) -> None:
    rounds = left_alone(tmp_path / "store", count, span)
    behind, commits = Behind(), rounds.context.ledger.commits
    settle_round(rounds.context, rounds.plan, preflight, rounds.clock.now(), behind)
    assert (len(settled(rounds)), behind.is_more) == (count + 1, False)
    assert rounds.context.ledger.commits == commits + 1
    rounds.close()


def test_a_portion_ends_once_it_took_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = left_alone(tmp_path / "store", 20, YEAR)
    ticks = iter(range(1000))
    monkeypatch.setattr(rounds.context.clock, "monotonic", lambda: next(ticks) * 0.015)
    settle_round(rounds.context, rounds.plan, preflight, rounds.clock.now(), Behind())
    assert len(settled(rounds)) == 1 + 2
    rounds.close()


def test_5_9_those_whose_preflight_is_not_answered_keep_nobody_waiting(tmp_path: Path) -> None:
    def name(number: int) -> str:
        return f"s{number:03d}{'-unanswered' if number < 30 else ''}"

    def passing(asked: Sequence[Question]) -> dict[Subject, Verdict]:
        return {question.subject: PASSED for question in asked}

    rounds = left_alone(tmp_path / "store", 40, YEAR, name=name)
    behind, portions = Behind(), 0
    while portions == 0 or behind.is_more:
        settle_round(rounds.context, rounds.plan, preflight, rounds.clock.now(), behind)
        portions += 1
    done = settled(rounds)
    assert portions == 3 and {name(number) for number in range(30, 40)} <= done.keys()
    assert "s000-unanswered" not in done
    settle_round(rounds.context, rounds.plan, passing, rounds.clock.now(), behind)
    assert "s000-unanswered" in settled(rounds), "once through, they are looked at again"
    rounds.close()


def made(root: Path, count: int) -> World:
    init_store(root).close()
    world = World(root)
    world.keeper.world.script = lambda request: 0
    for number in range(count):
        add(world.store, f"s{number:02d}")
    world.clock.advance(30 * DAY)
    return world


def test_9_4_a_step_settles_all_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = made(tmp_path / "store", 40)
    with caplog.at_level(logging.INFO, "wfctl.supervisor"):
        world.step()
    assert all(len(world.occurrences(f"s{number:02d}")) >= 100 for number in range(40)), "but for those that are held"
    told = [vars(record).get("action") for record in caplog.records]
    assert told.count("occurrence_skipped-misfire") == 1000, "a thousand lines, however many portions"
    assert told.count("occurrences_settled") == 1
    world.die()


def test_the_loop_goes_on_at_once_while_there_is_more(tmp_path: Path) -> None:
    world = made(tmp_path / "store", 40)
    world.step()
    service, store = world._service, world.store
    assert service is not None
    for number in range(40):
        store.pause_schedule(schedule_id=f"s{number:02d}")  # nothing of them is due now
    for number in range(40, 80):
        add(store, f"s{number:02d}")
    world.clock.advance(30 * DAY)
    wakes = []
    for _ in range(3):
        wake, wait_s = service._guarded_round(_STALL_S)
        assert wait_s is None and wake is not None
        wakes.append(wake - world.clock.now())
    assert wakes[0] == wakes[1] == timedelta(0) < wakes[2], "serving in between, but waiting for nothing"
    assert all(len(world.occurrences(f"s{number:02d}")) >= 100 for number in range(40, 80))
    world.die()
