"""What `wfctl doctor` looks at of the machine: interpreter, calendars, clock, limits, and a service that outlives a login."""

from __future__ import annotations

import os
import platform
import pwd
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from wfctl.clock import SystemClock
from wfctl.core.instants import format_instant
from wfctl.core.trigger import is_zone, source_of, stamps
from wfctl.linux import is_clock_synchronised
from wfctl.operations import installed_unit
from wfctl.operations.views import DoctorCheckView

_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)  #: a clock before this was never set
_ZONE = "Europe/Budapest"
_OWN_DESCRIPTORS = 128  #: what a supervisor has open beside its runs
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
_LINGER, _LOGIND = Path("/var/lib/systemd/linger"), Path("/run/systemd/users")
_LIMIT = re.compile(r"^Max open files\s+(\d+|unlimited)", re.MULTILINE)


def check(name: str, is_ok: bool, detail: str, fix: str | None = None) -> DoctorCheckView:
    """Return one thing that was looked at; what would mend it is only said where that is needed."""
    return DoctorCheckView(name=name, ok=is_ok, detail=detail, fix=None if is_ok else fix)


def of_machine() -> Iterator[DoctorCheckView]:
    """Look at what wfctl stands on."""
    yield check("python", sys.version_info >= (3, 11), platform.python_version(), "python3.11 -m venv .venv")
    croniter, tz_database = stamps()
    yield check("croniter", croniter.partition(".")[0] == "7", croniter, "pip install 'croniter>=7,<8'")
    yield check("tz database", is_zone(_ZONE), _tz_database(tz_database), "apt-get install tzdata")
    yield _clock()


def _tz_database(version: str) -> str:
    """Which one is read, and whether another lies beside it: on two machines the same zones may then differ."""
    source = source_of(_ZONE)
    if not source.startswith("/"):
        return f"{version}, of {source}"
    try:
        other = str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return f"{version}, of the system ({source})"
    return f"{version}, of the system ({source}); the package tzdata, {other}, is there and not used"


def _clock() -> DoctorCheckView:
    now = SystemClock().now().replace(microsecond=0)
    is_synchronised = True if _TIMESYNC.exists() else is_clock_synchronised()
    said = {
        True: "synchronised",
        False: "not synchronised, as far as the kernel knows: `timedatectl set-ntp true`, unless its host sets it",
        None: "whether it is synchronised is not known",
    }[is_synchronised]
    return check("clock", now >= _EARLIEST, f"{format_instant(now)}, {said}", "timedatectl set-ntp true")


def of_descriptors(slots: int, supervisor: int | None) -> DoctorCheckView:
    """Compare the limit of open files, of the supervisor where one runs, with what so many runs at once may want."""
    found = None if supervisor is None else _limit_of(supervisor)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if found is None else found
    needed = _OWN_DESCRIPTORS + slots
    whose = "of this shell" if found is None else f"of pid {supervisor}"
    shown = "no limit" if limit == resource.RLIM_INFINITY else f"{limit} files may be open"
    detail = f"{shown} ({whose}), {needed} are wanted for {slots} runs at once"
    is_enough = limit == resource.RLIM_INFINITY or limit >= needed
    return check("descriptors", is_enough, detail, f"ulimit -n {needed}")


def _limit_of(pid: int) -> int | None:
    try:
        found = _LIMIT.search(Path(f"/proc/{pid}/limits").read_text("ascii"))
    except OSError:
        return None
    if found is None:
        return None
    return resource.RLIM_INFINITY if found[1] == "unlimited" else int(found[1])


def of_linger(root: Path, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    """A user's own service ends with the last login, unless that user lingers."""
    unit = installed_unit.find(root, environ)
    if unit is None or not unit.is_user or not _LOGIND.is_dir():
        return
    name = pwd.getpwuid(os.geteuid()).pw_name
    is_lingering = (_LINGER / name).exists()
    detail = f"{name} lingers" if is_lingering else f"{unit.name} ends when {name} logs out"
    yield check("linger", is_lingering, detail, f"loginctl enable-linger {name}")
