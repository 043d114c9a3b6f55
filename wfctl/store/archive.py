"""The file of a backup: a tar that GNU tar reads too, perhaps compressed, with a digest of everything at its end.

Logs whose middle was given back to the disk may seem to be huge: their holes are not read and take no room (PAX sparse members
of GNU's format 1.0). A chain of SHA-256 over names, shapes and contents tells a file that was cut off or changed.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from wfctl.errors import DamagedStore

Kind = Literal["file", "directory", "link"]
Segments = tuple[tuple[int, int], ...]  #: (offset, size) of what is not a hole, ascending
END = "end.json"  #: the last member: how many there are before it, and their digest
LARGEST_RECORD = 1024 * 1024  #: bytes of what wfctl itself says in a backup
_BLOCK = 256 * 1024
_SYNC_EVERY = 32 * 1024 * 1024  #: so that no fsync of the supervisor waits for more than that
_GZIP = b"\x1f\x8b"
_SECTOR = 512
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, MemoryError, KeyError)


def segments_of(descriptor: int, size: int) -> Segments:
    """Given an open file, return where its first `size` bytes are no holes; all of it where the file system does not tell."""
    found: list[tuple[int, int]] = []
    offset = 0
    while offset < size:
        try:
            first = os.lseek(descriptor, offset, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            return ((0, size),)
        if first >= size:
            break
        found.append((first, min(last, size) - first))
        offset = max(last, first + 1)
    return tuple(found)


def _header(kind: Kind, name: str, mode: int, size: int, segments: Segments | None, target: str = "") -> bytes:
    """What the digest takes in of a member beside its content."""
    shape = "" if segments is None else ",".join(f"{offset}+{length}" for offset, length in segments)
    return b"\0".join([kind.encode(), os.fsencode(name), f"{mode:o} {size} {shape}".encode(), os.fsencode(target)]) + b"\n"


# Writing ----------------------------------------------------------------------------------------------------------------


class ArchiveWriter:
    """Writes members one after the other into an open file, which may be a pipe. To be closed by `finish`."""

    def __init__(self, target: IO[bytes], *, is_compressed: bool, is_synced: bool = False) -> None:
        """`is_synced`: bring it to the disk while it grows, not all at its end."""
        self._target = _Target(target, is_synced=is_synced)
        self._packed = gzip.GzipFile("", "wb", 6, cast("IO[bytes]", self._target)) if is_compressed else None
        self._tar = tarfile.open(  # noqa: SIM115 - closed by `finish`
            fileobj=cast("IO[bytes]", self._packed or self._target),
            mode="w|",
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        )
        self._chain = hashlib.sha256()
        self.members = 0

    def add_bytes(self, name: str, data: bytes, *, mode: int = 0o600, mtime: float = 0) -> None:
        """Add a file of that content."""
        self._put(_info(name, tarfile.REGTYPE, mode, mtime, len(data)), _header("file", name, mode, len(data), None), data)

    def add_file(self, name: str, descriptor: int) -> None:
        """Add an open regular file as long as it is now; what it grows by meanwhile is left out."""
        status = os.fstat(descriptor)
        size, mode = status.st_size, stat.S_IMODE(status.st_mode) & 0o777
        segments = segments_of(descriptor, size) if status.st_blocks * _SECTOR < size else None
        if segments is None or segments == ((0, size),):
            info = _info(name, tarfile.REGTYPE, mode, status.st_mtime, size)
            self._put(info, _header("file", name, mode, size, None), _Reader(descriptor, ((0, size),), b"", self._chain))
            return
        numbers = [len(segments), *(number for segment in segments for number in segment)]
        table = b"".join(f"{number}\n".encode() for number in numbers)
        table += b"\0" * (-len(table) % tarfile.BLOCKSIZE)
        folder, _, base = name.rpartition("/")
        stored = len(table) + sum(length for _, length in segments)
        info = _info(f"{folder}/GNUSparseFile.0/{base}", tarfile.REGTYPE, mode, status.st_mtime, stored)
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(size),
        }
        self._put(info, _header("file", name, mode, size, segments), _Reader(descriptor, segments, table, self._chain))

    def add_directory(self, name: str, mode: int = 0o700) -> None:
        """Add a directory."""
        self._put(_info(name, tarfile.DIRTYPE, mode, 0, 0), _header("directory", name, mode, 0, None), b"")

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link, as it is: nothing is followed."""
        info = _info(name, tarfile.SYMTYPE, 0o777, 0, 0)
        info.linkname = target
        self._put(info, _header("link", name, 0o777, 0, None, target), b"")

    def finish(self) -> None:
        """Add the digest of everything, and write what is still held back."""
        end = {"members": self.members, "sha256": self._chain.hexdigest()}
        self.add_bytes(END, json.dumps(end).encode() + b"\n")
        self._tar.close()
        if self._packed is not None:
            self._packed.close()
        self._target.flush()

    def give_up(self) -> None:
        """Write nothing more: what is there will not become a backup."""
        self._target.give_up()

    def _put(self, info: tarfile.TarInfo, header: bytes, content: bytes | _Reader) -> None:
        self._chain.update(header)
        if isinstance(content, bytes):
            self._chain.update(content)
        self._tar.addfile(info, cast("IO[bytes]", io.BytesIO(content) if isinstance(content, bytes) else content))
        self._tar.members = []  # type: ignore[attr-defined]  # tarfile keeps each one; a store has millions
        self.members += 1


def _info(name: str, kind: bytes, mode: int, mtime: float, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime, info.size = kind, mode, max(0, int(mtime)), size
    return info


class _Reader:
    """The stored bytes of a file: its table of segments, where it has one, and then those. A file that shrank gives zeros."""

    def __init__(self, descriptor: int, segments: Segments, table: bytes, chain: Any) -> None:
        self._descriptor, self._chain, self._table = descriptor, chain, table
        self._segments = list(segments)

    def read(self, size: int) -> bytes:
        """Return so many of them; `tarfile` asks for no more than there are."""
        parts = []
        if self._table:
            parts.append(self._table[:size])
            self._table = self._table[size:]
        left = size - sum(map(len, parts))
        while left and self._segments:
            offset, length = self._segments[0]
            data = os.pread(self._descriptor, min(left, length, _BLOCK), offset) or bytes(min(left, length, _BLOCK))
            self._segments[0] = (offset + len(data), length - len(data))
            if self._segments[0][1] == 0:
                self._segments.pop(0)
            self._chain.update(data)
            parts.append(data)
            left -= len(data)
        return b"".join(parts)


class _Target:
    """The file that is written: brought to the disk piece by piece, and let be once something failed."""

    def __init__(self, target: IO[bytes], *, is_synced: bool) -> None:
        self._target, self._is_synced = target, is_synced
        self._unsynced = 0
        self._has_failed = False

    def write(self, data: bytes) -> int:
        if self._has_failed:
            return len(data)  # tarfile and gzip write their rest when they are collected
        self._has_failed = True
        self._target.write(data)
        self._unsynced += len(data)
        if self._is_synced and self._unsynced >= _SYNC_EVERY:
            self._target.flush()
            os.fdatasync(self._target.fileno())
            self._unsynced = 0
        self._has_failed = False
        return len(data)

    def flush(self) -> None:
        if not self._has_failed:
            self._target.flush()

    def give_up(self) -> None:
        """From now on nothing is written any more."""
        self._has_failed = True


# Reading ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Member:
    """One member of a backup, as it comes by. Its content is there until the next one is asked for."""

    kind: Kind
    name: str
    mode: int
    mtime: float
    size: int  #: of a file, holes included
    target: str  #: of a link
    segments: Segments
    _content: IO[bytes]  #: stands at its first stored byte
    _chain: Any
    _is_read: bool = False

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Give the content of a file, block by block, each with its offset; once. Raise what `members_of` makes sense of."""
        self._is_read = True
        for offset, length in self.segments:
            done = 0
            while done < length:
                data = self._content.read(min(_BLOCK, length - done))
                if not data:
                    raise EOFError("it ends in the middle of a file")
                self._chain.update(data)
                yield offset + done, data
                done += len(data)

    def read(self) -> bytes:
        """Return the content of what is small. Raise ValueError for more than 1 MiB."""
        if self.size > LARGEST_RECORD:
            raise ValueError(f"{self.name} is too large")
        whole = bytearray(self.size)
        for offset, data in self.blocks():
            whole[offset : offset + len(data)] = data
        return bytes(whole)

    def pass_over(self) -> None:
        """Take in for the digest what nobody has read."""
        if not self._is_read:
            for _ in self.blocks():
                continue


def members_of(source: IO[bytes], subject: str) -> Iterator[Member]:
    """Given an open file, which may be a pipe, give the members of the backup in it, in their order.

    When this has come to its end, everything that was taken in is what was written. A content that nobody reads is passed over
    and counts all the same. Raise DamagedStore, naming `subject`, for a file that is none, was cut off or changed; OSError.
    """
    with sense_of(subject):
        head = source.read(2)
        whole = cast("IO[bytes]", _Pushed(head, source))
        yield from _members(cast("IO[bytes]", gzip.GzipFile(fileobj=whole, mode="rb")) if head == _GZIP else whole)


@contextlib.contextmanager
def sense_of(subject: str) -> Iterator[None]:
    """Turn what a file that is no backup makes tarfile, gzip and us stumble over into DamagedStore."""
    try:
        yield
    except _BROKEN as error:
        raise broken(subject, error) from error
    except OSError as error:
        if error.errno is None:  # of gzip
            raise broken(subject, error) from error
        raise


def broken(subject: str, why: object) -> DamagedStore:
    """Return the error for a file that is no backup, or none any more."""
    said = " ".join(str(why).split()) or type(why).__name__
    return DamagedStore(f"{subject} is no backup of a store, or is damaged or cut off ({said}); nothing was changed", {})


def _members(source: IO[bytes]) -> Iterator[Member]:
    chain, count = hashlib.sha256(), 0
    with tarfile.open(fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
        while (info := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # as above
            member = _member(tar, info, chain)
            if member.name == END:
                _check_end(count, chain.hexdigest(), json.loads(member.read()))
                if tar.next() is not None:
                    raise ValueError("it goes on after its end")
                return
            is_sparse = info.sparse is not None
            segments = member.segments if is_sparse else None
            chain.update(_header(member.kind, member.name, member.mode, member.size, segments, member.target))
            yield member
            member.pass_over()
            count += 1
    raise ValueError("it has no end")


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo, chain: Any) -> Member:
    kind: Kind
    segments: Segments = ()
    stream = cast("IO[bytes]", tar.fileobj)
    if info.isreg():
        kind = "file"
        stream.seek(info.offset_data)  # `extractfile` would read the holes, too
        sparse = cast("Sequence[tuple[int, int]] | None", info.sparse)
        segments = ((0, info.size),) if sparse is None else tuple((at, size) for at, size in sparse)
        _check_segments(segments, info.size)
    elif info.isdir():
        kind = "directory"
    elif info.issym():
        kind = "link"
    else:
        raise ValueError(f"{info.name!r} is neither a file, a directory nor a symbolic link")
    size = info.size if kind == "file" else 0
    target = info.linkname if kind == "link" else ""
    return Member(kind, info.name, info.mode & 0o777, info.mtime, size, target, segments, stream, chain)


def _check_segments(segments: Segments, size: int) -> None:
    at = 0
    for offset, length in segments:
        if offset < at or length < 0:
            raise ValueError("the segments of a file are out of order")
        at = offset + length
    if at > size:
        raise ValueError("a file is longer than it says")


def _check_end(count: int, digest: str, end: Any) -> None:
    if not isinstance(end, dict) or end.get("members") != count or end.get("sha256") != digest:
        raise ValueError("its content is not that of its digest")


class _Pushed:
    """A file of which the first bytes were read already."""

    def __init__(self, head: bytes, source: IO[bytes]) -> None:
        self._head, self._source = head, source

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._source.read(size)
        head, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        return head + (self._source.read(size - len(head)) if size != len(head) else b"")
