"""The supervisor as a value of the Python API: one lock, one loop, one round at a time (contract 2.6, 7, 9.4)."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from wfctl.core.admission import Verdict
from wfctl.core.instants import format_instant
from wfctl.core.model import Status
from wfctl.errors import (
    DamagedStore,
    InvalidArgument,
    IoError,
    NoSupervisor,
    StoreLocked,
    TimedOut,
    WfctlError,
    WrongState,
)
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import Keeper, Origin
from wfctl.linux import USED_UP
from wfctl.operations import consistency, preflight, reconcile, renewal, restored, rounds
from wfctl.operations.clusters import executor_problem
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.operations.rounds import Question, RoundPlan, Subject
from wfctl.operations.spares import Spares
from wfctl.operations.store import Store
from wfctl.operations.views import ReloadView
from wfctl.rpc.session import Deferred, Session
from wfctl.settings import Settings, load_settings
from wfctl.store.ledger import Ledger, definitions, runs, schedules, sessions
from wfctl.store.ledger.connection import translated
from wfctl.store.locks import FileLock, read_owner
from wfctl.supervisor import logs
from wfctl.supervisor.ahead import AheadOfTime
from wfctl.supervisor.answers import Answers
from wfctl.supervisor.asides import Asides, reopener
from wfctl.supervisor.blocked import BlockedLog
from wfctl.supervisor.byhand import RunsByHand
from wfctl.supervisor.chores import Chores
from wfctl.supervisor.clockwatch import ClockWatch
from wfctl.supervisor.clusters import Clusters
from wfctl.supervisor.desk import Desk, DirectDoor, LedgerFacts, ledger_facts, reload_view, status_with
from wfctl.supervisor.filelooks import FileLooks
from wfctl.supervisor.health import Health
from wfctl.supervisor.narrator import Narrator
from wfctl.supervisor.notices import Notices
from wfctl.supervisor.preflighter import Check, Preflighter
from wfctl.supervisor.starting import StartingRuns
from wfctl.supervisor.stocking import Stocking
from wfctl.supervisor.turns import Turns
from wfctl.supervisor.waiting import Waiter

LOG = logging.getLogger("wfctl.supervisor")
_JOIN_S = 600.0
_STALL_S = 0.05  #: how long the loop waits for preflight before it lets the others go on
_PATIENT_S = 5.5  #: how long `step` does: beyond the limit of a check
_LOOK_AGAIN_S = 0.5
_AGAIN = timedelta(milliseconds=100)


class SupervisorService:
    """Owns a store and runs what comes due.

    `start()` does so in a thread, `step()` one round at a time in the caller's, `run()` until it is stopped. A context manager
    that stops. `settings` is a dict of the tables of the settings file, over what files and environment say.
    """

    def __init__(
        self, store: Store, settings: Mapping[str, Any] | None = None, *, flags: Mapping[str, Any] | None = None
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidArgument(f"a service runs an open store, such as `wfctl.open_store(path)` gives, not {store!r}")
        self._store = store
        self._given = settings
        self._flags = flags
        self.settings = self._load_settings()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()  #: that which has it open
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._is_open = False
        self._stop_asked = False  #: drain and end
        self._cut_asked = False  #: end the wait of the drain
        self._reload_asked = False
        self._outer_door: Any = None
        self.until_idle = False
        #: called after each round; gives in how many seconds to be called again
        self.on_round: Callable[[], float | None] = lambda: None
        self.on_reload: Callable[[bool], None] = lambda begins: None  #: called when a reload begins, and when it is done
        self.on_quiet: Callable[[float], None] = lambda until_due_s: None  #: called when nothing comes due for so long
        self.on_drain: Callable[[], None] = lambda: None  #: called when a drain that ends it begins
        self.on_progress: Callable[[], None] = lambda: None  #: called again and again while it recovers
        self.is_held = False  #: an operator's `drain`: nothing is admitted until it is undone
        self.health = Health(store.context.clock.monotonic)
        self.blocked = BlockedLog()
        self._turns = Turns()
        self.found: list[str] = []  #: what its start found and a person should look at
        self.problems = self.health.problems  #: by kind: what keeps it from working as it should

    # -- the public calls ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the lock, recover, and run the loop in a thread. Raise StoreLocked when another supervisor owns the store."""
        if self._is_open or self._thread is not None:
            raise WrongState("this service runs already")
        self._thread = threading.Thread(target=self._run_thread, name="wfctl-supervisor", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._thread.join()
            self._thread = None
            self._ready.clear()
            raise failure

    def step(self) -> datetime | None:
        """Do one round at the store's clock and return the next wake-up, or None when nothing lies ahead.

        The first call takes the lock and recovers. When it returns, everything due is settled and each launch has been sent;
        where the machine refuses that, `problems` says so, and the next call tries again (2.10, 7.7).
        Raise StoreLocked when another supervisor owns the store.
        """
        if self._thread is not None:
            raise WrongState("this service runs in a thread; do not step it")
        if not self._is_open:
            self.open()
            self._outer_door, self._store.door = self._store.door, DirectDoor(self)
        wake, wait_s = self._guarded_round(_PATIENT_S)
        return wake if wait_s is None else self._context.now() + timedelta(seconds=wait_s)

    def stop(self) -> None:
        """Drain and release the store (7.6): admission stops, active runs get `drain_grace_s`. Without effect when stopped."""
        if self._process != os.getpid():
            return  # a fork of who started it: the store is not ours
        if self._thread is not None:
            self._stop_asked = True
            self._waiter.wake()
            self._thread.join(_JOIN_S)
            self._thread = None
            self._ready.clear()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
        elif self._is_open:
            self._stop_asked = True
            self._loop()
            self.close()

    def __enter__(self) -> SupervisorService:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _load_settings(self) -> Settings:
        return load_settings(self._store.root, os.environ, self._flags, tables=self._given)

    # -- the process's calls ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the loop here until it is told to stop; the store must be open."""
        self._loop()

    def ask_to_stop(self) -> None:
        """Have the loop drain and end; safe in a signal handler."""
        self._stop_asked = True
        self._waiter.wake()

    def ask_to_cut(self) -> None:
        """Have the loop end the wait of its drain; safe in a signal handler."""
        self._cut_asked = True
        self._waiter.wake()

    def ask_to_reload(self) -> None:
        """Have the loop read settings and definitions again; safe in a signal handler."""
        self._reload_asked = True
        self._waiter.wake()

    @property
    def is_draining(self) -> bool:
        """Tell whether nothing is admitted or resumed: it is ending, or an operator holds it (7.6)."""
        return self._stop_asked or self.is_held

    @property
    def is_ending(self) -> bool:
        """Tell whether it was told to drain and end."""
        return self._stop_asked

    @property
    def context(self) -> Context:
        """The store as this supervisor has it open."""
        return self._context

    @property
    def wake_descriptor(self) -> int:
        """A descriptor that wakes the loop when written to."""
        return self._waiter.wake_descriptor

    def _run_thread(self) -> None:
        try:
            self.open()
        except BaseException as error:
            self._failure = error
            self._ready.set()
            return
        self._ready.set()
        try:
            self._loop()
        except BaseException as error:
            LOG.exception("the supervisor ended by a failure", extra={"action": "supervisor_failed"})
            self._failure = error
        finally:
            self.close()

    # -- opening and closing ---------------------------------------------------------------------------------------------

    def open(self) -> dict[str, int]:
        """Take the lock, start or find the keeper, recover; return how many executions were adopted, ended, and so on.

        Raise StoreLocked, DamagedStore, IoError. Nothing is admitted before this returns.
        """
        outer = self._store.context
        self._lock = FileLock(outer.layout.scheduler_lock)
        self.started_at = outer.now()
        if not self._lock.acquire(self.started_at):
            raise _locked(self._lock)
        try:
            self._context = Context(
                layout=outer.layout,
                ledger=Ledger(outer.layout.ledger, point=outer.disk.point),
                disk=outer.disk,
                clock=outer.clock,
                actor=outer.actor,
            )
            self._desk = Desk(self._context, self)
            self._open_parts()
            counts = self._recover()
        except BaseException:
            self._let_go()
            raise
        self._is_open, self._process = True, os.getpid()
        self._stop_asked = self._cut_asked = self.is_held = False
        return counts

    def _open_parts(self) -> None:
        from wfctl.rpc.server import ControlServer
        from wfctl.rpc.subscriptions import MOST, Subscriptions

        layout = self._context.layout
        self._waiter = Waiter(self._context.clock, [layout.schedules, layout.deployments])
        directory = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._server = ControlServer(directory, self._answer, aside=lambda job: self.asides.work_out(job))
        finally:
            os.close(directory)
        self._server.register(self._waiter.selector)
        self.watching = Subscriptions(self._context, most=min(MOST, self._server.capacity // 2))
        self._preflighter = Preflighter(self._context.clock.monotonic, self._waiter.wake)
        self._starting = StartingRuns(self._context.clock.monotonic, self._waiter.wake)
        self.asides = Asides(reopener(self._store), self._waiter.wake, Store(self._context))
        self._answers = Answers(self._desk, self.asides)
        self._looks = FileLooks(self.asides, self._context.clock.monotonic)
        self._base = preflight.base_environment(os.environ)

    def _recover(self) -> dict[str, int]:
        with self._context.ledger.reading() as connection:
            seen = sessions.last_seen(connection)
        with self._context.ledger.transaction() as connection:
            session = sessions.begin(connection, pid=os.getpid(), host=socket.gethostname(), at=self.started_at)
        self._context.notify = lambda: self.settings.notify
        self.clusters = Clusters(self._context, lambda: self.settings, self.health)
        self.driver = Driver(self._context, self._find_keeper(), executors=self.clusters.executors)
        self.driver.on_progress = self.on_progress
        self.driver.on_refused = lambda number: self.health.refused(number, self.settings.poll_interval_s)
        self.chores = Chores(self._context, self.driver, lambda: self.settings, self.health)
        self.notices = Notices(self._context, self.driver, self.health, self._base)
        self.on_progress()
        consistency.look_at_start(self._context)  # before anything is decided by what may contradict itself
        self.narrator, self.clock_watch = Narrator(self._context), ClockWatch(self._context.clock)
        self.driver.on_transition = self.narrator.transition
        self.driver.spares = Spares(self._context.layout)
        self._stocking = Stocking(self.driver.spares)
        self._ahead = AheadOfTime(self._context, self.driver, self._stocking)
        self._behind = rounds.Behind()
        self.by_hand = RunsByHand(
            self._context,
            self.driver,
            self._starting,
            is_draining=lambda: self.is_draining,
            slots_of=lambda row: self.clusters.slots_of(self.driver.executor_of(row)),
            view=lambda run_id: self._desk.inspect_run(run_id=run_id),
        )
        self.on_progress()
        renewal.renew_calendars(self._context, self.on_progress)
        self.on_progress()
        self.ignored = reconcile.everything(self._context, on_progress=self.on_progress)
        self.on_progress()
        self.found = restored.enter_unknown(self._context)
        counts = self.driver.recover()
        self.blocked.look(self._context)
        self.notices.begin()
        self.chores.begin()
        self._plan = RoundPlan(
            slots=self.settings.max_concurrent_runs,
            session=session,
            absent_from=seen,
            absent_until=self.started_at if seen is not None else None,
            mark_note=self.driver.mark_note,
            others=self.clusters.rooms(),
        )
        return counts

    def _find_keeper(self) -> Keeper:
        """Return the store's keeper, started where none lives: the seam for a fake one. Raise IoError."""
        return KeeperClient.start(self._context.layout.root, Origin.SUPERVISOR)

    def close(self) -> None:
        """Release the store. Runs go on with the keeper."""
        if not self._is_open:
            return
        self._is_open = False
        if self._outer_door is not None:
            self._store.door, self._outer_door = self._outer_door, None
        with contextlib.suppress(WfctlError), self._context.ledger.transaction() as connection:
            if self._plan.session is not None:
                sessions.end(connection, self._plan.session, self._context.now())
        self._let_go()

    def _let_go(self) -> None:
        """Close what is open, the lock last."""
        if "watching" in vars(self):
            self.watching.close(NoSupervisor("the supervisor has ended; watch again when one runs"))
        for part in ("_stocking", "_server", "asides", "chores", "driver", "_waiter"):
            if part in vars(self):
                getattr(self, part).close()
        if "_context" in vars(self):
            self._context.ledger.close()
        self._lock.release()

    # -- one round -------------------------------------------------------------------------------------------------------

    def _round(self, *, patience_s: float) -> datetime | None:
        """Take in what was reported, settle what is due, launch what was admitted; return when to do so again."""
        with logs.together():
            self.driver.take_in()
        self._look_after_keeper()
        if self.clusters.look():
            self._plan = replace(self._plan, others=self.clusters.rooms())
        self._look_at_files(patience_s)
        now = self._context.now()
        self._look_at_clock(now)
        jump = self.clock_watch.look(now)
        if self._may_admit():
            prepared = self._ahead.commit(self._plan, now)
            if prepared:
                self.driver.launch_admitted(prepared)
                self.narrator.admitted(prepared)
            turns = 0
            while turns < 10:  # what a launch that was refused gave free is given on at once
                admitted = rounds.settle_round(
                    self._context, self._plan, lambda asked: self._ask(asked, patience_s), now, self._behind
                )
                self.driver.launch_admitted(admitted)
                self.narrator.admitted(admitted)
                if self._behind.is_more and patience_s == _PATIENT_S:
                    continue  # a step settles all that is due
                turns += 1
                if not admitted or not self.driver.has_reports:
                    break
                self.driver.take_in()
                if not self._may_admit():
                    break
        else:
            self._ahead.let_go()
            self._behind = rounds.Behind()
        if not self._behind.is_more:  # all portions are told of together: of very many rows, how many
            self.narrator.look(jump)
        self.blocked.look(self._context)
        self.watching.tell()
        wake = self._next_wake(now)
        is_quiet = wake is None or wake - now > _AGAIN
        self.chores.do(is_quiet=is_quiet)
        if self.notices.work(is_quiet=is_quiet):
            wake = self._next_wake(now)
        return self._sooner(wake, now, self.notices.next_timer())

    def _look_at_clock(self, now: datetime) -> None:
        """Say once that the clock stands before what is consumed, and until when that holds admission up (5.14)."""
        until = rounds.held_back_until(self._context, now)
        if until is None:
            self._solved("clock")
        else:
            behind = f"what is consumed reaches to {format_instant(until)}, and nothing is admitted until then"
            self._problem("clock", f"the clock stepped back: {behind}")

    def _may_admit(self) -> bool:
        if self.is_draining:
            return False
        return self.health.allows(self._context.layout.root, self.settings) and "keeper" not in self.problems

    def _look_after_keeper(self) -> None:
        """Where the keeper is gone, start another; its runs are watched by pid meanwhile (6.9)."""
        if not self.driver.keeper.closed:
            return
        try:
            self.driver.change_keeper(self._find_keeper())
        except WfctlError as error:
            self._problem("keeper", f"no keeper can be started, so nothing is admitted: {error.message}")
            return
        LOG.warning("the keeper was gone; another one was started", extra={"action": "keeper_restarted"})
        self._solved("keeper")

    def _look_at_files(self, patience_s: float) -> None:
        """Take up hand edits once they have been left alone for a second (2.3, 2.4)."""
        if self._reload_asked:
            self._reload_asked = False
            self.begin_reload()
        if patience_s == _PATIENT_S:  # a stepped service is told of nothing between its steps, and nobody hands answers out
            self.ignored = reconcile.everything(self._context, settled_for=reconcile.SETTLED_AFTER)
            return
        if self._waiter.have_files_changed or not self._waiter.is_told:
            self._looks.notice(self._waiter.changed_files if self._waiter.is_told else None)
            self._waiter.have_files_changed, self._waiter.changed_files = False, set()
        self._looks.all_seen(self.ignored)
        self._looks.look()
        if self._looks.ignored is not None:
            self.ignored, self._looks.ignored = self._looks.ignored, None

    def _ask(self, questions: Sequence[Question], patience_s: float) -> Mapping[Subject, Verdict]:
        groups = rounds.same_checks(questions)
        asked = [(key, self._check_of(group[0])) for key, group in groups.items()]
        answers = self._preflighter.ask(asked, patience_s=patience_s)
        return {question.subject: answer for key, answer in answers.items() for question in groups[key]}

    def _check_of(self, question: Question) -> Check:
        """Return the check to be made on a worker, with everything of the ledger looked up here."""
        row = question.row
        deployment, _ = self._context.deployment(row.deployment, row.deployment_revision)
        layout, bound, base = self._context.layout, question.definition.input, self._base
        missing = executor_problem(deployment, self.settings.slurm)
        if missing is not None:
            return lambda: Verdict({"code": "preflight", "problems": [missing.to_json()]})
        return lambda: Verdict(preflight.check_preflight(deployment, layout, bound, base))

    def _next_wake(self, now: datetime) -> datetime | None:
        times: list[datetime] = []
        if not self.is_draining:
            with self._context.ledger.reading() as connection:
                due = schedules.next_wake(connection)
            if due is not None:
                is_held_up = due <= now  # by a preflight that is still asked, or by what keeps us from admitting
                is_broken = self.health.is_exhausted or "keeper" in self.problems or self.clusters.is_paused
                again = timedelta(seconds=self.settings.poll_interval_s) if is_broken else _AGAIN
                if self._behind.is_more:
                    again = timedelta(0)
                if not is_held_up and not is_broken and self._looks_ahead:
                    due = self._ahead.wake_for(due, now, self._plan, lambda: lambda asked: self._ask(asked, _STALL_S))
                times.append(now + again if is_held_up else due)
        moment = self._context.clock.monotonic()
        for at in (self.driver.next_timer(), *self._timers()):
            if at is not None:
                times.append(now + timedelta(seconds=max(0.0, at - moment)))
        return min(times) if times else None

    def _sooner(self, wake: datetime | None, now: datetime, at: float | None) -> datetime | None:
        """Return the sooner of a wake-up and a monotonic time."""
        if at is None:
            return wake
        then = now + timedelta(seconds=max(0.0, at - self._context.clock.monotonic()))
        return then if wake is None else min(wake, then)

    # -- the loop --------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        self._looks_ahead = self._context.clock.is_system  # one that is stepped through time is asked at its instants alone
        drained_at: float | None = None
        while True:
            if self._stop_asked and drained_at is None:
                drained_at = self._context.clock.monotonic() + self.settings.drain_grace_s
                LOG.info("draining: admission has stopped", extra={"action": "draining"})
                self.on_drain()
            wake, timeout = self._guarded_round(_STALL_S)
            if drained_at is not None and self._has_drained(drained_at):
                return
            if self.until_idle and self._is_idle():
                return
            left = self._serve(wake)
            chores = self.chores.wait_s() if timeout is None else None  # none was done in a round that failed
            watching = self.watching.wait_s()
            timeouts = [each for each in (timeout, left, chores, watching, self.on_round()) if each is not None]
            if drained_at is not None:
                left_s = drained_at - self._context.clock.monotonic()
                timeouts.append(left_s if left_s > 0 else _LOOK_AGAIN_S)  # what is being ended may take its time
            self._waiter.wait(
                wake, min(timeouts) if timeouts else None, self.settings.poll_interval_s, self.driver.descriptors()
            )

    def _serve(self, wake: datetime | None) -> float | None:
        """Answer requests until something is due (9.2); what one of them changed is looked at without waiting."""
        before = (self._context.ledger.commits, *self._timers())
        until_due = math.inf if wake is None else (wake - self._context.now()).total_seconds()
        left = self._turns.serve(until_due, self._server, self._hand_out)
        self.on_quiet(math.inf if wake is None else (wake - self._context.now()).total_seconds())
        return 0.0 if (self._context.ledger.commits, *self._timers()) != before else left

    def _timers(self) -> tuple[float | None, float | None]:
        return self._looks.next_timer(), self._starting.next_timer()

    def _hand_out(self) -> bool:
        """Hand out one answer that was worked out elsewhere; return whether there was one."""
        return self.asides.finish_one() or self.by_hand.finish_one()

    def _guarded_round(self, patience_s: float) -> tuple[datetime | None, float | None]:
        """Do a round; where the machine refuses, say so, trust nothing that was held, and try again after a while (2.10)."""
        try:
            with translated(self._context.ledger.path):
                if self._must_recover:
                    self._begin_again()
                wake = self._round(patience_s=patience_s)
        except DamagedStore:
            raise
        except (IoError, TimedOut, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _EXHAUSTED:
                raise
            self.health.failed(error, self._context.layout.root, self.settings)
            self._must_recover = True
            return None, self.settings.poll_interval_s
        self._solved("ledger")
        return wake, None

    _looks_ahead = False  #: it wakes a little before an instant
    _must_recover = False  #: a write failed, and what was held is not to be trusted

    def _begin_again(self) -> None:
        """After a failed write nothing that was held is trusted: reopen, reread, recover (2.10)."""
        fresh = Ledger(self._context.layout.ledger, point=self._context.disk.point)
        self._context.ledger.close()
        self._context.ledger = fresh
        self.asides.renew()
        self.driver.begin_again()
        consistency.look_at_start(self._context)
        self.driver.recover()
        with fresh.transaction() as connection:  # that it can be written again is shown by writing: only then is it over
            if self._plan.session is not None:
                sessions.seen(connection, self._plan.session, self._context.now())
        self._must_recover = False

    def _has_drained(self, deadline: float) -> bool:
        """Tell whether the drain is over (7.6).

        At its end runs go on, but for those of a late resume, which are cancelled and waited for; with `on_shutdown = "stop"`
        all are.
        """
        is_over = self._cut_asked or self._context.clock.monotonic() >= deadline
        if not self.driver.live and (is_over or not self.notices.is_busy):
            return True
        if not is_over:
            return False
        if self._cut_asked and self.settings.on_shutdown == "leave":
            return True
        ending = self.driver.resumed() if self.settings.on_shutdown == "leave" else list(self.driver.live)
        code = "drained" if self.settings.on_shutdown == "leave" else "shutdown"
        for number in ending:
            self.driver.stop(number, {"code": code, "actor": self._context.actor})
        return not ending

    def _is_idle(self) -> bool:
        """Tell whether nothing runs, nothing is held and no active one-shot lies ahead (11.5)."""
        with self._context.ledger.reading() as connection:
            busy = any(run.status is not Status.INTERRUPTED for run in runs.unfinished(connection))
            if busy or self.notices.is_busy or schedules.with_candidate(connection, None):
                return False
            return not any(
                row.next_instant is not None and row.is_admitting and self._is_oneshot(row)
                for row in schedules.list_all(connection)
            )

    def _is_oneshot(self, row: schedules.ScheduleRow) -> bool:
        return self._context.schedule(row.number, row.revision)[0].trigger.kind == "oneshot"

    # -- asked over a door -----------------------------------------------------------------------------------------------

    def _answer(self, method: str, params: Mapping[str, Any], session: Session) -> Any:
        from wfctl.rpc.subscriptions import WATCH

        return self.watching.answer(params, session) if method == WATCH.name else self._answers(method, params)

    def drain(self, *, undo: bool) -> None:
        """Stop admission and refuse resumes without ending, or open again (7.6). Raise WrongState when it is ending anyway."""
        if self._stop_asked:
            raise WrongState("the supervisor is ending; a drain cannot be asked for or undone any more")
        self.is_held = not undo
        LOG.info("admission %s", "is open again" if undo else "has stopped, by drain", extra={"action": "drain"})

    def reload(self) -> int:
        """Read settings and definitions again; return how many definitions were taken up. Bad settings leave the old ones."""
        before = definitions.count_revisions(self._context.ledger.connection)
        self.on_reload(True)
        try:
            self._reload_settings()
            self.ignored = _reread(self._context)
        finally:
            self.on_reload(False)  # whatever happens: systemd waits for it
        LOG.info("reloaded", extra={"action": "reloaded"})
        return definitions.count_revisions(self._context.ledger.connection) - before

    def begin_reload(self) -> Deferred:
        """Reload as `reload` does, with the files read beside the loop; the view of what changed comes later."""
        before = definitions.count_revisions(self._context.ledger.connection)

        def end(found: tuple[list[str], LedgerFacts]) -> ReloadView:
            self.ignored = found[0]
            LOG.info("reloaded", extra={"action": "reloaded"})
            changed = definitions.count_revisions(self._context.ledger.connection) - before
            return reload_view(changed, status_with(self, found[1]))

        self.on_reload(True)
        try:
            self._reload_settings()
            answer = self.asides.ask(lambda store: (_reread(store.context), ledger_facts(store.context)), then=end)
        except BaseException:
            self.on_reload(False)
            raise
        answer.when_done(lambda result, error: self.on_reload(False))
        return answer

    def _reload_settings(self) -> None:
        try:
            self.settings = self._load_settings()
            self._solved("settings")
            self.clusters.reload()
        except WfctlError as error:
            self._problem("settings", f"the settings were not taken up: {error.message}")
        self._plan = RoundPlan(
            slots=self.settings.max_concurrent_runs,
            session=self._plan.session,
            absent_from=self._plan.absent_from,
            absent_until=self._plan.absent_until,
            mark_note=self.driver.mark_note,
            others=self.clusters.rooms(),
        )
        self.notices.reload()

    # -- saying so -------------------------------------------------------------------------------------------------------

    def _problem(self, kind: str, message: str) -> None:
        self.health.problem(kind, message)

    def _solved(self, kind: str) -> None:
        self.health.solved(kind)


_EXHAUSTED = (*USED_UP, errno.EIO)


def _reread(context: Context) -> list[str]:
    """Look at calendars and definition files again; return what was found and ignored."""
    renewal.renew_calendars(context)
    return reconcile.everything(context)


def _locked(lock: FileLock) -> StoreLocked:
    owner = read_owner(lock.path)
    if owner is None:
        return StoreLocked(f"another supervisor owns {lock.path.parent}", {})
    data = {"pid": owner.pid, "host": owner.host, "started_at": format_instant(owner.started_at)}
    return StoreLocked(
        f"{lock.path.parent} is owned by the supervisor with pid {owner.pid} on {owner.host}, started {data['started_at']}",
        data,
    )
