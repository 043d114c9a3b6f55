"""The driver's side of a keeper: connect or start, send without waiting, take in what is reported (contract 6.9, 6.10)."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from wfctl.errors import IoError, NotAllowed, TimedOut
from wfctl.keeper.connection import peer_is_trusted
from wfctl.keeper.protocol import (
    ANSWER_WITHIN,
    PROTOCOL,
    KeeperHello,
    LaunchRequest,
    Message,
    Origin,
    Reports,
    Standing,
    Standings,
    decode,
    encode,
    hello_from,
    reports_from,
    socket_name,
    standing_from,
)

_START_WITHIN_S = 20.0
_RETRY_S = 0.01
_READ_AT_ONCE = 1 << 20
_SOCKET = re.compile(r"keeper\.([1-9]\d{0,5})\.sock", re.ASCII)
_MAIN = Path(__file__).with_name("__main__.py")
_PASSED_ON = ("LD_LIBRARY_PATH",)  # without which some interpreters do not start; jobs never see it

_T = TypeVar("_T")


class KeeperClient:
    """A connection to a living keeper. Reports of everything it holds arrive from the moment of `hello` on.

    Not for several threads. Once `closed`, what was sent and not reported is in doubt: read the exit record, else `forbid`.
    """

    def __init__(self, peer: socket.socket) -> None:
        """Given a connected socket, say hello. Raise IoError or TimedOut when nobody answers."""
        self._peer = peer
        self._peer.setblocking(False)
        self._in = b""
        self._out = bytearray()
        self._reports: Reports = []
        self._answers: list[Message] = []
        self._closed = False
        self._prepared: dict[tuple[str, int], LaunchRequest] = {}
        self._send({"op": "hello", "protocol": PROTOCOL, "driver": os.getpid()})
        self._hello = self._wait_for(_hello_in, ANSWER_WITHIN)

    @classmethod
    def connect(cls, directory: Path, protocol: int = PROTOCOL) -> KeeperClient | None:
        """Given the directory of its socket, return a connection to the keeper there, or None when none lives.

        One of another protocol understands `hello`, `list` and `forbid`, and tells of what it holds.
        Raise NotAllowed when somebody else listens there, TimedOut when it does not answer.
        """
        name = socket_name(protocol)
        peer = _connected(directory, name)
        if peer is None:
            return None
        try:
            if not peer_is_trusted(peer):
                raise NotAllowed(f"{directory / name}: another user listens there; stop that process, then remove the socket")
            return cls(peer)
        except IoError:  # it was just ending
            peer.close()
            return None
        except BaseException:
            peer.close()
            raise

    @classmethod
    def start(cls, directory: Path, origin: Origin) -> KeeperClient:
        """Return a connection to the keeper of that directory; where none lives, start one. Raise IoError when that fails.

        Of two that start one at once both get the same. Look at `hello.origin`: it may be one that lived already.
        """
        deadline = time.monotonic() + _START_WITHIN_S
        while True:
            client = cls.connect(directory)
            if client is not None:
                return client
            if time.monotonic() > deadline:
                raise IoError(f"the keeper of {directory} holds its lock and takes no connection; look at its process")
            _start(directory, origin)
            client = cls.connect(directory)
            if client is not None:
                return client
            time.sleep(_RETRY_S)

    @property
    def hello(self) -> KeeperHello:
        return self._hello

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def wants_write(self) -> bool:
        return bool(self._out) and not self._closed

    def fileno(self) -> int:
        return self._peer.fileno()

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Queue the launches, in order, and send what goes without waiting. Each is sent once, ever."""
        prepared: list[LaunchRequest] = []
        for request in requests:
            if self._prepared.pop((request.run, request.k), None) is request:
                prepared.append(request)
            else:
                self._say_go(prepared)
                self._out += request.line
        self._say_go(prepared)
        self.flush()

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        """Let it read launches that may be asked for in a moment; of those prepared before, none is any more."""
        if self._prepared:
            self._out += encode({"op": "unprepare"})
        self._prepared = {(request.run, request.k): request for request in requests}
        self._out += b"".join(request.line.replace(b'"launch"', b'"prepare"', 1) for request in self._prepared.values())
        self.flush()

    def _say_go(self, prepared: list[LaunchRequest]) -> None:
        if prepared:
            self._out += encode({"op": "go", "executions": [(request.run, request.k) for request in prepared]})
            prepared.clear()

    def flush(self) -> None:
        """Send of the queued requests what goes without waiting."""
        while self._out and not self._closed:
            try:
                sent = self._peer.send(self._out, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:  # it is gone: what it still said is to be read first, and then its end
                self._out.clear()
                return
            del self._out[:sent]

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """TERM to the group now, KILL after `grace`. Idempotent; an earlier end of the grace wins; it outlives the driver."""
        self._send({"op": "stop", "run": run, "k": k, "grace_s": grace.total_seconds()})

    def forbid(self, run: str, k: int, timeout: timedelta = ANSWER_WITHIN) -> Standing:
        """Fence an execution, and return what is known of it. Raise TimedOut without an answer, IoError once it went away."""

        def answer(message: Message) -> Standing | None:
            if message.get("op") == "forbid" and (message.get("run"), message.get("k")) == (run, k):
                return standing_from(message)
            return None

        self._send({"op": "forbid", "run": run, "k": k})
        return self._wait_for(answer, timeout)

    def list(self, timeout: timedelta = ANSWER_WITHIN) -> Standings:
        """Return everything that runs, and every end that no driver was told. Raise TimedOut, or IoError once it went away."""
        self._send({"op": "list"})
        return self._wait_for(_list_in, timeout)

    def poll(self) -> Reports:
        """Return what was reported since the last call, without waiting; also sends what is queued."""
        self.flush()
        self._read()
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        self._went_away()
        self._peer.close()

    def __enter__(self) -> KeeperClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, message: Message) -> None:
        self._out += encode(message)
        self.flush()

    def _read(self) -> None:
        chunks = [self._in]
        while not self._closed:
            try:
                chunk = self._peer.recv(_READ_AT_ONCE)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self._went_away()
                break
            chunks.append(chunk)
        *lines, self._in = b"".join(chunks).split(b"\n")
        for line in lines:
            self._take_in(decode(line))

    def _take_in(self, message: Message) -> None:
        reports = reports_from(message)
        if reports is not None:
            self._reports += reports
        else:
            self._answers.append(message)

    def _wait_for(self, answer: Callable[[Message], _T | None], timeout: timedelta) -> _T:
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            self.flush()
            self._read()
            answers, self._answers = self._answers, []
            for message in answers:  # an answer that came after its time ran out matches nothing and is dropped
                found = answer(message)
                if found is not None:
                    return found
            if self._closed:
                raise IoError("the keeper went away")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut("the keeper did not answer in time")
            poller = select.poll()
            poller.register(self._peer, select.POLLIN | (select.POLLOUT if self._out else 0))
            poller.poll(left * 1000)

    def _went_away(self) -> None:
        self._closed = True
        self._prepared = {}
        self._out.clear()


def _hello_in(message: Message) -> KeeperHello | None:
    return hello_from(message) if message.get("op") == "hello" else None


def _list_in(message: Message) -> Standings | None:
    return [standing_from(part) for part in message["executions"]] if message.get("op") == "list" else None


def protocols_at(directory: Path) -> list[int]:
    """Return the protocols of which a keeper's socket is in that directory, whether one lives or not. Raise IoError."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names only
    except FileNotFoundError:
        return []
    except OSError as error:
        raise IoError(f"{directory}: {error.strerror}", {"errno": error.errno}) from error
    return sorted(int(match[1]) for match in map(_SOCKET.fullmatch, names) if match)


def _connected(directory: Path, name: str) -> socket.socket | None:
    """Connect through a descriptor of the directory, so that no path is too long (contract 9.2)."""
    try:
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise IoError(f"{directory}: {error.strerror}", {"errno": error.errno}) from error
    peer = None
    try:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(ANSWER_WITHIN.total_seconds())
        peer.connect(f"/proc/self/fd/{place}/{name}")
    except OSError as error:
        if peer is not None:
            peer.close()
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return None
        raise IoError(f"{directory / name}: {error}", {"errno": error.errno}) from error
    finally:
        os.close(place)
    return peer


def _start(directory: Path, origin: Origin) -> None:
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(_MAIN), str(directory.absolute()), "--origin", origin.value]
    try:
        done = subprocess.run(
            command,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=_START_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IoError(f"the keeper of {directory} could not be started: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"its starter ended with {done.returncode}"
        raise IoError(f"the keeper of {directory} could not be started: {said}")
