"""What becomes of an execution that is found unsettled: the whole truth table (contract 6.9, 6.10, 7.1)."""

from __future__ import annotations

import itertools

import pytest

from wfctl.core.recovery import Recovery, decide_recovery

FACTS = ("has_record", "is_running", "is_alive", "is_forbidden", "keeper_is_older", "was_watched")

#: First row that matches decides; `None` matches both. Columns as FACTS.
RULES: list[tuple[tuple[bool | None, ...], Recovery]] = [
    ((True, None, None, None, None, None), Recovery.TAKE_RECORD),  # 7.1: with its exit record the run goes on from it
    ((False, True, None, None, None, None), Recovery.ADOPT),  # 7.1: known to a keeper
    ((False, False, True, None, None, None), Recovery.WATCH),  # 6.9, 7.1: same boot, pid and start time
    ((False, False, False, True, True, None), Recovery.NOT_LAUNCHED),  # 6.10: what a forbidding keeper proves
    ((False, False, False, True, False, True), Recovery.LOST_OUTCOME),  # 6.9
    ((False, False, False, False, None, True), Recovery.LOST_OUTCOME),
    ((False, False, False, True, False, False), Recovery.ABANDON),  # 6.10: a younger keeper proves nothing
    ((False, False, False, False, None, False), Recovery.ABANDON),  # 7.1: nobody lives to answer for it
]


def _expected(facts: tuple[bool, ...]) -> Recovery:
    for pattern, verdict in RULES:
        if all(wanted is None or wanted is found for wanted, found in zip(pattern, facts, strict=True)):
            return verdict
    raise AssertionError(f"no rule for {facts}")


ALL = list(itertools.product((False, True), repeat=len(FACTS)))


@pytest.mark.parametrize(
    "facts", ALL, ids=[" ".join(name for name, holds in zip(FACTS, each, strict=True) if holds) or "nothing" for each in ALL]
)
def test_7_1_truth_table(facts: tuple[bool, ...]) -> None:
    assert decide_recovery(**dict(zip(FACTS, facts, strict=True))) is _expected(facts)


def test_6_10_only_a_promise_of_an_older_keeper_lets_the_step_be_marked_anew() -> None:
    """Fail closed: whatever else is found, without both facts nothing is taken for never launched."""
    for facts in ALL:
        found = dict(zip(FACTS, facts, strict=True))
        if decide_recovery(**found) is Recovery.NOT_LAUNCHED:
            assert found["is_forbidden"] and found["keeper_is_older"] and not found["is_alive"] and not found["is_running"]
