"""How runs end under a supervisor: exits, signals, limits, retries, what they leave behind (contract 6.4 to 6.11)."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.place import FINAL, Place, eventually, is_alive
from tests.support.processes import wait_for
from wfctl.linux import process_stat

OURS = {
    "RUN_ID", "SCHEDULE_ID", "OCCURRENCE", "REVISION", "ATTEMPT", "STEP", "EXECUTION", "STORE", "INPUT", "FILES", "OUTPUT",
    "CHECKPOINT", "INTERRUPT",
}  # fmt: skip


def test_fr_06_a_finished_job_never_counts(tmp_path: Path) -> None:
    """Exit 0, SIGKILL by itself, its limit exceeded, a sleeper left behind: no slot stays taken, no zombie stays."""
    with Place(tmp_path) as place:
        place.job("exit 0", "fine")
        place.job("kill -9 $$", "suicide")
        place.job("sleep 60", "slow")
        place.job("sleep 60 >/dev/null 2>&1 & echo $! >$NOTES/sleeper.pid", "leaves")
        for name in ("fine", "suicide", "slow", "leaves"):
            place.once(name, name, in_s=0.4, overlap="parallel", max_active_runs=2, max_run="400ms" if name == "slow" else None)
        supervisor = place.supervisor("--max-concurrent-runs", "4")
        runs = {run.schedule_id: place.until(run.run_id, *FINAL) for run in [place.run(index) for index in range(4)]}
        assert (runs["fine"].status, runs["fine"].exit_status) == ("completed", 0)
        assert (runs["suicide"].status, runs["suicide"].signal) == ("failed", signal.SIGKILL)
        assert (runs["slow"].status, runs["slow"].signal) == ("failed", signal.SIGTERM)
        assert runs["slow"].reason is not None
        assert (runs["slow"].reason["code"], runs["slow"].reason["limit_s"]) == ("deadline", 0.4)
        assert "wfctl schedule set slow max_run=" in str(runs["slow"].reason), "how to change the limit"
        assert (runs["leaves"].status, runs["leaves"].trace[0].left_behind) == ("completed", 1)
        assert is_alive(place.pid("sleeper.pid")), "what a step leaves behind is left alone"
        assert place.store.server_status().slots_used == 0
        parents = (supervisor.process.pid, place.keeper())
        eventually(lambda: not _zombies_of(parents), "no zombie")


def test_6_8_a_slot_is_only_free_once_the_group_is_gone(tmp_path: Path) -> None:
    """A child of the job ignores SIGTERM and outlives the job itself: the next run waits for SIGKILL."""
    with Place(tmp_path) as place:
        place.job(
            "[ -e $NOTES/second ] && exit 0; touch $NOTES/second;"
            " sh -c 'trap \"\" TERM; echo $$ >$NOTES/child.pid; while :; do sleep 0.05; done' & echo $$ >$NOTES/pid; wait",
            kill_grace="700ms",
        )
        place.every_second(overlap="queue", max_run="300ms")
        place.supervisor()
        pid, child = place.pid("pid"), place.pid("child.pid")
        wait_for(lambda: not is_alive(pid), what="the end of the job")
        if is_alive(child):
            assert place.store.list_runs().items[0].status == "running"
        ended = place.until("run-000001", "failed")
        assert not is_alive(child), "the slot was freed over a living process"
        assert ended.reason is not None
        assert ended.reason["code"] == "deadline"
        assert place.until(place.run(1).run_id, "completed").status == "completed"


def test_6_8_overdue_at_four_fifths(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("while [ ! -e $NOTES/go ]; do sleep 0.02; done")
        place.once(max_run="2s")
        supervisor = place.supervisor()
        run = place.until(place.run().run_id, "running")
        assert not run.overdue
        wait_for(lambda: place.store.inspect_run(run_id=run.run_id).overdue, what="overdue")
        assert place.store.inspect_run(run_id=run.run_id).status == "running"
        assert "overdue" in supervisor.text()
        (place.notes / "go").touch()
        assert place.until(run.run_id, *FINAL).status == "completed"


def test_3_a_step_timeout_and_retries_with_their_delay(tmp_path: Path) -> None:
    """The delay doubles; the slot stays held; every execution is in the trace."""
    with Place(tmp_path) as place:
        place.store.create_deployment(
            deployment_id="d",
            steps=[
                {"name": "slow", "command": ["sleep", "60"], "timeout": "200ms", "retries": 1, "retry_delay": "100ms"},
                {"name": "never", "command": ["true"]},
            ],
        )
        place.store.create_deployment(
            deployment_id="third",
            command=["/bin/sh", "-c", f"echo x >>{place.notes}/n; [ $(wc -l <{place.notes}/n) = 3 ]"],
            retries=2,
            retry_delay="200ms",
        )
        place.once("s")
        place.once("t", "third")
        place.supervisor()
        runs = {run.schedule_id: place.until(run.run_id, *FINAL) for run in [place.run(index) for index in range(2)]}
        slow, third = runs["s"], runs["t"]
        assert slow.status == "failed"
        assert slow.reason is not None
        assert (slow.reason["code"], slow.reason["limit_s"], slow.reason["k"]) == ("timeout", 0.2, 2)
        assert [each.step for each in slow.trace] == ["slow", "slow"]
        assert third.status == "completed"
        assert [each.exit_status for each in third.trace] == [1, 1, 0]
        for earlier, later, delay_s in zip(third.trace, third.trace[1:], (0.2, 0.4), strict=False):
            assert later.started_at is not None
            assert earlier.ended_at is not None
            assert later.started_at - earlier.ended_at >= timedelta(seconds=delay_s)


def test_fr_09_much_output_never_stops_a_job(tmp_path: Path) -> None:
    """(a) 1 MiB to each stream, alternating; (c) a sleeper keeps the output open."""
    chatty = "import os\nfor i in range(256):\n os.write(1, b'o' * 4096)\n os.write(2, b'e' * 4096)\nraise SystemExit(3)"
    with Place(tmp_path) as place:
        place.store.create_deployment(deployment_id="d", command=[sys.executable, "-S", "-c", chatty])
        place.job("sleep 60 & echo $! >$NOTES/sleeper.pid; echo said", "leaves")
        place.once("a")
        place.once("c", "leaves")
        place.supervisor()
        runs = {
            run.schedule_id: place.until(run.run_id, *FINAL, timeout_s=5) for run in [place.run(index) for index in range(2)]
        }
        assert runs["a"].exit_status == 3
        out, err = place.store.run_log_paths(runs["a"].run_id)
        assert (out.read_bytes(), err.read_bytes()) == (b"o" * 1048576, b"e" * 1048576)
        assert (runs["c"].status, runs["c"].trace[0].left_behind) == ("completed", 1)
        assert place.store.run_log_paths(runs["c"].run_id)[0].read_text() == "said\n"


def test_fr_20_what_is_started_is_what_is_written(tmp_path: Path) -> None:
    """No shell, no `%`, byte for byte, in a supervisor of the C locale; exactly the environment of 6.4."""
    words = ["100%", "a b", "$HOME", "x;y", "*", "ż😀", ""]
    with Place(tmp_path) as place:
        place.store.create_deployment(deployment_id="d", command=["printf", "%s|", *words], description="raport-ż")
        place.store.create_deployment(deployment_id="env", command=["env", "-0"], environment={"MINE": "żółw = 1"})
        place.once("argv", notes="raport-ż")
        at = place.once("env", "env")
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": str(Path(__file__).parents[2]), "SECRET": "x"}
        place.supervisor(environment=environment)
        runs = {run.schedule_id: place.until(run.run_id, *FINAL) for run in [place.run(index) for index in range(2)]}
        assert place.store.run_log_paths(runs["argv"].run_id)[0].read_text() == "|".join(words) + "|"
        said = place.store.run_log_paths(runs["env"].run_id)[0].read_bytes().decode().split("\0")
        found = dict(line.split("=", 1) for line in said if line)
        assert found.pop("MINE") == "żółw = 1"
        assert found["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        assert (found["SHELL"], found["LANG"], found["WFCTL_ATTEMPT"]) == ("/bin/sh", "C.UTF-8", "1")
        assert found["WFCTL_OCCURRENCE"] == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = {name for name in found if name.startswith("WFCTL_")}
        assert ours == {f"WFCTL_{name}" for name in OURS}
        assert set(found) - ours == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TRACEPARENT"} | set(found) & {"TZ"}


@pytest.mark.parametrize(
    ("script", "exit_status", "number"),
    [
        pytest.param("exit 126", 126, None, id="exit 126"),
        pytest.param("exit 255", 255, None, id="exit 255"),
        pytest.param("kill -SEGV $$", None, signal.SIGSEGV, id="SIGSEGV"),
    ],
)
def test_fr_20_no_death_is_a_success(tmp_path: Path, script: str, exit_status: int | None, number: int | None) -> None:
    from wfctl import SupervisorService

    with Place(tmp_path) as place:
        place.job(script)
        with SupervisorService(place.store) as service:
            service.start()
            run = place.until(place.store.start_run(deployment_id="d").run_id, *FINAL)
        assert (run.status, run.exit_status, run.signal) == ("failed", exit_status, number)


def test_fr_20_a_program_that_is_not_there_is_refused_and_one_that_goes_fails_once(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\nrm $0\n")
        program.chmod(0o700)
        place.store.create_deployment(
            deployment_id="goes", steps=[{"name": "one", "command": [str(program)]}, {"name": "two", "command": [str(program)]}]
        )
        plain = tmp_path / "plain"
        plain.write_text("no program")
        place.store.create_deployment(deployment_id="plain", command=[str(plain)])
        place.store.create_deployment(deployment_id="missing", command=["no-such-program-anywhere"])
        for name in ("goes", "plain", "missing"):
            place.once(name, name)
        place.supervisor()
        run = place.until(place.run().run_id, *FINAL)
        assert run.status == "failed"
        assert run.reason is not None
        assert (run.reason["code"], run.reason["errno"], run.reason["step"]) == ("launch-failed", 2, "two")
        for name in ("plain", "missing"):
            wait_for(lambda name=name: place.statuses(name) == ["preflight-rejected"], what=name)  # type: ignore[misc]
            row = place.store.list_schedule_occurrences(schedule_id=name).items[0]
            assert row.reason is not None
            assert (row.reason["code"], row.run_id) == ("preflight", None)
        assert len(place.store.list_runs().items) == 1
        assert place.store.server_status().slots_used == 0


def test_6_5_steps_pass_on_and_the_last_output_wins(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        write = "echo '{\"from\": \"'$WFCTL_STEP'\"}' >$WFCTL_OUTPUT"
        place.store.create_deployment(
            deployment_id="d",
            steps=[
                {"name": "one", "command": ["/bin/sh", "-c", write]},
                {"name": "two", "command": ["/bin/sh", "-c", write]},
                {"name": "three", "command": ["/bin/sh", "-c", "exit 0"]},
            ],
        )
        place.once()
        place.supervisor()
        run = place.until(place.run().run_id, *FINAL)
        assert (run.status, run.output) == ("completed", {"from": "two"})
        assert [each.step for each in run.trace] == ["one", "two", "three"]
        assert json.loads((place.root / "runs" / run.run_id / "input.json").read_text()) == {}


def _zombies_of(parents: tuple[int, ...]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        stat = process_stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None and stat.state == "Z" and stat.parent in parents:
            found.append(int(entry.name))
    return found
