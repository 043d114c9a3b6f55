"""The journal of exit records: many ends made durable by one sync, each carried into its own file later (contract 6.9, 7.1).

A batch of records is written here and synced once; then it may be told of. Their own files, `runs/ID/k/exit`, are written
without a sync, which is enough for all but a power cut, and synced together once a half of the journal is full enough; only
then is that half used again. After a power cut the next keeper carries over what it finds, and who misses an exit record looks
here (`find`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from wfctl.keeper.protocol import PROTOCOL, Ended, Refused
from wfctl.keeper.records import RECORD_NAME, RECORD_SIZE, DamagedRecord, ExitRecord, read_record, record_in, record_path
from wfctl.linux import sync_file_system

JOURNAL_NAME = f"keeper.{PROTOCOL}.exits"
SLOTS = 4096  #: in each half, 1.6 MB: a burst fits in, and is carried over after it
_NAMES = re.compile(r"keeper\.[1-9]\d{0,5}\.exits", re.ASCII)
_PLACE = 124  # bytes of a directory's path below the journal's
_SLOT = struct.Struct(f"<{RECORD_SIZE}sI{_PLACE}sI")  # record, length of the path, path, checksum of all before
_FILL = _SLOT.size - 4
_PIECE = 1 << 16  # bytes of zeros written at once
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class JournalFull(Exception):
    """Neither half has room: the records go to their own files one by one."""


class Journal:
    """The journal of one keeper, which holds the lock of its directory. For one thread at a time, but for `carry_over`."""

    def __init__(self, directory: Path, *, slots: int = SLOTS) -> None:
        """Given the keeper's directory, take up what an earlier keeper left there. Raise OSError."""
        self._root = directory
        self._half = slots * _SLOT.size
        self._slots = slots
        self._descriptor = os.open(directory / JOURNAL_NAME, os.O_RDWR | os.O_CREAT | _OPEN, 0o600)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(f"{JOURNAL_NAME} is no regular file")
        self._current, self._used = 0, 0
        self._is_free = [True, True]
        left = _carry_into_files(directory, _slots_of(os.pread(self._descriptor, 1 << 24, 0)))
        os.ftruncate(self._descriptor, 0)
        self._is_reserved = False
        if left:
            self.append(left[-slots:])
        else:
            os.fdatasync(self._descriptor)

    def place_of(self, directory: str) -> bytes | None:
        """Given `runs/ID/k`, return how the journal names it; None where it cannot, and the record must go to its file."""
        root = f"{self._root}/"
        place = os.fsencode(directory[len(root) :]) if directory.startswith(root) else b""
        return place if 0 < len(place) <= _PLACE else None

    def append(self, records: Sequence[tuple[bytes, bytes]]) -> int | None:
        """Given (place, record) pairs, make them durable at once. Return the half that is full by it and to be carried over.

        Raise JournalFull, or OSError where they are not durable.
        """
        if len(records) > self._slots - self._used:
            raise JournalFull
        if not self._is_reserved:
            os.posix_fallocate(self._descriptor, 0, 2 * self._half)
            self._is_reserved = True
        data = b"".join(_slot(place, record) for place, record in records)
        os.pwrite(self._descriptor, data, self._current * self._half + self._used * _SLOT.size)
        os.fdatasync(self._descriptor)
        self._used += len(records)
        other = 1 - self._current
        if self._used < self._slots // 2 or not self._is_free[other]:
            return None
        full, self._current, self._used = self._current, other, 0
        self._is_free[full] = False
        return full

    def carry_over(self, half: int) -> None:
        """Have the files of everything in that half durable, and free it. May be called from another thread. Raise OSError."""
        sync_file_system(self._descriptor)
        for begin in range(0, self._half, _PIECE):
            os.pwrite(self._descriptor, bytes(min(_PIECE, self._half - begin)), half * self._half + begin)
        os.fdatasync(self._descriptor)
        self._is_free[half] = True


def read_end(root: Path, directory: Path, run: str, k: int) -> Ended | Refused | None:
    """Given a store's root and `runs/ID/k`, return how exactly this execution ended, by its own record, else by a journal.

    None where nobody wrote it down; a record of another execution is stale (7.3). Raise DamagedRecord, OSError.
    """
    damage: DamagedRecord | None = None
    try:
        record = read_record(record_path(directory))
    except DamagedRecord as error:  # torn by a power cut, perhaps
        record, damage = None, error
    if record is None:
        record = find(root, run, k)
    if record is None and damage is not None:
        raise damage
    is_this = record is not None and (record.run, record.k) == (run, k)
    return record.outcome if record is not None and is_this else None


def find(root: Path, run: str, k: int) -> ExitRecord | None:
    """Given a store's root, return what the journals there say of the end of one execution, or None. Raise OSError."""
    names = [name for name in os.listdir(root) if _NAMES.fullmatch(name)]  # noqa: PTH208 - names only
    for path in (root / name for name in names):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            found = _ends_in(path, (status.st_ino, status.st_size, status.st_mtime_ns)).get((run, k))
            if found is not None:
                return found
    return None


@functools.lru_cache(maxsize=2)
def _ends_in(path: Path, _unchanged: tuple[int, int, int]) -> dict[tuple[str, int], ExitRecord]:
    """Return what a journal holds, by execution; a thousand are asked for one after the other."""
    ends = {}
    for _, content in _slots_of(_read(path)):
        with contextlib.suppress(DamagedRecord):
            record = record_in(content, path)
            if record is not None:
                ends[record.run, record.k] = record
    return ends


def _read(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | _OPEN), "rb") as file:
        return file.read(1 << 24) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _slot(place: bytes, record: bytes) -> bytes:
    filled = _SLOT.pack(record, len(place), place, 0)[:_FILL]
    return filled + zlib.crc32(filled).to_bytes(4, "little")


def _slots_of(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give (place, record) of every whole slot; a torn one was never told of."""
    for start in range(0, len(content) - _SLOT.size + 1, _SLOT.size):
        record, length, place, checksum = _SLOT.unpack_from(content, start)
        if 0 < length <= _PLACE and zlib.crc32(content[start : start + _FILL]) == checksum:
            yield place[:length], record


def _carry_into_files(root: Path, slots: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Write each record to its file, if it is not there; return those whose run's directory is gone, which stay here."""
    left = []
    is_written = False
    for place, record in slots:
        directory = root / os.fsdecode(place)
        if ".." in directory.parts:
            continue
        if not directory.parent.is_dir():
            left.append((place, record))
            continue
        with contextlib.suppress(OSError):
            is_written = _carry(directory, record) or is_written
    if is_written:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)
    return left


def _carry(directory: Path, record: bytes) -> bool:
    directory.mkdir(mode=0o700, exist_ok=True)
    try:
        if read_record(record_path(directory)) is not None:
            return False
    except DamagedRecord:
        pass  # torn by the power cut; what is no regular file is refused below
    flags = os.O_WRONLY | os.O_CREAT | _OPEN
    descriptor = os.open(directory / RECORD_NAME, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.pwrite(descriptor, record, 0)
    finally:
        os.close(descriptor)
    return True
