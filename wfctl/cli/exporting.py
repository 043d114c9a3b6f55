"""Writing a file that somebody asked for by name: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from wfctl.errors import CannotCreate, IoError


def write_export(name: str, data: bytes) -> None:
    """Write a file, over an older one if there is one, which keeps its mode; a device or a pipe is written to as it is.

    Raise CannotCreate where it cannot be made, IoError where it cannot be written.
    """
    path = Path(os.path.realpath(name))  # what a link points to is replaced, not the link
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _refused(path, error) from error
    if mode is not None and stat.S_ISDIR(mode):
        raise CannotCreate(f"cannot write {path}: it is a directory", {"path": str(path)})
    if mode is not None and not stat.S_ISREG(mode):
        _write_as_it_is(path, data)
        return
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _refused(path, error) from error
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode))
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise IoError(f"cannot write {path}: {error.strerror or error}", {"path": str(path), "errno": error.errno}) from error


def _write_as_it_is(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise IoError(f"cannot write {path}: {error.strerror or error}", {"path": str(path), "errno": error.errno}) from error


def _refused(path: Path, error: OSError) -> CannotCreate:
    return CannotCreate(f"cannot make {path}: {error.strerror or error}", {"path": str(path), "errno": error.errno})
