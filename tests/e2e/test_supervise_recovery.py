"""What becomes of runs when a supervisor, their keeper or both are killed (contract 6.9, 7.1; FR-04, FR-05, FR-08)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.place import Place, eventually, is_alive, kill
from tests.support.processes import wait_for

STUBBORN = """
trap '' TERM
sh -c 'trap "" TERM; echo $$ >$NOTES/child.pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done' &
echo $$ >$NOTES/$WFCTL_RUN_ID.pid
while [ ! -e $NOTES/go ]; do sleep 0.02; done
"""


def test_fr_05_a_run_is_adopted_across_a_kill_and_no_second_one_starts(tmp_path: Path) -> None:
    """Round 1."""
    with Place(tmp_path) as place:
        place.job(STUBBORN)
        place.every_second(overlap="skip")
        first = place.supervisor()
        pid = place.pid("run-000001.pid")
        first.kill()
        assert is_alive(pid)
        second = place.supervisor()
        assert "1 adopted" in second.text()
        wait_for(lambda: place.statuses().count("skipped-overlap") >= 2, what="two instants skipped")
        rows = place.store.list_schedule_occurrences(schedule_id="s", status="skipped-overlap").items
        assert all(row.reason and row.reason["runs"] == ["run-000001"] for row in rows)
        assert len(place.store.list_runs().items) == 1
        place.store.pause_schedule(schedule_id="s")
        (place.notes / "go").touch()
        ended = place.until("run-000001", "completed")
        assert (ended.exit_status, len(ended.trace)) == (0, 1)


def test_fr_05_keeper_and_job_killed_beside_the_supervisor_is_abandoned(tmp_path: Path) -> None:
    """Round 2: failed once, saying that outside effects may have happened; the slot is free; it never runs again."""
    with Place(tmp_path) as place:
        place.job("echo $$ >$NOTES/pid; sleep 60")
        place.once()
        first = place.supervisor()
        pid = place.pid("pid")
        place.until("run-000001", "running")
        keeper = place.keeper()
        first.kill()
        kill(keeper)
        kill(pid)
        second = place.supervisor()
        run = place.until("run-000001", "failed")
        assert run.reason is not None
        assert run.reason["code"] == "abandoned"
        assert "effects may" in str(run.reason)
        assert "effects may already have happened" in second.text()
        assert place.statuses() == ["failed"]
        assert place.store.server_status().slots_used == 0


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


@pytest.mark.parametrize("killed", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_fr_08_what_a_job_leaves_behind_holds_nothing_of_the_store(tmp_path: Path, killed: bool) -> None:
    with Place(tmp_path) as place:
        place.job(
            "setsid sh -c 'echo $$ >$NOTES/pid; exec sleep 60' >/dev/null 2>&1 & while [ ! -e $NOTES/pid ]; do sleep 0.02; done"
        )
        place.once()
        first = place.supervisor()
        run = place.until(place.run().run_id, "completed")
        assert run.trace[0].left_behind == 1
        pid = place.pid("pid")
        opened = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert not [path for path in opened if path.startswith(str(place.root)) or "socket" in path or "pipe" in path], opened
        if killed:
            first.kill()
        else:
            assert first.stop() == 0
        second = place.supervisor()
        assert is_alive(pid)
        assert second.stop() == 0


def test_fr_04_a_held_candidate_survives_and_runs_once(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("echo >$NOTES/$WFCTL_RUN_ID; while [ ! -e $NOTES/go ]; do sleep 0.02; done")
        place.every_second(misfire="latest")
        first = place.supervisor()
        place.note("run-000001")
        held = wait_for(lambda: place.store.get_schedule(schedule_id="s").candidate, what="a held candidate")
        first.kill()
        place.supervisor()
        page = place.store.list_schedule_occurrences(schedule_id="s")
        assert page.items[0].status == "pending"
        assert page.items[0].instant >= held.instant
        place.store.update_schedule(schedule_id="s", expected_revision=1, overlap="queue")
        (place.notes / "go").touch()
        place.until("run-000002", "completed")
        place.store.pause_schedule(schedule_id="s")
        rows = [row for row in place.store.list_schedule_occurrences(schedule_id="s", limit=100).items if row.run_id]
        assert len({row.instant for row in rows}) == len(rows)
        assert eventually(lambda: place.store.inspect_run(run_id="run-000001").status == "completed", "the adopted run's end")
