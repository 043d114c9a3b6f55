"""A run's directory: what wfctl puts there for the job, and what the job leaves (contract 2.8, 6.4, 6.5).

Preparing stands between an admission and its launch, so it makes few system calls and syncs nothing: what a crash takes is
made anew, or is of a run that was never launched.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from wfctl.core.instants import format_instant, parse_instant
from wfctl.core.model import RUN_ID, Json
from wfctl.core.plain import json_bytes
from wfctl.core.strict_json import parse_json
from wfctl.errors import IoError
from wfctl.store.disk import CREATE, DIRECTORY_MODE, FILE_MODE, Disk, write_all
from wfctl.store.layout import Layout, RunPaths
from wfctl.value import Value

LARGEST_OUTPUT = 1024 * 1024  #: bytes (contract 6.5)
LARGEST_INTERRUPT = 128 * 1024  #: bytes: a message, and a schema of up to 64 KiB
DEEPEST_OUTPUT = 48  #: nesting; a frame of JSON-RPC holds 64
_AT_ONCE = 10_000  #: names of directories
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class RunIdentity(Value):
    """What `run.json` says: whose run this is, should the ledger not know it any more (contract 2.8)."""

    run_id: str
    deployment_id: str
    deployment_revision: int
    schedule_id: str | None = None  #: None for a manual run
    instant: datetime | None = None
    revision: int | None = None


class JobFile(Value, kw_only=False):
    """A JSON file that a job may have written: not there, good, or bad with what is wrong."""

    is_there: bool = False
    value: Json = None
    problem: str | None = None


class Checkpoint(Value):
    """What `checkpoint.json` says: how far a run had come when it stopped (contract 6.5)."""

    attempt: int
    k: int
    steps_done: int
    digest: str | None  #: hex SHA-256 of the job's own checkpoint, None where it left none

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form."""
        return {"attempt": self.attempt, "k": self.k, "steps_done": self.steps_done, "digest": self.digest}


# Preparing ----------------------------------------------------------------------------------------------------------------


def prepare_run(layout: Layout, identity: RunIdentity, bound_input: Mapping[str, Json], files: Mapping[str, str]) -> RunPaths:
    """Make the directory of a run that was never launched: identity, input, work directory and pinned files.

    It may be repeated. Raise IoError.
    """
    from wfctl.store.artifacts import place_files

    run = layout.run(identity.run_id)
    root = str(run.root)
    try:
        for path in (root, f"{root}/work", f"{root}/files"):
            _make_directory(path)
        _put(f"{root}/run.json", identity_bytes(identity))
        _put(f"{root}/input.json", input_bytes(bound_input))
    except OSError as error:
        raise _failure("prepare", run.root, error) from error
    if files:
        place_files(layout, run, files)
    return run


def identity_bytes(identity: RunIdentity) -> bytes:
    """Return the content of `run.json`."""
    return json_bytes(_identity_to_json(identity)) + b"\n"


def input_bytes(bound_input: Mapping[str, Json]) -> bytes:
    """Return the content of `input.json`."""
    return json_bytes(dict(bound_input)) + b"\n"


def prepare_execution(run: RunPaths, k: int, *, resume: Json = None) -> None:
    """Make the directory of execution k, with a copy of the last checkpoint kept and, when resumed, the resume's input.

    It may be repeated before the launch. Raise IoError.
    """
    paths = run.execution(k)
    try:
        _make_directory(str(paths.root))
        kept = last_checkpoint(run, k - 1)
        if kept is not None:
            _copy_checkpoint(run.execution(kept).checkpoint, paths.checkpoint)
        if resume is not None:
            _put(str(paths.resume), json_bytes(resume) + b"\n")
    except OSError as error:
        raise _failure("prepare", paths.root, error) from error


def _make_directory(path: str) -> None:  # texts, not Paths, here and in `_put`: they cost less than half on the launch path
    try:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
    os.chmod(path, DIRECTORY_MODE)  # noqa: PTH101 - whatever the umask (contract 2.9)


def _put(path: str, data: bytes) -> None:
    try:
        descriptor = os.open(path, CREATE, FILE_MODE)
    except FileExistsError:
        os.unlink(path)  # noqa: PTH108
        descriptor = os.open(path, CREATE, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _copy_checkpoint(source: Path, target: Path) -> None:
    import shutil

    descriptor = _open_regular(source)
    if descriptor is None:
        return
    with open(descriptor, "rb") as old:
        target.unlink(missing_ok=True)
        with open(os.open(target, CREATE, FILE_MODE), "wb") as new:
            os.fchmod(new.fileno(), FILE_MODE)
            shutil.copyfileobj(old, new, 1024 * 1024)


# What the job left --------------------------------------------------------------------------------------------------------


def read_output(run: RunPaths, k: int) -> JobFile:
    """Return what execution k wrote as its output: valid JSON of up to 1 MiB, else the problem (contract 6.5)."""
    return _read_json(run.execution(k).output, LARGEST_OUTPUT)


def read_interrupt(run: RunPaths, k: int) -> JobFile:
    """Return the object by which execution k asks for input; anything but a JSON object is a problem (contract 6.5)."""
    found = _read_json(run.execution(k).interrupt, LARGEST_INTERRUPT)
    if found.is_there and found.problem is None and not isinstance(found.value, dict):
        return JobFile(True, problem="is no JSON object")
    return found


def last_checkpoint(run: RunPaths, k: int) -> int | None:
    """Return the newest execution up to k that has a checkpoint of its own, or None."""
    for number in range(k, 0, -1):
        try:
            if stat.S_ISREG(run.execution(number).checkpoint.lstat().st_mode):
                return number
        except FileNotFoundError:
            continue
    return None


def checkpoint_digest(run: RunPaths, k: int) -> str | None:
    """Return the hex SHA-256 of execution k's checkpoint; None where there is no regular file. Raise OSError."""
    import hashlib

    descriptor = _open_regular(run.execution(k).checkpoint)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path, largest: int) -> JobFile:
    try:
        path.lstat()
        descriptor = _open_regular(path)
        if descriptor is None:
            return JobFile(True, problem="is no regular file")
        with open(descriptor, "rb") as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        return JobFile()
    except OSError as error:
        return JobFile(True, problem=f"cannot be read: {error.strerror}")
    if len(data) > largest:
        return JobFile(True, problem=f"is larger than {largest} bytes")
    try:
        return JobFile(True, parse_json(data, deepest=DEEPEST_OUTPUT))
    except ValueError as error:
        return JobFile(True, problem=f"is not valid JSON: {error}")


def _open_regular(path: Path) -> int | None:
    """Open a file that a job may have made into anything; None where it is no regular file. Raise OSError."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return None
    except OSError:
        if path.exists() and stat.S_ISREG(path.lstat().st_mode):
            raise
        return None  # a link, or a socket
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


# wfctl's own records ------------------------------------------------------------------------------------------------------


def write_checkpoint(run: RunPaths, disk: Disk, checkpoint: Checkpoint) -> None:
    """Write `checkpoint.json` durably. Raise IoError."""
    disk.write_file(run.checkpoint, json_bytes(checkpoint.to_json()) + b"\n")


def read_checkpoint(run: RunPaths) -> Checkpoint | None:
    """Return what `checkpoint.json` says, None where there is none. Raise ValueError for one that cannot be read."""
    plain = _read_record(run.checkpoint)
    if plain is None:
        return None
    try:
        attempt, k, steps_done, digest = (plain[name] for name in ("attempt", "k", "steps_done", "digest"))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.checkpoint} lacks {error}") from error
    if not all(isinstance(number, int) for number in (attempt, k, steps_done)) or not isinstance(digest, str | None):
        raise ValueError(f"{run.checkpoint} has values of the wrong kind")
    return Checkpoint(attempt=attempt, k=k, steps_done=steps_done, digest=digest)


def read_identity(run: RunPaths) -> RunIdentity | None:
    """Return whose run a directory is, None where it does not say. Raise ValueError where it cannot be read."""
    plain = _read_record(run.identity)
    if plain is None:
        return None
    try:
        instant = plain["instant"]
        return RunIdentity(**{**plain, "instant": None if instant is None else parse_instant(instant)})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.identity} is not what wfctl writes") from error


def list_run_directories(layout: Layout) -> list[str]:
    """Return the ids of the run directories that are there, ascending. Raise OSError."""
    found = {number: name for part in numbered_directories(layout) for number, name in part.items()}
    return [found[number] for number in sorted(found)]


def numbered_directories(layout: Layout) -> Iterator[dict[int, str]]:
    """Give the ids of the run directories that are there, by number, some at a time: there may be very many. Raise OSError."""
    is_run = re.compile(RUN_ID, re.ASCII).fullmatch
    with os.scandir(layout.runs) as entries:
        while names := [entry.name for entry in islice(entries, _AT_ONCE)]:
            yield {int(name[4:]): name for name in names if is_run(name) and name != "run-000000"}


def remove_run(run: RunPaths) -> None:
    """Remove a run's directory, whatever the job made of it; links in it are not followed. Raise IoError."""
    import shutil

    try:
        try:
            shutil.rmtree(run.root)
        except PermissionError:  # a job may have taken its own rights away
            for directory, names, _ in os.walk(run.root):
                for name in names:
                    if not (path := Path(directory, name)).is_symlink():
                        path.chmod(DIRECTORY_MODE)
            shutil.rmtree(run.root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failure("remove", run.root, error) from error


def _identity_to_json(identity: RunIdentity) -> dict[str, Json]:
    return {
        "run_id": identity.run_id,
        "deployment_id": identity.deployment_id,
        "deployment_revision": identity.deployment_revision,
        "schedule_id": identity.schedule_id,
        "instant": None if identity.instant is None else format_instant(identity.instant),
        "revision": identity.revision,
    }


def _read_record(path: Path) -> Any:
    found = _read_json(path, LARGEST_OUTPUT)
    if found.problem is not None:
        raise ValueError(f"{path} {found.problem}")
    return found.value if found.is_there else None


def _failure(verb: str, path: Path, error: OSError) -> IoError:
    return IoError(f"cannot {verb} {path}: {error.strerror or error}", {"errno": error.errno, "path": str(path)})
