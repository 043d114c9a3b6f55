"""Bounding what a run prints: past a size the middle of its log goes, head and tail stay (contract 6.15)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from wfctl.linux import punch_hole

_BLOCK = 4096
_OPEN = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def log_size(path: Path | str) -> int:
    """Return the size of a log, gaps included; 0 where it is not there or is no regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def release_middle(path: Path | str, most: int, *, done_to: int = 0) -> int:
    """Given a log and how many bytes of it may lie on the disk, release what is more from its middle; its size stays.

    The head keeps half, the tail the other half. Whoever writes to it is not disturbed. `done_to`: up to where that was done
    before. Return up to where it is done now; 0 where nothing had to be. Raise OSError where the file system cannot.
    """
    descriptor = os.open(path, _OPEN)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        first, last = middle_of(status.st_size, most, status.st_blksize)
        start = max(first, done_to)
        if last > start:
            punch_hole(descriptor, start, last - start)
        return max(last, done_to)
    finally:
        os.close(descriptor)


def middle_of(size: int, most: int, block: int = _BLOCK) -> tuple[int, int]:
    """Given the size of a log, how much of it may be kept and the block of its file system, return what goes: [first, last).

    Whole blocks, so that nothing of them stays on the disk, and what is kept is at most `most`. (0, 0): nothing is to go.
    """
    if size <= most:
        return 0, 0
    unit = block if 0 < block <= most // 4 else _BLOCK
    first = most // 2 // unit * unit
    last = -(-(size - (most - first)) // unit) * unit
    return (first, last) if first < last <= size else (0, 0)
