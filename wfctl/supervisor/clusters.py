"""The supervisor's side of clusters: which there are, whether they can be used, and what a reload makes of them (3.0, 7.7)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from wfctl.core.model import SLURM
from wfctl.keeper.protocol import Keeper
from wfctl.operations import clusters
from wfctl.operations.context import Context
from wfctl.settings import Settings, SlurmSettings
from wfctl.slurm.absent import NoCluster
from wfctl.supervisor.health import Health

LOG = logging.getLogger("wfctl.supervisor")
KINDS = ("slurm", "slurm-folder", "slurm-nodes")  #: of problems that keep runs from being admitted to a cluster
_UNRECALLED = "slurm-recall"
_SWEEP_EVERY_S = 600.0
_RECALL_EVERY_S = 10.0
_LITTLE_PATIENCE_S = 0.05  #: in the loop; at a start there is more
_CHANGED = "slurm-settings"


class Clusters:
    """Holds the executors beside the keeper. Their problems are the supervisor's, and pause admission to them alone."""

    def __init__(self, context: Context, settings: Callable[[], Settings], health: Health) -> None:
        self._context = context
        self._settings = settings
        self._health = health
        self._slurm = settings().slurm  #: what the executor was made with
        self.executors: dict[str, Keeper] = clusters.executors_of(context, settings())
        self._paused = False
        self._recall_at = 0.0
        self._names: list[tuple[int, str]] | None = None  #: found on the folder, to be held against the ledger
        self._sweep_at = context.clock.monotonic() + _SWEEP_EVERY_S
        self._is_recalled = self._slurm is None
        self.recall()

    @property
    def is_paused(self) -> bool:
        """Tell whether nothing is admitted to a cluster for now."""
        return self._paused

    def rooms(self) -> dict[str, int | None]:
        """Return how many runs each cluster may have at once; None where nothing is admitted to it for now."""
        slurm = self._settings().slurm
        if slurm is None or self._slurm is None:
            return {}
        return {SLURM: None if self._paused else slurm.max_concurrent_runs}

    def slots_of(self, executor: str) -> int:
        """Return how many runs an executor may have at once."""
        slurm = self._settings().slurm
        return self._settings().max_concurrent_runs if executor != SLURM or slurm is None else slurm.max_concurrent_runs

    def look(self) -> bool:
        """Take in how the clusters are; return whether admission to one of them opened or closed."""
        if not self._is_recalled and self._context.clock.monotonic() >= self._recall_at:
            self.recall(patience_s=_LITTLE_PATIENCE_S)
        problems: Mapping[str, str] = getattr(self.executors[SLURM], "problems", {})
        for kind in KINDS:
            if kind in problems:
                self._health.problem(kind, problems[kind])
            else:
                self._health.solved(kind)
        self._sweep()
        before, self._paused = self._paused, bool(problems) or not self._is_recalled
        return before != self._paused

    def _sweep(self) -> None:
        """Now and then have the executor remove what its folder has of runs that were let go."""
        executor, moment = self.executors[SLURM], self._context.clock.monotonic()
        if not isinstance(executor, NoCluster) and moment >= self._sweep_at:
            if self._names is None:
                self._sweep_at = moment + _SWEEP_EVERY_S
                executor.aside(self._look_for_runs)  # type: ignore[attr-defined]
            else:
                gone = clusters.let_go(self._context, self._names)
                self._names = None
                executor.aside(lambda: clusters.remove(self._root(), gone))  # type: ignore[attr-defined]

    def _look_for_runs(self) -> None:
        """In a thread: the next look goes on with what was found."""
        with contextlib.suppress(OSError):
            self._names = clusters.runs_in(self._root())
            self._sweep_at = 0.0

    def _root(self) -> Path:
        assert self._slurm is not None
        return self._slurm.shared / self._context.ledger.store_id

    def recall(self, patience_s: float = clusters.PATIENCE_S) -> None:
        """Bring home what only the shared folder knows, before anything is admitted to it (2.8)."""
        if self._slurm is None:
            return
        self._recall_at = self._context.clock.monotonic() + _RECALL_EVERY_S
        wrong = clusters.recall(self._context, self._slurm, patience_s)
        self._is_recalled = wrong is None
        if wrong is None:
            self._health.solved(_UNRECALLED)
        else:
            self._paused = True
            self._health.problem(_UNRECALLED, f"{wrong}; no run on the cluster is started until it does")

    def reload(self) -> None:
        """Take up changed settings; another folder or other commands only once nothing is at work on the cluster."""
        wanted = self._settings().slurm
        if wanted == self._slurm:
            self._health.solved(_CHANGED)
            return
        executor = self.executors[SLURM]
        if wanted is not None and self._slurm is not None and _place_of(wanted) == _place_of(self._slurm):
            executor.settings = wanted  # type: ignore[attr-defined]
        elif executor.list():
            said = "runs are at work on the cluster; restart the supervisor once they have ended"
            self._health.problem(_CHANGED, f"the settings [executors.slurm] are not taken up: {said}")
            return
        else:
            executor.close()
            self.executors[SLURM] = clusters.executors_of(self._context, self._settings())[SLURM]
            LOG.info("the cluster is another one", extra={"action": "slurm_changed"})
        self._slurm = wanted
        self._health.solved(_CHANGED)
        self.recall()


def _place_of(slurm: SlurmSettings) -> tuple[object, ...]:
    """What cannot change under jobs that are at work."""
    return (slurm.shared, slurm.bin, slurm.python, slurm.conf)
