"""The keeper's loop: launch, reap, stop, forbid, report (contract 6.9, 6.10). It knows no ledger and no policy.

One thread does all of it, save for the writing of exit records. The order that holds everywhere: an execution is marked as seen
before its process exists, its end is on disk before anybody is told, and what was forbidden is never launched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Collection
from dataclasses import replace

from wfctl.core.instants import from_micros
from wfctl.keeper.connection import Connection, Key, peer_is_trusted
from wfctl.keeper.leftovers import Group, count_left_behind, look_at_group
from wfctl.keeper.marks import Marks
from wfctl.keeper.protocol import (
    MAX_FRAME,
    SOCKET_NAME,
    End,
    Holding,
    KeeperHello,
    LaunchRequest,
    Message,
    Refused,
    RefusedAt,
    Standing,
    decode,
    encode,
    execution_of,
    launch_from,
)
from wfctl.keeper.recorder import Recorder, Recording
from wfctl.keeper.spawn import Execution, Launcher, Refusal
from wfctl.linux import process_start_time

FIRST_DRIVER_WITHIN_S = 30.0
LINGER_S = 2.0
_MAX_CONNECTIONS = 100
_FIRST_LOOK_S, _LAST_LOOK_S = 0.002, 0.25  # how often a stopped group is looked at
_LONGEST_BATCH_S = 0.5  # so long at most may launching put off reports and reaping
_NO_DESCRIPTOR_S = 0.02
_ENDS_IN_A_LINE = 256
_LONGEST_WAIT_S = 3600.0
_FOREVER_S = 1e9
_SILENT_LOOKS = 3  # a group in which so often in a row nobody alive was seen is gone
_ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


class KeeperServer:
    """Serves one listening socket until no driver and no run is left."""

    def __init__(
        self, *, hello: KeeperHello, listener: socket.socket, directory: int, wakeup: socket.socket, recorder: Recorder
    ) -> None:
        """Given who it is, its listening socket, a descriptor of the socket's directory and where signals are written to."""
        self._hello = hello
        self._listener = listener
        self._directory = directory
        self._wakeup = wakeup
        self._launcher = Launcher()
        self._recorder = recorder
        self._connections: dict[int, Connection] = {}
        self._running: dict[int, Execution] = {}  # by pid, until reaped
        self._unsettled: dict[Key, Execution | None] = {}  # until the exit record is durable; None: refused
        self._stopping: dict[Key, Execution] = {}
        self._fresh: list[Execution] = []  # launched in this round, not yet reported
        self._untold: dict[Key, End | Refused] = {}  # over, and no living driver has been told
        self._launched, self._forbidden = Marks(), Marks()
        self._batch_ends_at = 0.0
        self._is_leaving = False
        self._ends_at: float | None = time.monotonic() + FIRST_DRIVER_WITHIN_S
        self._epoll = select.epoll()
        for source in (listener, wakeup, self._recorder):
            self._epoll.register(source.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Run rounds until nothing is left to live for; then take the socket away."""
        while not self._is_over():
            self._round(self._epoll.poll(self._timeout()))
        with contextlib.suppress(OSError):
            os.unlink(SOCKET_NAME, dir_fd=self._directory)
        self._listener.close()

    def _round(self, events: list[tuple[int, int]]) -> None:
        for descriptor, _ in events:
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._wakeup.fileno():
                self._take_in_signals()
            elif descriptor == self._recorder.fileno():
                self._take_in_recordings()
            elif descriptor in self._connections:
                self._read(self._connections[descriptor])
        if self._is_launching():
            return
        over = self._reap()
        self._report_fresh()
        self._record(over)
        self._look_at_stopping()
        for connection in tuple(self._connections.values()):
            self._flush(connection)

    def _is_launching(self) -> bool:
        """Tell whether to look for more to launch before anything else: a batch is longer than what one read brings."""
        now = time.monotonic()
        if not self._fresh:
            self._batch_ends_at = now + _LONGEST_BATCH_S
            return False
        if now >= self._batch_ends_at:
            return False
        readable = (self._connections.get(descriptor) for descriptor, _ in self._epoll.poll(0))
        return any(connection is not None and not connection.is_broken for connection in readable)

    # Living and ending

    def _is_over(self) -> bool:
        if self._connections or self._unsettled:
            self._ends_at = None
            return False
        now = time.monotonic()
        if self._ends_at is None:
            self._ends_at = now + LINGER_S
        if now < self._ends_at and not self._is_leaving:
            return False
        self._accept()  # who came in between keeps it alive; who comes later finds no hello, and starts the next one
        return not self._connections

    def _timeout(self) -> float:
        moments = [execution.look_at for execution in self._stopping.values()]
        if self._ends_at is not None:
            moments.append(self._ends_at)
        return min(max(0.0, min(moments) - time.monotonic()) + 0.001, _LONGEST_WAIT_S) if moments else -1

    def _take_in_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            numbers = self._wakeup.recv(4096)
            if not self._unsettled and _ENDING_SIGNALS.intersection(numbers):
                self._is_leaving = True  # with a driver there it waits for that to go: what it sends must not be lost

    # Drivers

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError as error:  # nobody more, or gone again
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(_NO_DESCRIPTOR_S)  # it stays in the queue: do not spin
                return
            if len(self._connections) >= _MAX_CONNECTIONS or not peer_is_trusted(peer):
                peer.close()
                continue
            connection = Connection(peer)
            self._connections[connection.fileno()] = connection
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        lines = connection.read_lines()
        with self._launcher.batch():
            for line in lines:
                self._answer(connection, line)

    def _answer(self, connection: Connection, line: bytes) -> None:
        try:
            if len(line) >= MAX_FRAME:
                raise ValueError(f"longer than {MAX_FRAME} bytes")
            self._carry_out(connection, decode(line))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            connection.write(encode({"op": "error", "message": f"malformed: {error}"}))
            connection.flush()
            connection.is_broken = True

    def _carry_out(self, connection: Connection, message: Message) -> None:
        operation = message.get("op")
        if operation == "hello":
            connection.is_driver = True
            connection.write(encode(self._hello.to_message()))
        elif not connection.is_driver:
            raise ValueError("say hello first")
        elif operation == "launch":
            request = launch_from(message)
            connection.prepared.pop((request.run, request.k), None)
            self._launch(request)
        elif operation == "prepare":
            self._prepare(connection, launch_from(message))
        elif operation == "unprepare":
            connection.prepared.clear()
        elif operation == "go":
            for run, k in message["executions"]:
                self._launch(connection.prepared.pop((run, k)))
        elif operation == "stop":
            self._stop(execution_of(message), float(message["grace_s"]))
        elif operation == "forbid":
            standing = self._forbid(execution_of(message))
            connection.write(encode({"op": "forbid", **standing.to_message()}))
        elif operation == "list":
            connection.write(encode({"op": "list", "executions": self._list()}))
        else:
            connection.write(
                encode({"op": "error", "message": f"{operation!r} is not known to protocol {self._hello.protocol}"})
            )

    def _flush(self, connection: Connection) -> None:
        for key in connection.flush():
            self._untold.pop(key, None)
        if connection.is_broken:
            del self._connections[connection.fileno()]
            self._epoll.unregister(connection.fileno())
            connection.close()
        elif connection.wants_write != connection.watches_write:
            connection.watches_write = connection.wants_write
            wanted = select.EPOLLIN | (select.EPOLLOUT if connection.watches_write else 0)
            self._epoll.modify(connection.fileno(), wanted)

    def _report(self, messages: list[Message], over: Collection[End | Refused] = ()) -> None:
        """Tell the drivers. `over`: what has ended by these messages."""
        if not messages:
            return
        lines = b"".join(map(encode, messages))
        for outcome in over:
            self._untold[outcome.run, outcome.k] = outcome
        for connection in self._connections.values():
            if connection.is_driver and not connection.is_broken:
                connection.write(lines)
                connection.owed.extend((outcome.run, outcome.k) for outcome in over)

    # Launching

    def _prepare(self, connection: Connection, request: LaunchRequest) -> None:
        """Have read what is to be launched at an instant: then there is nothing to do but to launch it."""
        with contextlib.suppress(ValueError):  # the launch will say so
            request.variables  # noqa: B018 - worked out now
        connection.prepared[request.run, request.k] = request

    def _launch(self, request: LaunchRequest) -> None:
        key = (request.run, request.k)
        if key in self._launched or key in self._forbidden:
            return
        self._launched.add(*key)
        self._is_leaving = False
        try:
            execution = self._launcher.launch(request)
        except Refusal as refusal:
            self._refuse(key, request.directory, refusal)
            return
        self._running[execution.pid] = self._unsettled[key] = execution
        self._fresh.append(execution)

    def _refuse(self, key: Key, directory: str, refusal: Refusal) -> None:
        run, k = key
        recorded = refusal.what is not RefusedAt.RECORD
        at = from_micros(time.time_ns() // 1000)
        refused = Refused(run=run, k=k, errno=refusal.number, what=refusal.what, at=at, recorded=recorded)
        if recorded:
            self._unsettled[key] = None
            self._recorder.submit(Recording(refused, directory))
        else:
            self._report([refused.to_message()], [refused])

    def _report_fresh(self) -> None:
        """Tell of what was launched in this round, all together: what need not be done between two launches is done here.

        What is over by now is told of once, as ended.
        """
        if not self._fresh:
            return
        running = [execution for execution in self._fresh if execution.wait_status is None]
        self._fresh.clear()
        for execution in running:
            execution.start_time = process_start_time(execution.pid) or 0  # not reaped yet, so it is still there
        self._report([execution.started().to_message() for execution in running])

    # Ending

    def _reap(self) -> list[Execution]:
        """Take in every process that ended, ours or left to us, and return the executions that are over."""
        over: list[Execution] = []
        adopted_ended = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            execution = self._running.pop(pid, None)
            if execution is None:
                adopted_ended = True
                continue
            execution.wait_status = status
            execution.cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
            execution.max_rss_bytes = usage.ru_maxrss * 1024
            execution.ended_at = time.time_ns() // 1000
            if execution.kill_at is None:
                over.append(execution)
            else:
                execution.look_at = 0.0
        if adopted_ended:
            self._look_soon()
        return over

    def _look_soon(self) -> None:
        """Somebody left to us ended, perhaps the last of a stopped group."""
        for execution in self._stopping.values():
            if execution.wait_status is not None:
                execution.look_at = 0.0

    def _record(self, over: list[Execution]) -> None:
        if not over:
            return
        with contextlib.suppress(OSError):  # no descriptor free: then nobody can be counted
            count_left_behind(over, self._running.keys())
        for execution in over:
            self._recorder.submit(Recording(execution.end(), execution.directory))

    def _take_in_recordings(self) -> None:
        ends: list[End] = []
        refused: list[Refused] = []
        for recording in self._recorder.collect():
            outcome = recording.outcome
            self._unsettled.pop((outcome.run, outcome.k), None)
            if isinstance(outcome, Refused):
                refused.append(outcome if recording.is_durable else replace(outcome, recorded=False))
            else:
                ends.append(outcome._replace(recorded=recording.is_durable, speaks=recording.speaks))
        messages = [each.to_message() for each in refused]
        for first in range(0, len(ends), _ENDS_IN_A_LINE):
            messages.append({"op": "ends", "ends": ends[first : first + _ENDS_IN_A_LINE]})
        self._report(messages, [*refused, *ends])

    # Stopping

    def _stop(self, key: Key, grace_s: float) -> None:
        """TERM to the group at once; a later stop can only bring the KILL forward."""
        execution = self._unsettled.get(key)
        if execution is None or (execution.wait_status is not None and execution.kill_at is None):
            return
        self._report_fresh()  # its own process may end long before its group
        kill_at = time.monotonic() + min(max(0.0, grace_s), _FOREVER_S)
        if execution.kill_at is not None:
            execution.kill_at = min(execution.kill_at, kill_at)
        else:
            execution.kill_at = kill_at
            self._stopping[key] = execution
            _signal_group(execution.pid, signal.SIGTERM)
            _signal_group(execution.pid, signal.SIGCONT)  # what is suspended could not heed it
        if execution.wait_status is None:
            execution.look_at = execution.kill_at

    def _look_at_stopping(self) -> None:
        now = time.monotonic()
        for execution in [one for one in self._stopping.values() if one.look_at <= now]:
            if execution.wait_status is None:
                self._kill_overdue(execution, now)
            else:
                self._look_at_group(execution, now)

    def _kill_overdue(self, execution: Execution, now: float) -> None:
        assert execution.kill_at is not None
        if now >= execution.kill_at:
            _signal_group(execution.pid, signal.SIGKILL)
            execution.look_at = now + 1.0  # a process in a dead mount takes as long as it takes
        else:
            execution.look_at = execution.kill_at

    def _look_at_group(self, execution: Execution, now: float) -> None:
        assert execution.kill_at is not None
        group = look_at_group(execution.pid, self._running.keys())
        execution.quiet = execution.quiet + 1 if group is Group.SILENT else 0
        if group is Group.GONE or execution.quiet >= _SILENT_LOOKS:
            del self._stopping[execution.key]
            execution.ended_at = time.time_ns() // 1000  # its time ends with its group
            self._record([execution])
            return
        if group is Group.ALIVE and now >= execution.kill_at:
            _signal_group(execution.pid, signal.SIGKILL)
        execution.pause = min(max(execution.pause * 2, _FIRST_LOOK_S), _LAST_LOOK_S)
        execution.look_at = now + execution.pause
        if now < execution.kill_at:
            execution.look_at = min(execution.look_at, execution.kill_at)

    # Answering

    def _forbid(self, key: Key) -> Standing:
        if key not in self._launched:
            self._forbidden.add(*key)
        return self._standing(key)

    def _standing(self, key: Key) -> Standing:
        run, k = key
        if key in self._unsettled:
            execution = self._unsettled[key]
            self._report_fresh()  # so that its start time is known
            return Standing(run=run, k=k, state=Holding.RUNNING, started=execution.started() if execution else None)
        if key not in self._launched:
            return Standing(run=run, k=k, state=Holding.FORBIDDEN)
        outcome = self._untold.get(key)
        if isinstance(outcome, Refused):
            return Standing(run=run, k=k, state=Holding.ENDED, refused=outcome)
        return Standing(run=run, k=k, state=Holding.ENDED, ended=None if outcome is None else outcome.report())

    def _list(self) -> list[Message]:
        return [self._standing(key).to_message() for key in (*self._unsettled, *self._untold)]


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
