"""Which records contradict each other: tables (contract 7.4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from wfctl.core.contradictions import (
    REMEDIES,
    SAFE,
    Code,
    OccurrenceFacts,
    RunFacts,
    StateFacts,
    diagnostic_of,
    judge_executions,
    judge_occurrence,
    judge_run,
    judge_state,
)
from wfctl.core.model import FINISHED, RUN_STATUSES, UNFINISHED, Status

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROW = OccurrenceFacts(place=5, schedule=3, instant=NOON, status=Status.RUNNING, run=7)
RUN = RunFacts(number=7, schedule=3, instant=NOON, status=Status.RUNNING)
SKIPPED = replace(ROW, status=Status.SKIPPED_OVERLAP, run=None)
STATE = StateFacts(schedule=3, watermark=NOON, floor=NOON, candidate=None, clock=NOON)


def codes(found: list) -> list[Code]:  # type: ignore[type-arg]
    return [each.code for each in found]


@pytest.mark.parametrize("status", sorted(RUN_STATUSES))
def test_a_run_and_its_occurrence_that_agree_are_sound(status: Status) -> None:
    row, run = replace(ROW, status=status), replace(RUN, status=status)
    assert judge_occurrence("s", row, run) == judge_run("s", run, row) == []


@pytest.mark.parametrize("status", sorted(set(Status) - RUN_STATUSES - {Status.PENDING}))
def test_a_row_without_a_run_is_sound(status: Status) -> None:
    assert judge_occurrence("s", replace(SKIPPED, status=status), None) == []


@pytest.mark.parametrize(
    ("row", "run", "code"),
    [
        pytest.param(replace(ROW, status=None, problem="status is 'banana'", is_status_unknown=True), RUN, Code.UNKNOWN_STATUS,
                     id="a row of unknown status"),
        pytest.param(replace(ROW, problem="reason is no JSON"), RUN, Code.UNREADABLE, id="a row that cannot be read"),
        pytest.param(ROW, None, Code.OCCURRENCE_WITHOUT_RUN, id="a row whose run is not there"),
        pytest.param(ROW, replace(RUN, instant=NOON + HOUR), Code.OCCURRENCE_WITHOUT_RUN, id="a run of another instant"),
        pytest.param(ROW, replace(RUN, schedule=4), Code.OCCURRENCE_WITHOUT_RUN, id="a run of another schedule"),
        pytest.param(replace(ROW, run=None), None, Code.OCCURRENCE_WITHOUT_RUN, id="an admitted row that names none"),
        pytest.param(ROW, replace(RUN, status=Status.FAILED), Code.STATUS_DIFFERS, id="another status than its run"),
        pytest.param(SKIPPED, RUN, Code.STATUS_DIFFERS, id="a skipped instant with a run"),
        pytest.param(ROW, replace(RUN, status=None, problem="status is 99", is_status_unknown=True), Code.UNKNOWN_STATUS,
                     id="a run of unknown status"),
    ],
)  # fmt: skip
def test_7_4_a_row_that_contradicts(row: OccurrenceFacts, run: RunFacts | None, code: Code) -> None:
    found = judge_occurrence("s", row, run)
    assert codes(found) == [code]
    assert found[0].schedule == 3
    assert all("s@2026-03-01T12:00:00Z" in each or "run-000007" in each for each in found[0].rows)


def test_7_4_a_run_without_its_occurrence() -> None:
    assert codes(judge_run("s", RUN, None)) == [Code.RUN_WITHOUT_OCCURRENCE]
    assert codes(judge_run("s", RUN, replace(ROW, run=8))) == [Code.RUN_WITHOUT_OCCURRENCE]
    assert judge_run("?", replace(RUN, schedule=None, instant=None), None) == [], "one by hand has none"


@pytest.mark.parametrize("status", sorted(RUN_STATUSES))
@pytest.mark.parametrize("unsettled", [(), (1,), (1, 2)])
def test_7_4_executions(status: Status, unsettled: tuple[int, ...]) -> None:
    expected = [Code.TWO_UNSETTLED] if len(unsettled) > 1 else []
    expected += [Code.UNSETTLED_OF_FINISHED] if unsettled and status in FINISHED else []
    found = judge_executions(7, 3, status, unsettled)
    assert codes(found) == expected
    assert all("execution run-000007/1" in each.rows for each in found)


def test_a_sound_state() -> None:
    assert judge_state("s", STATE) == []
    assert judge_state("s", replace(STATE, candidate=NOON)) == []
    assert judge_state("s", replace(STATE, clock=NOON - 3 * HOUR)) == [], "so far the clock may step back (5.14)"
    assert judge_state("s", replace(STATE, named_deployment="d", deployment="d")) == []
    assert judge_state("s", replace(STATE, paused_at=NOON, pause=NOON)) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"beyond": (NOON + HOUR,)}, Code.WATERMARK_BEHIND, id="a row behind the watermark"),
        pytest.param({"clock": NOON - 3 * HOUR - timedelta(seconds=1)}, Code.WATERMARK_AHEAD, id="a watermark no clock was at"),
        pytest.param({"candidate": NOON, "is_candidate_recorded": True}, Code.CANDIDATE_SETTLED, id="a candidate with a row"),
        pytest.param({"candidate": NOON + HOUR}, Code.CANDIDATE_AHEAD, id="a candidate that is not consumed"),
        pytest.param({"named_deployment": "d", "deployment": "other"}, Code.OTHER_DEPLOYMENT, id="another deployment"),
        pytest.param({"named_deployment": "d"}, Code.OTHER_DEPLOYMENT, id="no deployment"),
        pytest.param({"paused_at": NOON}, Code.PAUSE_DIFFERS, id="paused, and no span says so"),
        pytest.param({"pause": NOON}, Code.PAUSE_DIFFERS, id="a span that lasts, and not paused"),
    ],
)
def test_7_4_a_state_that_contradicts(change: dict[str, object], code: Code) -> None:
    found = judge_state("s", replace(STATE, **change))  # type: ignore[arg-type]
    assert codes(found) == [code]
    assert found[0].rows[0] == "schedule s" and found[0].schedule == 3


def test_each_code_has_its_remedy_and_safe_ones_free_no_slot() -> None:
    assert set(REMEDIES) == set(Code)
    assert not SAFE & {Code.STATUS_DIFFERS, Code.UNKNOWN_STATUS, Code.OCCURRENCE_WITHOUT_RUN, Code.TWO_UNSETTLED}
    assert UNFINISHED < RUN_STATUSES


def test_the_diagnostic_names_every_row() -> None:
    found = judge_occurrence("s", ROW, None) + judge_state("s", replace(STATE, beyond=(NOON + HOUR,)))
    made = diagnostic_of(found)
    assert made["code"] == "contradiction"
    assert made["rows"] == ["occurrence s@2026-03-01T12:00:00Z", "schedule s", "occurrence s@2026-03-01T13:00:00Z"]
    assert [each["code"] for each in made["contradictions"]] == ["occurrence-without-run", "watermark-behind"]
    assert "and 1 more" in made["message"] and "wfctl store verify" in made["message"]
