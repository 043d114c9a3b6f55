"""The directory of one notification while its command runs: what it reads, what it says, how it ended (contract 7.8).

Nothing of it needs to last: what is to be told is in the ledger, and the exit record is the keeper's to sync.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from wfctl.errors import IoError
from wfctl.store.disk import DIRECTORY_MODE, create_file
from wfctl.store.layout import Layout

LARGEST_SAID = 1024 * 1024  #: bytes of what a command says that are left on the disk while it runs
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class NoticePaths:
    """The paths of one try to tell something."""

    __slots__ = ("root", "store")

    def __init__(self, layout: Layout, number: int, tries: int) -> None:
        self.store = layout.root
        self.root = layout.notices / f"{number:06d}-{tries}"

    @property
    def event(self) -> Path:
        """The event, the standard input of the command."""
        return self.root / "event.json"

    @property
    def said(self) -> Path:
        """What the command wrote, both streams."""
        return self.root / "said.log"


def prepare(paths: NoticePaths, event: bytes) -> None:
    """Make the directory anew, with the event in it. Raise IoError."""
    try:
        with contextlib.suppress(FileExistsError):
            paths.root.parent.mkdir(DIRECTORY_MODE)
        remove(paths)
        paths.root.mkdir(DIRECTORY_MODE)
        create_file(paths.event, event)
    except OSError as error:
        message = f"cannot make {paths.root}: {error.strerror or error}"
        raise IoError(message, {"errno": error.errno, "path": str(paths.root)}) from error


def remove(paths: NoticePaths) -> None:
    """Take the directory away, if it is there."""
    shutil.rmtree(paths.root, ignore_errors=True)


def remove_others(layout: Layout, kept: Iterable[NoticePaths]) -> None:
    """Take away every directory but those: what an earlier supervisor did not come to."""
    names = {paths.root.name for paths in kept}
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(layout.notices)):
            if entry.name not in names and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)


def bound_said(paths: NoticePaths) -> None:
    """Empty what the command wrote where that has become too much: it goes on at the beginning."""
    with contextlib.suppress(OSError):
        if paths.said.lstat().st_size > LARGEST_SAID:
            os.truncate(paths.said, 0)


def tail(path: Path, most: int) -> str | None:
    """Return the last `most` bytes of a file as text, from the beginning of a line where there is one; None without any."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        start = max(0, status.st_size - most)
        data = os.pread(descriptor, most, start)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if start and b"\n" in data[:-1]:
        data = data[data.index(b"\n") + 1 :]
    return data.decode("utf-8", "replace")
