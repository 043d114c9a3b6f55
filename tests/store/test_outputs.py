"""Bounding what a run prints: the middle of a log goes, head and tail stay, the writer is not disturbed (contract 6.15)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from wfctl.operations import outputs
from wfctl.operations.outputs import OutputBounds
from wfctl.store.layout import Layout
from wfctl.store.logs import lost_bytes, read_log, tail_start
from wfctl.store.outputs import log_size, middle_of, release_middle

KIB = 1024
MOST = 64 * KIB


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize(
    ("size", "most", "gone"),
    [
        pytest.param(0, MOST, (0, 0), id="an empty log stays"),
        pytest.param(MOST, MOST, (0, 0), id="just as much as may stay"),
        pytest.param(MOST + 1, MOST, (32 * KIB, 36 * KIB), id="a byte too many costs a block"),
        pytest.param(MOST + 4096, MOST, (32 * KIB, 36 * KIB), id="a block too many"),
        pytest.param(10 * MOST + 5, MOST, (32 * KIB, 9 * MOST + 36 * KIB), id="much too much"),
        pytest.param(17 * KIB, 16 * KIB, (8 * KIB, 12 * KIB), id="the least that may be kept"),
    ],
)
def test_6_15_what_is_released_is_whole_blocks_of_the_middle(size: int, most: int, gone: tuple[int, int]) -> None:
    assert middle_of(size, most) == gone
    if gone != (0, 0):
        assert size - (gone[1] - gone[0]) <= most


@pytest.mark.parametrize("block", [512, 4096, 1 << 20])
def test_6_15_what_is_kept_never_is_more_whatever_the_block(block: int) -> None:
    for size in range(MOST + 1, 40 * MOST, 7919):
        first, last = middle_of(size, MOST, block)
        assert MOST // 2 - 16 * KIB < first <= MOST // 2
        assert size - (last - first) <= MOST
        assert first < last <= size


def test_6_15_head_and_tail_stay_and_a_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    written = b""
    done_to = 0
    for number in range(40):
        block = b"%05d\n" % number * 2000
        os.write(descriptor, block)
        written += block
        done_to = release_middle(path, MOST, done_to=done_to)
        os.fsync(descriptor)
        assert on_disk(path) <= MOST + 8 * KIB
    os.close(descriptor)
    assert path.stat().st_size == len(written) == log_size(path)
    lost = lost_bytes(path)
    assert len(written) - MOST <= lost < len(written) - MOST + 4096
    head, gap, *tail = list(read_log(path))
    assert head.data == written[: head.size]
    assert gap.data is None
    assert gap.size == lost
    kept = b"".join(chunk.data or b"" for chunk in tail)
    assert kept
    assert written.endswith(kept)
    assert len(written) == head.size + gap.size + len(kept)
    assert tail_start(path, 3) == len(written) - 18


def test_6_15_a_gap_that_opens_while_it_is_read_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"x" * (40 * MOST))
    chunks = read_log(path)
    read = [next(chunks)]
    release_middle(path, MOST)
    read += chunks
    assert set(b"".join(chunk.data or b"" for chunk in read)) == {ord("x")}
    assert sum(chunk.size for chunk in read) == 40 * MOST
    assert any(chunk.data is None for chunk in read)


def test_2_9_a_link_or_fifo_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x" * (2 * MOST))
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        assert log_size(tmp_path / name) == 0
        with pytest.raises(OSError):
            release_middle(tmp_path / name, MOST)
    assert (tmp_path / "precious").read_bytes() == b"x" * (2 * MOST)


# Looking at live runs -----------------------------------------------------------------------------------------------------


def bounds(root: Path, every_s: float = 1.0) -> OutputBounds:
    return OutputBounds(Layout(root), most=lambda: MOST, every_s=lambda: every_s, worker=None)


def log_of(root: Path, number: int, size: int) -> Path:
    path = Layout(root).run(f"run-{number:06d}").stdout
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"x" * (size - file.tell()))
    return path


def test_live_runs_are_looked_at_every_so_often_and_none_when_nothing_lives(tmp_path: Path) -> None:
    watch = bounds(tmp_path)
    assert watch.next_look([]) is None
    path = log_of(tmp_path, 1, 2 * MOST)
    watch.look([1], 100.0)
    assert lost_bytes(path) > 0
    log_of(tmp_path, 1, 3 * MOST)
    lost = lost_bytes(path)
    watch.look([1], 100.01)
    assert lost_bytes(path) == lost, "too early"
    assert watch.next_look([1]) is not None
    watch.look([1], 102.0)
    assert lost_bytes(path) > lost


def test_what_prints_fast_is_looked_at_sooner(tmp_path: Path) -> None:
    watch, at, pauses = bounds(tmp_path), 100.0, []
    for times in range(2, 10):
        log_of(tmp_path, 1, times * MOST)
        watch.look([1], at)
        following = watch.next_look([1])
        assert following is not None
        pauses.append(following - at)
        at = following
    assert pauses[-1] == pytest.approx(0.05)
    for _ in range(8):
        watch.look([1], at)
        at = watch.next_look([1]) or at
    assert (watch.next_look([1]) or 0.0) - at <= 1.0


def test_an_ended_run_is_looked_at_once_more(tmp_path: Path) -> None:
    watch = bounds(tmp_path)
    watch.look([1], 100.0)
    path = log_of(tmp_path, 1, 5 * MOST)
    watch.at_end(1)
    assert watch.next_look([]) == 0.0
    watch.look([], 100.1)
    assert path.stat().st_size - lost_bytes(path) <= MOST
    assert watch.next_look([]) is None


def test_of_many_live_runs_some_are_looked_at_at_a_time_and_all_in_turn(tmp_path: Path) -> None:
    watch = bounds(tmp_path, every_s=0.0)
    live = list(range(1, 601))
    path = log_of(tmp_path, 599, 2 * MOST)
    for at in range(3):
        assert lost_bytes(path) == 0
        watch.look(live, 100.0 + at)
    assert lost_bytes(path) > 0


def test_6_15_a_file_system_that_cannot_is_only_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(outputs, "release_middle", refuse)
    watch = bounds(tmp_path)
    for times in (2, 3, 4):
        log_of(tmp_path, 1, times * MOST)
        watch.look([1], 100.0 * times)
    assert watch.unbounded == {"run-000001"}
    assert [vars(record)["action"] for record in caplog.records] == ["output_unbounded"], "once a run"
    watch.look([], 1000.0)
    assert watch.unbounded == set()
