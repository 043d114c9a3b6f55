"""What Linux offers and the standard library does not: subreaper, wall-clock timer, directory watch, holes, pidfd helpers.

Each says what happens where kernel or libc lacks it; wfctl is right without any of them, only less prompt or thrifty.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_CLOCK_REALTIME = 0
_TFD_TIMER_ABSTIME, _TFD_TIMER_CANCEL_ON_SET = 1, 2
_FAR_AWAY_S = 1 << 33  # the year 2242
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_PIDFD_SIGNAL_PROCESS_GROUP = 4  # Linux 6.9
_TIME_ERROR = 5
_IN_ATTRIB, _IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_IN_ONLYDIR, _IN_Q_OVERFLOW, _IN_IGNORED = 0x01000000, 0x4000, 0x8000
_WATCHED = _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_ONLYDIR
_INOTIFY_EVENT = struct.Struct("iIII")


#: errno -> what of the machine is used up or taken away, for as long as it is (contract 7.7)
USED_UP = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EROFS: "read-only",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "processes",
    errno.EFBIG: "file-size",
}


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """Call a libc function that returns -1 on failure. Raise OSError with its errno; ENOSYS where libc lacks it."""
    try:
        function = getattr(_libc(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"no {name} in this libc") from None
    result = int(function(*arguments))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


# This process ----------------------------------------------------------------------------------------------------------


def set_subreaper() -> bool:
    """Make this process the parent of what its descendants leave behind; return False where it cannot (init is)."""
    with contextlib.suppress(OSError):
        _call("prctl", PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
        return True
    return False


def set_process_name(name: str) -> None:
    """Show `name` (15 bytes) in process lists; what is launched afterwards has its own. Does nothing where it cannot."""
    with contextlib.suppress(OSError):
        _call("prctl", PR_SET_NAME, ctypes.c_char_p(name.encode()), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


@functools.cache
def boot_id() -> str:
    """Return the kernel's random id of this boot. Raise OSError without /proc."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


# Other processes -------------------------------------------------------------------------------------------------------


def boottime_ns() -> int:
    """Return nanoseconds since the machine was booted, time asleep included: the clock that marks and keepers share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat that tell who a process is."""

    state: str  #: one letter; Z and X are dead
    parent: int
    group: int
    session: int
    start_time: int  #: clock ticks since boot

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """Given a pid, return what /proc says of it, or None when there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 1024)
    except OSError:  # ESRCH: it went away in between
        return None
    finally:
        os.close(descriptor)
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    return ProcessStat(fields[0].decode("ascii"), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def process_start_time(pid: int) -> int | None:
    """Given a pid, return its start in clock ticks since boot (a zombie has one too), or None when there is no such process."""
    stat = process_stat(pid)
    return stat.start_time if stat else None


def is_same_process(pid: int, start_time: int, boot: str) -> bool:
    """Tell whether the process that had this pid and start time in that boot still lives. A zombie does not."""
    if boot != boot_id():
        return False
    stat = process_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.is_alive


def pidfd_open(pid: int) -> int | None:
    """Given a pid, return a descriptor that becomes readable when the process ends, or None when there is no such process.

    Raise OSError where the kernel has no pidfd (before 5.3) or no descriptor is free: poll `is_same_process` instead.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def signal_process(pid: int, start_time: int, boot: str, signum: int) -> bool:
    """Send a signal to exactly that process: pinned first, then compared, then signalled. Return False when it is gone."""
    return _send(pid, start_time, boot, signum, to_group=False)


def signal_group(pid: int, start_time: int, boot: str, signum: int) -> bool:
    """Send a signal to the group that exactly that process leads, while it lives. Return False when the process is gone."""
    return _send(pid, start_time, boot, signum, to_group=True)


def _send(pid: int, start_time: int, boot: str, signum: int, *, to_group: bool) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        pidfd = None  # without pidfd the gap between looking and signalling is a few microseconds
    try:
        if not is_same_process(pid, start_time, boot):
            return False
        if to_group:
            _signal_group(pid, pidfd, signum)
        elif pidfd is not None:
            signal.pidfd_send_signal(pidfd, signum)
        else:
            os.kill(pid, signum)
    except ProcessLookupError:
        return False
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return True


def _signal_group(pid: int, pidfd: int | None, signum: int) -> None:
    if pidfd is not None:
        try:
            return signal.pidfd_send_signal(pidfd, signum, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.killpg(pid, signum)


def living_pids() -> list[int]:
    """Return the pid of every process, zombies included. Raise OSError without /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, and often


def own_children() -> list[int] | None:
    """Return the pids of the children of this thread, zombies included; None where the kernel does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # CONFIG_PROC_CHILDREN is off
        return None


# Launching -------------------------------------------------------------------------------------------------------------

_POSIX_SPAWN_SETSIGDEF, _POSIX_SPAWN_SETSIGMASK, _POSIX_SPAWN_SETSID = 0x4, 0x8, 0x80
_OPAQUE = 1024  # bytes; more than any libc's attributes or file actions take
_SIGNAL_SET = 128


class Spawner:
    """`posix_spawn` into a new session, stdin /dev/null unless told otherwise, no signal blocked, every one at its default.

    glibc 2.36: `posix_spawn`, and so `os.posix_spawn`, leaves the two signals that it keeps for itself (32 and 33) ignored in
    the new program unless the set of defaults names them, and `sigaddset` refuses to. A set of all ones names them.
    For one thread. Raise OSError where libc has no `posix_spawn`.
    """

    def __init__(self) -> None:
        self._attributes = ctypes.create_string_buffer(_OPAQUE)
        self._actions = ctypes.create_string_buffer(_OPAQUE)
        _must("posix_spawnattr_init", self._attributes)
        flags = _POSIX_SPAWN_SETSIGDEF | _POSIX_SPAWN_SETSIGMASK | _POSIX_SPAWN_SETSID
        _must("posix_spawnattr_setflags", self._attributes, ctypes.c_short(flags))
        _must("posix_spawnattr_setsigdefault", self._attributes, b"\xff" * _SIGNAL_SET)
        _must("posix_spawnattr_setsigmask", self._attributes, b"\0" * _SIGNAL_SET)
        _must("posix_spawn_file_actions_init", self._actions)
        libc = _libc()
        self._pid = ctypes.c_int()
        self._spawn = libc.posix_spawn
        self._init, self._destroy = libc.posix_spawn_file_actions_init, libc.posix_spawn_file_actions_destroy
        self._open, self._dup2 = libc.posix_spawn_file_actions_addopen, libc.posix_spawn_file_actions_adddup2

    def redirect(self, stdout: int, stderr: int, *, stdin: int | None = None) -> None:
        """Give the next process these descriptors as its 1, 2 and 0. Raise OSError for one beyond the limit of files."""
        actions = self._actions
        self._destroy(actions)
        self._init(actions)
        failed = (
            (self._open(actions, 0, b"/dev/null", os.O_RDONLY, 0) if stdin is None else self._dup2(actions, stdin, 0))
            or self._dup2(actions, stdout, 1)
            or self._dup2(actions, stderr, 2)
        )
        if failed:
            raise OSError(failed, os.strerror(failed))

    def spawn(self, program: str, argv: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start a program and return its pid once it has been executed.

        Raise OSError when fork or exec fails, ValueError for what no system takes: a NUL, no argument at all, `=` in a name.
        """
        if not argv or any(not name or "=" in name for name in environment):
            raise ValueError("no argument, or a name that is none")
        path = _strings((program,))
        arguments = _strings(argv)
        variables = _strings([f"{name}={value}" for name, value in environment.items()])
        failed = self._spawn(ctypes.byref(self._pid), path[0], self._actions, self._attributes, arguments, variables)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return self._pid.value


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return a NULL-ended array of C strings. Raise ValueError for a NUL in one."""
    encoded = "\0".join(texts).encode(sys.getfilesystemencoding(), "surrogateescape").split(b"\0") if texts else []
    if len(encoded) != len(texts):
        raise ValueError("embedded NUL")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded)


def _must(name: str, *arguments: object) -> None:
    """Call a libc function that returns its error number. Raise OSError for it; ENOSYS where libc lacks it."""
    code = _call(name, *arguments)
    if code:
        raise OSError(code, f"{name}: {os.strerror(code)}")


# Waiting ---------------------------------------------------------------------------------------------------------------


class WallTimer:
    """A descriptor that is readable once the wall clock reaches an instant, and at once when the clock is set.

    Raise OSError where timerfd is missing: wait with a timeout, and bound how late a clock step is seen.
    """

    def __init__(self) -> None:
        self._descriptor = _call("timerfd_create", _CLOCK_REALTIME, os.O_CLOEXEC | os.O_NONBLOCK)
        self._wanted: datetime | None = None
        self.set(None)

    def fileno(self) -> int:
        return self._descriptor

    def set(self, instant: datetime | None) -> None:
        """Wait for that aware instant, or with None for a change of the clock only. An instant that passed expires at once."""
        self._wanted = instant
        micros = _FAR_AWAY_S * 1_000_000 if instant is None else max(1, _micros(instant))
        seconds, rest = divmod(micros, 1_000_000)
        value = (ctypes.c_long * 4)(0, 0, seconds, rest * 1000)
        flags = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
        _call("timerfd_settime", self._descriptor, flags, value, None)

    def read(self) -> str | None:
        """Return `expired` or `clock-changed`, or None. After a change the timer goes on waiting for its instant."""
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            self.set(self._wanted)
            return "clock-changed"
        return "expired"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _micros(instant: datetime) -> int:
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


class DirectoryWatch:
    """A descriptor that is readable when something changes in one of the directories (not below).

    Raise OSError where inotify is missing, its limits are reached, or a directory is: look at the directories now and then.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._descriptor = _call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
        self._directories: dict[int, Path] = {}
        try:
            for path in paths:
                self._directories[_call("inotify_add_watch", self._descriptor, os.fsencode(path), _WATCHED)] = path
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> set[tuple[Path, str]]:
        """Return (directory, name) of what changed since the last call; an empty name means: look at all of that directory."""
        changed: set[tuple[Path, str]] = set()
        while True:
            try:
                events = os.read(self._descriptor, 65_536)
            except BlockingIOError:
                return changed
            changed.update(self._parse(events))

    def _parse(self, events: bytes) -> Iterable[tuple[Path, str]]:
        offset = 0
        while offset < len(events):
            watch, mask, _, length = _INOTIFY_EVENT.unpack_from(events, offset)
            offset += _INOTIFY_EVENT.size
            name = os.fsdecode(events[offset : offset + length].rstrip(b"\0"))
            offset += length
            if mask & _IN_Q_OVERFLOW:
                yield from ((path, "") for path in self._directories.values())
            elif watch in self._directories:
                yield self._directories[watch], "" if mask & _IN_IGNORED else name

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


# Files -----------------------------------------------------------------------------------------------------------------


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Give the blocks of that part back; it reads as zeros, the size stays. Raise OSError (EOPNOTSUPP) where it cannot be."""
    mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    name = "fallocate" if ctypes.sizeof(ctypes.c_long) == 8 else "fallocate64"
    _call(name, descriptor, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))


def rename_anew(source: str, target: str) -> None:
    """Rename, never over what is there: raise FileExistsError. Raise OSError; ENOSYS or EINVAL where that cannot be."""
    before, after = os.fsencode(source), os.fsencode(target)
    if b"\0" in before or b"\0" in after:
        raise ValueError("embedded NUL")
    _call("renameat2", _AT_FDCWD, before, _AT_FDCWD, after, _RENAME_NOREPLACE)


# The machine -----------------------------------------------------------------------------------------------------------


def is_clock_synchronised() -> bool | None:
    """Return whether the kernel holds its clock for synchronised (adjtimex(2)); None where it does not say."""
    timex = ctypes.create_string_buffer(512)  # all zeros: nothing is set
    try:
        state = _call("adjtimex", timex)
    except OSError:
        return None
    return state != _TIME_ERROR


def sync_file_system(descriptor: int) -> None:
    """Bring everything that was written to the file system of an open file to the disk. Raise OSError.

    Where libc lacks it everything of the machine is.
    """
    try:
        _call("syncfs", descriptor)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        os.sync()


def processes_with(path: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """Return the other processes that have a file open, as far as we may look into them: pid and command line."""
    try:
        wanted = os.stat(path)  # noqa: PTH116
    except OSError:
        return []
    found = []
    for pid in living_pids():
        if pid != os.getpid() and _has_open(pid, (wanted.st_dev, wanted.st_ino)):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            found.append((pid, " ".join(words).strip()))
    return found


def _has_open(pid: int, file: tuple[int, int]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return False
    for name in names:
        try:
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == file:
            return True
    return False
