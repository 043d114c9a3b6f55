"""Directories of runs, made ahead of the instant at which they are needed (contract 6.3, 6.4).

Making a file is the dearest thing between an admission and its launch, by far. A spare directory has everything that each run's
has, empty, its first exit record included. Two files are written into it, and the keeper renames it when it launches the run:
by that it also knows that nobody did before. What is left of one after a crash is used by the next supervisor or taken away;
no run's directory is ever known under a spare's name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque

from wfctl.keeper.records import RECORD_NAME, RECORD_SIZE
from wfctl.store.disk import DIRECTORY_MODE, FILE_MODE, write_all
from wfctl.store.layout import Layout

_READY, _UNREADY = ".spare.", ".unready."
_ROOM_INODES, _ROOM_BYTES = 10_000, 1 << 30  # free ones, below which nothing is made ahead
_FILES = ("run.json", "input.json", "stdout.log", "stderr.log")
_DIRECTORIES = ("work", "files", "1")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Spares:
    """The spare directories of one store, for its one supervisor. `make` may be called from another thread than `give`."""

    def __init__(self, layout: Layout) -> None:
        """Take up those that an earlier supervisor left. Raise OSError."""
        self._runs = str(layout.runs)
        self._ready: deque[str] = deque()
        self._next = 1
        for name in sorted(os.listdir(self._runs)):  # noqa: PTH208 - names only
            if name.startswith(_UNREADY):
                shutil.rmtree(f"{self._runs}/{name}", ignore_errors=True)
            elif name.startswith(_READY):
                self._ready.append(f"{self._runs}/{name}")
                with contextlib.suppress(ValueError):
                    self._next = max(self._next, int(name.removeprefix(_READY)) + 1)

    def __len__(self) -> int:
        return len(self._ready)

    def has_plenty_of_room(self) -> bool:
        """Tell whether the file system is far from full, so that what is made ahead is nothing that a run will lack."""
        status = os.statvfs(self._runs)
        has_inodes = status.f_files == 0 or status.f_favail > max(status.f_files // 10, _ROOM_INODES)
        return has_inodes and status.f_bavail * status.f_frsize > _ROOM_BYTES

    def make(self) -> None:
        """Make one more. Raise OSError."""
        number, self._next = self._next, self._next + 1
        path = f"{self._runs}/{_UNREADY}{number:06d}"
        try:
            _fill(path)
            ready = f"{self._runs}/{_READY}{number:06d}"
            os.rename(path, ready)  # noqa: PTH104 - texts, as on the launch path
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        self._ready.append(ready)

    def fill(self, identity: bytes, bound: bytes) -> str | None:
        """Take a spare, with these contents of `run.json` and `input.json`, and return its path; None where there is none."""
        while self._ready:
            spare = self._ready.popleft()
            try:
                _overwrite(f"{spare}/run.json", identity)
                _overwrite(f"{spare}/input.json", bound)
            except OSError:  # it is not as it was made
                shutil.rmtree(spare, ignore_errors=True)
                continue
            return spare
        return None

    def take_back(self, spare: str) -> None:
        """Take back one that was filled and is not needed after all."""
        self._ready.append(spare)


def _fill(path: str) -> None:
    _make_directory(path)
    for name in _DIRECTORIES:
        _make_directory(f"{path}/{name}")
    for name in _FILES:
        os.close(_create(f"{path}/{name}"))
    descriptor = _create(f"{path}/1/{RECORD_NAME}")
    try:
        os.posix_fallocate(descriptor, 0, RECORD_SIZE)
    finally:
        os.close(descriptor)


def _make_directory(path: str) -> None:
    os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102
    os.chmod(path, DIRECTORY_MODE)  # noqa: PTH101 - whatever the umask (contract 2.9)


def _create(path: str) -> int:
    descriptor = os.open(path, _CREATE, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def _overwrite(path: str, data: bytes) -> None:
    descriptor = os.open(path, _WRITE)
    try:
        write_all(descriptor, data)
        if os.fstat(descriptor).st_size != len(data):  # filled before; truncating first would have its blocks written at once
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
