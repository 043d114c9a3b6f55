"""Deciding for all schedules of one moment: who is served first, and what that leaves for the others (contract 5.4, 5.8)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.admission_facts import NOON, REJECTED, ago, because, due, facts, fate, held, rows
from wfctl.core.admission import Round, ScheduleFacts, decide_admission, decide_round


def decide(*known: ScheduleFacts, free: int = 1) -> Round:
    return decide_round(known, now=NOON, free_slots=free, slot_limit=4, next_run=7)


def order(decided: Round) -> list[tuple[str, float]]:
    """Who was admitted, in which order: schedule id, seconds before NOON."""
    return [(schedule_id, (NOON - instant).total_seconds()) for schedule_id, instant in decided.admitted]


def waiting(schedule_id: str, late: float, since: float, last: float | None = None, **more: Any) -> ScheduleFacts:
    """A schedule with a candidate, and the second before NOON of its last admission."""
    return facts(schedule_id, candidate=held(late, since=since), last_admission=None if last is None else ago(last), **more)


def new(schedule_id: str, *late: float, last: float | None = None, **more: Any) -> ScheduleFacts:
    """A schedule with instants newly due."""
    return facts(schedule_id, due=due(*late), last_admission=None if last is None else ago(last), **more)


# 5.8: the order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(
            [waiting("a", 40, since=20), waiting("b", 30, since=25)],
            ["b", "a"],
            id="5.8 longest held first, though its instant is newer",
        ),
        pytest.param(
            [waiting("a", 30, since=20), waiting("b", 30, since=20.000001)], ["b", "a"], id="5.8 held a microsecond longer"
        ),
        pytest.param(
            [waiting("a", 30, since=20, last=100), waiting("b", 30, since=20, last=200)],
            ["b", "a"],
            id="5.8 held as long: longest since the last admission",
        ),
        pytest.param(
            [waiting("a", 30, since=20, last=9e8), waiting("b", 30, since=20)],
            ["b", "a"],
            id="5.8 never admitted is longest ago",
        ),
        pytest.param(
            [waiting("b", 30, since=20, last=100), waiting("a", 30, since=20, last=100)],
            ["a", "b"],
            id="5.8 all the same: by id",
        ),
        pytest.param([waiting("b", 30, since=20), waiting("a", 30, since=20)], ["a", "b"], id="5.8 none ever admitted: by id"),
        pytest.param(
            [waiting("a", 10, since=20, last=300), waiting("b", 50, since=20, last=200)],
            ["a", "b"],
            id="5.8 among candidates the instant does not count",
        ),
        pytest.param(
            [new("a", 50), waiting("b", 10, since=0)], ["b", "a"], id="5.8 new instants stand behind candidates, older or not"
        ),
        pytest.param([new("a", 20), new("b", 30)], ["b", "a"], id="5.8 new ones by instant"),
        pytest.param([new("a", 30, last=9000), new("b", 30.000001, last=1)], ["b", "a"], id="5.8 a microsecond decides"),
        pytest.param(
            [new("a", 30, last=100), new("b", 30, last=200)], ["b", "a"], id="5.8 same instant: longest since admission"
        ),
        pytest.param([new("a", 30, last=100), new("b", 30)], ["b", "a"], id="5.8 same instant: never admitted first"),
        pytest.param([new("b", 30), new("a", 30)], ["a", "b"], id="5.8 same instant, none admitted: by id"),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["as listed", "the other way round"])
def test_who_is_first(known: list[ScheduleFacts], expected: list[str], turned: bool) -> None:
    given = list(reversed(known)) if turned else known
    assert [name for name, _ in order(decide(*given, free=2))] == expected
    assert [name for name, _ in order(decide(*given, free=1))] == expected[:1]


def test_5_8_instants_of_several_schedules_take_turns() -> None:
    decided = decide(new("a", 50, 30, overlap="parallel"), new("b", 40, 20, overlap="parallel"), free=3)
    assert order(decided) == [("a", 50), ("b", 40), ("a", 30)]
    assert fate(decided.decisions["b"], 20) == "held, can expire"


def test_5_8_an_admission_of_this_step_counts_as_the_last() -> None:
    """After its first instant `a` was admitted just now, so at the next instant, which both have, `b` comes first."""
    decided = decide(new("a", 50, 30, overlap="parallel"), new("b", 30, last=5), free=2)
    assert order(decided) == [("a", 50), ("b", 30)]


def test_5_8_a_new_instant_stands_behind_other_schedules_candidates() -> None:
    decided = decide(waiting("a", 40, since=30, due=due(20), overlap="parallel"), waiting("b", 10, since=1), free=2)
    assert order(decided) == [("a", 40), ("b", 10)]
    assert fate(decided.decisions["a"], 20) == "held, can expire"


def test_5_8_under_latest_a_newly_due_instant_stands_behind_candidates() -> None:
    """It inherits the time first held when it must be held, and so is first the next time."""
    first = decide(waiting("a", 50, since=50, due=due(5), misfire="latest"), waiting("b", 10, since=1))
    assert order(first) == [("b", 10)]
    heir = first.decisions["a"].candidate
    assert heir and heir.held_since == ago(50)
    assert order(decide(facts("a", misfire="latest", candidate=heir), waiting("c", 10, since=40))) == [("a", 5)]


def test_5_6_an_heir_is_served_by_the_time_it_inherited() -> None:
    first = decide(waiting("a", 55, since=55, due=due(5)), waiting("b", 50, since=50), free=0)
    held_a, held_b = first.decisions["a"].candidate, first.decisions["b"].candidate
    assert order(decide(facts("b", candidate=held_b), facts("a", candidate=held_a))) == [("a", 5)]


# 5.4: slots are shared --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "admitted"),
    [pytest.param(-1, 0, id="5.4 less than none"), *[pytest.param(n, min(n, 3), id=f"5.4 {n} free") for n in range(5)]],
)
def test_slots_are_handed_out_once(free: int, admitted: int) -> None:
    decided = decide(new("a", 30), new("b", 20), new("c", 10), free=free)
    fates = [fate(decided.decisions[name], late) for name, late in (("a", 30), ("b", 20), ("c", 10))]
    assert fates == ["admitted"] * admitted + ["held, can expire"] * (3 - admitted)
    assert decided.free_slots == free - admitted


def test_5_3_other_schedules_never_count_for_overlap() -> None:
    decided = decide(new("a", 30, active=1), new("b", 30), free=4)
    assert (fate(decided.decisions["a"], 30), fate(decided.decisions["b"], 30)) == ("skipped-overlap", "admitted")


def test_5_5_what_lacks_overlap_room_takes_no_slot() -> None:
    decided = decide(waiting("a", 30, since=30, active=1), new("b", 10))
    assert order(decided) == [("b", 10)]
    assert because(decided.decisions["a"], 30)["code"] == "overlap"


def test_5_9_what_preflight_refuses_takes_no_slot() -> None:
    decided = decide(waiting("a", 30, since=30, verdict=REJECTED), new("b", 10))
    assert order(decided) == [("b", 10)]
    assert rows(decided.decisions["a"]) == [(30, "preflight-rejected")]


def test_5_14_a_schedule_before_its_floor_takes_no_slot() -> None:
    decided = decide(waiting("a", 30, since=30, floor=ago(-60)), new("b", 10))
    assert order(decided) == [("b", 10)]
    assert decided.decisions["a"].candidate == held(30)


def test_5_5_a_an_expired_candidate_takes_no_slot() -> None:
    assert order(decide(waiting("a", 61, since=61), new("b", 10))) == [("b", 10)]


# 5.9: asking only where it matters --------------------------------------------------------------------------------------


def test_5_9_only_those_with_room_are_asked() -> None:
    decided = decide(
        new("a", 30, verdict=None),
        new("b", 20, verdict=None),
        new("c", 10, verdict=None, active=1),
        new("d", 5, verdict=REJECTED),
    )
    assert decided.needs_preflight == ("a",)


def test_5_9_a_refusal_makes_room_for_the_next_to_be_asked() -> None:
    decided = decide(new("a", 30, verdict=REJECTED), new("b", 20, verdict=None), new("c", 10, verdict=None))
    assert decided.needs_preflight == ("b",)


# 6.1: numbers, and the shape of the answer ------------------------------------------------------------------------------


def test_6_1_runs_are_numbered_in_the_order_of_admission() -> None:
    decided = decide(new("a", 20), waiting("c", 10, since=5), new("b", 50, 40, overlap="parallel"), free=4)
    numbers = {(name, row.instant): row.run for name, decision in decided.decisions.items() for row in decision.settled}
    assert [numbers[admission] for admission in decided.admitted] == [7, 8, 9, 10]
    assert order(decided) == [("c", 10), ("b", 50), ("b", 40), ("a", 20)]


def test_every_schedule_gets_a_decision() -> None:
    decided = decide(facts("idle"), new("busy", 30))
    assert set(decided.decisions) == {"idle", "busy"}
    assert (decided.decisions["idle"].settled, decided.decisions["idle"].watermark) == ((), ago(3600))


def test_nothing_to_decide() -> None:
    decided = decide()
    assert (dict(decided.decisions), decided.admitted, decided.needs_preflight, decided.free_slots) == ({}, (), (), 1)


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_round_of_one_is_the_single_decision(free: int) -> None:
    known = facts(candidate=held(55), due=due(90, 40, 20), overlap="parallel")
    alone = decide_admission(known, now=NOON, free_slots=free, slot_limit=4, next_run=7)
    assert decide(known, free=free).decisions["report"] == alone


@pytest.mark.parametrize("seed", range(20))
def test_the_order_in_which_schedules_are_given_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    known = [
        facts(
            f"s{n}",
            overlap=chance.choice(["skip", "queue", "parallel"]),
            misfire=chance.choice(["skip", "latest"]),
            active=chance.randrange(2),
            candidate=held(55, since=chance.choice([20, 30])) if chance.random() < 0.5 else None,
            due=due(*sorted(chance.sample([50, 40, 30, 20, 10], chance.randrange(4)), reverse=True)),
            last_admission=chance.choice([None, ago(100), ago(200)]),
        )
        for n in range(8)
    ]
    decided = decide(*known, free=3)
    chance.shuffle(known)
    again = decide(*known, free=3)
    assert (again.decisions, again.admitted, again.free_slots) == (decided.decisions, decided.admitted, decided.free_slots)


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        decide_round([], now=NOON.replace(tzinfo=None), free_slots=1)
