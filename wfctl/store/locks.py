"""Exclusive ownership by a kernel lock, which dies with its process and is never a leftover file (contract 2.6)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from datetime import datetime
from typing import TYPE_CHECKING

from wfctl.clock import SystemClock, pause
from wfctl.core.instants import format_instant, parse_instant
from wfctl.core.json_text import loads
from wfctl.errors import IoError
from wfctl.store.disk import FILE_MODE
from wfctl.value import Value

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LARGEST_OWNER = 4096
_ATTEMPTS, _BETWEEN_S = 5, 0.02  # `is_held` takes the lock for a moment; that must not look like an owner


class Owner(Value, kw_only=False):
    """Who wrote itself into a lock's file. True only while the lock is held."""

    pid: int
    host: str
    started_at: datetime


class FileLock:
    """One exclusive lock on one file. The file stays for good: removing it would let two processes hold two files of one name.

    The descriptor is closed on exec, so that no run inherits the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_mine(self) -> bool:
        """Return whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, started_at: datetime | None = None) -> bool:
        """Take the lock without waiting for its holder, and write who we are into its file.

        Return False when another process, or another object of this one, holds it. Raise IoError when the kernel cannot
        tell: nothing is owned then.
        """
        if self._descriptor is not None:
            return True
        for attempt in range(_ATTEMPTS):
            if attempt:
                pause(_BETWEEN_S)
            descriptor = _open(self.path)
            if _lock(descriptor, self.path):
                _write_owner(descriptor, started_at or SystemClock().now())
                self._hold(descriptor)
                return True
            if is_held(self.path):
                return False
        return False

    @classmethod
    def of(cls, path: Path, descriptor: int) -> FileLock:
        """Given a descriptor that holds the lock on that path, inherited from who took it, return the lock."""
        os.set_inheritable(descriptor, False)
        lock = cls(path)
        lock._hold(descriptor)
        return lock

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _HELD.add(self)

    def _forget(self) -> None:
        """Close the descriptor and give nothing back: the lock is that of the process which this one was forked from."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def fileno(self) -> int:
        """Return the descriptor that holds the lock, for another process to inherit. Raise ValueError when it is not held."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is not held")
        return self._descriptor

    def release(self) -> None:
        """Give the lock back; without effect when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock._forget()


# A program that embeds a supervisor may fork without exec (multiprocessing does): the child must not keep the lock alive.
os.register_at_fork(after_in_child=_forget_all)


def is_held(path: Path | str) -> bool:
    """Return whether some process owns that lock now. Raise IoError when the kernel cannot tell.

    It asks for a shared lock, for a moment, so that two who ask do not take each other for the owner.
    """
    if not os.path.exists(path):  # noqa: PTH110
        return False
    descriptor = _open(path)
    try:
        fcntl.flock(
            descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB
        )  # portalocker 4.4.2 locks by flock too, and takes 80 ms to import
    except BlockingIOError:
        return True
    except OSError as error:
        raise _cannot_lock(path, error) from error
    finally:
        os.close(descriptor)
    return False


def read_owner(path: Path | str) -> Owner | None:
    """Return who wrote itself into the lock's file, or None where nobody legible did."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        plain = loads(os.pread(descriptor, _LARGEST_OWNER, 0).decode())
        return Owner(int(plain["pid"]), str(plain["host"]), parse_instant(plain["started_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(descriptor)


def _open(path: Path | str) -> int:
    try:
        return os.open(path, _OPEN, FILE_MODE)
    except OSError as error:
        raise IoError(f"cannot open the lock {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the file exclusively and return True; else close the descriptor and return False."""
    import portalocker

    try:
        portalocker.lock(descriptor, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
        _require_same_file(descriptor, path)
    except portalocker.AlreadyLocked:
        os.close(descriptor)
        return False
    except (portalocker.LockException, OSError) as error:
        os.close(descriptor)
        raise _cannot_lock(path, error) from error
    return True


def _cannot_lock(path: Path | str, error: Exception) -> IoError:
    return IoError(f"cannot lock {path}: {error}; nothing is started without the lock", {"path": str(path)})


def _require_same_file(descriptor: int, path: Path) -> None:
    ours, named = os.fstat(descriptor), path.lstat()
    if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
        raise OSError("the file was replaced while it was being locked")


def _write_owner(descriptor: int, started_at: datetime) -> None:
    import json
    import socket

    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started_at": format_instant(started_at)}
    try:
        os.fchmod(descriptor, FILE_MODE)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode() + b"\n", 0)
    except OSError:
        return  # a full disk takes nothing from the lock; its file then names nobody
