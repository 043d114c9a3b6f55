"""Letting old history go: finished runs with their occurrences, executions and directories; never ids (contract 10, 11).

Directories first: they are moved aside and that is made durable, then the ledger forgets the rows, then the directories are
removed. A crash in between leaves runs without a directory, which the next pass lets go as well, or directories set aside,
which it removes. The other way round it would leave directories that the ledger does not know: those are entered as runs (2.8).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from wfctl.clock import pause
from wfctl.core.model import run_name
from wfctl.errors import WfctlError
from wfctl.operations.context import Context
from wfctl.operations.worker import Worker
from wfctl.settings import Settings
from wfctl.store import rundir
from wfctl.store.layout import RunPaths
from wfctl.store.ledger import checkpoints, retention, runs
from wfctl.store.ledger.connection import translated
from wfctl.store.ledger.retention import Old

LOG = logging.getLogger("wfctl.retention")
_FEWEST, _FIRST, _MOST = 8, 64, 512  #: rows looked at in one piece
_SHORT_S, _LONG_S = 0.003, 0.006  #: a piece whose rows are taken out in less grows, one that takes more shrinks
_LEAST_PAUSE_S = 0.01
_PIECE_S = 0.003  #: how long a piece looks for something to let go
_TOGETHER = 16  #: schedules looked at in one piece
_MOVED_AFTER = 4  #: pieces by hand; what they wrote to the ledger's log is moved into its file then, a megabyte or two


@dataclass(frozen=True, slots=True)
class Rule:
    """What is kept: what is not older than `keep`, and of each schedule what is not older than its newest `keep_runs` runs.

    A run started by hand counts among those of its deployment. None: all.
    """

    keep: timedelta | None = None
    keep_runs: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Rule:
        """Return the rule that the settings give."""
        return cls(None if settings.keep_days is None else timedelta(days=settings.keep_days), settings.keep_runs)

    @property
    def keeps_all(self) -> bool:
        """Tell whether nothing is ever let go."""
        return self.keep is None and self.keep_runs is None


@dataclass(slots=True)
class _Part:
    """The history of one schedule, or the manual runs of one deployment."""

    schedule: int | None
    deployment: int | None = None
    after: int = 0  #: the place, or the number, up to which it was looked at
    bound: int | None = None  #: that before which it is beyond `keep_runs`
    is_begun: bool = False
    is_seen: bool = False  #: all of it was looked at


class Sweep:
    """One pass over the whole history, in pieces that each take a few milliseconds. With `dry_run` it only counts.

    A piece is of several schedules that are neighbours. Their occurrences lie apart in the ledger, and their runs lie together,
    as they were admitted: rows taken out of one schedule alone would leave a change on a page of the ledger each.
    """

    def __init__(
        self,
        context: Context,
        rule: Rule,
        *,
        dry_run: bool = False,
        remove: Callable[[Sequence[Path]], None] | None = None,
    ) -> None:
        """`remove`: what removes the directories that were set aside; without it this does so itself."""
        self.occurrences = 0  #: let go so far
        self.runs = 0
        self._context = context
        self._rule = rule
        self._is_dry = dry_run
        self._remove = remove or partial(remove_aside, context)
        self.before = _time_before(context.now(), rule.keep)  #: what was recorded, or ended, before goes
        self._size = _FIRST
        with context.ledger.reading() as connection:
            self._parts = deque(_Part(number) for number in retention.schedule_numbers(connection))
            self._parts += [_Part(None, number) for number in retention.deployment_numbers(connection)]
        self._present: list[_Part] = []

    def step(self) -> bool:
        """Do a piece: look on until something was let go, or for some milliseconds. Return False once all was seen.

        Raise IoError, TimedOut.
        """
        begun = self._context.clock.monotonic()
        while self._gather():
            found = self._look()
            if found and not self._is_dry:
                self._let_go(found)
            for _, old in found:
                self.occurrences += sum(row.place is not None for row in old)
                self.runs += sum(row.run is not None for row in old)
            if found or self._context.clock.monotonic() - begun > _PIECE_S:
                break
        is_more = self._gather()
        if not is_more and not self._is_dry and self.before is not None:
            with self._context.ledger.transaction() as connection:
                retention.prune_sessions(connection, self.before)
        return is_more

    def _gather(self) -> bool:
        """Fill up the parts that are looked at together; return whether there are any."""
        self._present = [part for part in self._present if not part.is_seen]
        while self._parts and len(self._present) < _TOGETHER:
            self._present.append(self._parts.popleft())
        return bool(self._present)

    def _look(self) -> list[tuple[_Part, list[Old]]]:
        """Look at the next rows of each present part; return those that are to go."""
        limit = max(1, self._size // len(self._present))
        found = []
        with self._context.ledger.reading() as connection:
            for part in self._present:
                old = self._look_at(connection, part, limit)
                if old:
                    found.append((part, old))
        return found

    def _look_at(self, connection: retention.Connection, part: _Part, limit: int) -> list[Old]:
        if not part.is_begun:
            part.is_begun, part.bound = True, self._bound_of(connection, part)
        if part.schedule is not None:
            old, following = retention.old_occurrences(
                connection, part.schedule, before=self.before, before_place=part.bound, after=part.after, limit=limit
            )
        else:
            assert part.deployment is not None
            old, following = retention.old_manual_runs(
                connection, part.deployment, before=self.before, before_number=part.bound, after=part.after, limit=limit
            )
        part.after, part.is_seen = following or part.after, following is None
        return old

    def _bound_of(self, connection: retention.Connection, part: _Part) -> int | None:
        if self._rule.keep_runs is None:
            return None
        if part.schedule is not None:
            return retention.place_before(connection, part.schedule, self._rule.keep_runs)
        assert part.deployment is not None
        return retention.number_before(connection, part.deployment, self._rule.keep_runs)

    def _let_go(self, found: list[tuple[_Part, list[Old]]]) -> None:
        aside = self._set_aside([old for _, old in found])
        with self._context.ledger.transaction() as connection:
            begun = self._context.clock.monotonic()
            for part, old in found:
                retention.prune(connection, part.schedule, old)
            self._adapt(self._context.clock.monotonic() - begun)
        if aside:
            self._remove(aside)

    def _set_aside(self, found: list[list[Old]]) -> list[Path]:
        """Move the directories of runs aside, for good; what cannot be moved stays, and its rows with it."""
        layout, disk = self._context.layout, self._context.disk
        aside: list[Path] = []
        for old in found:
            for row in list(old):
                if row.run is None:
                    continue
                name = run_name(row.run)
                try:
                    if disk.move_directory(layout.run(name).root, layout.aside(name)):
                        aside.append(layout.aside(name))
                except WfctlError as error:
                    LOG.warning("%s is kept: %s", name, error.message, extra={"action": "prune_failed", "run": name})
                    old.remove(row)
        if aside:
            disk.sync_directory(layout.runs)
        return aside

    def _adapt(self, took: float) -> None:
        """How long a piece keeps other writers waiting is bounded; what the disk takes of that does not depend on its size."""
        if took > _LONG_S:
            self._size = max(_FEWEST, self._size // 2)
        elif took < _SHORT_S:
            self._size = min(_MOST, self._size * 2)


def _time_before(now: datetime, keep: timedelta | None) -> datetime | None:
    if keep is None:
        return None
    try:
        return now - keep
    except OverflowError:  # before the calendar begins: everything is younger
        return datetime.min.replace(year=2, tzinfo=now.tzinfo)


# Directories that were set aside ------------------------------------------------------------------------------------------


def left_aside(context: Context) -> list[Path]:
    """Return the directories that a pass set aside and did not come to remove. Raise OSError."""
    runs_directory = context.layout.runs
    with os.scandir(runs_directory) as entries:
        return [runs_directory / entry.name for entry in entries if context.layout.is_aside(entry.name)]


def remove_aside(context: Context, directories: Sequence[Path]) -> None:
    """Remove directories that were set aside, whatever the jobs made of them. One that cannot be is left, and said."""
    for path in directories:
        context.disk.point("remove-run")
        try:
            rundir.remove_run(RunPaths(path))
        except WfctlError as error:
            LOG.warning("%s", error.message, extra={"action": "prune_failed"})


# By hand ------------------------------------------------------------------------------------------------------------------


def collect(context: Context, rule: Rule, *, dry_run: bool = False) -> Sweep:
    """Let go at once of what the rule does not keep, beside a running supervisor: in small pieces with pauses in between.

    Then the ledger's file is made smaller. Return the pass, which has counted. Raise IoError, TimedOut.
    """
    sweep = Sweep(context, rule, dry_run=dry_run)
    if dry_run:
        while sweep.step():
            pass
        return sweep
    remove_aside(context, left_aside(context))
    with translated(context.ledger.path), checkpoints.left(context.ledger.connection):
        _in_pieces(context, sweep.step)
        if sweep.occurrences or sweep.runs:
            _in_pieces(context, lambda: checkpoints.give_back(context.ledger.connection))
    return sweep


def _in_pieces(context: Context, step: Callable[[], bool]) -> None:
    """Do a piece after the other, each followed by a pause twice as long, until there are no more."""
    for number in itertools.count(1):
        begun = context.clock.monotonic()
        is_more = step()
        if not is_more or number % _MOVED_AFTER == 0:
            checkpoints.move(context.ledger.connection)
        if not is_more:
            return
        pause(max(_LEAST_PAUSE_S, 2 * (context.clock.monotonic() - begun)))


# By the supervisor --------------------------------------------------------------------------------------------------------

SWEEP_EVERY_S = 600.0
_SWEEP_SOON_S = 5.0
_GROWN = 100  #: so many new rows and runs are worth another pass soon
_BETWEEN_S = 0.05  #: between two pieces
_PATIENT_S = 2.0  #: so long at most a piece waits for a quiet moment


class Pruner:
    """Passes over the history again and again, a piece at a time, when nothing is about to come due."""

    def __init__(self, context: Context, settings: Callable[[], Settings], worker: Worker) -> None:
        self._context = context
        self._settings = settings
        self._worker = worker
        self._sweep: Sweep | None = None
        self._at = 0.0  #: when the next piece or pass is due
        self._due_since: float | None = None
        self._ended_at = 0.0
        self._grown_to = -1
        self._has_looked_aside = False

    def next_at(self) -> float | None:
        """Return the monotonic time at which there is something to do; None: never."""
        return None if Rule.of(self._settings()).keeps_all else self._at

    def do(self, moment: float, *, is_quiet: bool) -> None:
        """Do what is due: a piece, where nothing is about to come due or it has waited for long. Raise IoError, TimedOut."""
        rule = Rule.of(self._settings())
        if rule.keeps_all:
            self._sweep = None
            return
        if moment < self._at and (self._sweep is not None or not self._has_grown(moment)):
            return
        if self._due_since is None:
            self._due_since = moment
        if not is_quiet and moment < self._due_since + _PATIENT_S:
            self._at = min(moment + _BETWEEN_S, self._due_since + _PATIENT_S)
            return
        self._due_since = None
        if self._sweep is None:
            self._begin(rule)
        assert self._sweep is not None
        if self._sweep.step():
            self._at = moment + _BETWEEN_S
            return
        if self._sweep.occurrences or self._sweep.runs:
            counts = (self._sweep.occurrences, self._sweep.runs)
            LOG.info("let go of %d occurrences and %d runs, as [history] says", *counts, extra={"action": "history_pruned"})
        self._sweep = None
        self._ended_at, self._at = moment, moment + SWEEP_EVERY_S
        self._grown_to = self._count()

    def _begin(self, rule: Rule) -> None:
        if not self._has_looked_aside:
            self._has_looked_aside = self._worker.submit(lambda: remove_aside(self._context, left_aside(self._context)))
        self._sweep = Sweep(self._context, rule, remove=self._remove)

    def _remove(self, directories: Sequence[Path]) -> None:
        if not self._worker.submit(partial(remove_aside, self._context, directories)):
            self._has_looked_aside = False  # they are found again

    def _has_grown(self, moment: float) -> bool:
        return moment >= self._ended_at + _SWEEP_SOON_S and self._count() >= self._grown_to + _GROWN

    def _count(self) -> int:
        with self._context.ledger.reading() as connection:
            return runs.next_number(connection) + retention.last_place(connection)
