"""What wakes the loop, and what does not (contract 5.14)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wfctl.clock import SystemClock
from wfctl.supervisor import waiting
from wfctl.supervisor.waiting import Waiter

LONG_S = 30.0


@pytest.fixture
def waiter(tmp_path: Path) -> Iterator[Waiter]:
    """A waiter that watches a folder."""
    waiter = Waiter(SystemClock(), [tmp_path])
    yield waiter
    waiter.close()


def _waited(
    waiter: Waiter, until: datetime | None = None, timeout_s: float | None = LONG_S, also: dict[int, bool] | None = None
) -> float:
    begun = time.monotonic()
    waiter.wait(until, timeout_s, LONG_S, also or {})
    return time.monotonic() - begun


def test_it_wakes_at_the_instant(waiter: Waiter) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.2)
    _waited(waiter, at)
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(seconds=1)


def test_it_wakes_at_once_for_an_instant_that_passed(waiter: Waiter) -> None:
    assert _waited(waiter, datetime.now(UTC) - timedelta(days=365)) < 1


def test_it_wakes_after_the_timeout(waiter: Waiter) -> None:
    assert 0.09 <= _waited(waiter, timeout_s=0.1) < 1


def test_another_thread_wakes_it_and_a_wake_before_the_wait_counts(waiter: Waiter) -> None:
    threading.Timer(0.1, waiter.wake).start()
    assert _waited(waiter) < 5
    for _ in range(100_000):  # the pipe is full: still nothing blocks
        waiter.wake()
    assert _waited(waiter) < 1


def test_a_changed_file_wakes_it(waiter: Waiter, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("x")
    assert _waited(waiter) < 1
    assert waiter.have_files_changed
    assert not waiter.has_clock_stepped
    assert waiter.is_told


def test_a_descriptor_wakes_it_for_this_wait_only(waiter: Waiter) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"x")
        assert _waited(waiter, also={reader: False}) < 1
        assert _waited(waiter, also={writer: True}) < 1
        assert _waited(waiter, timeout_s=0.1) >= 0.09
    finally:
        os.close(reader)
        os.close(writer)


def test_where_the_kernel_does_not_tell_the_poll_interval_bounds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> None:
        raise OSError("no inotify here")

    monkeypatch.setattr(waiting, "DirectoryWatch", missing)
    waiter = Waiter(SystemClock(), [tmp_path])
    try:
        assert not waiter.is_told
        begun = time.monotonic()
        waiter.wait(None, None, 0.1, {})
        assert 0.09 <= time.monotonic() - begun < 1
    finally:
        waiter.close()


def test_a_wake_after_the_end_writes_into_nobodys_file(tmp_path: Path) -> None:
    """A check on a dead mount may answer long after the loop is gone, when its descriptors stand for other files."""
    waiter = Waiter(SystemClock(), [tmp_path])
    numbers = {waiter.wake_descriptor}
    waiter.close()
    waiter.close()
    descriptors = [os.open(tmp_path / "innocent", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600) for _ in range(8)]
    try:
        assert numbers & set(descriptors), "the number is used again"
        waiter.wake()
        assert (tmp_path / "innocent").read_bytes() == b""
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
