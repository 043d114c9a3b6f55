"""What an earlier driver, or a keeper that went away, left unsettled (contract 6.9, 6.10, 7.1)."""

from __future__ import annotations

import os
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wfctl.core.model import Status, run_name
from wfctl.core.recovery import Recovery, decide_recovery
from wfctl.core.steps import Ended as How
from wfctl.errors import WfctlError
from wfctl.keeper.client import KeeperClient, protocols_at
from wfctl.keeper.leftovers import find_process
from wfctl.keeper.protocol import (
    PROTOCOL,
    Ended,
    Holding,
    Keeper,
    Refused,
    Standing,
    Started,
)
from wfctl.linux import USED_UP, boot_id, is_same_process, pidfd_open
from wfctl.operations.driving.state import LOG, Live
from wfctl.operations.driving.stopping import Stopping
from wfctl.store.ledger import executions, runs
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.runs import RunRow
from wfctl.store.locks import is_held


class Recovering(Stopping):
    """Adopts what lives, goes on from exit records, and settles the rest without ever launching it again."""

    def recover(self, numbers: Container[int] | None = None) -> dict[str, int]:
        """Settle every execution that an earlier driver left unsettled, before anything is admitted (7.1).

        `numbers`: only those of these runs. Return how many were adopted, taken from their record, found never launched, and
        abandoned.
        """
        counts = {"adopted": 0, "ended": 0, "not-launched": 0, "abandoned": 0}
        connection = self.context.ledger.connection
        self._write_down()
        self.doubts.look(self.only)
        for row in executions.unsettled(connection):
            self.on_progress()
            is_asked = (numbers is None or row.run in numbers) and row.run not in self.doubts.runs
            if is_asked and self._is_ours(row.run):
                with self.doubts.about(row.run):
                    self._recover_one(row, counts)
        for run in runs.unfinished(connection):
            if (numbers is not None and run.number not in numbers) or run.number in self.doubts.runs:
                continue
            is_resting = run.status is not Status.INTERRUPTED and run.number not in self.live and self._is_ours(run.number)
            if is_resting and not any(launch.number == run.number for launch in self._launches):
                with self._recording(), self.doubts.about(run.number):
                    self._follow(run.number)
        self._send_launches()
        self.doubts.block()
        self._finish_recorded_stops()
        return counts

    def _is_ours(self, number: int) -> bool:
        if self.only is not None:
            return number == self.only
        if self._is_driven(number):
            self._left_alone.add(number)
            return False
        return True

    def _is_driven(self, number: int) -> bool:
        """Tell whether a command still drives this run (6.12)."""
        lock = self.context.layout.run(run_name(number)).driver_lock
        return lock.exists() and is_held(lock)

    def _adopt_left_alone(self) -> None:
        """Take on the runs whose own driver is gone by now (6.12)."""
        free = {number for number in self._left_alone if not self._is_driven(number)}
        self._left_alone -= free
        if free:
            self.recover(free)

    def is_end_recorded(self, number: int) -> bool:
        """Tell whether a run has an unsettled execution whose end is on record."""
        return self._recorded_end(number) is not None

    def settle_recorded(self, number: int) -> None:
        """Settle a run whose end is on record, and nothing else: what would be launched next is left to the next driver."""
        record = self._recorded_end(number)
        if record is not None:
            self._may_mark = False
            with self._recording():
                self._take(record)

    def _recorded_end(self, number: int) -> Ended | Refused | None:
        rows = [row for row in executions.of_run(self.context.ledger.connection, number) if row.how is None]
        return self._record_of(rows[0]) if rows else None

    def _recover_one(self, row: ExecutionRow, counts: dict[str, int]) -> None:
        record = self._record_of(row)
        keeper, standing = (None, None) if record is not None else self._ask_keepers(row)
        if standing is not None and standing.state is Holding.ENDED and record is None:
            record = standing.ended or standing.refused or self._record_of(row)
        if record is None and (standing is None or standing.state is not Holding.RUNNING):
            row = self._with_process(row)
        found = decide_recovery(
            has_record=record is not None,
            is_running=standing is not None and standing.state is Holding.RUNNING,
            is_forbidden=standing is not None and standing.state is Holding.FORBIDDEN,
            keeper_is_older=keeper is not None and self._is_older(keeper, row),
            is_alive=self._process_of(row) is not None and is_same_process(*self._process_of(row) or (0, 0, "")),
        )
        self._carry_out(found, row, keeper, record, standing, counts)

    def _carry_out(
        self,
        found: Recovery,
        row: ExecutionRow,
        keeper: Keeper | None,
        record: Ended | Refused | None,
        standing: Standing | None,
        counts: dict[str, int],
    ) -> None:
        if found is Recovery.TAKE_RECORD:
            assert record is not None
            counts["ended"] += 1
            with self._recording():
                self._apply(record)
        elif found is Recovery.ADOPT:
            assert keeper is not None
            counts["adopted"] += 1
            self._adopt(row, keeper, standing.started if standing else None)
        elif found is Recovery.WATCH:
            counts["adopted"] += 1
            self._watch(row)
        else:
            counts["not-launched" if found is Recovery.NOT_LAUNCHED else "abandoned"] += 1
            self._settle_unknown(row, How.NOT_LAUNCHED if found is Recovery.NOT_LAUNCHED else How.ABANDONED)

    def _ask_keepers(self, row: ExecutionRow) -> tuple[Keeper | None, Standing | None]:
        """Have every living keeper forbid an execution; return the one that holds it, else the one it would have been sent to,
        with its answer (6.10). The one it would have been sent to is asked first.
        """
        place, sent_to = row.mark.get("keeper", "store"), int(row.mark.get("protocol", 1))
        layout, name = self.context.layout, run_name(row.run)
        executor = self.executors.get(str(place))
        if executor is not None:
            return executor, self._forbid(executor, name, row.k)
        directory = layout.root if place == "store" else layout.run(name).root
        asked: tuple[Keeper | None, Standing | None] = None, None
        for protocol in [sent_to, *(each for each in protocols_at(directory) if each != sent_to)]:
            is_own = place == self.keeper_place and protocol == PROTOCOL
            keeper = self.keeper if is_own else self._other_keeper(directory, protocol, name)
            if keeper is None or keeper.closed:
                continue
            standing = self._forbid(keeper, name, row.k)
            if standing is not None and standing.state is not Holding.FORBIDDEN:
                return keeper, standing
            if protocol == sent_to:
                asked = keeper, standing
        return asked

    def _other_keeper(self, directory: Path, protocol: int, name: str) -> Keeper | None:
        key = (str(directory), protocol)
        if key in self._others:
            return self._others[key]
        try:
            other = KeeperClient.connect(directory, protocol)
        except WfctlError as error:
            if error.data.get("errno") in USED_UP:
                raise  # it may well live: nothing is decided before it can be asked
            LOG.warning("cannot ask the keeper of %s: %s", name, error, extra={"action": "keeper_lost"})
            return None
        if other is not None:
            self._others[key] = other
        return other

    def _forbid(self, keeper: Keeper, name: str, k: int) -> Standing | None:
        try:
            return keeper.forbid(name, k)
        except WfctlError as error:
            LOG.warning("the keeper did not answer about %s: %s", name, error, extra={"action": "keeper_lost"})
            return None

    def _is_older(self, keeper: Keeper, row: ExecutionRow) -> bool:
        hello = keeper.hello
        since = row.mark.get("since_ns")
        return hello.boot_id == row.mark.get("boot") and isinstance(since, int) and hello.since_ns < since

    def _with_process(self, row: ExecutionRow) -> ExecutionRow:
        """Return an execution with its process, where that lives and its keeper went before it could tell of it.

        A slot is never freed over a living process (6.8), so it is looked for by the marks in its environment.
        """
        since = row.mark.get("since_ns")
        if "pid" in row.mark or row.mark.get("boot") != boot_id() or not isinstance(since, int):
            return row
        found = find_process((str(self.context.layout.root), run_name(row.run), str(row.k)), since)
        if found is None:
            return row
        at = datetime.now(UTC) - timedelta(microseconds=found.age_ns // 1000)
        told = Started(run=run_name(row.run), k=row.k, pid=found.pid, start_time=found.start_time, boot_id=boot_id(), at=at)
        with self._recording():
            self._apply(told)
        return executions.find(self.context.ledger.connection, row.run, row.k) or row

    def _adopt(self, row: ExecutionRow, keeper: Keeper, started: Started | None) -> None:
        run = runs.find(self.context.ledger.connection, row.run)
        assert run is not None
        live = self._live_of(run, row.k, row.step)
        live.keeper = keeper
        self.live[row.run] = live
        if started is not None and row.started_at is None:
            with self._recording():
                self._apply_started(row, started)
            return
        self._resume_step_limit(live, run, row)

    def _resume_step_limit(self, live: Live, run: RunRow, row: ExecutionRow) -> None:
        timeout = self._steps_of(run)[row.step].timeout
        if timeout is not None and row.started_at is not None and row.stop is None:
            passed = max(timedelta(0), self.context.now() - row.started_at)
            live.step_deadline = self.context.clock.monotonic() + (timeout - passed).total_seconds()

    def _watch(self, row: ExecutionRow) -> None:
        """Wait for the end of a process whose keeper is gone, without ever mistaking another for it (6.9)."""
        run = runs.find(self.context.ledger.connection, row.run)
        assert run is not None
        live = self._live_of(run, row.k, row.step)
        live.keeper, live.process = None, self._process_of(row)
        assert live.process is not None
        try:
            live.pidfd = pidfd_open(live.process[0])
        except OSError:
            live.pidfd = None
        self.live[row.run] = live
        self._resume_step_limit(live, run, row)

    def _finish_recorded_stops(self) -> None:
        """A new driver finishes a stop it finds (6.11)."""
        connection = self.context.ledger.connection
        for live in list(self.live.values()):
            run = runs.find(connection, live.number)
            row = None if live.k is None else executions.find(connection, live.number, live.k)
            if run is not None and row is not None and row.how is None and (run.stop is not None or row.stop is not None):
                self._signal(live, self._grace_of(run))

    def _keeper_went(self, keeper: Keeper) -> None:
        """Its runs live on: take what it recorded, watch what lives, settle the rest (6.9)."""
        for live in list(self.live.values()):
            if live.keeper is keeper and live.k is not None:
                with self.doubts.about(live.number):
                    self._keeper_of_run_went(live, live.k)

    def _keeper_of_run_went(self, live: Live, k: int) -> None:
        row = executions.find(self.context.ledger.connection, live.number, k)
        if row is None or row.how is not None:
            return
        record = self._record_of(row)
        if record is None:
            row = self._with_process(row)
        process = self._process_of(row)
        if record is not None:
            self._reports.append(record)
            live.keeper = None
        elif process is not None and is_same_process(*process):
            self._watch(row)
        else:
            live.keeper = None
            self._settle_unknown(row, How.UNKNOWN if row.started_at is not None else How.ABANDONED)

    def _process_went(self, live: Live) -> None:
        """A watched process is gone: its record says how, or nobody knows."""
        live.process = None
        if live.pidfd is not None:
            os.close(live.pidfd)
            live.pidfd = None
        row = None if live.k is None else executions.find(self.context.ledger.connection, live.number, live.k)
        if row is None or row.how is not None:
            return
        record = self._record_of(row)
        if record is not None:
            self._reports.append(record)
        else:
            self._settle_unknown(row, How.UNKNOWN)
