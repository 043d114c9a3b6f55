"""Launching one execution: its record reserved, its output opened, then its process, nothing in between (6.4, 6.9)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
import time
from dataclasses import dataclass

from wfctl.core.instants import from_micros
from wfctl.keeper.protocol import End, LaunchRequest, RefusedAt, Started
from wfctl.keeper.records import reserve, take_spare
from wfctl.keeper.starting import DirectoryRefused, best_starter
from wfctl.linux import boot_id

MARKS = ("WFCTL_STORE", "WFCTL_RUN_ID", "WFCTL_EXECUTION")  #: by which a process that left its session is still known
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_OPEN_OUTPUT = os.O_WRONLY | os.O_APPEND | _OPEN
_FORK_FAILURES = (errno.EAGAIN, errno.ENOMEM)


@dataclass(slots=True, eq=False)
class Execution:
    """One launched execution, from its process to its exit record. Times are microseconds since the epoch."""

    run: str
    k: int
    pid: int
    started_at: int
    marks: tuple[str, ...]
    directory: str  #: `runs/ID/k`; by name, since every descriptor held would be copied and closed again at each launch
    start_time: int = 0
    wait_status: int | None = None  #: set once its own process has been reaped
    ended_at: int = 0
    cpu_us: int = 0
    max_rss_bytes: int = 0
    left_behind: int = 0
    kill_at: float | None = None  #: monotonic; set once a stop was asked for
    killed: bool = False
    look_at: float = 0.0  #: when to look next whether its group is gone
    pause: float = 0.0
    quiet: int = 0  #: how often in a row nobody of its group was seen

    @property
    def key(self) -> tuple[str, int]:
        return (self.run, self.k)

    def started(self) -> Started:
        at = from_micros(self.started_at)
        return Started(run=self.run, k=self.k, pid=self.pid, start_time=self.start_time, boot_id=boot_id(), at=at)

    def end(self) -> End:
        code = os.waitstatus_to_exitcode(self.wait_status or 0)
        status, signal = (code, None) if code >= 0 else (None, -code)
        times = self.started_at, self.ended_at
        return End(self.run, self.k, self.pid, *times, status, signal, self.cpu_us, self.max_rss_bytes, self.left_behind)


class Refusal(Exception):
    """The system did not launch it. It can be recorded unless the record was what could not be made."""

    def __init__(self, number: int, what: RefusedAt) -> None:
        super().__init__(number, what)
        self.number, self.what = number, what


class Launcher:
    """Launches executions with the limits that the keeper was started with."""

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._raises = self._soft != self._hard
        with contextlib.suppress(OSError, ValueError):
            self._set_files_limit(self._hard)
        self._starter = best_starter(self._limits)
        self._scores_zero = _oom_score() == 0

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which to launch."""
        return self._starter.batch()

    def launch(self, request: LaunchRequest) -> Execution:
        """Given a request, return its execution. Raise Refusal when the system says no.

        Order: the exit record is there and its space reserved before the process, so a crash of the keeper in between leaves a
        record that reads as not ended, and a second launch of it finds the file and fails.
        """
        output = errors = given = -1
        what = RefusedAt.RECORD
        try:
            if request.spare is None:
                reserve(request.directory)
                open_output = _open_output
            else:
                take_spare(request.spare, request.directory)
                open_output = _open_fresh_output
            what = RefusedAt.OUTPUT
            output = open_output(request.stdout)
            errors = open_output(request.stderr)
            if request.stdin is not None:
                what = RefusedAt.INPUT
                given = _open_regular(request.stdin, os.O_RDONLY | _OPEN)
            what = RefusedAt.PROGRAM
            at = time.time_ns() // 1000
            pid = self._starter.start(request, (None if given < 0 else given, output, errors))
        except DirectoryRefused as error:
            raise Refusal(error.errno or errno.EIO, RefusedAt.CWD) from error
        except OSError as error:
            number = error.errno or errno.EIO
            if what is RefusedAt.PROGRAM and number in _FORK_FAILURES:
                what = RefusedAt.FORK
            raise Refusal(number, what) from error
        except (ValueError, TypeError) as error:  # a NUL byte, an empty argv, a "=" in a name: no system would take it
            raise Refusal(errno.EINVAL, what) from error
        finally:
            for descriptor in (given, output, errors):
                if descriptor >= 0:
                    os.close(descriptor)
        if not self._scores_zero:
            _reset_oom_score(pid)
        marks = tuple(request.environment.get(name, "") for name in MARKS)
        return Execution(request.run, request.k, pid, at, marks, request.directory)

    def _limits(self, is_job: bool) -> None:
        """Set the limits of the job that is about to be started, or those of the keeper again."""
        if self._raises:
            self._set_files_limit(self._soft if is_job else self._hard)

    def _set_files_limit(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._hard))


def _open_output(path: str) -> int:
    """Open a stream's file to append; made 0600 if need be. A link, fifo or device there is refused and never waited for."""
    try:
        return _open_regular(path, _OPEN_OUTPUT)  # made ahead, or by an earlier step
    except FileNotFoundError:
        return os.open(path, _OPEN_OUTPUT | os.O_CREAT | os.O_EXCL, 0o600)


def _open_fresh_output(path: str) -> int:
    """Open a stream's file in a directory that was made ahead: nobody but who made it has seen it yet."""
    return os.open(path, _OPEN_OUTPUT)


def _open_regular(path: str, flags: int) -> int:
    """Open what is there already, if it is a regular file."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & os.O_APPEND)  # blocking again
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file", path)


def _oom_score() -> int:
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _reset_oom_score(pid: int) -> None:
    with contextlib.suppress(OSError):  # it may be gone already, or the service's sandbox may forbid it
        descriptor = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
