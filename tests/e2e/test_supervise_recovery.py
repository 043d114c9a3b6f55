"""What becomes of runs when a supervisor, their keeper or both are killed (contract 6.9, 7.1; see field_reports/ too)."""

from __future__ import annotations

from pathlib import Path

from tests.support.place import Place, is_alive, kill
from tests.support.processes import wait_for


def test_6_9_keeper_and_supervisor_killed_the_job_is_watched_to_its_end(tmp_path: Path) -> None:
    """Adopted by pid, start time and boot; nobody can tell how it ended."""
    with Place(tmp_path) as place:
        place.job("echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done")
        place.once()
        first = place.supervisor()
        pid = place.pid("pid")
        place.until("run-000001", "running")
        keeper = place.keeper()
        first.kill()
        kill(keeper)
        second = place.supervisor()
        assert "1 adopted" in second.text()
        assert is_alive(pid)
        assert place.store.server_status().slots_used == 1
        (place.notes / "go").touch()
        run = place.until("run-000001", "failed")
        assert run.reason is not None
        assert run.reason["code"] == "outcome-unknown"


def test_6_9_a_killed_keeper_is_replaced_and_admission_goes_on(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done")
        place.job("exit 0", "other")
        place.once()
        supervisor = place.supervisor()
        pid = place.pid("pid")
        place.until("run-000001", "running")
        old = place.keeper()
        kill(old)
        wait_for(lambda: "another one was started" in supervisor.text(), what="another keeper")
        assert is_alive(pid)
        assert place.store.inspect_run(run_id="run-000001").status == "running"
        place.once("next", "other")
        place.until(place.run(1).run_id, "completed")
        assert place.keeper() != old
        (place.notes / "go").touch()
        run = place.until("run-000001", "failed")
        assert run.reason is not None
        assert run.reason["code"] == "outcome-unknown"
        assert place.store.server_status().problems == ()


def test_6_11_a_run_whose_keeper_is_gone_can_be_cancelled(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("trap '' TERM; echo $$ >$NOTES/pid; while :; do sleep 0.05; done", kill_grace="200ms")
        place.once()
        supervisor = place.supervisor()
        pid = place.pid("pid")
        place.until("run-000001", "running")
        kill(place.keeper())
        wait_for(lambda: "another one was started" in supervisor.text(), what="another keeper")
        place.store.cancel_run(run_id="run-000001")
        assert place.until("run-000001", "cancelled").status == "cancelled"
        assert not is_alive(pid)
