"""The supervisor's log: one line an event, with a stable `action` and the ids it is about."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from wfctl.core.instants import format_instant

#: what a record may say beside its words; in JSON as they are, in the journal as WFCTL_ACTION and so on
FIELDS = ("action", "schedule", "occurrence", "run", "revision", "deployment", "from", "to", "reason", "code")
PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
FORMATS = ("text", "json", "journal")


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


def log_to_stderr(log_format: str | None, environ: Mapping[str, str]) -> None:
    """Send the log of this process to stderr in that format.

    Where stderr is the journal, `journal` means its own records, with fields. None means that there, and text elsewhere.
    """
    from wfctl.supervisor.journal import JournalHandler, is_journal

    handler: logging.Handler
    if log_format in (None, "journal") and is_journal(environ):
        handler = JournalHandler()
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_FORMATTERS[log_format or "text"]())
    root = logging.getLogger("wfctl")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
    # no line says where in our code it was written, by which thread or process: that is not even looked up
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # as `logging` itself suggests for speed
    logging.raiseExceptions = False  # a full disk or a closed terminal must not end the supervisor
