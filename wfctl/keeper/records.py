"""The exit record: how one execution ended, in a file of fixed size that the keeper owns (contract 6.9, 7.3).

The file is made, and its space reserved, before the launch, so that a full disk cannot lose an outcome; until the end it reads
as zeros. It is written in one piece and synced before anybody is told; a checksum tells a torn one.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from wfctl.core.instants import from_micros, to_micros
from wfctl.keeper.protocol import End, Ended, Refused, RefusedAt
from wfctl.linux import rename_anew

RECORD_NAME = "exit"
RECORD_SIZE = 256
_MAGIC = b"wfctlEX\x01"  # the last byte is the version of the format
_KINDS = {"ended": 1, "refused": 2}
_PLACES = tuple(RefusedAt)
_NONE = -1  # an exit status or signal that does not apply
# magic, kind, place, k, run, pid, errno, started, ended (micros), exit status, signal, cpu, rss, left behind
_BODY = struct.Struct("<8sBBxxI64sIiqqiiQQI")
_CHECKSUM = struct.Struct("<I")
_FILL = RECORD_SIZE - _CHECKSUM.size
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DamagedRecord(Exception):
    """An exit record is there and cannot be trusted: torn, of another format, or no regular file."""


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """What an exit record says: which execution it is of, and how that went."""

    run: str
    k: int
    outcome: Ended | Refused


def record_path(directory: Path | str) -> Path:
    """Given `runs/ID/k`, return the path of its exit record."""
    return Path(directory, RECORD_NAME)


def reserve(directory: Path | str) -> None:
    """Given `runs/ID/k`, make its exit record and reserve the space.

    Raise FileExistsError when there is one: that execution was launched before, by whomever. Raise OSError on a full disk.
    """
    path = f"{directory}/{RECORD_NAME}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, RECORD_SIZE)
    except OSError:
        Path(path).unlink()
        raise
    finally:
        os.close(descriptor)


def take_spare(spare: str, directory: str) -> None:
    """Given a run's directory that was made ahead, with its first exit record, and `runs/ID/1`, make it that run's.

    Raise FileExistsError when the run has one: it was launched before, by whomever. Raise FileNotFoundError without a spare,
    OSError.
    """
    root = os.path.dirname(directory)  # noqa: PTH120 - texts, on the launch path
    try:
        rename_anew(spare, root)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        if os.path.lexists(root):  # this file system knows no such renaming; no run's directory is empty, so it would fail too
            raise FileExistsError(errno.EEXIST, "there already", root) from error
        os.rename(spare, root)  # noqa: PTH104


def write_record(directory: int, outcome: Ended | End | Refused) -> None:
    """Given a descriptor of `runs/ID/k`, write its reserved exit record. Durable once it returns. Raise OSError when it is not.

    Order: the content first, then its name, which the launch may have made a moment ago.
    """
    descriptor = os.open(RECORD_NAME, _WRITE, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", RECORD_NAME)
        os.pwrite(descriptor, encode_record(outcome), 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    os.fsync(directory)


def write_record_unsynced(directory: str, record: bytes) -> None:
    """Given `runs/ID/k` and the bytes of its record, write it, for the journal to vouch for. Raise OSError."""
    descriptor = os.open(f"{directory}/{RECORD_NAME}", _WRITE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", RECORD_NAME)
        os.pwrite(descriptor, record, 0)
    finally:
        os.close(descriptor)


def encode_record(outcome: Ended | End | Refused) -> bytes:
    """Given how an execution went, return the bytes of its record."""
    run = outcome.run.encode("ascii")
    if isinstance(outcome, Refused):
        place, at = _PLACES.index(outcome.what), to_micros(outcome.at)
        body = _BODY.pack(_MAGIC, _KINDS["refused"], place, outcome.k, run, 0, outcome.errno, at, at, _NONE, _NONE, 0, 0, 0)
    else:
        began, ended = outcome.started_at, outcome.ended_at
        body = _BODY.pack(
            _MAGIC,
            _KINDS["ended"],
            0,
            outcome.k,
            run,
            outcome.pid,
            0,
            began if isinstance(began, int) else to_micros(began),
            ended if isinstance(ended, int) else to_micros(ended),
            _NONE if outcome.exit_status is None else outcome.exit_status,
            _NONE if outcome.signal is None else outcome.signal,
            outcome.cpu_us,
            outcome.max_rss_bytes,
            outcome.left_behind,
        )
    filled = body.ljust(_FILL, b"\0")
    return filled + _CHECKSUM.pack(zlib.crc32(filled))


def read_record(path: Path | str) -> ExitRecord | None:
    """Given the path of an exit record, return what it says, or None when there is none or it is only reserved.

    Raise DamagedRecord for a torn or foreign one, OSError when it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedRecord(f"{path}: is a symbolic link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedRecord(f"{path}: is no regular file")
        content = os.read(descriptor, RECORD_SIZE + 1)
    finally:
        os.close(descriptor)
    return record_in(content, path)


def record_in(content: bytes, path: Path | str) -> ExitRecord | None:
    """Given the bytes of an exit record and where they were read, return what it says, or None when it is only reserved.

    Raise DamagedRecord for a torn or foreign one.
    """
    if not content.strip(b"\0") and len(content) <= RECORD_SIZE:
        return None
    if len(content) != RECORD_SIZE:
        raise DamagedRecord(f"{path}: {len(content)} bytes instead of {RECORD_SIZE}")
    filled, (checksum,) = content[:_FILL], _CHECKSUM.unpack_from(content, _FILL)
    if zlib.crc32(filled) != checksum:
        raise DamagedRecord(f"{path}: its checksum does not match")
    fields = _BODY.unpack_from(filled)
    magic, kind, place, k, run, pid, number, started, ended, status, signum, cpu, rss, left_behind = fields
    if magic != _MAGIC or kind not in _KINDS.values() or place >= len(_PLACES):
        raise DamagedRecord(f"{path}: written in a format that this version does not know")
    name = run.rstrip(b"\0").decode("ascii", "replace")
    outcome: Ended | Refused
    if kind == _KINDS["refused"]:
        outcome = Refused(run=name, k=k, errno=number, what=_PLACES[place], at=from_micros(ended))
    else:
        outcome = Ended(
            run=name,
            k=k,
            pid=pid,
            started_at=from_micros(started),
            ended_at=from_micros(ended),
            exit_status=None if status == _NONE else status,
            signal=None if signum == _NONE else signum,
            cpu_us=cpu,
            max_rss_bytes=rss,
            left_behind=left_behind,
        )
    return ExitRecord(name, k, outcome)
