"""Laying stretches of time side by side, so that none covers another."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime


def assign_tracks(stretches: Sequence[tuple[datetime, datetime]]) -> list[int]:
    """Given stretches, return the track of each: the lowest that is free when it begins. A track is free at the very end.

    Shape: as many numbers as stretches, from 0. The longer of two that begin together comes first.
    """
    tracks = [0] * len(stretches)
    free: list[int] = []
    taken: list[tuple[datetime, int]] = []
    order = sorted(range(len(stretches)), key=lambda at: (stretches[at][0], stretches[at][0] - stretches[at][1], at))
    for index in order:
        begins, ends = stretches[index]
        while taken and taken[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(taken)[1])
        track = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (max(begins, ends), track))
        tracks[index] = track
    return tracks
