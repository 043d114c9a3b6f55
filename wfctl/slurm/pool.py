"""A few threads for what may take long: commands of Slurm, and the shared folder.

They never touch the ledger. Where the folder's server does not answer they hang, and nobody with them; how long the longest has
been at its work is asked by who tells the operator.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

LOG = logging.getLogger("wfctl.slurm")


class Pool:
    """Runs tasks in the order in which they came, so many at once. A task that fails by a bug is logged.

    Its threads begin with the first task.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._begun: dict[int, float] = {}  #: by thread: since when it is at its present task
        self._is_closed = False
        self._most, self._name = threads, name
        self._threads: list[Thread] = []

    def submit(self, task: Callable[[], None]) -> None:
        """Have a task done; after `close` it never is."""
        self._queue.put(task)
        with self._lock:
            if len(self._threads) < self._most and not self._is_closed:
                number = len(self._threads)
                thread = Thread(target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                begin(thread)

    def longest_s(self) -> float:
        """Return for how long the task has been at work that has been longest; 0 where none is."""
        with self._lock:
            return max((time.monotonic() - begun for begun in self._begun.values()), default=0.0)

    def close(self, patience_s: float) -> None:
        """Begin no other task; wait so long for those at work."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        until = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self, number: int) -> None:
        while (task := self._queue.get()) is not None and not self._is_closed:
            with self._lock:
                self._begun[number] = time.monotonic()
            try:
                task()
            except Exception:
                LOG.exception("a task of the cluster's executor failed", extra={"action": "slurm_task_failed"})
            finally:
                with self._lock:
                    self._begun.pop(number, None)


def begin(thread: Thread) -> None:
    """Start a thread that handles no signal of the process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
