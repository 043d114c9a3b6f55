"""The shared folder, as both sides use it: where an execution's files lie, who owns the execution, and how it ended.

Below it each store has a directory of its own, named by its id, and there each run one that mirrors `runs/ID`:

    FOLDER/STORE-ID/run-000001/       input.json files/ work/ stdout.log stderr.log
                           …/1/       claim stop request end slurm slurm.log, and what the job leaves: output, checkpoint …

`claim` is made with O_EXCL, by the job before it runs the program, or by the executor to keep that from ever happening:
whoever comes first has decided. `stop` is there from the beginning, so that a node finds what is written to it later without
waiting for what its network file system remembers. `end` is written by the job, whole; `slurm` beside it is what Slurm says.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from wfctl.core.instants import from_micros
from wfctl.keeper.protocol import Ended, Refused, RefusedAt
from wfctl.store.disk import CREATE, DIRECTORY_MODE, FILE_MODE, write_all
from wfctl.value import Value

CLAIM, STOP, END, WORD, REQUEST, SAID, TOKEN = "claim", "stop", "end", "slurm", "request", "slurm.log", "token"
LARGEST = 1 << 20  #: bytes that are read of any of these
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TAIL = 600


class FolderProblem(Exception):
    """The shared folder cannot be used, and why."""


class Claim(Value):
    """Who owns an execution, for good."""

    is_ours: bool  #: the executor's: its program never ran and never will
    job: str | None
    node: str | None
    at_us: int | None
    has_heard: bool  #: its job has taken notice of a stop


class End(Value):
    """What the exit record of a job says."""

    outcome: Ended | Refused
    node: str | None
    heard: tuple[str, ...]  #: the signals that came from elsewhere than from its program
    was_stopped: bool  #: by us
    was_given_up: bool = False  #: because Slurm had given its job up


class Folder:
    """The part of the shared folder that belongs to one store. Not for the driver's thread: a network may not answer.

    Where its file system is not mounted, an empty directory stands in its place; to take what lies there for the truth would be
    to launch again what is at work. So a token lies in the folder and at home, and without it nothing is made or concluded.
    """

    def __init__(self, shared: Path, store_id: str, home: Path) -> None:
        """`home`: the directory of this machine where the token is kept: that of the store's runs."""
        self.shared = shared
        self.root = shared / store_id
        self._token = home / ".slurm"

    def prepare(self) -> None:
        """Make the store's own directory. Raise FolderProblem where it is not safe, not there, or not the one it was."""
        try:
            status = self.shared.stat()
            if not stat.S_ISDIR(status.st_mode):
                raise FolderProblem(f"{self.shared} is no directory")
            if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
                raise FolderProblem(
                    f"others may rename what lies in {self.shared} (mode {stat.S_IMODE(status.st_mode):04o}); run"
                    f" `chmod go-w {self.shared}` or `chmod +t {self.shared}`"
                )
            make_directory(self.root)
            own = self.root.lstat()
        except OSError as error:
            raise FolderProblem(f"{error.filename or self.shared}: {error.strerror}") from error
        if own.st_uid != os.geteuid():
            raise FolderProblem(f"{self.root} belongs to uid {own.st_uid}, not to the store's owner")
        self._know()

    def _know(self) -> None:
        """Hold the token of the folder against that of this machine; where one has none yet, it takes the other's."""
        try:
            mine, its = read_table(self._token) or {}, read_table(self.root / TOKEN) or {}
            known = mine.get(str(self.shared))
            if its.get("token") is None and known is None:
                its = {"token": os.urandom(16).hex()}
                write_whole(self.root / TOKEN, json.dumps(its).encode() + b"\n")
            elif its.get("token") is None:
                with contextlib.suppress(OSError):
                    self.root.rmdir()  # made a moment ago, in the wrong place
                raise FolderProblem(
                    f"{self.shared} is not the folder it was: its file system seems not to be mounted; if it was replaced for"
                    f" good, remove {self._token}"
                )
            if known != its["token"]:
                write_whole(self._token, json.dumps({**mine, str(self.shared): its["token"]}).encode() + b"\n")
        except OSError as error:
            raise FolderProblem(f"{error.filename or self.root}: {error.strerror}") from error

    def check(self) -> bool:
        """Tell whether there is anything of this store. Raise OSError where there was, and is not now."""
        if read_table(self.root / TOKEN) is not None:
            return True
        if str(self.shared) in (read_table(self._token) or {}):
            os.close(self.opened())
        return False

    def opened(self) -> int:
        """Return a descriptor of the store's own directory. Raise OSError where that is not the one it was."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.stat(TOKEN, dir_fd=descriptor)
        except FileNotFoundError:
            os.close(descriptor)
            raise OSError(errno.ENOENT, "its token is not there: it is not mounted, or was emptied", str(self.root)) from None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def run(self, run: str) -> Path:
        """Return the directory of a run."""
        return self.root / run

    def execution(self, run: str, k: int) -> Path:
        """Return the directory of an execution."""
        return self.root / run / str(k)

    # -- who owns it -----------------------------------------------------------------------------------------------------

    def fence(self, run: str, k: int) -> Claim:
        """Keep an execution from ever being run, unless its job came first; return who owns it. Raise OSError."""
        place = self.execution(run, k)
        mark = json.dumps({"by": "executor", "at": time.time_ns() // 1000}).encode() + b"\n"
        root = self.opened()  # everything by it: a file system that goes meanwhile leaves nothing half concluded
        try:
            for name in (run, f"{run}/{k}"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, DIRECTORY_MODE, dir_fd=root)
            descriptor = os.open(f"{run}/{k}/{CLAIM}", CREATE, FILE_MODE, dir_fd=root)
        except FileExistsError:
            return self.claim(run, k) or Claim(is_ours=False, job=None, node=None, at_us=None, has_heard=False)
        finally:
            os.close(root)
        try:
            write_all(descriptor, mark)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(place)
        with contextlib.suppress(FileNotFoundError):
            (place / REQUEST).unlink()
        return Claim(is_ours=True, job=None, node=None, at_us=None, has_heard=False)

    def claim(self, run: str, k: int) -> Claim | None:
        """Return who owns an execution; None while nobody does. Raise OSError.

        A claim that was not yet, or not wholly, written is its job's: the executor's own is read by nobody else meanwhile.
        """
        content = _read(self.execution(run, k) / CLAIM)
        if content is None:
            return None
        first, *rest = content.split(b"\n")
        mark = _table(first)
        at = mark.get("at")
        return Claim(
            is_ours=mark.get("by") == "executor",
            job=_text(mark.get("job")),
            node=_text(mark.get("node")),
            at_us=at if isinstance(at, int) else None,
            has_heard=b"heard" in rest,
        )

    def ask_to_stop(self, run: str, k: int, grace_s: float, *, is_given_up: bool = False) -> None:
        """Have the job of an execution end its program, once it looks. Raise OSError."""
        why = " given-up" if is_given_up else ""
        path = self.execution(run, k) / STOP
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            write_all(descriptor, f"{grace_s:.3f}{why}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -- how it ended ----------------------------------------------------------------------------------------------------

    def end(self, run: str, k: int, *, anew: bool = False) -> End | None:
        """Return what the exit record says; None where there is none that is whole and of this execution. Raise OSError.

        `anew`: have a network file system forget that there was none.
        """
        place = self.execution(run, k)
        if anew:
            _refresh(place)
        content = _read(place / END)
        if content is None or not content.endswith(b"\n"):
            return None
        said = _table(content)
        if (said.get("run"), said.get("k")) != (run, k):
            return None
        try:
            return _end_of(run, k, said)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def said(self, run: str, k: int) -> str:
        """Return the end of what Slurm and the job's script printed: why a program was not reached. Never fails."""
        with contextlib.suppress(OSError):
            content = _read(self.execution(run, k) / SAID) or b""
            return content[-_TAIL:].decode("utf-8", "replace").strip()
        return ""


def read_table(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None where there is none. Raise OSError."""
    content = _read(path)
    return None if content is None else _table(content) or None


def write_whole(path: Path, content: bytes, *, mode: int = FILE_MODE, is_durable: bool = True) -> None:
    """Write a file so that it is seen whole or not at all, and is durable where that is asked for. Raise OSError."""
    part = path.with_name(f".{path.name}.part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, CREATE, mode)
    try:
        write_all(descriptor, content)
        if is_durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.rename(path)
    if is_durable:
        sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory that is there already, or not; a link or a file in its place is refused. Raise OSError."""
    try:
        path.mkdir(DIRECTORY_MODE)
        path.chmod(DIRECTORY_MODE)
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_of(run: str, k: int, said: dict[str, Any]) -> End:
    outcome: Ended | Refused
    ended_at = from_micros(_whole(said["ended_us"]))
    if said["kind"] == "refused":
        outcome = Refused(run=run, k=k, errno=_whole(said["errno"]), what=RefusedAt(said["what"]), at=ended_at)
    else:
        status, signal = said["exit_status"], said["signal"]
        if (status is None) == (signal is None):
            raise ValueError("either an exit status or a signal")
        outcome = Ended(
            run=run,
            k=k,
            pid=_whole(said["pid"]),
            started_at=from_micros(_whole(said["started_us"])),
            ended_at=ended_at,
            exit_status=None if status is None else _whole(status),
            signal=None if signal is None else _whole(signal),
            cpu_us=_whole(said["cpu_us"]),
            max_rss_bytes=_whole(said["max_rss_bytes"]),
            left_behind=_whole(said["left_behind"]),
        )
    return End(
        outcome=outcome,
        node=_text(said.get("node")),
        heard=tuple(str(each) for each in said.get("heard") or ()),
        was_stopped=said.get("was_stopped") is True,
        was_given_up=said.get("was_given_up") is True,
    )


def _refresh(place: Path) -> None:
    """Change a directory, so that what a network file system remembers of it is looked at again."""
    path = place / f".look.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.close(os.open(path, CREATE, FILE_MODE))
        path.unlink()


def _read(path: Path) -> bytes | None:
    """Return a regular file's content; None where there is none. Raise OSError."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value
