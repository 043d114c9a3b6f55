"""JSON-RPC over stdin and stdout, on an open store: the door for ssh (contract 9). It works with and without a supervisor.

One peer, one thread: a request is answered before the next is looked at. The descriptors may be pipes, sockets, files or a
terminal, and are shared with whoever started us, so they are not made non-blocking: they are read when there is something to
read, and written in pieces that a pipe which says it has room takes at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wfctl.errors import WfctlError
from wfctl.operations.store import Store
from wfctl.rpc.methods import BY_OPERATION, dispatch
from wfctl.rpc.session import Session

if TYPE_CHECKING:
    from wfctl.rpc.subscriptions import Subscriptions

WATCH_NAME = BY_OPERATION["watch"].name
_READ = 65536
_PIECE = select.PIPE_BUF  # what a pipe takes without waiting, once it is ready to be written to
_LOOK_EVERY_S = 0.1  # at the ledger, for who watches
_LINGER_S = 2.0  # for the last answer, once we are told to end


class OutputClosed(Exception):
    """Nobody reads the answers any more."""


class StoreDesk:
    """The operations of an open store, as JSON-RPC asks for them; beside the store's own, what a server adds to them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watching: Subscriptions | None = None

    def answer(self, method: str, params: Mapping[str, Any], session: Session | None = None, /) -> Any:
        """Do what `method` names and return its result as JSON. Raise what the operation raises.

        `session` is that of who asks, for what it is told later; without one there is nothing to watch with.
        """
        if method == WATCH_NAME and session is not None:
            return self._watch(params, session)
        return dispatch(self, method, params)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._store, operation)

    def poke(self) -> None:
        """Something changed: hand it on to the supervisor, if there is one."""
        self._store.door.poke()

    def _watch(self, params: Mapping[str, Any], session: Session) -> Any:
        from wfctl.rpc.subscriptions import Subscriptions

        if self._watching is None:
            self._watching = Subscriptions(self._store.context)
        return self._watching.answer(params, session)

    def look(self) -> float | None:
        """Tell who watches what changed; return the seconds until this is to be asked again, None while nobody does."""
        if self._watching is None:
            return None
        with contextlib.suppress(WfctlError):  # the session is ended by it
            self._watching.tell()
        wait = self._watching.wait_s()
        return None if wait is None else min(wait, _LOOK_EVERY_S)


class StdioServer:
    """Serves one peer until it sends no more, hangs up or breaks the rules, or until `stop`."""

    def __init__(
        self, desk: StoreDesk, *, source: int = 0, sink: int = 1, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._desk = desk
        self._source = source
        self._sink = sink
        self._monotonic = monotonic
        self._is_stopping = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._session = Session(desk.answer)

    def stop(self) -> None:
        """Take in no more, and end once what is being answered has been sent. For a signal handler."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def serve(self) -> WfctlError | None:
        """Answer until the end; return what the peer did wrong, if that was the end. Raise OutputClosed, OSError."""
        session = self._session
        while not (self._is_stopping or session.is_finished):
            look_in = self._desk.look()
            self._exchange(0.0 if session.has_work else look_in)
            if session.has_work and not self._is_stopping:
                session.work_one()
        self._send_the_rest()
        return session.ended_by

    def close(self) -> None:
        """Let go of what the loop needed. The descriptors of the peer stay open."""
        for descriptor in (self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _send_the_rest(self) -> None:
        ends_at = self._monotonic() + _LINGER_S
        while self._session.output and (left := ends_at - self._monotonic()) > 0:
            self._exchange(left)

    def _exchange(self, seconds: float | None) -> None:
        """Wait, `seconds` at most, until bytes come or may go, and move them."""
        poll = select.poll()
        poll.register(self._sink, select.POLLOUT if self._session.output else 0)  # 0: only whether it is closed
        takes_in = self._session.wants_input and not self._is_stopping
        if takes_in:
            poll.register(self._source, select.POLLIN)
        if not self._is_stopping:
            poll.register(self._woken, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if takes_in and self._source in ready:
            self._session.receive(os.read(self._source, _READ))
        if self._sink in ready:
            self._send(ready[self._sink])

    def _send(self, events: int) -> None:
        if events & select.POLLOUT and self._session.output:
            try:
                self._session.sent(os.write(self._sink, self._session.output[0][:_PIECE]))
            except BlockingIOError:  # whoever shares it with us made it so
                return
            except BrokenPipeError as error:
                raise OutputClosed from error
        elif events & (select.POLLERR | select.POLLNVAL | select.POLLHUP):
            raise OutputClosed
