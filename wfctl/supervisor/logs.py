"""The supervisor's log: one line an event, with a stable `action` and the ids it is about.

Of a thousand runs that start and end together there are three thousand lines, written while the last ones are to start. So
lines that belong together are written at once (`together`), and where a line shows nothing but its words, nothing but its words
is made (`tell`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from wfctl.core.instants import format_instant

#: what a record may say beside its words; in JSON as they are, in the journal as WFCTL_ACTION and so on
FIELDS = ("action", "schedule", "occurrence", "run", "revision", "deployment", "from", "to", "reason", "code")
PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
FORMATS = ("text", "json", "journal")
_TOGETHER = 100  #: lines in one write
_ROOT = logging.getLogger("wfctl")


def visible(text: str) -> str:
    """Return text with everything that a terminal could act on shown as an escape (8.6)."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text)


@functools.lru_cache(maxsize=1)
def _second(since_epoch: int) -> str:
    """Return a second as text; a thousand lines of one burst share it."""
    return format_instant(datetime.fromtimestamp(since_epoch, UTC))


class TextFormatter(logging.Formatter):
    """`2026-11-30T12:20:00Z message`, and the level where it is a warning or worse."""

    def format(self, record: logging.LogRecord) -> str:
        level = f" {record.levelname.lower()}:" if record.levelno >= logging.WARNING else ""
        return f"{_second(int(record.created))}{level} {visible(record.getMessage())}{_trace(self, record)}"


class JsonFormatter(logging.Formatter):
    """One object a line: at, level, message, action and ids."""

    def format(self, record: logging.LogRecord) -> str:
        plain = {
            "at": format_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            plain["trace"] = self.formatException(record.exc_info)
        return json.dumps(plain)


class JournalFormatter(logging.Formatter):
    """A line with the priority prefix that journald reads from a service's stderr (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        return f"<{PRIORITY.get(record.levelno, 6)}>{visible(record.getMessage())}{_trace(self, record)}"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return f" | {visible(formatter.formatException(record.exc_info))}" if record.exc_info else ""


_FORMATTERS: dict[str, type[logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "journal": JournalFormatter,
}


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes a line for each record: at once, or within `together` with others."""

    def __init__(self, stream: TextIO, log_format: str) -> None:
        super().__init__(stream)
        self.setFormatter(_FORMATTERS[log_format]())
        self.is_plain = log_format == "text"
        self._held: list[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.put(self.format(record))
        except Exception:
            self.handleError(record)

    def put(self, line: str) -> None:
        """Write a line, or hold it for as long as others that belong to it may come. Raise OSError, ValueError."""
        if self._held is None:
            self._write(line + "\n")
        else:
            self._held.append(line)
            if len(self._held) >= _TOGETHER:
                self._write_held()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Hold what is written meanwhile, a hundred lines at most, and write it at the end."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            with self.lock or contextlib.nullcontext():
                with contextlib.suppress(OSError, ValueError):  # as a record that cannot be written
                    self._write_held()
                self._held = None

    def _write_held(self) -> None:
        held, self._held = self._held or [], []
        if held:
            self._write("\n".join(held) + "\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.flush()


def _line_handler() -> LineHandler | None:
    handlers = _ROOT.handlers
    return handlers[0] if len(handlers) == 1 and isinstance(handlers[0], LineHandler) and not _ROOT.propagate else None


def together() -> contextlib.AbstractContextManager[None]:
    """Return a context in which lines are written together, where the log is lines."""
    handler = _line_handler()
    return contextlib.nullcontext() if handler is None else handler.together()


def tell(logger: logging.Logger, message: str, fields: Callable[[], dict[str, Any]]) -> None:
    """Log a message as information. `fields` gives what it says beside its words, and is not asked where that is not shown."""
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = _line_handler()
    if handler is None or not handler.is_plain or logger.handlers or logger.filters or handler.filters:
        logger.info("%s", message, extra=fields())
        return
    with handler.lock or contextlib.nullcontext(), contextlib.suppress(OSError, ValueError):
        handler.put(f"{_second(int(time.time()))} {visible(message)}")


def log_to_stderr(log_format: str | None, environ: Mapping[str, str]) -> None:
    """Send the log of this process to stderr in that format.

    Where stderr is the journal, `journal` means its own records, with fields. None means that there, and text elsewhere.
    """
    from wfctl.supervisor.journal import JournalHandler, is_journal

    handler: logging.Handler
    if log_format in (None, "journal") and is_journal(environ):
        handler = JournalHandler()
    else:
        handler = LineHandler(sys.stderr, log_format or "text")
    _ROOT.handlers[:] = [handler]
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False
    # no line says where in our code it was written, by which thread or process: that is not even looked up
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # as `logging` itself suggests for speed
    logging.raiseExceptions = False  # a full disk or a closed terminal must not end the supervisor
