"""One pass over a directory of definition files: what stands there, without opening anything (contract 2.3)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wfctl.core.ids import is_valid_id
from wfctl.store.disk import is_temporary
from wfctl.store.layout import Kind, Layout

if TYPE_CHECKING:
    from pathlib import Path

Signature = tuple[int, int, int, int]  #: mtime and ctime in nanoseconds, size, inode: unchanged, so is the file


def signature_of(status: os.stat_result) -> Signature:
    """Return what tells whether a file has changed."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def signature_at(path: Path) -> Signature | None:
    """Return the signature of what stands at a path, None where nothing does."""
    try:
        return signature_of(path.lstat())
    except FileNotFoundError:
        return None


def scan(layout: Layout, kind: Kind) -> tuple[dict[str, Signature], list[str]]:
    """Return the signature of every file that has the name of a definition, by id, and the names that no definition can have.

    Raise OSError.
    """
    found: dict[str, Signature] = {}
    foreign: list[str] = []
    with os.scandir(layout.path_of(f"{kind}s")) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".toml") and is_valid_id(name[:-5]):
                try:
                    found[name[:-5]] = signature_of(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
            elif not is_temporary(name):
                foreign.append(name)
    return found, sorted(foreign)


def compare(
    layout: Layout, kind: Kind, noted: dict[str, tuple[str, int | None, int | None, int | None, int | None, int]]
) -> tuple[dict[str, Signature], list[str]]:
    """Given what is noted of files by their names, and emptied as they are found, return those that are not as noted, by id.

    And the names that no definition can have. Of each: its name, its signature, and 0 where that is all there is to look at.
    Nothing more is done for a file that is as noted: of a hundred thousand nearly all are. Raise OSError.
    """
    changed: dict[str, Signature] = {}
    foreign: list[str] = []
    with os.scandir(layout.path_of(f"{kind}s")) as entries:
        for entry in entries:
            name = entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            as_noted = (name, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, 0)
            if noted.pop(name, None) == as_noted:
                continue
            if name.endswith(".toml") and is_valid_id(name[:-5]):
                changed[name[:-5]] = signature_of(status)
            elif not is_temporary(name):
                foreign.append(name)
    return changed, sorted(foreign)


def scan_definitions(layout: Layout, kind: Kind) -> dict[str, Signature]:
    """Return the signature of every file that has the name of a definition, by id; nothing is opened. Raise OSError."""
    return scan(layout, kind)[0]


def foreign_files(layout: Layout, kind: Kind) -> list[str]:
    """Return the names in a definitions directory that no definition can have, to be reported and ignored. Raise OSError."""
    return scan(layout, kind)[1]
