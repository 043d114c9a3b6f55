"""The table of run states and events has no empty cell (contract 5.3, 5.4, 6.6)."""

from __future__ import annotations

import itertools

import pytest

from wfctl.core.lifecycle import TRANSITIONS, RunEvent, after
from wfctl.core.model import FINISHED, HOLDS_EXECUTION_SLOT, RUN_STATUSES, UNFINISHED, Status

ADMITTED, RUNNING, INTERRUPTED = Status.ADMITTED, Status.RUNNING, Status.INTERRUPTED
NOTHING = None

#: Rows are states, columns events: started, resumed, interrupted, completed, failed, exhausted, cancelled (contract 6.6).
TABLE: dict[Status, tuple[Status | None, ...]] = {
    ADMITTED: (RUNNING, NOTHING, INTERRUPTED, Status.COMPLETED, Status.FAILED, Status.EXHAUSTED, Status.CANCELLED),
    RUNNING: (RUNNING, NOTHING, INTERRUPTED, Status.COMPLETED, Status.FAILED, Status.EXHAUSTED, Status.CANCELLED),
    INTERRUPTED: (NOTHING, RUNNING, NOTHING, NOTHING, Status.FAILED, NOTHING, Status.CANCELLED),
    Status.COMPLETED: (NOTHING,) * 7,
    Status.FAILED: (NOTHING,) * 7,
    Status.EXHAUSTED: (NOTHING,) * 7,
    Status.CANCELLED: (NOTHING,) * 7,
}
EVENTS = ("started", "resumed", "interrupted", "completed", "failed", "exhausted", "cancelled")
CELLS = [
    pytest.param(state, RunEvent(event), TABLE[state][column], id=f"{state} and {event}")
    for state in TABLE
    for column, event in enumerate(EVENTS)
]


@pytest.mark.parametrize(("state", "event", "following"), CELLS)
def test_6_6_state_and_event(state: Status, event: RunEvent, following: Status | None) -> None:
    assert after(state, event) is following


def test_6_6_no_cell_is_empty() -> None:
    assert set(TRANSITIONS) == set(RUN_STATUSES) == set(TABLE)
    assert all(set(row) == set(RunEvent) for row in TRANSITIONS.values())
    assert {RunEvent(event) for event in EVENTS} == set(RunEvent)


def test_6_6_every_state_leads_somewhere_final_or_is_final() -> None:
    def reachable(state: Status, seen: frozenset[Status]) -> set[Status]:
        following = {to for to in TRANSITIONS[state].values() if to is not None and to not in seen}
        return following.union(*(reachable(to, seen | following) for to in following)) if following else set()

    for state in UNFINISHED:
        assert reachable(state, frozenset({state})) >= FINISHED - {state}


def test_6_6_a_final_state_is_never_left() -> None:
    assert {Status.COMPLETED, Status.FAILED, Status.EXHAUSTED, Status.CANCELLED} == FINISHED
    for state, event in itertools.product(FINISHED, RunEvent):
        assert after(state, event) is None


def test_5_3_and_5_4_which_states_hold_which_slot() -> None:
    assert {ADMITTED, RUNNING, INTERRUPTED} == UNFINISHED
    assert {ADMITTED, RUNNING} == HOLDS_EXECUTION_SLOT


@pytest.mark.parametrize("status", sorted(set(Status) - RUN_STATUSES))
def test_a_status_that_no_run_has_is_a_bug_of_the_caller(status: Status) -> None:
    with pytest.raises(ValueError, match="no state of a run"):
        after(status, RunEvent.STARTED)
