"""What signals do to a supervisor, and to the runs that it leaves behind (contract 7.6; FR-10 is in field_reports/)."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from tests.support.place import Place, is_alive
from tests.support.processes import Supervisor, clean_environment, wait_for

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
        wait_for(lambda: "Ctrl-C again" in supervisor.text(), what="the hint")
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


def test_systemd_is_told_when_it_is_ready_reloads_and_stops(tmp_path: Path) -> None:
    """READY only once the socket listens; RELOADING with the time of it; STOPPING when the drain begins."""
    with Place(tmp_path) as place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        place.job(HELD)
        place.once()
        supervisor = place.supervisor(environment=clean_environment(NOTIFY_SOCKET=str(tmp_path / "notify")))
        assert systemd.recv(4096).decode().startswith("READY=1\nSTATUS=ready: 1 schedules")
        place.pid("pid")
        assert "NOTIFY_SOCKET" not in Path(f"/proc/{place.pid('pid')}/environ").read_text()
        place.settings("nonsense = 1\n")
        supervisor.process.send_signal(signal.SIGHUP)
        said = [systemd.recv(4096).decode() for _ in range(3)]
        assert said[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert said[1] == "READY=1"
        assert said[2].startswith("STATUS=the settings were not taken up")
        supervisor.process.terminate()
        assert systemd.recv(4096) == b"STOPPING=1", "before the drain is over"
        (place.notes / "go").touch()
        assert supervisor.process.wait(20) == 0
