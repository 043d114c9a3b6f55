"""What a driver keeps in mind, and the few things that all of its parts do (contract 6)."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from wfctl.core import lifecycle
from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import LOCAL, SLURM, Json, Status, run_name
from wfctl.keeper.journal import read_end
from wfctl.keeper.protocol import (
    PROTOCOL,
    Ended,
    Keeper,
    LaunchRequest,
    Refused,
    RefusedAt,
    Report,
)
from wfctl.keeper.records import DamagedRecord
from wfctl.linux import boot_id, boottime_ns
from wfctl.operations import preflight
from wfctl.operations.consistency import Doubts
from wfctl.operations.context import Context
from wfctl.operations.outputs import OutputBounds
from wfctl.operations.spares import Spares
from wfctl.slurm.absent import NoCluster
from wfctl.store.ledger import occurrences as history
from wfctl.store.ledger import runs
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.plain_ends import Unended
from wfctl.store.ledger.runs import NewRun, RunRow

LOG = logging.getLogger("wfctl.driver")
OVERDUE_SHARE = 0.8  #: of `max_run`; from there on a run is overdue (6.8)
LARGEST_KEPT_OUTPUT = 16 * 1024  #: bytes of JSON in the ledger; a larger output is read from its file
AT_ONCE = 16  #: launches sent in one piece
OF_THE_MACHINE = (RefusedAt.RECORD, RefusedAt.OUTPUT, RefusedAt.FORK)  #: refusals that are not for the job's own sake
LOOK_AGAIN_S = 1.0  #: how often a process is looked at that no keeper holds and no pidfd tells of


@dataclass(slots=True)
class Live:
    """What the driver keeps in mind of one unfinished run. Times are monotonic seconds."""

    number: int
    keeper: Keeper | None = None  #: who holds its execution; None: nobody, or between two steps
    k: int | None = None  #: the unsettled execution
    step: int = 0
    overdue_at: float | None = None
    deadline: float | None = None
    step_deadline: float | None = None
    retry_at: float | None = None
    kill_at: float | None = None  #: of a process that no keeper holds
    process: tuple[int, int, str] | None = None  #: pid, start time and boot of a process that no keeper holds
    pidfd: int | None = None

    def times(self) -> Iterator[float]:
        """Give the times at which something is due for it."""
        for time in (self.retry_at, self.deadline, self.step_deadline, self.overdue_at, self.kill_at):
            if time is not None:
                yield time


@dataclass(frozen=True, slots=True)
class Launch:
    """An execution that is marked and to be asked for."""

    number: int
    k: int
    step: int
    admitted: NewRun | None = None  #: where it was admitted a moment ago, and nothing has happened to it since


class DriverState:
    """What every part of a driver stands on: the store, its keepers, and the runs it has in mind."""

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        *,
        keeper_place: str = "store",
        only: int | None = None,
        executors: Mapping[str, Keeper] | None = None,
    ) -> None:
        self.context = context
        self.keeper = keeper
        self.executors = executors or {SLURM: NoCluster()}  #: who runs what is not for this machine, by name (3.0)
        self.keeper_place = keeper_place  #: written with each mark: where the keeper's socket is, `store` or `run`
        self.only = only  #: the one run this driver is for; None: every run whose `driver` lock is free
        self.live: dict[int, Live] = {}
        self.on_transition: Callable[[RunRow | Unended, Status], None] = lambda run, status: None
        self.on_progress: Callable[[], None] = lambda: None  #: called for each execution that a recovery looks at
        self.on_refused: Callable[[int], None] = lambda number: None  #: called where the machine has not what a launch needs
        self.on_other: Callable[[Report], None] = lambda report: None  #: called with a report of what is no run
        self.outputs: OutputBounds | None = None  #: told of each end, so that its logs are looked at once more (6.15)
        self._held: list[Launch] = []  #: what they need is used up: asked for once it is there again (7.7)
        self._held_until = 0.0
        self._left_alone: set[int] = set()  #: unfinished runs that a command drives
        #: by directory and protocol: keepers of commands that are gone, and of older and newer supervisors, with runs at work
        self._others: dict[tuple[str, int], Keeper] = {}
        self._reports: list[Report] = []  #: taken from a keeper and not yet written down
        self._launches: list[Launch] = []  #: marked and not yet asked for
        self._ahead: dict[int, tuple[NewRun, LaunchRequest]] = {}  #: made ready for runs that may be admitted in a moment
        self.spares: Spares | None = None  #: directories made ahead
        self._may_mark = True
        self.doubts = Doubts(context, self._forget)  #: runs that are left alone, because their records contradict each other
        self._base = preflight.base_environment(_environ())
        self._store_id = context.ledger.store_id

    def mark_note(self, executor: str = LOCAL) -> Mapping[str, Json]:
        """Return what is written with a mark: when it was made, by the clock that a keeper tells its age by (6.10).

        An executor other than the keeper is older than any mark, whoever speaks for it.
        """
        if executor != LOCAL:
            return {"boot": self.executors[executor].hello.boot_id, "since_ns": 1, "keeper": executor, "protocol": PROTOCOL}
        return {"boot": boot_id(), "since_ns": boottime_ns(), "keeper": self.keeper_place, "protocol": PROTOCOL}

    @property
    def has_reports(self) -> bool:
        """Tell whether something is to be written down without asking anybody."""
        return bool(self._reports)

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """One transaction. Where it fails, what was marked in it is not launched either."""
        launches = list(self._launches)
        try:
            with self.context.ledger.transaction():
                yield
        except BaseException:
            self._launches = launches
            raise
        self.doubts.block()

    def _live_of(self, run: RunRow, k: int | None, step: int) -> Live:
        live = self.live.get(run.number) or Live(run.number)
        live.k, live.step, live.keeper, live.retry_at, live.step_deadline = k, step, self.keeper_of(run), None, None
        self._set_limits(live, run)
        return live

    def _set_limits(self, live: Live, run: RunRow) -> None:
        """Turn `max_run` into monotonic times; what was executed before this driver lived counts (6.8)."""
        if run.max_run is None or run.attempt_at is None or run.stop is not None:
            live.deadline = live.overdue_at = None
            return
        if live.deadline is not None:
            return
        passed = max(timedelta(0), self.context.now() - run.attempt_at).total_seconds()
        start, limit = self.context.clock.monotonic() - passed, run.max_run.total_seconds()
        live.deadline = start + limit
        live.overdue_at = None if run.is_overdue else start + limit * OVERDUE_SHARE

    def _time(self, reported: datetime) -> datetime:
        """A keeper tells the machine's time; a store with a clock of its own is told by that (9.4)."""
        return reported if self.context.clock.is_system else self.context.now()

    def _steps_of(self, run: RunRow) -> Sequence[Any]:
        return self.context.deployment(run.deployment, run.deployment_revision)[0].steps

    def executor_of(self, run: RunRow) -> str:
        """Return the name of who runs it: what its deployment says, in the revision that it was admitted with."""
        return self.context.deployment(run.deployment, run.deployment_revision)[0].executor

    def keeper_of(self, run: RunRow) -> Keeper:
        """Return who launches its executions."""
        name = self.executor_of(run)
        return self.keeper if name == LOCAL else self.executors[name]

    def _grace_of(self, run: RunRow) -> timedelta:
        return self.context.deployment(run.deployment, run.deployment_revision)[0].kill_grace

    def _keepers(self) -> list[Keeper]:
        return [self.keeper, *self.executors.values(), *self._others.values()]

    def _forget(self, number: int) -> None:
        live = self.live.pop(number, None)
        if live is not None and live.pidfd is not None:
            os.close(live.pidfd)

    def _show(self, run: RunRow, status: Status) -> None:
        """The occurrence shows what its run shows (6.6)."""
        if run.schedule is not None and run.instant is not None:
            history.set_status(self.context.ledger.connection, run.schedule, run.instant, status)
        self.on_transition(run, status)

    def _note_running(self, number: int, started_at: datetime) -> RunRow | None:
        """Let a run show that it has a process (6.6); return it as it then is."""
        connection = self.context.ledger.connection
        run = runs.find(connection, number)
        if run is None or lifecycle.after(run.status, RunEvent.STARTED) is None:
            return run
        fields: dict[str, Any] = {"started_at": run.started_at or started_at, "attempt_at": run.attempt_at or started_at}
        if run.status is not Status.RUNNING or run.attempt_at is None:
            runs.change_status(connection, run, Status.RUNNING, **fields)
            self._show(run, Status.RUNNING)
        return replace(run, status=Status.RUNNING, **fields)

    def _record_of(self, row: ExecutionRow) -> Ended | Refused | None:
        """Return what the exit record of exactly this execution says; one of another execution is stale (7.3)."""
        directory = self.context.layout.run(run_name(row.run)).execution(row.k).root
        try:
            return read_end(self.context.layout.root, directory, run_name(row.run), row.k)
        except (DamagedRecord, OSError) as error:
            LOG.warning("the exit record in %s cannot be used: %s", directory, error, extra={"action": "record_damaged"})
            return None

    def _process_of(self, row: ExecutionRow) -> tuple[int, int, str] | None:
        mark = row.mark
        if "pid" not in mark:
            return None
        return int(mark["pid"]), int(mark["start_time"]), str(mark["boot"])


def _environ() -> Mapping[str, str]:
    return os.environ
