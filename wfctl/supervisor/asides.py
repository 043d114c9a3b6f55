"""Questions that take long to answer, answered beside the loop: they read the ledger through a connection of their own."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from wfctl.errors import Internal, IoError, WfctlError
from wfctl.operations.store import Store, open_store
from wfctl.operations.worker import Worker
from wfctl.rpc.session import Deferred

LOG = logging.getLogger("wfctl.supervisor")

Question = Callable[[Store], Any]


class Asides:
    """Works off questions one after another. `ask` and `finish` are for the thread of the loop."""

    def __init__(self, reopen: Callable[[], Store], on_answer: Callable[[], None]) -> None:
        self._reopen = reopen
        self._on_answer = on_answer
        self._worker = Worker("asides")
        self._answers: deque[tuple[Deferred, Any, WfctlError | None]] = deque()

    def ask(self, question: Question) -> Deferred:
        """Have a question answered; return where the answer will be. Raise IoError where no thread can be had."""
        answer = Deferred()
        if not self._worker.submit(lambda: self._work(answer, question)):
            raise IoError("the supervisor has no thread left to answer this; ask again, or read the store without it")
        return answer

    def finish(self) -> None:
        """Hand out the answers that are there."""
        while self._answers:
            answer, result, error = self._answers.popleft()
            if error is None:
                answer.complete(result)
            else:
                answer.fail(error)

    def close(self) -> None:
        """Answer no more."""
        self._worker.close()

    def _work(self, answer: Deferred, question: Question) -> None:
        result: Any = None
        error: WfctlError | None = None
        try:
            with self._reopen() as store:
                result = question(store)
        except WfctlError as refused:
            error = refused
        except Exception:
            LOG.exception("a question failed", extra={"action": "rpc_internal_error"})
            error = Internal("a question failed by a bug of wfctl; the log of the supervisor says more")
        self._answers.append((answer, result, error))
        self._on_answer()


def reopener(store: Store) -> Callable[[], Store]:
    """Return what opens the same store once more, seen through the same clock."""
    return lambda: open_store(store.root, clock=store.context.clock)
