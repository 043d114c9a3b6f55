"""What answers at the supervisor's door: the operations of a store, with those of the supervisor itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wfctl.core.model import LOCAL, run_name
from wfctl.errors import InvalidArgument
from wfctl.operations import standing
from wfctl.operations.clusters import counts_of
from wfctl.operations.context import Context
from wfctl.operations.round_facts import used_slots
from wfctl.operations.store import Store
from wfctl.operations.views import Failing, Interrupted, Overdue, ReloadView, StatusView, Waiting
from wfctl.store.ledger import definitions, runs, schedules, sessions

if TYPE_CHECKING:
    from wfctl.supervisor.service import SupervisorService


class DirectDoor:
    """The way to a supervisor that lives in this very thread."""

    def __init__(self, service: SupervisorService) -> None:
        self._service = service

    def poke(self) -> None:
        """Nothing to do: the next round looks at the ledger."""

    def start_run(self, deployment_id: str, given: Any) -> str:
        """Start a run by hand."""
        return self._service.by_hand.start(deployment_id, given)

    def resume_run(self, run_id: str, given: Any) -> None:
        """Give input to an interrupted run."""
        self._service.by_hand.resume(run_id, given)

    def drain(self, undo: bool) -> StatusView:
        """Stop admission, or open it again."""
        self._service.drain(undo=undo)
        return status_of(self._service)

    def cancel_run(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        """End a run."""
        self._service.by_hand.cancel(run_id, reason, grace_s)

    def status(self, patience_s: float | None = None) -> StatusView:
        """Return how the supervisor is."""
        return status_of(self._service)

    def reload(self) -> ReloadView:
        """Read settings and definitions again."""
        changed = self._service.reload()
        return reload_view(changed, status_of(self._service))


class Desk(Store):
    """The operations as JSON-RPC calls them in the supervisor's own loop."""

    def __init__(self, context: Context, service: SupervisorService) -> None:
        super().__init__(context, DirectDoor(service))
        self._service = service

    def start_run(self, *, deployment_id: str, input: Mapping[str, Any] | None = None, detach: bool = True) -> Any:
        """Start a run by hand; the answer waits for its preflight, the loop does not (5.9)."""
        if not isinstance(deployment_id, str):
            raise InvalidArgument(f"deployment_id must be text, not {deployment_id!r}", {"argument": "deployment_id"})
        return self._service.by_hand.begin(deployment_id, input)

    def server_status(self) -> Any:
        """Return how the supervisor is; what the ledger says of it is read beside the loop."""
        return self._service.asides.ask(lambda store: ledger_facts(store.context), then=self._status_with)

    def reload(self) -> Any:
        """Read settings and definitions again; the files are read beside the loop, so the answer comes later."""
        return self._service.begin_reload()

    def drain(self, *, undo: bool = False) -> Any:
        """Stop admission, or open it again."""
        if not isinstance(undo, bool):
            raise InvalidArgument(f"undo must be true or false, not {undo!r}", {"argument": "undo"})
        self._service.drain(undo=undo)
        return self.server_status()

    def _status_with(self, facts: LedgerFacts) -> StatusView:
        return status_with(self._service, facts)

    def explain_occurrence(self, *, schedule_id: str, instant: Any) -> Any:
        """Explain an instant; what lies around it may take long to read, so the answer comes later and the loop goes on."""
        from wfctl.operations.explain import Supervisor, explain

        service = self._service
        supervisor = Supervisor(
            slots=service.settings.max_concurrent_runs,
            is_draining=service.is_draining,
            problems=dict(service.problems),
        )
        return service.asides.ask(
            lambda store: explain(store.context, schedule_id, instant, supervisor=supervisor), is_slow=True
        )

    def audit_schedule(self, *, schedule_id: str, since: Any = None) -> Any:
        """Recount a schedule's instants; years of them take long, so the answer comes later and the loop goes on."""
        return self._service.asides.ask(lambda store: store.audit_schedule(schedule_id=schedule_id, since=since), is_slow=True)

    def poke(self) -> None:
        """Something changed: the round that follows looks at the ledger."""


def reload_view(changed: int, status: StatusView) -> ReloadView:
    """Return what came of a reload."""
    return ReloadView(changed=changed, blocked=len(status.blocked), problems=status.problems)


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the ledger says of a store's health; with many schedules it takes a while to read."""

    coming: tuple[str, datetime] | None
    slots: Mapping[str, int]  #: how many execution slots are taken, by executor
    schedules: Mapping[str, int]
    blocked: tuple[Mapping[str, Any], ...]
    waiting: tuple[Waiting, ...]
    interrupted: tuple[Interrupted, ...]
    overdue: tuple[Overdue, ...]
    failing: tuple[Failing, ...]

    @property
    def slots_used(self) -> int:
        """How many execution slots of this machine are taken."""
        return self.slots.get(LOCAL, 0)


def ledger_facts(context: Context) -> LedgerFacts:
    """Read what the ledger says of the store's health."""
    now = context.now()
    with context.ledger.reading() as connection:
        coming = schedules.next_due(connection)
        counts = schedules.counts(connection)
        broken = [(row.id, row.diagnostic) for row in schedules.blocked(connection)]
        broken += [(row.id, row.diagnostic) for row in definitions.never_valid(connection)]
        ahead = schedules.ahead_of(connection, now) if now < sessions.clock(connection) else []
        used = used_slots(context, connection)
        unfinished = runs.unfinished(connection)
        interrupted = tuple(standing.interrupted(connection, unfinished))
        overdue = tuple(standing.overdue(connection, unfinished))
        failing = tuple(standing.failing(connection))
    blocked = tuple({"id": name, "diagnostic": diagnostic} for name, diagnostic in broken if diagnostic is not None)
    waiting = tuple(Waiting(id=row.id, until=row.floor) for row in ahead if row.is_admitting)
    active = counts["total"] - counts["paused"] - counts["blocked"]
    by_state = {"active": active, "paused": counts["paused"], "blocked": len(blocked)}
    return LedgerFacts(coming, used, by_state, blocked, waiting, interrupted, overdue, failing)


def status_of(service: SupervisorService) -> StatusView:
    """Return how a supervisor and its store are."""
    return status_with(service, ledger_facts(service.context))


def status_with(service: SupervisorService, facts: LedgerFacts) -> StatusView:
    """Return how a supervisor is, given what the ledger says."""
    from wfctl import __version__

    problems = [{"code": kind, "message": message} for kind, message in service.problems.items()]
    problems += [{"code": "ignored", "message": message} for message in service.ignored + service.found]
    problems += [
        {"code": "contradiction", "message": f"{run_name(number)} is left alone: {said}; see `wfctl store verify`"}
        for number, said in service.driver.doubts.runs.items()
    ]
    is_degraded = bool(facts.blocked or facts.waiting or facts.overdue or problems)
    return StatusView(
        state="draining" if service.is_draining else "degraded" if is_degraded else "ready",
        pid=os.getpid(),
        host=socket.gethostname(),
        started_at=service.started_at,
        version=__version__,
        store=str(service.context.layout.root),
        slots_used=facts.slots_used,
        slots_total=service.settings.max_concurrent_runs,
        next_schedule_id=facts.coming[0] if facts.coming else None,
        next_instant=facts.coming[1] if facts.coming else None,
        schedules=facts.schedules,
        blocked=facts.blocked,
        waiting=facts.waiting,
        problems=tuple(problems),
        interrupted=facts.interrupted,
        overdue=facts.overdue,
        failing=facts.failing,
        executors=counts_of(facts.slots, service.settings),
    )
