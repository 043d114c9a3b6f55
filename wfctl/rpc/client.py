"""The client's side: one request at a time over a stream, typed errors as the server raised them.

`RpcClient` knows no operation, only names. What carries the bytes is a `Stream`; that of the control socket is here, one over
the pipes of a process looks the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from wfctl.errors import ApiVersion, InvalidArgument, IoError, TimedOut, WfctlError
from wfctl.rpc.framing import MAX_FRAME, MalformedFrame, Splitter, decode_frame, encode_frame
from wfctl.rpc.messages import Response, notification, parse_response, request, shown
from wfctl.rpc.methods import BY_NAME
from wfctl.rpc.unix import connect_control

TIMEOUT_S = 30.0
_POKE_CONNECT_S, _POKE_SEND_S = 0.1, 0.05  # together less than the 0.2 s that a poke may take
_LAST_WORDS_S = 0.5  # for the reason why a server hung up
_LONGEST_S = 1e6  # of one wait, so that no arithmetic of a socket or a poll overflows


class StreamEnded(ConnectionError):
    """The other side is gone; its message says what is known of why."""


class Stream(Protocol):
    """Bytes to and from a server. What waits does so for `timeout` seconds at most, then raises TimeoutError.

    That the other side is gone is an OSError, or no bytes; a `StreamEnded` tells why.
    """

    def send(self, data: bytes, timeout: float) -> None:
        """Send all of `data`."""

    def receive(self, timeout: float) -> bytes:
        """Return what has come; empty when the other side has closed."""

    def has_ended(self) -> bool:
        """Return whether the other side is known to have closed, without waiting."""

    def close(self) -> None: ...


class UnixStream:
    """A stream over a connected unix socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(65536)

    def has_ended(self) -> bool:
        self._socket.settimeout(0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()


class _Lost(Exception):
    """The connection broke before the answer; `is_unread` when the request certainly never arrived in full."""

    def __init__(self, *, is_unread: bool) -> None:
        super().__init__("the connection was lost")
        self.is_unread = is_unread


class RpcClient:
    """Calls methods of a running supervisor by name. A context manager; it connects when first needed, again when it must."""

    def __init__(
        self,
        store_path: str | os.PathLike[str],
        *,
        timeout: float = TIMEOUT_S,
        connect: Callable[[float], Stream] | None = None,
    ) -> None:
        """`timeout` is in seconds, for a whole call; `connect(timeout)` gives another stream than the control socket.

        Raise InvalidArgument for a timeout that is no number.
        """
        self.timeout = check_timeout(timeout)
        self._connect = connect or (lambda limit: UnixStream(connect_control(store_path, limit)))
        self._stream: Stream | None = None
        self._splitter = Splitter()
        self._last_id = 0

    def call(self, method: str, /, **params: Any) -> Any:
        """Given a method's name and its parameters, return the result's JSON.

        Raise the error that the operation raised, as the same class; NoSupervisor when nobody listens; TimedOut without an
        answer in time; IoError when the connection was lost. A read is then asked once more, and so is what certainly never
        arrived; any other write is not: its error says that the outcome is unknown.
        """
        self._last_id += 1
        frame = _encode(request(method, params, self._last_id))
        deadline = time.monotonic() + self.timeout
        try:
            response = self._exchange(frame, deadline)
        except _Lost as lost:
            if not (lost.is_unread or _is_read(method)):
                raise _lost_for_good(method, lost.__cause__) from lost.__cause__
            response = self._exchange_again(method, frame, deadline)
        except TimeoutError as error:
            raise _timed_out(method, self.timeout) from error
        if response.error is not None:
            raise response.error
        return response.result

    def notify(self, method: str, /, **params: Any) -> None:
        """Tell the server something and wait for no answer. Raise as `call` does when it cannot even be sent."""
        frame = _encode(notification(method, params))
        deadline = time.monotonic() + self.timeout
        try:
            self._open(deadline).send(frame, _left(deadline))
        except TimeoutError as error:
            self.close()
            raise _timed_out(method, self.timeout) from error
        except OSError as error:
            self.close()
            raise _lost_for_good(method, error) from error

    def told(self, timeout: float) -> Response | None:
        """Return the next notification of the server, such as one that a `watch` was asked for; None without one in time.

        Units: `timeout` in seconds. Raise what the server gives as its reason for hanging up; IoError when the connection is
        lost without one. What was told meanwhile is then missed: nothing connects again by itself.
        """
        deadline = time.monotonic() + timeout
        try:
            while True:
                response = self._next_message(deadline)
                if response.method is not None:
                    return response
                if response.error is not None:
                    self.close()
                    raise response.error
        except TimeoutError:
            return None  # half a frame is kept for the next time
        except _Lost as lost:
            self.close()
            raise _lost_while_told(lost.__cause__) from lost.__cause__

    def close(self) -> None:
        """Disconnect. The next call connects again."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._splitter.clear()

    def __enter__(self) -> RpcClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _exchange_again(self, method: str, frame: bytes, deadline: float) -> Response:
        try:
            return self._exchange(frame, deadline)
        except _Lost as lost:
            raise _lost_for_good(method, lost.__cause__) from lost.__cause__
        except TimeoutError as error:
            raise _timed_out(method, self.timeout) from error

    def _exchange(self, frame: bytes, deadline: float) -> Response:
        """Send one request and return its answer. Whatever goes wrong, no half-read conversation stays behind."""
        try:
            response = self._send(frame, deadline) or self._answer(deadline)
        except BaseException:
            self.close()
            raise
        if response.id is None:
            self.close()  # an error of the connection itself: the server hangs up
        return response

    def _open(self, deadline: float) -> Stream:
        if self._stream is not None and self._stream.has_ended():
            self.close()  # dropped while idle: nothing has been asked, so even a write may go over a new connection
        if self._stream is None:
            self._stream = self._connect(_left(deadline))
        return self._stream

    def _send(self, frame: bytes, deadline: float) -> Response | None:
        """Send a frame. Return the server's reason if it hung up instead of reading it."""
        stream = self._open(deadline)
        try:
            stream.send(frame, _left(deadline))
        except TimeoutError:
            raise
        except OSError as error:
            with contextlib.suppress(_Lost, TimeoutError):
                return self._answer(min(deadline, time.monotonic() + _LAST_WORDS_S))
            raise _Lost(is_unread=True) from error
        return None

    def _answer(self, deadline: float) -> Response:
        """Return the answer to the last request, or an error that belongs to no request."""
        while True:
            response = self._next_message(deadline)
            if response.method is None and (response.id == self._last_id or response.id is None):
                return response

    def _next_message(self, deadline: float) -> Response:
        try:
            while (frame := self._splitter.pop()) is None:
                self._splitter.feed(self._receive(deadline))
            return parse_response(decode_frame(frame))
        except MalformedFrame as error:
            raise ApiVersion(f"the other side sent a malformed frame: {error.message}") from error

    def _receive(self, deadline: float) -> bytes:
        if self._stream is None:
            raise _Lost(is_unread=True)
        try:
            data = self._stream.receive(_left(deadline))
        except TimeoutError:
            raise
        except OSError as error:
            raise _Lost(is_unread=False) from error
        if not data:
            raise _Lost(is_unread=False)
        return data


def poke(store_path: str | os.PathLike[str]) -> bool:
    """Tell a store's supervisor, if there is one, to look now instead of at its next poll.

    Return whether it was told; nobody there is no error. It never raises and takes less than 0.2 s.
    """
    try:
        stream = UnixStream(connect_control(store_path, _POKE_CONNECT_S))
        try:
            stream.send(_encode(notification("workflow.server.poke", {})), _POKE_SEND_S)
        finally:
            stream.close()
    except (WfctlError, OSError, ValueError):
        return False
    return True


def _is_read(method: str) -> bool:
    return method in BY_NAME and BY_NAME[method].kind == "read"


def _encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a frame with its newline. Raise InvalidArgument when the parameters are no JSON or too much of it."""
    name = shown(str(message["method"]))
    try:
        text = encode_frame(message)
        _check_names(message)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name}: the parameters cannot be written as JSON: {error}") from error
    if len(text) > MAX_FRAME:
        raise InvalidArgument(f"{name}: {len(text)} bytes are too many for a frame (at most {MAX_FRAME})", {"limit": MAX_FRAME})
    return text + b"\n"


def _check_names(value: Any) -> None:
    """Raise TypeError for a name in an object that is no text: `json` would write the number 1 as "1", which nobody said."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} in an object is no text")
            _check_names(value[name])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_names(item)


def check_timeout(seconds: Any) -> float:
    """Given seconds, return them. Raise InvalidArgument for what is no number; infinity is one."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise InvalidArgument(f"a timeout is a number of seconds, not {seconds!r}", {"argument": "timeout"})
    return seconds


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return min(left, _LONGEST_S)


def _lost_for_good(method: str, cause: BaseException | None) -> IoError:
    said = f" ({cause})" if isinstance(cause, StreamEnded) else ""
    why = f"the connection was lost before {shown(method)} was answered{said}"
    if _is_read(method):
        return IoError(why, {"method": shown(method)})
    why = f"{why}: whether it was done is unknown, so look before asking again"
    return IoError(why, {"method": shown(method), "outcome": "unknown"})


def _lost_while_told(cause: BaseException | None) -> IoError:
    said = f" ({cause})" if isinstance(cause, StreamEnded) else ""
    return IoError(f"the connection was lost{said}: what changed since is not told, so look, and watch again", {})


def _timed_out(method: str, timeout: float) -> TimedOut:
    why = f"{shown(method)} was not answered within {timeout:g} s"
    if _is_read(method):
        return TimedOut(why, {"method": shown(method), "timeout_s": timeout})
    return TimedOut(f"{why}: it may still be done", {"method": shown(method), "timeout_s": timeout, "outcome": "unknown"})
