"""Starting one process of a run: a new session, every signal at its default and unblocked, its directory, umask and streams.

Two ways to the same end. The C function behind `subprocess` forks by vfork and sets all of it in the child, at half the cost
of `posix_spawn` by ctypes and hardly more than a loop in C. It is private to CPython, so it is tried out once when a keeper
begins, by a launch that must fail. Where it is not what is expected, `posix_spawn` does the same with more calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from wfctl.keeper.protocol import LaunchRequest
from wfctl.linux import Spawner

UMASK = 0o077  #: of the keeper itself
_HIDDEN = 0b11 << 31  #: signals 32 and 33, which libc keeps for itself: neither it nor Python lets them be set
_SAID = re.compile(rb"OSError:([0-9a-fA-F]+):(.*)", re.DOTALL)
_LARGEST = 50_000  #: bytes of a message
_ENDING_S = 0.5  #: how long after its last word a child may be there


Streams = tuple[int | None, int, int]  #: descriptors of 0, 1, 2; None: /dev/null
Limits = Callable[[bool], None]


class DirectoryRefused(OSError):
    """The working directory is what could not be entered."""


class Starter(Protocol):
    """Starts processes. For one thread."""

    def batch(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which processes are started."""
        ...

    def start(self, request: LaunchRequest, streams: Streams) -> int:
        """Start the program of a launch and return its pid once it has been executed.

        Raise DirectoryRefused; OSError where fork or exec fails; ValueError for what no system takes: a NUL, no argument at
        all, `=` in a name.
        """
        ...


def best_starter(limits: Limits) -> Starter:
    """Return the cheapest that does what it must here. Raise OSError where there is none.

    `limits` is called with True right before a process is made, and with False right after: it inherits the limits meanwhile.
    """
    if not _is_a_hidden_signal_ignored():
        with contextlib.suppress(ImportError):
            starter = VforkStarter(limits)
            if starter.works():
                return starter
    return SpawnStarter(limits)


_REFUSED = LaunchRequest(
    run="", k=0, program="/", argv=("/",), environment={}, cwd="/", umask=UMASK, stdout="", stderr="", directory=""
)


class VforkStarter:
    """By vfork, all in the child. Signals that are ignored here stay so in it, but for the three that Python ignores itself.

    A failure is what the child writes into a pipe before it ends, which is before vfork returns. Raise ImportError where the
    interpreter has no such function.
    """

    def __init__(self, limits: Limits) -> None:
        from _posixsubprocess import fork_exec

        self._fork_exec = fork_exec
        self._limits = limits
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def works(self) -> bool:
        """Try it out: a directory cannot be executed, and that must be told at once."""
        try:
            self.start(_REFUSED, (None, self._null, self._null))
        except DirectoryRefused:
            return False
        except OSError as error:
            return error.errno == errno.EACCES
        except (TypeError, ValueError):
            return False
        return False

    def batch(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def start(self, request: LaunchRequest, streams: Streams) -> int:
        if not request.argv:
            raise ValueError("no argument")
        given, output, errors = streams
        stdin = self._null if given is None else given
        variables = request.variables
        self._limits(True)
        try:
            # fmt: off
            pid: int = self._fork_exec(
                request.argv, (os.fsencode(request.program),), False, (),  # nothing but the streams is inheritable
                request.cwd, variables,
                stdin, -1, -1, output, -1, errors, self._reader, self._writer,
                True, True, -1,  # SIGPIPE, SIGXFZ and SIGXFSZ at their defaults; setsid; no other process group
                None, None, None, request.umask & 0o777, None, True,  # type: ignore[arg-type]  # nothing to call in the child
            )
            # fmt: on
        finally:
            self._limits(False)
        try:
            said = os.read(self._reader, _LARGEST)
        except BlockingIOError:
            return pid
        if _is_over(pid):
            raise _error_in(said)
        return pid  # it lives, so this is not about it


def _is_over(pid: int) -> bool:
    """Reap a child that ends in these moments; return whether it did."""
    until = time.monotonic() + _ENDING_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= until:
            return False
        time.sleep(0.0001)
    return True


def _error_in(said: bytes) -> OSError:
    found = _SAID.fullmatch(said)
    number = int(found[1], 16) if found else errno.EIO
    kind = DirectoryRefused if found and found[2].startswith(b"noexec") else OSError
    return kind(number, os.strerror(number))


class SpawnStarter:
    """By `posix_spawn`. Directory and umask are those of this process meanwhile, so only one of its threads may start any."""

    def __init__(self, limits: Limits) -> None:
        self._spawner = Spawner()
        self._limits = limits

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))  # each would cost an interrupted call
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
            os.chdir("/")

    def start(self, request: LaunchRequest, streams: Streams) -> int:
        given, output, errors = streams
        try:
            os.chdir(request.cwd)
        except OSError as error:
            raise DirectoryRefused(error.errno, error.strerror) from error
        self._spawner.redirect(output, errors, stdin=given)  # before the limits: these numbers may be beyond them
        os.umask(request.umask & 0o777)
        self._limits(True)
        try:
            return self._spawner.spawn(request.program, request.argv, request.environment)
        finally:
            self._limits(False)
            os.umask(UMASK)


def _is_a_hidden_signal_ignored() -> bool:
    """Tell whether a program would find one ignored: who started this process may have been started by `posix_spawn`."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            ignored = next((int(line[7:], 16) for line in file if line.startswith("SigIgn:")), _HIDDEN)
    except (OSError, ValueError):
        return True
    return bool(ignored & _HIDDEN)
