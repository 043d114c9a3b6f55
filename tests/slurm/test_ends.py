"""Ends that a cluster makes, over a made-up Slurm: what is told, and that nobody is taken for dead too soon (6.8, 6.9)."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.slurm_stage import STORE, Stage
from tests.support.waiting import wait_for
from wfctl.keeper.protocol import Ended, Holding, NotLaunched, Refused, RefusedAt, Started
from wfctl.slurm import tasks
from wfctl.slurm.executor import SlurmExecutor

NAME = "run-000001-1"


def begun(stage: Stage, *argv: str) -> tuple[SlurmExecutor, subprocess.Popen[bytes]]:
    """Return an executor with run-000001 at work, and the process of its job."""
    executor = stage.executor()
    executor.launch([stage.request("run-000001", 1, *(argv or ("/bin/sleep", "60")))])
    stage.submitted()
    process = stage.fake.start(NAME)
    assert isinstance(stage.until(executor)[0], Started)
    return executor, process


def code(report: Ended | Refused | NotLaunched) -> str | None:
    assert not isinstance(report, NotLaunched)
    return None if report.cause is None else report.cause["code"]


def test_a_node_that_is_given_up_and_lives_is_asked_to_end_its_program_first(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SILENCE_S", 15.0)
    beat = tmp_path / "beat"
    executor, process = begun(stage, "/bin/sh", "-c", f"while :; do echo >> {beat}; sleep 0.05; done")
    stage.fake.end(NAME, "NODE_FAIL", 0, "NodeDown")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (code(ended), ended.signal) == ("node-failed", 15)
    size = beat.stat().st_size
    assert process.wait(5) == 128 + 15
    assert beat.stat().st_size == size, "it lived on"


def test_a_node_that_is_silent_is_taken_for_dead_after_a_while(stage: Stage) -> None:
    executor, process = begun(stage)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    stage.fake.end(NAME, "NODE_FAIL", 0, "NodeDown")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (code(ended), ended.exit_status, ended.signal) == ("node-failed", None, None)


def test_what_the_controller_forgot_is_not_over_while_its_program_lives(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SILENCE_S", 15.0)
    executor, process = begun(stage)
    stage.fake.forget(NAME)
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert ended.cause is not None
    assert (ended.cause["code"], ended.cause["forgotten"]) == ("outcome-unknown", True)
    assert process.wait(5) == 128 + 15, "it was ended before it was told"


def test_what_the_controller_forgot_and_is_on_record_is_taken_from_there(stage: Stage) -> None:
    stage.executor().launch([stage.request("run-000001", 1, "/bin/sh", "-c", "exit 5")])
    stage.submitted()
    stage.executors[0].close()
    stage.fake.run(NAME)
    stage.fake.forget(NAME)
    standing = stage.executor().forbid("run-000001", 1)
    assert standing.ended is not None
    assert (standing.ended.exit_status, standing.ended.cause) == (5, None)


def test_memory_that_ran_out_is_told_whatever_the_program_made_of_it(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    assert stage.fake.start(NAME).wait(10) == 0
    stage.fake.end(NAME, "OUT_OF_MEMORY", 0, "OutOfMemory")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (code(ended), ended.exit_status) == ("out-of-memory", 0)


def test_a_time_limit_is_told_with_how_the_program_took_it(stage: Stage) -> None:
    executor, process = begun(stage, "/bin/sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done")
    os.killpg(process.pid, signal.SIGTERM)  # as Slurm does: to the whole group
    assert process.wait(10) == 7
    stage.fake.end(NAME, "TIMEOUT", 0, "TimeLimit")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert ended.cause is not None
    assert (ended.cause["code"], ended.cause["exit_status"]) == ("time-limit", 7)


def test_an_end_that_slurm_is_late_to_tell_of_is_taken_from_its_record(stage: Stage) -> None:
    executor, process = begun(stage, "/bin/sh", "-c", "exit 2")
    process.wait(10)
    ended = stage.over(executor)  # to Slurm it runs
    assert isinstance(ended, Ended)
    assert ended.exit_status == 2


def test_who_cancelled_it_is_asked_of_the_accounts(stage: Stage) -> None:
    executor, process = begun(stage)
    with stage.fake.state() as state:
        state["accounts"] = {NAME: ["CANCELLED by 1007", "0:15"]}
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(10)
    stage.fake.end(NAME, "CANCELLED")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert ended.cause is not None
    assert (ended.cause["code"], ended.cause["uid"]) == ("cancelled-outside", "1007")


def test_a_job_that_was_cancelled_in_the_queue_by_somebody_else_is_not_tried_again(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    stage.fake.end(NAME, "CANCELLED")
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert code(refused) == "cancelled-outside"


@pytest.mark.parametrize("said", [{"restarts": 1, "reason": "BeginTime"}, {"state": "REQUEUE_HOLD"}])
def test_6_10_what_slurm_puts_back_into_its_queue_unbegun_is_left_to_the_driver(stage: Stage, said: dict[str, object]) -> None:
    """A controller does so where it could not reach the node for the launch, whatever `--no-requeue` says."""
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    stage.fake.change(NAME, **said)
    assert isinstance(stage.over(executor), NotLaunched)
    assert stage.fake.job(NAME)["state"] == "CANCELLED"
    assert stage.fake.run(NAME) == 0, "it is fenced"
    assert "claimed before" in (stage.shared / STORE / "run-000001/1/slurm.log").read_text()


def test_what_somebody_puts_back_into_the_queue_was_ended_from_outside(stage: Stage) -> None:
    executor, process = begun(stage)
    os.killpg(process.pid, signal.SIGTERM)  # as Slurm does
    process.wait(10)
    stage.fake.change(NAME, state="PENDING", restarts=1, nodes="", reason="BeginTime")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (code(ended), ended.signal) == ("cancelled-outside", 15)
    assert stage.fake.job(NAME)["state"] == "CANCELLED", "it does not wait there for nothing"


def test_what_is_put_back_and_lives_is_ended_before_it_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SILENCE_S", 15.0)
    executor, process = begun(stage)
    stage.fake.change(NAME, state="PENDING", restarts=1, nodes="", reason="BeginTime", pid=0)
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert code(ended) == "outcome-unknown"
    assert process.poll() is not None or process.wait(1) == 128 + 15


def test_6_2_a_claim_that_a_crash_left_empty_keeps_the_program_from_running_and_frees_nothing_early(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    (stage.shared / STORE / "run-000001/1/claim").touch()
    assert stage.fake.run(NAME) == 0, "its job finds the claim and ends"
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert code(ended) == "outcome-unknown"


def test_7_3_a_record_of_another_execution_is_stale(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    place = stage.shared / STORE / "run-000001/1"
    (place / "end").write_text('{"run": "run-000009", "k": 1, "kind": "ended"}\n')
    stage.fake.end(NAME, "COMPLETED")
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert refused.what is RefusedAt.NODE


def test_a_second_stop_can_only_bring_the_kill_forward(stage: Stage) -> None:
    executor, process = begun(stage, "/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    executor.stop("run-000001", 1, timedelta(seconds=60))
    wait_for(lambda: (stage.shared / STORE / "run-000001/1/stop").read_text(), "the stop")
    executor.stop("run-000001", 1, timedelta(seconds=90))
    executor.stop("run-000001", 1, timedelta(0))
    assert process.wait(15) == 128 + 9


def test_no_other_process_of_a_driver_is_needed_to_stop_a_run(stage: Stage) -> None:
    _, process = begun(stage)
    stage.executor().stop_now("run-000001", 1, timedelta(seconds=5))
    assert process.wait(15) == 128 + 15


@pytest.mark.parametrize("where", ["folder", "home"])
def test_a_folder_that_cannot_be_used_for_a_while_loses_no_end(stage: Stage, where: str) -> None:
    executor, process = begun(stage, "/bin/sh", "-c", "sleep 0.3; exit 3")
    process.wait(10)
    place = stage.shared / STORE if where == "folder" else stage.runs
    aside = place.with_name("aside")
    place.rename(aside)
    stage.fake.end(NAME, "FAILED", 3 << 8)
    if where == "folder":
        looks = executor.watcher.looks
        stage.quiet(executor, lambda: executor.watcher.looks > looks + 5, "some looks")
        assert executor.forbid("run-000001", 1).state is Holding.RUNNING
    if not place.exists():
        aside.rename(place)
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert ended.exit_status == 3


def test_6_2_an_empty_directory_where_the_folder_is_mounted_is_never_taken_for_it(stage: Stage) -> None:
    executor, process = begun(stage)
    stage.shared.rename(stage.shared.with_name("mounted"))
    stage.shared.mkdir()
    stage.fake.forget(NAME)
    second = stage.executor()
    assert second.forbid("run-000001", 1).state is Holding.RUNNING, "of an execution at work nothing is concluded"
    second.launch([stage.request("run-000002")])
    refused = stage.over(second)
    assert isinstance(refused, Refused)
    assert refused.message is not None
    assert "mounted" in refused.message
    assert list(stage.shared.iterdir()) == []
    executor.close()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
