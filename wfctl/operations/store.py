"""The Python API: one method per operation, on an open store (contract 9, 9.4)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wfctl.errors import DamagedStore, InvalidArgument, NoSupervisor
from wfctl.operations.context import Context, DryRun
from wfctl.operations.opening import open_context
from wfctl.operations.shown import DeploymentView, OccurrenceView, Page, RevisionView, RunView, ScheduleView
from wfctl.store.disk import Disk
from wfctl.store.ledger import Ledger
from wfctl.store.ledger import definitions as rows
from wfctl.store.ledger.connection import RESTORE
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.place import make_store

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from wfctl.operations.runs import LocalDriver
    from wfctl.operations.views import (
        AuditView,
        CheckView,
        ExplanationView,
        GcView,
        InfoView,
        ReloadView,
        StatusView,
        VerifyView,
    )
    from wfctl.operations.watching import Watch

REVISIONS = "wfctl/revisions.v1"
Result = TypeVar("Result")
LONGEST_WORDS = 65_536  #: characters of a reason, which is kept for good


class Door(Protocol):
    """The way to the supervisor of a store. Every method raises NoSupervisor where none is there."""

    def poke(self) -> None:
        """Tell it that something changed; without effect where none is there."""

    def start_run(self, deployment_id: str, given: Any) -> str:
        """Have it start a run by hand; return the run's id."""

    def resume_run(self, run_id: str, given: Any) -> None:
        """Have it give input to an interrupted run."""

    def cancel_run(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        """Have it end a run."""

    def status(self, patience_s: float | None = None) -> StatusView:
        """Return how it is; with `patience_s` raise TimedOut when it does not say so within that time."""

    def reload(self) -> ReloadView:
        """Have it read settings and definitions again."""

    def drain(self, undo: bool) -> StatusView:
        """Have it stop admission and refuse resumes, or open it again."""


class NoDoor:
    """Where nobody is to be asked."""

    def poke(self) -> None:
        """Nobody is there to be told."""

    def start_run(self, deployment_id: str, given: Any) -> str:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")

    def resume_run(self, run_id: str, given: Any) -> None:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")

    def drain(self, undo: bool) -> StatusView:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")

    def cancel_run(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")

    def status(self, patience_s: float | None = None) -> StatusView:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")

    def reload(self) -> ReloadView:
        raise NoSupervisor("no supervisor runs on this store; start one with `wfctl supervise`")


class Store:
    """An open store. A context manager; its methods may be called from several threads, one at a time.

    Instants are given as aware datetimes or RFC 3339 text, durations as text such as `10m`; `expected_revision` is the revision
    a change was made for. Every change returns the new view of the thing.
    """

    def __init__(self, context: Context, door: Door | None = None) -> None:
        self.context = context
        self.door: Door = door or NoDoor()
        self._lock = threading.RLock()
        self._driven: dict[str, LocalDriver] = {}

    @property
    def root(self) -> Path:
        """The store's directory, links resolved."""
        return self.context.layout.root

    def close(self) -> None:
        """Close the store; runs that this process drives are given free."""
        with self._lock:
            for local in self._driven.values():
                local.close()
            self._driven.clear()
            self.context.ledger.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- schedules -------------------------------------------------------------------------------------------------------

    def create_schedule(
        self,
        *,
        schedule_id: str,
        deployment_id: str,
        trigger: Mapping[str, Any],
        input: Mapping[str, Any] | None = None,
        notes: str | None = None,
        overlap: str | None = None,
        max_active_runs: int | None = None,
        misfire: str | None = None,
        lateness: str | None = None,
        max_run: str | None = None,
        max_steps: int | None = None,
        notify: Mapping[str, Any] | None = None,
        paused: bool = False,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> ScheduleView:
        """Create a schedule; its calendar begins now, nothing is backfilled (3.5).

        Raise InvalidDefinition, NotFound for the deployment, Exists for an id that is or ever was in use.
        """
        from wfctl.operations import schedules

        fields = {
            "deployment_id": deployment_id,
            "trigger": trigger,
            "input": input,
            "notes": notes,
            "overlap": overlap,
            "max_active_runs": max_active_runs,
            "misfire": misfire,
            "lateness": lateness,
            "max_run": max_run,
            "max_steps": max_steps,
            "notify": notify,
        }
        return self._change_schedule(
            lambda: schedules.create(
                self.context,
                schedule_id,
                fields,
                paused=_flag(paused, "paused"),
                reason=_words(reason, "reason"),
                dry_run=_flag(dry_run, "dry_run"),
            )
        )

    def get_schedule(self, *, schedule_id: str) -> ScheduleView:
        """Return a schedule, deleted or not. Raise NotFound."""
        from wfctl.operations import reconcile
        from wfctl.operations.describe_definitions import schedule_view
        from wfctl.operations.finding import require

        with self._lock:
            reconcile.one(self.context, "schedule", _word(schedule_id, "schedule_id"))
            with self.context.ledger.reading() as connection:
                return schedule_view(self.context, connection, require(connection, "schedule", schedule_id))

    def list_schedules(
        self,
        *,
        include_deleted: bool = False,
        status: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ScheduleView]:
        """Return schedules by id: all of them, or pages of `limit`; `status` chooses by state.

        Raise InvalidArgument, BadCursor.
        """
        from wfctl.operations.listing_schedules import list_schedules

        wanted = _flag(include_deleted, "include_deleted")
        with self._lock:
            return list_schedules(self.context, include_deleted=wanted, status=status, limit=limit, cursor=cursor)

    def update_schedule(
        self,
        /,
        *,
        schedule_id: str,
        expected_revision: int,
        unset: Sequence[str] = (),
        dry_run: bool = False,
        **fields: Any,
    ) -> ScheduleView:
        """Change the given fields, for admissions from now on; tables are replaced whole, `unset` clears (3.2 to 3.4).

        Raise NotFound, Deleted, RevisionConflict when it is at another revision, InvalidDefinition, InvalidArgument.
        """
        from wfctl.operations import schedules

        return self._change_schedule(
            lambda: schedules.update(
                self.context,
                _word(schedule_id, "schedule_id"),
                expected_revision,
                fields,
                _names(unset),
                dry_run=_flag(dry_run, "dry_run"),
            )
        )

    def pause_schedule(self, *, schedule_id: str, reason: str | None = None, dry_run: bool = False) -> ScheduleView:
        """Stop admission; active runs go on. Idempotent (5.11). Raise NotFound, Deleted."""
        from wfctl.operations import schedules

        return self._change_schedule(
            lambda: schedules.pause(
                self.context,
                _word(schedule_id, "schedule_id"),
                reason=_words(reason, "reason"),
                dry_run=_flag(dry_run, "dry_run"),
            )
        )

    def resume_schedule(self, *, schedule_id: str, dry_run: bool = False) -> ScheduleView:
        """Admit again from now on; paused time is never replayed. Idempotent (5.11). Raise NotFound, Deleted."""
        from wfctl.operations import schedules

        return self._change_schedule(
            lambda: schedules.resume(self.context, _word(schedule_id, "schedule_id"), dry_run=_flag(dry_run, "dry_run"))
        )

    def delete_schedule(self, *, schedule_id: str, dry_run: bool = False) -> ScheduleView:
        """Retire a schedule and its id; history and runs stay. Idempotent (5.12). Raise NotFound."""
        from wfctl.operations import schedules

        return self._change_schedule(
            lambda: schedules.delete(self.context, _word(schedule_id, "schedule_id"), dry_run=_flag(dry_run, "dry_run"))
        )

    def _change_schedule(self, change: Callable[[], int]) -> ScheduleView:
        from wfctl.operations.describe_definitions import schedule_view

        with self._lock:
            try:
                number = change()
            except DryRun as would:
                assert isinstance(would.result, ScheduleView)
                return would.result
            self.door.poke()
            with self.context.ledger.reading() as connection:
                return schedule_view(self.context, connection, rows.get(connection, number))

    def list_revisions(self, *, schedule_id: str, limit: int = 20, cursor: str | None = None) -> Page[RevisionView]:
        """Return the revisions of a schedule, oldest first. Raise NotFound, InvalidArgument, BadCursor."""
        from wfctl.operations import reconcile
        from wfctl.operations.cursors import check_limit, make_cursor, read_cursor
        from wfctl.operations.describe_definitions import revision_view
        from wfctl.operations.finding import require

        size = check_limit(limit)
        scope = {"list": REVISIONS, "schedule": _word(schedule_id, "schedule_id")}
        after = 0 if cursor is None else read_cursor(scope, cursor)["after"]
        with self._lock:
            reconcile.one(self.context, "schedule", schedule_id)
            with self.context.ledger.reading() as connection:
                row = require(connection, "schedule", schedule_id)
                found = rows.revisions(connection, row.number, after=after, limit=size + 1)
        items = tuple(revision_view(each) for each in found[:size])
        following = make_cursor(scope, {"after": items[-1].revision}) if len(found) > size else None
        return Page(items, following, REVISIONS)

    # -- occurrences -----------------------------------------------------------------------------------------------------

    def list_schedule_occurrences(
        self,
        *,
        schedule_id: str | Sequence[str] | None = None,
        limit: int = 20,
        cursor: str | None = None,
        status: str | Sequence[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        reverse: bool = False,
    ) -> Page[OccurrenceView]:
        """Return a page of the history of one schedule, of several, or of all; oldest first, held candidates on top (8.1).

        With `reverse` the newest come first, below the held candidates. Raise InvalidArgument, BadCursor, NotFound.
        """
        from wfctl.operations import listing

        backwards = _flag(reverse, "reverse")
        given = {"schedule_id": schedule_id, "status": status, "since": since, "until": until}
        with self._lock:
            return listing.list_occurrences(self.context, limit=limit, cursor=cursor, reverse=backwards, **given)

    def get_occurrence(self, *, schedule_id: str, instant: datetime | str) -> OccurrenceView:
        """Return what became of one instant. Raise NotFound, InvalidArgument."""
        from wfctl.operations import listing

        with self._lock:
            return listing.get_occurrence(self.context, schedule_id=_word(schedule_id, "schedule_id"), instant=instant)

    def explain_occurrence(self, *, schedule_id: str, instant: datetime | str) -> ExplanationView:
        """Say what became of any instant, past or to come, and why; what another policy would have done (5.10).

        Raise NotFound for what the schedule's triggers never named, with the instants beside it; InvalidArgument.
        """
        from wfctl.operations.explain import ask, explain

        with self._lock:
            return explain(self.context, _word(schedule_id, "schedule_id"), instant, supervisor=ask(self.door.status))

    def audit_schedule(self, *, schedule_id: str, since: datetime | str | None = None) -> AuditView:
        """Recount the instants of a schedule up to what is consumed, and check that each is accounted for once (5.15).

        Raise NotFound, InvalidArgument.
        """
        from wfctl.operations.audit import audit

        with self._lock:
            return audit(self.context, _word(schedule_id, "schedule_id"), since=since)

    # -- deployments -----------------------------------------------------------------------------------------------------

    def create_deployment(
        self,
        *,
        deployment_id: str,
        command: Sequence[str] | None = None,
        steps: Sequence[Mapping[str, Any]] | None = None,
        description: str | None = None,
        working_directory: str | None = None,
        environment: Mapping[str, str] | None = None,
        environment_files: Sequence[str] | None = None,
        kill_grace: str | None = None,
        umask: str | None = None,
        executor: str | None = None,
        slurm: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        input_schema: Mapping[str, Any] | bool | None = None,
        retries: int | None = None,
        retry_delay: str | None = None,
        timeout: str | None = None,
        dry_run: bool = False,
    ) -> DeploymentView:
        """Create a deployment: one `command` with its retries and timeout, or `steps`.

        Raise InvalidDefinition, Exists for an id that is or ever was in use.
        """
        from wfctl.operations import deployments

        fields = {
            "command": command,
            "steps": steps,
            "description": description,
            "working_directory": working_directory,
            "environment": environment,
            "environment_files": environment_files,
            "kill_grace": kill_grace,
            "umask": umask,
            "executor": executor,
            "slurm": slurm,
            "files": files,
            "input_schema": input_schema,
            "retries": retries,
            "retry_delay": retry_delay,
            "timeout": timeout,
        }
        return self._change_deployment(
            lambda: deployments.create(self.context, deployment_id, fields, dry_run=_flag(dry_run, "dry_run"))
        )

    def get_deployment(self, *, deployment_id: str) -> DeploymentView:
        """Return a deployment, deleted or not. Raise NotFound."""
        from wfctl.operations import reconcile
        from wfctl.operations.describe_definitions import deployment_view
        from wfctl.operations.finding import require

        with self._lock:
            reconcile.one(self.context, "deployment", _word(deployment_id, "deployment_id"))
            with self.context.ledger.reading() as connection:
                return deployment_view(self.context, connection, require(connection, "deployment", deployment_id))

    def list_deployments(
        self, *, include_deleted: bool = False, limit: int | None = None, cursor: str | None = None
    ) -> Page[DeploymentView]:
        """Return deployments by id: all of them, or pages of `limit`. Raise InvalidArgument, BadCursor."""
        from wfctl.operations.listing_deployments import list_deployments

        wanted = _flag(include_deleted, "include_deleted")
        with self._lock:
            return list_deployments(self.context, include_deleted=wanted, limit=limit, cursor=cursor)

    def update_deployment(
        self,
        /,
        *,
        deployment_id: str,
        expected_revision: int,
        unset: Sequence[str] = (),
        dry_run: bool = False,
        **fields: Any,
    ) -> DeploymentView:
        """Change the given fields, for runs admitted from now on (3.2, 3.3).

        Raise NotFound, Deleted, RevisionConflict when it is at another revision, InvalidDefinition, InvalidArgument.
        """
        from wfctl.operations import deployments

        return self._change_deployment(
            lambda: deployments.update(
                self.context,
                _word(deployment_id, "deployment_id"),
                expected_revision,
                fields,
                _names(unset),
                dry_run=_flag(dry_run, "dry_run"),
            )
        )

    def delete_deployment(self, *, deployment_id: str, dry_run: bool = False) -> DeploymentView:
        """Retire a deployment and its id. Idempotent. Raise NotFound, InUse while a schedule names it (3.5)."""
        from wfctl.operations import deployments

        return self._change_deployment(
            lambda: deployments.delete(self.context, _word(deployment_id, "deployment_id"), dry_run=_flag(dry_run, "dry_run"))
        )

    def _change_deployment(self, change: Callable[[], int]) -> DeploymentView:
        from wfctl.operations.describe_definitions import deployment_view

        with self._lock:
            try:
                number = change()
            except DryRun as would:
                assert isinstance(would.result, DeploymentView)
                return would.result
            self.door.poke()
            with self.context.ledger.reading() as connection:
                return deployment_view(self.context, connection, rows.get(connection, number))

    def pin_file(self, path: str | Path) -> str:
        """Store the content of a file for deployments to pin; return its `sha256:HEX` (3.8). Raise InvalidArgument, IoError."""
        from pathlib import Path

        from wfctl.store.artifacts import read_for_pinning, store_artifact

        with self._lock:
            return store_artifact(self.context.layout, self.context.disk, read_for_pinning(Path(path)))

    def check_deployment(self, *, deployment_id: str, input: Mapping[str, Any] | None = None) -> list[CheckView]:
        """Ask preflight without a run: a line for each thing that a run needs. Raise NotFound, Deleted, Blocked."""
        from wfctl.operations import runs  # not for those who only look

        with self._lock:
            return runs.checks_of(self.context, _word(deployment_id, "deployment_id"), input or {})

    # -- runs ------------------------------------------------------------------------------------------------------------

    def start_run(self, *, deployment_id: str, input: Mapping[str, Any] | None = None, detach: bool = True) -> RunView:
        """Start a run by hand, beside overlap and capacity (6.12); return it as it then is.

        With a supervisor that one drives it; without, a background process, or with `detach=False` this one: see `follow`.
        Raise NotFound, Deleted, Blocked, PreflightFailed, Draining, IoError.
        """
        from wfctl.operations import listing, runs

        with self._lock:
            try:
                return self.inspect_run(run_id=self.door.start_run(_word(deployment_id, "deployment_id"), input))
            except NoSupervisor:
                local = runs.LocalDriver.start(self.context, deployment_id, input)
            row = listing.run_of(self.context, local.number)
            if detach:
                local.hand_over()
            else:
                self._driven[row.id] = local
            return self.inspect_run(run_id=row.id)

    def hand_over(self, *, run_id: str) -> None:
        """Have a background process drive on a run that this process drives (6.12). Raise IoError when it cannot."""
        with self._lock:
            local = self._driven.pop(run_id, None)
            if local is not None:
                local.hand_over()

    def driver_of(self, run_id: str) -> LocalDriver | None:
        """Return what drives a run in this process, if this process does."""
        return self._driven.get(run_id)

    def resume_run(self, *, run_id: str, input: Mapping[str, Any] | None = None, detach: bool = True) -> RunView:
        """Give input to an interrupted run; the interrupted step runs again, in a new attempt (6.13).

        A scheduled run needs the supervisor and a free execution slot. Raise NotFound, WrongState, InvalidDefinition for an
        input that the job does not accept, NoSupervisor, Saturated, Draining.
        """
        from wfctl.operations import listing, runs

        with self._lock:
            row = listing.require_run(self.context.ledger.connection, run_id)
            try:
                self.door.resume_run(run_id, input)
            except NoSupervisor:
                if row.schedule is not None:
                    raise
                local = runs.LocalDriver.resume(self.context, row.number, input)
                if detach:
                    local.hand_over()
                else:
                    self._driven[row.id] = local
            return self.inspect_run(run_id=run_id)

    def cancel_run(self, *, run_id: str, reason: str | None = None, grace: str | None = None) -> RunView:
        """End a run in any unfinished state (6.14). With a supervisor this returns once the stop is recorded and signalled.

        `grace`: how long its processes get between TERM and KILL. Raise NotFound, WrongState when it is over already.
        """
        from wfctl.operations import listing, runs

        wait = None if grace is None else _duration(grace, "grace")
        with self._lock:
            listing.require_run(self.context.ledger.connection, run_id)
            try:
                self.door.cancel_run(run_id, _words(reason, "reason"), None if wait is None else wait.total_seconds())
            except NoSupervisor:
                runs.cancel(self.context, run_id, reason, grace=wait)
            return self.inspect_run(run_id=run_id)

    def inspect_run(self, *, run_id: str) -> RunView:
        """Return any run, scheduled or manual. Raise NotFound."""
        from wfctl.core.model import UNFINISHED
        from wfctl.operations import listing
        from wfctl.operations.describe import broken_run_view, run_view

        with self._lock:
            try:
                row = listing.require_run(self.context.ledger.connection, run_id)
            except UnreadableRow as error:
                return broken_run_view(run_id, error.message)
            if row.status in UNFINISHED and run_id not in self._driven:
                from wfctl.operations import runs  # not for those who only look

                runs.settle_if_over(self.context, row.number)
            with self.context.ledger.reading() as connection:
                return run_view(self.context, connection, listing.require_run(connection, run_id))

    def list_runs(
        self,
        *,
        schedule_id: str | Sequence[str] | None = None,
        deployment_id: str | None = None,
        status: str | Sequence[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 20,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page[RunView]:
        """Return a page of runs, oldest first, or with `reverse` newest first. Raise InvalidArgument, BadCursor, NotFound."""
        from wfctl.operations import listing

        backwards = _flag(reverse, "reverse")
        with self._lock:
            return listing.list_runs(
                self.context,
                schedule_id=schedule_id,
                deployment_id=deployment_id,
                status=status,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
                reverse=backwards,
            )

    def run_log_paths(self, run_id: str) -> tuple[Path, Path]:
        """Return where a run's stdout and stderr are kept; the files may not be there yet. Raise NotFound."""
        from wfctl.operations import listing

        with self._lock:
            row = listing.require_run(self.context.ledger.connection, run_id)
        paths = self.context.layout.run(row.id)
        return paths.stdout, paths.stderr

    # -- upkeep ----------------------------------------------------------------------------------------------------------

    def collect_garbage(self, *, keep: str | None = None, keep_runs: int | None = None, dry_run: bool = False) -> GcView:
        """Let old history go, beside a running supervisor: what is older than `keep`, or than the newest `keep_runs` runs.

        Given neither, the settings of `[history]` hold. Ids, revisions, unfinished runs and candidates are always kept.
        Raise InvalidArgument where nothing says what to keep, TimedOut, IoError.
        """
        from wfctl.operations.clusters import sweep_clusters
        from wfctl.operations.retention import Rule, collect
        from wfctl.operations.views import GcView
        from wfctl.settings import load_settings

        if keep is None and keep_runs is None:
            rule = Rule.of(load_settings(self.root, os.environ))
        else:
            rule = Rule(None if keep is None else _duration(keep, "keep"), _count(keep_runs, "keep_runs"))
        if rule.keeps_all:
            raise InvalidArgument("nothing says what to keep: give --keep DURATION, --keep-runs N, or set [history] keep_days")
        with self._lock:
            sweep = collect(self.context, rule, dry_run=dry_run)
            if not dry_run:
                sweep_clusters(self.context)
        return GcView(
            occurrences=sweep.occurrences,
            runs=sweep.runs,
            before=sweep.before,
            keep_runs=rule.keep_runs,
            is_dry_run=dry_run,
        )

    # -- the store itself ------------------------------------------------------------------------------------------------

    def verify_store(
        self,
        *,
        names: Sequence[str] = (),
        deep: bool = False,
        fix: Sequence[str] = (),
        fix_safe: bool = False,
        dry_run: bool = False,
    ) -> VerifyView:
        """Check that all records agree, or those about what is named; what does not blocks its schedule (7.4).

        `names`: schedules and runs. `fix`: the codes whose remedies are carried out for them; `fix_safe`: those after which
        nothing is admitted that would not have been. Raise DamagedStore for a damaged ledger, which is left untouched,
        InvalidArgument, NotFound.
        """
        from wfctl.operations.verify import verify

        with self._lock:
            view = verify(self.context, deep=deep, names=_names(names), fix=_names(fix), fix_safe=fix_safe, dry_run=dry_run)
            self.door.poke()
            return view

    def store_info(self) -> InfoView:
        """Return what the store holds, how large it is and who owns it. Raise DamagedStore."""
        from wfctl.operations.verify import info

        with self._lock:
            return info(self.context)

    # -- the supervisor --------------------------------------------------------------------------------------------------

    def server_status(self) -> StatusView:
        """Return how the supervisor of this store is. Raise NoSupervisor."""
        return self.door.status()

    def reload(self) -> ReloadView:
        """Have the supervisor read settings and definitions again (2.3). Raise NoSupervisor."""
        return self.door.reload()

    def drain(self, *, undo: bool = False) -> StatusView:
        """Have the supervisor stop admission and refuse resumes without ending, or with `undo` open it again (7.6).

        What came due meanwhile is treated as after downtime. Raise NoSupervisor, WrongState when it is ending anyway.
        """
        return self.door.drain(_flag(undo, "undo"))

    def watch(
        self,
        *,
        schedule_id: str | Sequence[str] | None = None,
        run_id: str | Sequence[str] | None = None,
        status: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Watch:
        """Watch what changes from now on, with a supervisor or without: occurrences, runs and schedules.

        Given names choose: what is of these schedules, of these runs, comes to these statuses or states. An iterator and a
        context manager; see `Watch` for how to look and watch without missing anything. It ends after `timeout` seconds.
        Raise InvalidArgument, NotFound.
        """
        from wfctl.operations.watching import LedgerWatch

        return LedgerWatch(self.context, self._lock, timeout=timeout, schedule_id=schedule_id, run_id=run_id, status=status)


# Opening ------------------------------------------------------------------------------------------------------------------


def open_store(
    path: str | Path, *, clock: Any = None, door: Callable[[str], Door] | None = None, disk: Disk | None = None
) -> Store:
    """Open an existing store. `clock`: an object whose `now()` gives an aware UTC datetime (9.4).

    Raise NoStore where there is none, NotAllowed where its place cannot be trusted, DamagedStore, IoError.
    """
    context = open_context(path, clock=clock, disk=disk)
    return Store(context, door(context.layout.place) if door else None)


def init_store(
    path: str | Path, *, if_absent: bool = False, clock: Any = None, door: Callable[[str], Door] | None = None
) -> Store:
    """Make a store, mode 0700, and open it. Raise CannotCreate for one that is there, unless `if_absent`; NotAllowed."""
    from pathlib import Path

    root = Path(path).absolute()
    if make_store(root, Disk(), if_absent=if_absent):
        Ledger.create(root / "ledger.db")
    elif not (root / "ledger.db").exists():
        raise DamagedStore(f"{root / 'ledger.db'} is missing, though the store is there; {RESTORE}")
    return open_store(root, clock=clock, door=door)


# Arguments ----------------------------------------------------------------------------------------------------------------


def _word(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} must be text, not {value!r}", {"argument": name})
    return value


def _words(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, not {type(value).__name__}", {"argument": name})
    if value is not None and len(value) > LONGEST_WORDS:
        raise InvalidArgument(f"{name} is {len(value)} characters long; at most {LONGEST_WORDS} are taken", {"argument": name})
    return value


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be true or false, not {value!r}", {"argument": name})
    return value


def _names(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection) or not all(isinstance(name, str) for name in value):
        raise InvalidArgument("unset must be a list of field names", {"argument": "unset"})
    return list(value)


def _count(value: Any, name: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgument(f"{name} must be a whole number of 1 or more, not {value!r}", {"argument": name})
    return value


def _duration(text: Any, name: str) -> Any:
    from wfctl.core.duration import parse_duration

    try:
        return parse_duration(text)
    except (ValueError, TypeError) as error:
        near = list(getattr(error, "near", ()))
        raise InvalidArgument(f"{name}: {error}", {"argument": name, "value": text, "near": near}) from error
