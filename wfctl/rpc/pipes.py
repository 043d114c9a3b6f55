"""A stream over the stdin and stdout of a child process, such as `ssh HOST wfctl rpc serve` (contract 9).

Nothing here blocks: our ends of the pipes are non-blocking, and all three are looked after whenever one is waited for, so that
large frames both ways and a talkative stderr cannot hold each other up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from wfctl.errors import DamagedStore, InvalidArgument, IoError, MissingExtra, NoStore, NotAllowed, TimedOut, WfctlError
from wfctl.rpc.client import StreamEnded
from wfctl.rpc.framing import MalformedFrame, Splitter, decode_frame, encode_frame
from wfctl.rpc.messages import request, shown

_READ = 65536
_TAIL = 4096  # bytes of stderr that are kept
_LINES, _LINE = 5, 300  # of it that an error shows
_EOF_GRACE_S, _TERM_GRACE_S = 0.5, 2.0  # what a child gets to end by itself after the end of its input, and after TERM
_LAST_WORDS_S = 0.5  # for stderr and exit status, once stdout has ended
_LOOK_EVERY_S = 0.05
_GREETING = 0  # the id of the first request; those of a client begin at 1
_AT_OPENING: dict[int, type[WfctlError]] = {66: NoStore, 65: DamagedStore, 77: NotAllowed, 78: MissingExtra}


class PipeStream:
    """The bytes to and from one child, which is ended and reaped by `close`. Raise IoError when it cannot be started."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = check_argv(argv)
        self._inbox = bytearray()
        self._tail = bytearray()
        try:
            # A session of its own: a Ctrl-C at the terminal is for the caller, who decides what becomes of a call under way.
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise IoError(f"{self.argv[0]} cannot be started: {why}", _not_done(self.argv)) from error
        self._input, self._output, self._talk = (_descriptor(end) for end in self._ends)
        for end in self._ends:
            os.set_blocking(_descriptor(end), False)
        self._open = {self._output, self._talk}

    @property
    def _ends(self) -> tuple[Any, Any, Any]:
        return self._child.stdin, self._child.stdout, self._child.stderr

    def send(self, data: bytes, timeout: float) -> None:
        """Send all of `data`, taking in meanwhile what comes. Raise TimeoutError, StreamEnded where not all could be sent."""
        deadline = time.monotonic() + timeout
        left = memoryview(data)
        while left:
            self._wait(deadline, wants_to_send=True)
            try:
                left = left[os.write(self._input, left[:_READ]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise StreamEnded(self.said()) from error

    def receive(self, timeout: float) -> bytes:
        """Return what has come. Raise TimeoutError, StreamEnded when the child has ended its side."""
        deadline = time.monotonic() + timeout
        while not self._inbox:
            if self._output not in self._open:
                raise StreamEnded(self.said())
            self._wait(deadline)
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    def has_ended(self) -> bool:
        """Return whether the child will answer no more, without waiting. What it still said may be there to be received."""
        self._take_in(0)
        return self._output not in self._open and not self._inbox

    def said(self) -> str:
        """Return how the child ended and the last lines it wrote to stderr, in one line."""
        status = self.exit_status()
        lines = self.tail()
        ended = "it closed its stdout" if status is None else f"exit status {status}" if status >= 0 else f"signal {-status}"
        return "; ".join([f"{shown(self.argv[0])}: {ended}", *lines])

    def tail(self) -> list[str]:
        """Return the last lines of stderr."""
        text = self._tail.decode("utf-8", "replace")
        return [line[:_LINE] for line in text.splitlines() if line.strip()][-_LINES:]

    def exit_status(self) -> int | None:
        """Return the exit status of a child that closed its stdout, a signal as a negative number; None when it lives on."""
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._talk in self._open and time.monotonic() < deadline:
            self._take_in(deadline - time.monotonic())
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(max(0.0, deadline - time.monotonic()))
        return None

    def close(self) -> None:
        """End the child: end of its input, which it may use to finish; then TERM, then KILL. It is reaped."""
        for how, seconds in ((None, _EOF_GRACE_S), (signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _TERM_GRACE_S)):
            self._tell_to_end(how)
            if self._has_gone(seconds):
                break
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.close()

    def _tell_to_end(self, how: signal.Signals | None) -> None:
        if how is None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()  # type: ignore[union-attr]
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, how)

    def _has_gone(self, seconds: float) -> bool:
        """Wait for the child's end, throwing away what it still says so that it is not held up by us."""
        deadline = time.monotonic() + seconds
        while self._open and time.monotonic() < deadline:
            self._take_in(min(_LOOK_EVERY_S, deadline - time.monotonic()))  # somebody else may hold the pipes open
            self._inbox.clear()
            if self._child.poll() is not None:
                return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(max(0.0, deadline - time.monotonic()))
            return True
        return False

    def _wait(self, deadline: float, *, wants_to_send: bool = False) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._take_in(left, wants_to_send=wants_to_send)

    def _take_in(self, seconds: float, *, wants_to_send: bool = False) -> None:
        """Wait until there is something to do, `seconds` at most, and take in what has come."""
        poll = select.poll()
        for descriptor in self._open:
            poll.register(descriptor, select.POLLIN)
        if wants_to_send:
            poll.register(self._input, select.POLLOUT)
        for descriptor, _ in poll.poll(max(0.0, seconds) * 1000):
            if descriptor in self._open:
                self._read(descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ)
        except BlockingIOError:
            return
        if not data:
            self._open.discard(descriptor)
        elif descriptor == self._output:
            self._inbox += data
        else:
            self._tail += data
            del self._tail[:-_TAIL]


def open_command(argv: Sequence[str], timeout: float) -> PipeStream:
    """Start a command that serves JSON-RPC and return a stream to it, once it has answered a first, harmless request.

    So whatever keeps it from serving (no such host, no such command, no store) is told apart from a call that was lost on the
    way: nothing has been asked yet. Raise IoError with what it said, NoStore, DamagedStore, NotAllowed, MissingExtra as it did,
    TimedOut.
    """
    stream = PipeStream(argv)
    try:
        _greet(stream, time.monotonic() + timeout)
    except BaseException:
        stream.close()
        raise
    return stream


def _greet(stream: PipeStream, deadline: float) -> None:
    name = shown(stream.argv[0])
    splitter = Splitter()
    frame = None
    try:
        stream.send(encode_frame(request("workflow.server.poke", {}, _GREETING)) + b"\n", deadline - time.monotonic())
        while (frame := splitter.pop()) is None:
            splitter.feed(stream.receive(deadline - time.monotonic()))
        answer = decode_frame(frame)
    except TimeoutError as error:
        lines = "".join(f": {line}" for line in stream.tail())
        raise TimedOut(f"{name} did not answer in time{lines}", _not_done(stream.argv)) from error
    except StreamEnded as error:
        raise _why_not(stream, str(error)) from error
    except MalformedFrame as error:
        text = shown((frame or b"").decode("utf-8", "replace"))
        message = f"{name} wrote {text!r}, which is no frame; nothing but `wfctl rpc serve` may write to its stdout"
        raise IoError(message, _not_done(stream.argv)) from error
    if not isinstance(answer, dict) or answer.get("jsonrpc") != "2.0" or answer.get("id") != _GREETING or "method" in answer:
        raise IoError(f"{name} does not speak JSON-RPC 2.0; is it `wfctl rpc serve`?", _not_done(stream.argv))


def _why_not(stream: PipeStream, said: str) -> WfctlError:
    status = stream.exit_status()
    data = {**_not_done(stream.argv), "exit_status": status, "stderr": stream.tail()}
    own = [line.removeprefix("wfctl: ") for line in stream.tail() if line.startswith("wfctl: ")]
    if own and status in _AT_OPENING:
        return _AT_OPENING[status](own[-1], data)
    hint = "; is wfctl installed there, and on the PATH?" if status == 127 else ""
    return IoError(f"nothing is served by {said}{hint}", data)


def _not_done(argv: Sequence[str]) -> dict[str, Any]:
    return {"command": list(argv), "outcome": "not-done"}


def check_argv(argv: Sequence[str]) -> list[str]:
    """Given a command, return it as a list. Raise InvalidArgument for what is none, such as a text that a shell would split."""
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:
        raise InvalidArgument(f"a command is a list of texts, such as ['wfctl', 'rpc', 'serve'], not {argv!r}")
    return list(argv)


def _descriptor(end: Any) -> int:
    return int(end.fileno())
