"""What systemd is told (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wfctl.supervisor.notify import Notifier


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
