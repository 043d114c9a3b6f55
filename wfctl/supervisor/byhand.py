"""Runs that somebody starts, resumes or cancels by way of the supervisor (contract 6.12 to 6.14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from wfctl.core.model import FINISHED, Status, run_name
from wfctl.errors import Draining
from wfctl.operations import runs as operations
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.operations.listing import require_run
from wfctl.operations.views import RunView
from wfctl.rpc.session import Deferred
from wfctl.store.ledger.runs import RunRow
from wfctl.supervisor.starting import StartingRuns


class RunsByHand:
    """Carries out what is asked of the runs of one supervisor, in the thread of its loop.

    `is_draining` tells whether nothing may be started or resumed, `slots_of` how many slots the executor of a run has, `view`
    shows one.
    """

    def __init__(
        self,
        context: Context,
        driver: Driver,
        starting: StartingRuns,
        *,
        is_draining: Callable[[], bool],
        slots_of: Callable[[RunRow], int],
        view: Callable[[str], RunView],
    ) -> None:
        self._context = context
        self._driver = driver
        self._starting = starting
        self._is_draining = is_draining
        self._slots_of = slots_of
        self._view = view

    def start(self, deployment_id: str, given: Any) -> str:
        """Enter a run by hand and have it launched; return its id. Raise Draining, and what `check_manual` raises."""
        if self._is_draining():
            raise _draining()
        return self._admit(deployment_id, operations.check_manual(self._context, deployment_id, given))

    def begin(self, deployment_id: str, given: Any) -> Deferred:
        """Start a run by hand as `start` does, with its preflight off the loop; the view of the run comes later."""
        if self._is_draining():
            raise _draining()
        bound = operations.manual_input(given)
        check = operations.preflight_for(self._context, deployment_id, bound)
        answer = self._starting.begin(deployment_id, bound, check)
        self.finish_one()
        return answer

    def finish_one(self) -> bool:
        """Go on with a start whose preflight has answered; return whether there was one."""
        if self._is_draining():
            self._starting.give_up(_draining())
        return self._starting.finish_one(lambda each: self._view(self._admit(each.deployment_id, each.bound)))

    def resume(self, run_id: str, given: Any) -> None:
        """Give input to an interrupted run. Raise Draining, NotFound, WrongState, InvalidDefinition, Saturated."""
        row = require_run(self._context.ledger.connection, run_id)
        if self._is_draining():
            raise Draining(
                f"the supervisor is draining and resumes nothing; resume {run_id} when that is over", {"run_id": run_id}
            )
        self._driver.resume(row.number, given, slots=self._slots_of(row))

    def cancel(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        """Record a cancel and have the run's processes told. Raise NotFound, WrongState when it is over."""
        row = require_run(self._context.ledger.connection, run_id)
        if row.status in FINISHED:
            raise operations.already_over(row)
        self._driver.doubts.refuse(row.number)
        stop = operations.cancel_reason(self._context, reason)
        grace = None if grace_s is None else timedelta(seconds=grace_s)
        if row.number in self._driver.live or row.status is Status.INTERRUPTED or row.schedule is not None:
            self._driver.stop(row.number, stop, grace=grace)
        else:
            operations.cancel_driven(self._context, row, stop, grace)

    def _admit(self, deployment_id: str, bound: Mapping[str, Any]) -> str:
        new = operations.admit_manual(self._context, deployment_id, bound, self._driver.mark_note)
        self._driver.launch_admitted([new])
        return run_name(new.number)


def _draining() -> Draining:
    return Draining("the supervisor is draining and starts nothing; try again when it is back")
