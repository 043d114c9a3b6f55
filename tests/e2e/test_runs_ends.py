"""How runs end under a supervisor: exits, signals, limits, retries, what they leave behind (contract 6.4 to 6.11)."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from tests.support.place import FINAL, Place, is_alive
from tests.support.processes import wait_for


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
