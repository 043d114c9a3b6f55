"""The executor: what a keeper is on one machine, a cluster is through this (contract 6.9 to 6.11).

Slurm outlives a driver as a keeper does, so nothing here has to: what an executor holds in mind is found again by the names of
its jobs and by what lies on the shared folder. The driver's thread is never held up by either: it queues what it wants, and is
told by a descriptor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

from wfctl.errors import IoError
from wfctl.keeper.protocol import (
    ANSWER_WITHIN,
    PROTOCOL,
    Ended,
    Holding,
    KeeperHello,
    LaunchRequest,
    NotLaunched,
    Origin,
    Refused,
    Reports,
    Standing,
    Standings,
)
from wfctl.settings import SlurmSettings
from wfctl.slurm.absent import PLACE
from wfctl.slurm.arguments import name_of, prefix_of
from wfctl.slurm.commands import Slurm
from wfctl.slurm.ends import Outcome, outcome_from
from wfctl.slurm.folder import WORD, Folder, read_table, write_whole
from wfctl.slurm.jobs import Job, Key, Phase, State, now
from wfctl.slurm.pool import Pool
from wfctl.slurm.probing import Probes
from wfctl.slurm.tasks import FOLDER, Tasks
from wfctl.slurm.watcher import Watcher

SCRIPT = Path(__file__).with_name("job.py")
THREADS = 8  #: submissions at once, and whatever else waits for the cluster
_FRESH_S = 2.0  #: an answer so young is not asked for again when something is forbidden
_FORBID_S = 3.0  #: beyond that it is taken for held: the truth is reported when it is known
_STUCK_S = 30.0
_CLOSE_S = 5.0


class SlurmExecutor:
    """Launches, stops and watches executions on a cluster. Not for several drivers of one run at once."""

    def __init__(
        self,
        settings: SlurmSettings,
        *,
        store_id: str,
        runs: Path,
        environ: Mapping[str, str],
        max_output: Callable[[], int] = lambda: 64 << 20,
        threads: int = THREADS,
    ) -> None:
        """`runs`: where the directories of the store's runs lie. Nobody is asked anything, nor a thread begun, before need."""
        self.settings = settings
        self._store_id = store_id
        self._runs = runs
        self.folder = Folder(settings.shared, store_id, runs)
        self.slurm = Slurm(settings.bin, environ, conf=settings.conf)
        self._state = State()
        self._pool = Pool(threads, "slurm")
        self.probes = Probes(self.slurm, self.folder, store_id, self.script, settings.python)
        self._tasks = Tasks(
            self._state, self.slurm, self.folder, self.probes, runs=runs, script=self.script, max_output=max_output
        )
        self.watcher = Watcher(
            self._state, self.slurm, self._tasks, self.probes, self._pool,
            prefix=prefix_of(store_id), interval_s=lambda: self.settings.poll_interval_s,
        )  # fmt: skip
        self._script: Path | None = None
        self._closed = False

    # -- what a driver asks of whatever launches -------------------------------------------------------------------------

    @property
    def hello(self) -> KeeperHello:
        """It has been there since before any mark: what it proves never to have been launched never was (6.10)."""
        return KeeperHello(protocol=PROTOCOL, pid=os.getpid(), since_ns=0, boot_id=PLACE, origin=Origin.SUPERVISOR)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def wants_write(self) -> bool:
        return False

    def fileno(self) -> int:
        return -1 if self._closed else self._state.notice

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        """A job is written down when it is submitted."""

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Queue the launches; each is submitted once, ever."""
        for request in requests:
            key = (request.run, request.k)
            with self._state.lock:
                if self._closed or key in self._state.seen:
                    continue
                job = self._entered(key, Phase.QUEUED, request)
                job.is_busy = True
            self._pool.submit(partial(self._tasks.submit, job))
        self.watcher.soon(self.settings.poll_interval_s)

    def flush(self) -> None:
        """Nothing is queued that could be written."""

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """TERM now, KILL after `grace`. Idempotent; what has not begun never will."""
        with self._state.lock:
            job = self._state.jobs.get((run, k))
            if job is None:
                return
            grace_s = grace.total_seconds()
            if job.is_asked and job.grace_s is not None and job.grace_s <= grace_s:
                return
            job.is_asked, job.grace_s = True, grace_s
            is_free = self._state.begin(job)
        if is_free:
            self._pool.submit(partial(self._tasks.stop, job))
        self.watcher.soon()

    def stop_now(self, run: str, k: int, grace: timedelta) -> None:
        """Have an execution that another process drives stop, and return once it was told. Raise OSError."""
        job = Job(run, k, name_of(self._store_id, run, k), Phase.SENT, is_asked=True, grace_s=grace.total_seconds())
        self._tasks.tell(job)

    def forbid(self, run: str, k: int, timeout: timedelta = ANSWER_WITHIN) -> Standing:
        """Return what is known of an execution: looked up by its name, and kept from ever running where there is no job of it.

        What cannot be told in time is taken for running; its end, or that it never began, is reported later.
        """
        if self._closed:
            raise IoError("the executor is closed")
        key = (run, k)
        with self._state.lock:
            job = self._state.jobs.get(key)
            outcome = self._state.ended.get(key)
        if outcome is None and job is None:
            outcome = self._written(key)
        if outcome is not None:
            return _standing(key, outcome)
        if job is None:
            with self._state.lock:
                job = self._entered(key, Phase.SENT, None)
            patience = min(timeout.total_seconds(), _FORBID_S)
            until = now() + patience
            if self._has_fresh_answer() or self.watcher.wait_for_look(job.sent_at, patience):
                self.watcher.hand_out_one(job)
                job.decided.wait(max(0.0, until - now()))
        with self._state.lock:
            outcome = self._state.ended.get(key)
        return (
            _standing(key, outcome)
            if outcome is not None
            else Standing(run=run, k=k, state=Holding.RUNNING, started=job.started)
        )

    def list(self, timeout: timedelta = ANSWER_WITHIN) -> Standings:
        """Return everything whose end was not reported."""
        return [Standing(run=job.run, k=job.k, state=Holding.RUNNING, started=job.started) for job in self._state.living()]

    def poll(self) -> Reports:
        """Return what was reported since the last call, without waiting."""
        return self._state.take()

    def close(self) -> None:
        """Let go; runs go on. What is being submitted is waited for a little, so that its job need not be looked for."""
        if self._closed:
            return
        self._closed = True
        self._pool.close(_CLOSE_S)
        self.watcher.close(0.1)

    # -- what an operator is told ----------------------------------------------------------------------------------------

    @property
    def problems(self) -> dict[str, str]:
        """Return what keeps the cluster from being used, by kind; nothing is admitted to it meanwhile."""
        with self._state.lock:
            found = dict(self._state.problems)
        stuck = self._pool.longest_s()
        if stuck > _STUCK_S and FOLDER not in found:
            found[FOLDER] = f"the shared folder {self.settings.shared} or a command of Slurm has not answered for {stuck:.0f} s"
        return found

    def waiting(self) -> dict[str, str]:
        """Return what Slurm says of runs that have not begun: `run-000001` -> `PENDING, Priority`."""
        found = {}
        for job in self._state.living():
            if job.line is not None and not job.is_reported:
                found[job.run] = job.line.state + (f", {job.line.reason}" if job.line.reason else "")
        return found

    def aside(self, task: Callable[[], None]) -> None:
        """Have something done that waits for the folder; it must bear being lost."""
        self._pool.submit(task)

    # -- its parts -------------------------------------------------------------------------------------------------------

    def script(self) -> Path:
        """Return the job's script on the shared folder, put there where it is not. Raise OSError, FolderProblem."""
        if self._script is None:
            self.folder.prepare()
            self._script = put_script(self.folder, self.settings.python)
        return self._script

    def _entered(self, key: Key, phase: Phase, request: LaunchRequest | None) -> Job:
        run, k = key
        job = Job(run, k, name_of(self._store_id, run, k), phase, request, sent_at=now())
        self._state.add(job)
        return job

    def _has_fresh_answer(self) -> bool:
        """Tell whether the controller has answered a moment ago: what came of an earlier driver is known by that as well."""
        answered = self.watcher.answered_at
        return answered is not None and now() - answered < _FRESH_S

    def _written(self, key: Key) -> Outcome | None:
        """Return what an earlier executor wrote down of an end, before it could be told."""
        run, k = key
        with contextlib.suppress(OSError):
            table = read_table(self._runs / run / str(k) / WORD)
            return None if table is None else outcome_from(table.get("verdict"))
        return None


def put_script(folder: Folder, python: str) -> Path:
    """Put the job's script onto the shared folder, under a name of its content. Raise OSError."""
    import hashlib

    text = SCRIPT.read_bytes()
    if python != "/usr/bin/python3":
        text = b"#!" + os.fsencode(python) + b" -IS\n" + text.partition(b"\n")[2]
    path = folder.root / f"job-{hashlib.sha256(text).hexdigest()[:12]}.py"
    if not path.exists() or path.read_bytes() != text:
        write_whole(path, text, mode=0o700)
    return path


def _standing(key: Key, outcome: Outcome) -> Standing:
    run, k = key
    if isinstance(outcome, NotLaunched):
        return Standing(run=run, k=k, state=Holding.FORBIDDEN)
    if isinstance(outcome, Refused):
        return Standing(run=run, k=k, state=Holding.ENDED, refused=outcome)
    assert isinstance(outcome, Ended)
    return Standing(run=run, k=k, state=Holding.ENDED, ended=outcome)
