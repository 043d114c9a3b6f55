"""The exit record: round trips, and every way in which it can be wrong (contract 6.9, 7.3)."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wfctl.keeper.marks import Marks
from wfctl.keeper.protocol import Ended, Refused, RefusedAt
from wfctl.keeper.records import RECORD_SIZE, DamagedRecord, encode_record, read_record, record_path, reserve, write_record

AT = datetime(2026, 3, 1, 9, 0, 0, 123456, UTC)
EXITED = Ended(
    run="run-000012",
    k=3,
    pid=4242,
    started_at=AT,
    ended_at=AT + timedelta(seconds=5),
    exit_status=75,
    signal=None,
    cpu_us=1_500_000,
    max_rss_bytes=5 << 30,
    left_behind=2,
)
KILLED = Ended(
    run="run-1234567",
    k=100_000,
    pid=1,
    started_at=AT,
    ended_at=AT,
    exit_status=None,
    signal=9,
    cpu_us=0,
    max_rss_bytes=0,
    left_behind=0,
)
REFUSED = [Refused(run="run-000012", k=1, errno=13, what=what, at=AT) for what in RefusedAt]


@pytest.fixture
def place(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


@pytest.mark.parametrize("outcome", [EXITED, KILLED, *REFUSED], ids=lambda outcome: type(outcome).__name__)
def test_a_record_reads_back(tmp_path: Path, outcome: Ended | Refused) -> None:
    path = record_path(tmp_path)
    path.write_bytes(encode_record(outcome))
    record = read_record(path)
    assert record is not None
    assert (record.run, record.k, record.outcome) == (outcome.run, outcome.k, outcome)
    assert path.stat().st_size == RECORD_SIZE


def test_a_reserved_record_has_its_space_and_says_nothing(tmp_path: Path) -> None:
    reserve(tmp_path)
    status = record_path(tmp_path).stat()
    assert (status.st_size, status.st_mode & 0o777) == (RECORD_SIZE, 0o600)
    assert status.st_blocks > 0
    assert read_record(record_path(tmp_path)) is None


def test_a_record_is_reserved_once(tmp_path: Path) -> None:  # contract 6.2: launched at most once
    reserve(tmp_path)
    with pytest.raises(FileExistsError):
        reserve(tmp_path)


def test_only_a_reserved_regular_file_is_written(tmp_path: Path, place: int) -> None:  # contract 2.9
    with pytest.raises(FileNotFoundError):
        write_record(place, EXITED)
    os.mkfifo(record_path(tmp_path))
    with pytest.raises(OSError):
        write_record(place, EXITED)
    record_path(tmp_path).unlink()
    reserve(tmp_path)
    write_record(place, EXITED)
    record = read_record(record_path(tmp_path))
    assert record is not None
    assert record.outcome == EXITED


def test_no_record_is_none(tmp_path: Path) -> None:
    assert read_record(record_path(tmp_path)) is None


@pytest.mark.parametrize("size", [1, 100, RECORD_SIZE - 1])
def test_a_torn_record_is_damaged(tmp_path: Path, size: int) -> None:
    path = record_path(tmp_path)
    path.write_bytes(encode_record(EXITED)[:size])
    with pytest.raises(DamagedRecord):
        read_record(path)
    path.write_bytes(encode_record(EXITED)[:size].ljust(RECORD_SIZE, b"\0"))
    with pytest.raises(DamagedRecord):
        read_record(path)


@pytest.mark.parametrize("place", range(0, RECORD_SIZE, 17))
def test_a_changed_byte_is_damage(tmp_path: Path, place: int) -> None:
    content = bytearray(encode_record(EXITED))
    content[place] ^= 0x40
    path = record_path(tmp_path)
    path.write_bytes(content)
    with pytest.raises(DamagedRecord):
        read_record(path)


def test_a_longer_one_is_damage(tmp_path: Path) -> None:
    path = record_path(tmp_path)
    path.write_bytes(encode_record(EXITED) + b"x")
    with pytest.raises(DamagedRecord):
        read_record(path)


def test_a_link_or_fifo_is_no_record_and_never_hangs(tmp_path: Path) -> None:  # contract 2.9
    (tmp_path / "real").write_bytes(encode_record(EXITED))
    record_path(tmp_path).symlink_to(tmp_path / "real")
    with pytest.raises(DamagedRecord):
        read_record(record_path(tmp_path))
    record_path(tmp_path).unlink()
    os.mkfifo(record_path(tmp_path))
    with pytest.raises(DamagedRecord):
        read_record(record_path(tmp_path))


def test_marks_hold_what_was_added_and_nothing_else() -> None:
    marks = Marks()
    added = [("run-000001", 1), ("run-000001", 3), ("run-001023", 1), ("run-001024", 1), ("run-12345678", 2), ("odd", 1)]
    added += [("notice-000001", 2)]
    for run, k in added:
        marks.add(run, k)
    assert all(execution in marks for execution in added)
    others = [("run-000001", 2), ("run-000002", 1), ("run-1", 1), ("run-001025", 1), ("run-12345678", 1), ("odd", 2), ("x", 1)]
    others += [("notice-000001", 1), ("notice-000002", 2), ("run-000001", 2)]
    assert not any(execution in marks for execution in others)
