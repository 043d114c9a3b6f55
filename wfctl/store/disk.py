"""The only durable writes outside the ledger: temporary file, fsync, rename, fsync of the directory (contract 2.2, 2.9).

Every primitive announces itself by `point` first. A crash test replaces the class and dies there.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from wfctl.errors import IoError

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".tmp"


def is_temporary(name: str) -> bool:
    """Return whether a file name is that of a write in progress, or of one that a crash cut off."""
    return name.startswith(".") and name.endswith(_TEMPORARY)


class Disk:
    """Durable writes. Whatever the umask, what is made has the mode asked for; links are never followed.

    Every method raises IoError, whose data holds `errno` and `path`, when the system refuses.
    """

    def point(self, name: str) -> None:
        """Called before every primitive, with its name. Does nothing here."""

    def write_file(self, path: Path, data: bytes, mode: int = FILE_MODE) -> None:
        """Write `data` so that after a crash the file holds either what it held before or all of `data`."""
        temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}{_TEMPORARY}")
        try:
            self._write_temporary(temporary, data, mode)
            self.point("rename")  # a crash before it leaves the old content; after it, the new one
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise _failure("write", path, error) from error
        self.sync_directory(path.parent)

    def remove_file(self, path: Path) -> bool:
        """Remove a file for good. Return whether it was there."""
        self.point("remove")
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failure("remove", path, error) from error
        self.sync_directory(path.parent)
        return True

    def make_directory(self, path: Path, mode: int = DIRECTORY_MODE, *, durable: bool = True) -> bool:
        """Make a directory. Return False when one is already there; anything else of that name is an error."""
        self.point("make-directory")
        try:
            path.mkdir(mode)
            path.chmod(mode)
        except FileExistsError as error:
            if path.is_dir() and not path.is_symlink():
                return False
            raise _failure("make the directory", path, error) from error
        except OSError as error:
            raise _failure("make the directory", path, error) from error
        if durable:
            self.sync_directory(path.parent)
        return True

    def move_directory(self, path: Path, target: Path) -> bool:
        """Give a directory another name, which a `sync_directory` makes durable. Return whether it was there."""
        self.point("move-directory")
        try:
            path.rename(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failure("move", path, error) from error
        return True

    def sync_file(self, path: Path) -> None:
        """Bring what was written to a file to the disk."""
        self.point("sync-file")
        _fsync(path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        """Bring the names of a directory to the disk."""
        self.point("sync-directory")
        _fsync(path, os.O_RDONLY | os.O_DIRECTORY)

    def _write_temporary(self, temporary: Path, data: bytes, mode: int) -> None:
        self.point("create")
        descriptor = os.open(temporary, CREATE, mode)
        try:
            os.fchmod(descriptor, mode)
            self.point("write")
            write_all(descriptor, data)
            self.point("sync")  # before the rename, or a crash could leave the name on an empty file
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def create_file(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Make a new file without syncing it: for what is made anew after a crash. Raise OSError."""
    descriptor = os.open(path, CREATE, mode)
    try:
        os.fchmod(descriptor, mode)
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _fsync(path: Path, flags: int) -> None:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _failure("sync", path, error) from error


def _failure(verb: str, path: Path, error: OSError) -> IoError:
    return IoError(f"cannot {verb} {path}: {error.strerror or error}", {"errno": error.errno, "path": str(path)})
