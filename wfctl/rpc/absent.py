"""Whether there is a control socket at all: where there is none, nothing needs to be loaded that would talk over it."""

from __future__ import annotations

import os

from wfctl.errors import NoSupervisor

SOCKET_NAME = "control.sock"


def nobody(path: str) -> NoSupervisor:
    """Return the error for a store that no supervisor runs for."""
    return NoSupervisor(f"no supervisor runs for the store {path}; start one with `wfctl supervise`", {"path": path})


def check_presence(path: str) -> None:
    """Raise NoSupervisor where a store is there and has no socket. Whether somebody listens on one is for the client to say."""
    if os.path.isdir(path) and os.access(path, os.X_OK) and not os.path.lexists(f"{path}/{SOCKET_NAME}"):  # noqa: PTH112
        raise nobody(path)
