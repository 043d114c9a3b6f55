"""Noticing that the wall clock jumped: it was set, or the machine slept (contract 5.14). What follows is decided elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from wfctl.clock import Clock
from wfctl.core.duration import brief

_LEAST_S = 2.0  #: a clock that is only steered stays below this


class ClockWatch:
    """Compares the wall clock with the one that nobody sets."""

    def __init__(self, clock: Clock, boottime: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._boottime = boottime or (_boottime if clock.is_system else clock.monotonic)
        self._ahead_s: float | None = None
        self._slept_s = 0.0

    def look(self, now: datetime) -> str | None:
        """Return how the clock has jumped since the last look, such as `+2h 03m (suspend)`; None where it has not."""
        moment = self._clock.monotonic()
        ahead_s, slept_s = now.timestamp() - moment, self._boottime() - moment
        before_s, slept_before_s = self._ahead_s, self._slept_s
        self._ahead_s, self._slept_s = ahead_s, slept_s
        if before_s is None or abs(ahead_s - before_s) < _LEAST_S:
            return None
        jumped_s = ahead_s - before_s
        is_sleep = slept_s - slept_before_s >= jumped_s / 2 > 0
        return f"{'+' if jumped_s > 0 else ''}{brief(timedelta(seconds=jumped_s))} ({'suspend' if is_sleep else 'set'})"


def _boottime() -> float:
    """Return seconds since the start of the machine, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
