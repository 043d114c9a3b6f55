"""A selector loop around a control server: by hand, a round at a time, or in a thread."""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wfctl.rpc.server import ControlServer
from wfctl.rpc.session import Handler
from wfctl.rpc.unix import connect_control

PATIENCE_S = 20.0


class Loop:
    """The smallest thing that a supervisor does for its control server."""

    def __init__(self, store: Path, handler: Handler, **options: Any) -> None:
        self.store = store
        self.selector = selectors.DefaultSelector()
        directory_fd = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.server = ControlServer(directory_fd, handler, **options)
        finally:
            os.close(directory_fd)
        self.server.register(self.selector)
        self.wake_in: float | None = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def round(self, patience: float = 0.02, **limits: Any) -> None:
        """Do one round, as a supervisor's loop would."""
        for key, mask in self.selector.select(patience if self.wake_in is None else min(patience, self.wake_in)):
            key.data.handle(key, mask)
        self.wake_in = self.server.serve(**limits)

    def until(self, condition: Callable[[], object]) -> None:
        """Do rounds until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            self.round()

    def start(self) -> None:
        """Do rounds in a thread until `close`."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.round()

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        self.server.close()
        self.selector.close()


class RawPeer:
    """A client that sends what it likes. It never blocks; `loop` does the rounds while it waits."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.socket = connect_control(loop.store, 1.0)
        self.socket.setblocking(False)
        self.received = b""
        self.has_ended = False

    def send(self, *messages: Any) -> None:
        """Send messages as frames."""
        self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes, however slowly the server takes them."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                self.loop.round()

    def try_to_send(self, data: bytes) -> int:
        """Send what goes at once."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def read(self) -> Any:
        """Return the next message; None once the server has closed."""
        self.loop.until(lambda: b"\n" in self._take_in() or self.has_ended)
        if b"\n" not in self.received:
            return None
        frame, self.received = self.received.split(b"\n", 1)
        return json.loads(frame)

    def _take_in(self) -> bytes:
        try:
            while data := self.socket.recv(1 << 20):
                self.received += data
            self.has_ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.has_ended = True
        return self.received

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()


def ask(method: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def tell(method: str, **params: Any) -> dict[str, Any]:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
