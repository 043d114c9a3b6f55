"""How a cluster's word and the job's own record are held against each other: each end its own reason (contract 6.9, 8.7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wfctl.keeper.protocol import Ended, NotLaunched, Refused, RefusedAt
from wfctl.slurm.commands import JobLine
from wfctl.slurm.ends import Evidence, outcome_from, outcome_of, told, word_of
from wfctl.slurm.folder import Claim, End

NOW = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)
JOBS = Claim(is_ours=False, job="7", node="n1", at_us=1_700_000_000_000_000, has_heard=False)
OURS = Claim(is_ours=True, job=None, node=None, at_us=None, has_heard=False)


def line(state: str, wait_status: int = 0, reason: str = "") -> JobLine:
    return JobLine(job="7", name="x", state=state, wait_status=wait_status, started=1, restarts=0, reason=reason, nodes="n1")


def ended(exit_status: int | None = 0, signal: int | None = None) -> Ended:
    return Ended(run="run-000001", k=1, pid=9, started_at=NOW - timedelta(minutes=1), ended_at=NOW, exit_status=exit_status,
                 signal=signal, cpu_us=5, max_rss_bytes=6, left_behind=0)  # fmt: skip


def record(
    exit_status: int | None = 0, signal: int | None = None, *heard: str, stopped: bool = False, given_up: bool = False
) -> End:
    was_stopped = stopped or given_up
    return End(outcome=ended(exit_status, signal), node="n1", heard=heard, was_stopped=was_stopped, was_given_up=given_up)


def outcome(**more: Any) -> Any:
    given: dict[str, Any] = {"run": "run-000001", "k": 1, "now": NOW, "line": None, "end": None, "claim": JOBS, **more}
    return outcome_of(Evidence(**given))


@pytest.mark.parametrize(
    ("state", "end"),
    [
        pytest.param("COMPLETED", record(0), id="it completed"),
        pytest.param("FAILED", record(3), id="it failed"),
        pytest.param("FAILED", record(None, 11), id="a signal ended it"),
        pytest.param("TIMEOUT", record(0), id="it ended by itself as its time ran out"),
        pytest.param("NODE_FAIL", record(0), id="its node failed after it had ended"),
        pytest.param("PREEMPTED", record(0), id="it was preempted after it had ended"),
        pytest.param("CANCELLED", record(None, 15, stopped=True), id="we had it stopped"),
        pytest.param("COMPLETED", record(0, None, "SIGTERM"), id="a signal from outside that Slurm makes nothing of"),
    ],
)
def test_the_record_stands_where_nobody_outside_ended_the_program(state: str, end: End) -> None:
    assert outcome(line=line(state), end=end) == end.outcome


def test_the_record_stands_where_the_controller_has_forgotten() -> None:
    assert outcome(line=None, end=record(4)) == ended(4)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("TIMEOUT", "time-limit"),
        ("DEADLINE", "time-limit"),
        ("OUT_OF_MEMORY", "out-of-memory"),
        ("PREEMPTED", "preempted"),
        ("NODE_FAIL", "node-failed"),
        ("BOOT_FAIL", "node-failed"),
        ("CANCELLED", "cancelled-outside"),
        ("REVOKED", "cancelled-outside"),
    ],
)
class TestEachEndHasItsOwnReason:
    def test_where_the_program_heard_of_it_and_ended(self, state: str, code: str) -> None:
        found = outcome(line=line(state), end=record(0, None, "SIGTERM"))
        assert found.exit_status == 0
        assert (found.cause["code"], found.cause["node"], found.cause["job"]) == (code, "n1", "7")
        assert found.cause["exit_status"] == 0

    def test_where_it_was_killed_and_its_node_is_silent(self, state: str, code: str) -> None:
        assert outcome(line=line(state, 9)) is None, "it may yet be at work"
        found = outcome(line=line(state, 9), is_dead=True)
        assert (found.exit_status, found.signal, found.cause["code"]) == (None, 9, code)

    def test_where_it_never_began(self, state: str, code: str) -> None:
        found = outcome(line=replace(line(state), nodes=""), claim=OURS)
        assert isinstance(found, Refused)
        assert found.cause is not None
        assert (found.cause["code"], found.cause["effects"]) == (code, "its program was not started")


def test_memory_that_ran_out_is_told_though_the_program_went_on_without_it() -> None:
    found = outcome(line=line("OUT_OF_MEMORY"), end=record(0))
    assert found.cause["code"] == "out-of-memory"


def test_who_cancelled_it_is_told_where_there_are_accounts() -> None:
    found = outcome(line=line("CANCELLED"), end=record(0, None, "SIGTERM"), accounted=("CANCELLED by 1007", "0:0"))
    assert found.cause["uid"] == "1007"


def test_what_the_controller_has_forgotten_is_asked_of_the_accounts() -> None:
    found = outcome(line=None, is_dead=True, accounted=("TIMEOUT", "0:9"))
    assert (found.cause["code"], found.cause["forgotten"]) == ("time-limit", True)


def test_without_record_and_without_a_word_nobody_knows() -> None:
    found = outcome(line=None, is_dead=True)
    assert (found.cause["code"], found.cause["forgotten"]) == ("outcome-unknown", True)
    assert outcome(line=line("FAILED", 9), is_dead=True).cause["code"] == "outcome-unknown"


def test_what_was_ended_because_slurm_had_given_it_up_says_so() -> None:
    assert outcome(line=line("NODE_FAIL"), end=record(None, 15, given_up=True)).cause["code"] == "node-failed"
    assert outcome(line=None, end=record(None, 15, given_up=True)).cause["code"] == "outcome-unknown"


def test_6_10_what_never_began_and_is_fenced_was_never_launched() -> None:
    assert isinstance(outcome(line=None, claim=OURS), NotLaunched)
    assert isinstance(outcome(line=line("CANCELLED"), claim=OURS, is_asked=True), NotLaunched)


def test_a_job_that_never_reached_the_program_is_refused_with_what_slurm_says() -> None:
    found = outcome(line=line("FAILED", 2 << 8, "NonZeroExitCode"), claim=OURS, said="first\nbad interpreter")
    assert isinstance(found, Refused)
    assert found.what is RefusedAt.NODE
    assert found.message == (
        "job 7 ended on n1 before it reached the program: Slurm says FAILED, exit 2:0, NonZeroExitCode; bad interpreter"
    )


def test_a_job_that_its_node_could_not_launch_is_refused_and_not_taken_for_somebodys_cancel() -> None:
    found = outcome(line=line("CANCELLED"), claim=OURS)
    assert (found.what, found.cause) == (RefusedAt.NODE, None)
    assert "Slurm says CANCELLED" in found.message


def test_a_refusal_on_the_node_is_told_with_the_node() -> None:
    refused = Refused(run="run-000001", k=1, errno=2, what=RefusedAt.PROGRAM, at=NOW)
    found = outcome(line=line("FAILED"), end=End(outcome=refused, node="n1", heard=(), was_stopped=False))
    assert (found.errno, found.what, found.message) == (2, RefusedAt.PROGRAM, "on node n1")


@pytest.mark.parametrize(
    "found",
    [
        outcome(line=line("TIMEOUT", 9), is_dead=True),
        outcome(line=line("COMPLETED"), end=record(0)),
        outcome(line=line("FAILED", 512), claim=OURS),
        outcome(line=line("NODE_FAIL"), claim=OURS),
        outcome(line=None, claim=OURS),
    ],
    ids=lambda found: f"{type(found).__name__} {getattr(found, 'cause', None)}"[:40],
)
def test_what_is_written_down_reads_back_as_it_was(found: Any) -> None:
    assert outcome_from(told(found)) == found


def test_what_cannot_be_read_back_is_none() -> None:
    assert outcome_from({"op": "ended"}) is None
    assert outcome_from(None) is None


def test_the_word_beside_the_record_is_slurms() -> None:
    word = word_of(Evidence(run="r", k=1, now=NOW, line=line("FAILED", 3 << 8), end=None, claim=JOBS))
    assert word == {
        "run": "r",
        "k": 1,
        "job": "7",
        "node": "n1",
        "state": "FAILED",
        "exit": "3:0",
        "reason": None,
        "restarts": 0,
    }
