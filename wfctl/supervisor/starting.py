"""Runs started by hand whose preflight is asked off the loop, so that a dead mount holds nobody up (contract 5.9, 6.12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wfctl.errors import PreflightFailed, Problem, Saturated, WfctlError
from wfctl.operations.runs import refuse_unready
from wfctl.rpc.session import Deferred
from wfctl.supervisor import preflighter

_AT_ONCE_S = 0.005  #: most checks answer at once; then so does the start
MOST = 32  #: starts that wait for their preflight, each with a thread of its own

Check = Callable[[], Sequence[Problem]]


@dataclass(slots=True)
class Starting:
    """One start that waits for its preflight. The answer is given by who runs the loop."""

    deployment_id: str
    bound: Mapping[str, Any]
    deadline: float
    answer: Deferred = field(default_factory=lambda: Deferred(in_turn=True))
    problems: Sequence[Problem] | None = None  #: what its preflight said

    def require_ready(self) -> None:
        """Raise PreflightFailed unless preflight has answered that nothing is wrong."""
        if self.problems is None:
            limit = preflighter.TIMEOUT_S
            data = {"problems": [], "reason": {"code": "preflight-timeout", "limit_s": limit}}
            raise PreflightFailed(f"deployment {self.deployment_id}: its preflight did not answer within {limit:g} s", data)
        refuse_unready(self.deployment_id, self.problems)


class StartingRuns:
    """All starts that wait. `begin`, `finish` and `give_up` are for the thread of the loop."""

    def __init__(self, monotonic: Callable[[], float], on_answer: Callable[[], None]) -> None:
        self._monotonic = monotonic
        self._on_answer = on_answer
        self._waiting: list[Starting] = []

    def begin(self, deployment_id: str, bound: Mapping[str, Any], check: Check) -> Deferred:
        """Ask preflight on a worker; return where the answer to the start will be. Call `finish_one` then, and when woken.

        Raise Saturated while too many wait already.
        """
        if len(self._waiting) >= MOST:
            raise Saturated(f"{MOST} runs wait for their preflight already; start this one again later", {"limit": MOST})
        starting = Starting(deployment_id, bound, self._monotonic() + preflighter.TIMEOUT_S)
        self._waiting.append(starting)
        worker = threading.Thread(target=self._ask, args=(starting, check), name="preflight", daemon=True)
        worker.start()
        worker.join(_AT_ONCE_S)
        return starting.answer

    def next_timer(self) -> float | None:
        """Return the monotonic time at which a start has waited for long enough."""
        return min((each.deadline for each in self._waiting), default=None)

    def finish_one(self, start: Callable[[Starting], Any]) -> bool:
        """Answer a start whose preflight has answered, or had its time, with what `start` returns or raises.

        Return whether there was one.
        """
        for starting in self._waiting:
            if starting.problems is None and self._monotonic() < starting.deadline:
                continue
            self._waiting.remove(starting)
            try:
                starting.require_ready()
                result = start(starting)
            except WfctlError as error:
                starting.answer.fail(error)
            else:
                starting.answer.complete(result)
            return True
        return False

    def give_up(self, error: WfctlError) -> None:
        """Refuse all that still wait."""
        waiting, self._waiting = self._waiting, []
        for starting in waiting:
            starting.answer.fail(error)

    def _ask(self, starting: Starting, check: Check) -> None:
        try:
            starting.problems = check()
        except Exception as error:  # a check that fails in an unforeseen way must still answer
            starting.problems = [Problem("", str(error))]
        self._on_answer()
