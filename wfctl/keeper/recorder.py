"""Writing exit records and syncing them, beside the loop: a slow disk delays the report of an end, never a launch.

Several threads, so that a file system can take many syncs as one. They never launch, change directory or handle a signal.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
import time
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

from wfctl.keeper.protocol import Ended, Refused
from wfctl.keeper.records import write_record

_THREADS = 4
_LEFT_BY_THE_JOB = ("output", "checkpoint", "interrupt")  # of this execution; synced before its record (6.4)
_TRIES, _RETRY_S = 100, 0.1  # for a system that has no descriptor, memory or space left
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Recording:
    """One record to write."""

    outcome: Ended | Refused
    directory: str
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
                _write_patiently(recording)
                recording.is_durable = True
            except Exception:
                recording.is_durable = False  # the report says so; the driver then trusts the report alone
            self._done.append(recording)
            os.eventfd_write(self._notice, 1)


def _write_patiently(recording: Recording) -> None:
    """Try again while the machine has nothing left; on a file system that is read-only for as long as it is: there nobody else
    could keep the outcome either."""
    for attempt in itertools.count():
        try:
            _write(recording)
            return
        except OSError as error:
            if error.errno != errno.EROFS and (error.errno not in _PASSING or attempt >= _TRIES):
                raise
        time.sleep(_RETRY_S)


def _write(recording: Recording) -> None:
    """Order: what the job wrote, then the record. A record on disk after a power cut vouches for the rest."""
    directory = os.open(recording.directory, _OPEN | os.O_DIRECTORY)
    try:
        for name in _LEFT_BY_THE_JOB:
            _sync(name, directory)
        write_record(directory, recording.outcome)
    finally:
        os.close(directory)


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
