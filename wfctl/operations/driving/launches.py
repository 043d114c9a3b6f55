"""From a committed mark to the launch that is asked for, once (contract 6.1 to 6.3, 6.13, 7.7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from wfctl.core.model import FINISHED, run_name
from wfctl.core.steps import Ended as How
from wfctl.core.steps import Mark
from wfctl.errors import Blocked
from wfctl.keeper.protocol import LaunchRequest, Refused
from wfctl.linux import USED_UP
from wfctl.operations.driving.following import Following
from wfctl.operations.driving.state import AT_ONCE, LOG, LOOK_AGAIN_S, Launch
from wfctl.operations.launching import Requests, Unlaunchable
from wfctl.operations.resume import check_resume, record_resume
from wfctl.operations.round_facts import used_slots
from wfctl.store.ledger import executions, runs
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import NewRun, RunRow, is_same_admission


class Launching(Following):
    """Asks a keeper for what is marked; nothing is committed between the launches of a batch."""

    def make_ready(self, new: Iterable[NewRun]) -> None:
        """Make ready what the first executions of these runs need, ahead of an admission that may yet turn out otherwise."""
        self.unready()
        requests = self._batch()
        for run in new:
            with contextlib.suppress(UnreadableRow, Blocked, OSError):
                request = requests.ahead(runs.as_admitted(run))
                if request is not None:
                    self._ahead[run.number] = (run, request)
        self.keeper.prepare(request for _, request in self._ahead.values())

    def unready(self) -> None:
        """Let go of what was made ready and is not needed."""
        if self._ahead:
            batch = self._batch()
            for _, request in self._ahead.values():
                batch.take_back(request.spare)
            self.keeper.prepare([])
        self._ahead = {}

    def launch_admitted(self, new: Sequence[NewRun]) -> None:
        """Ask for the first executions of runs whose admission and mark are committed; nothing is committed in between."""
        if not new:
            return
        changed = runs.changed_since_admission(self.context.ledger.connection, new[0].number, new[-1].number)
        self._launches += [Launch(run.number, 1, 0, None if run.number in changed else run) for run in new]
        self._send_launches()
        self.unready()

    def _batch(self) -> Requests:
        return Requests(self.context, self._base, self._store_id, self.spares)

    def _send_launches(self) -> None:
        """Ask for every execution that is marked and not asked for yet; without a keeper they wait for the next one."""
        if self.keeper.closed:
            return
        batch = self._batch()
        requests: list[LaunchRequest] = []
        waiting, self._launches = self._launches, []
        for launch in waiting:
            if len(requests) == AT_ONCE:  # the keeper launches these while the next are made ready
                self.keeper.launch(requests)
                requests = []
            with self.doubts.about(launch.number):
                requests += self._requests_of(launch, batch)
        if requests:
            self.keeper.launch(requests)
        self.doubts.block()

    def _requests_of(self, launch: Launch, batch: Requests) -> list[LaunchRequest]:
        """Make a marked execution ready, and return what to ask for, if anything."""
        if launch.admitted is not None:
            run: RunRow | None = runs.as_admitted(launch.admitted)
        else:
            run = runs.find(self.context.ledger.connection, launch.number)
        if run is None or run.status in FINISHED:
            return []
        if run.stop is not None:
            self._settle_unsent(launch)
            return []
        self.live[launch.number] = self._live_of(run, launch.k, launch.step)
        try:
            request = self._ready_for(launch, batch) or batch.of(run, launch.k, launch.step)
        except Unlaunchable as error:
            if error.what == "directory" and error.errno in USED_UP:
                self._hold(launch, error)
            else:
                self._reports.append(_refusal(run.id, launch.k, error, self.context.now()))
            return []
        executor = self.live[launch.number].keeper
        if executor is None or executor is self.keeper:
            return [request]
        executor.launch([request])
        return []

    def _ready_for(self, launch: Launch, batch: Requests) -> LaunchRequest | None:
        """Return the request that was made ready ahead, if it is for exactly what was admitted."""
        run, request = self._ahead.pop(launch.number, (None, None))
        if run is None or request is None:
            return None
        if launch.admitted is None or not is_same_admission(run, launch.admitted):
            batch.take_back(request.spare)
            return None
        return request

    def _hold(self, launch: Launch, error: Unlaunchable) -> None:
        """Not even its directory can be made: nothing was asked for, so it is no failure of the run (7.7)."""
        LOG.debug("%s waits to be launched: %s", run_name(launch.number), error.message, extra={"action": "launch_held"})
        self._held.append(launch)
        self._held_until = self.context.clock.monotonic() + LOOK_AGAIN_S
        self.on_refused(error.errno)

    def _send_held(self) -> None:
        """Ask for what was held, unless its time has passed meanwhile (6.10)."""
        held, self._held = self._held, []
        for launch in held:
            run = runs.find(self.context.ledger.connection, launch.number)
            row = executions.find(self.context.ledger.connection, launch.number, launch.k)
            if run is not None and row is not None and row.how is None and self._is_too_late(run, row):
                self._settle_unknown(row, How.NOT_LAUNCHED)
            else:
                self._launches.append(launch)
        self._send_launches()

    def _settle_unsent(self, launch: Launch) -> None:
        """A stop came before the launch was asked for: it never will be."""
        row = executions.find(self.context.ledger.connection, launch.number, launch.k)
        if row is not None:
            self._settle_unknown(row, How.NOT_LAUNCHED)

    def resume(self, number: int, given: Any, *, slots: int | None) -> None:
        """Give input to an interrupted run: input, new attempt and the mark of its first execution are one transaction (6.13).

        `slots`: as `record_resume` has it. Raise WrongState, InvalidDefinition, InvalidArgument, Saturated; nothing is changed
        then.
        """
        connection = self.context.ledger.connection
        self.doubts.refuse(number)
        with self._recording():
            run = runs.find(connection, number)
            assert run is not None
            used = used_slots(self.context, connection).get(self.executor_of(run), 0)
            resumed = record_resume(connection, run, check_resume(run, given), slots=slots, used=used)
            self._show(run, resumed.status)
            self._mark_next(resumed, Mark(resumed.resumed_step))
        self._send_launches()


def _refusal(run: str, k: int, error: Unlaunchable, at: datetime) -> Refused:
    return Refused(run=run, k=k, errno=error.errno, what=error.what, at=at)  # type: ignore[arg-type]
