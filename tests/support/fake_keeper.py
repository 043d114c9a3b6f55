"""A keeper without processes: tests say when an execution ends, and how.

It passes the same `KeeperContract` as the real one. Exit records are real files wherever the run's directory exists.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wfctl.errors import IoError
from wfctl.keeper.protocol import (
    ANSWER_WITHIN,
    PROTOCOL,
    Ended,
    Holding,
    KeeperHello,
    LaunchRequest,
    Origin,
    Refused,
    RefusedAt,
    Report,
    Reports,
    Standing,
    Standings,
    Started,
)
from wfctl.keeper.records import encode_record, record_path, reserve
from wfctl.linux import boot_id

Key = tuple[str, int]
_FIRST_PID = 1 << 22  # beyond what Linux gives: no real process is ever meant


@dataclass
class World:
    """What the fake keeper process holds; drivers come and go."""

    hello: KeeperHello
    now: Callable[[], datetime]
    launches: list[LaunchRequest] = field(default_factory=list)  #: carried out, in order, refused ones included
    stops: list[tuple[str, int, timedelta]] = field(default_factory=list)  #: every stop asked for
    unread: list[LaunchRequest] = field(default_factory=list)  #: sent while `stalls`
    seen: set[Key] = field(default_factory=set)
    forbidden: set[Key] = field(default_factory=set)
    running: dict[Key, Started] = field(default_factory=dict)
    untold: dict[Key, Ended | Refused] = field(default_factory=dict)
    refusals: dict[str, tuple[int, RefusedAt]] = field(default_factory=dict)
    connections: list[FakeKeeper] = field(default_factory=list)
    requests: dict[Key, LaunchRequest] = field(default_factory=dict)
    prepared: list[Key] = field(default_factory=list)  #: what a driver last said that it may ask for
    script: Callable[[LaunchRequest], int | None] | None = None
    obeys_stop: bool = True
    stalls: bool = False
    is_dead: bool = False


class FakeKeeper:
    """One driver's connection to a `World`, and the strings a test pulls.

    `script` gives the exit status of a launch at once, or None to let it run; `obeys_stop = False` makes TERM and KILL do
    nothing until `end` is called; `stalls = True` leaves launches unread until `read`.
    """

    def __init__(
        self,
        origin: Origin = Origin.SUPERVISOR,
        *,
        now: Callable[[], datetime] | None = None,
        world: World | None = None,
    ) -> None:
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        hello = KeeperHello(protocol=PROTOCOL, pid=_FIRST_PID, since_ns=since, boot_id=boot_id(), origin=origin)
        self.world = world or World(hello=hello, now=now or (lambda: datetime.now(UTC)))
        self._reports: Reports = []
        self._notice = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closed = self.world.is_dead
        self.world.connections.append(self)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._notice)

    # What a test does to it

    def end(
        self,
        run: str,
        k: int,
        *,
        exit_status: int | None = None,
        signal: int | None = None,
        left_behind: int = 0,
        cpu_us: int = 1000,
        max_rss_bytes: int = 1 << 20,
    ) -> Ended:
        """Let an execution end: with `exit_status`, or by `signal`; with neither, with 0."""
        world = self.world
        started = world.running.pop((run, k))
        if exit_status is None and signal is None:
            exit_status = 0
        ended = Ended(
            run=run,
            k=k,
            pid=started.pid,
            started_at=started.at,
            ended_at=max(world.now(), started.at),
            exit_status=exit_status,
            signal=signal,
            cpu_us=cpu_us,
            max_rss_bytes=max_rss_bytes,
            left_behind=left_behind,
        )
        self._settle(ended)
        return ended

    def refuse(self, program: str, errno: int, what: RefusedAt = RefusedAt.PROGRAM) -> None:
        """Refuse every later launch of that program."""
        self.world.refusals[program] = (errno, what)

    def read(self) -> None:
        """Read what was sent while it stalled."""
        self.world.stalls = False
        unread, self.world.unread = self.world.unread, []
        for request in unread:
            self._carry_out(request)

    def reconnect(self) -> FakeKeeper:
        """Let this driver be gone, and return the connection of the next one."""
        self.close()
        return FakeKeeper(world=self.world)

    def die(self) -> None:
        """Let the keeper be killed: its executions run on and nobody reports them."""
        self.world.is_dead = True
        for connection in self.world.connections:
            connection._closed = True
            os.eventfd_write(connection._notice, 1)

    @property
    def running(self) -> list[Key]:
        return list(self.world.running)

    # What a driver does with it

    @property
    def hello(self) -> KeeperHello:
        return self.world.hello

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def wants_write(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._notice

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        self.world.prepared = [(request.run, request.k) for request in requests]

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        if self._closed:
            return
        for request in requests:
            if self.world.stalls:
                self.world.unread.append(request)
            else:
                self._carry_out(request)

    def flush(self) -> None:
        pass

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        if self._closed:
            return
        self.world.stops.append((run, k, grace))
        if self.world.obeys_stop and (run, k) in self.world.running:
            self.end(run, k, signal=15)

    def forbid(self, run: str, k: int, timeout: timedelta = ANSWER_WITHIN) -> Standing:
        self._check_open()
        if (run, k) not in self.world.seen:
            self.world.forbidden.add((run, k))
        return self._standing((run, k))

    def list(self, timeout: timedelta = ANSWER_WITHIN) -> Standings:
        self._check_open()
        return [self._standing(key) for key in (*self.world.running, *self.world.untold)]

    def poll(self) -> Reports:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._notice)
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        self._closed = True
        if self in self.world.connections:
            self.world.connections.remove(self)

    def _check_open(self) -> None:
        if self._closed:
            raise IoError("the keeper went away")

    def _carry_out(self, request: LaunchRequest) -> None:
        world, key = self.world, (request.run, request.k)
        if key in world.seen or key in world.forbidden:
            return
        world.seen.add(key)
        world.launches.append(request)
        world.requests[key] = request
        if request.program in world.refusals:
            errno, what = world.refusals[request.program]
            self._settle(Refused(run=request.run, k=request.k, errno=errno, what=what, at=world.now()))
            return
        pid = _FIRST_PID + len(world.launches)
        started = Started(run=request.run, k=request.k, pid=pid, start_time=pid, boot_id=boot_id(), at=world.now())
        world.running[key] = started
        self._tell(started)
        status = world.script(request) if world.script else None
        if status is not None:
            self.end(request.run, request.k, exit_status=status)

    def _settle(self, outcome: Ended | Refused) -> None:
        if self.world.is_dead:
            return
        key = (outcome.run, outcome.k)
        _write_record(self.world.requests[key].directory, outcome)
        self.world.untold[key] = outcome
        self._tell(outcome)

    def _tell(self, report: Report) -> None:
        for connection in self.world.connections:
            connection._reports.append(report)
            os.eventfd_write(connection._notice, 1)
            if not isinstance(report, Started):
                self.world.untold.pop((report.run, report.k), None)

    def _standing(self, key: Key) -> Standing:
        run, k = key
        if key in self.world.running:
            return Standing(run=run, k=k, state=Holding.RUNNING, started=self.world.running[key])
        if key not in self.world.seen:
            return Standing(run=run, k=k, state=Holding.FORBIDDEN)
        outcome = self.world.untold.get(key)
        if isinstance(outcome, Refused):
            return Standing(run=run, k=k, state=Holding.ENDED, refused=outcome)
        return Standing(run=run, k=k, state=Holding.ENDED, ended=outcome)


def _write_record(directory: str, outcome: Ended | Refused) -> None:
    if not Path(directory).is_dir():
        return  # a test without run directories
    with contextlib.suppress(FileExistsError):
        reserve(directory)
    record_path(directory).write_bytes(encode_record(outcome))
