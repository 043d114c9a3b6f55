"""One thread for what may take long and that nobody waits for: it lives as long as there is something to do."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

LOG = logging.getLogger("wfctl.worker")


class Worker:
    """Does jobs one after another on a thread of its own. What is not done when the process ends must bear being lost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, job: Callable[[], None]) -> bool:
        """Have a job done. Return False where no thread can be had, or it is closed: the job is dropped then."""
        with self._lock:
            if self._is_closed:
                return False
            self._jobs.append(job)
            if self._thread is not None:
                return True
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left
                self._jobs.pop()
                return False
            self._thread = thread
            return True

    @property
    def is_busy(self) -> bool:
        """Tell whether something is being done."""
        return self._thread is not None

    def close(self, timeout_s: float = 5.0) -> None:
        """Do no more than the job at hand, and wait for that for a while."""
        with self._lock:
            self._is_closed = True
            self._jobs.clear()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception:
                LOG.exception("a job of %s failed", self._name, extra={"action": "worker_failed"})
