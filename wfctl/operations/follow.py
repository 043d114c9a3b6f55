"""Following a run to its end, whoever drives it (contract 6.12)."""

from __future__ import annotations

from collections.abc import Callable

from wfctl.clock import pause
from wfctl.core.model import FINISHED, Status
from wfctl.errors import Blocked, TimedOut
from wfctl.operations.store import Store
from wfctl.operations.views import RunView

_LOOK_EVERY_S = 0.1


def follow(store: Store, run_id: str, *, on_idle: Callable[[], None] | None = None, timeout: float | None = None) -> RunView:
    """Return the run once it is over or waits for input; drive it meanwhile if this process is its driver.

    Units: `timeout` seconds; `on_idle` is called about ten times a second. Raise NotFound, TimedOut, Blocked.
    """
    deadline = None if timeout is None else store.context.clock.monotonic() + timeout
    while True:
        view = store.inspect_run(run_id=run_id)
        if on_idle is not None:
            on_idle()
        if view.status is None:
            raise Blocked(str((view.reason or {}).get("message")), {"run_id": run_id})
        if Status(view.status) in FINISHED or view.status == Status.INTERRUPTED:
            return view
        if deadline is not None and store.context.clock.monotonic() >= deadline:
            raise TimedOut(f"{run_id} is still {view.status} after {timeout:g} s", {"run_id": run_id, "status": view.status})
        local = store.driver_of(run_id)
        if local is not None:
            local.step(_LOOK_EVERY_S)
        else:
            pause(_LOOK_EVERY_S)
