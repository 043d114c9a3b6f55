"""`wfctl doctor`: what wfctl stands on, one thing a line, each with what to do where it is not so (contract 2.7, 7.4)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from wfctl.clock import SystemClock
from wfctl.core.instants import format_instant
from wfctl.core.trigger import is_zone, stamps
from wfctl.errors import NotAllowed, WfctlError
from wfctl.operations.store import Store
from wfctl.operations.views import DoctorCheckView, DoctorView
from wfctl.settings import load_settings
from wfctl.store import place
from wfctl.store.layout import Layout
from wfctl.store.ledger import definitions, schedules, sessions
from wfctl.store.ledger.schema import FORMAT
from wfctl.store.locks import is_held, read_owner
from wfctl.store.place import check_place

_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)  #: a clock before this was never set


def examine(root: Path, open_store: Callable[[Path], Store], environ: Mapping[str, str]) -> DoctorView:
    """Look at everything that wfctl needs on this machine and in that store. Nothing is changed, and nothing raised."""
    checks = [*_of_machine(), *_of_place(root), *_of_free_space(root, environ)]
    try:
        store = open_store(root)
    except WfctlError as error:
        if not isinstance(error, NotAllowed):
            checks.append(_check("store", False, error.message, None))
    else:
        with store:
            checks += _of_store(store)
    return DoctorView(ok=all(each.ok for each in checks), checks=tuple(checks))


def _check(name: str, is_ok: bool, detail: str, fix: str | None) -> DoctorCheckView:
    return DoctorCheckView(name=name, ok=is_ok, detail=detail, fix=None if is_ok else fix)


# The machine ------------------------------------------------------------------------------------------------------------


def _of_machine() -> Iterator[DoctorCheckView]:
    yield _check("python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or later")
    croniter, tz_database = stamps()
    yield _check("croniter", croniter.partition(".")[0] == "7", croniter, "install croniter 7")
    yield _check("tz database", is_zone("Europe/Budapest"), tz_database, "install the system's tzdata, or the package tzdata")
    now = SystemClock().now()
    yield _check("clock", now >= _EARLIEST, format_instant(now), "set the clock of this machine")


# The place --------------------------------------------------------------------------------------------------------------


def _of_place(root: Path) -> Iterator[DoctorCheckView]:
    try:
        check_place(root)
    except WfctlError as error:
        yield _check("place", False, error.message, None)
        return
    kind = place.filesystem_type(root.resolve())
    yield _check("place", True, f"{root}" + (f" on {kind}, a local file system" if kind else ""), None)


def _of_free_space(root: Path, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    there = next((path for path in (root, *root.absolute().parents) if path.exists()), Path("/"))
    try:
        settings = load_settings(root, environ)
    except WfctlError as error:
        yield _check("settings", False, error.message, None)
        return
    usage = os.statvfs(there)
    free, needed = usage.f_bavail * usage.f_frsize, settings.free_needed(usage.f_blocks * usage.f_frsize)
    detail = f"{free // 2**20} MiB free, {needed // 2**20} MiB needed; {usage.f_favail} files may be made"
    is_enough = free >= needed and (usage.f_favail > 0 or usage.f_files == 0)
    yield _check("free space", is_enough, detail, "make room, or see `wfctl store gc`")


# The store --------------------------------------------------------------------------------------------------------------


def _of_store(store: Store) -> Iterator[DoctorCheckView]:
    context = store.context
    connection = context.ledger.connection
    count = sum(row.deleted_at is None for row in definitions.list_all(connection, "schedule"))
    yield _check("store", True, f"{store.root}, format {FORMAT}, {count} schedules", None)
    yield from _of_owner(store, context.layout)
    latest = sessions.clock(connection)
    is_behind = context.now() < latest
    detail = f"the clock stands before {format_instant(latest)}, up to where instants were consumed" if is_behind else "in step"
    yield _check("clock and ledger", not is_behind, detail, "set the clock, or wait until it has passed that time")
    yield from _of_blocked(store)


def _of_owner(store: Store, layout: Layout) -> Iterator[DoctorCheckView]:
    try:
        is_owned = is_held(layout.scheduler_lock)
    except WfctlError as error:
        yield _check("lock", False, error.message, f"make {layout.scheduler_lock} readable and writable for its owner alone")
        return
    owner = read_owner(layout.scheduler_lock) if is_owned else None
    if not is_owned:
        yield _check("lock", True, "free: no supervisor runs on this store", None)
        return
    said = "held by a supervisor" if owner is None else f"held by the supervisor with pid {owner.pid} on {owner.host}"
    yield _check("lock", True, said, None)
    begun = _moment(store)
    try:
        store.server_status()
    except WfctlError as error:
        yield _check("socket", False, error.message, "the supervisor holds the store and does not answer: look at its log")
        return
    yield _check("socket", True, f"answers in {(_moment(store) - begun) * 1000:.1f} ms", None)


def _moment(store: Store) -> float:
    """Return the store's monotonic time in seconds."""
    return store.context.clock.monotonic()


def _of_blocked(store: Store) -> Iterator[DoctorCheckView]:
    connection = store.context.ledger.connection
    found = [row for row in schedules.list_all(connection) if row.deleted_at is None and row.diagnostic is not None]
    newcomers = definitions.never_valid(connection)
    if not found and not newcomers:
        yield _check("blocked schedules", True, "none", None)
    for name, diagnostic in [(row.id, row.diagnostic) for row in found] + [(row.id, row.diagnostic) for row in newcomers]:
        said = dict(diagnostic or {})
        is_ledger = definitions.is_contradicted(diagnostic)
        fix = f"wfctl store verify {name}" if is_ledger else f"mend {said.get('file')}" if said.get("file") else None
        yield _check(f"schedule {name}", False, f"is blocked: {said.get('message') or said.get('code')}", fix)
