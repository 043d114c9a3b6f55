"""A terminal of a chosen size around a command, for tests of what people see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Seen:
    """What a command did at a terminal: everything it wrote, with `\\r\\n` as `\\n`, and its exit status."""

    status: int
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()


@dataclass
class Terminal:
    """A command at a pseudo terminal. `stderr` may go elsewhere, as with `2>file`."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    columns: int = 80
    rows: int = 24
    own_stderr: bool = True
    _output: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            list(self.argv),
            stdin=slave,
            stdout=slave,
            stderr=slave if self.own_stderr else subprocess.PIPE,
            env=dict(self.environ),
            preexec_fn=take_terminal,
        )
        os.close(slave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        os.close(self._master)

    @property
    def text(self) -> str:
        """Everything seen so far."""
        return self._output.decode("utf-8", "backslashreplace").replace("\r\n", "\n")

    def modes(self) -> list[Any]:
        """The modes of the terminal, as `termios` gives them."""
        return termios.tcgetattr(self._master)

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size; the command is told by SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type at the terminal; `\\x03` is Ctrl-C."""
        os.write(self._master, text.encode())

    def wait_for(self, words: str | Callable[[str], bool], timeout: float = 20.0) -> str:
        """Read until the words were seen; return everything seen. Raise AssertionError when they do not come."""
        is_seen = words if callable(words) else lambda text: words in text
        deadline = time.monotonic() + timeout
        while not is_seen(self.text):
            if not self._read(deadline):
                raise AssertionError(f"{words!r} did not come; seen: {self.text!r}")
        return self.text

    def end(self, timeout: float = 20.0) -> Seen:
        """Read to the end of the command; return what it did."""
        deadline = time.monotonic() + timeout
        while self._read(deadline):
            pass
        return Seen(self.process.wait(max(0.1, deadline - time.monotonic())), self.text)

    def _read(self, deadline: float) -> bool:
        """Take in a piece of output; False at its end. Raise AssertionError past the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise AssertionError(f"the command did not end in time; seen: {self.text!r}")
        ready, _, _ = select.select([self._master], [], [], left)
        if not ready:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self._output += piece
        return bool(piece)


def at_terminal(argv: Sequence[str], environ: Mapping[str, str], *, columns: int = 80, own_stderr: bool = True) -> Seen:
    """Run a command at a terminal of that width; return what was seen."""
    with Terminal(argv, environ, columns=columns, own_stderr=own_stderr) as terminal:
        return terminal.end()
