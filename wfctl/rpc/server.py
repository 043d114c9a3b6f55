"""The control socket: a non-blocking server that lives in somebody else's `selectors` loop.

The loop gives each event of a key whose `data` is the server to `handle`, and calls `serve` once a round: that is where
requests are answered, few enough a round that no flood delays an admission (contract 9.2).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import resource
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from wfctl.rpc.absent import SOCKET_NAME
from wfctl.rpc.session import MAX_OUTPUT, Deferred, Handler, Session
from wfctl.rpc.unix import listen_control, peer_of

MAX_CONNECTIONS = 256
IDLE_S = 0.5  #: a connection that asked nothing for so long may make room for a new one
LINGER_S = 2.0  #: how long a peer may take to read the last error
KEPT_LINGER_S = 30.0  #: how long one that is only told things may: it was cut off because it does not read just now
REQUESTS_A_ROUND = 32
SECONDS_A_ROUND = 0.05
MAX_HELD = 32 << 20  #: bytes that wait for slow readers, all together: above it, only who has read its answers is served
_READ = 65536
_ACCEPTS_A_ROUND = 64
_PAUSE_S = 0.5  # after a failed accept
_SAY_EVERY_S = 60.0  # that accepting fails, or somebody is refused

_log = logging.getLogger(__name__)


class ControlServer:
    """Serves one handler on `control.sock` of the directory that `directory_fd` is open on.

    The caller owns the store's `scheduler.lock`: a socket found there is stale and is replaced. `Session`s are handed to the
    handler; a session that the handler marks `is_kept` is not dropped for being silent. Not thread-safe: one loop, one thread.
    """

    def __init__(
        self,
        directory_fd: int,
        handler: Handler,
        *,
        max_connections: int = MAX_CONNECTIONS,
        monotonic: Callable[[], float] = time.monotonic,
        aside: Callable[[Callable[[], Any]], Deferred] | None = None,
    ) -> None:
        """Bind and listen; `aside`: where large frames are read. Raise CannotCreate when the socket cannot be made."""
        self._handler = handler
        self._aside = aside
        self._monotonic = monotonic
        self._max_connections = min(max_connections, _descriptor_share())
        self._connections: dict[int, _Connection] = {}
        self._ready: deque[_Connection] = deque()  # those that may have a request to answer
        self._selector: selectors.BaseSelector | None = None
        self._resume_at: float | None = None  # while no new connection is taken
        self._waits_for_room = False
        self._spare: int | None = None  # given up for a connection where no descriptor is left, so that somebody can ask why
        self._said_at: dict[str, float] = {}
        self._directory_fd = os.dup(directory_fd)
        self._uids = {0, os.fstat(directory_fd).st_uid}
        try:
            self._listener = listen_control(self._directory_fd)
        except BaseException:
            os.close(self._directory_fd)
            raise
        self._inode = os.stat(SOCKET_NAME, dir_fd=self._directory_fd, follow_symlinks=False).st_ino

    def register(self, selector: selectors.BaseSelector) -> None:
        """Take part in `selector`: every key of this server has the server as its `data`."""
        self._selector = selector
        selector.register(self._listener, selectors.EVENT_READ, self)

    def handle(self, key: selectors.SelectorKey, mask: int) -> None:
        """Take in one event: accept, read, write. Requests are only queued here; `serve` answers them."""
        if key.fileobj is self._listener:
            self._accept()
            return
        connection = self._connections.get(key.fd)
        if connection is None or connection.socket is not key.fileobj:
            return  # dropped earlier in this round
        if mask & selectors.EVENT_WRITE:
            self._flush(connection)
        if mask & selectors.EVENT_READ:
            self._read(connection)
        self._settle(connection)

    def serve(self, *, requests: int = REQUESTS_A_ROUND, seconds: float = SECONDS_A_ROUND) -> float | None:
        """Answer waiting requests, one of each connection in turn, until `requests` are done or `seconds` have passed.

        None is begun where `seconds` is not positive. Return after how many seconds to call again: 0 when some still wait,
        None when only an event of the selector matters.
        """
        ends_at = self._monotonic() + seconds
        held = sum(connection.session.output_bytes for connection in self._connections.values())
        while self._ready and requests > 0 and self._monotonic() < ends_at:
            connection = self._ready.popleft()
            connection.is_queued = False
            if held > MAX_HELD and connection.session.output:
                continue  # it is queued again once it has read something
            held -= connection.session.output_bytes
            if connection.session.has_work:
                requests -= 1
                connection.active_at = self._monotonic()
                connection.session.work_one()
            self._settle(connection)
            held += connection.session.output_bytes
        return self._look_after()

    def close(self) -> None:
        """Stop listening, send what the peers take at once, close, and remove the socket. Harmless when done twice."""
        if self._listener.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            if os.stat(SOCKET_NAME, dir_fd=self._directory_fd, follow_symlinks=False).st_ino == self._inode:
                os.unlink(SOCKET_NAME, dir_fd=self._directory_fd)
        if self._selector is not None and self._resume_at is None:
            self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._connections.values()):
            self._flush(connection)
            self._drop(connection)
        os.close(self._directory_fd)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self._connections)

    @property
    def capacity(self) -> int:
        """How many peers may be connected at once."""
        return self._max_connections

    # Accepting ---------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for number in range(_ACCEPTS_A_ROUND):
            if len(self._connections) >= self._max_connections:
                if number > 0:
                    return  # only an event says that somebody is there to make room for
                if not self._drop_idlest(IDLE_S):
                    self._waits_for_room = True
                    self._pause(IDLE_S)
                    return
            if self._spare is None:
                with contextlib.suppress(OSError):
                    self._spare = os.dup(self._directory_fd)
            try:
                accepted = self._accept_one()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors or memory: the listener stays readable, so do not spin on it
                self._say("rpc_accept_failed", "cannot accept a connection: %s", error)
                self._drop_idlest(0.0)
                self._pause(_PAUSE_S)
                return
            self._welcome(accepted)

    def _accept_one(self) -> socket.socket:
        try:
            return self._listener.accept()[0]
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare is None:
                raise
        os.close(self._spare)
        self._spare = None
        return self._listener.accept()[0]

    def _welcome(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        peer = peer_of(accepted)
        if peer.uid not in self._uids:
            self._say("rpc_peer_refused", "refused uid %d, pid %d", peer.uid, peer.pid)
            accepted.close()
            return
        connection = _Connection(accepted, self._monotonic())
        connection.session = Session(self._handler, peer=peer, on_output=lambda: self._settle(connection), aside=self._aside)
        self._connections[accepted.fileno()] = connection
        self._settle(connection)

    def _say(self, action: str, message: str, *facts: object) -> None:
        """Log what a flood would repeat, at most once a minute."""
        if self._monotonic() >= self._said_at.get(action, -math.inf) + _SAY_EVERY_S:
            self._said_at[action] = self._monotonic()
            _log.warning(message, *facts, extra={"action": action})

    def _drop_idlest(self, idle_s: float) -> bool:
        """Drop the connection that has asked nothing for longest, at least `idle_s`; half a request is none."""
        for connection in sorted(self._connections.values(), key=lambda connection: connection.active_at):
            if self._monotonic() - connection.active_at < idle_s:
                break
            if connection.session.is_idle:
                self._read(connection)  # a request may have come just now
                self._settle(connection)
            if connection.session.is_idle:
                self._drop(connection)
                return True
        return False

    def _pause(self, seconds: float) -> None:
        """Leave newcomers in the kernel's queue for a while."""
        if self._selector is not None and self._resume_at is None:
            self._selector.unregister(self._listener)
            self._resume_at = self._monotonic() + seconds

    def _resume(self) -> None:
        self._resume_at, self._waits_for_room = None, False
        if self._selector is not None:
            self._selector.register(self._listener, selectors.EVENT_READ, self)

    def _look_after(self) -> float | None:
        """Do what time alone brings about; return the seconds until there is something of the kind again."""
        now = self._monotonic()
        for connection in [connection for connection in self._connections.values() if connection.closes_at <= now]:
            self._drop(connection)
        has_room = self._waits_for_room and len(self._connections) < self._max_connections
        if self._resume_at is not None and (now >= self._resume_at or has_room):
            self._resume()
        if self._ready:
            return 0.0
        next_at = min((connection.closes_at for connection in self._connections.values()), default=math.inf)
        next_at = min(next_at, math.inf if self._resume_at is None else self._resume_at)
        return None if next_at == math.inf else max(0.0, next_at - now)

    # One connection ----------------------------------------------------------------------------------------------------

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        connection.discarded += len(data) if connection.session.is_closing else 0
        connection.session.receive(data)

    def _flush(self, connection: _Connection) -> None:
        session = connection.session
        try:
            while session.output and connection.is_open:
                session.sent(connection.socket.send(session.output[0]))
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _settle(self, connection: _Connection) -> None:
        """After anything happened: send, queue, wait for what is needed, or close."""
        session = connection.session
        if connection.is_open and session.output:
            self._flush(connection)
        if not connection.is_open:
            return
        if session.is_closing and connection.closes_at == math.inf:
            connection.closes_at = self._monotonic() + (KEPT_LINGER_S if session.is_kept else LINGER_S)
        if session.is_finished and not self._lingers(connection):
            self._drop(connection)
            return
        if session.has_work and not connection.is_queued:
            connection.is_queued = True
            self._ready.append(connection)
        self._wait_for(connection)

    def _lingers(self, connection: _Connection) -> bool:
        """Whether to read on though all is said: closing now would greet a peer that still writes with a broken pipe."""
        session = connection.session
        if not session.is_closing or session.has_ended or connection.discarded > MAX_OUTPUT:
            return False
        if not connection.is_shut:
            connection.is_shut = True
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        return True

    def _wait_for(self, connection: _Connection) -> None:
        session = connection.session
        wants_input = session.wants_input or (connection.is_shut and not session.has_ended)
        events = (selectors.EVENT_READ if wants_input else 0) | (selectors.EVENT_WRITE if session.output else 0)
        if self._selector is None or events == connection.events:
            return
        if not events:
            self._selector.unregister(connection.socket)
        elif connection.events:
            self._selector.modify(connection.socket, events, self)
        else:
            self._selector.register(connection.socket, events, self)
        connection.events = events

    def _drop(self, connection: _Connection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        if connection.events and self._selector is not None:
            self._selector.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.socket.close()
        connection.session.abandon()


class _Connection:
    """A socket, its conversation, and what the loop was asked to watch it for."""

    session: Session

    def __init__(self, accepted: socket.socket, now: float) -> None:
        self.socket = accepted
        self.active_at = now  # accepted, or last asked something in full
        self.closes_at = math.inf  # set once all is said
        self.events = 0
        self.discarded = 0
        self.is_open = True
        self.is_queued = False
        self.is_shut = False


def _descriptor_share() -> int:
    """Half of the descriptors: the rest is the ledger's, the keepers' and the runs'."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, soft // 2) if soft != resource.RLIM_INFINITY else MAX_CONNECTIONS
