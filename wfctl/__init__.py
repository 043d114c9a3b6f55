"""wfctl: a cron-style supervisor that can prove what it did.

The public names of contract 9.4, handed on lazily so that importing `wfctl` costs next to nothing. Everything else is private.
"""

from __future__ import annotations

TYPE_CHECKING = False  #: as typing has it; that is not loaded here, so that Ctrl-C finds nothing to break off
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "init_store": "wfctl.rpc.door",
    "open_store": "wfctl.rpc.door",
    "Store": "wfctl.operations.store",
    "Client": "wfctl.rpc.remote",
    "SupervisorService": "wfctl.supervisor.service",
    "next_instants": "wfctl.core.trigger",
}
_ERRORS = (
    "WfctlError", "InvalidDefinition", "InvalidArgument", "BadCursor", "NotFound", "Deleted", "Exists", "RevisionConflict",
    "WrongState", "InUse", "Saturated", "Draining", "StoreLocked", "NoSupervisor", "NoStore", "DamagedStore", "Blocked",
    "NotAllowed", "MissingExtra", "CannotCreate", "IoError", "TimedOut", "ApiVersion", "PreflightFailed", "Internal", "Problem",
)  # fmt: skip
_HOMES.update(dict.fromkeys(_ERRORS, "wfctl.errors"))

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from wfctl.core.trigger import next_instants as next_instants
    from wfctl.errors import *  # noqa: F403
    from wfctl.operations.store import Store as Store
    from wfctl.rpc.door import init_store as init_store
    from wfctl.rpc.door import open_store as open_store
    from wfctl.rpc.remote import Client as Client
    from wfctl.supervisor.service import SupervisorService as SupervisorService


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wfctl' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
