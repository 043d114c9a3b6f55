"""Reading what a run printed, without loading it whole; what was released from the middle shows as a gap (contract 6.15)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wfctl.errors import IoError

_BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a log: its bytes, or None for a gap whose bytes are gone."""

    offset: int
    size: int
    data: bytes | None


def read_log(path: Path, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
    """Given a log and a stretch of it, yield its chunks, ascending; up to the size it has now when `end` is None.

    A log that is not there yet is empty. Raise IoError for one that cannot be read or is no regular file.
    """
    descriptor = _open(path)
    if descriptor is None:
        return
    try:
        yield from _chunks(descriptor, start, os.fstat(descriptor).st_size if end is None else end)
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        os.close(descriptor)


def tail_start(path: Path, lines: int) -> int:
    """Return the offset at which the last `lines` lines begin; the search ends at a gap. Raise IoError."""
    descriptor = _open(path)
    if descriptor is None:
        return 0
    try:
        return _tail_start(descriptor, os.fstat(descriptor).st_size, lines)
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        os.close(descriptor)


def lost_bytes(path: Path) -> int:
    """Return how many bytes of a log are gone. Raise IoError."""
    descriptor = _open(path)
    if descriptor is None:
        return 0
    try:
        stretches = _stretches(descriptor, 0, os.fstat(descriptor).st_size)
        return sum(end - start for start, end, is_gap in stretches if is_gap)
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, start: int, end: int) -> Iterator[Chunk]:
    """Where a gap opens under a stretch that is being read, its zeros are not taken for what the run wrote."""
    offset = start
    while offset < end:
        for first, last, is_gap in _stretches(descriptor, offset, end):
            offset = first
            if is_gap:
                yield Chunk(first, last - first, None)
                offset = last
            while offset < last and (data := os.pread(descriptor, min(_BLOCK, last - offset), offset)):
                if not _is_data(descriptor, offset, offset + len(data)):
                    break
                yield Chunk(offset, len(data), data)
                offset += len(data)
            if offset < last:
                break
        if offset < end and not os.pread(descriptor, 1, offset):
            return  # it was cut off meanwhile


def _is_data(descriptor: int, first: int, last: int) -> bool:
    return next(_stretches(descriptor, first, last)) == (first, last, False)


def _stretches(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whether it is a gap); where the file system does not tell, everything is data."""
    while start < end:
        try:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a gap up to the end
                yield start, end, True
                return
            data = start
        if data > start:
            yield start, min(data, end), True
            start = data
            continue
        try:
            hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError:
            hole = end
        yield start, min(hole, end), False
        start = hole if hole > start else end


def _tail_start(descriptor: int, size: int, lines: int) -> int:
    if lines <= 0:
        return size
    left = lines + (1 if size and os.pread(descriptor, 1, size - 1) == b"\n" else 0)
    gaps = [end for _, end, is_gap in _stretches(descriptor, 0, size) if is_gap]
    floor, offset = max(gaps, default=0), size
    while offset > floor:
        first = max(floor, offset - _BLOCK)
        block = os.pread(descriptor, offset - first, first)
        at = len(block)
        while left and (at := block.rfind(b"\n", 0, at)) >= 0:
            left -= 1
        if not left:
            return first + at + 1
        offset = first
    return floor


def _open(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failure(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IoError(f"{path} is no regular file", {"path": str(path)})
    return descriptor


def _failure(path: Path, error: OSError) -> IoError:
    return IoError(f"cannot read {path}: {error.strerror or error}", {"errno": error.errno, "path": str(path)})
