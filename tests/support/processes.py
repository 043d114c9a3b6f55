"""Starting the real command and waiting for things, never for a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import forks

WFCTL = [sys.executable, "-m", "wfctl"]


def wait_for(condition: Callable[[], Any], *, timeout_s: float = 20.0, what: str = "the condition") -> Any:
    """Return the first true value of `condition`; fail when it does not come in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come within {timeout_s} s"
        time.sleep(0.01)


def clean_environment(**extra: str) -> dict[str, str]:
    """Return an environment in which no wfctl variable of the machine is set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WFCTL_")}
    return kept | {"PYTHONPATH": str(Path(__file__).parents[2])} | extra


def wfctl(store: Path, *arguments: str, check: bool = True, **extra: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of wfctl on a store to its end."""
    words = ["--store", str(store), *arguments]
    if extra:
        argv = [*WFCTL, *words]
        done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), timeout=60, check=False, **extra)
    else:
        ended = forks.run(words, clean_environment(), b"", 60)
        done = subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())
    assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Supervisor:
    """A real `wfctl supervise` in the background, its log in a file."""

    def __init__(self, store: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.log = store.parent / f"{store.name}.log"
        with self.log.open("ab") as log:
            self._begin = log.tell()
            self.process = subprocess.Popen(
                [*WFCTL, "--store", str(store), "supervise", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment or clean_environment(),
                cwd="/",
            )

    def text(self) -> str:
        """Return what this supervisor has said."""
        return self.log.read_bytes()[self._begin :].decode("utf-8", "replace")

    def wait_ready(self) -> Supervisor:
        """Return once it says that it is ready; fail when it ended instead."""
        wait_for(lambda: "ready:" in self.text() or self.process.poll() is not None, what="ready")
        assert "ready:" in self.text(), self.text()
        return self

    def cpu_s(self) -> float:
        """Return the seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """SIGKILL it and reap it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60.0) -> int:
        """Send it a signal and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()
