"""Writing exit records and syncing them, beside the loop: a slow disk delays the report of an end, never a launch.

Several threads, so that a file system can take many syncs as one. They never launch, change directory or handle a signal.
"""

from __future__ import annotations

import os
import signal
import stat
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

from wfctl.keeper.protocol import Ended, Refused
from wfctl.keeper.records import encode_record

_THREADS = 4
_LEFT_BY_THE_JOB = ("output", "checkpoint", "interrupt")  # of this execution; synced before its record (6.4)
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Recording:
    """One record to write. The descriptors are closed when it is done."""

    outcome: Ended | Refused
    directory: int
    record: int
    is_durable: bool = False


class Recorder:
    """Takes recordings, hands each back once it is durable, or once that proved impossible."""

    def __init__(self) -> None:
        self.pending = 0
        self._queue: SimpleQueue[Recording] = SimpleQueue()
        self._done: deque[Recording] = deque()
        self._notice = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for _ in range(_THREADS):
            Thread(target=self._work, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `collect` has something."""
        return self._notice

    def submit(self, recording: Recording) -> None:
        self.pending += 1
        self._queue.put(recording)

    def collect(self) -> list[Recording]:
        """Return what was done since the last call."""
        try:
            os.eventfd_read(self._notice)
        except BlockingIOError:
            return []
        done = [self._done.popleft() for _ in range(len(self._done))]
        self.pending -= len(done)
        return done

    def _work(self) -> None:
        while True:
            recording = self._queue.get()
            try:
                _write(recording)
                recording.is_durable = True
            except Exception:
                recording.is_durable = False  # the report says so; the driver then trusts the report alone
            finally:
                os.close(recording.record)
                os.close(recording.directory)
                self._done.append(recording)
                os.eventfd_write(self._notice, 1)


def _write(recording: Recording) -> None:
    """Order: what the job wrote, then the record, then its name. A record on disk after a power cut vouches for the rest."""
    for name in _LEFT_BY_THE_JOB:
        _sync(name, recording.directory)
    os.pwrite(recording.record, encode_record(recording.outcome), 0)
    os.fdatasync(recording.record)
    os.fsync(recording.directory)


def _sync(name: str, directory: int) -> None:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return  # it left none, or a link or something unreadable, which is no output
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
