"""What is done shortly before an instant, so that at the instant itself there is only to commit and to launch (contract 6.3).

The supervisor wakes a little early, decides as if the instant had come, and makes ready what the runs will need. Nothing of it
is recorded, and nothing is bound by it: where anything has changed by the instant, the round is decided anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from wfctl.errors import WfctlError
from wfctl.operations import rounds
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.operations.rounds import Preflight, PreparedRound, RoundPlan
from wfctl.store.ledger import runs, schedules
from wfctl.supervisor.stocking import MOST, Stocking

LOG = logging.getLogger("wfctl.ahead")
_LEAD, _LEAD_EACH, _LONGEST_LEAD = timedelta(milliseconds=10), timedelta(milliseconds=1), timedelta(seconds=2)
_TOGETHER = timedelta(seconds=1)  #: how long after the next instant what comes due is counted for the stock


class AheadOfTime:
    """Prepares the next instant of one supervisor."""

    def __init__(self, context: Context, driver: Driver, stocking: Stocking) -> None:
        self._context = context
        self._driver = driver
        self._stocking = stocking
        self._counted: tuple[datetime, int] | None = None  #: an instant, and how many schedules come due then
        self._prepared: PreparedRound | None = None
        self._prepared_for: datetime | None = None

    def wake_for(self, due: datetime, now: datetime, plan: RoundPlan, preflight: Callable[[], Preflight]) -> datetime:
        """Given the next instant, which lies ahead, return when to wake for it; prepare it once it is near."""
        if self._prepared_for == due:
            return due
        early = due - self._lead(due, plan)
        if now < early:
            return early
        self._prepared_for = due
        try:
            self._prepared = rounds.prepare_round(self._context, plan, preflight(), due)
            if self._prepared is not None:
                self._driver.make_ready(self._prepared.runs)
        except WfctlError as error:  # the instant itself will say so
            LOG.debug("not prepared: %s", error.message, extra={"action": "not_prepared"})
            self._prepared = None
        return due

    def commit(self, plan: RoundPlan, now: datetime) -> list[runs.NewRun] | None:
        """Record what was prepared for this instant, if it still holds, and return the runs; else None."""
        prepared, self._prepared, self._prepared_for = self._prepared, None, None
        if prepared is None:
            return None
        if now < prepared.at:
            self._prepared, self._prepared_for = prepared, prepared.at
            return None
        return rounds.commit_prepared(self._context, plan, prepared, now)

    def let_go(self) -> None:
        """Forget what was prepared: admission has stopped."""
        self._prepared = self._prepared_for = None
        self._driver.unready()

    def _lead(self, due: datetime, plan: RoundPlan) -> timedelta:
        """Return how long before an instant its preparation begins; where it is new, have what it needs stocked."""
        if self._counted is None or self._counted[0] != due:
            with self._context.ledger.reading() as connection:
                most = max(1, min(plan.slots - runs.slots_used(connection), MOST))
                soon = schedules.count_waking(connection, due + _TOGETHER, most)
                self._counted = (due, schedules.count_waking(connection, due, most))
            self._stocking.want(soon)
        return min(_LEAD + self._counted[1] * _LEAD_EACH, _LONGEST_LEAD)
