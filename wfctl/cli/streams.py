"""stdout is the answer, stderr the talk (contract 8.5). The only writer of both.

A reader that closed the pipe ends the command quietly; an encoding that lacks a letter gets it as a backslash escape.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

CLOSED_PIPE = 141  #: as a shell reports the end of a command by SIGPIPE
INTERRUPTED = 130


class ClosedPipe(BaseException):
    """The reader of stdout is gone. No handler of ordinary failures may take it."""


def prepare() -> None:
    """Make both streams take any text; give a stream that was closed at the start somewhere to go."""
    _occupy_closed()
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # started with the descriptor closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # whatever is typed is at most a wrong answer


def _occupy_closed() -> None:
    """Open /dev/null where one of the first three descriptors is closed, lest a file of the store become stderr."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            if opened == descriptor:
                os.set_inheritable(opened, True)
            else:
                os.dup2(opened, descriptor)
                os.close(opened)


def finish(status: int) -> int:
    """Flush both streams and return the status, or the one that says that the answer could not be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = CLOSED_PIPE
        _silence(sys.stdout)
    except OSError as error:
        talk(f"wfctl: cannot write the answer: {error.strerror or error}")
        status = 74
        _silence(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    return status


def is_completion() -> bool:
    """Whether a shell asks for completions."""
    return bool(os.environ.get("_WFCTL_COMPLETE"))


def is_utf8(stream: Any) -> bool:
    """Whether a stream takes every letter."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"


def answer(text: str) -> None:
    """Write a part of the answer to stdout, with a newline."""
    raw(text + "\n")


def raw(text: str) -> None:
    """Write text to stdout as it is. Raise ClosedPipe when its reader is gone, IoError when it cannot be written."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise ClosedPipe from None
    except OSError as error:
        raise _unwritable(error) from error


def flush() -> None:
    """Hand over what was written so far. Raise as `raw` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ClosedPipe from None
    except OSError as error:
        raise _unwritable(error) from error


def check_reader() -> None:
    """Raise ClosedPipe when nobody reads stdout any more, which a write would only find out once there is something to say."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        is_gone = any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))
    except (OSError, ValueError):
        return  # a stream in memory
    if is_gone:
        raise ClosedPipe


def raw_bytes(data: bytes, *, to_stderr: bool = False) -> None:
    """Write bytes as they are, at once. Raise as `raw` does; a stderr that cannot be written is let be."""
    stream = sys.stderr if to_stderr else sys.stdout
    try:
        stream.flush()
        target = getattr(stream, "buffer", None)
        if target is None:  # a stream in memory, which takes text alone
            stream.write(data.decode("utf-8", "backslashreplace"))
        else:
            target.write(data)
            target.flush()
    except OSError as error:
        if to_stderr:
            return
        if isinstance(error, BrokenPipeError):
            raise ClosedPipe from None
        raise _unwritable(error) from error


def talk(text: str) -> None:
    """Write a line to stderr, after what stands on stdout. Whoever closed stderr does not want to hear it."""
    try:
        sys.stdout.flush()
    except OSError:
        pass  # `finish` says so
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass


def _unwritable(error: OSError) -> Exception:
    from wfctl.errors import IoError

    _silence(sys.stdout)
    return IoError(f"cannot write the answer: {error.strerror or error}", {"errno": error.errno})


def _silence(stream: Any) -> None:
    """Point a broken stream at /dev/null, so that the interpreter's last flush has nothing to complain about."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass
