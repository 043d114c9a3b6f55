"""Files that deployments pin, kept by content (contract 3.8)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from wfctl.errors import IoError
from wfctl.store.disk import Disk, create_file
from wfctl.store.layout import Layout, RunPaths

PREFIX = "sha256:"
PLACED_MODE = 0o500  #: read-only, and a script may be run as `./report.sh`
_BLOCK = 1024 * 1024
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def store_artifact(layout: Layout, disk: Disk, content: bytes) -> str:
    """Keep a content for good and return its name for a definition, `sha256:HEX`. What is there intact is not written again."""
    name = PREFIX + hashlib.sha256(content).hexdigest()
    if artifact_problem(layout, name) is not None:
        disk.write_file(layout.artifact(name.removeprefix(PREFIX)), content)
    return name


def artifact_problem(layout: Layout, name: str) -> str | None:
    """Given `sha256:HEX`, return why that content cannot be used, or None when it is there and intact.

    An unchanged file is hashed once: any write changes its signature.
    """
    digest = name.removeprefix(PREFIX)
    path = layout.artifact(digest)
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return f"{path} is no regular file"
        if _hash(str(path), (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)) != digest:
            return f"{path} was changed: its content is not that of its name; pin it again with `wfctl deployment set --file`"
    except FileNotFoundError:
        return f"{name} is not in the store; pin the file with `wfctl deployment set --file`"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def read_artifact(layout: Layout, name: str) -> bytes:
    """Return a content, checked against its name. Raise IoError when it is gone or was changed."""
    digest = name.removeprefix(PREFIX)
    path = layout.artifact(digest)
    try:
        with open(os.open(path, _READ), "rb") as file:
            content = file.read()
    except OSError as error:
        raise IoError(f"cannot read {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise IoError(f"{path} was changed: its content is not that of its name", {"errno": errno.EIO, "path": str(path)})
    return content


def place_files(layout: Layout, run: RunPaths, files: Mapping[str, str]) -> None:
    """Put the pinned files, read-only, into the run's `files/`, and link them into its default working directory.

    They are copies: a job that changes one changes nothing for the next run. A name that is taken already is replaced, as
    after a crash. Raise IoError.
    """
    for name, artifact in files.items():
        content = read_artifact(layout, artifact)
        try:
            with contextlib.suppress(FileNotFoundError):
                (run.files / name).unlink()
            create_file(run.files / name, content, PLACED_MODE)
            with contextlib.suppress(FileNotFoundError):
                (run.work / name).unlink()
            (run.work / name).symlink_to(Path("../files") / name)
        except OSError as error:
            raise IoError(
                f"cannot place {name} into {run.root}: {error.strerror}", {"errno": error.errno, "path": name}
            ) from error


def unused_artifacts(layout: Layout, used: set[str]) -> list[str]:
    """Given every `sha256:HEX` that something names, return the hex digests that nothing names. Raise OSError."""
    kept = {name.removeprefix(PREFIX) for name in used}
    return sorted(path.name for path in layout.artifacts.iterdir() if not path.name.startswith(".") and path.name not in kept)


@lru_cache(maxsize=1024)
def _hash(path: str, signature: tuple[int, int, int, int]) -> str:
    found = hashlib.sha256()
    with open(os.open(path, _READ), "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def read_for_pinning(path: Path) -> bytes:
    """Return the content of a file to be pinned. Raise IoError for anything but a regular file that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hang the command
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise IoError(f"cannot pin {path}: it is no regular file", {"path": str(path)})
            return file.read()
    except OSError as error:
        raise IoError(f"cannot pin {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
