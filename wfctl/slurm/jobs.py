"""What the executor keeps in mind: one entry an execution, from the launch that was asked for to the report of its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from threading import Event, RLock

from wfctl.keeper.marks import Marks
from wfctl.keeper.protocol import LaunchRequest, Reports, Started
from wfctl.slurm.commands import JobLine
from wfctl.slurm.ends import Outcome
from wfctl.slurm.staging import LogCarrier

Key = tuple[str, int]
_ENDED_KEPT = 2000


class Phase(Enum):
    """Where an execution stands, as far as the executor has to do something about it."""

    QUEUED = "queued"  #: its submission waits for a thread
    WAITING = "waiting"  #: for a node to see the shared folder
    HELD = "held"  #: the controller is away: nothing of it was ever sent
    SENT = "sent"  #: submitted, or perhaps: looked for by its name
    FENCED = "fenced"  #: it never will run; its job is cancelled, and to be seen gone


@dataclass(slots=True, eq=False)
class Job:
    """One execution. Times are monotonic seconds."""

    run: str
    k: int
    name: str
    phase: Phase
    request: LaunchRequest | None = None  #: until it is submitted
    sent_at: float = 0.0  #: what a listing begun later does not know, the controller does not know
    line: JobLine | None = None  #: what the controller said last
    noted: tuple[str, str] | None = None  #: what of that was written down: state and reason
    started: Started | None = None
    is_reported: bool = False  #: that it started
    is_asked: bool = False  #: the driver has asked for a stop
    grace_s: float | None = None  #: of that stop
    obeyed_s: float | None = None  #: the grace with which its job was told
    kill_at: float | None = None  #: when Slurm is to end what has not ended by itself
    fenced_at: float = 0.0
    is_in_doubt: bool = False  #: the controller does not know it, or not who cancelled it
    put_back: JobLine | None = None  #: as Slurm put it back into its queue, from where it was cancelled
    doubt_since: float | None = None  #: no end and no job any more: its node was asked whether it lives
    end_seen_at: float | None = None
    is_busy: bool = False  #: a task is at work on it
    carrier: LogCarrier | None = None
    decided: Event = field(default_factory=Event)  #: set once it is known whether it lives

    @property
    def key(self) -> Key:
        return (self.run, self.k)


class State:
    """What the driver's thread, the watching one and the pool share."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.jobs: dict[Key, Job] = {}
        self.seen = Marks()  #: everything that was ever asked for or forbidden here
        self.ended: OrderedDict[Key, Outcome] = OrderedDict()  #: the latest ends
        self.problems: dict[str, str] = {}  #: by kind: what keeps the cluster from being used
        self.notice = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._reports: Reports = []

    def add(self, job: Job) -> None:
        """Enter an execution."""
        with self.lock:
            self.jobs[job.key] = job
            self.seen.add(job.run, job.k)

    def living(self) -> list[Job]:
        """Return every execution whose end has not been reported."""
        with self.lock:
            return list(self.jobs.values())

    def begin(self, job: Job) -> bool:
        """Take an execution for a task; False where another has it, or it is over."""
        with self.lock:
            if job.is_busy or self.jobs.get(job.key) is not job:
                return False
            job.is_busy = True
            return True

    def must_obey(self, job: Job) -> bool:
        """Tell whether a stop was asked for, perhaps while a task had it, that nobody has told its job; if not, let it go."""
        with self.lock:
            must = job.is_asked and job.obeyed_s != job.grace_s and job.phase is not Phase.FENCED
            job.is_busy = must
            return must

    def report_started(self, job: Job, started: Started) -> None:
        """Tell the driver that a program is at work."""
        with self.lock:
            if job.is_reported or self.jobs.get(job.key) is not job:
                return
            job.started, job.is_reported = started, True
            self._reports.append(started)
        self.wake()

    def report_end(self, job: Job, outcome: Outcome) -> None:
        """Tell the driver that an execution is over, once."""
        with self.lock:
            if self.jobs.get(job.key) is not job:
                return
            del self.jobs[job.key]
            self.ended[job.key] = outcome
            while len(self.ended) > _ENDED_KEPT:
                self.ended.popitem(last=False)
            self._reports.append(outcome)
        job.decided.set()
        self.wake()

    def take(self) -> Reports:
        """Return what was reported since the last call."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.eventfd_read(self.notice)
        with self.lock:
            reports, self._reports = self._reports, []
        return reports

    def wake(self) -> None:
        """Make the descriptor readable."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self.notice, 1)

    def problem(self, kind: str, message: str | None) -> None:
        """Show a problem, or with None that it is over; the driver's loop is woken where that changes anything."""
        with self.lock:
            before = self.problems.get(kind)
            if message is None:
                self.problems.pop(kind, None)
            elif before is None:
                self.problems[kind] = message
        if (before is None) != (message is None):
            self.wake()


def now() -> float:
    return time.monotonic()
