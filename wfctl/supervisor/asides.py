"""What takes long to answer is worked out beside the loop; the loop only hands the answers out, when it has time.

Questions read the ledger through a connection of their own, opened for the first and kept for the next. Two workers take them,
so that what takes seconds holds up only its like; a third one reads large frames. A question whose asker is gone is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from wfctl.errors import Internal, IoError, WfctlError
from wfctl.operations.store import Store, open_store
from wfctl.operations.worker import Worker
from wfctl.rpc.session import Deferred, Encoded

LOG = logging.getLogger("wfctl.supervisor")

Question = Callable[[Store], Any]
Then = Callable[[Any], Any]


class Asides:
    """`ask`, `work_out`, `finish_one`, `renew` and `close` are for the thread of the loop.

    Where no thread or no descriptor is to be had, questions are answered in the loop, by the `own` store that it has open.
    """

    def __init__(self, reopen: Callable[[], Store], on_answer: Callable[[], None], own: Store) -> None:
        self._on_answer = on_answer
        self._own = own
        self._quick, self._slow = _Bench("asides", reopen), _Bench("asides-slow", reopen)
        self._reader = Worker("frames")
        self._answers: deque[_Answer] = deque()

    def ask(self, question: Question, *, is_slow: bool = False, then: Then | None = None) -> Deferred:
        """Have a question answered, its asker's next request after it; return where the answer will be.

        `then` makes the answer out of what the question gave, in the loop.
        """
        bench = self._slow if is_slow else self._quick
        return self._submit(bench.worker, _Answer(lambda: question(bench.store()), then, lambda: question(self._own)))

    def work_out(self, job: Callable[[], Any]) -> Deferred:
        """Have something done that needs no store."""
        return self._submit(self._reader, _Answer(job, _as_it_is, job))

    def finish_one(self) -> bool:
        """Hand out one answer that is there. Return whether there was one."""
        if not self._answers:
            return False
        self._answers.popleft().finish()
        return True

    def renew(self) -> None:
        """Trust nothing that is held open: the next questions open the store anew (2.10)."""
        self._quick.is_stale = self._slow.is_stale = True

    def close(self) -> None:
        """Answer no more."""
        for bench in (self._quick, self._slow):
            bench.close()
        self._reader.close()

    def _submit(self, worker: Worker, answer: _Answer) -> Deferred:
        if not worker.submit(lambda: self._work(answer)):
            answer.must_be_own = True
            self._answers.append(answer)
        return answer.deferred

    def _work(self, answer: _Answer) -> None:
        if answer.deferred.is_wanted:
            answer.work()
        self._answers.append(answer)
        self._on_answer()


class _Answer:
    """A question on its way to being answered."""

    def __init__(self, job: Callable[[], Any], then: Then | None, own: Callable[[], Any]) -> None:
        self.deferred = Deferred(in_turn=True)
        self.must_be_own = False  #: it can only be answered in the loop
        self._job = job
        self._then = then
        self._own = own
        self._result: Any = None
        self._error: WfctlError | None = None

    def work(self) -> None:
        """Answer it, on a worker."""
        try:
            self._attempt(self._job, None if self._then else Encoded)
        except _Unopened:
            self.must_be_own = True

    def finish(self) -> None:
        """Give the answer, in the loop."""
        if self.must_be_own:
            self._attempt(self._own, None)
        if self._error is None and self._then is not None:
            self._attempt(lambda: self._result, self._then)
        if self._error is None:
            self.deferred.complete(self._result)
        else:
            self.deferred.fail(self._error)

    def _attempt(self, job: Callable[[], Any], then: Then | None) -> None:
        try:
            result = job()
            self._result = result if then is None else then(result)
        except _Unopened:
            raise
        except WfctlError as refused:
            self._error = refused
        except Exception as bug:
            LOG.error("a question failed", exc_info=bug, extra={"action": "rpc_internal_error"})
            self._error = Internal("a question failed by a bug of wfctl; the log of the supervisor says more")


class _Unopened(Exception):
    """A worker could not open the store."""


def _as_it_is(result: Any) -> Any:
    return result


class _Bench:
    """A worker, and the store that it has open. Only the worker's job at hand uses it."""

    def __init__(self, name: str, reopen: Callable[[], Store]) -> None:
        self.worker = Worker(name)
        self.is_stale = False
        self._reopen = reopen
        self._store: Store | None = None

    def store(self) -> Store:
        """Return the open store. Raise _Unopened."""
        if self.is_stale and self._store is not None:
            self._store.close()
            self._store = None
        if self._store is None:
            self.is_stale = False
            try:
                self._store = self._reopen()
            except (IoError, OSError) as error:
                raise _Unopened from error
        return self._store

    def close(self) -> None:
        self.worker.close()
        if self._store is not None and not self.worker.is_busy:  # one that takes longer than we wait ends with the process
            self._store.close()


def reopener(store: Store) -> Callable[[], Store]:
    """Return what opens the same store once more, seen through the same clock."""
    return lambda: open_store(store.root, clock=store.context.clock)
