"""What the cluster's accounting has kept of jobs: one question for many, where the controller does not say enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from wfctl.slurm.commands import Slurm
from wfctl.slurm.jobs import now

Entry = tuple[str, str]  #: state, `CANCELLED by 1007`, and exit code
_KEPT_S = 5.0
_AT_ONCE = 1000  #: an argument of a command is bounded


class Accounts:
    """Asks for whoever comes first, and for all whom the same answer concerns. May be used by several threads."""

    def __init__(self, slurm: Slurm, others: Callable[[], Iterable[str]]) -> None:
        """`others`: returns the names of the jobs that will probably be asked for next."""
        self._slurm = slurm
        self._others = others
        self._lock = Lock()
        self._known: dict[str, Entry] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_at = 0.0

    def of(self, name: str) -> Entry | None:
        """Return what is kept of a job; None where nothing is, or the cluster keeps no accounts."""
        with self._lock:
            if name not in self._asked or now() > self._asked_at + _KEPT_S:
                names = list(dict.fromkeys((name, *self._others())))[:_AT_ONCE]
                self._known = self._slurm.accounted(names)
                self._asked, self._asked_at = frozenset(names), now()
            return self._known.get(name)
