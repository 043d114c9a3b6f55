"""What signals do to a supervisor, and to the runs that it leaves behind (contract 7.6; FR-10 is in field_reports/)."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from tests.support.place import Place, is_alive
from tests.support.processes import Supervisor, wait_for

HELD = (
    'trap "echo TERM >$NOTES/term" TERM; echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done; echo >$NOTES/end'
)


def test_7_6_a_second_sigint_ends_the_wait_with_130(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job(HELD)
        place.once()
        supervisor = place.supervisor("--drain-grace-s", "60")
        pid, run = place.pid("pid"), place.run()
        supervisor.process.send_signal(signal.SIGINT)
        wait_for(lambda: "draining 1 run (1m) \N{EN DASH} Ctrl-C again ends the wait\n" in supervisor.text(), what="the hint")
        assert supervisor.stop(signal.SIGINT) == 130
        assert is_alive(pid)
        assert place.store.inspect_run(run_id=run.run_id).status == "running"


def test_7_6_an_idle_supervisor_ends_at_once_also_while_it_starts(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        assert place.supervisor().stop(signal.SIGINT) == 0
        with Supervisor(place.root) as starting:
            wait_for(lambda: (place.root / "control.sock").exists() or "ready" in starting.text(), what="its socket")
            assert starting.stop() == 0
        assert not (place.root / "control.sock").exists()


def test_7_6_sighup_reads_settings_and_definitions_again(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.once(in_s=3600)
        supervisor = place.supervisor()
        place.settings("[supervisor]\nmax_concurrent_runs = 9\n")
        path = place.root / "schedules" / "s.toml"
        path.write_text(path.read_text() + "\n# by hand\n")
        supervisor.process.send_signal(signal.SIGHUP)
        wait_for(lambda: place.store.server_status().slots_total == 9, what="the new settings")
        place.settings("[supervisor]\nmax_concurrent_runs = -3\nnonsense = 1\n")
        supervisor.process.send_signal(signal.SIGHUP)
        problems = wait_for(lambda: place.store.server_status().problems, what="the problem")
        assert [problem["code"] for problem in problems] == ["settings"]
        assert "wfctl.toml" in problems[0]["message"]
        assert place.store.server_status().slots_total == 9
        place.settings("")
        supervisor.process.send_signal(signal.SIGHUP)
        wait_for(lambda: place.store.server_status().slots_total == 4, what="the default settings")
        assert place.store.server_status().problems == ()


def test_7_6_a_second_sigterm_is_logged_and_changes_nothing(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job(HELD)
        place.once()
        supervisor = place.supervisor("--drain-grace-s", "60")
        place.pid("pid")
        supervisor.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "draining: admission has stopped" in supervisor.text(), what="the drain")
        supervisor.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "SIGTERM again" in supervisor.text(), what="the line")
        assert supervisor.process.poll() is None
        (place.notes / "go").touch()
        assert supervisor.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGABRT])
def test_a_supervisor_that_is_made_to_dump_says_where_it_stands_and_dies(tmp_path: Path, number: signal.Signals) -> None:
    """SIGABRT is what systemd's watchdog sends; its runs go on."""
    with Place(tmp_path) as place:
        place.job(HELD)
        place.once()
        supervisor = place.supervisor()
        pid = place.pid("pid")
        resource.prlimit(supervisor.process.pid, resource.RLIMIT_CORE, (0, 0))
        wait_for(lambda: _is_waiting(supervisor.process.pid), what="the loop being idle")
        assert supervisor.stop(number) == -number
        assert "waiting.py" in supervisor.text()
        assert is_alive(pid)


def _is_waiting(pid: int) -> bool:
    """Tell whether the main thread of a process waits for events, twice in a row."""
    return all(Path(f"/proc/{pid}/wchan").read_text() in ("ep_poll", "do_epoll_wait") for _ in range(2))
