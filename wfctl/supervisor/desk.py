"""What answers at the supervisor's door: the operations of a store, with those of the supervisor itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wfctl.core.model import run_name
from wfctl.operations.context import Context
from wfctl.operations.store import Store
from wfctl.operations.views import ReloadView, StatusView
from wfctl.store.ledger import definitions, runs, schedules

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
        return self._service.start_manual(deployment_id, given)

    def resume_run(self, run_id: str, given: Any) -> None:
        """Give input to an interrupted run."""
        self._service.resume(run_id, given)

    def drain(self, undo: bool) -> StatusView:
        """Stop admission, or open it again."""
        self._service.drain(undo=undo)
        return status_of(self._service)

    def cancel_run(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        """End a run."""
        self._service.cancel(run_id, reason, grace_s)

    def status(self) -> StatusView:
        """Return how the supervisor is."""
        return status_of(self._service)

    def reload(self) -> ReloadView:
        """Read settings and definitions again."""
        changed = self._service.reload()
        status = status_of(self._service)
        return ReloadView(changed=changed, blocked=len(status.blocked), problems=status.problems)


class Desk(Store):
    """The operations as JSON-RPC calls them in the supervisor's own loop."""

    def __init__(self, context: Context, service: SupervisorService) -> None:
        super().__init__(context, DirectDoor(service))
        self._service = service

    def start_run(self, *, deployment_id: str, input: Mapping[str, Any] | None = None, detach: bool = True) -> Any:
        """Start a run by hand; the answer waits for its preflight, the loop does not (5.9)."""
        return self._service.begin_manual(deployment_id, input)

    def audit_schedule(self, *, schedule_id: str, since: Any = None) -> Any:
        """Recount a schedule's instants; years of them take long, so the answer comes later and the loop goes on."""
        return self._service.asides.ask(lambda store: store.audit_schedule(schedule_id=schedule_id, since=since))

    def poke(self) -> None:
        """Something changed: the round that follows looks at the ledger."""


def status_of(service: SupervisorService) -> StatusView:
    """Return how a supervisor and its store are."""
    from wfctl import __version__

    context = service.context
    now = context.now()
    with context.ledger.reading() as connection:
        coming = schedules.next_due(connection)
        rows = [row for row in schedules.list_all(connection) if row.deleted_at is None]
        used = runs.slots_used(connection)
        newcomers = definitions.never_valid(connection)
    broken = [(row.id, row.diagnostic) for row in rows] + [(row.id, row.diagnostic) for row in newcomers]
    blocked = tuple({"id": name, "diagnostic": diagnostic} for name, diagnostic in broken if diagnostic is not None)
    waiting = tuple({"id": row.id, "until": row.floor} for row in rows if row.is_admitting and row.floor > now)
    paused = sum(row.paused_at is not None and row.diagnostic is None for row in rows)
    counts = {"active": sum(row.is_admitting for row in rows), "paused": paused, "blocked": len(blocked)}
    problems = [{"code": kind, "message": message} for kind, message in service.problems.items()]
    problems += [{"code": "ignored", "message": message} for message in service.ignored + service.found]
    problems += [
        {"code": "contradiction", "message": f"{run_name(number)} is left alone: {said}; see `wfctl store verify`"}
        for number, said in service.driver.doubts.runs.items()
    ]
    is_degraded = bool(blocked or waiting or problems)
    return StatusView(
        state="draining" if service.is_draining else "degraded" if is_degraded else "ready",
        pid=os.getpid(),
        host=socket.gethostname(),
        started_at=service.started_at,
        version=__version__,
        store=str(context.layout.root),
        slots_used=used,
        slots_total=service.settings.max_concurrent_runs,
        next_schedule_id=coming[0] if coming else None,
        next_instant=coming[1] if coming else None,
        schedules=counts,
        blocked=blocked,
        waiting=waiting,
        problems=tuple(problems),
    )
