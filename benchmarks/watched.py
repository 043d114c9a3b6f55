"""A supervisor as a process, from outside: when it is ready, what it and its keeper have used of processor and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Supervisor:
    """One that is ready, and what it took to become so."""

    pid: int
    root: Path
    wall_s: float  #: from its `exec` to READY=1
    cpu_s: float  #: of the process, until then
    extended: int  #: how often it asked for more time meanwhile
    longest_wait_s: float  #: between two of its messages, until then

    @property
    def keeper(self) -> int | None:
        """The pid of the store's keeper, where one lives."""
        return next(iter(processes("wfctl/keeper", str(self.root))), None)


@contextlib.contextmanager
def supervised(root: Path, *arguments: str) -> Iterator[Supervisor]:
    """Have `wfctl supervise` run on a store meanwhile; give it once it says READY=1."""
    argv = [sys.executable, "-m", "wfctl", "--store", str(root), "supervise", *arguments]
    with (
        tempfile.TemporaryDirectory(prefix="wfctl-watched-") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages,
    ):
        address = f"{directory}/notify"
        messages.bind(address)
        messages.settimeout(PATIENCE_S)
        environ = {**os.environ, "PYTHONPATH": str(TREE), "NOTIFY_SOCKET": address}
        environ.pop("WATCHDOG_USEC", None)
        log = Path(directory) / "log"
        with log.open("wb") as output:
            begun = time.perf_counter()
            process = subprocess.Popen(argv, env=environ, stdout=output, stderr=output, start_new_session=True)
        try:
            yield _when_ready(process, messages, log, root, begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def _when_ready(process: Any, messages: socket.socket, log: Path, root: Path, begun: float) -> Supervisor:
    extended, longest, last = 0, 0.0, begun
    messages.settimeout(1.0)
    while True:
        try:
            said = messages.recv(65536).decode()
        except TimeoutError:
            if process.poll() is not None:
                raise SystemExit(f"the supervisor ended: {log.read_text()[-500:]}") from None
            continue
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        if "READY=1" in said:
            return Supervisor(process.pid, root, now - begun, processor_s(process.pid), extended, longest)
        extended += "EXTEND_TIMEOUT_USEC" in said


def processor_s(pid: int) -> float:
    """Return the processor time of a process, all its threads included, ended ones too, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)  # how Linux names the clock of a process: see clock_getcpuclockid(3)


def resident_mib(pid: int) -> float:
    """Return the memory that a process has resident."""
    return _status(pid, "VmRSS") / 1024


def switches(pid: int) -> int:
    """Return how often the threads of a process have gone to sleep by themselves: one wake-up each."""
    return sum(_status(int(task.name), "voluntary_ctxt_switches") for task in Path(f"/proc/{pid}/task").iterdir())


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def processes(*words: str) -> list[int]:
    """Return the pids of the processes whose command lines have all these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
                if all(word in line for word in words):
                    found.append(int(entry.name))
    return found


def settle(*pids: int, patience_s: float = 120.0) -> None:
    """Wait until processes have used less than a hundredth of a processor for three seconds."""
    deadline = time.monotonic() + patience_s
    before = sum(map(processor_s, pids))
    while time.monotonic() < deadline:
        time.sleep(3)
        now = sum(map(processor_s, pids))
        if now - before < 0.03:
            return
        before = now
