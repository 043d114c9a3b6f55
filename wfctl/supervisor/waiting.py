"""Sleeping until something happens: the exact instant, a message, a signal, a changed file, a set clock."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from wfctl.clock import Clock
from wfctl.linux import DirectoryWatch, WallTimer

T = TypeVar("T")
_MOST_S = 3600.0  #: a sleep is cut here, so that no arithmetic overflows


class Handler(Protocol):
    """What is registered with its own descriptors, such as the control server."""

    def handle(self, key: selectors.SelectorKey, mask: int) -> None:
        """Take in what is ready."""


class Waiter:
    """One selector over everything that can wake the loop. Where the kernel does not tell, the poll interval bounds it."""

    def __init__(self, clock: Clock, watched: Iterable[object]) -> None:
        self.selector = selectors.DefaultSelector()
        self.has_clock_stepped = False
        self.have_files_changed = False
        self.changed_files: set[tuple[Path, str]] = set()  #: (directory, name), as `DirectoryWatch` tells them
        self._clock = clock
        self._waking = threading.RLock()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.selector.register(self._wake_read, selectors.EVENT_READ, self._drain)
        self._timer = self._try(WallTimer) if clock.is_system else None
        self._watch: DirectoryWatch | None = self._try(lambda: DirectoryWatch(watched))  # type: ignore[arg-type]
        if self._timer is not None:
            self.selector.register(self._timer.fileno(), selectors.EVENT_READ, self._clock_event)
        if self._watch is not None:
            self.selector.register(self._watch.fileno(), selectors.EVENT_READ, self._files_event)

    @staticmethod
    def _try(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except OSError:
            return None

    def close(self) -> None:
        """Close everything of ours. Harmless when done twice."""
        if self._wake_write < 0:
            return
        for closing in (self._timer, self._watch):
            if closing is not None:
                closing.close()
        self.selector.close()
        descriptors = (self._wake_read, self._wake_write)
        with self._waking:
            self._wake_read = self._wake_write = -1  # a thread that wakes us late must not write into another's file
        for descriptor in descriptors:
            os.close(descriptor)

    @property
    def wake_descriptor(self) -> int:
        """A descriptor for `signal.set_wakeup_fd`."""
        return self._wake_write

    @property
    def is_told(self) -> bool:
        """Tell whether the kernel tells of clock steps and changed files, so that an idle loop may sleep on."""
        return self._timer is not None and self._watch is not None

    def wake(self) -> None:
        """Wake the loop, from any thread or a signal handler."""
        with contextlib.suppress(OSError), self._waking:
            os.write(self._wake_write, b"\0")

    def wait(self, until: datetime | None, timeout_s: float | None, poll_s: float, also: Mapping[int, bool]) -> None:
        """Sleep until the wall clock reaches `until`, `timeout_s` has passed, or anything wakes us; then take in what did.

        `also`: descriptors that wake us when readable, and where the value is true when writable too.
        """
        limit = _MOST_S if timeout_s is None else min(timeout_s, _MOST_S)
        if self._timer is not None:
            self._timer.set(until)
        elif until is not None:
            limit = min(limit, max(0.0, (until - self._clock.now()).total_seconds()))
        if not self.is_told:
            limit = min(limit, poll_s)
        for descriptor, is_writing in also.items():  # registered anew each time: a number may stand for another file by now
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_writing else 0)
            self.selector.register(descriptor, events, None)
        ready = self.selector.select(max(0.0, limit))
        for descriptor in also:
            self.selector.unregister(descriptor)
        for key, mask in ready:
            if hasattr(key.data, "handle"):
                key.data.handle(key, mask)
            elif key.data is not None:
                key.data()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 65536)

    def _clock_event(self) -> None:
        assert self._timer is not None
        if self._timer.read() == "clock-changed":
            self.has_clock_stepped = True

    def _files_event(self) -> None:
        assert self._watch is not None
        changed = self._watch.read()
        if changed:
            self.have_files_changed = True
            self.changed_files |= changed
