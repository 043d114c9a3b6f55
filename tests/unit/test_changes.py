"""What pause, delete, edits and a clock step do to what was due before them (contract 3.4, 5.2, 5.11, 5.12, 5.14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission_facts import NOON, ago, due, held
from wfctl.core.changes import (
    Cause,
    changed_fields,
    changes_misfire,
    changes_trigger,
    clock_reason,
    close_all,
    close_missed,
    must_reanchor,
)
from wfctl.core.instants import format_instant
from wfctl.core.model import (
    CronTrigger,
    DueInstants,
    IntervalTrigger,
    Misfire,
    Overlap,
    ScheduleDefinition,
    Span,
    Status,
)

OLDER = Span(ago(9000), ago(7000), 34)
DAILY = ScheduleDefinition(deployment="d", trigger=CronTrigger("0 1 * * *"))


@pytest.mark.parametrize("cause", list(Cause))
def test_3_4_5_11_5_12_all_that_was_due_is_settled_with_the_cause(cause: Cause) -> None:
    closing = close_all(due(120, 60, 0, older=OLDER), held(180), cause=cause, now=NOON)
    shown = [(row.instant, row.status, row.reason, row.span) for row in closing.settled]
    reason = {"code": cause.value}
    assert shown == [
        (OLDER.last, Status.SKIPPED_MISFIRE, reason, OLDER),
        (ago(180), Status.COALESCED, {**reason, "held_since": format_instant(ago(180))}, None),
        (ago(120), Status.SKIPPED_MISFIRE, reason, None),
        (ago(60), Status.SKIPPED_MISFIRE, reason, None),
        (ago(0), Status.SKIPPED_MISFIRE, reason, None),
    ]
    assert closing.watermark == NOON
    assert [row.lateness for row in closing.settled] == [timedelta(seconds=late) for late in (7000, 180, 120, 60, 0)]


@pytest.mark.parametrize("cause", list(Cause))
def test_nothing_due_and_nothing_held_settles_nothing_and_consumes_all_the_same(cause: Cause) -> None:
    closing = close_all(DueInstants(), None, cause=cause, now=NOON)
    assert closing.settled == () and closing.watermark == NOON


def test_3_4_a_held_candidate_newer_than_what_is_due_stands_behind_it() -> None:
    closing = close_all(due(120), held(60), cause=Cause.EDITED, now=NOON)
    assert [row.status for row in closing.settled] == [Status.SKIPPED_MISFIRE, Status.COALESCED]


@pytest.mark.parametrize(
    ("lateness", "settled", "watermark"),
    [
        pytest.param(60, [7000, 120, 61], 61, id="what is on time stays due"),
        pytest.param(61, [7000, 120], 120, id="61 s late is on time at a lateness of 61 s"),
        pytest.param(120, [7000], 7000, id="only the older span is missed"),
        pytest.param(0, [7000, 120, 61, 1], 1, id="nothing is on time at a lateness of 0 but now"),
    ],
)
def test_3_4_a_change_of_misfire_or_lateness_settles_what_was_missed(
    lateness: float, settled: list[float], watermark: float
) -> None:
    closing = close_missed(due(120, 61, 1, 0, older=OLDER), lateness=timedelta(seconds=lateness), now=NOON)
    assert [row.instant for row in closing.settled] == [ago(late) for late in settled]
    assert {row.status for row in closing.settled} == {Status.SKIPPED_MISFIRE}
    assert all(row.reason == {"code": "edited"} for row in closing.settled)
    assert closing.watermark == ago(watermark)


def test_3_4_nothing_missed_consumes_nothing() -> None:
    closing = close_missed(due(10, 0), lateness=timedelta(seconds=60), now=NOON)
    assert closing.settled == () and closing.watermark is None


@given(
    st.lists(st.integers(0, 5000), unique=True, max_size=100),
    st.one_of(st.none(), st.integers(0, 6000)),
    st.sampled_from(list(Cause)),
)
def test_5_15_closing_gives_each_instant_one_row_in_order(late: list[int], candidate: int | None, cause: Cause) -> None:
    instants = due(*sorted(late, reverse=True))
    waiting = held(candidate) if candidate is not None and candidate not in late else None
    rows = close_all(instants, waiting, cause=cause, now=NOON).settled
    found = [row.instant for row in rows]
    assert found == sorted({*instants.instants, *([waiting.instant] if waiting else [])})


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        pytest.param(timedelta(0), False, id="the clock stands at the floor"),
        pytest.param(-timedelta(days=400), False, id="the clock is past the floor"),
        pytest.param(timedelta(hours=3), False, id="three hours back waits"),
        pytest.param(timedelta(hours=3, microseconds=1), True, id="more than three hours back begins anew"),
    ],
)
def test_5_14_when_a_schedule_begins_anew(ahead: timedelta, expected: bool) -> None:
    assert must_reanchor(NOON + ahead, NOON) is expected


@pytest.mark.parametrize(
    ("changed", "moves", "misses"),
    [
        pytest.param({"notes": "x"}, False, False, id="a remark"),
        pytest.param({"trigger": CronTrigger("0 2 * * *")}, True, False, id="the expression"),
        pytest.param({"trigger": CronTrigger("0 1 * * *", "Europe/Budapest")}, True, False, id="the zone"),
        pytest.param({"trigger": IntervalTrigger(timedelta(hours=1))}, True, False, id="the kind of trigger"),
        pytest.param({"misfire": Misfire.LATEST}, False, True, id="misfire"),
        pytest.param({"lateness": timedelta(seconds=61)}, False, True, id="lateness"),
        pytest.param({"overlap": Overlap.QUEUE}, False, False, id="overlap"),
        pytest.param({"max_run": "none"}, False, False, id="max_run"),
        pytest.param({"deployment": "other"}, False, False, id="deployment"),
    ],
)
def test_3_4_what_an_edit_changes(changed: dict[str, object], moves: bool, misses: bool) -> None:
    new = replace(DAILY, **changed)  # type: ignore[arg-type]
    assert (changes_trigger(DAILY, new), changes_misfire(DAILY, new)) == (moves, misses)


def test_changed_fields_are_dotted_within_tables() -> None:
    old = {"trigger": {"kind": "cron", "expression": "0 1 * * *"}, "notes": None, "input": {}}
    new = {"trigger": {"kind": "cron", "expression": "0 2 * * *"}, "notes": "x", "input": {}, "max_steps": 3}
    assert changed_fields(old, new) == ["trigger.expression", "notes", "max_steps"]
    assert changed_fields(old, old) == []


def test_5_14_a_clock_event_says_from_and_to() -> None:
    assert clock_reason(NOON, ago(3600)) == {"code": "clock", "from": "2026-03-01T12:00:00Z", "to": "2026-03-01T11:00:00Z"}
