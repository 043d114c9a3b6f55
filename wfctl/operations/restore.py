"""`store restore`: put a backup into the place of a store, or where there is none (contract 2.7, 2.8, 11).

The whole backup is judged and written beside the store first; until then nothing is touched. What it replaces is kept. Run
directories that are there stay: those that the older ledger does not know are entered at the next start, so that neither id nor
occurrence is used again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from wfctl.clock import Clock
from wfctl.core.instants import format_instant
from wfctl.errors import CannotCreate, DamagedStore, IoError, WfctlError
from wfctl.operations import inuse
from wfctl.operations.manifest import Manifest
from wfctl.operations.staging import Stage, clear
from wfctl.operations.views import RestoreView
from wfctl.store import swap
from wfctl.store.artifacts import artifact_problem
from wfctl.store.disk import Disk, is_temporary
from wfctl.store.layout import Layout
from wfctl.store.ledger import copies
from wfctl.store.ledger.copies import CopyFacts
from wfctl.store.locks import FileLock, is_held
from wfctl.store.place import check_place, is_store
from wfctl.store.rundir import list_run_directories

_KNOWN = (
    "schedules",
    "deployments",
    "artifacts",
    "runs",
    "notices",
    "wfctl.toml",
    "scheduler.lock",
    "control.sock",
    "restoring",
)
_KNOWN_BEGIN = ("ledger.db", "keeper.", swap.KEPT)
_NAMED = 10  #: of several, so many are named

Agree = Callable[[RestoreView], bool]


def restore(
    root: Path, source: IO[bytes], subject: str, *, disk: Disk, clock: Clock, agree: Agree, dry_run: bool = False
) -> RestoreView | None:
    """Given the path of a store, there or not, and an open backup, put it there; return what was done.

    `agree` is asked, with what would be done, before a store is replaced; None is returned where it does not. Raise StoreLocked
    and InUse for a store in use, DamagedStore for what is no sound backup, NotAllowed, CannotCreate, IoError. Cut short, it is
    finished by the next call.
    """
    _check_target(root)
    if dry_run:
        return _try(Layout(root.resolve()), Stage(source, subject, disk), subject, clock, disk)
    with _made(root, disk) as layout, _owned(layout, clock):
        finished = swap.carry_on(layout, disk) if swap.unfinished(layout) is not None else None
        try:
            stage = Stage(source, subject, disk)
        except DamagedStore as error:
            if finished is None:
                raise
            raise DamagedStore(f"{error.message}; the restore that was cut short is finished: {_of(finished)}", {}) from error
        if finished is not None and dict(finished.backup) == stage.manifest.mark:
            return _finished(layout, stage.manifest, subject, finished)
        inuse.refuse_users(layout)
        return _restore(layout, stage, subject, disk, clock, agree)


def _restore(layout: Layout, stage: Stage, subject: str, disk: Disk, clock: Clock, agree: Agree) -> RestoreView | None:
    directory = swap.staging(layout)
    clear(directory)
    try:
        directory.mkdir(0o700)
        there = copies.facts_if_readable(layout.ledger)
        is_foreign = _is_foreign(there, stage.manifest)
        has_run = _has_none if is_foreign else lambda name: os.path.lexists(layout.runs / name)
        facts = stage.read_all(directory, is_whole=True, has_run=has_run)
        items = _replaced(layout, is_foreign=is_foreign)
        view = _view(layout, stage, subject, facts, there, kept=_kept_name(layout, clock) if items else None)
        if items and not agree(view):
            clear(directory)
            return None
        _keep_ids(layout, directory, there, is_foreign=is_foreign)
        _drop_intact(layout, directory, is_foreign=is_foreign)
        stage.sync(directory)
        _refuse_mounts(layout, items)
    except (WfctlError, OSError, KeyboardInterrupt, SystemExit):
        with contextlib.suppress(WfctlError):
            clear(directory)
        raise
    with _undisturbed():
        swap.begin(layout, disk, swap.Swap(stage.manifest.mark, view.kept and Path(view.kept).name, items))
        try:
            inuse.refuse_users(layout)  # from here on nobody new comes; who came in between is told now
        except WfctlError:
            swap.give_up(layout, disk)
            clear(directory)
            raise
        swap.carry_on(layout, disk)
    return view


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let signals that would end us wait until the store is whole again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _try(layout: Layout, stage: Stage, subject: str, clock: Clock, disk: Disk) -> RestoreView:
    """Judge backup and store as a restore would, and change nothing."""
    if layout.scheduler_lock.exists() and is_held(layout.scheduler_lock):
        raise inuse.locked(layout)
    inuse.refuse_users(layout)
    there = copies.facts_if_readable(layout.ledger)
    is_foreign = _is_foreign(there, stage.manifest)
    has_run = _has_none if is_foreign else lambda name: os.path.lexists(layout.runs / name)
    with tempfile.TemporaryDirectory(prefix="wfctl-restore-") as name:
        facts = stage.read_all(Path(name), is_whole=False, has_run=has_run)
    kept = _kept_name(layout, clock) if _replaced(layout, is_foreign=is_foreign) else None
    view = _view(layout, stage, subject, facts, there, kept=kept)
    cut = swap.unfinished(layout)
    notes = view.notes if cut is None else (f"a restore that was cut short would be finished first: {_of(cut)}", *view.notes)
    return replace(view, is_dry_run=True, notes=notes)


# The place --------------------------------------------------------------------------------------------------------------


def _check_target(root: Path) -> None:
    """Raise CannotCreate for a directory that holds something else, NotAllowed for a place that 2.7 refuses."""
    check_place(root)
    if not root.exists() or is_store(root):
        return
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError as error:
        raise CannotCreate(f"cannot look at {root}: {error.strerror}") from error
    foreign = [name for name in names if not (name in _KNOWN or name.startswith(_KNOWN_BEGIN) or is_temporary(name))]
    if foreign:
        raise CannotCreate(f"{root} is no store and not empty: it holds {foreign[0]!r}; choose a new directory with --into")


@contextlib.contextmanager
def _made(root: Path, disk: Disk) -> Iterator[Layout]:
    """Give the layout of a directory that is made where it is missing, and is no more when nothing came into it."""
    made: list[Path] = []
    try:
        for directory in [*reversed(root.parents), root]:
            if not directory.exists():
                disk.make_directory(directory)
                made.append(directory)
    except IoError as error:
        raise CannotCreate(f"cannot make the store {root}: {error.message}", error.data) from error
    layout = Layout(root.resolve())
    try:
        yield layout
    finally:
        if made and not layout.ledger.exists() and not layout.restoring.exists():
            layout.scheduler_lock.unlink(missing_ok=True)
            for directory in reversed(made):
                with contextlib.suppress(OSError):
                    directory.rmdir()


@contextlib.contextmanager
def _owned(layout: Layout, clock: Clock) -> Iterator[None]:
    with FileLock(layout.scheduler_lock) as lock:
        if not lock.acquire(clock.now()):
            raise inuse.locked(layout)
        yield


def _replaced(layout: Layout, *, is_foreign: bool) -> tuple[str, ...]:
    """Return the names of what goes; of another store its runs and artifacts go, too."""
    names = (*swap.REPLACED, *(("runs", "artifacts") if is_foreign else ()))
    return tuple(name for name in names if os.path.lexists(layout.root / name))


def _refuse_mounts(layout: Layout, items: tuple[str, ...]) -> None:
    """Raise CannotCreate where a part of the store is a file system of its own: nothing can be renamed into it or out of it."""
    own = layout.root.lstat().st_dev
    for name in {*items, "runs", "artifacts"}:
        path = layout.root / name
        if os.path.lexists(path) and path.lstat().st_dev != own:
            raise CannotCreate(f"{path} is on a file system of its own; restore --into another directory, and move it by hand")


def _kept_name(layout: Layout, clock: Clock) -> str:
    stamp = format_instant(clock.now().replace(microsecond=0)).replace("-", "").replace(":", "")
    name, number = f"{swap.KEPT}{stamp}", 1
    while os.path.lexists(layout.root / name):
        number += 1
        name = f"{swap.KEPT}{stamp}.{number}"
    return name


# What is kept of the store that is there ----------------------------------------------------------------------------------


def _is_foreign(there: CopyFacts | None, manifest: Manifest) -> bool:
    """Tell whether a backup is of another store; a ledger that cannot be read is taken for the same one's."""
    return there is not None and there.store_id is not None and there.store_id != manifest.store_id


def _has_none(name: str) -> bool:
    return False


def _keep_ids(layout: Layout, directory: Path, there: CopyFacts | None, *, is_foreign: bool) -> None:
    """No number of a run is given again, though nothing of it may be left but the ledger that goes (2.8)."""
    if not is_foreign and there is not None:
        copies.raise_run_counter(directory / "ledger.db", there.last_run)


def _drop_intact(layout: Layout, directory: Path, *, is_foreign: bool) -> None:
    """Leave pinned files that are there and intact where they are; one that was damaged makes room for that of the backup."""
    if is_foreign:
        return
    for path in sorted((directory / "artifacts").iterdir()):
        if not os.path.lexists(layout.artifact(path.name)):
            continue
        if artifact_problem(layout, path.name) is None:
            path.unlink()
        elif artifact_problem(Layout(directory), path.name) is None:
            path.replace(layout.artifact(path.name))  # a content by its own name: right whatever becomes of the restore


# What is said -----------------------------------------------------------------------------------------------------------


def _view(
    layout: Layout, stage: Stage, subject: str, facts: CopyFacts, there: CopyFacts | None, *, kept: str | None
) -> RestoreView:
    manifest = stage.manifest
    is_foreign = _is_foreign(there, manifest)
    return RestoreView(
        path=str(layout.root),
        backup=subject,
        store_id=manifest.store_id,
        taken_at=manifest.taken_at,
        version=manifest.version,
        schedules=len(facts.schedules),
        deployments=len(facts.deployments),
        occurrences=facts.occurrences,
        runs=facts.runs,
        run_directories=stage.run_directories,
        kept=None if kept is None else str(layout.root / kept),
        is_dry_run=False,
        notes=tuple(_notes(layout, facts, there, is_foreign=is_foreign, is_replaced=kept is not None)),
    )


def _notes(layout: Layout, facts: CopyFacts, there: CopyFacts | None, *, is_foreign: bool, is_replaced: bool) -> Iterator[str]:
    if is_foreign:
        yield "the backup is of another store (its id differs): runs and artifacts of this one are put aside, too"
        return
    if there is None:
        if is_replaced:
            yield "the ledger that is there cannot be read; what differs from the backup is not known"
    else:
        yield from _differences(facts, there)
    if is_replaced:
        unknown = _unknown_runs(layout, facts)
        if unknown:
            are = "run is" if unknown == 1 else "runs are"
            yield f"{unknown} {are} newer than the backup: the next start enters what it finds as failed (ledger-restored)"


def _differences(facts: CopyFacts, there: CopyFacts) -> Iterator[str]:
    pairs = (("schedule", there.schedules, facts.schedules), ("deployment", there.deployments, facts.deployments))
    for kind, now, then in pairs:
        if now - then:
            yield f"made since, and put aside: {_some(kind, now - then)}"
        if then - now:
            yield f"deleted since, and there again: {_some(kind, then - now)}"
        changed = {name for name in now & then if there.revisions.get((kind, name)) != facts.revisions.get((kind, name))}
        if changed:
            yield f"changed since, and as it was again: {_some(kind, changed)}"


def _unknown_runs(layout: Layout, facts: CopyFacts) -> int:
    try:
        names = list_run_directories(layout)
    except OSError:
        return 0
    return sum(int(name[4:]) > facts.last_run for name in names)


def _some(kind: str, names: set[str] | frozenset[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _NAMED
    return f"{kind} {', '.join(listed[:_NAMED])}" + (f" and {more} more" if more > 0 else "")


def _finished(layout: Layout, manifest: Manifest, subject: str, finished: swap.Swap) -> RestoreView:
    return RestoreView(
        path=str(layout.root),
        backup=subject,
        store_id=manifest.store_id,
        taken_at=manifest.taken_at,
        version=manifest.version,
        schedules=manifest.schedules,
        deployments=manifest.deployments,
        occurrences=manifest.occurrences,
        runs=manifest.runs,
        run_directories=0,
        kept=None if finished.kept is None else str(layout.root / finished.kept),
        is_dry_run=False,
        notes=("finished what was cut short",),
    )


def _of(cut: swap.Swap) -> str:
    return f"the backup taken at {cut.backup.get('taken_at')}"
