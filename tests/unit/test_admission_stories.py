"""Random stories of many schedules, decided by `decide_round` and by the slow model; both must write the same history."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.admission_model import HOUR, Model, Plan
from tests.support.admission_player import START, Event, Outcome, Policy, Story, play, schedule_name
from tests.support.chance import times

END = 16 * HOUR  #: calendars name instants up to here


def model(story: Story) -> Outcome:
    plans = [
        Plan(schedule_name(n), list(calendar), *policy, effective_from=START, watermark=START)
        for n, (calendar, policy) in enumerate(zip(story.calendars, story.policies, strict=True))
    ]
    world = Model(story.slots, START, plans)
    outcome = Outcome(world.history)
    for event in story.events:
        world.do(*event)
        held = [p.held and (p.held.instant, p.held.since, p.held.can_expire, p.held.code) for p in plans]
        outcome.trace.append((event, held, [max(p.watermark, p.effective_from) for p in plans]))
    return outcome


# Stories ----------------------------------------------------------------------------------------------------------------

LATENESSES = (0, 10, 60, 60, 60, 90, 600, 2 * HOUR)
LITTLE_WHILE = (0, 5, 10, 10, 20, 30, 30, 60, 60, 70, 90, 300)
LONG_WHILE = (20 * 60, HOUR, 2 * HOUR)
STEPS_BACK = (-5, -30, -120, -1800, -3 * HOUR, -3 * HOUR - 1, -3 * HOUR - 600, -4 * HOUR)


def grid(every: int, offset: int) -> tuple[int, ...]:
    return tuple(range(offset, END, every))


def random_calendar(chance: random.Random) -> tuple[int, ...]:
    if chance.random() < 0.2:
        return tuple(sorted(chance.sample(range(START, END, 10), chance.choice((1, 5, 60, 400)))))
    return grid(chance.choice((30, 30, 60, 90, 300, 1800)), chance.choice((0, 0, 5, 10)))


def random_policy(chance: random.Random) -> Policy:
    overlap = chance.choice(("skip", "queue", "parallel"))
    limit = chance.randint(1, 3) if overlap == "parallel" else 1
    return overlap, limit, chance.choice(("skip", "skip", "latest")), chance.choice(LATENESSES)


def random_change(chance: random.Random, schedules: int) -> Event:
    which = chance.randrange(schedules)
    name = chance.choices(
        ("end", "interrupt", "carry_on", "pause", "resume", "edit", "trigger", "delete", "capacity", "preflight"),
        weights=(30, 3, 4, 1, 4, 3, 1, 0.3, 3, 3),
    )[0]
    rest: dict[str, tuple[Any, ...]] = {
        "edit": (which, *random_policy(chance)),
        "trigger": (which, random_calendar(chance)),
        "capacity": (chance.choice((0, 1, 1, 2, 3)),),
        "preflight": (which, chance.random() < 0.8),
        "end": (chance.randrange(12),),
    }
    return (name, *rest.get(name, (which,)))


def random_story(chance: random.Random, *, calm: bool = False) -> Story:
    """Draw a story; a calm one has no change of definition and no clock that steps back."""
    schedules = chance.randint(1, 4)
    events: list[Event] = []
    for _ in range(chance.randint(10, 50)):
        whiles = LONG_WHILE if chance.random() < 0.06 else STEPS_BACK if chance.random() < 0.05 else LITTLE_WHILE
        events.append(("clock", chance.choice(whiles)))
        events += [random_change(chance, schedules) for _ in range(chance.choice((0, 0, 1, 1, 2, 4)))]
        events.append(("step",))
    if calm:
        events = [event for event in events if event[0] not in {"edit", "trigger"} and (event[0] != "clock" or event[1] >= 0)]
    return Story(
        slots=chance.randint(1, 3),
        calendars=tuple(random_calendar(chance) for _ in range(schedules)),
        policies=tuple(random_policy(chance) for _ in range(schedules)),
        events=tuple(events),
    )


@cache
def told(seed: int, calm: bool = False) -> tuple[Story, Outcome]:
    story = random_story(random.Random(seed), calm=calm)
    return story, play(story)


SCHEDULES = st.integers(0, 2)
MISFIRES = st.sampled_from(["skip", "latest"])
POLICIES = st.tuples(st.sampled_from(["skip", "queue"]), st.just(1), MISFIRES, st.sampled_from(LATENESSES)) | st.tuples(
    st.just("parallel"), st.integers(1, 3), MISFIRES, st.sampled_from(LATENESSES)
)
CALENDARS = st.builds(grid, st.sampled_from([30, 60, 90, 300]), st.integers(0, 29)) | st.sets(
    st.integers(START, START + HOUR), max_size=12
).map(lambda instants: tuple(sorted(instants)))
HAPPENINGS = st.one_of(
    st.tuples(st.just("clock"), st.sampled_from(LITTLE_WHILE + LONG_WHILE + STEPS_BACK)),
    st.tuples(st.sampled_from(["end", "interrupt", "carry_on"]), st.integers(0, 5)),
    st.tuples(st.sampled_from(["pause", "resume", "delete"]), SCHEDULES),
    st.builds(lambda which, policy: ("edit", which, *policy), SCHEDULES, POLICIES),
    st.tuples(st.just("trigger"), SCHEDULES, CALENDARS),
    st.tuples(st.just("capacity"), st.integers(0, 3)),
    st.tuples(st.just("preflight"), SCHEDULES, st.booleans()),
)
ROUNDS = st.builds(
    lambda wait, changes: (("clock", wait), *changes, ("step",)),
    st.sampled_from(LITTLE_WHILE),
    st.lists(HAPPENINGS, max_size=3),
)
STORIES = st.builds(
    lambda slots, calendars, policies, rounds: Story(slots, calendars, policies, tuple(sum(rounds, ()))),
    st.integers(1, 3),
    st.tuples(CALENDARS, CALENDARS, CALENDARS),
    st.tuples(POLICIES, POLICIES, POLICIES),
    st.lists(ROUNDS, max_size=12),
)


# What must hold ---------------------------------------------------------------------------------------------------------


def assert_same(story: Story, real: Outcome) -> None:
    wanted = model(story)
    for ours, theirs in zip(real.trace, wanted.trace, strict=True):
        assert ours == theirs
    assert real.history == wanted.history


def assert_laws(story: Story, real: Outcome) -> None:
    for admission in real.admissions:
        assert admission.unfinished < admission.limit  # 5.3
        assert admission.slots_taken < admission.slots  # 5.4
        assert admission.instant <= admission.now  # 5.5: nothing later than now
        assert admission.instant > START or story.steps_back  # 3.5: creation never backfills
        assert admission.late_allowed  # 5.1
    for which, (name, rows) in enumerate(real.history.items()):
        settled = Counter(instant for row in rows for instant in row.members)
        assert set(settled.values()) <= {1}  # 5.15: exactly one row; 6.1: one run an occurrence, ever
        held = real.trace[-1][1][which] if real.trace else None
        assert not held or held[0] not in settled  # the held one has no row yet
        if not story.steps_back:
            due = {instant for window in real.windows[name] for instant in window}
            assert due == settled.keys() | ({held[0]} if held else set())
        if not story.steps_back and not story.tells_of("edit", "trigger"):
            assert all(older.members[-1] < newer.members[0] for older, newer in pairwise(rows))  # 8.2


@pytest.mark.parametrize("seed", range(times(100)))
def test_a_random_story_ends_as_the_model_says_and_keeps_the_laws(seed: int) -> None:
    story, real = told(seed)
    assert_same(story, real)
    assert_laws(story, real)


@pytest.mark.parametrize("seed", range(times(30)))
def test_a_calm_story_accounts_for_each_instant_in_order(seed: int) -> None:
    story, real = told(1000 + seed, True)
    assert_same(story, real)
    assert_laws(story, real)


@settings(max_examples=times(80), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(STORIES)
def test_any_story_ends_as_the_model_says_and_keeps_the_laws(story: Story) -> None:
    real = play(story)
    assert_same(story, real)
    assert_laws(story, real)


def test_the_stories_reach_every_outcome() -> None:
    """A comparison proves only what its stories visit."""
    rows = [row for seed in range(100) for rows in told(seed)[1].history.values() for row in rows]
    seen = {(row.status, row.code) for row in rows}
    assert seen == {
        ("admitted", None),
        ("preflight-rejected", "preflight"),
        ("skipped-overlap", "overlap"),
        ("skipped-misfire", "capacity"),
        ("skipped-misfire", "outlived"),
        ("skipped-misfire", "missed"),
        ("skipped-misfire", "edited"),
        ("skipped-misfire", "paused"),
        ("skipped-misfire", "deleted"),
        ("coalesced", "newer"),
        ("coalesced", "edited"),
        ("coalesced", "paused"),
        ("coalesced", "deleted"),
    }
    assert {row.status for row in rows if len(row.members) > 1} == {"skipped-misfire", "coalesced"}
