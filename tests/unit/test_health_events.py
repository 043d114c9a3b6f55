"""Which changes of a schedule's health are told (contract 7.8)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.core.event_text import event_message
from wfctl.core.health_events import (
    RULES,
    WELL,
    Happening,
    Health,
    Trouble,
    Word,
    decide_telling,
    happening_of,
    health_from_plain,
    health_to_plain,
)
from wfctl.core.model import Status

START = datetime(2027, 3, 1, 9, tzinfo=UTC)
H = Happening


def told(happenings: list[Happening], after: int | None = 1) -> list[str]:
    """What is told of happenings in that order, as `word` or `word*count`."""
    health, words = WELL, []
    for minute, happening in enumerate(happenings):
        health, telling = decide_telling(health, happening, at=START + timedelta(minutes=minute), after=after)
        if telling is not None:
            words.append(telling.word.value + (f"*{telling.count}" if telling.count > 1 else ""))
    return words


F, C = H.FAILED, H.COMPLETED


@pytest.mark.parametrize(
    ("happenings", "after", "words"),
    [
        pytest.param([C, C, C], 1, [], id="success is never told"),
        pytest.param([C, F], 1, ["failed"], id="the first failure after success"),
        pytest.param([F], 1, ["failed"], id="one that never worked"),
        pytest.param([C, F, F, F], 1, ["failed"], id="a streak is told once"),
        pytest.param([F, C], 1, ["failed", "recovered"], id="recovery"),
        pytest.param([F, F, F, C], 1, ["failed", "recovered*3"], id="recovery says after how many"),
        pytest.param([F, C, C, F], 1, ["failed", "recovered", "failed"], id="each streak anew"),
        pytest.param([F, F], 3, [], id="after 3: two in a row are not told"),
        pytest.param([F, F, F, F], 3, ["failing*3"], id="after 3: the third is, once"),
        pytest.param([F, F, C, F, F], 3, [], id="after 3: success begins the count anew"),
        pytest.param([F, F, C], 3, [], id="no recovery of what was not told"),
        pytest.param([F, F, F, C], 3, ["failing*3", "recovered*3"], id="after 3: recovery"),
        pytest.param([F, H.STOPPED, F], 2, ["failing*2"], id="a cancelled run breaks no streak"),
        pytest.param([H.STOPPED], 1, [], id="nor is it a failure"),
        pytest.param([F, H.WAITING, F], 2, ["waiting", "failing*2"], id="nor one that waits"),
        pytest.param([H.WAITING, H.WAITING], 1, ["waiting", "waiting"], id="each wait needs an answer"),
        pytest.param([H.MISSED, H.MISSED], 1, ["missed"], id="missed is told once"),
        pytest.param([H.MISSED, H.ON_TIME, H.MISSED], 1, ["missed", "missed"], id="until one comes in time"),
        pytest.param([H.MISSED, C, H.MISSED], 1, ["missed"], id="a success that came late is none"),
        pytest.param([H.MISSED], 3, ["missed"], id="after counts failures alone"),
        pytest.param([H.OVERDUE, C, H.OVERDUE], 1, ["overdue"], id="overdue night after night is told once"),
        pytest.param([H.OVERDUE, C, H.IN_TIME, H.OVERDUE], 1, ["overdue", "overdue"], id="until one ends in time"),
        pytest.param([H.BLOCKED, H.BLOCKED, H.UNBLOCKED], 1, ["blocked", "unblocked*2"], id="blocked, then not"),
        pytest.param([H.UNBLOCKED], 1, [], id="not blocked, as before"),
        pytest.param([F, H.BLOCKED, H.UNBLOCKED, F, C], 1, ["failed", "blocked", "unblocked", "recovered*2"], id="sides apart"),
        pytest.param([F, H.BLOCKED, H.MISSED, H.WAITING, C], None, [], id="nobody is to be told"),
    ],
)
def test_7_8_what_is_told(happenings: list[Happening], after: int | None, words: list[str]) -> None:
    assert told(happenings, after) == words


def test_7_8_the_table_is_total_and_what_it_ends_it_also_begins() -> None:
    assert set(RULES) == set(Happening)
    begun = {rule.side for rule in RULES.values() if rule.begins}
    assert {rule.side for rule in RULES.values() if not rule.begins} - {None} == begun


def test_7_8_trouble_that_nobody_was_told_of_is_told_once_somebody_is() -> None:
    health, _ = decide_telling(WELL, F, at=START, after=None)
    health, telling = decide_telling(health, F, at=START + timedelta(hours=1), after=1)
    assert telling is not None and (telling.word, telling.since, telling.count) == (Word.FAILING, START, 2)
    assert decide_telling(health, F, at=START, after=1)[1] is None


def model(happenings: list[Happening], after: int) -> list[str]:
    """The same by looking back over the whole history at each step."""
    words = []
    for place, happening in enumerate(happenings):
        before = happenings[:place]
        if happening is H.WAITING:
            words.append("waiting")
        elif happening is F:
            streak = 1
            for each in reversed(before):
                if each is C:
                    break
                streak += each is F
            if streak == after:
                words.append("failed" if streak == 1 else "failing")
        elif happening is C:
            streak = 0
            for each in reversed(before):
                if each is C:
                    break
                streak += each is F
            if streak >= after:
                words.append("recovered")
        else:
            pair = {H.MISSED: H.ON_TIME, H.OVERDUE: H.IN_TIME, H.BLOCKED: H.UNBLOCKED}
            ends = {end: begin for begin, end in pair.items()}
            sides = {each for each in (happening, pair.get(happening), ends.get(happening)) if each}
            last = next((each for each in reversed(before) if each in sides), None)
            is_in_trouble = last in pair
            if happening in pair and not is_in_trouble:
                words.append(happening.value)
            if happening is H.UNBLOCKED and is_in_trouble:
                words.append("unblocked")
    return words


@pytest.mark.parametrize("seed", range(100))
def test_7_8_any_history_is_told_as_the_model_says(seed: int) -> None:
    chance = random.Random(seed)
    happenings = chance.choices(list(Happening), weights=[6, 3, 8, 1, 1, 2, 2, 2, 2, 2], k=60)
    after = chance.choice([1, 1, 2, 3])
    assert [word.partition("*")[0] for word in told(happenings, after)] == model(happenings, after)


@given(st.lists(st.sampled_from([F, C, H.STOPPED, H.WAITING])), st.integers(1, 4))
def test_7_8_a_streak_is_told_exactly_once_and_only_when_long_enough(happenings: list[Happening], after: int) -> None:
    streaks = "".join("F" if each is F else "C" if each is C else "" for each in happenings).split("C")
    expected = sum(len(each) >= after for each in streaks)
    assert sum(word.startswith("fail") for word in told(happenings, after)) == expected


@pytest.mark.parametrize(
    ("status", "code", "happening"),
    [
        (Status.COMPLETED, None, H.COMPLETED),
        (Status.FAILED, "exit", H.FAILED),
        (Status.FAILED, "abandoned", H.FAILED),
        (Status.FAILED, "shutdown", H.STOPPED),
        (Status.FAILED, "drained", H.STOPPED),
        (Status.EXHAUSTED, "max-steps", H.FAILED),
        (Status.CANCELLED, "cancelled", H.STOPPED),
        (Status.PREFLIGHT_REJECTED, "preflight", H.FAILED),
        (Status.INTERRUPTED, None, H.WAITING),
        (Status.SKIPPED_MISFIRE, "missed", H.MISSED),
        (Status.SKIPPED_MISFIRE, "outlived", H.MISSED),
        (Status.SKIPPED_MISFIRE, "capacity", H.MISSED),
        (Status.SKIPPED_MISFIRE, "paused", None),
        (Status.SKIPPED_MISFIRE, "edited", None),
        (Status.SKIPPED_OVERLAP, "overlap", None),
        (Status.COALESCED, "newer", None),
        (Status.ADMITTED, None, None),
        (Status.RUNNING, None, None),
    ],
)
def test_7_8_what_a_status_is_for_the_health(status: Status, code: str | None, happening: Happening | None) -> None:
    assert happening_of(status, None if code is None else {"code": code}) is happening


def test_after_must_be_positive() -> None:
    with pytest.raises(ValueError, match="after"):
        decide_telling(WELL, F, at=START, after=0)


def test_health_survives_the_ledger_and_damage_is_as_nothing_known() -> None:
    health = Health(failing=Trouble(START, 3, True), blocked=Trouble(START, 1, False))
    assert health_from_plain(health_to_plain(health)) == health
    for broken in (None, [], {"failing": 1}, {"failing": ["x", 1, True]}, {"failing": [10**30, 1, True]}):
        assert health_from_plain(broken) == WELL


def event(**fields: object) -> dict[str, object]:
    plain = {
        "event": "failed",
        "schedule_id": "nightly",
        "instant": "2027-03-01T09:00:00Z",
        "run_id": "run-000031",
        "failures": 1,
        "since": "2027-03-01T09:00:07.123456Z",
        "reason": {"code": "exit", "exit_status": 2},
        "interrupt": None,
        "store": "/s",
    }
    return {**plain, **fields}


SEE = " See: wfctl --store /s"
DUE = "run-000031, due 2027-03-01T09:00:00Z"
REJECTED = {"run_id": None, "reason": {"code": "preflight-timeout"}}
BLOCKED = {"event": "blocked", "run_id": None, "reason": {"code": "invalid-definition", "message": "line 3: no"}}
RECOVERED = "nightly works again: run-000031 completed, after 1 failure since 2027-03-01T09:00:07Z."
NOT_STARTED = "nightly failed: 2027-03-01T09:00:00Z was not started: preflight did not answer in time."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, f"nightly failed: {DUE}: exit 2.{SEE} run logs run-000031"),
        ({"store": "/a b"}, f"nightly failed: {DUE}: exit 2. See: wfctl --store '/a b' run logs run-000031"),
        (
            {"event": "failing", "failures": 3},
            f"nightly failed 3 times in a row since 2027-03-01T09:00:07Z: {DUE}: exit 2.{SEE} run logs run-000031",
        ),
        (REJECTED, f"{NOT_STARTED}{SEE} occurrence explain nightly@2027-03-01T09:00:00Z"),
        ({"event": "recovered", "reason": None}, f"{RECOVERED}{SEE} run show run-000031"),
        (
            {"event": "waiting", "reason": None, "interrupt": {"message": "Deploy\x1b[31m\n42?"}},
            f"nightly waits for input: run-000031: Deploy [31m 42?.{SEE} run show run-000031",
        ),
        (BLOCKED, f"nightly is blocked and starts nothing: line 3: no.{SEE} schedule show nightly"),
    ],
)
def test_7_8_the_message_names_the_thing_the_cause_and_the_next_command(fields: dict[str, object], message: str) -> None:
    assert event_message(event(**fields)) == message


def test_7_8_every_word_has_its_sentence() -> None:
    for word in Word:
        said = event_message(event(event=word.value))
        assert said.startswith("nightly ") and "wfctl --store" in said and "None" not in said
