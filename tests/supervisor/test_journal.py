"""Log records as the journal takes them (systemd.journal-fields(7)): a socket of the test's own stands for it."""

from __future__ import annotations

import array
import logging
import mmap
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from wfctl.supervisor import journal
from wfctl.supervisor.journal import JournalHandler, encode, is_journal, message_id
from wfctl.supervisor.logs import log_to_stderr


class Journal:
    """What arrives at a journal's socket, taken apart as journald does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def next(self) -> dict[str, str] | None:
        """Return the next record, or None."""
        room = socket.CMSG_SPACE(struct.calcsize("i"))
        try:
            data, rights, _, _ = self.socket.recvmsg(1 << 20, room)
        except BlockingIOError:
            return None
        if rights:
            numbers = array.array("i")
            numbers.frombytes(rights[0][2])
            with os.fdopen(numbers[0], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                data = bytes(mapped)
        return parse(data)

    def close(self) -> None:
        self.socket.close()


def parse(data: bytes) -> dict[str, str]:
    """Take a record of the native protocol apart."""
    fields: dict[str, str] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
        else:
            name, size = line, struct.unpack("<Q", rest[:8])[0]
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        data = rest
    return fields


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.close()


@pytest.fixture
def stderr() -> Iterator[tuple[int, int]]:
    """A pipe that stands for stderr: where to read, where to write."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


@pytest.fixture
def handler(there: Journal, stderr: tuple[int, int]) -> Iterator[JournalHandler]:
    handler = JournalHandler(str(there.path), stderr[1])
    yield handler
    handler.close()


def record(message: str, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("wfctl.supervisor", level, __file__, 1, "%s", (message,), None)
    vars(made).update(extra)
    return made


def test_a_record_has_its_ids_as_fields(there: Journal, handler: JournalHandler) -> None:
    extra = {"action": "occurrence_skipped-overlap", "schedule": "hourly", "occurrence": "2026-11-30T12:00:00Z", "revision": 4}
    handler.emit(record("skipped", logging.WARNING, **extra, to="skipped-overlap", reason="overlap", run=None))
    assert there.next() == {
        "MESSAGE": "skipped",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "wfctl",
        "MESSAGE_ID": message_id("occurrence_skipped-overlap"),
        "WFCTL_ACTION": "occurrence_skipped-overlap",
        "WFCTL_SCHEDULE": "hourly",
        "WFCTL_OCCURRENCE": "2026-11-30T12:00:00Z",
        "WFCTL_REVISION": "4",
        "WFCTL_TO": "skipped-overlap",
        "WFCTL_REASON": "overlap",
    }


def test_a_run_has_where_it_came_from_and_a_problem_its_code(there: Journal, handler: JournalHandler) -> None:
    extra = {"from": "admitted", "to": "running", "run": "run-000001"}
    handler.emit(record("x", **extra))
    said = there.next()
    assert said is not None
    assert (said["WFCTL_FROM"], said["WFCTL_TO"], said["WFCTL_RUN"]) == ("admitted", "running", "run-000001")
    handler.emit(record("x", code="blocked"))
    said = there.next()
    assert said is not None and said["WFCTL_CODE"] == "blocked"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("ready", "c32adaaab3705b899d2dae8a37252162"),
        ("occurrence_admitted", "8eb46a8b95eb5bbe91639d317388b5b3"),
        ("occurrence_skipped-overlap", "5409071085a05323ab680af895cb59c4"),
        ("run_failed", "c3bfa5f4db2f5da282c8bd800fc00c62"),
        ("blocked", "3d7fd3b8fc665210ae1325346419cc36"),
    ],
)
def test_the_id_of_a_kind_never_changes(action: str, expected: str) -> None:
    """They are in people's filters and catalogs."""
    assert message_id(action) == expected


def test_a_value_of_several_lines_goes_by_its_length() -> None:
    assert encode([("A", "x=y"), ("B", "one\ntwo")]) == b"A=x=y\nB\n\x07\0\0\0\0\0\0\0one\ntwo\n"


def test_a_failure_keeps_its_trace_and_8_6_nothing_acts_on_a_terminal(there: Journal, handler: JournalHandler) -> None:
    made = record("it \x1b[2J failed\nMESSAGE_ID=forged", logging.ERROR)
    try:
        raise ZeroDivisionError("a \x1b bug")
    except ZeroDivisionError:
        made.exc_info = sys.exc_info()
    handler.emit(made)
    said = there.next()
    assert said is not None
    first, *trace = said["MESSAGE"].split("\n")
    assert first == "it \\x1b[2J failed\\nMESSAGE_ID=forged"
    assert trace[0].startswith("Traceback") and trace[-1] == "ZeroDivisionError: a \\x1b bug"
    assert "MESSAGE_ID" not in said and "\x1b" not in said["MESSAGE"]


def test_a_record_too_large_for_a_datagram_goes_in_a_file(there: Journal, handler: JournalHandler) -> None:
    handler.emit(record("x" * 5_000_000, schedule="s"))
    said = there.next()
    assert said is not None
    assert (len(said["MESSAGE"]), said["WFCTL_SCHEDULE"]) == (5_000_000, "s")


def test_where_no_file_can_be_made_it_is_cut(there: Journal, handler: JournalHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(journal.os, "memfd_create", refuse)
    handler.emit(record("x" * 5_000_000, schedule="s"))
    said = there.next()
    assert said is not None
    assert said["MESSAGE"].endswith("x ... (cut)") and said["WFCTL_SCHEDULE"] == "s"


def test_without_a_journal_lines_go_to_stderr(there: Journal, handler: JournalHandler, stderr: tuple[int, int]) -> None:
    there.path.unlink()
    handler.emit(record("said", logging.WARNING, schedule="s"))
    assert os.read(stderr[0], 100) == b"<4>said\n"
    assert handler.dropped == 0


def test_what_a_busy_journal_does_not_take_at_once_is_worked_off_in_order(there: Journal, handler: JournalHandler) -> None:
    begun = time.monotonic()
    for number in range(2_000):  # far more than a socket holds
        handler.emit(record(str(number)))
    assert time.monotonic() - begun < 5, "nobody waited for a reader"
    heard = [wait_for(there.next, "the next record")["MESSAGE"] for _ in range(2_000)]
    assert heard == [str(number) for number in range(2_000)]
    wait_for(lambda: handler._worker is None, "the worker having ended")
    assert there.next() is None and handler.dropped == 0


def test_past_a_bound_it_is_dropped_and_said(there: Journal, handler: JournalHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_WAITING", 3)
    while handler.dropped < 2:
        handler.emit(record("filling"))
    lost = next(said for said in iter(lambda: wait_for(there.next, "a record"), None) if said["MESSAGE"] != "filling")
    assert lost["MESSAGE"] == "2 log records were dropped, for the journal did not take them"
    assert (lost["PRIORITY"], lost["WFCTL_ACTION"]) == ("4", "log_dropped")
    wait_for(lambda: handler._worker is None, "the worker having ended")
    handler.emit(record("heard"))
    said = there.next()
    assert said is not None and said["MESSAGE"] == "heard"


def test_the_end_does_not_wait_for_a_journal_that_does_not_read(there: Journal, handler: JournalHandler) -> None:
    while handler._worker is None:
        handler.emit(record("filling"))
    begun = time.monotonic()
    handler.close()
    assert time.monotonic() - begun < 5


def test_a_stderr_that_nobody_reads_holds_nobody_up(there: Journal, handler: JournalHandler, stderr: tuple[int, int]) -> None:
    there.path.unlink()
    os.set_blocking(stderr[1], False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(stderr[1], b"x" * 4096)
    os.set_blocking(stderr[1], True)
    handler.emit(record("lost"))
    handler.emit(record("lost too"))
    assert handler.dropped == 2
    os.read(stderr[0], 1 << 20)
    handler.emit(record("heard"))
    said = os.read(stderr[0], 1000)
    assert said == b"<4>2 log records were dropped, for the journal did not take them\n<6>heard\n"
    assert handler.dropped == 0


def test_where_no_thread_can_be_started_nothing_waits_for_ever(
    there: Journal, handler: JournalHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of processes (7.7): what a busy journal does not take is dropped, and later records go as ever."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(journal.threading.Thread, "start", refuse)
    while not handler.dropped:
        handler.emit(record("filling"))
    while there.next():
        pass
    handler.emit(record("heard"))
    lost, heard = there.next(), there.next()
    assert lost is not None and heard is not None
    assert (lost["WFCTL_ACTION"], heard["MESSAGE"]) == ("log_dropped", "heard")


def test_a_journal_that_comes_back_is_used_again(there: Journal, handler: JournalHandler, stderr: tuple[int, int]) -> None:
    there.path.unlink()
    handler.emit(record("aside"))
    again = Journal(there.path)
    try:
        handler.emit(record("back"))
        said = again.next()
        assert said is not None and said["MESSAGE"] == "back"
    finally:
        again.close()


def test_stderr_is_the_journal_where_systemd_says_so(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        status = os.fstat(file.fileno())
        its = f"{status.st_dev}:{status.st_ino}"
        assert is_journal({"JOURNAL_STREAM": its}, file.fileno())
        assert not is_journal({"JOURNAL_STREAM": its + "0"}, file.fileno())
        assert not is_journal({}, file.fileno())
    assert not is_journal({"JOURNAL_STREAM": its}, 1_000_000)


@pytest.mark.parametrize(
    ("log_format", "is_there", "expected"),
    [
        pytest.param(None, True, "JournalHandler", id="by itself in a service"),
        pytest.param("journal", True, "JournalHandler", id="asked for in a service"),
        pytest.param("journal", False, "LineHandler", id="asked for at a terminal: lines with their priority"),
        pytest.param("json", True, "LineHandler", id="JSON in a service stays JSON"),
        pytest.param(None, False, "LineHandler", id="by itself at a terminal"),
    ],
)
def test_11_5_which_log_is_written(log_format: str | None, is_there: bool, expected: str) -> None:
    logger = logging.getLogger("wfctl")
    before = (logger.handlers[:], logger.level, logger.propagate, logging.raiseExceptions)
    status = os.fstat(2)
    try:
        log_to_stderr(log_format, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"} if is_there else {})
        (handler,) = logger.handlers
        assert type(handler).__name__ == expected
        handler.close()
    finally:
        logger.handlers[:], logger.level, logger.propagate, logging.raiseExceptions = before
