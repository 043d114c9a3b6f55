"""The driver: marks executions, has a keeper launch them, takes in their ends and decides what follows (contract 6).

Record, then act. A mark is committed before the launch is asked for; a stop is committed before the first signal; an end is
committed before its slot is anybody else's. After a crash in between, the next driver asks the keeper (`recover`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wfctl.core import lifecycle
from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import FINISHED, Json, Reason, Status, run_name, run_number
from wfctl.core.recovery import Recovery, decide_recovery
from wfctl.core.steps import Conclude, ExecutionEnd, Mark, decide_next, failure_of, is_interrupt
from wfctl.core.steps import Ended as How
from wfctl.errors import IoError, WfctlError
from wfctl.keeper.client import KeeperClient, protocols_at
from wfctl.keeper.leftovers import find_process
from wfctl.keeper.protocol import (
    PROTOCOL,
    Ended,
    Holding,
    Keeper,
    KeeperHello,
    LaunchRequest,
    Refused,
    RefusedAt,
    Report,
    Reports,
    Standing,
    Standings,
    Started,
)
from wfctl.keeper.records import DamagedRecord, read_record, record_path
from wfctl.linux import USED_UP, boot_id, boottime_ns, is_same_process, pidfd_open, signal_group
from wfctl.operations import preflight
from wfctl.operations.consistency import Doubts
from wfctl.operations.context import Context
from wfctl.operations.launching import Unlaunchable, request_for
from wfctl.operations.outputs import OutputBounds
from wfctl.operations.resume import check_resume, record_resume
from wfctl.store import rundir
from wfctl.store.ledger import definitions, executions, runs, schedules
from wfctl.store.ledger import occurrences as history
from wfctl.store.ledger.executions import ExecutionRow
from wfctl.store.ledger.runs import NewRun, RunRow
from wfctl.store.locks import is_held

LOG = logging.getLogger("wfctl.driver")
OVERDUE_SHARE = 0.8  #: of `max_run`; from there on a run is overdue (6.8)
LARGEST_KEPT_OUTPUT = 16 * 1024  #: bytes of JSON in the ledger; a larger output is read from its file
_AT_ONCE = 8  #: launches sent in one piece
_OF_THE_MACHINE = (RefusedAt.RECORD, RefusedAt.OUTPUT, RefusedAt.FORK)  #: refusals that are not for the job's own sake
_LOOK_AGAIN_S = 1.0  #: how often a process is looked at that no keeper holds and no pidfd tells of


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
class _Launch:
    number: int
    k: int
    step: int


class Driver:
    """Drives runs: all of a store's for a supervisor, one for a `run start` without one.

    Not thread-safe. Every method that writes raises what the ledger raises; reports that could not be written are kept.
    """

    def __init__(self, context: Context, keeper: Keeper, *, keeper_place: str = "store", only: int | None = None) -> None:
        self.context = context
        self.keeper = keeper
        self.keeper_place = keeper_place  #: written with each mark: where the keeper's socket is, `store` or `run`
        self.only = only  #: the one run this driver is for; None: every run whose `driver` lock is free
        self.live: dict[int, Live] = {}
        self.on_transition: Callable[[RunRow, Status], None] = lambda run, status: None
        self.on_refused: Callable[[int], None] = lambda number: None  #: called where the machine has not what a launch needs
        self.outputs: OutputBounds | None = None  #: told of each end, so that its logs are looked at once more (6.15)
        self._held: list[_Launch] = []  #: what they need is used up: asked for once it is there again (7.7)
        self._held_until = 0.0
        self._left_alone: set[int] = set()  #: unfinished runs that a command drives
        #: by directory and protocol: keepers of commands that are gone, and of older and newer supervisors, with runs at work
        self._others: dict[tuple[str, int], Keeper] = {}
        self._reports: list[Report] = []  #: taken from a keeper and not yet written down
        self._launches: list[_Launch] = []  #: marked and not yet asked for
        self._may_mark = True
        self.doubts = Doubts(context, self._forget)  #: runs that are left alone, because their records contradict each other
        self._base = preflight.base_environment(_environ())
        self._store_id = context.ledger.store_id

    # -- what the driver waits for ---------------------------------------------------------------------------------------

    def descriptors(self) -> dict[int, bool]:
        """Return what becomes readable when `take_in` has something to do, and whether it is to be written to as well."""
        keepers = {keeper.fileno(): keeper.wants_write for keeper in self._keepers() if not keeper.closed}
        return keepers | {live.pidfd: False for live in self.live.values() if live.pidfd is not None}

    def next_timer(self) -> float | None:
        """Return the monotonic time at which a retry, a limit or another look is due."""
        times = [time for live in self.live.values() for time in live.times()]
        if self._left_alone or any(live.process is not None and live.pidfd is None for live in self.live.values()):
            times.append(self.context.clock.monotonic() + _LOOK_AGAIN_S)
        if self._held:
            times.append(self._held_until)
        return min(times) if times else None

    def mark_note(self) -> Mapping[str, Json]:
        """Return what is written with a mark: when it was made, by the clock that a keeper tells its age by (6.10)."""
        return {"boot": boot_id(), "since_ns": boottime_ns(), "keeper": self.keeper_place, "protocol": PROTOCOL}

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

    # -- launching -------------------------------------------------------------------------------------------------------

    def launch_admitted(self, new: Iterable[NewRun]) -> None:
        """Ask for the first executions of runs whose admission and mark are committed; nothing is committed in between."""
        self._launches += [_Launch(run.number, 1, 0) for run in new]
        self._send_launches()

    def _send_launches(self) -> None:
        """Ask for every execution that is marked and not asked for yet; without a keeper they wait for the next one."""
        if self.keeper.closed:
            return
        requests: list[LaunchRequest] = []
        waiting, self._launches = self._launches, []
        for launch in waiting:
            if len(requests) == _AT_ONCE:  # the keeper launches these while the next are made ready
                self.keeper.launch(requests)
                requests = []
            with self.doubts.about(launch.number):
                requests += self._requests_of(launch)
        if requests:
            self.keeper.launch(requests)
        self.doubts.block()

    def _requests_of(self, launch: _Launch) -> list[LaunchRequest]:
        """Make a marked execution ready, and return what to ask for, if anything."""
        run = runs.find(self.context.ledger.connection, launch.number)
        if run is None or run.status in FINISHED:
            return []
        if run.stop is not None:
            self._settle_unsent(launch)
            return []
        self.live[launch.number] = self._live_of(run, launch.k, launch.step)
        try:
            return [request_for(self.context, run, launch.k, launch.step, self._base, self._store_id)]
        except Unlaunchable as error:
            if error.what == "directory" and error.errno in USED_UP:
                self._hold(launch, error)
            else:
                self._reports.append(_refusal(run.id, launch.k, error, self.context.now()))
            return []

    def _hold(self, launch: _Launch, error: Unlaunchable) -> None:
        """Not even its directory can be made: nothing was asked for, so it is no failure of the run (7.7)."""
        LOG.debug("%s waits to be launched: %s", run_name(launch.number), error.message, extra={"action": "launch_held"})
        self._held.append(launch)
        self._held_until = self.context.clock.monotonic() + _LOOK_AGAIN_S
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

    def _settle_unsent(self, launch: _Launch) -> None:
        """A stop came before the launch was asked for: it never will be."""
        row = executions.find(self.context.ledger.connection, launch.number, launch.k)
        if row is not None:
            self._settle_unknown(row, How.NOT_LAUNCHED)

    def _live_of(self, run: RunRow, k: int | None, step: int) -> Live:
        live = self.live.get(run.number) or Live(run.number)
        live.k, live.step, live.keeper, live.retry_at, live.step_deadline = k, step, self.keeper, None, None
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

    # -- taking in -------------------------------------------------------------------------------------------------------

    def take_in(self) -> bool:
        """Write down everything reported, and what follows from it, in one transaction; then launch what was marked.

        Return whether anything was.
        """
        if self._left_alone:
            self._adopt_left_alone()
        remedied = self.doubts.regained()
        if remedied:
            self.recover(remedied)
        self._poll()
        moment = self.context.clock.monotonic()
        if self._held and moment >= self._held_until:
            self._send_held()
        if self._launches:  # what followed from a keeper's last words
            self._send_launches()
        if not self._reports and not self._is_timer_due(moment):
            return False
        stops: list[tuple[Live, timedelta]] = []
        with self._recording():
            for report in self._reports:
                self._take(report)
            self._run_timers(moment, stops)
        self._reports = []
        for live, grace in stops:
            self._signal(live, grace)
        if self._launches:
            self._send_launches()
        if self._reports:  # a launch that could not even be asked for
            self.take_in()
        return True

    def _poll(self) -> None:
        for keeper in self._keepers():
            if keeper.wants_write:
                keeper.flush()
            self._reports += keeper.poll()
            if keeper.closed:
                self._write_down()  # its last words first
                self._keeper_went(keeper)
        self._let_run_empty()
        for live in list(self.live.values()):
            if live.process is not None and not is_same_process(*live.process):
                with self.doubts.about(live.number):
                    self._process_went(live)

    def _keepers(self) -> list[Keeper]:
        return [self.keeper, *self._others.values()]

    def _let_run_empty(self) -> None:
        """Let go of every other keeper that holds none of our executions: it ends once nobody needs it (6.9)."""
        needed = {id(live.keeper) for live in self.live.values()}
        for key, keeper in list(self._others.items()):
            if keeper.closed or id(keeper) not in needed:
                keeper.close()
                del self._others[key]

    def _write_down(self) -> None:
        """Write down what was reported, in a transaction of its own."""
        if not self._reports:
            return
        with self._recording():
            for report in self._reports:
                self._take(report)
        self._reports = []

    def _is_timer_due(self, moment: float) -> bool:
        return any(time <= moment for live in self.live.values() for time in live.times())

    def _take(self, report: Report) -> None:
        """Write down one report; a run whose records do not allow it is left alone, and the others are not (7.4)."""
        number = run_number(report.run)
        if number is not None and number not in self.doubts.runs:
            with self.doubts.about(number):
                self._apply(report)

    def _apply(self, report: Report) -> None:
        connection = self.context.ledger.connection
        number = run_number(report.run)
        row = executions.find(connection, number, report.k) if number is not None else None
        if row is None or row.how is not None:
            return
        if isinstance(report, Started):
            self._apply_started(row, report)
            return
        if isinstance(report, Refused) and report.what is RefusedAt.RECORD and report.errno == errno.EEXIST:
            self._settle_launched_before(row)
            return
        if isinstance(report, Refused):
            detail = {"errno": report.errno, "what": str(report.what)}
            at = self._time(report.at)
            executions.settle(connection, row, how=How.REFUSED, started_at=None, ended_at=at, detail=detail)
            if report.what in _OF_THE_MACHINE and report.errno in USED_UP:
                self.on_refused(report.errno)
        else:
            self._settle_ended(row, report)
        self._follow(row.run)

    def _settle_launched_before(self, row: ExecutionRow) -> None:
        """A keeper found its exit record there already: an earlier one was asked for it, and it is never repeated."""
        record = self._record_of(row)
        if isinstance(record, Ended):
            self._settle_ended(row, record)
        else:
            at = self.context.now()
            executions.settle(self.context.ledger.connection, row, how=How.ABANDONED, started_at=row.started_at, ended_at=at)
        self._follow(row.run)

    def _settle_ended(self, row: ExecutionRow, report: Ended) -> None:
        ended_at = self._time(report.ended_at)
        started_at = row.started_at or (report.started_at if self.context.clock.is_system else ended_at)
        executions.settle(
            self.context.ledger.connection,
            row,
            how=How.EXITED if report.exit_status is not None else How.SIGNALLED,
            started_at=started_at,
            ended_at=ended_at,
            exit_status=report.exit_status,
            signal=report.signal,
            cpu=timedelta(microseconds=report.cpu_us),
            max_rss_bytes=report.max_rss_bytes,
            left_behind=report.left_behind,
        )
        self._note_running(row.run, started_at)

    def _apply_started(self, row: ExecutionRow, report: Started) -> None:
        at = self._time(report.at)
        identity = {"pid": report.pid, "start_time": report.start_time, "boot": report.boot_id}
        executions.note_started(self.context.ledger.connection, row, started_at=at, identity=identity)
        run = self._note_running(row.run, at)
        live = self.live.get(row.run)
        if run is not None and live is not None:
            self._set_limits(live, run)
            timeout = self._steps_of(run)[row.step].timeout
            live.step_deadline = None if timeout is None else self.context.clock.monotonic() + timeout.total_seconds()

    def _time(self, reported: datetime) -> datetime:
        """A keeper tells the machine's time; a store with a clock of its own is told by that (9.4)."""
        return reported if self.context.clock.is_system else self.context.now()

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

    def _show(self, run: RunRow, status: Status) -> None:
        """The occurrence shows what its run shows (6.6)."""
        if run.schedule is not None and run.instant is not None:
            history.set_status(self.context.ledger.connection, run.schedule, run.instant, status)
        self.on_transition(run, status)

    # -- what follows ----------------------------------------------------------------------------------------------------

    def _follow(self, number: int) -> None:
        """Within a transaction, decide and record what a run without a living execution does next."""
        connection = self.context.ledger.connection
        run = runs.find(connection, number)
        if run is None or run.status in FINISHED or run.status is Status.INTERRUPTED:
            self._forget(number)
            return
        steps = self._steps_of(run)
        ends = self._ends_of(run)
        following = decide_next(
            steps, ends, attempt=run.attempt, resumed_step=run.resumed_step, max_steps=run.max_steps, stop=run.stop
        )
        if ends:
            self._keep_output(run, ends[-1], steps[ends[-1].step].name)
        if isinstance(following, Conclude):
            self._conclude(run, following, ends)
            return
        if not self._may_mark:
            return
        wait = timedelta(0) if following.not_before is None else following.not_before - self.context.now()
        if wait > timedelta(0):
            live = self._live_of(run, None, following.step)
            live.retry_at = self.context.clock.monotonic() + wait.total_seconds()
            self.live[number] = live
            return
        self._mark_next(run, following)

    def _mark_next(self, run: RunRow, following: Mark) -> None:
        connection = self.context.ledger.connection
        known = executions.of_run(connection, run.number)
        k = known[-1].k + 1 if known else 1
        executions.mark(connection, [(run.number, k, following.step, run.attempt)], self.mark_note())
        self._launches.append(_Launch(run.number, k, following.step))

    def _ends_of(self, run: RunRow) -> list[ExecutionEnd]:
        """Return the settled executions, the last one with what its files say; earlier ones are decided."""
        ends = executions.ends(executions.of_run(self.context.ledger.connection, run.number))
        if not ends or ends[-1].how is not How.EXITED:
            return ends
        paths = self.context.layout.run(run.id)
        interrupt = rundir.read_interrupt(paths, ends[-1].k)
        output = rundir.read_output(paths, ends[-1].k)
        ends[-1] = replace(
            ends[-1],
            interrupt=interrupt.value if interrupt.is_there and interrupt.problem is None else None,
            output_problem=output.problem,
        )
        return ends

    def _keep_output(self, run: RunRow, end: ExecutionEnd, step: str) -> None:
        """The output of the last step that wrote one is the run's (6.5)."""
        if failure_of(end, step) is not None and not is_interrupt(end):
            return
        output = rundir.read_output(self.context.layout.run(run.id), end.k)
        if not output.is_there or output.problem is not None:
            return
        text = json.dumps(output.value, ensure_ascii=False, separators=(",", ":"))
        is_small = len(text) <= LARGEST_KEPT_OUTPUT
        fields = {"output": text if is_small else None, "output_k": None if is_small else end.k}
        runs.set_fields(self.context.ledger.connection, run.number, **fields)

    def _conclude(self, run: RunRow, end: Conclude, ends: Sequence[ExecutionEnd]) -> None:
        status = lifecycle.after(run.status, end.event)
        if status is None:
            return
        connection = self.context.ledger.connection
        now = self.context.now()
        self._write_checkpoint(run, status, ends)
        fields: dict[str, Any] = {"reason": end.reason, "interrupt": end.interrupt}
        if status is not Status.INTERRUPTED:
            fields["ended_at"] = ends[-1].ended_at if ends and run.stop is None else now
        if not runs.change_status(connection, run, status, **fields):
            return
        self._show(run, status)
        if run.schedule is not None:
            schedules.slot_freed(connection, run.schedule, now)
        self._forget(run.number)
        if self.outputs is not None:
            self.outputs.at_end(run.number)

    def _write_checkpoint(self, run: RunRow, status: Status, ends: Sequence[ExecutionEnd]) -> None:
        """Keep how far a stopped run came (6.5); before the commit, so that a run shown as stopped always has it."""
        paths = self.context.layout.run(run.id)
        if not ends or (status is Status.COMPLETED and rundir.last_checkpoint(paths, ends[-1].k) is None):
            return
        last = ends[-1]
        done = len({end.step for end in ends if end.attempt == run.attempt and failure_of(end, "") is None})
        kept = rundir.last_checkpoint(paths, last.k)
        try:
            digest = None if kept is None else rundir.checkpoint_digest(paths, kept)
            checkpoint = rundir.Checkpoint(attempt=run.attempt, k=last.k, steps_done=done, digest=digest)
            rundir.write_checkpoint(paths, self.context.disk, checkpoint)
        except (IoError, OSError) as error:
            LOG.warning("cannot write the checkpoint of %s: %s", run.id, error, extra={"action": "checkpoint_failed"})

    def _steps_of(self, run: RunRow) -> Sequence[Any]:
        return self.context.deployment(run.deployment, run.deployment_revision)[0].steps

    def _forget(self, number: int) -> None:
        live = self.live.pop(number, None)
        if live is not None and live.pidfd is not None:
            os.close(live.pidfd)

    # -- limits and stops ------------------------------------------------------------------------------------------------

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
            resumed = record_resume(connection, run, check_resume(run, given), slots=slots)
            self._show(run, resumed.status)
            self._mark_next(resumed, Mark(resumed.resumed_step))
        self._send_launches()

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

    def _grace_of(self, run: RunRow) -> timedelta:
        return self.context.deployment(run.deployment, run.deployment_revision)[0].kill_grace

    def _signal(self, live: Live, grace: timedelta) -> None:
        """Have the group told to end, and after `grace` killed: by its keeper, or by us where none holds it."""
        if live.k is None:
            return
        if live.keeper is not None and not live.keeper.closed:
            live.keeper.stop(run_name(live.number), live.k, grace)
        elif live.process is not None:
            signal_group(*live.process, signal.SIGTERM if grace else signal.SIGKILL)
            live.kill_at = self.context.clock.monotonic() + grace.total_seconds() if grace else None

    @property
    def has_reports(self) -> bool:
        """Tell whether something is to be written down without asking anybody."""
        return bool(self._reports)

    def begin_again(self) -> None:
        """Forget all that was held in mind; `recover` finds it again (2.10)."""
        for number in list(self.live):
            self._forget(number)
        self._reports = [report for report in self._reports if not getattr(report, "recorded", True)]  # nobody else knows
        self._launches, self._held = [], []
        for keeper in self._others.values():
            keeper.close()
        self._others = {}

    def close(self) -> None:
        """Let go of keepers and processes; runs go on."""
        self.begin_again()
        self.keeper.close()

    def change_keeper(self, keeper: Keeper) -> None:
        """Go on with another keeper, the old one being gone."""
        self.keeper = keeper
        self._send_launches()

    # -- recovery --------------------------------------------------------------------------------------------------------

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

    def _record_of(self, row: ExecutionRow) -> Ended | Refused | None:
        """Return what the exit record of exactly this execution says; one of another execution is stale (7.3)."""
        path = record_path(self.context.layout.run(run_name(row.run)).execution(row.k).root)
        try:
            record = read_record(path)
        except (DamagedRecord, OSError) as error:
            LOG.warning("the exit record %s cannot be used: %s", path, error, extra={"action": "record_damaged"})
            return None
        is_this = record is not None and record.run == run_name(row.run) and record.k == row.k
        return record.outcome if record is not None and is_this else None

    def _ask_keepers(self, row: ExecutionRow) -> tuple[Keeper | None, Standing | None]:
        """Have every living keeper forbid an execution; return the one that holds it, else the one it would have been sent to,
        with its answer (6.10). The one it would have been sent to is asked first.
        """
        place, sent_to = row.mark.get("keeper", "store"), int(row.mark.get("protocol", 1))
        layout, name = self.context.layout, run_name(row.run)
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

    def _process_of(self, row: ExecutionRow) -> tuple[int, int, str] | None:
        mark = row.mark
        if "pid" not in mark:
            return None
        return int(mark["pid"]), int(mark["start_time"]), str(mark["boot"])

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

    def _settle_unknown(self, row: ExecutionRow, how: How) -> None:
        """Settle an execution of which nobody can tell an end; what that means for its run is the core's (6.10, 7.1)."""
        now = self.context.now()
        connection = self.context.ledger.connection
        with self._recording():
            executions.settle(connection, row, how=how, started_at=row.started_at, ended_at=now)
            run = runs.find(connection, row.run)
            if how is How.NOT_LAUNCHED and run is not None and self._is_too_late(run, row):
                end = Conclude(RunEvent.FAILED, {"code": "not-started", "k": row.k})
                self._conclude(run, end, [])
            else:
                self._follow(row.run)
        if how is How.ABANDONED:
            LOG.warning(
                "%s was abandoned: external effects may already have happened",
                run_name(row.run),
                extra={"action": "run_abandoned"},
            )

    def _is_too_late(self, run: RunRow, row: ExecutionRow) -> bool:
        """The first execution of a scheduled run is only launched late where its policy allows it (6.10)."""
        if row.k != 1 or run.schedule is None or run.instant is None or run.revision is None:
            return False
        definition, _ = self.context.schedule(run.schedule, run.revision)
        is_patient = definition.misfire.value == "latest" or definition.overlap.value == "queue"
        return not is_patient and self.context.now() - run.instant > definition.lateness

    # -- when a keeper or a process goes -----------------------------------------------------------------------------------

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


class NoKeeper:
    """Stands where nothing is to be launched: a keeper that is gone."""

    closed = True
    wants_write = False

    @property
    def hello(self) -> KeeperHello:
        raise IoError("there is no keeper")

    def fileno(self) -> int:
        return -1

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Nothing is launched."""

    def flush(self) -> None:
        """Nothing is queued."""

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """Nobody is told."""

    def forbid(self, run: str, k: int, timeout: timedelta = timedelta(0)) -> Standing:
        raise IoError("there is no keeper")

    def list(self, timeout: timedelta = timedelta(0)) -> Standings:
        raise IoError("there is no keeper")

    def poll(self) -> Reports:
        return []

    def close(self) -> None:
        """Nothing is open."""


def _refusal(run: str, k: int, error: Unlaunchable, at: datetime) -> Refused:
    return Refused(run=run, k=k, errno=error.errno, what=error.what, at=at)  # type: ignore[arg-type]


def _environ() -> Mapping[str, str]:
    return os.environ
