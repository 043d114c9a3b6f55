"""What keeps the supervisor from admitting: a machine that has run out of something (contract 6.15, 7.7).

Looked at before each admission, so that nothing is admitted that could not be launched; what cannot be seen beforehand is known
by the refusal. Every problem is shown by `status` and logged when it begins, at most once a minute.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

from wfctl.errors import WfctlError
from wfctl.linux import USED_UP
from wfctl.settings import Settings

LOG = logging.getLogger("wfctl.supervisor")
INODES_NEEDED = 12  #: a run takes about ten: directories, input, logs, exit record
DESCRIPTORS_NEEDED = 16
FILE_SIZE_NEEDED = 1 << 20  #: bytes that any one file must be able to hold
SAY_EVERY_S = 60.0
_PROBE_EVERY_S = 0.1
_NOTHING = "nothing is admitted until"
_UNTIL = {
    "disk": f"the disk is full: {_NOTHING} there is room",
    "read-only": f"the file system is read-only: {_NOTHING} it can be written to",
    "descriptors": f"no file descriptor is left: {_NOTHING} there are some",
    "processes": f"the system has no process or memory left: {_NOTHING} there is",
    "file-size": f"the limit of file sizes is reached: {_NOTHING} it is raised",
}
KINDS = frozenset({*_UNTIL, "inodes"})


class Health:
    """The problems of a supervisor, by kind; those of this machine are looked for here."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.problems: dict[str, str] = {}  #: by kind: what keeps it from working as it should
        self._monotonic = monotonic
        self._said_at: dict[str, float] = {}  #: when a problem of that kind was last logged
        self._unsaid: set[str] = set()  #: kinds that came back within the minute
        self._probed_at: float | None = None
        self._refused_until: float | None = None
        self._refused: str | None = None  #: the kind of what a launch was refused for, until then

    # -- saying so -------------------------------------------------------------------------------------------------------

    def problem(self, kind: str, message: str) -> None:
        """Show a problem for as long as it is not solved; log it when it is new."""
        if kind not in self.problems:
            self._unsaid.add(kind)
        self.problems[kind] = message
        now = self._monotonic()
        if kind in self._unsaid and now >= self._said_at.get(kind, -SAY_EVERY_S) + SAY_EVERY_S:
            self._unsaid.discard(kind)
            self._said_at[kind] = now
            LOG.error("%s", message, extra={"action": f"{kind}_problem"})

    def solved(self, kind: str) -> None:
        """A problem is over, if it was there."""
        if self.problems.pop(kind, None) is not None:
            if kind not in self._unsaid:
                LOG.info("the problem with the %s is over", kind, extra={"action": f"{kind}_solved"})
            self._unsaid.discard(kind)

    @property
    def is_exhausted(self) -> bool:
        """Tell whether something of the machine is used up, so that it must be looked at again soon."""
        return not self.problems.keys().isdisjoint(KINDS)

    # -- looking ---------------------------------------------------------------------------------------------------------

    def allows(self, root: Path, settings: Settings) -> bool:
        """Tell whether the machine has what an admission needs, and keep `problems` up to date."""
        found = _of_disk(root, settings) | _of_limits()
        now = self._monotonic()
        if self._probed_at is None or not 0 <= now - self._probed_at < _PROBE_EVERY_S or self.is_exhausted:
            self._probed_at = now
            found |= _of_descriptors() | _of_processes()
        if self._refused_until is not None and now >= self._refused_until:
            self._refused_until = self._refused = None
        unseen = self._refused if not found else None  #: refused, and nothing that can be seen explains it
        for kind in KINDS - {unseen}:
            if kind in found:
                self.problem(kind, found[kind])
            else:
                self.solved(kind)
        return not found and unseen is None

    def refused(self, number: int, pause_s: float) -> None:
        """The keeper could not launch for want of something: admit nothing for a while, then see (6.10, 7.7)."""
        self._refused = kind = USED_UP.get(number, "processes")
        self._refused_until = self._monotonic() + pause_s
        self.problem(kind, f"a launch was refused: {os.strerror(number)}; {_UNTIL[kind]}")

    def failed(self, error: WfctlError | OSError, root: Path, settings: Settings) -> None:
        """A round failed; nothing is admitted until one succeeds. Show what is used up, else the failure itself."""
        kind = kind_of(error)
        found = _of_disk(root, settings) | ({kind: f"{_UNTIL[kind]} ({error})"} if kind in _UNTIL else {})
        for name, message in (found or {kind: f"nothing is admitted until this is over: {error}"}).items():
            self.problem(name, message)


def kind_of(error: WfctlError | OSError) -> str:
    """Given what a round failed by, return what of the machine it says is used up; `ledger` where it says none."""
    if isinstance(error, OSError):
        return USED_UP.get(error.errno or 0, "ledger")
    number = error.data.get("errno")
    if isinstance(number, int):
        return USED_UP.get(number, "ledger")
    name = str(error.data.get("sqlite"))
    if name == "SQLITE_IOERR_WRITE" and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return "file-size"
    if name.startswith("SQLITE_CANTOPEN") and _of_descriptors():
        return "descriptors"
    return "disk" if name == "SQLITE_FULL" else "ledger"


def _of_disk(root: Path, settings: Settings) -> dict[str, str]:
    usage = os.statvfs(root)
    free, needed = usage.f_bavail * usage.f_frsize, settings.free_needed(usage.f_blocks * usage.f_frsize)
    found = {}
    if usage.f_flag & os.ST_RDONLY:
        found["read-only"] = _UNTIL["read-only"]
    if free < needed:
        found["disk"] = f"only {free} bytes are free and {needed} are needed: {_NOTHING} there is room"
    if usage.f_files and usage.f_favail < INODES_NEEDED:
        found["inodes"] = f"only {usage.f_favail} inodes are free and {INODES_NEEDED} are needed: {_NOTHING} there are more"
    return found


def _of_limits() -> dict[str, str]:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if most == resource.RLIM_INFINITY or most >= FILE_SIZE_NEEDED:
        return {}
    return {"file-size": f"no file may be larger than {most} bytes (RLIMIT_FSIZE): {_NOTHING} it may"}


def _of_descriptors() -> dict[str, str]:
    held: list[int] = []
    try:
        for _ in range(DESCRIPTORS_NEEDED):
            held.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return {"descriptors": _UNTIL["descriptors"]}
    finally:
        for descriptor in held:
            os.close(descriptor)
    return {}


def _of_processes() -> dict[str, str]:
    """A thread counts as a process where processes are limited: per user, per control group, and in the kernel."""
    thread = threading.Thread(target=_nothing, name="probe", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return {"processes": _UNTIL["processes"]}
    thread.join()
    return {}


def _nothing() -> None:
    """Where a probe thread begins and ends."""
