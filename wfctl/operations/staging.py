"""Taking a backup in: every member is judged before it is written, into a directory that nothing of a store looks at.

Names stay strictly inside; there are files, directories and, in what a job left, symbolic links, which are made last, so that
nothing is ever written through one. What a run directory of the store has already is not taken out of the backup.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from wfctl.core.definition import is_valid_id
from wfctl.core.model import run_number
from wfctl.errors import DamagedStore, IoError
from wfctl.linux import sync_file_system
from wfctl.operations.manifest import MANIFEST, Manifest, NewerBackup, read_manifest
from wfctl.settings import LARGEST_FILE
from wfctl.store.archive import Member, broken, members_of, sense_of
from wfctl.store.definitions import LARGEST_DEFINITION
from wfctl.store.disk import CREATE, DIRECTORY_MODE, FILE_MODE, Disk
from wfctl.store.ledger import copies
from wfctl.store.ledger.copies import CopyFacts
from wfctl.store.ledger.schema import FORMAT

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KINDS = ("schedules", "deployments")
_LONGEST_NAME = 4000


class Stage:
    """A backup on its way in. `read_all` judges all of it; with a directory it is written there, and made durable by `sync`."""

    def __init__(self, source: IO[bytes], subject: str, disk: Disk) -> None:
        """Given an open file, read which backup it is. Raise DamagedStore for none, or one of a newer format; OSError."""
        self._subject, self._disk = subject, disk
        self._members = members_of(source, subject)
        with self._sense():
            first = next(self._members, None)
            if first is None or first.name != MANIFEST or first.kind != "file":
                raise ValueError("its first member is no manifest")
            self.manifest: Manifest = read_manifest(first.read())
            if self.manifest.ledger_format > FORMAT:
                found = f"its ledger has format {self.manifest.ledger_format}, this wfctl knows {FORMAT}"
                raise NewerBackup(f"{found}: use a newer wfctl")
        self.run_directories = 0  #: of the backup that are not there already
        self._links: list[tuple[Path, str]] = []
        self._modes: list[tuple[Path, int]] = []

    def read_all(self, directory: Path, *, is_whole: bool, has_run: Callable[[str], bool]) -> CopyFacts:
        """Take everything in; return what the ledger holds. `is_whole`: write it, else the ledger alone, to be judged.

        `has_run` tells of a run directory whether the store has it. Raise DamagedStore, IoError; nothing is left to clean up
        but the directory.
        """
        has_ledger, runs, order = False, _Runs(has_run), _Order()
        with self._sense(), _refusals(directory):
            for member in self._members:
                parts = _checked(member)
                order.check(member, parts)
                self._disk.point("stage")
                is_new = runs.is_new(parts[1]) if parts[0] == "runs" and len(parts) > 1 else True
                if member.name == "ledger.db":
                    self._take_ledger(member, directory / "ledger.db")
                    has_ledger = True
                elif not has_ledger:
                    raise ValueError("its second member is not the ledger")
                elif is_whole and is_new:
                    self._write(member, directory / member.name)
            if not has_ledger:
                raise ValueError("it has no ledger")
        self.run_directories = runs.new
        if is_whole:
            with self._sense(), _refusals(directory):
                self._end(directory)
        return self._judge(directory / "ledger.db")

    def sync(self, directory: Path) -> None:
        """Bring all of it to the disk. Raise IoError."""
        self._disk.point("sync-all")
        with _refusals(directory):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync_file_system(descriptor)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _sense(self) -> Iterator[None]:
        try:
            with sense_of(self._subject):
                yield
        except NewerBackup as error:
            raise DamagedStore(f"{self._subject} cannot be put back: {error}; nothing was changed", {}) from error

    def _take_ledger(self, member: Member, path: Path) -> None:
        digest = hashlib.sha256()
        if member.size != self.manifest.ledger_bytes:
            raise ValueError("its ledger has another size than its manifest says")
        descriptor = os.open(path, CREATE, FILE_MODE)
        try:
            for offset, data in member.blocks():
                digest.update(data)
                os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)
        if digest.hexdigest() != self.manifest.ledger_sha256:
            raise ValueError("its ledger is not that of its manifest")

    def _judge(self, ledger: Path) -> CopyFacts:
        try:
            copies.check_copy(ledger)
            facts = copies.facts_of(ledger)
        except DamagedStore as error:
            raise broken(self._subject, f"its ledger: {error.message}") from error
        if facts.store_id != self.manifest.store_id:
            raise broken(self._subject, "its ledger is of another store than its manifest says")
        return facts

    def _write(self, member: Member, path: Path) -> None:
        path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        if member.kind == "directory":
            path.mkdir(DIRECTORY_MODE, exist_ok=True)
            if member.mode != DIRECTORY_MODE:
                self._modes.append((path, member.mode))
        elif member.kind == "link":
            self._links.append((path, member.target))
        else:
            _write_file(member, path)

    def _end(self, directory: Path) -> None:
        for name in (*_KINDS, "artifacts", "runs"):
            (directory / name).mkdir(DIRECTORY_MODE, exist_ok=True)
        for path, target in self._links:
            path.symlink_to(target)
        for path, mode in reversed(self._modes):  # what is deeper first: its own directory may forbid it later
            path.chmod(mode)


class _Order:
    """Tells whether members come as a backup has them: below directories of it, ascending, so that none comes twice."""

    def __init__(self) -> None:
        self._top: dict[str, tuple[int, str]] = {}  # the last of each directory at the top, which are no members themselves
        self._seen: set[str] = set()
        self._open: list[tuple[list[str], str]] = []  # the directories that the last member lay in, each with its last name

    def check(self, member: Member, parts: list[str]) -> None:
        """Raise ValueError where the next member cannot follow."""
        *parent, name = parts
        while self._open and self._open[-1][0] != parent:
            self._open.pop()
        if not parent:
            is_next = name not in self._seen
            self._seen.add(name)
        elif len(parent) == 1:
            key = (run_number(name) or 0, name)  # runs by their numbers
            is_next = key > self._top.get(parent[0], (-1, ""))
            self._top[parent[0]] = key
        else:
            is_next = bool(self._open) and name > self._open[-1][1]
            if is_next:
                self._open[-1] = (parent, name)
        if not is_next:
            raise ValueError(f"{member.name!r} comes twice, out of order, or below what is no directory")
        if member.kind == "directory":
            self._open.append((parts, ""))


class _Runs:
    """Which run directories come in."""

    def __init__(self, has_run: Callable[[str], bool]) -> None:
        self._has_run = has_run
        self._name, self._is_new = "", False
        self.new = 0

    def is_new(self, name: str) -> bool:
        """Tell whether the store lacks a run's directory. The members of one run follow each other."""
        if name != self._name:
            self._name, self._is_new = name, not self._has_run(name)
            self.new += self._is_new
        return self._is_new


def _checked(member: Member) -> list[str]:
    """Return the parts of a member's name. Raise ValueError for anything that is not where a backup has it."""
    parts = member.name.split("/")
    if len(member.name) > _LONGEST_NAME or "\0" in member.name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"it names {member.name!r}")
    if not _is_expected(member, parts):
        raise ValueError(f"{member.name!r} is a {member.kind} that no backup has")
    largest = {"wfctl.toml": LARGEST_FILE, "schedules": LARGEST_DEFINITION, "deployments": LARGEST_DEFINITION}.get(parts[0])
    if largest is not None and member.size > largest:
        raise ValueError(f"{member.name} is too large")
    return parts


def _is_expected(member: Member, parts: list[str]) -> bool:
    if len(parts) == 1:
        return member.kind == "file" and parts[0] in ("wfctl.toml", "ledger.db")
    if parts[0] in _KINDS:
        return len(parts) == 2 and member.kind == "file" and parts[1].endswith(".toml") and is_valid_id(parts[1][:-5])
    if parts[0] == "artifacts":
        return len(parts) == 2 and member.kind == "file" and _HEX.fullmatch(parts[1]) is not None
    if parts[0] != "runs" or run_number(parts[1]) is None:
        return False
    if member.kind == "link":  # only where a job worked: wfctl itself reads nothing there
        return len(parts) > 3 and parts[2] == "work"
    return len(parts) > 2 or member.kind == "directory"


def _write_file(member: Member, path: Path) -> None:
    descriptor = os.open(path, CREATE, FILE_MODE)
    try:
        for offset, data in member.blocks():
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        os.ftruncate(descriptor, member.size)  # a hole at the end
        os.fchmod(descriptor, member.mode)
        os.utime(descriptor, (max(0.0, member.mtime), max(0.0, member.mtime)))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _refusals(directory: Path) -> Iterator[None]:
    """Turn what the system refuses while a backup is written out into IoError; what it is full of is named."""
    try:
        yield
    except FileExistsError as error:
        raise ValueError(f"it has {Path(str(error.filename)).name} twice") from error
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
            raise ValueError(f"it names what cannot be made: {error.strerror}") from error
        said = f"cannot take the backup in at {directory}: {error.strerror or error}; nothing was changed"
        raise IoError(said, {"errno": error.errno, "path": str(directory)}) from error


def clear(directory: Path) -> None:
    """Remove a staging directory, whatever rights those in it have. Raise IoError."""
    if not os.path.lexists(directory):
        return
    try:
        for place, names, _ in os.walk(directory):
            for name in names:
                path = Path(place, name)
                if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o700 != 0o700:
                    path.chmod(DIRECTORY_MODE)
        shutil.rmtree(directory)
    except OSError as error:
        raise IoError(f"cannot remove {directory}: {error.strerror}", {"errno": error.errno, "path": str(directory)}) from error
