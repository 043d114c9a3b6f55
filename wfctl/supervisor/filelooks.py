"""When a running supervisor looks at the definition files: beside its loop, at most once a second (contract 2.3, 2.4).

Every definition that wfctl itself writes is a changed file, too: a flood of changes must not become a flood of looks. And of
very many files only those are looked at that the kernel named: comparing all of them takes the interpreter from the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from wfctl.core.ids import is_valid_id
from wfctl.errors import WfctlError
from wfctl.operations import reconcile
from wfctl.operations.reconcile import Named
from wfctl.operations.store import Store
from wfctl.store.disk import is_temporary
from wfctl.supervisor.asides import Asides

_BETWEEN_S = 1.0  #: as long as a file must be left alone before it is taken up

_LEAST_S = 0.01
_MOST_NAMED = 1000  #: from more on all are looked at

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
        self._named: set[Named] | None = set()  #: what the next look is for; None: all files
        self._has_reports = True  #: a look at all files found something that it ignored, or there was none yet

    def notice(self, changed: Iterable[tuple[Path, str]] | None = None) -> None:
        """Something may have changed, in these files of these directories (None: in any): look at it.

        Now, or as soon as the last look is a second ago. What is written under a temporary name is nobody's file yet.
        """
        named = None if changed is None else _definitions_among(changed)
        if named is not None and not named:
            return
        if named is None or self._named is None or len(self._named) > _MOST_NAMED:
            self._named = None
        else:
            self._named |= named
        if self._next_at is None:
            now = self._monotonic()
            self._next_at = now if self._looked_at is None else max(now, self._looked_at + _BETWEEN_S)

    def all_seen(self, ignored: Sequence[str]) -> None:
        """Say what was found and ignored when all files were last looked at, here or at the start or for a reload."""
        self._has_reports = bool(ignored)

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
        named = None if self._has_reports else self._named
        answer = self._asides.ask(partial(_look_at, named=named), then=lambda seen: seen)
        self._next_at, self._looked_at, self._is_asked, self._named = None, now, True, set()
        answer.when_done(lambda seen, error: self._take(named, seen, error))

    def _take(self, named: set[Named] | None, seen: Seen, error: WfctlError | None) -> None:
        self._is_asked = False
        if error is not None:
            self._failure = error
            self.notice()
            return
        youngest, ignored = seen
        if named is None:
            self.ignored, self._has_reports = ignored, bool(ignored)
        elif ignored:  # what all there is to report is, only a look at all of them says
            self._has_reports = True
            self.notice()
        if youngest is not None and youngest < reconcile.SETTLED_AFTER:
            left_s = (reconcile.SETTLED_AFTER - youngest).total_seconds()
            self._named = None if named is None or self._named is None else self._named | named
            self._next_at = self._monotonic() + max(left_s, _LEAST_S)


def _definitions_among(changed: Iterable[tuple[Path, str]]) -> set[Named] | None:
    """Given directories and names, return the definitions whose files they are; None where a name is none of a definition."""
    found: set[Named] = set()
    for directory, name in changed:
        if is_temporary(name):
            continue
        if not name.endswith(".toml") or not is_valid_id(name[:-5]):
            return None
        found.add(("schedule" if directory.name == "schedules" else "deployment", name[:-5]))
    return found


def _look_at(store: Store, *, named: set[Named] | None) -> Seen:
    if named is None:
        return reconcile.look_over(store.context, reconcile.SETTLED_AFTER)
    return reconcile.these(store.context, named, settled_for=reconcile.SETTLED_AFTER)
