"""A round that is prepared before its moment writes what would be decided at it, or nothing (contract 5.13, 6.1, 6.3)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.chance import times
from tests.support.rounds import Rounds, add_some, preflight, rows_of
from tests.support.schedules import MINUTELY, add, at
from wfctl.core.model import Status
from wfctl.operations.rounds import TOLERANCE, PreparedRound, commit_prepared, prepare_round, settle_round
from wfctl.operations.store import open_store
from wfctl.store.ledger import runs, schedules

MILLISECOND = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
EARLY = 5 * MILLISECOND
LATE = (0, 0, 1, 5, 19, 20, 21, 49, 49.999, 50, 70, -1)  #: milliseconds


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    """A store with four slots."""
    made = Rounds.new(tmp_path / "store")
    yield made
    made.close()


def prepare(rounds: Rounds, moment: datetime) -> PreparedRound | None:
    rounds.clock.set(moment - EARLY)
    return prepare_round(rounds.context, rounds.plan, preflight, moment)


def at_its_moment(rounds: Rounds, prepared: PreparedRound | None, now: datetime) -> tuple[list[runs.NewRun], bool]:
    """What a supervisor does: commit what was prepared, or settle. Return the runs, and whether what was prepared held."""
    rounds.clock.set(now)
    new = None if prepared is None else commit_prepared(rounds.context, rounds.plan, prepared, now)
    if new is not None:
        return new, True
    return settle_round(rounds.context, rounds.plan, preflight, now), False


# The same as without ------------------------------------------------------------------------------------------------------


def change(rounds: Rounds, chance: random.Random) -> None:
    """Let something happen between preparing and the moment; the same for the same chance."""
    what = chance.choice(["", "", "", "", "end", "pause", "edit", "plan"])
    names = [view.id for view in rounds.store.list_schedules()]
    if what == "end" and rounds.unfinished():
        rounds.finish(chance.choice(rounds.unfinished()))
    elif what == "plan":
        rounds.plan = replace(rounds.plan, slots=chance.choice([1, 2, 4, 8]))
    elif what in ("pause", "edit"):
        with open_store(rounds.root, clock=rounds.clock) as other:
            name = chance.choice(names)
            if what == "pause":
                other.pause_schedule(schedule_id=name)
                other.resume_schedule(schedule_id=name)
            else:
                revision = other.get_schedule(schedule_id=name).revision
                other.update_schedule(schedule_id=name, expected_revision=revision, lateness=f"{chance.randrange(1, 90)}s")


@pytest.mark.parametrize("seed", range(times(8)))
def test_what_was_prepared_is_what_would_be_decided(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ours = Rounds.new(tmp_path / "ours", slots=chance.choice([1, 3, 6, 50]))
    add_some(ours, chance, 12)
    held_good = 0
    for turn in range(10):
        for number in ours.unfinished():
            if chance.random() < 0.5:
                ours.finish(number, status=chance.choice([Status.COMPLETED, Status.FAILED]))
        wake = ours.next_wake()
        assert wake is not None
        moment = max(wake, ours.clock.now() + EARLY) + timedelta(minutes=chance.choice([0, 0, 0, 0, 0, 1, 7, 200]))
        prepared = prepare(ours, moment)
        theirs = ours.copy(tmp_path / f"theirs-{turn}")
        ours.clock.set(moment - MILLISECOND)
        theirs.clock.set(moment - MILLISECOND)
        happens = chance.random()
        change(ours, random.Random(happens))
        change(theirs, random.Random(happens))
        now = moment + chance.choice(LATE) * MILLISECOND
        mine, held = at_its_moment(ours, prepared, now)
        alone, _ = at_its_moment(theirs, None, now)
        held_good += held
        assert mine == alone
        assert rows_of(ours.root) == rows_of(theirs.root), f"turn {turn}, prepared: {held}"
        theirs.close()
        if now < moment:
            at_its_moment(ours, None, moment)
    assert held_good, "nothing that was prepared was ever written"
    ours.close()


# When it holds, and when not ------------------------------------------------------------------------------------------------

NINE_ONE = at("09:01")


def test_preparing_writes_nothing_and_asks_preflight_once(rounds: Rounds) -> None:
    asked: list[str] = []

    def counting(questions):  # type: ignore[no-untyped-def]
        asked.extend(question.row.id for question in questions)
        return preflight(questions)

    add(rounds.store, "a")
    before = rows_of(rounds.root)
    commits = rounds.context.ledger.commits
    prepared = prepare_round(rounds.context, rounds.plan, counting, NINE_ONE)
    assert prepared is not None and [run.instant for run in prepared.runs] == [NINE_ONE]
    assert rows_of(rounds.root) == before and rounds.context.ledger.commits == commits
    rounds.clock.set(NINE_ONE)
    assert commit_prepared(rounds.context, rounds.plan, prepared, NINE_ONE)
    assert asked == ["a"] and rounds.context.ledger.commits == commits + 1


def test_what_is_recorded_is_the_moment_of_writing(rounds: Rounds) -> None:
    add(rounds.store, "a", overlap="queue")
    add(rounds.store, "b", overlap="queue")
    rounds.plan = replace(rounds.plan, slots=1)
    now = NINE_ONE + 3 * MILLISECOND
    new, held = at_its_moment(rounds, prepare(rounds, NINE_ONE), now)
    assert held and [run.admitted_at for run in new] == [now]
    row = rounds.store.get_occurrence(schedule_id="a", instant=NINE_ONE)
    assert (row.recorded_at, row.lateness_s) == (now, 0.003)
    (waiting,) = schedules.with_candidate(rounds.context.ledger.connection, None)
    assert waiting.candidate is not None and waiting.candidate.held_since == now


@pytest.mark.parametrize(
    ("late", "holds"),
    [
        pytest.param(timedelta(0), True, id="at the very moment"),
        pytest.param(TOLERANCE - MICROSECOND, True, id="within the tolerance"),
        pytest.param(TOLERANCE, False, id="later than the tolerance"),
        pytest.param(-MICROSECOND, False, id="before its moment"),
    ],
)
def test_it_holds_for_a_little_while(rounds: Rounds, late: timedelta, holds: bool) -> None:
    add(rounds.store, "a")
    prepared = prepare(rounds, NINE_ONE)
    assert prepared is not None
    assert (commit_prepared(rounds.context, rounds.plan, prepared, NINE_ONE + late) is not None) is holds


@pytest.mark.parametrize("late_us", [-1, 0, 1])
def test_it_holds_while_what_is_on_time_still_is(rounds: Rounds, late_us: int) -> None:
    add(rounds.store, "a", lateness="20ms")
    now = NINE_ONE + 20 * MILLISECOND + late_us * MICROSECOND
    new, held = at_its_moment(rounds, prepare(rounds, NINE_ONE), now)
    assert held is (late_us <= 0) and bool(new) is (late_us <= 0)


@pytest.mark.parametrize("late_us", [-1, 0, 1])
def test_it_holds_until_more_comes_due(rounds: Rounds, late_us: int) -> None:
    add(rounds.store, "a")
    add(rounds.store, "b", {"kind": "oneshot", "at": (NINE_ONE + 10 * MILLISECOND).isoformat()})
    now = NINE_ONE + 10 * MILLISECOND + late_us * MICROSECOND
    new, held = at_its_moment(rounds, prepare(rounds, NINE_ONE), now)
    assert held is (late_us < 0) and len(new) == 1 + (late_us >= 0)


@pytest.mark.parametrize("what", ["another process", "this process", "the plan", "opened anew", "nothing"])
def test_it_holds_while_nothing_has_changed(rounds: Rounds, what: str) -> None:
    add(rounds.store, "a")
    prepared = prepare(rounds, NINE_ONE)
    assert prepared is not None
    if what == "another process":
        with open_store(rounds.root, clock=rounds.clock) as other:
            other.pause_schedule(schedule_id="a")
    elif what == "this process":
        rounds.store.pause_schedule(schedule_id="a")
    elif what == "the plan":
        rounds.plan = replace(rounds.plan, slots=9)
    elif what == "opened anew":
        rounds.close()
        rounds.store = open_store(rounds.root, clock=rounds.clock)
    before = rows_of(rounds.root)
    new = commit_prepared(rounds.context, rounds.plan, prepared, NINE_ONE)
    assert (new is not None) is (what == "nothing")
    assert (rows_of(rounds.root) != before) is (what == "nothing")


def test_nothing_is_prepared_where_nothing_will_be_due(rounds: Rounds) -> None:
    assert prepare(rounds, at("09:00:40")) is None
    add(rounds.store, "a")
    add(rounds.store, "b-unanswered", {"kind": "oneshot", "at": at("09:00:50").isoformat()})
    assert prepare(rounds, at("09:00:50")) is None, "what waits for its preflight is for a later round"
    rounds.store.pause_schedule(schedule_id="b-unanswered")
    assert prepare(rounds, NINE_ONE - MICROSECOND) is None


def test_nothing_is_prepared_behind_a_clock_that_stepped_back(rounds: Rounds) -> None:
    add(rounds.store, "a", MINUTELY)
    at_its_moment(rounds, None, at("09:03"))
    assert prepare(rounds, at("09:02")) is None
    assert prepare(rounds, at("09:04")) is not None
