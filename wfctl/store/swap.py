"""Putting a restored state into the place of what a store holds, so that a crash in the middle can be gone on from.

What is to come stands whole and synced in a directory of the store before the first step. The file `restoring` then says what
is going on; it is there from before the first rename until after the last one, and nobody else opens a store that has it. Each
step may be repeated: first everything that goes is put aside, then everything that comes is moved in, the ledger last.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wfctl.errors import DamagedStore, IoError
from wfctl.store.disk import Disk
from wfctl.store.layout import Layout

STAGING = ".restore.tmp"
KEPT = "before-restore-"  #: and when: the directory for what was replaced
REPLACED = ("ledger.db-wal", "ledger.db-shm", "ledger.db", "schedules", "deployments", "wfctl.toml", "notices")
_WHOLE, _MERGED = ("schedules", "deployments"), ("artifacts", "runs")
_ASIDE, _INSTALL = "aside", "install"
_LARGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Swap:
    """What is being put into place: out of which backup, and where what it replaces goes."""

    backup: Mapping[str, Any]  #: what tells it from others
    kept: str | None  #: the name of the directory for what is replaced; None: nothing was there
    items: tuple[str, ...] = ()  #: the names of what is replaced
    phase: str = _ASIDE


def staging(layout: Layout) -> Path:
    """Return where what is to come is made ready."""
    return layout.root / STAGING


def kept_directories(layout: Layout) -> list[Path]:
    """Return the directories of what restores have replaced, oldest first."""
    try:
        return sorted(path for path in layout.root.iterdir() if path.name.startswith(KEPT) and path.is_dir())
    except OSError:
        return []


def unfinished(layout: Layout) -> Swap | None:
    """Return what was cut short; None where nothing was. Raise DamagedStore where the file cannot be read."""
    try:
        descriptor = os.open(layout.restoring, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedStore(f"{layout.restoring} cannot be read: {error.strerror}", {"path": str(layout.restoring)}) from error
    try:
        plain = json.loads(os.read(descriptor, _LARGEST))
        swap = Swap(dict(plain["backup"]), plain["kept"], tuple(plain["items"]), str(plain["phase"]))
        if (
            not set(swap.items) <= {*REPLACED, *_MERGED}
            or (swap.kept and not swap.kept.startswith(KEPT))
            or "/" in str(swap.kept)
        ):
            raise ValueError("it names what no restore moves")
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{layout.restoring} is not what a restore writes ({error}); look at {staging(layout)} and {KEPT}*"
        raise DamagedStore(said, {"path": str(layout.restoring)}) from error
    finally:
        os.close(descriptor)
    return swap


def begin(layout: Layout, disk: Disk, swap: Swap) -> None:
    """Say that this store is being restored. What is to come is complete and synced by now. Raise IoError."""
    _note(layout, disk, swap if swap.items else replace(swap, phase=_INSTALL))


def give_up(layout: Layout, disk: Disk) -> None:
    """Take back what `begin` said, before the first step. Raise IoError."""
    disk.remove_file(layout.restoring)


def carry_on(layout: Layout, disk: Disk) -> Swap:
    """Do all steps that are left, of a restore that has just begun or was cut short. Raise IoError, DamagedStore."""
    swap = unfinished(layout)
    assert swap is not None
    source = staging(layout)
    if swap.phase == _ASIDE:
        if not (source / "ledger.db").exists():
            raise DamagedStore(
                f"{source} was removed while it was needed; what was there before is in {layout.root / (swap.kept or '')}"
            )
        _put_aside(layout, disk, swap)
        swap = replace(swap, phase=_INSTALL)
        _note(layout, disk, swap)  # from here on what stands in the store may be the new, and is put aside no more
    _install(layout, disk, source)
    disk.point("remove-staging")
    shutil.rmtree(source, ignore_errors=True)
    disk.remove_file(layout.restoring)
    return swap


def _note(layout: Layout, disk: Disk, swap: Swap) -> None:
    plain = {"format": 1, "phase": swap.phase, "kept": swap.kept, "items": list(swap.items), "backup": dict(swap.backup)}
    disk.write_file(layout.restoring, json.dumps(plain).encode() + b"\n")


def _put_aside(layout: Layout, disk: Disk, swap: Swap) -> None:
    assert swap.kept is not None
    kept = layout.root / swap.kept
    disk.make_directory(kept)
    for name in swap.items:
        disk.move_directory(layout.root / name, kept / name)
    disk.sync_directory(kept)
    disk.sync_directory(layout.root)


def _install(layout: Layout, disk: Disk, source: Path) -> None:
    for name in _WHOLE:
        disk.move_directory(source / name, layout.root / name)
    for name in _MERGED:
        target = layout.root / name
        disk.make_directory(target)
        for path in _entries(source / name):
            if not os.path.lexists(target / path.name):
                disk.move_directory(path, target / path.name)
        disk.sync_directory(target)
    disk.move_directory(source / "wfctl.toml", layout.root / "wfctl.toml")
    disk.sync_directory(layout.root)  # all of it, before the ledger that knows of it
    disk.move_directory(source / "ledger.db", layout.ledger)
    disk.sync_directory(layout.root)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise IoError(f"cannot read {directory}: {error.strerror}", {"errno": error.errno, "path": str(directory)}) from error
