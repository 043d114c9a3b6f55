"""What follows an execution's end: next step, retry, or the end of the run (contract 6.2, 6.5, 6.7, 6.10, 6.11)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import Step
from wfctl.core.steps import (
    Conclude,
    Ended,
    ExecutionEnd,
    Mark,
    decide_next,
    failure_of,
    is_done_by_first,
    is_interrupt,
    retry_delay,
)

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
QUESTION = {"message": "which region?"}
ONE = (Step(name="only", command=("job",)),)
TWO = (Step(name="first", command=("a",)), Step(name="second", command=("b",)))
RETRIED = (Step(name="first", command=("a",), retries=2, retry_delay=timedelta(seconds=10)), TWO[1])


def end(
    k: int, step: int = 0, how: Ended = Ended.EXITED, status: int | None = 0, attempt: int = 1, **more: Any
) -> ExecutionEnd:
    """One settled execution; k is also how many minutes after noon it ended."""
    if how is not Ended.EXITED:
        status = None
    return ExecutionEnd(
        k=k, step=step, attempt=attempt, how=how, ended_at=NOON + k * timedelta(minutes=1), exit_status=status, **more
    )


def follow(steps: tuple[Step, ...], *ends: ExecutionEnd, **more: Any) -> Mark | Conclude:
    return decide_next(steps, ends, **{"attempt": 1, "max_steps": None, **more})


def shown(following: Mark | Conclude) -> str:
    """A decision in words: `mark 1`, `mark 0 after 10s`, `completed`, `failed exit`."""
    if isinstance(following, Mark):
        return f"mark {following.step}" + ("" if following.not_before is None else " later")
    return following.event.value + (f" {following.reason['code']}" if following.reason else "")


def known(how: Ended) -> dict[str, Any]:
    return {Ended.SIGNALLED: {"signal": 9}, Ended.REFUSED: {"errno": 2, "what": "program"}}.get(how, {})


@pytest.mark.parametrize(
    ("steps", "ends", "following"),
    [
        pytest.param(TWO, [], "mark 0", id="a run without executions begins with its first step"),
        pytest.param(ONE, [end(1)], "completed", id="exit 0 of the last step completes the run"),
        pytest.param(TWO, [end(1)], "mark 1", id="exit 0 leads to the next step"),
        pytest.param(TWO, [end(1), end(2, 1)], "completed", id="the last step completes the run"),
        pytest.param(ONE, [end(1, status=3)], "failed exit", id="any other status fails the run"),
        pytest.param(TWO, [end(1), end(2, 1, status=1)], "failed exit", id="a later step fails the run too"),
        pytest.param(ONE, [end(1, status=75)], "failed exit", id="75 without an object is a failure"),
        pytest.param(ONE, [end(1, status=75, interrupt=QUESTION)], "interrupted", id="75 with an object asks for input"),
        pytest.param(ONE, [end(1, status=75, interrupt={})], "interrupted", id="an empty object is an object"),
        pytest.param(ONE, [end(1, status=0, interrupt=QUESTION)], "completed", id="an object without 75 is nothing"),
        pytest.param(ONE, [end(1, status=1, interrupt=QUESTION)], "failed exit", id="an object with 1 is a failure"),
        pytest.param(RETRIED, [end(1, status=75)], "mark 0 later", id="75 without an object is retried as a failure"),
        pytest.param(RETRIED, [end(1, status=75, interrupt=QUESTION)], "interrupted", id="an interrupt is no failure to retry"),
        pytest.param(ONE, [end(1, how=Ended.SIGNALLED, **known(Ended.SIGNALLED))], "failed signal", id="a signal fails it"),
        pytest.param(
            ONE, [end(1, output_problem="no JSON")], "failed output-invalid", id="output that cannot be taken fails it"
        ),
        pytest.param(
            RETRIED, [end(1, output_problem="no JSON")], "mark 0 later", id="output that cannot be taken is a known failure"
        ),
    ],
)
def test_6_5_what_follows_an_end(steps: tuple[Step, ...], ends: list[ExecutionEnd], following: str) -> None:
    assert shown(follow(steps, *ends)) == following


@pytest.mark.parametrize(
    ("how", "code"),
    [(Ended.EXITED, "exit"), (Ended.SIGNALLED, "signal"), (Ended.REFUSED, "launch-failed")],
)
def test_6_5_and_6_10_known_failures_are_retried_until_none_is_left(how: Ended, code: str) -> None:
    ends = [end(k, how=how, status=1, **known(how)) for k in (1, 2, 3)]
    assert follow(RETRIED, *ends[:1]) == Mark(0, ends[0].ended_at + timedelta(seconds=10))
    assert follow(RETRIED, *ends[:2]) == Mark(0, ends[1].ended_at + timedelta(seconds=20))
    assert shown(follow(RETRIED, *ends)) == f"failed {code}"


@pytest.mark.parametrize(("how", "code"), [(Ended.UNKNOWN, "outcome-unknown"), (Ended.ABANDONED, "abandoned")])
def test_6_9_and_7_1_what_nobody_saw_end_is_never_retried(how: Ended, code: str) -> None:
    following = follow(RETRIED, end(1, how=how))
    assert shown(following) == f"failed {code}"
    assert isinstance(following, Conclude)
    assert following.reason is not None and "effects" in following.reason


def test_7_1_an_abandoned_run_says_that_effects_may_have_happened() -> None:
    following = follow(ONE, end(1, how=Ended.ABANDONED))
    assert isinstance(following, Conclude) and following.reason is not None
    assert following.reason["effects"] == "external effects may already have happened"


def test_retries_of_one_step_are_not_used_up_by_another() -> None:
    steps = (RETRIED[0], Step(name="second", command=("b",), retries=1))
    assert shown(follow(steps, end(1, status=1), end(2), end(3, 1, status=1))) == "mark 1 later"
    assert shown(follow(steps, end(1, status=1), end(2), end(3, 1, status=1), end(4, 1, status=1))) == "failed exit"


@pytest.mark.parametrize(
    ("failures", "delay"),
    [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (50, 600), (10_000, 600)],
)
def test_3_retry_delay_doubles_up_to_ten_minutes(failures: int, delay: float) -> None:
    assert retry_delay(RETRIED[0], failures) == timedelta(seconds=delay)


def test_3_no_retry_delay_stays_none() -> None:
    assert retry_delay(Step(name="s", command=("x",), retry_delay=timedelta(0)), 5) == timedelta(0)


@pytest.mark.parametrize(
    ("max_steps", "ends", "following"),
    [
        pytest.param(1, [], "mark 0", id="one of one is left"),
        pytest.param(1, [end(1)], "exhausted max-steps", id="the next step would pass the limit"),
        pytest.param(2, [end(1)], "mark 1", id="the second of two is left"),
        pytest.param(2, [end(1), end(2, 1)], "completed", id="a run that ends with its limit completes"),
        pytest.param(1, [end(1, status=1)], "exhausted max-steps", id="a retry would pass the limit"),
        pytest.param(2, [end(1, status=1)], "mark 0 later", id="a retry is left"),
        pytest.param(2, [end(1, how=Ended.NOT_LAUNCHED)], "mark 0", id="what was not launched does not count"),
        pytest.param(1, [end(1, how=Ended.NOT_LAUNCHED), end(2)], "exhausted max-steps", id="what was launched counts"),
        pytest.param(3, [end(1, status=1), end(2, status=1), end(3, status=1)], "failed exit", id="a failure stays a failure"),
        pytest.param(1, [end(1, status=75, interrupt=QUESTION)], "interrupted", id="an interrupt needs no step"),
    ],
)
def test_6_7_max_steps_counts_executions(max_steps: int, ends: list[ExecutionEnd], following: str) -> None:
    assert shown(follow(RETRIED, *ends, max_steps=max_steps)) == following


def test_6_7_executions_of_earlier_attempts_count() -> None:
    ends = [end(1, status=75, interrupt=QUESTION), end(2, attempt=2)]
    assert shown(follow(TWO, *ends, attempt=2, max_steps=2)) == "exhausted max-steps"
    assert shown(follow(TWO, *ends, attempt=2, max_steps=3)) == "mark 1"


def test_6_13_a_resumed_attempt_begins_with_the_interrupted_step() -> None:
    ends = [end(1), end(2, 1, status=75, interrupt=QUESTION)]
    assert follow(TWO, *ends, attempt=2, resumed_step=1) == Mark(1)
    assert shown(follow(TWO, *ends, end(3, 1, attempt=2), attempt=2, resumed_step=1)) == "completed"


def test_6_13_retries_begin_anew_with_an_attempt() -> None:
    ends = [end(1, status=1), end(2, status=1), end(3, status=75, interrupt=QUESTION), end(4, attempt=2, status=1)]
    assert follow(RETRIED, *ends, attempt=2) == Mark(0, ends[-1].ended_at + timedelta(seconds=10))


def test_6_10_what_was_not_launched_is_marked_anew_and_is_no_failure() -> None:
    ends = [end(1, how=Ended.NOT_LAUNCHED), end(2, how=Ended.NOT_LAUNCHED)]
    assert follow(ONE, *ends) == Mark(0)
    assert follow(RETRIED, *ends, end(3, status=1)) == Mark(0, end(3).ended_at + timedelta(seconds=10))


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("cancelled", RunEvent.CANCELLED),
        ("deadline", RunEvent.FAILED),
        ("drained", RunEvent.FAILED),
        ("shutdown", RunEvent.FAILED),
    ],
)
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([end(1)], id="exit 0"),
        pytest.param([end(1, status=1)], id="exit 1"),
        pytest.param([end(1, status=75, interrupt=QUESTION)], id="an interrupt"),
        pytest.param([end(1, how=Ended.SIGNALLED, signal=15)], id="TERM"),
        pytest.param([end(1, how=Ended.ABANDONED)], id="abandoned"),
        pytest.param([end(1, how=Ended.NOT_LAUNCHED)], id="not launched"),
        pytest.param([], id="nothing yet"),
    ],
)
def test_6_11_a_recorded_stop_decides(ends: list[ExecutionEnd], code: str, event: RunEvent) -> None:
    stop = {"code": code, "actor": "operator"}
    assert follow(RETRIED, *ends, stop=stop, max_steps=1) == Conclude(event, stop)


def test_6_11_a_step_timeout_fails_the_step_and_is_retried() -> None:
    stop = {"code": "timeout", "limit_s": 5.0}
    late = end(1, stop=stop)
    assert shown(follow(ONE, late)) == "failed timeout"
    assert shown(follow(RETRIED, late)) == "mark 0 later"
    assert not is_interrupt(end(1, status=75, interrupt=QUESTION, stop=stop))


def test_a_reason_names_step_and_execution() -> None:
    reason = failure_of(end(4, 1, status=3), "second")
    assert reason == {"code": "exit", "step": "second", "k": 4, "exit_status": 3}
    assert failure_of(end(1, how=Ended.REFUSED, errno=2, what="program"), "s") == {
        "code": "launch-failed", "step": "s", "k": 1, "errno": 2, "what": "program",
    }  # fmt: skip
    assert failure_of(end(1), "s") is None


def test_executions_out_of_order_are_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="ascend"):
        follow(TWO, end(2), end(1, 1))


@pytest.mark.parametrize("steps", [ONE, TWO, RETRIED])
@pytest.mark.parametrize("most", [None, 1, 2])
def test_6_6_whether_the_first_execution_is_the_last_is_what_is_decided(steps: tuple[Step, ...], most: int | None) -> None:
    following = follow(steps, end(1), max_steps=most)
    assert is_done_by_first(steps) == (isinstance(following, Conclude) and following.event is RunEvent.COMPLETED)
