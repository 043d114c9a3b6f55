"""How many execution slots are in use, bucket by bucket, and who meets whom where it is tightest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """A time in which one run of a schedule holds a slot."""

    begins: datetime
    ends: datetime
    schedule_id: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """A piece of time: slots in use on average, and at most."""

    begins: datetime
    mean: float
    peak: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The tightest moment: how many slots are in use, and the schedules that hold them, the longest run first."""

    at: datetime
    used: int
    stretches: tuple[Stretch, ...]


def buckets_of(stretches: Iterable[Stretch], since: datetime, until: datetime, width: timedelta) -> list[Bucket]:
    """Given stretches, return the buckets of `width` that cover (since, until), aligned to the epoch in UTC.

    Units: slots. Shape: the mean counts the part of a bucket that lies within (since, until). A run of no length counts for
    nothing. Raise ValueError for a width of zero or less.
    """
    if width <= timedelta(0):
        raise ValueError("a bucket has a width")
    first = since - (since - datetime.fromtimestamp(0, since.tzinfo)) % width
    count = -(-(until - first) // width)
    held = [timedelta(0)] * count
    steps: list[list[tuple[datetime, int]]] = [[] for _ in range(count)]
    for each in stretches:
        begins, ends = max(each.begins, since), min(each.ends, until)
        if begins >= ends:
            continue
        for number in range((begins - first) // width, min(count - 1, (ends - first) // width) + 1):
            start = first + number * width
            low, high = max(begins, start), min(ends, start + width)
            if low < high:
                held[number] += high - low
                steps[number] += [(low, 1), (high, -1)]
    found = []
    for number in range(count):
        start = first + number * width
        length = min(until, start + width) - max(since, start)
        found.append(Bucket(start, held[number] / length if length else 0.0, _most(steps[number])))
    return found


def _most(steps: list[tuple[datetime, int]]) -> int:
    now = most = 0
    for _, step in sorted(steps):  # at one time ends come before beginnings, as -1 does before 1
        now += step
        most = max(most, now)
    return most


def peak_of(stretches: Sequence[Stretch]) -> Peak | None:
    """Given stretches, return the first moment at which the most slots are in use; None where none ever is."""
    steps = sorted([(each.begins, 1) for each in stretches] + [(each.ends, -1) for each in stretches])
    now = most = 0
    at = None
    for moment, step in steps:
        now += step
        if now > most:
            most, at = now, moment
    if at is None:
        return None
    there = sorted((each for each in stretches if each.begins <= at < each.ends), key=lambda it: (it.begins - it.ends, it))
    return Peak(at, most, tuple(there))
