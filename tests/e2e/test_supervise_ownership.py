"""One supervisor a store, by a lock of the kernel and never by a file (contract 2.6)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from tests.support.place import Place
from tests.support.processes import WFCTL, Supervisor, clean_environment, wait_for


def test_2_6_the_second_ends_with_75_at_once_and_names_the_first(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        first = place.supervisor()
        begun = time.monotonic()
        second = Supervisor(place.root)
        assert second.process.wait(20) == 75
        took = time.monotonic() - begun
        assert took < 3.0, "within a second, the start of Python on a busy machine aside"
        status = place.store.server_status()
        said = second.text()
        for named in (str(first.process.pid), socket.gethostname(), str(status.started_at.year), "started"):
            assert named in said, said
        assert "Traceback" not in said


def test_2_6_of_four_at_once_exactly_one_wins(tmp_path: Path) -> None:
    """FR-18 a (which has twenty), and c: through a symbolic link it is the same store."""
    with Place(tmp_path) as place:
        link = tmp_path / "link"
        link.symlink_to(place.root, target_is_directory=True)
        paths = [place.root, link] * 2
        racers = [
            subprocess.Popen(
                [*WFCTL, "--store", str(path), "supervise"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=clean_environment(),
            )
            for path in paths
        ]
        try:
            wait_for(lambda: sum(racer.poll() is not None for racer in racers) == 3, timeout_s=40, what="three losers")
            assert [racer.returncode for racer in racers if racer.returncode is not None] == [75] * 3
            winner = next(racer for racer in racers if racer.poll() is None)
            assert wait_for(place.store.server_status).pid == winner.pid
            winner.terminate()
            assert winner.wait(20) == 0
        finally:
            for racer in racers:
                racer.kill()
                racer.wait()


def test_2_6_a_leftover_lock_file_is_harmless(tmp_path: Path) -> None:
    """FR-18 b, FR-08: the pid of a living stranger in the file, and a file left by SIGKILL."""
    with Place(tmp_path) as place:
        lock = place.root / "scheduler.lock"
        lock.write_text(f'{{"pid": {os.getpid()}, "host": "elsewhere", "started_at": "2020-01-01T00:00:00Z"}}\n')
        lock.chmod(0o600)
        place.supervisor().kill()
        assert lock.exists()
        assert place.supervisor().stop() == 0


def test_2_6_a_standby_takes_over(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        first = place.supervisor()
        standby = Supervisor(place.root, "--standby")
        with standby:
            wait_for(lambda: "standing by" in standby.text(), what="the standby")
            assert str(first.process.pid) in standby.text()
            first.kill()
            standby.wait_ready()
            assert place.store.server_status().pid == standby.process.pid
            assert standby.stop() == 0


def test_2_6_a_signal_ends_a_standby(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.supervisor()
        with Supervisor(place.root, "--standby") as standby:
            wait_for(lambda: "standing by" in standby.text(), what="the standby")
            assert standby.stop() == 0
        assert "ready" not in standby.text()
