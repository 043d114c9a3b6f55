"""The log as records of systemd's journal, each with the ids that it is about as fields (systemd.journal-fields(7)).

    journalctl WFCTL_SCHEDULE=hourly-report WFCTL_TO=skipped-overlap

Who logs never waits: what the journal does not take at once is worked off beside, in its order. Past a bound it is dropped and
counted. Where there is no journal a record goes to stderr, with its priority in front.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import os
import select
import socket
import struct
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from wfctl.clock import pause
from wfctl.supervisor.logs import FIELDS, PRIORITY, JournalFormatter, visible

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "wfctl"
STDERR = 2
#: A kind of event has the id `uuid5(NAMESPACE, action)`, for ever the same: `journalctl MESSAGE_ID=…` finds all of a kind.
NAMESPACE = uuid.UUID("9d2c5ad6-3f5e-4f0c-8a37-6a1c0b1d7e42")
MOST_WAITING = 10_000  #: records that wait for a busy journal; more are dropped
_AGAIN_S = 0.005
_LAST_S = 1.0
_LARGEST_WHOLE = 48 * 1024  #: bytes of a message that is kept where the journal takes no file
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_BUSY = (errno.EAGAIN, errno.ENOMEM)
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  #: F_SEAL_SEAL, SHRINK, GROW and WRITE: the journal reads only what cannot change any more
_ADD_SEALS = 1033


def is_journal(environ: Mapping[str, str], descriptor: int = STDERR) -> bool:
    """Tell whether a descriptor leads to the journal, by what systemd says of it in `$JOURNAL_STREAM`."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"


@functools.cache
def message_id(action: str) -> str:
    """Given the `action` of a log record, return the MESSAGE_ID of its kind: 32 hexadecimal digits."""
    return uuid.uuid5(NAMESPACE, action).hex


def fields_of(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """Give the fields of a record, in their order."""
    text = visible(record.getMessage())
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        text = "\n".join([text, *map(visible, trace.split("\n"))])
    yield "MESSAGE", text
    yield "PRIORITY", str(PRIORITY.get(record.levelno, 6))
    yield "SYSLOG_IDENTIFIER", IDENTIFIER
    action = getattr(record, "action", None)
    if action is not None:
        yield "MESSAGE_ID", message_id(str(action))
    for name in FIELDS:
        value = getattr(record, name, None)
        if value is not None:
            yield f"WFCTL_{name.upper()}", str(value)


def encode(fields: Sequence[tuple[str, str]]) -> bytes:
    """Given the fields of one record, return it as the journal takes it: a value of several lines goes by its length."""
    parts = []
    for name, value in fields:
        data = value.encode("utf-8", "backslashreplace")
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(data)), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)


class JournalHandler(logging.Handler):
    """Sends records to the journal. Never waits and never raises."""

    def __init__(self, address: str = SOCKET, stderr: int = STDERR) -> None:
        super().__init__()
        self.dropped = 0  #: records that nobody took since that was last said
        self._address = address
        self._stderr = stderr
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._plain = JournalFormatter()
        self._waiting: deque[logging.LogRecord] = deque()
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._is_closing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.dropped and self._worker is None:
                self._make_up()
            if self._worker is not None or not self._deliver(record):
                self._put_off(record)
        except Exception:  # what is logged must not end who logs it
            self.dropped += 1

    def close(self) -> None:
        """Give what still waits a moment, and let go."""
        worker = self._worker
        if worker is not None:
            worker.join(_LAST_S)
        self._is_closing = True
        self._socket.close()
        super().close()

    def _deliver(self, record: logging.LogRecord) -> bool:
        """Return whether a record is with somebody; False where they are only too busy."""
        try:
            if not self._send(list(fields_of(record))) and not self._write(record):
                self.dropped += 1
        except OSError as error:
            if error.errno in _BUSY:
                return False
            self.dropped += 1
        return True

    def _put_off(self, record: logging.LogRecord) -> None:
        with self._guard:
            if len(self._waiting) >= MOST_WAITING:
                self.dropped += 1
                return
            if self._worker is None:
                worker = threading.Thread(target=self._work_off, name="journal", daemon=True)
                worker.start()  # it waits for the guard
                self._worker = worker
            self._waiting.append(record)

    def _work_off(self) -> None:
        """Deliver what waits, oldest first, until nothing does; then say what had to be dropped."""
        while True:
            with self._guard:
                if not self._waiting:
                    if not self.dropped:
                        self._worker = None
                        return
                    self._waiting.append(self._missing())
                record = self._waiting[0]
            while not self._deliver(record):
                if self._is_closing:
                    return
                pause(_AGAIN_S)
            with self._guard:
                self._waiting.popleft()

    def _make_up(self) -> None:
        """Say how many records are missing, where that can be heard by now."""
        count, missing = self.dropped, self._missing()
        if not self._deliver(missing):
            self._put_off(missing)
        elif self.dropped:
            self.dropped = count

    def _missing(self) -> logging.LogRecord:
        """Return the record that says how many are missing."""
        text = f"{self.dropped} log records were dropped, for the journal did not take them"
        self.dropped = 0
        missing = logging.LogRecord("wfctl.supervisor", logging.WARNING, __file__, 0, text, None, None)
        missing.action = "log_dropped"
        return missing

    def _send(self, fields: list[tuple[str, str]]) -> bool:
        """Return whether the journal took it. Where it is only too busy, that is said by OSError."""
        data = encode(fields)
        try:
            self._socket.sendto(data, self._address)
            return True
        except OSError as error:
            if error.errno in _BUSY:
                raise
            if error.errno not in _TOO_LARGE:
                return False
        try:
            self._send_file(data)
        except OSError:
            name, text = fields[0]
            self._socket.sendto(encode([(name, text[: _LARGEST_WHOLE // 4] + " ... (cut)"), *fields[1:]]), self._address)
        return True

    def _send_file(self, data: bytes) -> None:
        """A record that is too large for one datagram goes in a sealed file that only memory holds."""
        descriptor = os.memfd_create("wfctl-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
            self._socket.sendmsg([], [rights], 0, self._address)
        finally:
            os.close(descriptor)

    def _write(self, record: logging.LogRecord) -> bool:
        """Write a line to stderr, where that takes one at once."""
        line = (self._plain.format(record) + "\n").encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            if select.select([], [self._stderr], [], 0)[1]:
                return os.write(self._stderr, line) > 0
        return False
