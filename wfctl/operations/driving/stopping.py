"""Limits and stops: recorded before the first signal, and what is recorded decides the outcome (contract 6.8, 6.11)."""

from __future__ import annotations

import signal
from datetime import timedelta

from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import FINISHED, Reason, Status, run_name
from wfctl.core.steps import Conclude, Mark
from wfctl.linux import signal_group
from wfctl.operations import telling
from wfctl.operations.driving.launches import Launching
from wfctl.operations.driving.state import LOG, Live
from wfctl.store.ledger import definitions, executions, runs
from wfctl.store.ledger.runs import RunRow


class Stopping(Launching):
    """Ends runs: on request, at a limit, or for a step that took too long."""

    def stop(self, number: int, reason: Reason, *, grace: timedelta | None = None) -> bool:
        """End a run: recorded with its reason before the first signal; what is recorded decides the outcome (6.11).

        Return False when it has ended, or a stop of it is recorded already. Raise Blocked where it is left alone.
        """
        self.doubts.refuse(number)
        stops: list[tuple[Live, timedelta]] = []
        with self._recording():
            recorded = self._record_stop(number, reason, stops, grace)
        for live, wait in stops:
            self._signal(live, wait)
        return recorded

    def resumed(self) -> list[int]:
        """Return the runs at work in a later attempt than their first: somebody resumed them."""
        found = (runs.find(self.context.ledger.connection, number) for number in self.live)
        return [run.number for run in found if run is not None and run.attempt > 1]

    def hurry(self, number: int, grace: timedelta) -> None:
        """Give what is stopped already so long at most until SIGKILL."""
        live = self.live.get(number)
        if live is not None:
            self._signal(live, grace)

    def finish_stopped(self, number: int) -> None:
        """Conclude a run that rests between two steps and for which another process recorded a stop."""
        run = runs.find(self.context.ledger.connection, number)
        live = self.live.get(number)
        if run is not None and run.stop is not None and live is not None and live.retry_at is not None:
            with self._recording():
                self._follow(number)

    def _record_stop(
        self, number: int, reason: Reason, stops: list[tuple[Live, timedelta]], grace: timedelta | None = None
    ) -> bool:
        connection = self.context.ledger.connection
        if not runs.record_stop(connection, number, reason):
            return False
        run = runs.find(connection, number)
        assert run is not None
        live = self.live.get(number)
        if run.status is not Status.INTERRUPTED and any(row.how is None for row in executions.of_run(connection, number)):
            if live is not None:
                live.deadline = live.step_deadline = live.overdue_at = None
                stops.append((live, self._grace_of(run) if grace is None else grace))
        elif run.status is Status.INTERRUPTED:
            event = RunEvent.CANCELLED if reason["code"] == "cancelled" else RunEvent.FAILED
            self._conclude(run, Conclude(event, reason), self._ends_of(run))
        else:
            self._follow(number)
        return True

    def _signal(self, live: Live, grace: timedelta) -> None:
        """Have the group told to end, and after `grace` killed: by its keeper, or by us where none holds it."""
        if live.k is None:
            return
        if live.keeper is not None and not live.keeper.closed:
            live.keeper.stop(run_name(live.number), live.k, grace)
        elif live.process is not None:
            signal_group(*live.process, signal.SIGTERM if grace else signal.SIGKILL)
            live.kill_at = self.context.clock.monotonic() + grace.total_seconds() if grace else None

    def _is_timer_due(self, moment: float) -> bool:
        return any(time <= moment for live in self.live.values() for time in live.times())

    def _run_timers(self, moment: float, stops: list[tuple[Live, timedelta]]) -> None:
        """Within a transaction, carry out what is due by the clock: retries, limits, warnings."""
        for live in list(self.live.values()):
            with self.doubts.about(live.number):
                self._run_timers_of(live, moment, stops)

    def _run_timers_of(self, live: Live, moment: float, stops: list[tuple[Live, timedelta]]) -> None:
        connection = self.context.ledger.connection
        if live.overdue_at is not None and live.overdue_at <= moment:
            live.overdue_at = None
            runs.set_fields(connection, live.number, is_overdue=1)
            overdue = runs.find(connection, live.number)
            if overdue is not None:
                telling.note_overdue(self.context, overdue)
            LOG.warning(
                "%s is overdue: it has used four fifths of its limit",
                run_name(live.number),
                extra={"action": "run_overdue"},
            )
        if live.deadline is not None and live.deadline <= moment:
            live.deadline = None
            run = runs.find(connection, live.number)
            if run is not None and run.max_run is not None:
                self._record_stop(live.number, self._deadline_reason(run), stops)
        if live.step_deadline is not None and live.step_deadline <= moment:
            live.step_deadline = None
            self._record_timeout(live, stops)
        if live.kill_at is not None and live.kill_at <= moment:
            live.kill_at = None
            stops.append((live, timedelta(0)))
        if live.retry_at is not None and live.retry_at <= moment:
            live.retry_at = None
            run = runs.find(connection, live.number)
            if run is not None and run.status not in FINISHED:
                self._mark_next(run, Mark(live.step))

    def _deadline_reason(self, run: RunRow) -> Reason:
        """Name the limit, and how to change it (6.8)."""
        limit = None if run.max_run is None else run.max_run.total_seconds()
        name = None if run.schedule is None else definitions.get(self.context.ledger.connection, run.schedule).id
        return {"code": "deadline", "limit_s": limit, "change_with": f"wfctl schedule set {name} max_run=DURATION"}

    def _record_timeout(self, live: Live, stops: list[tuple[Live, timedelta]]) -> None:
        connection = self.context.ledger.connection
        row = None if live.k is None else executions.find(connection, live.number, live.k)
        run = runs.find(connection, live.number)
        if row is None or run is None:
            return
        timeout = self._steps_of(run)[row.step].timeout
        reason = {"code": "timeout", "limit_s": timeout.total_seconds() if timeout else None}
        if executions.record_stop(connection, row, reason):
            stops.append((live, self._grace_of(run)))
