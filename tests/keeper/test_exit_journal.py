"""The journal of exit records: what was told of survives a power cut, whatever of their own files does (contract 6.9, 7.1)."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wfctl.keeper import journal
from wfctl.keeper.journal import JOURNAL_NAME, Journal, JournalFull, find, read_end
from wfctl.keeper.protocol import Ended
from wfctl.keeper.records import (
    RECORD_SIZE,
    DamagedRecord,
    encode_record,
    read_record,
    record_path,
    reserve,
    write_record_unsynced,
)

AT = datetime(2026, 3, 1, 9, 0, 0, 123456, UTC)


def _end(run: str, k: int = 1, status: int = 0) -> Ended:
    return Ended(
        run=run,
        k=k,
        pid=42,
        started_at=AT,
        ended_at=AT + timedelta(seconds=1),
        exit_status=status,
        signal=None,
        cpu_us=1,
        max_rss_bytes=2,
        left_behind=0,
    )


def _directory(root: Path, run: str, k: int = 1) -> Path:
    directory = root / "runs" / run / str(k)
    directory.mkdir(parents=True)
    reserve(directory)
    return directory


def _append(to: Journal, root: Path, *ends: Ended) -> int | None:
    records = []
    for end in ends:
        place = to.place_of(f"{root}/runs/{end.run}/{end.k}")
        assert place is not None
        records.append((place, encode_record(end)))
    return to.append(records)


def test_what_was_appended_is_found_though_its_own_file_is_not_written(tmp_path: Path) -> None:
    directory = _directory(tmp_path, "run-000001")
    _append(Journal(tmp_path), tmp_path, _end("run-000001", status=7))
    assert read_record(record_path(directory)) is None, "the power cut took it"
    assert read_end(tmp_path, directory, "run-000001", 1) == _end("run-000001", status=7)
    assert read_end(tmp_path, directory, "run-000001", 2) is None
    assert find(tmp_path, "run-000002", 1) is None


def test_the_next_keeper_carries_over_what_its_files_lack(tmp_path: Path) -> None:
    directory = _directory(tmp_path, "run-000001")
    _append(Journal(tmp_path), tmp_path, _end("run-000001", status=7))
    Journal(tmp_path)
    record = read_record(record_path(directory))
    assert record is not None and record.outcome == _end("run-000001", status=7)
    assert find(tmp_path, "run-000001", 1) is None, "it is not kept twice"


def test_a_torn_record_is_written_anew_and_a_good_one_left_alone(tmp_path: Path) -> None:
    torn, good = _directory(tmp_path, "run-000001"), _directory(tmp_path, "run-000002")
    record_path(torn).write_bytes(encode_record(_end("run-000001"))[:100].ljust(RECORD_SIZE, b"\0"))
    write_record_unsynced(str(good), encode_record(_end("run-000002", status=1)))
    _append(Journal(tmp_path), tmp_path, _end("run-000001"), _end("run-000002", status=2))
    assert read_end(tmp_path, torn, "run-000001", 1) == _end("run-000001")
    Journal(tmp_path)
    assert read_end(tmp_path, torn, "run-000001", 1) == _end("run-000001")
    assert read_end(tmp_path, good, "run-000002", 1) == _end("run-000002", status=1), "the first one written is the truth"


def test_a_torn_record_of_which_no_journal_knows_is_damage(tmp_path: Path) -> None:
    directory = _directory(tmp_path, "run-000001")
    record_path(directory).write_bytes(b"x" * RECORD_SIZE)
    with pytest.raises(DamagedRecord):
        read_end(tmp_path, directory, "run-000001", 1)


def test_the_end_of_a_run_whose_directory_was_lost_is_kept_here(tmp_path: Path) -> None:
    _append(Journal(tmp_path), tmp_path, _end("run-000001", status=3))
    Journal(tmp_path)
    assert not (tmp_path / "runs").exists(), "no directory is made up"
    assert read_end(tmp_path, tmp_path / "runs/run-000001/1", "run-000001", 1) == _end("run-000001", status=3)


def test_a_torn_slot_was_never_told_of_and_is_passed_over(tmp_path: Path) -> None:
    to = Journal(tmp_path)
    for number in (1, 2, 3):
        _directory(tmp_path, f"run-{number:06d}")
        _append(to, tmp_path, _end(f"run-{number:06d}"))
    content = bytearray((tmp_path / JOURNAL_NAME).read_bytes())
    content[journal._SLOT.size + 5] ^= 0xFF
    (tmp_path / JOURNAL_NAME).write_bytes(content)
    assert [find(tmp_path, f"run-{number:06d}", 1) is not None for number in (1, 2, 3)] == [True, False, True]


def test_a_half_is_used_again_only_once_it_is_carried_over(tmp_path: Path) -> None:
    to = Journal(tmp_path, slots=4)
    assert [_append(to, tmp_path, _end(f"run-{number:06d}")) for number in range(1, 3)] == [None, 0]
    assert [_append(to, tmp_path, _end(f"run-{number:06d}")) for number in range(3, 7)] == [None] * 4, (
        "the other half is not free"
    )
    with pytest.raises(JournalFull):
        _append(to, tmp_path, _end("run-000007"))
    assert all(find(tmp_path, f"run-{number:06d}", 1) for number in range(1, 7))
    to.carry_over(0)
    assert find(tmp_path, "run-000001", 1) is None
    assert find(tmp_path, "run-000003", 1) is not None


def test_a_batch_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = Journal(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    _append(to, tmp_path, *(_end(f"run-{number:06d}") for number in range(1, 101)))
    assert len(synced) == 1


@pytest.mark.parametrize("directory", ["/elsewhere/runs/run-000001/1", "{root}", "{root}/" + "a" * 200])
def test_what_cannot_be_named_goes_to_its_own_file(tmp_path: Path, directory: str) -> None:
    assert Journal(tmp_path).place_of(directory.format(root=tmp_path)) is None


def test_a_journal_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / JOURNAL_NAME)
    with pytest.raises(OSError, match="no regular file"):
        Journal(tmp_path)
    assert find(tmp_path, "run-000001", 1) is None
