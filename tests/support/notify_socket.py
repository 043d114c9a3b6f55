"""Where a service's word to systemd arrives in a test (sd_notify(3))."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import TracebackType

from tests.support.processes import clean_environment


class NotifySocket:
    """A socket as `$NOTIFY_SOCKET` names one. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.said: list[str] = []  #: every message so far

    def __enter__(self) -> NotifySocket:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def environment(self, **more: str) -> dict[str, str]:
        """Return an environment for a process that is to speak to it."""
        return clean_environment(NOTIFY_SOCKET=str(self.path), **more)

    def until(self, beginning: str, within_s: float = 20.0) -> list[str]:
        """Wait for a message that begins so; return all that came since the last call, it at the end."""
        deadline, found = time.monotonic() + within_s, []
        while not found or not found[-1].startswith(beginning):
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                found.append(self._socket.recv(65536).decode())
            except TimeoutError:
                raise AssertionError(f"waited {within_s:g} s in vain for {beginning}, and heard {found}") from None
        self.said += found
        return found

    def once(self, beginning: str) -> str:
        """Return the last message so far that begins so; wait for one where there is none yet."""
        found = [message for message in self.said if message.startswith(beginning)]
        return found[-1] if found else self.until(beginning)[-1]
