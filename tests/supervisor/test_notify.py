"""What systemd is told (sd_notify(3)): first by the notifier alone, then by a real supervisor."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.notify_socket import NotifySocket
from tests.support.place import Place
from tests.support.processes import Supervisor, wait_for
from wfctl.supervisor.notify import Notifier

HELD = "echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """Where messages arrive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        yield systemd


def _said(systemd: socket.socket) -> str | None:
    try:
        return systemd.recv(4096).decode()
    except BlockingIOError:
        return None


def _environ(systemd: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(systemd.getsockname()), **more}


def test_ready_comes_with_a_status_and_a_status_only_when_it_changes(systemd: socket.socket) -> None:
    notifier = Notifier(_environ(systemd))
    notifier.ready("ready: 3 schedules")
    assert _said(systemd) == "READY=1\nSTATUS=ready: 3 schedules"
    notifier.status("ready: 3 schedules")
    assert _said(systemd) is None
    notifier.status("bad")
    assert _said(systemd) == "STATUS=bad"


def test_reloading_carries_the_time_without_which_newer_systemd_hangs(systemd: socket.socket) -> None:
    notifier = Notifier(_environ(systemd))
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading(True)
    said = _said(systemd)
    assert said is not None
    assert said.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert before <= int(said.rpartition("=")[2]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading(False)
    assert _said(systemd) == "READY=1"


@pytest.mark.parametrize(
    ("pid", "beats"),
    [
        pytest.param(None, True, id="meant for whoever is there"),
        pytest.param(str(os.getpid()), True, id="meant for us"),
        pytest.param("1", False, id="meant for another"),
    ],
)
def test_the_watchdog_is_told_twice_in_its_time(systemd: socket.socket, pid: str | None, beats: bool) -> None:
    notifier = Notifier(_environ(systemd, WATCHDOG_USEC="60000000", **({} if pid is None else {"WATCHDOG_PID": pid})))
    left = notifier.beat()
    assert _said(systemd) == ("WATCHDOG=1" if beats else None)
    assert (left is not None) == beats
    if left is not None:
        assert 29 < left <= 30
        notifier.beat()
        assert _said(systemd) is None, "not more often"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@wfctl-nobody-listens"])
def test_where_nobody_listens_nothing_happens(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "nonsense"})
    notifier.ready("ready")
    assert notifier.beat() is None


def test_a_message_of_several_lines_begins_no_assignment_of_its_own(systemd: socket.socket) -> None:
    Notifier(_environ(systemd)).status("settings:\n  bad\nMAINPID=1\x1b[2J")
    assert _said(systemd) == "STATUS=settings: bad MAINPID=1\\x1b[2J"


def test_more_time_is_asked_for_at_most_once_a_second(systemd: socket.socket) -> None:
    notifier = Notifier(_environ(systemd))
    notifier.extend(300)
    notifier.extend(20)
    assert _said(systemd) == "EXTEND_TIMEOUT_USEC=300000000"
    assert _said(systemd) is None
    notifier.extend(50, is_first=True)
    assert _said(systemd) == "EXTEND_TIMEOUT_USEC=50000000"


def test_stopping_is_said_once(systemd: socket.socket) -> None:
    notifier = Notifier(_environ(systemd))
    notifier.stopping()
    notifier.stopping()
    assert _said(systemd) == "STOPPING=1"
    assert _said(systemd) is None


def test_a_systemd_that_does_not_read_holds_nobody_up(systemd: socket.socket) -> None:
    """What was not taken is said again: the watchdog within a second, the status with the next round."""
    notifier = Notifier(_environ(systemd, WATCHDOG_USEC="60000000"))
    begun = time.monotonic()
    for number in range(10_000):
        notifier.status(str(number))
        if notifier._last_status != str(number):
            break
    left = notifier.beat()
    assert time.monotonic() - begun < 5
    assert left is not None and left <= 1
    while _said(systemd) is not None:
        pass
    notifier.status("last")
    assert _said(systemd) == "STATUS=last"


# A real supervisor ------------------------------------------------------------------------------------------------------


def test_ready_comes_only_after_recovery_and_with_a_status(tmp_path: Path) -> None:
    """A run that an earlier supervisor left is adopted by then, the lock is held and the socket answers (UX.md 6)."""
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        place.job(HELD)
        place.once()
        first = place.supervisor()
        pid, run = place.pid("pid"), place.run()
        first.kill()
        with Supervisor(place.root, environment=systemd.environment()) as second:
            said = systemd.until("READY=1")
            assert {message.partition("=")[0] for message in said[:-1]} == {"EXTEND_TIMEOUT_USEC"}, "nothing else before it"
            assert said[-1] == "READY=1\nSTATUS=1/4 slots \N{MIDDLE DOT} 1 schedule"
            assert "recovered: 1 adopted" in second.text()
            assert place.store.server_status().pid == second.process.pid, "the socket answers at once"
            assert "NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_text()
            (place.notes / "go").touch()
            place.until(run.run_id, "completed")
            assert systemd.until("STATUS=0/4 slots")
            assert second.stop() == 0


def test_a_reload_carries_its_time_and_bad_settings_are_in_the_status(tmp_path: Path) -> None:
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        supervisor = place.supervisor(environment=systemd.environment())
        systemd.until("READY=1")
        place.settings("[supervisor]\nmax_concurrent_runs = -3\nnonsense = 1\n")
        supervisor.process.send_signal(signal.SIGHUP)
        assert systemd.until("RELOADING=1")[-1].startswith("RELOADING=1\nMONOTONIC_USEC=")
        systemd.until("READY=1")
        status = systemd.once("STATUS=the settings were not taken up: ")
        assert "\n" not in status and "nonsense" in status
        place.settings("[supervisor]\nmax_concurrent_runs = 9\n")
        supervisor.process.send_signal(signal.SIGHUP)
        systemd.until("READY=1")
        systemd.once("STATUS=0/9 slots")


def test_7_6_a_drain_begins_with_stopping_and_asks_for_the_time_it_needs(tmp_path: Path) -> None:
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        place.job(HELD)
        place.once()
        supervisor = place.supervisor("--drain-grace-s", "90", environment=systemd.environment())
        systemd.until("READY=1")
        place.pid("pid")
        supervisor.process.terminate()
        systemd.until("STOPPING=1")
        assert systemd.until("EXTEND_TIMEOUT_USEC=") == ["EXTEND_TIMEOUT_USEC=110000000"]
        systemd.once("STATUS=draining, 1 run left")
        assert supervisor.process.poll() is None
        (place.notes / "go").touch()
        assert supervisor.process.wait(20) == 0


def test_a_stop_that_takes_its_time_asks_for_more_again_and_again(tmp_path: Path) -> None:
    """With on_shutdown = "stop" a run that ignores SIGTERM is waited for until its kill_grace is over."""
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        place.settings('[supervisor]\non_shutdown = "stop"\ndrain_grace_s = 0\n')
        place.job('trap "" TERM; ' + HELD, kill_grace="1500ms")
        place.once()
        supervisor = place.supervisor(environment=systemd.environment())
        systemd.until("READY=1")
        place.pid("pid")
        supervisor.process.terminate()
        systemd.until("STOPPING=1")
        assert systemd.until("EXTEND_TIMEOUT_USEC=") == ["EXTEND_TIMEOUT_USEC=20000000"]
        systemd.until("EXTEND_TIMEOUT_USEC=20000000")
        assert supervisor.process.wait(20) == 0
        assert place.run().status == "failed"


def test_2_6_a_standby_is_starting_until_it_owns_the_store(tmp_path: Path) -> None:
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        first = place.supervisor()
        with Supervisor(place.root, "--standby", environment=systemd.environment()) as second:
            said = systemd.until("STATUS=standing by")
            assert str(first.process.pid) in said[-1]
            assert "EXTEND_TIMEOUT_USEC=300000000" in systemd.until("EXTEND_TIMEOUT_USEC=")
            first.kill()
            said = systemd.until("READY=1")
            assert not any(message.startswith("READY") for message in systemd.said[:-1])
            assert second.stop() == 0


def test_the_watchdog_is_fed_by_the_loop_alone(tmp_path: Path) -> None:
    """A supervisor whose loop stands still feeds nobody, though its process lives."""
    with Place(tmp_path) as place, NotifySocket(tmp_path) as systemd:
        supervisor = place.supervisor(environment=systemd.environment(WATCHDOG_USEC="400000"))
        systemd.until("READY=1")
        begun = time.monotonic()
        for _ in range(4):
            systemd.until("WATCHDOG=1")
        assert time.monotonic() - begun > 0.5, "at half of its time"
        supervisor.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: _state(supervisor.process.pid) == "T", what="it standing still")
        with pytest.raises(AssertionError, match="in vain"):
            for _ in range(3):  # one may have been under way
                systemd.until("WATCHDOG=1", within_s=0.6)
        supervisor.process.send_signal(signal.SIGCONT)
        systemd.until("WATCHDOG=1")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
