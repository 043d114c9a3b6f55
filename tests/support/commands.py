"""Real commands on one store, in pipes and at terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import forks
from tests.support.terminal import Seen, Terminal, at_terminal
from tests.support.waiting import wait_for

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """What a command in a pipe did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer, read as JSON."""
        return json.loads(self.out)


class Wfctl:
    """Runs `wfctl` on one store."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(PROJECT),
            "WFCTL_STORE": str(root),
        }

    def argv(self, *words: str) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "wfctl", *words]

    def bytes(self, *words: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command in pipes."""
        given = {**self.environ, **environ}
        if type(self).argv is Wfctl.argv:
            return forks.run(words, given, stdin, 60)
        return subprocess.run(self.argv(*words), input=stdin, capture_output=True, env=given, timeout=60, check=False)

    def __call__(self, *words: str, stdin: str = "", **environ: str) -> Done:
        done = self.bytes(*words, stdin=stdin.encode(), **environ)
        return Done(done.returncode, _text(done.stdout), _text(done.stderr))

    def ok(self, *words: str, stdin: str = "", **environ: str) -> Done:
        """Run a command in pipes that must succeed."""
        done = self(*words, stdin=stdin, **environ)
        assert done.status == 0, done
        return done

    def at_terminal(self, *words: str, columns: int = 80, own_stderr: bool = True, **environ: str) -> Seen:
        """Run a command at a terminal of that width."""
        return at_terminal(self.argv(*words), {**self.environ, **environ}, columns=columns, own_stderr=own_stderr)

    def terminal(self, *words: str, columns: int = 80, **environ: str) -> Terminal:
        """Return a terminal with a command at it, to type at."""
        return Terminal(self.argv(*words), {**self.environ, **environ}, columns=columns)

    @contextmanager
    def supervisor(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the supervisor; it is ready when the body begins, and drained at the end."""
        process = subprocess.Popen(
            self.argv("supervise", "--drain-grace-s", "2", *options),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: self("status").status in (0, 1), "the supervisor answers")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(20)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
