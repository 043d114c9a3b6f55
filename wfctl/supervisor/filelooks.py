"""When a running supervisor looks at the definition files: beside its loop, at most once a second (contract 2.3, 2.4).

Every definition that wfctl itself writes is a changed file, too: a flood of changes must not become a flood of looks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from wfctl.errors import WfctlError
from wfctl.operations import reconcile
from wfctl.operations.store import Store
from wfctl.supervisor.asides import Asides

_BETWEEN_S = 1.0  #: as long as a file must be left alone before it is taken up

_LEAST_S = 0.05

Seen = tuple[timedelta | None, list[str]]  #: how long ago the youngest file changed, and what was found and ignored


class FileLooks:
    """Asks for looks, and keeps what they gave. For the thread of the loop."""

    def __init__(self, asides: Asides, monotonic: Callable[[], float]) -> None:
        self._next_at: float | None = None
        self.ignored: list[str] | None = None  #: what the last look found and ignored, until it is taken
        self._asides = asides
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._is_asked = False
        self._failure: WfctlError | None = None

    def notice(self) -> None:
        """Something may have changed: look now, or as soon as the last look is a second ago."""
        if self._next_at is None:
            now = self._monotonic()
            self._next_at = now if self._looked_at is None else max(now, self._looked_at + _BETWEEN_S)

    def next_timer(self) -> float | None:
        """Return the monotonic time at which there is a look to be asked for; None while one is on its way."""
        return None if self._is_asked else self._next_at

    def look(self) -> None:
        """Ask for the look that is due. Raise what the last one failed by, IoError where there is no thread for it."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        now = self._monotonic()
        if self._next_at is None or now < self._next_at or self._is_asked:
            return
        answer = self._asides.ask(_look_at, then=lambda seen: seen)
        self._next_at, self._looked_at, self._is_asked = None, now, True
        answer.when_done(self._take)

    def _take(self, seen: Seen, error: WfctlError | None) -> None:
        self._is_asked = False
        if error is not None:
            self._failure = error
            self.notice()
            return
        youngest, self.ignored = seen
        if youngest is not None and youngest < reconcile.SETTLED_AFTER:
            left_s = (reconcile.SETTLED_AFTER - youngest).total_seconds()
            self._next_at = self._monotonic() + max(left_s, _LEAST_S)


def _look_at(store: Store) -> Seen:
    youngest = reconcile.youngest_change(store.context)  # before: what settles in between is looked at again
    return youngest, reconcile.everything(store.context, settled_for=reconcile.SETTLED_AFTER)
