"""The whole terminal for a while: the alternate screen, single keys, the size as it changes; then all of it as it was.

Only what differs from the lines on the screen is written. Every way out puts the terminal back: the end of the block, an
exception, SIGINT, SIGTERM, SIGHUP; so does SIGTSTP for as long as the process is stopped.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from wfctl.cli import streams
from wfctl.errors import WfctlError

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"  #: the alternate screen, no cursor, empty
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
RESIZED, GONE = "resized", "gone"  #: what `wait` may return beside keys


class Ended(BaseException):
    """A signal asks the process to end. No handler of ordinary failures may take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end_by(signal_number: int) -> None:
    """End this process as the signal would have ended it."""
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)


class Screen:
    """The terminal on stdout, with the keys of the terminal on stdin, where there is one. A context manager."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None  #: what is on the screen; None: nothing is known of it
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._out = sys.stdout.fileno()
        self._modes: list[Any] | None = None  #: of the terminal, as they were
        self._handlers: dict[int, Any] = {}
        self._is_shown = False
        self._asked: set[int] = set()  #: signals that are still to be answered

    def __enter__(self) -> Screen:
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._old_wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP):
                self._handle(number, self._note)
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._handle(number, self._end)
            self._show()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    # -- what is on it ---------------------------------------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int]:
        """How many cells wide and lines high it is."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines: write only those that are not there yet, nothing where all are, nor in the background."""
        if not self._is_front():
            self._lines = None
            return
        if not self._is_shown:
            self._show()
        before = self._lines
        parts = ["\x1b[2J"] if before is None else []
        for number in range(max(len(lines), len(before or ()))):
            line = lines[number] if number < len(lines) else ""
            if before is None or number >= len(before) or before[number] != line:
                parts.append(f"\x1b[{number + 1};1H\x1b[2K{line}")
        self._lines = list(lines)
        if parts:
            streams.raw("".join(parts))
            streams.flush()

    # -- what happens at it ----------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> str | None:
        """Return the keys that were pressed, RESIZED, or GONE where the terminal is; None where nothing happens in time."""
        watched = [self._wake_read, *([self._keys] if self._keys is not None and self._is_front() else [])]
        if not self._asked:
            ready, _, _ = select.select(watched, [], [], seconds)
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 512)
            elif ready:
                return self._read_keys()
        return self._answer()

    def _read_keys(self) -> str | None:
        assert self._keys is not None
        try:
            typed = os.read(self._keys, 256)
        except OSError:
            return GONE
        if not typed:
            return GONE
        return None if typed.startswith(b"\x1b") else typed.decode("utf-8", "replace")

    def _answer(self) -> str | None:
        """Answer the signals that came."""
        asked, self._asked = self._asked, set()
        if signal.SIGTSTP in asked:
            self._suspend()
        elif signal.SIGCONT in asked:  # after a stop that nobody was told of; the shell has the terminal as it wants it
            self._hide()
            self._show()
        self._lines = None if asked else self._lines
        return RESIZED if asked else None

    def _suspend(self) -> None:
        """Stop as SIGTSTP would have stopped it, the terminal as it was meanwhile."""
        self._hide()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note)
        self._asked.discard(signal.SIGCONT)  # which has just been answered
        self._show()

    # -- taking the terminal and giving it back --------------------------------------------------------------------------

    def _show(self) -> None:
        if not self._is_front():
            return
        if self._keys is not None and self._modes is not None:
            modes = [*self._modes[:6], list(self._modes[6])]
            modes[3] &= ~(termios.ICANON | termios.ECHO)
            modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._keys, termios.TCSADRAIN, modes)
        self._is_shown = True
        streams.raw(_ENTER)
        streams.flush()
        self._lines = None

    def _hide(self) -> None:
        """Give the terminal back as it was; without effect in the background, where it is somebody else's by now."""
        if not self._is_shown or not self._is_front():
            return
        self._is_shown = False
        with contextlib.suppress(OSError, WfctlError, streams.ClosedPipe):
            streams.raw(_LEAVE)
            streams.flush()
        if self._keys is not None and self._modes is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def _is_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._out) == os.getpgrp()
        except OSError:
            return True  # no terminal of ours, such as that of another session: nobody else is in front of it

    def _close(self) -> None:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C waits until all is back
        try:
            self._hide()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._old_wake)
            os.close(self._wake_read)
            os.close(self._wake_write)
        finally:
            signal.signal(signal.SIGINT, previous)

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        self._handlers[number] = signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked.add(number)

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise Ended(number)
