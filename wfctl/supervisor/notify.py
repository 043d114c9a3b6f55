"""Telling systemd how we are: READY, STATUS, RELOADING, WATCHDOG, STOPPING (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends to `$NOTIFY_SOCKET`; without one, nothing. Never fails."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._last_status = ""
        watchdog_s = _watchdog_s(environ)
        self._beat_every_s = None if watchdog_s is None else watchdog_s / 2
        self._next_beat = 0.0

    def send(self, *assignments: str) -> None:
        """Send lines such as `READY=1`."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto("\n".join(assignments).encode(), self._address)

    def status(self, text: str) -> None:
        """Show a line in `systemctl status`, when it has changed."""
        if text != self._last_status:
            self._last_status = text
            self.send(f"STATUS={text}")

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

    def beat(self) -> float | None:
        """Tell the watchdog that a round was finished, twice in its time; return in how many seconds to do so again."""
        if self._beat_every_s is None:
            return None
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._beat_every_s
            self.send("WATCHDOG=1")
        return self._next_beat - now


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's time in seconds, where there is one and it means this process."""
    try:
        is_ours = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        return int(environ["WATCHDOG_USEC"]) / 1_000_000 if is_ours else None
    except (KeyError, ValueError):
        return None
