"""The way from an open store to its supervisor: what `open_store` of the public API hands every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wfctl.operations import store as operations
from wfctl.operations.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from wfctl.operations.views import ReloadView, StatusView


class ControlDoor:
    """Asks over `control.sock`, a connection a question. What that needs is loaded with the first one."""

    def __init__(self, root: str) -> None:
        self._root = root

    def poke(self) -> None:
        """Tell the supervisor that something changed; without effect where none is there."""
        from wfctl.rpc.client import poke

        poke(self._root)

    def start_run(self, deployment_id: str, given: Any) -> str:
        """Have the supervisor start a run; return its id. Raise NoSupervisor, and what the start raises."""
        started = self._call("workflow.runs.start", deployment_id=deployment_id, input=given)
        return str(started["run_id"])

    def resume_run(self, run_id: str, given: Any) -> None:
        """Have the supervisor resume a run. Raise NoSupervisor, and what the resume raises."""
        self._call("workflow.runs.resume", run_id=run_id, input=given)

    def drain(self, undo: bool) -> StatusView:
        """Have it stop admission, or open it again. Raise NoSupervisor."""
        from wfctl.operations.views import StatusView

        found: StatusView = self._view(StatusView, "workflow.server.drain", undo=undo)
        return found

    def cancel_run(self, run_id: str, reason: str | None, grace_s: float | None) -> None:
        """Have the supervisor end a run. Raise NoSupervisor, and what the cancel raises."""
        grace = None if grace_s is None else f"{round(grace_s * 1000)}ms"
        self._call("workflow.runs.cancel", run_id=run_id, reason=reason, grace=grace)

    def status(self, patience_s: float | None = None) -> StatusView:
        """Return how the supervisor is. Raise NoSupervisor, TimedOut."""
        from wfctl.rpc.absent import check_presence

        check_presence(self._root)
        from wfctl.operations.views import StatusView
        from wfctl.rpc.client import TIMEOUT_S, RpcClient
        from wfctl.rpc.results import read_result

        method = "workflow.server.status"
        with RpcClient(self._root, timeout=TIMEOUT_S if patience_s is None else patience_s) as client:
            found: StatusView = read_result(StatusView, method, client.call(method))
        return found

    def reload(self) -> ReloadView:
        """Have it read settings and definitions again. Raise NoSupervisor."""
        from wfctl.operations.views import ReloadView

        found: ReloadView = self._view(ReloadView, "workflow.server.reload")
        return found

    def _view(self, kind: type, method: str, **params: Any) -> Any:
        from wfctl.rpc.results import read_result

        return read_result(kind, method, self._call(method, **params))

    def _call(self, method: str, **params: Any) -> Any:
        from wfctl.rpc.client import RpcClient

        with RpcClient(self._root) as client:
            return client.call(method, **{name: value for name, value in params.items() if value is not None})


def open_store(path: str | Path, *, clock: Any = None) -> Store:
    """Open an existing store. `clock`: an object whose `now()` gives an aware UTC datetime (9.4).

    Raise NoStore where there is none, NotAllowed where its place cannot be trusted, DamagedStore, IoError.
    """
    return operations.open_store(path, clock=clock, door=ControlDoor)


def init_store(path: str | Path, *, if_absent: bool = False, clock: Any = None) -> Store:
    """Make a store, mode 0700, and open it. Raise CannotCreate for one that is there, unless `if_absent`; NotAllowed."""
    return operations.init_store(path, if_absent=if_absent, clock=clock, door=ControlDoor)
