"""Runs: started by hand, cancelled, inspected; and who drives one where no supervisor lives (contract 6.12, 6.14)."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from wfctl.core.model import FINISHED, LOCAL, SLURM, Status, run_name
from wfctl.core.plain import json_bytes
from wfctl.errors import Blocked, InvalidArgument, IoError, MissingExtra, PreflightFailed, Problem, WrongState
from wfctl.keeper.absent import NoKeeper
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import Origin
from wfctl.operations import clusters, deployments, preflight, reconcile
from wfctl.operations.cluster_checks import check_cluster
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.operations.listing import require_run
from wfctl.operations.outputs import OutputBounds
from wfctl.operations.schedules import diagnosed
from wfctl.operations.views import CheckView
from wfctl.settings import Settings, load_settings
from wfctl.store.ledger import executions, runs
from wfctl.store.locks import FileLock, is_held

_ENGAGED_WITHIN_S = 30.0
_LOOK_FOR_STOP_S = 1.0  #: how often a driver looks whether another process recorded a stop


def preflight_of(context: Context, deployment_id: str, bound: Mapping[str, Any]) -> list[Problem]:
    """Return what keeps a run of that deployment from starting now. Raise NotFound, Deleted, Blocked."""
    return preflight_for(context, deployment_id, bound)()


def preflight_for(context: Context, deployment_id: str, bound: Mapping[str, Any]) -> Callable[[], list[Problem]]:
    """Return the preflight of a run of that deployment: it touches no ledger, so that a worker may ask it.

    Raise NotFound, Deleted, Blocked, InvalidArgument for an id that is no text.
    """
    if not isinstance(deployment_id, str) or not deployment_id:
        raise InvalidArgument(f"deployment_id must be text, not {deployment_id!r}", {"argument": "deployment_id"})
    reconcile.one(context, "deployment", deployment_id)
    row = deployments.require_live(context.ledger.connection, deployment_id)
    if row.diagnostic is not None:
        raise Blocked(f"deployment {deployment_id} is blocked: {row.diagnostic.get('message')}", diagnosed(row))
    definition, _ = context.deployment(row.number, row.revision)
    base = preflight.base_environment(os.environ)
    if definition.executor != LOCAL:
        missing = clusters.executor_problem(definition, clusters.settings_of(context).slurm)
        if missing is not None:
            return lambda: [missing]
    return lambda: preflight.preflight_problems(definition, context.layout, bound, base)


def checks_of(context: Context, deployment_id: str, bound: Mapping[str, Any]) -> list[CheckView]:
    """Return a line for each thing that a run needs. Raise NotFound, Deleted, Blocked."""
    problems = preflight_of(context, deployment_id, bound)
    row = deployments.require_live(context.ledger.connection, deployment_id)
    definition, _ = context.deployment(row.number, row.revision)
    first = "command" if definition.is_one_command else "steps[0].command"
    is_here = definition.executor == LOCAL
    asked = {
        "working_directory": (definition.working_directory or "the run's own") + ("" if is_here else ", on the node"),
        "environment_files": ", ".join(definition.environment_files) or "none",
        "files": ", ".join(definition.files) or "none",
        first: definition.steps[0].command[0] + ("" if is_here else ", looked for on the node"),
        "input": "as the schema says" if definition.input_schema is not None else "no schema",
    }
    if not is_here:
        asked["executor"] = definition.executor
    wrong = {name: [problem for problem in problems if problem.path.startswith(name)] for name in asked}
    checks = [
        CheckView(name=name, ok=not wrong[name], detail="; ".join(each.message for each in wrong[name]) or detail)
        for name, detail in asked.items()
    ]
    slurm = clusters.settings_of(context).slurm
    if definition.slurm is not None and slurm is not None:
        found = check_cluster(slurm, context.ledger.store_id, context.layout.runs, definition.slurm)
        checks += [CheckView(name=each.name, ok=each.ok, detail=each.detail) for each in found]
    return checks


def check_manual(context: Context, deployment_id: str, given: Any) -> Mapping[str, Any]:
    """Return the input that a manual run of that deployment would be bound to.

    Raise NotFound, Deleted, Blocked, InvalidArgument for an input that is no object, PreflightFailed.
    """
    bound = manual_input(given)
    refuse_unready(deployment_id, preflight_of(context, deployment_id, bound))
    return bound


def manual_input(given: Any) -> Mapping[str, Any]:
    """Return the input of a manual run. Raise InvalidArgument for what is no object."""
    bound = {} if given is None else given
    if not isinstance(bound, Mapping):
        raise InvalidArgument(f"input must be an object of names and values, not {type(bound).__name__}", {"argument": "input"})
    return bound


def refuse_unready(deployment_id: str, problems: Sequence[Problem]) -> None:
    """Raise PreflightFailed when preflight found problems."""
    if problems:
        listed = "; ".join(str(problem) for problem in problems)
        data = {"problems": [problem.to_json() for problem in problems]}
        raise PreflightFailed(f"deployment {deployment_id} cannot run: {listed}", data)


def admit_manual(
    context: Context,
    deployment_id: str,
    bound: Mapping[str, Any],
    mark_note: Callable[[str], Mapping[str, Any]],
    *,
    number: int | None = None,
) -> runs.NewRun:
    """Enter a manual run with the mark of its first execution, beside overlap and capacity (6.12).

    `number`: one that was reserved. Raise NotFound, Deleted.
    """
    with context.ledger.transaction() as connection:
        row = deployments.require_live(connection, deployment_id)
        new = runs.NewRun(
            number=runs.next_number(connection) if number is None else number,
            schedule=None,
            instant=None,
            revision=None,
            deployment=row.number,
            deployment_revision=row.revision,
            admitted_at=context.now(),
            max_run=None,
            max_steps=None,
            input=json_bytes(dict(bound)).decode(),
        )
        runs.insert(connection, [new])
        executor = context.deployment(row.number, row.revision)[0].executor
        executions.mark(connection, [(new.number, 1, 0, 1)], mark_note(executor))
    return new


# Driving without a supervisor ---------------------------------------------------------------------------------------------


def _own_keeper(context: Context, number: int) -> KeeperClient:
    return KeeperClient.start(context.layout.run(run_name(number)).root, Origin.COMMAND)


class LocalDriver:
    """Drives one run in this process, holding the kernel lock `runs/ID/driver`, with a keeper of the run's own (6.12)."""

    def __init__(self, context: Context, number: int, lock: FileLock) -> None:
        self.context = context
        self.number = number
        self._lock = lock
        executors = clusters.executors_of(context, clusters.settings_of(context))
        self.driver = Driver(context, _own_keeper(context, number), keeper_place="run", only=number, executors=executors)
        self.driver.outputs = outputs_of(context)

    @classmethod
    def start(cls, context: Context, deployment_id: str, given: Any) -> LocalDriver:
        """Enter a manual run and drive it from here on. Raise as `check_manual` does, and IoError.

        Lock and keeper are there before the mark, so that what becomes of the mark can always be told (6.10).
        """
        bound = check_manual(context, deployment_id, given)
        with context.ledger.transaction() as connection:
            number = runs.reserve_number(connection)
            while context.layout.run(run_name(number)).root.exists():  # of a run that an older ledger does not know (2.8)
                number = runs.reserve_number(connection)
        local = cls.engage(context, number)
        try:
            new = admit_manual(context, deployment_id, bound, local.driver.mark_note, number=number)
            local.driver.launch_admitted([new])
        except BaseException:
            local.close()
            raise
        return local

    @classmethod
    def take_over(cls, context: Context, number: int, *, inherited: int | None = None) -> LocalDriver:
        """Drive a run that nobody drives, or whose driver handed its lock on as the descriptor `inherited`.

        Raise WrongState when somebody does.
        """
        local = cls.engage(context, number, inherited)
        try:
            local.driver.recover()
        except BaseException:
            local.close()
            raise
        return local

    @classmethod
    def resume(cls, context: Context, number: int, given: Any) -> LocalDriver:
        """Resume an interrupted manual run and drive it from here on. Raise as `check_resume` does, and IoError."""
        local = cls.engage(context, number)
        try:
            local.driver.resume(number, given, slots=None)
        except BaseException:
            local.close()
            raise
        return local

    @classmethod
    def engage(cls, context: Context, number: int, inherited: int | None = None) -> LocalDriver:
        """Take lock and keeper of a run, and do nothing yet. Raise WrongState when somebody drives it."""
        paths = context.layout.run(run_name(number))
        lock = claim(context, number) if inherited is None else FileLock.of(paths.driver_lock, inherited)
        if lock is None:
            raise WrongState(f"{run_name(number)} is driven by another process", {"run_id": run_name(number)})
        try:
            return cls(context, number, lock)
        except BaseException:
            lock.release()
            raise

    @property
    def is_over(self) -> bool:
        """Tell whether there is nothing left to drive."""
        if self.number in self.driver.doubts.runs:
            return True
        row = runs.find(self.context.ledger.connection, self.number)
        return row is None or row.status in FINISHED or row.status is Status.INTERRUPTED

    def step(self, wait_s: float) -> None:
        """Wait up to so long for something to happen to the run, and take it in."""
        timer = self.driver.next_timer()
        wait = wait_s if timer is None else max(0.0, min(wait_s, timer - self.context.clock.monotonic()))
        waiting = self.driver.descriptors()
        writing = [descriptor for descriptor, wants in waiting.items() if wants]
        select.select(list(waiting), writing, [], min(wait, _LOOK_FOR_STOP_S))
        self.driver.take_in()
        self.driver.finish_stopped(self.number)
        self._bound_output()
        if self.driver.awaits_keeper:
            self.driver.change_keeper(_own_keeper(self.context, self.number))

    def _bound_output(self) -> None:
        if self.driver.outputs is not None:
            self.driver.outputs.look(self.driver.live, self.context.clock.monotonic())

    def close(self) -> None:
        """Give the run free: whoever looks next drives it on."""
        self._bound_output()
        self.driver.close()
        self._lock.release()

    def hand_over(self) -> None:
        """Have a background process drive the run; return once it does. Raise IoError when it cannot: the run is free then.

        The process inherits the lock, so that nobody comes in between.
        """
        name, lock = run_name(self.number), self._lock.fileno()
        place = str(Path(__file__).parents[2])
        command = [sys.executable, "-m", "wfctl.operations.background", str(self.context.layout.root), str(self.number)]
        try:
            done = subprocess.run(
                [*command, str(lock)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[lock],
                timeout=_ENGAGED_WITHIN_S,
                cwd="/",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IoError(f"{name} was started, but no process could be to drive it on: {error}", {"run_id": name}) from error
        finally:
            self.close()
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise IoError(f"{name} was started, but the process that was to drive it on ended: {said}", {"run_id": name})


def outputs_of(context: Context) -> OutputBounds:
    """Return what bounds output where no supervisor does (6.15); where settings cannot be read, by the built-in ones."""
    try:
        settings = load_settings(context.layout.root, os.environ)
    except MissingExtra:
        settings = Settings()
    return OutputBounds(context.layout, most=lambda: settings.max_output, every_s=lambda: settings.poll_interval_s, worker=None)


def claim(context: Context, number: int) -> FileLock | None:
    """Return the lock of a run that nobody drives, taken; None when a process or a supervisor does. Raise IoError.

    Who holds it and then finds no supervisor is alone: one that starts later sees the lock and leaves the run alone.
    """
    paths = context.layout.run(run_name(number))
    context.disk.make_directory(paths.root, durable=False)
    lock = FileLock(paths.driver_lock)
    if not lock.acquire():
        return None
    if is_held(context.layout.scheduler_lock):
        lock.release()
        return None
    return lock


# Settling what nobody drives ----------------------------------------------------------------------------------------------


def settle_if_over(context: Context, number: int) -> None:
    """A run whose driver is gone and whose end is on record is settled by whoever looks first (6.12).

    A step or retry that would come next is left to the next driver.
    """
    row = runs.find(context.ledger.connection, number)
    if row is None or row.status in FINISHED or row.status is Status.INTERRUPTED:
        return
    paths = context.layout.run(row.id)
    if not paths.root.exists() or is_held(context.layout.scheduler_lock) or is_held(paths.driver_lock):
        return
    driver = Driver(context, NoKeeper(), keeper_place="nowhere", only=number)
    driver.doubts.look(number)
    if number in driver.doubts.runs:
        return  # what it says cannot all be true: nothing is settled by it (7.4)
    lock = claim(context, number) if driver.is_end_recorded(number) else None
    if lock is not None:
        with lock:
            driver.outputs = outputs_of(context)
            driver.settle_recorded(number)
            driver.outputs.look((), context.clock.monotonic())


def cancel(context: Context, run_id: str, reason: str | None, *, grace: timedelta | None) -> None:
    """Without a supervisor, end a run in any unfinished state (6.14): recorded first, then signalled.

    Where another process drives it, that one records the end. Raise NotFound; WrongState when it is over already.
    """
    row = require_run(context.ledger.connection, run_id)
    if row.status in FINISHED:
        raise already_over(row)
    stop = cancel_reason(context, reason)
    try:
        local = LocalDriver.engage(context, row.number)
    except WrongState:
        if is_held(context.layout.scheduler_lock):
            raise WrongState("a supervisor is just starting or ending on this store; try again", {"run_id": row.id}) from None
        cancel_driven(context, row, stop, grace)
        return
    try:
        if require_run(context.ledger.connection, run_id).status is Status.INTERRUPTED:
            local.driver.stop(row.number, stop)
        else:
            with context.ledger.transaction() as connection:  # before the recovery, which would go on with the next step
                runs.record_stop(connection, row.number, stop)
            local.driver.recover()
            local.driver.doubts.refuse(row.number)
            if grace is not None:
                local.driver.hurry(row.number, grace)
        while not local.is_over:
            local.step(1.0)
    finally:
        local.close()


def cancel_driven(context: Context, row: runs.RunRow, stop: Mapping[str, Any], grace: timedelta | None) -> None:
    """Record the stop and have the run's keeper signal its group; its driver takes in the end, or finds the stop."""
    with context.ledger.transaction() as connection:
        runs.record_stop(connection, row.number, stop)
        living = [each for each in executions.of_run(connection, row.number) if each.how is None]
    default = context.deployment(row.deployment, row.deployment_revision)[0].kill_grace
    elsewhere = [each.k for each in living if each.mark.get("keeper") == SLURM]
    if elsewhere:
        clusters.stop_now(context, row.id, elsewhere, default if grace is None else grace)
        return
    keeper = KeeperClient.connect(context.layout.run(row.id).root)
    if keeper is None:
        return
    with keeper:
        for each in living:
            keeper.stop(row.id, each.k, default if grace is None else grace)
        keeper.flush()


def cancel_reason(context: Context, reason: str | None) -> dict[str, Any]:
    """Return the data of a cancel: who, and why if they said."""
    return {"code": "cancelled", "actor": context.actor, **({"note": reason} if reason else {})}


def already_over(row: runs.RunRow) -> WrongState:
    """Return the error for a run that has ended already."""
    return WrongState(f"{row.id} is over: it is {row.status.value}", {"run_id": row.id, "status": row.status.value})
