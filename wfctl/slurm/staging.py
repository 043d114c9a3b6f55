"""Bringing an execution's files to the shared folder before its job, and home after it (contract 3.8, 6.4, 6.5, 6.15).

The run's own directory `runs/ID` stays what it is on one machine: what wfctl decides by, backs up and lets go lies there. The
shared folder holds a mirror of it for the node. What a node could not read under the store's paths is told to it under those of
the mirror: input, files, output and the rest; arguments and the deployment's own variables are never rewritten.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from wfctl.keeper.protocol import Ended, LaunchRequest, Refused
from wfctl.keeper.records import reserve, write_record
from wfctl.slurm.folder import CLAIM, REQUEST, STOP, WORD, Folder, make_directory, write_whole
from wfctl.store.disk import CREATE, FILE_MODE, write_all
from wfctl.store.outputs import log_size, release_middle

_MIRRORED = ("WFCTL_INPUT", "WFCTL_FILES", "WFCTL_OUTPUT", "WFCTL_CHECKPOINT", "WFCTL_INTERRUPT", "WFCTL_RESUME")
_OF_THE_RUN = ("run.json", "input.json")
_BROUGHT = ("checkpoint", "resume.json")
_LEFT_BY_THE_JOB = {"output": (1 << 20) + 1, "interrupt": 128 * 1024 + 1, "checkpoint": None}  #: bytes; more is refused anyway
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def bring(folder: Folder, request: LaunchRequest) -> bool:
    """Put everything that an execution needs on the shared folder; False where somebody owns it already.

    It may be repeated until its job is submitted. Nothing is synced: what a crash takes keeps the program from being run, and a
    network file system shows another machine what was closed. Raise OSError.
    """
    own, place = Path(request.directory), folder.execution(request.run, request.k)
    mirror = place.parent
    os.close(folder.opened())
    for path in (mirror, mirror / "work", mirror / "files", place):
        make_directory(path)
    if (place / CLAIM).exists():
        return False
    for name in _OF_THE_RUN:
        if not (mirror / name).exists():
            _copy(own.parent / name, mirror / name)
    _bring_files(own.parent, mirror)
    for name in _BROUGHT:
        _copy(own / name, place / name)
    os.close(os.open(place / STOP, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))
    _put(place / REQUEST, told(request, own.parent, mirror))
    return True


def _put(path: Path, content: bytes) -> None:
    """Write a file that nobody reads yet, in place of what is there. Raise OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, CREATE, FILE_MODE)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def told(request: LaunchRequest, own: Path, mirror: Path) -> bytes:
    """Return what the node is told to run: texts that end with a NUL each, as `job.py` reads them.

    A NUL within one, which no system would take, is left to be refused there: as a program of no name.
    """
    environment = dict(request.environment)
    environment |= {name: _mirrored(environment[name], own, mirror) for name in _MIRRORED if name in environment}
    argv = list(request.argv)
    variables = [f"{name}={value}" for name, value in environment.items()]
    if any("\0" in text for text in (*argv, *variables)):
        argv, variables = [""], []
    paths = [_mirrored(path, own, mirror) for path in (request.cwd, request.stdout, request.stderr)]
    texts = [*paths, str(request.umask), str(len(argv)), *argv, *variables]
    return b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)


def _mirrored(path: str, own: Path, mirror: Path) -> str:
    """Return a path below the run's directory as it is on the shared folder; any other stays."""
    begins = f"{own}/"
    return f"{mirror}/{path[len(begins) :]}" if path.startswith(begins) else path


def _bring_files(own: Path, mirror: Path) -> None:
    """The pinned files, and the links to them in the default working directory."""
    if not (own / "files").is_dir():
        return
    for path in (own / "files").iterdir():
        target = mirror / "files" / path.name
        if not target.exists():
            _copy(path, target, mode=stat.S_IMODE(path.lstat().st_mode))
        link = mirror / "work" / path.name
        if not os.path.lexists(link):
            link.symlink_to(Path("../files") / path.name)


def _copy(source: Path, target: Path, *, mode: int = FILE_MODE, most: int | None = None, is_durable: bool = False) -> bool:
    """Copy a regular file, in place of what is there; False where there is none. Raise OSError."""
    descriptor = _open_regular(source)
    if descriptor is None:
        return False
    with open(descriptor, "rb") as old:
        part = target.with_name(f".{target.name}.part")
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        with open(os.open(part, CREATE, FILE_MODE), "wb") as new:
            if most is None:
                shutil.copyfileobj(old, new, 1 << 20)
            else:
                new.write(old.read(most))
            new.flush()
            if is_durable:
                os.fsync(new.fileno())
            if mode != FILE_MODE:
                os.fchmod(new.fileno(), mode)
        part.rename(target)
    return True


def _open_regular(path: Path) -> int | None:
    """Open a file that a job may have made into anything; None where it is no regular file. Raise OSError."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


# Home -----------------------------------------------------------------------------------------------------------------


def bring_home(folder: Folder, run: str, k: int, own: Path) -> None:
    """Given `runs/ID/k`, bring there what the job left. Raise OSError, where a part of it is missing."""
    place = folder.execution(run, k)
    make_directory(own.parent)
    make_directory(own)
    for name, most in _LEFT_BY_THE_JOB.items():
        _copy(place / name, own / name, most=most, is_durable=True)  # before the record that vouches for it


def record(outcome: Ended | Refused, own: Path) -> None:
    """Write the exit record into `runs/ID/k`, as a keeper does: by it the next driver knows. Raise OSError."""
    with contextlib.suppress(FileExistsError):
        reserve(own)
    descriptor = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_record(descriptor, outcome)
    finally:
        os.close(descriptor)


def write_word(
    folder: Folder, run: str, k: int, word: Mapping[str, object], own: Path, *, is_last: bool = True, is_durable: bool = False
) -> None:
    """Write Slurm's own word into `runs/ID/k`, and its last one beside the exit record. Raise OSError.

    `is_durable`: what it says of an end stands nowhere else once Slurm has forgotten it.
    """
    content = json.dumps(word, ensure_ascii=False, indent=2).encode() + b"\n"
    if is_last and folder.execution(run, k).is_dir():
        write_whole(folder.execution(run, k) / WORD, content, is_durable=False)
    write_whole(own / WORD, content, is_durable=is_durable)


class LogCarrier:
    """Carries what a run prints home as it grows, so that it is read there as on one machine.

    Of what is more than twice `most` behind, only head and tail are carried; what is too much is released on the
    shared folder too, where its file system can (6.15).
    """

    def __init__(self, folder: Folder, run: str, own: Path) -> None:
        """Given the run's own directory."""
        self._pairs = [(folder.run(run) / name, own / name) for name in ("stdout.log", "stderr.log")]
        self._released: dict[Path, int] = {}

    def carry(self, most: int) -> None:
        """Carry what is new of both streams. Raise OSError."""
        for source, target in self._pairs:
            size = log_size(source)
            if size > log_size(target):
                _carry(source, target, most)
            if size > most:
                with contextlib.suppress(OSError):  # the supervisor's own look says what cannot be bounded
                    self._released[source] = release_middle(source, most, done_to=self._released.get(source, 0))


def _carry(source: Path, target: Path, most: int) -> None:
    reading = _open_regular(source)
    if reading is None:
        return
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
        try:
            done, size = os.fstat(writing).st_size, os.fstat(reading).st_size
            begin = done
            if size - done > 2 * most:
                _carry_stretch(reading, writing, done, max(done, most // 2))
                begin = size - most // 2
            _carry_stretch(reading, writing, begin, size)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _carry_stretch(reading: int, writing: int, start: int, end: int) -> None:
    at = start
    while at < end and (data := os.pread(reading, min(1 << 20, end - at), at)):
        os.lseek(writing, at, os.SEEK_SET)
        write_all(writing, data)
        at += len(data)
