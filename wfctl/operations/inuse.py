"""Who still works with a store: its supervisor, keepers with runs, commands that drive a run, whoever has the ledger open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from wfctl.clock import SystemClock, pause
from wfctl.core.instants import format_instant
from wfctl.core.model import run_name
from wfctl.errors import InUse, IoError, StoreLocked
from wfctl.keeper.client import KeeperClient, protocols_at
from wfctl.keeper.protocol import Holding
from wfctl.linux import is_same_process, processes_with
from wfctl.store.layout import Layout
from wfctl.store.ledger import copies
from wfctl.store.locks import is_held, read_owner
from wfctl.store.rundir import list_run_directories

_KEEPER_ENDS_S = 6.0  #: how long a keeper without runs may take to end
_COMMAND_ENDS_S = 3.0  #: how long a command that only looks may take
_LOOK_AGAIN_S = 0.05
_NAMED = 3  #: of several, so many are named


def locked(layout: Layout) -> StoreLocked:
    """Return the error for a store that a supervisor, or another restore, owns."""
    owner = read_owner(layout.scheduler_lock)
    if owner is None:
        return StoreLocked(f"{layout.root} is in use: another process owns {layout.scheduler_lock}; stop it first", {})
    data = {"pid": owner.pid, "host": owner.host, "started_at": format_instant(owner.started_at)}
    said = f"pid {owner.pid} on {owner.host} owns it, since {data['started_at']}"
    return StoreLocked(f"{layout.root} is in use: {said}; stop the supervisor first (`systemctl stop wfctl`, or SIGTERM)", data)


def refuse_users(layout: Layout) -> None:
    """Raise InUse, naming who, where anything of a store is still at work. The supervisor's lock is the caller's to look at."""
    _refuse_drivers(layout)
    _refuse_keepers(layout)
    _refuse_living(layout)
    _wait_until(lambda: not processes_with(layout.ledger), _COMMAND_ENDS_S)
    found = [f"pid {pid} ({words[:80]})" for pid, words in processes_with(layout.ledger)]
    if found:
        raise InUse(f"{layout.ledger} is open in {_some(found)}; end that first", {"processes": found})


def keepers(layout: Layout) -> Iterator[tuple[Path, int]]:
    """Give the directory and protocol of every keeper that lives: the supervisors', and those of runs by hand (6.9)."""
    for directory in (layout.root, *(layout.run(name).root for name in _run_directories(layout))):
        for protocol in protocols_at(directory):
            lock = directory / f"keeper.{protocol}.lock"
            if lock.exists() and is_held(lock):
                yield directory, protocol


def _refuse_drivers(layout: Layout) -> None:
    driven = [name for name in _run_directories(layout) if _is_driven(layout, name)]
    if driven:
        raise InUse(f"{_some(driven)} is driven by a command; wait for it, or `wfctl run cancel {driven[0]}`", {"runs": driven})


def _is_driven(layout: Layout, name: str) -> bool:
    lock = layout.run(name).driver_lock
    return lock.exists() and is_held(lock)


def _refuse_keepers(layout: Layout) -> None:
    running: list[str] = []
    for directory, protocol in keepers(layout):
        try:
            keeper = KeeperClient.connect(directory, protocol)
            if keeper is not None:
                with keeper:
                    running += [each.run for each in keeper.list() if each.state is Holding.RUNNING]
        except IoError:
            continue  # it was just ending
    if running:
        said = f"{_some(sorted(set(running)))} still runs; wait for it, or `wfctl run cancel {min(running)}`"
        raise InUse(f"{layout.root} is in use: {said}", {"runs": sorted(set(running))})
    if not _wait_until(lambda: not list(keepers(layout)), _KEEPER_ENDS_S):
        raise InUse(f"{layout.root} is in use: its keeper lives, though it holds no run; try again, or end that process", {})


def _refuse_living(layout: Layout) -> None:
    """A run outlives its keeper: it is then known by its process alone (6.9)."""
    for each in copies.unsettled(layout.ledger) if layout.ledger.is_file() else ():
        pid, start, boot = (each.mark.get(name) for name in ("pid", "start_time", "boot"))
        if isinstance(pid, int) and isinstance(start, int) and isinstance(boot, str) and is_same_process(pid, start, boot):
            name = run_name(each.run)
            raise InUse(f"{layout.root} is in use: {name} still runs, as pid {pid}; wait for it, or end it", {"runs": [name]})


def _run_directories(layout: Layout) -> list[str]:
    try:
        return list_run_directories(layout)
    except OSError:
        return []


def _wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic() + limit_s
    while not condition():
        if clock.monotonic() > deadline:
            return False
        pause(_LOOK_AGAIN_S)
    return True


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
