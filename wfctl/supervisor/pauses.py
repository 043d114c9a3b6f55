"""How long the interpreter itself keeps the loop waiting, bounded (contract 9.2). For a process that is a supervisor.

Threads that work out answers share one lock with the loop, and a collection of all garbage holds it throughout: with a few
thousand schedules that is 40 to 90 ms (CPython 3.11). So threads take turns quickly, and garbage waits for a quiet moment.
"""

from __future__ import annotations

import gc
import sys
import time

_SWITCH_S = 0.0005  # what a busy thread keeps another one waiting each time; Python's own 5 ms add up to more than an admission
_EVERY_S, _QUIET_S = 10.0, 0.5
_AT_LAST_S, _NOT_NOW_S = 300.0, 0.1
_NEVER = 1_000_000  # collections of the young before one of all: it is asked for instead


class Pauses:
    """Collects garbage at quiet times."""

    def __init__(self) -> None:
        self._collected_at = time.monotonic()

    def begin(self) -> None:
        """Take over what the interpreter does by itself."""
        sys.setswitchinterval(_SWITCH_S)
        self._collect()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)

    def look(self, until_due_s: float) -> None:
        """Collect what there is where it is time to, and nothing comes due in `until_due_s` seconds."""
        since_s = time.monotonic() - self._collected_at
        is_time = since_s > _EVERY_S and until_due_s > _QUIET_S
        if is_time or (since_s > _AT_LAST_S and until_due_s > _NOT_NOW_S):
            self._collect()

    def _collect(self) -> None:
        gc.collect()
        gc.freeze()  # what is still in use is not looked through again; counted references free it all the same
        self._collected_at = time.monotonic()
