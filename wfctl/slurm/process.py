"""Running a command to its end from one of several threads, without holding up the others.

`subprocess` keeps the interpreter's lock from the fork to the exec, and the supervisor's loop waits meanwhile: of a thousand
commands at once that is felt. `posix_spawn` by ctypes does not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Mapping, Sequence

from wfctl.linux import Spawner

MOST_SAID = 64 << 20  #: bytes that are read of what a command prints
_LOOK_S = 0.02


class TookTooLong(Exception):
    """A command did not end in time; it was killed."""


class _Own(threading.local):
    """What each thread keeps: its spawner, and where its commands print."""

    def __init__(self) -> None:
        self.spawner = Spawner()
        self.output, self.errors = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("output", "errors"))

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.output)
            os.close(self.errors)


_own = _Own()


def run(program: str, arguments: Sequence[str], environment: Mapping[str, str], patience_s: float) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit status (negative: the signal that ended it) and what it printed on both streams.

    Raise OSError where it cannot be started, TookTooLong.
    """
    own = _own
    for descriptor in (own.output, own.errors):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
    own.spawner.redirect(own.output, own.errors)
    pid = own.spawner.spawn(program, [program, *arguments], environment)
    status = _wait(pid, patience_s)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise TookTooLong
    return os.waitstatus_to_exitcode(status), os.pread(own.output, MOST_SAID, 0), os.pread(own.errors, MOST_SAID, 0)


def _wait(pid: int, patience_s: float) -> int | None:
    """Return the wait status of a child, or None where it has not ended in time."""
    until = time.monotonic() + patience_s
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(patience_s * 1000)
        finally:
            os.close(descriptor)
    while True:  # at once where there was a pidfd
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(_LOOK_S)
