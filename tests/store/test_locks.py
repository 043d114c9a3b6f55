"""The kernel's lock: one owner, gone with its process, inherited by nobody (contract 2.6)."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wfctl.errors import IoError
from wfctl.store.locks import FileLock, Owner, is_held, read_owner

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOLD = """
import sys
from pathlib import Path
from wfctl.store.locks import FileLock
print(FileLock(Path(sys.argv[1])).acquire(), flush=True)
sys.stdin.read()
"""


def test_one_owner_at_a_time_who_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.lock"
    with FileLock(path) as first:
        assert first.acquire(NOON)
        assert first.acquire(NOON)
        assert FileLock(path).acquire() is False
        assert is_held(path)
        assert read_owner(path) == Owner(os.getpid(), socket.gethostname(), NOON)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not is_held(path)
    assert read_owner(path) is None
    assert FileLock(path).acquire()


def test_the_file_stays_when_the_lock_is_given_back(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    lock.acquire()
    inode = (tmp_path / "l").stat().st_ino
    lock.release()
    lock.release()
    assert (tmp_path / "l").stat().st_ino == inode


def test_the_lock_dies_with_its_process_and_its_remarks_mean_nothing_then(tmp_path: Path) -> None:
    path = tmp_path / "l"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    assert FileLock(path).acquire() is False
    owner = read_owner(path)
    assert owner is not None
    assert owner.pid == holder.pid
    holder.kill()
    holder.communicate()
    assert FileLock(path).acquire() is True


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    lock.acquire()
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lock.release()
        assert not is_held(tmp_path / "l")
    finally:
        child.kill()
        child.wait()


def test_asking_whether_it_is_held_never_takes_it_from_somebody(tmp_path: Path) -> None:
    path = tmp_path / "l"
    assert not is_held(path)
    assert not path.exists()
    lock = FileLock(path)
    lock.acquire()
    lock.release()
    assert not is_held(path)
    assert lock.acquire()


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("elsewhere"), lambda path: path.mkdir()], ids=["a link", "a directory"]
)
def test_what_cannot_be_locked_is_owned_by_nobody(tmp_path: Path, make: object) -> None:
    make(tmp_path / "l")  # type: ignore[operator]
    lock = FileLock(tmp_path / "l")
    with pytest.raises(IoError):
        lock.acquire()
    assert not lock.is_mine


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "host": "h", "started_at": "noon"}'])
def test_illegible_remarks_name_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "l").write_text(text)
    assert read_owner(tmp_path / "l") is None
