"""Faults of system calls, made by strace in a process that runs already."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from tests.support.processes import wait_for


def why_not() -> str | None:
    """Return why no system call can be made to fail here, or None where it can."""
    if shutil.which("strace") is None:
        return "strace is missing (Debian: apt-get install strace)"
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        with Faults(sleeper.pid, "fsync", "error=EIO"):
            return None
    except AssertionError as error:
        return f"ptrace is not permitted here: {error}"
    finally:
        sleeper.kill()
        sleeper.wait()


class Faults:
    """While this context lasts, the given calls of a process fail, or kill it: `error=EIO:when=1..3`, `signal=SIGKILL:when=2`.

    Its threads are traced, its children are not. `when` counts for each thread.
    """

    def __init__(self, pid: int, calls: str, fault: str) -> None:
        self._pid, self._calls, self._fault = pid, calls, fault

    def __enter__(self) -> Faults:
        threads = os.listdir(f"/proc/{self._pid}/task")  # noqa: PTH208 - names only
        pids = [word for thread in threads for word in ("-p", thread)]
        self._strace = subprocess.Popen(
            [
                "strace",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                f"trace={self._calls}",
                "-e",
                f"inject={self._calls}:{self._fault}",
                *pids,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: self._strace.poll() is not None or all(map(self._is_traced, threads)), what="strace being attached")
        if self._strace.poll() is not None:
            assert self._strace.stderr is not None
            said = self._strace.stderr.read().strip()
            assert not said, said  # else the process is gone already, killed as it should be
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._strace.send_signal(signal.SIGTERM)  # it lets go of what it traces
        with contextlib.suppress(subprocess.TimeoutExpired):  # where that dies meanwhile, it may wait for ever
            self._strace.wait(5)
        self._strace.kill()
        self._strace.wait()
        if self._strace.stderr is not None:
            self._strace.stderr.close()

    def _is_traced(self, thread: str) -> bool:
        try:
            status = Path(f"/proc/{self._pid}/task/{thread}/status").read_text()
        except OSError:
            return True
        return "TracerPid:\t0\n" not in status


def dying_at(calls: str, n: int) -> list[str]:
    """Return the words before a command that let it be killed at the n-th of these calls of its main thread."""
    return ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:signal=SIGKILL:when={n}"]
