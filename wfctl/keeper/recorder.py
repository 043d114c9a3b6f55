"""Making exit records durable, beside the loop: a slow disk delays the report of an end, never a launch (contract 6.9).

One thread takes whatever ended meanwhile and syncs it at once, in the journal. Where the job left files of its own, and what
the journal does not take, goes to a few more that sync file by file. None of them launches, changes directory or handles a
signal.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from wfctl.keeper.journal import Journal, JournalFull
from wfctl.keeper.protocol import End, Refused
from wfctl.keeper.records import encode_record, write_record, write_record_unsynced

_THREADS = 3  # so that a file system can take many syncs as one
_AT_ONCE = 256  # records of one batch
_LEFT_BY_THE_JOB = ("output", "checkpoint", "interrupt")  # of this execution; synced before its record (6.4)
_TRIES, _RETRY_S = 100, 0.1  # for a system that has no descriptor, memory or space left
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Recording:
    """One record to write."""

    outcome: End | Refused
    directory: str
    is_durable: bool = False
    speaks: bool = True  #: False: its directory has none of the files that a driver would read


class Recorder:
    """Takes recordings, hands each back once it is durable, or once that proved impossible."""

    def __init__(self, journal: Journal | None = None) -> None:
        """Given the journal of a keeper for many runs; without one each record is synced in its own file."""
        self.pending = 0
        self._journal = journal
        self._queue: SimpleQueue[Recording] = SimpleQueue()
        self._apart: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._done: deque[Recording] = deque()
        self._notice = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        Thread(target=self._work, daemon=True).start()
        for _ in range(_THREADS):
            Thread(target=self._work_apart, daemon=True).start()
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
            batch = [self._queue.get()]
            try:
                while len(batch) < _AT_ONCE:
                    batch.append(self._queue.get_nowait())
            except Empty:
                pass
            apart = batch if self._journal is None else self._write_in_journal(self._journal, batch)
            for recording in apart:
                self._apart.put(lambda recording=recording: self._write_apart(recording))  # type: ignore[misc]

    def _write_in_journal(self, journal: Journal, batch: list[Recording]) -> list[Recording]:
        """Write what is nothing but a record, and make it durable at once; return the rest."""
        plain, apart, records = [], [], []
        for recording in batch:
            place = journal.place_of(recording.directory)
            if place is None or _has_left_files(recording.directory):
                apart.append(recording)
                continue
            record = encode_record(recording.outcome)
            try:
                write_record_unsynced(recording.directory, record)
            except OSError:
                apart.append(recording)
                continue
            plain.append(recording)
            records.append((place, record))
        if not plain:
            return apart
        try:
            full = journal.append(records)
        except (JournalFull, OSError):
            return apart + plain
        for recording in plain:
            recording.is_durable, recording.speaks = True, False
        self._hand_back(plain)
        if full is not None:
            self._apart.put(lambda: journal.carry_over(full))
        return apart

    def _work_apart(self) -> None:
        while True:
            work = self._apart.get()
            try:
                work()
            except OSError:
                continue  # a half that could not be synced stays as it is: it is not used again

    def _write_apart(self, recording: Recording) -> None:
        try:
            _write_patiently(recording)
            recording.is_durable = True
        except Exception:
            recording.is_durable = False  # the report says so; the driver then trusts the report alone
        self._hand_back([recording])

    def _hand_back(self, recordings: list[Recording]) -> None:
        self._done.extend(recordings)
        os.eventfd_write(self._notice, 1)


def _has_left_files(directory: str) -> bool:
    """Tell whether the job left a file that is to be synced before its record; also where that cannot be told."""
    try:
        return not _LEFT_NAMES.isdisjoint(os.listdir(directory))  # noqa: PTH208 - names only
    except OSError:
        return True


_LEFT_NAMES = frozenset(_LEFT_BY_THE_JOB)


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
