"""Keeping the output of runs within `[runs] max_output`, while they live and at their end (contract 6.15).

A look costs two system calls a live run, and of many live runs it takes some at a time. Releasing may wait for the disk, so a
supervisor has a worker do it; a driver of one run does it itself. A supervisor looks at ended runs a moment later and together:
while many of them end, others are about to start.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from wfctl.core.model import run_name
from wfctl.operations.worker import Worker
from wfctl.store.layout import Layout
from wfctl.store.outputs import log_size, release_middle

LOG = logging.getLogger("wfctl.outputs")
_AT_ONCE = 256  #: live runs looked at in one go; the others take their turns
_ENDED_S = 0.2  #: after a run ended its logs are looked at once more
_SOONEST_S = 0.05  #: the least time between two looks, while something is printed fast


@dataclass(slots=True)
class _Log:
    """What is known of one log that has grown."""

    size: int = 0  #: at the last look
    done_to: int = 0  #: its middle is released up to here
    is_at_work: bool = False
    is_unbounded: bool = False  #: its file system cannot


class OutputBounds:
    """Looks at the logs of live runs every `every_s()` seconds, sooner where one grows fast, and of ended ones once more."""

    def __init__(self, layout: Layout, *, most: Callable[[], int], every_s: Callable[[], float], worker: Worker | None) -> None:
        self._layout = layout
        self._most = most
        self._every_s = every_s
        self._worker = worker
        self._logs: dict[str, _Log] = {}
        self._ended: set[int] = set()
        self._look_at_ended: float | None = None
        self._turn = 0
        self._pause_s = every_s()
        self._look_at = 0.0
        self.unbounded: set[str] = set()  #: live runs whose output cannot be bounded

    def at_end(self, number: int) -> None:
        """Note that a run has ended: its logs are looked at once more."""
        self._ended.add(number)

    def next_look(self, live: Collection[int]) -> float | None:
        """Return the monotonic time of the next look; None while nothing lives."""
        times = [self._look_at] if live else []
        if self._ended:
            times.append(self._look_at_ended or 0.0)
        return min(times, default=None)

    def look(self, live: Collection[int], moment: float) -> None:
        """Given the live runs and the monotonic time, release what is too much. Never fails."""
        self._look_at_ends(moment)
        if self.unbounded:
            self.unbounded &= {run_name(number) for number in live}
        if moment < self._look_at or not live:
            return
        most, grew = self._most(), 0
        for number in self._turns(live):
            grew = max(grew, self._look_at_run(number))
        is_fast = grew > most // 2
        self._pause_s = max(_SOONEST_S, self._pause_s / 2) if is_fast else min(self._every_s(), self._pause_s * 2)
        self._look_at = moment + self._pause_s

    def _look_at_ends(self, moment: float) -> None:
        if self._ended and self._look_at_ended is None:
            self._look_at_ended = moment + (0.0 if self._worker is None else _ENDED_S)
        if self._look_at_ended is None or moment < self._look_at_ended:
            return
        ended, self._ended, self._look_at_ended = self._ended, set(), None
        for number in ended:
            self._look_at_run(number)
            for path in self._paths(number):
                self._logs.pop(path, None)

    def sweep(self, numbers: Iterable[int]) -> None:
        """Look at runs that ended while nobody bounded them."""
        if self._worker is not None:
            runs = list(numbers)
            self._worker.submit(lambda: self._bound_now(runs))

    def close(self) -> None:
        """Stop what is being released."""
        if self._worker is not None:
            self._worker.close()

    def _turns(self, live: Collection[int]) -> Iterable[int]:
        if len(live) <= _AT_ONCE:
            return list(live)
        begin = self._turn % len(live)
        self._turn = begin + _AT_ONCE
        return list(itertools.islice(itertools.cycle(live), begin, begin + _AT_ONCE))

    def _paths(self, number: int) -> tuple[str, str]:  # texts: a thousand runs may end at once
        root = f"{self._layout.runs}/{run_name(number)}"
        return f"{root}/stdout.log", f"{root}/stderr.log"

    def _look_at_run(self, number: int) -> int:
        """Look at the logs of one run; return by how much one has grown since the last look."""
        most, grew = self._most(), 0
        for path in self._paths(number):
            size = log_size(path)
            log = self._logs.get(path)
            if log is None:
                if size <= most:
                    continue
                log = self._logs[path] = _Log(size=most)
            grew = max(grew, size - log.size)
            if size > log.size and size > most and not log.is_at_work and not log.is_unbounded:
                self._release(number, path, log, most)
            log.size = size
        return grew

    def _release(self, number: int, path: str, log: _Log, most: int) -> None:
        if self._worker is None:
            self._release_now(number, path, log, most)
            return
        log.is_at_work = True
        if not self._worker.submit(lambda: self._release_now(number, path, log, most)):
            log.is_at_work = False

    def _release_now(self, number: int, path: str, log: _Log, most: int) -> None:
        try:
            log.done_to = release_middle(path, most, done_to=log.done_to)
        except FileNotFoundError:
            return
        except OSError as error:
            log.is_unbounded = True
            self.unbounded.add(run_name(number))
            LOG.warning(
                "%s has printed more than max_output (%d bytes), and the middle of %s cannot be released: %s",
                run_name(number),
                most,
                path.rpartition("/")[2],
                error.strerror,
                extra={"action": "output_unbounded", "run": run_name(number)},
            )
        finally:
            log.is_at_work = False

    def _bound_now(self, numbers: Iterable[int]) -> None:
        most = self._most()
        for number in numbers:
            for path in self._paths(number):
                if log_size(path) > most:
                    self._release_now(number, path, _Log(), most)
