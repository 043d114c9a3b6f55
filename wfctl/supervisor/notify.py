"""Telling systemd how we are: READY, STATUS, RELOADING, WATCHDOG, STOPPING, EXTEND_TIMEOUT_USEC (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from wfctl.supervisor.logs import visible

_PATIENCE_S = 5.0  #: how long to wait where systemd is slow to read what it must not miss
_AGAIN_S = 1.0
_EXTEND_EVERY_S = 1.0


class Notifier:
    """Sends to `$NOTIFY_SOCKET`; without one, nothing. Never fails, and waits only with what must not be missed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._last_status = ""
        watchdog_s = _watchdog_s(environ)
        self._beat_every_s = None if watchdog_s is None else watchdog_s / 2
        self._next_beat = 0.0
        self._extended_at: float | None = None
        self._is_stopping = False

    @property
    def is_heard(self) -> bool:
        """Tell whether there is somebody to tell."""
        return bool(self._address)

    def send(self, *assignments: str, patience_s: float = _PATIENCE_S) -> bool:
        """Send lines such as `READY=1`; return whether they were taken."""
        if not self._address:
            return False
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(patience_s)
            sender.sendto("\n".join(map(_one_line, assignments)).encode("utf-8", "backslashreplace"), self._address)
            return True
        return False

    def status(self, text: str) -> None:
        """Show a line in `systemctl status`, when it has changed."""
        if text != self._last_status and self.send(f"STATUS={text}", patience_s=0):
            self._last_status = text

    def ready(self, text: str) -> None:
        """Say that the store is owned, recovery is done and the socket listens."""
        self._last_status = text
        self.send("READY=1", f"STATUS={text}")

    def reloading(self, begins: bool) -> None:
        """Say that settings and definitions are read again; without the time of it, newer systemd waits for ever."""
        if begins:
            self.send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        else:
            self.send("READY=1")

    def stopping(self) -> None:
        """Say, once, that the end has begun."""
        if not self._is_stopping:
            self._is_stopping = True
            self.send("STOPPING=1")

    def extend(self, seconds: float, *, is_first: bool = False) -> None:
        """Ask for at least so much more time to start or to stop; not more often than each second, but at the first time."""
        now = time.monotonic()
        if is_first or self._extended_at is None or now - self._extended_at >= _EXTEND_EVERY_S:
            self._extended_at = now
            self.send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}", patience_s=0)

    def beat(self) -> float | None:
        """Tell the watchdog that a round was finished, twice in its time; return in how many seconds to do so again."""
        if self._beat_every_s is None:
            return None
        now = time.monotonic()
        if now >= self._next_beat:
            was_taken = self.send("WATCHDOG=1", patience_s=0) or not self._address
            self._next_beat = now + (self._beat_every_s if was_taken else min(_AGAIN_S, self._beat_every_s))
        return self._next_beat - now


def _one_line(assignment: str) -> str:
    """Nothing that a message quotes may begin an assignment of its own."""
    return visible(" ".join(assignment.split()))


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's time in seconds, where there is one and it means this process."""
    try:
        is_ours = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        return int(environ["WATCHDOG_USEC"]) / 1_000_000 if is_ours else None
    except (KeyError, ValueError):
        return None
