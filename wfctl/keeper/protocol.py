"""What a driver and a keeper say to each other: frozen values, and one JSON object a line (contract 6.9, 6.10).

`hello`, `list` and `forbid` never change over protocols, so that a newer driver can always fence what an older keeper holds.
Text travels as ASCII JSON: bytes that are no UTF-8 are lone surrogates in it, as `surrogateescape` makes them, and come out as
the same bytes.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from wfctl.core.instants import from_micros, to_micros

PROTOCOL = 3  #: 2: a launch may name a file that is its standard input; 3: a directory that was made ahead


def socket_name(protocol: int) -> str:
    """Return the name of the socket of keepers that speak that protocol."""
    return f"keeper.{protocol}.sock"


SOCKET_NAME = socket_name(PROTOCOL)
LOCK_NAME = f"keeper.{PROTOCOL}.lock"
MAX_FRAME = 4 * 1024 * 1024  #: bytes of one line, its newline included
ANSWER_WITHIN = timedelta(seconds=10)  #: how long a driver waits for `hello`, `list` and `forbid`

Message = dict[str, Any]


class Origin(StrEnum):
    """Who started a keeper. A supervisor uses only one that a supervisor started (6.9)."""

    SUPERVISOR = "supervisor"
    COMMAND = "command"


class RefusedAt(StrEnum):
    """At which part of a launch the system said no."""

    PROGRAM = "program"
    CWD = "cwd"
    OUTPUT = "output"
    RECORD = "record"
    FORK = "fork"
    INPUT = "input"  # at the end: an exit record names a place by its number
    SUBMISSION = "submission"  # an executor's own words say why: of what it was handed to, or of the node that was to run it
    NODE = "node"


class Holding(StrEnum):
    """What a keeper knows of an execution: the three answers of 6.10."""

    RUNNING = "running"  #: its process, or after a stop its group, lives, or its exit record is being written
    ENDED = "ended"  #: launched or refused, and over; details only until a driver has been told
    FORBIDDEN = "forbidden"  #: never launched here, and never will be


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperHello:
    """Who answers: a keeper that has lived since `since_ns` of CLOCK_BOOTTIME in boot `boot_id`."""

    protocol: int
    pid: int
    since_ns: int
    boot_id: str
    origin: Origin

    def to_message(self) -> Message:
        return {
            "op": "hello",
            "protocol": self.protocol,
            "pid": self.pid,
            "since_ns": self.since_ns,
            "boot_id": self.boot_id,
            "origin": self.origin.value,
        }


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One execution to launch: everything it gets, nothing to decide. Paths are absolute, text is as `os.fsdecode` gives it."""

    run: str
    k: int
    program: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    umask: int
    stdout: str
    stderr: str
    directory: str  #: `runs/ID/k`, which exists: the exit record is made in it
    stdin: str | None = None  #: a regular file; None: /dev/null, as every run has (6.4)
    spare: str | None = None  #: what is to become the run's directory by one renaming, with an exit record in it already
    wanted: object | None = None  #: what the deployment asks of another executor than the keeper

    @functools.cached_property
    def line(self) -> bytes:
        """The line by which a keeper is asked: worked out once, ahead of the instant where there is time."""
        return encode(self.to_message())

    @functools.cached_property
    def variables(self) -> list[bytes]:
        """The environment as a program gets it; worked out once. Raise ValueError for a name that is none."""
        if any(not name or "=" in name for name in self.environment):
            raise ValueError("a name that is none")
        return [os.fsencode(f"{name}={value}") for name, value in self.environment.items()]

    def to_message(self) -> Message:
        return {
            "op": "launch",
            "run": self.run,
            "k": self.k,
            "program": _portable(self.program),
            "argv": list(self.argv),
            "environment": dict(self.environment),
            "cwd": _portable(self.cwd),
            "umask": self.umask,
            "stdout": _portable(self.stdout),
            "stderr": _portable(self.stderr),
            "directory": _portable(self.directory),
            "stdin": None if self.stdin is None else _portable(self.stdin),
            "spare": None if self.spare is None else _portable(self.spare),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The process of an execution exists."""

    run: str
    k: int
    pid: int
    start_time: int  #: clock ticks since boot, field 22 of /proc/PID/stat; with `boot_id` it tells a reused pid
    boot_id: str
    at: datetime

    def to_message(self) -> Message:
        return {
            "op": "started",
            "run": self.run,
            "k": self.k,
            "pid": self.pid,
            "start_time": self.start_time,
            "boot_id": self.boot_id,
            "at": to_micros(self.at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The system did not launch it; no process of it ever existed.

    One case is none of the system's: EEXIST at `record` says that a keeper before this one was asked for the same execution,
    and that record, not this report, is the truth.
    """

    run: str
    k: int
    errno: int
    what: RefusedAt
    at: datetime
    recorded: bool = True  #: False: the exit record could not be made durable
    message: str | None = None  #: of an executor: why, where no errno says it
    cause: Mapping[str, Any] | None = None  #: of an executor: what ended it before it began, as `Ended.cause`

    def to_message(self) -> Message:
        return {
            "op": "refused",
            "run": self.run,
            "k": self.k,
            "errno": self.errno,
            "what": self.what.value,
            "at": to_micros(self.at),
            "recorded": self.recorded,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An execution is over: either `exit_status` or `signal` is set. After a stop this says that its whole group is gone.

    With a `cause` it was ended from above its process, or nobody knows how: then neither may be set.
    """

    run: str
    k: int
    pid: int
    started_at: datetime
    ended_at: datetime
    exit_status: int | None
    signal: int | None
    cpu_us: int
    max_rss_bytes: int  #: Linux counts the keeper's own 15 MB or so in, from before the program was executed
    left_behind: int
    recorded: bool = True  #: False: the exit record could not be made durable
    speaks: bool = field(default=True, compare=False)  #: False: it left none of the files by which a run says more
    cause: Mapping[str, Any] | None = None  #: of an executor: the reason's `code` and data, `time-limit`, `node-failed` …

    def to_message(self) -> Message:
        return {
            "op": "ended",
            "run": self.run,
            "k": self.k,
            "pid": self.pid,
            "started_at": to_micros(self.started_at),
            "ended_at": to_micros(self.ended_at),
            "exit_status": self.exit_status,
            "signal": self.signal,
            "cpu_us": self.cpu_us,
            "max_rss_bytes": self.max_rss_bytes,
            "left_behind": self.left_behind,
            "recorded": self.recorded,
            "speaks": self.speaks,
        }


class End(NamedTuple):
    """What `Ended` says, as it travels: of very many that end together a list of such lists. Times are microseconds."""

    run: str
    k: int
    pid: int
    started_at: int
    ended_at: int
    exit_status: int | None
    signal: int | None
    cpu_us: int
    max_rss_bytes: int
    left_behind: int
    recorded: bool = True
    speaks: bool = True

    def report(self) -> Ended:
        """Return it as a driver has it. Raise ValueError, TypeError or OverflowError for what is none."""
        run, k, pid, started_at, ended_at, exit_status, signal, cpu_us, max_rss_bytes, left_behind, recorded, speaks = self
        check_execution(run, k)
        for number in (pid, started_at, ended_at, cpu_us, max_rss_bytes, left_behind):
            if type(number) is not int:
                raise ValueError(f"{number!r} is not a whole number")
        return Ended(
            run=run,
            k=k,
            pid=pid,
            started_at=from_micros(started_at),
            ended_at=from_micros(ended_at),
            exit_status=exit_status,
            signal=signal,
            cpu_us=cpu_us,
            max_rss_bytes=max_rss_bytes,
            left_behind=left_behind,
            recorded=bool(recorded),
            speaks=bool(speaks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLaunched:
    """An executor, asked to launch an execution, has proved that it never was launched and never will be (6.10)."""

    run: str
    k: int
    at: datetime

    def to_message(self) -> Message:
        return {"op": "not-launched", "run": self.run, "k": self.k, "at": to_micros(self.at)}


Report = Started | Refused | Ended | NotLaunched


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a keeper answers about one execution.

    `ended` without `ended` or `refused` set means that a driver has been told already: the exit record says how it went.
    """

    run: str
    k: int
    state: Holding
    started: Started | None = None
    ended: Ended | None = None
    refused: Refused | None = None

    def to_message(self) -> Message:
        parts = {"started": self.started, "ended": self.ended, "refused": self.refused}
        told = {name: part.to_message() for name, part in parts.items() if part is not None}
        return {"run": self.run, "k": self.k, "state": self.state.value, **told}


Reports = list[Report]
Standings = list[Standing]


class Keeper(Protocol):
    """What a driver needs of whatever launches: the seam for a fake one in tests and for other executors."""

    @property
    def hello(self) -> KeeperHello: ...

    @property
    def closed(self) -> bool:
        """Tell whether the keeper has gone away; what was sent to it and not reported is then in doubt."""
        ...

    @property
    def wants_write(self) -> bool:
        """Tell whether requests are still queued: call `flush` when `fileno()` is writable."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something; -1 once closed."""
        ...

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Queue the launches, in order, and send what goes without waiting. Each is sent once, ever."""
        ...

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        """Let it read launches that may be asked for in a moment; of those prepared before, none is any more."""
        ...

    def flush(self) -> None: ...

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """TERM to the group now, KILL after `grace`. Idempotent; an earlier end of the grace wins; it outlives the driver."""
        ...

    def forbid(self, run: str, k: int, timeout: timedelta = ANSWER_WITHIN) -> Standing:
        """Fence an execution that may or may not have been launched, and return what is known of it (6.10)."""
        ...

    def list(self, timeout: timedelta = ANSWER_WITHIN) -> Standings: ...

    def poll(self) -> Reports:
        """Return what was reported since the last call, without waiting."""
        ...

    def close(self) -> None: ...


# Lines -----------------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """Given a message, return its line."""
    return _dumps(message).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """Given a line, return its message. Raise ValueError for anything but one JSON object (contract 9.2)."""
    try:
        message = _loads(line.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


def hello_from(message: Message) -> KeeperHello:
    return KeeperHello(
        protocol=_whole(message, "protocol"),
        pid=_whole(message, "pid"),
        since_ns=_whole(message, "since_ns"),
        boot_id=_text(message, "boot_id"),
        origin=Origin(message["origin"]),
    )


def launch_from(message: Message) -> LaunchRequest:
    """Given a `launch` message, return the request. Raise ValueError or KeyError when its shape is wrong."""
    argv, environment = message["argv"], message["environment"]
    if not isinstance(argv, list) or not isinstance(environment, dict):
        raise ValueError("argv or environment has the wrong type")
    run, k = execution_of(message)
    return LaunchRequest(
        run=run,
        k=k,
        program=_text(message, "program"),
        argv=argv,
        environment=environment,
        cwd=_text(message, "cwd"),
        umask=_whole(message, "umask"),
        stdout=_text(message, "stdout"),
        stderr=_text(message, "stderr"),
        directory=_text(message, "directory"),
        stdin=None if message.get("stdin") is None else _text(message, "stdin"),
        spare=None if message.get("spare") is None else _text(message, "spare"),
    )


def execution_of(message: Message) -> tuple[str, int]:
    """Given any message about an execution, return (run, k). Raise ValueError or KeyError when it names none."""
    run, k = message["run"], message["k"]
    check_execution(run, k)
    return run, k


def check_execution(run: object, k: object) -> None:
    """Raise ValueError for what names no execution."""
    if not isinstance(run, str) or type(k) is not int:
        raise ValueError("run is not text, or k not a whole number")
    if not run or len(run) > 64 or not run.isascii() or k < 1:
        raise ValueError(f"({run!r}, {k}) is no execution")


def report_from(message: Message) -> Report | None:
    """Given a message about one execution, return its report, or None when it is of another kind."""
    reader = _REPORTS.get(message.get("op", ""))
    return reader(message) if reader else None


def reports_from(message: Message) -> list[Report] | None:
    """Given a message of a keeper, return what it reports, or None when it is of another kind."""
    if message.get("op") == "ends":
        return [End(*each).report() for each in message["ends"]]
    report = report_from(message)
    return None if report is None else [report]


def standing_from(message: Message) -> Standing:
    run, k = execution_of(message)
    return Standing(
        run=run,
        k=k,
        state=Holding(message["state"]),
        started=_part(message, "started", _started_from),
        ended=_part(message, "ended", _ended_from),
        refused=_part(message, "refused", _refused_from),
    )


def _started_from(message: Message) -> Started:
    run, k = execution_of(message)
    return Started(
        run=run,
        k=k,
        pid=_whole(message, "pid"),
        start_time=_whole(message, "start_time"),
        boot_id=_text(message, "boot_id"),
        at=from_micros(_whole(message, "at")),
    )


def _refused_from(message: Message) -> Refused:
    run, k = execution_of(message)
    return Refused(
        run=run,
        k=k,
        errno=_whole(message, "errno"),
        what=RefusedAt(message["what"]),
        at=from_micros(_whole(message, "at")),
        recorded=bool(message["recorded"]),
    )


def _ended_from(message: Message) -> Ended:
    run, k = execution_of(message)
    return Ended(
        run=run,
        k=k,
        pid=_whole(message, "pid"),
        started_at=from_micros(_whole(message, "started_at")),
        ended_at=from_micros(_whole(message, "ended_at")),
        exit_status=message["exit_status"],
        signal=message["signal"],
        cpu_us=_whole(message, "cpu_us"),
        max_rss_bytes=_whole(message, "max_rss_bytes"),
        left_behind=_whole(message, "left_behind"),
        recorded=bool(message["recorded"]),
        speaks=bool(message.get("speaks", True)),
    )


_REPORTS: dict[str, Callable[[Message], Report]] = {"started": _started_from, "refused": _refused_from, "ended": _ended_from}

_T = TypeVar("_T")


def _part(message: Message, name: str, reader: Callable[[Message], _T]) -> _T | None:
    part = message.get(name)
    return None if part is None else reader(part)


def _text(message: Message, name: str) -> str:
    value = message[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    return value


def _whole(message: Message, name: str) -> int:
    value = message[name]
    if type(value) is not int:
        raise ValueError(f"{name} is not a whole number")
    return value


def _portable(path: str) -> str:
    """Return a path of this process as a keeper, which always speaks UTF-8, has to read it."""
    return path if _SPEAKS_UTF8 else os.fsencode(path).decode("utf-8", "surrogateescape")


_SPEAKS_UTF8 = sys.getfilesystemencoding() == "utf-8"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> Message:
    message = dict(pairs)
    if len(message) != len(pairs):
        raise ValueError("a key is given twice")
    return message


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_loads = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant).decode
