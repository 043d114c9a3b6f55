"""What the executor promises a driver, over a made-up Slurm: at most once, and nothing made up (contract 6.2, 6.9 to 6.11)."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.slurm_stage import STORE, Stage
from tests.support.waiting import wait_for
from wfctl.core.model import SlurmNeeds
from wfctl.keeper.protocol import Ended, Holding, NotLaunched, Refused, RefusedAt, Started
from wfctl.keeper.records import read_record, record_path

SLEEP = ("/bin/sleep", "60")


def place(stage: Stage, run: str = "run-000001", k: int = 1) -> Path:
    return stage.shared / STORE / run / str(k)


def begun(stage: Stage, *argv: str, needs: SlurmNeeds | None = None):  # type: ignore[no-untyped-def]
    """Return an executor with run-000001 at work, and the process of its job."""
    executor = stage.executor()
    executor.launch([stage.request("run-000001", 1, *(argv or SLEEP), needs=needs)])
    stage.submitted()
    process = stage.fake.start("run-000001-1")
    assert isinstance(stage.until(executor)[0], Started)
    return executor, process


# The job ------------------------------------------------------------------------------------------------------------------


def test_a_job_is_named_by_its_execution_and_carries_what_the_promises_rest_on(stage: Stage) -> None:
    executor = stage.executor()
    needs = SlurmNeeds(partition="p", account="a", cpus=2, memory="4G", time_limit=timedelta(seconds=90), nodes="2",
                       options=("--qos=high",))  # fmt: skip
    executor.launch([stage.request(needs=needs)])
    options = stage.submitted()["options"]
    assert options["job-name"] == f"wfctl-{STORE}-run-000001-1"
    assert {"no-requeue", "parsable"} <= set(options)
    wanted = {"export": "NONE", "partition": "p", "account": "a", "cpus-per-task": "2", "mem": "4G", "time": "2", "nodes": "2"}
    assert {name: options[name] for name in (*wanted, "qos")} == {**wanted, "qos": "high"}


def test_it_runs_with_its_environment_alone_in_its_directory_and_its_end_is_told_and_recorded(stage: Stage) -> None:
    executor = stage.executor()
    text = 'env | sort; pwd; umask; echo "{}" > "$WFCTL_OUTPUT"; cat "$WFCTL_INPUT"; echo problem >&2; exit 3'
    executor.launch([stage.request("run-000001", 1, "/bin/sh", "-c", text)])
    stage.submitted()
    assert stage.fake.run("run-000001-1") == 3
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (ended.exit_status, ended.signal, ended.cause) == (3, None, None)
    own = stage.runs / "run-000001"
    record = read_record(record_path(own / "1"))
    assert record is not None
    assert record.outcome == ended
    mirror = place(stage).parent
    printed = (own / "stdout.log").read_text().splitlines()
    assert f"WFCTL_OUTPUT={mirror}/1/output" in printed
    assert "MINE=1" in printed
    assert "SLURM_JOB_ID=" in "".join(printed)
    assert not [line for line in printed if line.startswith(("SLURM_EXPORT_ENV", "HOME="))]
    assert printed[-3:] == [f"{mirror}/work", "0022", "{}"]
    assert (own / "stderr.log").read_text() == "problem\n"
    assert (own / "1/output").read_text() == "{}\n"
    word = json.loads((place(stage) / "slurm").read_text())
    assert (word["state"], word["exit"], word["node"]) == ("FAILED", "3:0", "n1")


def test_values_of_environment_files_stay_on_the_folder_no_longer_than_needed(stage: Stage) -> None:  # contract 3.9
    executor, process = begun(stage)
    assert not (place(stage) / "request").exists()
    executor.stop("run-000001", 1, timedelta(0))
    process.wait(10)


def test_pinned_files_and_the_checkpoint_are_there_and_what_is_left_comes_home(stage: Stage) -> None:  # contract 3.8, 6.4
    executor = stage.executor()
    text = './report.sh > "$WFCTL_CHECKPOINT.new"; cat "$WFCTL_CHECKPOINT" >> "$WFCTL_CHECKPOINT.new"'
    text += '; mv "$WFCTL_CHECKPOINT.new" "$WFCTL_CHECKPOINT"'
    request = stage.request("run-000001", 2, "/bin/sh", "-c", text)
    own = stage.runs / "run-000001"
    script = own / "files/report.sh"
    script.write_text("#!/bin/sh\necho pinned\n")
    script.chmod(0o500)
    (own / "2/checkpoint").write_text("before\n")
    executor.launch([request])
    stage.submitted("run-000001-2")
    assert stage.fake.run("run-000001-2") == 0
    stage.until(executor)
    assert (own / "2/checkpoint").read_text() == "pinned\nbefore\n"


def test_a_program_that_is_not_there_is_refused_with_its_errno_and_the_node(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request("run-000001", 1, "/nowhere/at/all")])
    stage.submitted()
    stage.fake.run("run-000001-1")
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert (refused.errno, refused.what, refused.message) == (2, RefusedAt.PROGRAM, "on node n1")


def test_a_program_that_a_signal_ended_says_which(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request("run-000001", 1, "/bin/sh", "-c", "kill -SEGV $$")])
    stage.submitted()
    stage.fake.run("run-000001-1")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (ended.exit_status, ended.signal, ended.cause) == (None, 11, None)


# At most once -------------------------------------------------------------------------------------------------------------


def test_6_2_a_second_job_of_an_execution_runs_nothing(stage: Stage, tmp_path: Path) -> None:
    executor = stage.executor()
    side = tmp_path / "side"
    executor.launch([stage.request("run-000001", 1, "/bin/sh", "-c", f"echo x >> {side}")])
    stage.submitted()
    stage.fake.run("run-000001-1")
    assert stage.fake.run("run-000001-1") == 0  # as after a requeue by hand
    assert "claimed before" in (place(stage) / "slurm.log").read_text()
    assert side.read_text() == "x\n"
    stage.until(executor)


def test_6_2_the_same_execution_is_submitted_once(stage: Stage) -> None:
    executor = stage.executor()
    request = stage.request()
    executor.launch([request, request])
    executor.launch([request])
    stage.submitted()
    executor.launch([request])
    stage.fake.run("run-000001-1")
    stage.until(executor)
    executor.launch([request])
    assert len(stage.fake.jobs()) == 1


def test_6_10_what_was_forbidden_before_its_job_began_never_runs(stage: Stage, tmp_path: Path) -> None:
    first = stage.executor()
    side = tmp_path / "side"
    first.launch([stage.request("run-000001", 1, "/bin/sh", "-c", f"echo x >> {side}")])
    job = stage.submitted()
    stage.fake.forget("run-000001-1")  # as though its submission were still on its way
    second = stage.executor()
    assert second.forbid("run-000001", 1).state is Holding.FORBIDDEN
    with stage.fake.state() as state:
        state["jobs"].append(job)
    assert stage.fake.run("run-000001-1") == 0
    assert not side.exists()


def test_7_1_a_job_that_waits_in_the_queue_is_adopted_and_keeps_its_place(stage: Stage) -> None:
    stage.executor().launch([stage.request()])
    stage.submitted()
    second = stage.executor()
    assert second.forbid("run-000001", 1).state is Holding.RUNNING
    assert second.waiting() == {"run-000001": "PENDING, Priority"}
    stage.fake.run("run-000001-1")
    ended = stage.over(second)
    assert isinstance(ended, Ended)
    assert ended.exit_status == 0
    assert len(stage.fake.jobs()) == 1


def test_7_1_a_job_at_work_is_adopted_with_its_start(stage: Stage) -> None:
    _, process = begun(stage)
    second = stage.executor()
    standing = second.forbid("run-000001", 1)
    assert standing.state is Holding.RUNNING
    assert standing.started is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def test_7_1_an_end_that_nobody_was_told_of_is_told_to_the_next_driver(stage: Stage) -> None:
    stage.executor().launch([stage.request("run-000001", 1, "/bin/sh", "-c", "exit 4")])
    stage.submitted()
    stage.executors[0].close()
    stage.fake.run("run-000001-1")
    standing = stage.executor().forbid("run-000001", 1)
    assert standing.state is Holding.ENDED
    assert standing.ended is not None
    assert standing.ended.exit_status == 4


def test_7_1_a_cause_that_was_written_and_not_told_is_told_again(stage: Stage) -> None:
    executor, process = begun(stage)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    stage.fake.end("run-000001-1", "TIMEOUT", 9, "TimeLimit")
    told = stage.over(executor)
    stage.fake.forget("run-000001-1")
    assert stage.executor().forbid("run-000001", 1).ended == told


# Errors of the commands ---------------------------------------------------------------------------------------------------


def test_a_submission_that_slurm_refuses_says_why_in_its_words(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request("run-000001")])
    stage.submitted("run-000001-1")
    stage.fake.mode(sbatch="Batch job submission failed: Invalid account or account/partition combination specified")
    executor.launch([stage.request("run-000002")])
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert refused.what is RefusedAt.SUBMISSION
    assert refused.message is not None
    assert "Invalid account" in refused.message
    assert executor.problems == {}


def test_a_submission_without_an_answer_is_looked_for_by_its_name(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request("run-000001")])
    stage.submitted("run-000001-1")
    stage.fake.mode(sbatch="late")
    executor.launch([stage.request("run-000002")])
    stage.submitted("run-000002-1")
    stage.fake.run("run-000002-1")
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert [job["name"][-12:] for job in stage.fake.jobs()] == ["run-000001-1", "run-000002-1"]


def test_6_10_a_submission_that_never_arrived_is_proved_and_told(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request("run-000001")])
    stage.submitted("run-000001-1")
    stage.fake.mode(sbatch="Unable to contact slurm controller (connect failure)")
    executor.launch([stage.request("run-000002")])
    assert isinstance(stage.over(executor), NotLaunched)
    assert (place(stage, "run-000002") / "claim").exists()


def test_controller_away_runs_stay_as_they_are_and_go_on_when_it_is_back(stage: Stage) -> None:
    executor, process = begun(stage)
    stage.fake.down()
    executor.launch([stage.request("run-000002")])
    stage.quiet(executor, lambda: "slurm" in executor.problems, "the problem")
    assert "does not answer" in executor.problems["slurm"]
    looks = executor.watcher.looks
    stage.quiet(executor, lambda: executor.watcher.looks > looks + 3, "more looks")
    assert {standing.state for standing in executor.list()} == {Holding.RUNNING}
    stage.fake.up()
    assert isinstance(stage.over(executor), NotLaunched)  # the driver knows whether it is too late
    assert executor.problems == {}
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def test_a_stop_reaches_the_program_while_the_controller_is_away(stage: Stage) -> None:  # contract 6.11
    _, process = begun(stage)
    stage.fake.down()
    stage.executors[0].stop("run-000001", 1, timedelta(seconds=5))
    assert process.wait(10) == 128 + 15
    end = json.loads((place(stage) / "end").read_text())
    assert (end["signal"], end["was_stopped"]) == (15, True)


@pytest.mark.parametrize("mode", ["down", "late"])
def test_a_stop_without_an_answer_is_asked_for_again(stage: Stage, mode: str) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    stage.fake.mode(scancel=mode)
    executor.stop("run-000001", 1, timedelta(0))
    assert isinstance(stage.over(executor), NotLaunched)
    stage.fake.up()
    wait_for(lambda: stage.fake.job("run-000001-1")["state"] == "CANCELLED", "the cancelled job")


# Stops --------------------------------------------------------------------------------------------------------------------


def test_6_11_a_stop_is_term_first_then_kill_and_the_group_is_gone(stage: Stage, tmp_path: Path) -> None:
    side = tmp_path / "side"
    text = f"trap 'echo TERM >> {side}' TERM; sleep 300 & echo ready >> {side}; while :; do wait; done"
    executor, process = begun(stage, "/bin/sh", "-c", text)
    wait_for(side.exists, "the program")
    executor.stop("run-000001", 1, timedelta(seconds=0.3))
    assert process.wait(20) == 128 + 9
    stage.fake.end("run-000001-1", "FAILED", 9)
    ended = stage.over(executor)
    assert isinstance(ended, Ended)
    assert (ended.signal, ended.left_behind, ended.cause) == (9, 0, None)
    assert side.read_text().split() == ["ready", "TERM"]


def test_6_10_a_job_that_is_stopped_in_the_queue_is_cancelled_seen_gone_and_never_ran(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    stage.submitted()
    executor.stop("run-000001", 1, timedelta(seconds=10))
    assert isinstance(stage.over(executor), NotLaunched)
    assert stage.fake.job("run-000001-1")["state"] == "CANCELLED"


def test_a_stop_before_the_submission_submits_nothing(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])  # waits for a node to see the folder
    wait_for(lambda: stage.fake.jobs(probes=True), "the small job")
    executor.stop("run-000001", 1, timedelta(0))
    assert isinstance(stage.over(executor), NotLaunched)
    assert stage.fake.jobs() == []


def test_what_does_not_end_by_itself_is_left_to_slurm(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wfctl.slurm.tasks._PATIENT_S", 0.1)
    executor, process = begun(stage)
    process.send_signal(signal.SIGSTOP)  # its script is stuck
    executor.stop("run-000001", 1, timedelta(0))
    wait_for(lambda: stage.fake.job("run-000001-1")["state"] == "CANCELLED", "the cancelled job")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    assert isinstance(stage.over(executor), Ended)


# The folder ---------------------------------------------------------------------------------------------------------------


def test_a_folder_that_no_node_sees_is_told_before_the_first_launch(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    wait_for(lambda: stage.fake.jobs(probes=True), "the small job")
    stage.fake.change("", state="FAILED", code=127 << 8, nodes="n7")
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert refused.message is not None
    assert f"node n7 does not see {stage.shared}" in refused.message
    assert "slurm-nodes" in executor.problems
    assert stage.fake.jobs() == []


def test_what_a_node_saw_is_remembered_by_the_next_executor(stage: Stage) -> None:
    stage.executor().launch([stage.request("run-000001")])
    stage.submitted("run-000001-1")
    stage.executor().launch([stage.request("run-000002")])
    wait_for(lambda: len(stage.fake.jobs()) == 2, "the second job")
    assert len(stage.fake.jobs(probes=True)) == 3


def test_a_shared_folder_that_is_not_there_is_a_problem_and_refuses(stage: Stage) -> None:
    executor = stage.executor(shared=stage.shared / "missing")
    executor.launch([stage.request()])
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert refused.message is not None
    assert "missing" in refused.message
    assert "slurm-folder" in executor.problems


def test_a_job_that_never_reached_the_program_is_refused_with_what_slurm_says(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request()])
    job = stage.submitted()
    Path(job["output"]).write_text("slurmstepd: error: execve(): bad interpreter\n")
    stage.fake.change("run-000001-1", state="FAILED", code=2 << 8, nodes="n2")
    refused = stage.over(executor)
    assert isinstance(refused, Refused)
    assert refused.what is RefusedAt.NODE
    assert refused.message is not None
    assert "on n2" in refused.message
    assert "bad interpreter" in refused.message


def test_what_is_printed_is_carried_home_while_it_runs(stage: Stage) -> None:
    _, process = begun(stage, "/bin/sh", "-c", "echo early; sleep 60")
    log = stage.runs / "run-000001/stdout.log"
    wait_for(lambda: log.exists() and log.read_text() == "early\n", "the line")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
