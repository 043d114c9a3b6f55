"""The clusters that a store's settings name: their executors, and what of a store lies on their shared folders (3.0, 2.8).

What reads a shared folder here does so in a thread and with patience: a network may not answer, and nobody else is to wait.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wfctl.core.model import SLURM, run_number
from wfctl.errors import IoError, MissingExtra, Problem, WfctlError
from wfctl.keeper.protocol import Keeper
from wfctl.operations.context import Context
from wfctl.settings import Settings, SlurmSettings, load_settings
from wfctl.slurm.absent import MISSING, NoCluster
from wfctl.store.layout import RunPaths
from wfctl.store.ledger import executions, runs
from wfctl.store.ledger.runs import RunRow
from wfctl.store.rundir import remove_run

if TYPE_CHECKING:
    from wfctl.core.model import DeploymentDefinition
    from wfctl.slurm.executor import SlurmExecutor

LOG = logging.getLogger("wfctl.slurm")
PATIENCE_S = 5.0
_OF_THE_RUN = ("run.json", "input.json")

_T = TypeVar("_T")


def executors_of(context: Context, settings: Settings) -> dict[str, Keeper]:
    """Return the executors beside the keeper, by name; one that the settings do not name refuses and keeps what it holds.

    A folder that is new to the store is made its own: before any mark, so that what a crash leaves marked is looked up there.
    """
    if settings.slurm is None:
        return {SLURM: NoCluster()}
    with contextlib.suppress(OSError):  # it is said by whom it keeps from something
        _prepare(context, settings.slurm)
    return {SLURM: slurm_executor(context, settings.slurm, lambda: settings)}


def slurm_executor(context: Context, slurm: SlurmSettings, settings: Callable[[], Settings]) -> SlurmExecutor:
    """Return the executor of a store's cluster. Nothing is asked of it yet."""
    from wfctl.slurm.executor import SlurmExecutor

    return SlurmExecutor(
        slurm,
        store_id=context.ledger.store_id,
        runs=context.layout.runs,
        environ=os.environ,
        max_output=lambda: settings().max_output,
    )


def settings_of(context: Context) -> Settings:
    """Return the settings of a store where no supervisor has them; those that cannot be read are the built-in ones."""
    try:
        return load_settings(context.layout.root, os.environ)
    except MissingExtra:
        return Settings()


def stop_now(context: Context, run: str, ks: Sequence[int], grace: timedelta) -> None:
    """Have executions on the cluster that another process drives stop; it takes in their ends. Raise IoError."""
    settings = settings_of(context)
    if settings.slurm is None:
        return
    executor = slurm_executor(context, settings.slurm, lambda: settings)
    try:
        for k in ks:
            executor.stop_now(run, k, grace)
    except OSError as error:
        raise IoError(f"{run} cannot be told to stop: {error}", {"errno": error.errno, "run_id": run}) from error
    finally:
        executor.close()


def may_live(context: Context, run: str, k: int) -> bool:
    """Tell whether an execution may be at work on the cluster; one of which there is no job is kept from ever running."""
    from wfctl.keeper.protocol import Holding

    settings = settings_of(context)
    if settings.slurm is None:
        return True
    executor = slurm_executor(context, settings.slurm, lambda: settings)
    try:
        return executor.forbid(run, k).state is Holding.RUNNING
    finally:
        executor.close()


def executor_problem(definition: DeploymentDefinition, slurm: SlurmSettings | None) -> Problem | None:
    """Return what keeps a deployment from running where it is to run, or None (5.9)."""
    return Problem("executor", MISSING) if definition.executor == SLURM and slurm is None else None


# What lies on the shared folder --------------------------------------------------------------------------------------------


def recall(context: Context, slurm: SlurmSettings, patience_s: float = PATIENCE_S) -> str | None:
    """Bring home the directories of runs that only the shared folder knows, as after an older ledger was put back.

    Such a run has a number that the ledger has not given yet. It is then entered as any that the ledger does not know, so that
    neither id nor occurrence is used again (2.8). An execution of an unfinished run that was claimed there, and that the ledger
    does not know, counts as launched. Return why that could not be done, or None.
    """
    with context.ledger.reading() as connection:
        following = runs.next_number(connection)
        unfinished = {run.number for run in runs.unfinished(connection)}
    store_id, own = context.ledger.store_id, context.layout.runs
    try:
        _prepare(context, slurm, patience_s)
        found = _patiently(lambda: _recall(slurm.shared, store_id, own, following, unfinished), patience_s)
    except OSError as error:
        return f"the shared folder {slurm.shared} cannot be used: {error.strerror}"
    if found is None:
        return f"the shared folder {slurm.shared} does not answer"
    if found:
        LOG.warning(
            "%d runs are on the shared folder %s and were not here, %s among them",
            len(found), slurm.shared, found[0], extra={"action": "slurm_recalled"},
        )  # fmt: skip
    return None


def _prepare(context: Context, slurm: SlurmSettings, patience_s: float = PATIENCE_S) -> None:
    """Make a folder the store's own where neither knows the other yet, and nothing marked may lie elsewhere. Raise OSError."""
    if not _has_marks(context):
        _patiently(lambda: _begin(slurm.shared, context.ledger.store_id, context.layout.runs), patience_s)


def _begin(shared: Path, store_id: str, own: Path) -> None:
    from wfctl.slurm.folder import Folder, FolderProblem

    folder = Folder(shared, store_id, own)
    try:
        if not folder.check():
            folder.prepare()
    except FolderProblem as error:
        raise OSError(errno.EINVAL, str(error)) from error


def _has_marks(context: Context) -> bool:
    """Tell whether an execution on a cluster is marked and not settled."""
    with context.ledger.reading() as connection:
        found = {row.run for row in executions.unsettled(connection)}
        return any(_is_far(context, run) for number in found if (run := runs.find(connection, number)) is not None)


def _is_far(context: Context, run: RunRow) -> bool:
    """Tell whether a run is executed on a cluster, as far as its deployment can be read."""
    with contextlib.suppress(WfctlError):
        return context.deployment(run.deployment, run.deployment_revision)[0].slurm is not None
    return True


def _recall(shared: Path, store_id: str, own: Path, following: int, unfinished: set[int]) -> list[str]:
    from wfctl.slurm.folder import Folder, make_directory, write_whole

    folder, recalled = Folder(shared, store_id, own), list[str]()
    if not folder.check():
        return []
    root = folder.root
    for number, name in runs_in(root):
        if number >= following and not (own / name).exists():
            make_directory(own / name)
            for each in _OF_THE_RUN:
                with contextlib.suppress(FileNotFoundError):
                    write_whole(own / name / each, (root / name / each).read_bytes())
            recalled.append(name)
        if number >= following or number in unfinished:
            _recall_executions(root / name, own / name)
    return recalled


def _recall_executions(mirror: Path, own: Path) -> None:
    from wfctl.keeper.records import reserve
    from wfctl.slurm.folder import CLAIM, make_directory

    for name in os.listdir(mirror):  # noqa: PTH208 - names only
        if name.isascii() and name.isdigit() and (mirror / name / CLAIM).exists() and not (own / name).exists():
            make_directory(own / name)
            reserve(own / name)


def runs_in(root: Path) -> list[tuple[int, str]]:
    """Return the runs that have a directory below a store's part of the folder, ascending. Raise OSError."""
    try:
        names = os.listdir(root)  # noqa: PTH208 - names only
    except FileNotFoundError:
        return []
    return sorted((number, name) for name in names if (number := run_number(name)) is not None)


def let_go(context: Context, names: Sequence[tuple[int, str]]) -> list[str]:
    """Given runs that the shared folder has, return those that the ledger has let go."""
    with context.ledger.reading() as connection:
        following = runs.next_number(connection)
        known = runs.numbers_among(connection, (number for number, _ in names))
    return [name for number, name in names if number < following and number not in known]


def sweep(context: Context, slurm: SlurmSettings, patience_s: float = 60.0) -> int:
    """Remove what the shared folder has of runs that were let go; return how many. What cannot be removed is left, and said."""
    root = slurm.shared / context.ledger.store_id
    try:
        gone = let_go(context, _patiently(lambda: runs_in(root), patience_s) or [])
        _patiently(lambda: remove(root, gone), patience_s)
    except OSError as error:
        LOG.warning("what was let go is still in %s: %s", root, error, extra={"action": "prune_failed"})
        return 0
    return len(gone)


def sweep_clusters(context: Context) -> None:
    """Remove what the clusters of the settings have of runs that were let go."""
    slurm = settings_of(context).slurm
    if slurm is not None:
        sweep(context, slurm)


def remove(root: Path, names: Sequence[str]) -> None:
    """Remove directories of runs below a store's part of the folder. What cannot be removed is left, and said."""
    for name in names:
        try:
            remove_run(RunPaths(root / name))
        except WfctlError as error:
            LOG.warning("%s", error.message, extra={"action": "prune_failed"})


def _patiently(work: Callable[[], _T], patience_s: float) -> _T | None:
    """Do something in a thread; None where it takes longer, and goes on alone, or where another does still. Raise OSError."""
    if any(thread.is_alive() for thread in _waiting):
        return None
    done: list[_T] = []
    failed: list[OSError] = []

    def run() -> None:
        try:
            done.append(work())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="shared-folder", daemon=True)
    thread.start()
    thread.join(patience_s)
    _waiting[:] = [thread] if thread.is_alive() else []
    if failed:
        raise failed[0]
    return done[0] if done else None


_waiting: list[threading.Thread] = []  #: for a folder that does not answer


def rooms_of(context: Context) -> dict[str, int]:
    """Return how many runs each cluster of the settings may have at once."""
    slurm = settings_of(context).slurm
    return {} if slurm is None else {SLURM: slurm.max_concurrent_runs}


def counts_of(used: Mapping[str, int], settings: Settings) -> tuple[Mapping[str, object], ...]:
    """Return how many slots the executors beside this machine have, and how many are taken, for a status."""
    if settings.slurm is None:
        return ()
    return ({"name": SLURM, "slots_used": used.get(SLURM, 0), "slots_total": settings.slurm.max_concurrent_runs},)
