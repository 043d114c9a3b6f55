"""One driver's connection at the keeper: lines in, lines out, never waiting for the other side."""

from __future__ import annotations

import os
import socket
import struct

from wfctl.keeper.protocol import MAX_FRAME, LaunchRequest

MAX_UNSENT = 64 * 1024 * 1024  #: a driver that reads nothing is dropped beyond this
_READ_AT_ONCE = 1 << 20
_READ_PER_ROUND = 8 << 20
_CREDENTIALS = struct.Struct("3i")

Key = tuple[str, int]


class Connection:
    """A peer whose uid was checked. `is_broken` once it hung up, sent a malformed frame, or reads too slowly."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._in = b""
        self._out = bytearray()
        self.is_driver = False  #: it said hello
        self.is_broken = False
        self.watches_write = False
        self.prepared: dict[Key, LaunchRequest] = {}  #: read already, and launched once it is said
        self.owed: list[Key] = []  #: executions whose end is in the unsent part

    def fileno(self) -> int:
        return self._peer.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    def read_lines(self) -> list[bytes]:
        """Return every whole line there is, without waiting."""
        chunks = [self._in]
        budget = _READ_PER_ROUND
        while budget > 0:
            try:
                chunk = self._peer.recv(_READ_AT_ONCE)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.is_broken = True
                break
            chunks.append(chunk)
            budget -= len(chunk)
        *lines, self._in = b"".join(chunks).split(b"\n")
        if len(self._in) >= MAX_FRAME:
            lines.append(self._in)  # refused there for its length
            self._in = b""
        return lines

    def write(self, line: bytes) -> None:
        self._out += line
        if len(self._out) > MAX_UNSENT:
            self.is_broken = True

    def flush(self) -> list[Key]:
        """Send what goes without waiting; return the executions whose end the driver has been told by that."""
        while self._out:
            try:
                sent = self._peer.send(self._out, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return []
            except OSError:
                self.is_broken = True
                return []
            del self._out[:sent]
        told, self.owed = self.owed, []
        return told

    def close(self) -> None:
        self._peer.close()


def peer_is_trusted(peer: socket.socket) -> bool:
    """Tell whether the other side of a connection is root or has our own uid (contract 9.2)."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return uid in (0, os.geteuid())
