"""What keeps a supervisor from admitting, and how it says so (contract 7.7)."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from wfctl.errors import IoError
from wfctl.settings import Settings
from wfctl.supervisor import health
from wfctl.supervisor.health import Health, kind_of

ROOMY = Settings(min_free=0)


class Seconds:
    """A monotonic clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def well(seconds: Seconds) -> Health:
    return Health(seconds)


def disk_with(monkeypatch: pytest.MonkeyPatch, **fields: int) -> None:
    """Let the store's file system look like that."""
    found = {name: getattr(os.statvfs("/"), name) for name in dir(os.statvfs("/")) if name.startswith("f_")}
    roomy = {"f_bavail": 10**6, "f_frsize": 4096, "f_blocks": 10**7, "f_files": 10**6, "f_favail": 10**6, "f_flag": 0}
    shown = type("Usage", (), {**found, **roomy, **fields})()
    monkeypatch.setattr(health.os, "statvfs", lambda path: shown)


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        pytest.param({}, set(), id="there is enough of everything"),
        pytest.param({"f_bavail": 65536}, set(), id="just enough bytes"),
        pytest.param({"f_bavail": 65535}, {"disk"}, id="a byte block too few"),
        pytest.param({"f_favail": 12}, set(), id="just enough inodes"),
        pytest.param({"f_favail": 11}, {"inodes"}, id="an inode too few"),
        pytest.param({"f_files": 0, "f_favail": 0}, set(), id="a file system that counts no inodes"),
        pytest.param({"f_flag": os.ST_RDONLY}, {"read-only"}, id="read-only"),
        pytest.param({"f_flag": os.ST_RDONLY, "f_bavail": 0, "f_favail": 0}, {"read-only", "disk", "inodes"}, id="all of it"),
    ],
)
def test_7_7_what_the_file_system_must_have(
    well: Health, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int], kinds: set[str]
) -> None:
    disk_with(monkeypatch, **fields)
    assert well.allows(Path("/"), Settings()) == (not kinds)
    assert set(well.problems) == kinds
    assert well.is_exhausted == bool(kinds)
    disk_with(monkeypatch)
    assert well.allows(Path("/"), Settings())
    assert well.problems == {}


def test_7_7_descriptors(well: Health, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    try:
        with pytest.raises(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(4):
            os.close(held.pop())
        assert not well.allows(tmp_path, ROOMY)
        assert set(well.problems) == {"descriptors"}
        while held:
            os.close(held.pop())
        assert well.allows(tmp_path, ROOMY), "at once: what is exhausted is looked at each time"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_7_7_processes(well: Health, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not well.allows(tmp_path, ROOMY)
        assert set(well.problems) == {"processes"}
    assert well.allows(tmp_path, ROOMY)


def test_7_7_file_size(well: Health, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, hard))
    try:
        assert not well.allows(tmp_path, ROOMY)
        assert set(well.problems) == {"file-size"}
        assert kind_of(IoError("it failed", {"sqlite": "SQLITE_IOERR_WRITE"})) == "file-size"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert well.allows(tmp_path, ROOMY)


def test_7_7_a_refused_launch_stops_admission_for_a_while(well: Health, seconds: Seconds, tmp_path: Path) -> None:
    well.refused(errno.EAGAIN, 1.0)
    assert set(well.problems) == {"processes"}
    seconds.now += 0.9
    assert not well.allows(tmp_path, ROOMY)
    seconds.now += 0.2
    assert well.allows(tmp_path, ROOMY)
    assert well.problems == {}


def test_7_7_at_most_one_line_a_minute(well: Health, seconds: Seconds, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(600):  # it comes and goes, for ten minutes
        well.problem("disk", f"only {seconds.now} bytes are free")
        well.solved("disk")
        seconds.now += 1.0
    lines = [vars(record)["action"] for record in caplog.records]
    assert lines == ["disk_problem", "disk_solved"] * 10


def test_7_7_what_came_back_within_the_minute_and_stays_is_said_after_it(
    well: Health, seconds: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    well.problem("disk", "full")
    well.solved("disk")
    for _ in range(600):
        seconds.now += 1.0
        well.problem("disk", "full")
    well.solved("disk")
    assert [vars(record)["action"] for record in caplog.records] == [
        "disk_problem",
        "disk_solved",
        "disk_problem",
        "disk_solved",
    ]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "full"), "disk"),
        (OSError(errno.EDQUOT, "quota"), "disk"),
        (OSError(errno.EROFS, "read-only"), "read-only"),
        (OSError(errno.EMFILE, "files"), "descriptors"),
        (OSError(errno.ENFILE, "files"), "descriptors"),
        (OSError(errno.EAGAIN, "processes"), "processes"),
        (OSError(errno.EFBIG, "size"), "file-size"),
        (OSError(errno.EIO, "broken"), "ledger"),
        (IoError("full", {"errno": errno.ENOSPC}), "disk"),
        (IoError("full", {"sqlite": "SQLITE_FULL"}), "disk"),
        (IoError("broken", {"sqlite": "SQLITE_IOERR_FSYNC"}), "ledger"),
        (IoError("broken"), "ledger"),
    ],
    ids=str,
)
def test_7_7_what_a_failure_says(well: Health, error: Any, kind: str, tmp_path: Path) -> None:
    assert kind_of(error) == kind
    well.failed(error, tmp_path, ROOMY)
    assert set(well.problems) == {kind}
    assert str(error) in well.problems[kind]
