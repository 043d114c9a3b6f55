"""What a cluster is asked: one question for all jobs, and no more submissions at once than allowed (contract 3.0)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from threading import Lock

from tests.support.slurm_stage import Stage
from tests.support.waiting import wait_for
from wfctl.keeper.protocol import Ended

RUNS = [f"run-{number:06}" for number in range(1, 9)]


def test_all_jobs_of_a_store_are_asked_for_in_one_question(stage: Stage) -> None:
    executor = stage.executor(poll_interval_s=0.05)
    executor.launch([stage.request(run) for run in RUNS])
    stage.quiet(executor, lambda: stage.fake.run_probes() or len(stage.fake.jobs()) == len(RUNS), "the jobs")
    for run in RUNS:
        stage.fake.change(f"{run}-1", state="RUNNING", nodes="n1")
    looks, asked = executor.watcher.looks, len(stage.fake.asked("squeue"))
    wait_for(lambda: executor.watcher.looks >= looks + 5, "some looks")
    questions = stage.fake.asked("squeue")[asked:]
    assert len(questions) <= executor.watcher.looks - looks + 1, "one a look, however many jobs there are"
    assert not [word for words in questions for word in words if word.startswith(("--name", "--job"))]
    assert len(stage.fake.asked("sbatch")) == len(RUNS) + 1, "with the small job that looks at the folder"
    assert [len(stage.fake.asked(command)) for command in ("scancel", "sinfo", "sacct")] == [0, 0, 0]


def test_a_store_without_jobs_asks_nothing(stage: Stage) -> None:
    executor = stage.executor(poll_interval_s=0.05)
    executor.launch([stage.request()])
    stage.submitted()
    stage.fake.run("run-000001-1")
    assert isinstance(stage.over(executor), Ended)
    looks = executor.watcher.looks
    until = time.monotonic() + 0.3
    wait_for(lambda: time.monotonic() > until, "a moment")
    assert executor.watcher.looks <= looks + 1


def test_the_accounts_are_asked_once_for_all_that_were_forgotten(stage: Stage) -> None:
    executor = stage.executor()
    executor.launch([stage.request(run, 1, "/bin/sleep", "60") for run in RUNS])
    stage.quiet(executor, lambda: stage.fake.run_probes() or len(stage.fake.jobs()) == len(RUNS), "the jobs")
    processes = [stage.fake.start(f"{run}-1") for run in RUNS]
    stage.until(executor, len(RUNS))
    with stage.fake.state() as state:
        state["accounts"] = {f"{run}-1": ["TIMEOUT", "0:15"] for run in RUNS}
        state["jobs"] = []
        for process in processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(10)
    ends = stage.until(executor, len(RUNS))
    assert {end.cause["code"] for end in ends if isinstance(end, Ended) and end.cause} == {"time-limit"}
    assert len(ends) == len(RUNS)
    assert len(stage.fake.asked("sacct")) == 1


def test_submissions_go_side_by_side_and_so_many_at_most(stage: Stage) -> None:
    executor = stage.executor()  # of three threads
    executor.launch([stage.request("run-000099")])
    stage.submitted("run-000099-1")  # a node has seen the folder
    lock, counts = Lock(), {"now": 0, "most": 0, "all": 0}

    def submit(arguments: Sequence[str]) -> str:
        with lock:
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
        time.sleep(0.05)
        with lock:
            counts["now"] -= 1
            counts["all"] += 1
        return "1"

    executor.slurm.submit = submit  # type: ignore[method-assign]
    executor.launch([stage.request(run) for run in RUNS])
    wait_for(lambda: counts["all"] == len(RUNS), "the submissions")
    assert counts["most"] == 3
