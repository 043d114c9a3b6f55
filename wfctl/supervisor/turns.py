"""Requests and admissions take turns: nothing is begun for a request when an instant is about to come due (contract 9.2)."""

from __future__ import annotations

import time
from collections.abc import Callable

from wfctl.rpc.server import SECONDS_A_ROUND, ControlServer

GUARD_S = 0.015  #: before something comes due, no request is begun: what one of them takes in the loop is less
STARVED_S = 0.25  #: as long as nobody was served, though: then one is, whatever comes due


class Turns:
    """Serves for as long as there is time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._served_at = monotonic()

    def serve(self, until_due_s: float, server: ControlServer, hand_out: Callable[[], bool]) -> float | None:
        """Hand out answers and serve requests until something comes due, in so many seconds.

        `hand_out` gives one answer that was worked out elsewhere, and says whether there was one. Return after how many seconds
        to serve again; None: not before something happens, or what comes due is done with.
        """
        now = self._monotonic()
        left_s = min(until_due_s - GUARD_S, SECONDS_A_ROUND)
        if left_s <= 0 and now - self._served_at < STARVED_S:
            return None
        self._served_at = now
        ends_at = now + left_s
        is_first = True
        while (is_first or self._monotonic() < ends_at) and hand_out():
            is_first = False
        if left_s <= 0:
            return server.serve(requests=1 if is_first else 0)
        left = server.serve(seconds=ends_at - self._monotonic())
        return left if self._monotonic() < ends_at else 0.0
