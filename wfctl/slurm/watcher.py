"""Looking at the cluster: one question for all jobs of the store, then what each answer calls for (contract 6.9, 7.1).

The question is asked every so often while anything is at work, and less often where the controller takes long to answer. While
nobody answers, nothing is concluded: runs stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition, Thread

from wfctl.slurm.commands import WAITING, JobLine, Slurm, Unreachable
from wfctl.slurm.jobs import Job, Phase, State, now
from wfctl.slurm.pool import Pool, begin
from wfctl.slurm.probing import Probes
from wfctl.slurm.tasks import AWAY, NODES, Tasks

LOG = logging.getLogger("wfctl.slurm")
_AT_ONCE = 32  #: executions followed by one task
_SOON_S = 0.25  #: after a stop
_LONGEST_PAUSE_S = 15.0
_SHARE = 10  #: of the time, a tenth at most is spent on asking
_LATE_S = 30.0  #: how long Slurm may take to clean up after an end that is on record, before its word is done without
_UNTOLD_S = 10.0  #: the same where it does not even know of an end: the node could not tell it
_LOOK_AGAIN_S = 60.0  #: at nodes that did not see the folder


class Watcher:
    """Asks in a thread of its own, which begins with the first thing to ask, and hands what follows to the pool."""

    def __init__(
        self,
        state: State,
        slurm: Slurm,
        tasks: Tasks,
        probes: Probes,
        pool: Pool,
        *,
        prefix: str,
        interval_s: Callable[[], float],
    ) -> None:
        self._state = state
        self._slurm = slurm
        self._tasks = tasks
        self._probes = probes
        self._pool = pool
        self._prefix = prefix
        self._interval_s = interval_s
        self._condition = Condition()
        self._look_at = 0.0
        self._is_closed = self._has_begun = False
        self._is_following = False
        self._looked_again_at = 0.0
        self.answered_at: float | None = None  #: when the last answer was asked for
        self.lines: Mapping[str, JobLine] = {}
        self.looks = 0  #: questions asked so far, answered or not
        self._thread = Thread(target=self._run, name="slurm-watcher", daemon=True)

    def soon(self, within_s: float = _SOON_S) -> None:
        """Look within so long, where anything is at work."""
        with self._condition:
            self._look_at = min(self._look_at, now() + within_s)
            if not self._has_begun and not self._is_closed:
                self._has_begun = True
                begin(self._thread)
            self._condition.notify_all()

    def close(self, patience_s: float) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._has_begun:
            self._thread.join(patience_s)

    def wait_for_look(self, since: float, patience_s: float) -> bool:
        """Wait until a question asked after `since` was answered, or nobody did; return whether it was answered."""
        self.soon(0.0)
        until, looks = now() + patience_s, self.looks
        with self._condition:
            while not (self.answered_at is not None and self.answered_at >= since) and now() < until and not self._is_closed:
                if self.looks > looks and AWAY in self._state.problems:
                    return False
                self._condition.wait(min(0.5, until - now()))
            return self.answered_at is not None and self.answered_at >= since

    def hand_out_one(self, job: Job) -> None:
        """Do what the last answer calls for about one execution that was entered after it."""
        running: list[Job] = []
        task = self._task_for(job, self.lines.get(job.name), now() + 1.0, running)
        if running:
            task = partial(self._follow_one, job)
        if task is not None and self._state.begin(job):
            self._pool.submit(task)

    def _follow_one(self, job: Job) -> None:
        try:
            self._tasks.follow([job])
        finally:
            job.decided.set()
            job.is_busy = False

    def _run(self) -> None:
        while self._wait():
            took = self._look()
            with self._condition:
                pause = min(max(self._interval_s(), _SHARE * took), max(_LONGEST_PAUSE_S, self._interval_s()))
                self._look_at = now() + pause
                self._condition.notify_all()

    def _wait(self) -> bool:
        """Wait until there is something to ask about, and its time has come; False once it is closed."""
        with self._condition:
            while not self._is_closed:
                left = self._look_at - now()
                if self._has_work() and left <= 0:
                    return True
                self._condition.wait(left if self._has_work() else None)
        return False

    def _has_work(self) -> bool:
        state = self._state
        return bool(state.jobs or state.problems or self._probes.is_asking or self._tasks.to_cancel)

    def _look(self) -> float:
        """Ask once, and hand out what follows; return how long the answer took."""
        began = now()
        try:
            lines = self._slurm.jobs(self._prefix)
        except Unreachable as error:
            self._tasks.away(error)
            self._end_of_look(None, began)
            return now() - began
        self._state.problem(AWAY, None)
        self._end_of_look(lines, began)
        took = now() - began
        if self._probes.is_asking:
            self._pool.submit(partial(self._tasks.conclude_probes, lines, began))
        if self._tasks.to_cancel:
            self._pool.submit(self._tasks.cancel_waiting)
        if NODES in self._state.problems and now() > self._looked_again_at + _LOOK_AGAIN_S:
            self._looked_again_at = now()
            self._pool.submit(self._tasks.look_again)
        self._hand_out(lines, began)
        return took

    def _end_of_look(self, lines: Mapping[str, JobLine] | None, began: float) -> None:
        with self._condition:
            self.looks += 1
            if lines is not None:
                self.lines, self.answered_at = lines, began
            self._condition.notify_all()
        if lines is None:
            for job in self._state.living():
                if job.phase is Phase.FENCED and self._state.begin(job):
                    self._pool.submit(partial(self._tasks.settle_fenced, job, None, is_away=True))

    def _hand_out(self, lines: Mapping[str, JobLine], began: float) -> None:
        running: list[Job] = []
        for job in self._state.living():
            task = self._task_for(job, lines.get(job.name), began, running)
            if task is not None and self._state.begin(job):
                self._pool.submit(task)
        if running and not self._is_following:
            self._is_following = True
            parts = [running[at : at + _AT_ONCE] for at in range(0, len(running), _AT_ONCE)]
            for part in parts[:-1]:
                self._pool.submit(partial(self._tasks.follow, part))
            self._pool.submit(partial(self._follow_last, parts[-1]))

    def _follow_last(self, part: list[Job]) -> None:
        try:
            self._tasks.follow(part)
        finally:
            self._is_following = False

    def _task_for(self, job: Job, line: JobLine | None, began: float, running: list[Job]) -> Callable[[], None] | None:
        """Return what is to be done about an execution now that the controller has said this of its job."""
        if job.is_busy or job.phase in (Phase.QUEUED, Phase.WAITING):
            return None
        if job.phase is Phase.HELD:
            return partial(self._tasks.release, job)
        if line is None and job.sent_at >= began:
            return None  # the question is older than its submission
        if job.phase is Phase.FENCED:
            return partial(self._tasks.settle_fenced, job, line, is_away=False)
        job.is_in_doubt = line is None or line.state == "CANCELLED"
        if line is None or line.is_over:
            return partial(self._tasks.settle, job, line)
        if line.is_put_back:
            return partial(self._tasks.take_back, job, line)
        says, said = (line.state, line.reason), None if job.line is None else (job.line.state, job.line.reason)
        is_news = says == said != job.noted  # what it says in passing is not worth a file
        job.line = line
        patience_s = _UNTOLD_S if line.state == "RUNNING" else _LATE_S
        if job.end_seen_at is not None and now() > job.end_seen_at + patience_s:
            return partial(self._tasks.settle, job, None)
        if job.kill_at is not None and now() > job.kill_at:
            return partial(self._tasks.kill, job)
        if line.state in WAITING:
            job.decided.set()
        else:
            running.append(job)
        if is_news:
            job.noted = says
            return partial(self._tasks.note, job, line)
        return None
