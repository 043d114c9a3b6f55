"""Telling systemd how we are: READY, STATUS, STOPPING (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to `$NOTIFY_SOCKET`; without one, nothing. Never fails."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._last_status = ""

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


def process_notifier() -> Notifier:
    """Return the notifier of this process, and keep its runs from being told of the socket."""
    return Notifier(os.environ)
