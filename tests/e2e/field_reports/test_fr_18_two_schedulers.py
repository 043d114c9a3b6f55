"""FR-18: however they come to it, one store has one supervisor (contract 2.6, 2.7)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.place import Place
from tests.support.processes import WFCTL, Supervisor, clean_environment, wait_for
from tests.support.witness import Witness

RACERS = 20


def test_fr_18_of_twenty_at_once_exactly_one_wins(
    place: Place, witness: Witness, ledger_check: Callable[..., None], tmp_path: Path
) -> None:
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    place.every_second("s", "quick", overlap="parallel", max_active_runs=50)
    logs = [tmp_path / f"log-{number}" for number in range(RACERS)]
    racers = []
    for log in logs:
        with log.open("wb") as out:
            racers.append(
                subprocess.Popen(
                    [*WFCTL, "--store", str(place.root), "supervise"],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=clean_environment(),
                )
            )
    try:
        wait_for(lambda: sum(racer.poll() is not None for racer in racers) == RACERS - 1, timeout_s=60, what="the losers")
        assert [racer.returncode for racer in racers if racer.returncode is not None] == [75] * (RACERS - 1)
        winner = next(racer for racer in racers if racer.poll() is None)
        status = wait_for(place.store.server_status)
        assert status.pid == winner.pid
        for racer, log in zip(racers, logs, strict=True):
            if racer is not winner:
                said = log.read_text()
                assert f"pid {winner.pid} on {socket.gethostname()}, started 2" in said, said
                assert "Traceback" not in said
        late = time.monotonic()
        assert subprocess.run([*WFCTL, "--store", str(place.root), "supervise"], capture_output=True, env=clean_environment(),
                              check=False).returncode == 75  # fmt: skip
        assert time.monotonic() - late < 3.0, "within a second, the start of Python on a busy machine aside"
        wait_for(lambda: len(witness.runs("s")) > 1, what="runs, each once")
        winner.terminate()
        assert winner.wait(20) == 0
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    ledger_check(place.store, witness)


def test_fr_18_the_pid_of_a_living_stranger_in_the_file_holds_nobody_up(place: Place) -> None:
    lock = place.root / "scheduler.lock"
    lock.write_text(f'{{"pid": {os.getpid()}, "host": "{socket.gethostname()}", "started_at": "2026-01-01T00:00:00Z"}}\n')
    lock.chmod(0o600)
    for number in (1, 2):
        (place.root / f"keeper.{number}.lock").write_text(f"{os.getpid()}\n")
        (place.root / f"keeper.{number}.lock").chmod(0o600)
    with place.supervisor() as supervisor:
        assert place.store.server_status().pid == supervisor.process.pid


@contextmanager
def _symbolic(root: Path) -> Iterator[Path]:
    link = root.parent / "link"
    link.symlink_to(root, target_is_directory=True)
    yield link


@contextmanager
def _hard(root: Path) -> Iterator[Path]:
    """A tree of its own whose files are those of the store."""
    copy = root.parent / "hard"
    for directory, _, names in os.walk(root):
        place = copy / Path(directory).relative_to(root)
        place.mkdir(mode=0o700)
        for name in names:
            os.link(Path(directory, name), place / name, follow_symlinks=False)
    yield copy
    shutil.rmtree(copy)


@pytest.mark.parametrize("way", [_symbolic, _hard], ids=["symbolic link", "hard links"])
def test_fr_18_by_another_path_it_is_the_same_store(place: Place, way: Callable[[Path], object]) -> None:
    with place.supervisor() as supervisor, way(place.root) as path:  # type: ignore[attr-defined]
        second = Supervisor(path)
        assert second.process.wait(20) == 75
        assert str(supervisor.process.pid) in second.text()
        assert place.store.server_status().pid == supervisor.process.pid


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="a bind mount needs root and unshare")
def test_fr_18_by_a_bind_mount_it_is_the_same_store(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "bound"
    other.mkdir(mode=0o700)
    script = 'mount --bind "$1" "$2" || exit 99; shift 1; exec "$2" -m wfctl --store "$1" supervise'
    with place.supervisor() as supervisor:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", str(place.root), str(other), sys.executable],
            capture_output=True,
            text=True,
            env=clean_environment(),
            timeout=60,
            check=False,
        )
        if done.returncode == 99:
            pytest.skip(f"no mount is allowed here: {done.stderr.strip()}")
        assert done.returncode == 75, done
        assert str(supervisor.process.pid) in done.stderr


def test_fr_18_a_network_filesystem_is_refused_in_plain_words(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What `doctor` says and what a start is refused with are the same words."""
    from wfctl.cli.app import run

    words = f"{place.root} is on a network filesystem (nfs4), whose locks cannot be trusted; choose a local directory"
    monkeypatch.setattr("wfctl.store.place.filesystem_type", lambda path, mounts=None: "nfs4")
    assert run(["--store", str(place.root), "doctor"]) == 1
    assert words in capfd.readouterr().out
    assert run(["--store", str(place.root), "supervise"]) == 77
    assert words in capfd.readouterr().err
    monkeypatch.undo()
    assert run(["--store", str(place.root), "doctor"]) == 0
    assert "a local file system" in capfd.readouterr().out


def test_fr_18_doctor_names_the_owner(place: Place, tmp_path: Path) -> None:
    command = Wfctl(place.root, tmp_path)
    assert "free: no supervisor runs on this store" in command.ok("doctor").out
    with place.supervisor() as supervisor:
        said = command.ok("doctor").out
        assert f"held by the supervisor with pid {supervisor.process.pid}" in said and "answers in" in said
        owner = command.ok("store", "info", "-o", "json").json["owner"]
        assert owner["pid"] == supervisor.process.pid
    shown = command.ok("doctor", "-o", "json").json
    assert shown["schema"] == "wfctl/doctor.v1" and shown["ok"] and all(each["ok"] for each in shown["checks"])
    gone = Wfctl(tmp_path / "none", tmp_path)("doctor")
    assert gone.status == 1 and "init" in gone.out
