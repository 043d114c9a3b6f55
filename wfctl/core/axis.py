"""Where a time axis has its ticks, and what stands at them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEPS: tuple[timedelta, ...] = (
    *(timedelta(seconds=each) for each in (1, 2, 5, 10, 15, 30)),
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 28, 91, 364)),
)
_MONDAY = datetime(2001, 1, 1)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick: when, and what stands at it."""

    at: datetime
    label: str
    day: str  #: the date where it is another than at the tick before, else empty


def step_of(length: timedelta, most: int) -> timedelta:
    """Given how long an axis is, return the shortest step that puts at most so many ticks on it."""
    most = max(1, most)
    return next((step for step in STEPS if length / step <= most), STEPS[-1] * -(-length // (STEPS[-1] * most)))


def ticks(since: datetime, until: datetime, zone: tzinfo, *, step: timedelta) -> list[Tick]:
    """Return the ticks within [since, until], at whole steps of the zone's own clock.

    Where the clocks of the zone change, a time that does not exist has no tick, and one that comes twice has one.
    """
    found: list[Tick] = []
    last_day = ""
    for at in _moments(since, until, zone, step):
        local = at.astimezone(zone)
        day = f"{local:%a %d %b}"
        label = f"{local:%a %d}" if step >= _DAY else f"{local:%H:%M}" if step >= _MINUTE else f"{local:%H:%M:%S}"
        if step >= timedelta(days=28):
            label = f"{local:%d %b}"
        found.append(Tick(at, label, day if day != last_day else ""))
        last_day = day
    return found


def _moments(since: datetime, until: datetime, zone: tzinfo, step: timedelta) -> list[datetime]:
    local = since.astimezone(zone).replace(tzinfo=None)
    origin = _MONDAY if step >= _DAY else local.replace(hour=0, minute=0, second=0, microsecond=0)
    wall = origin + -(-(local - origin) // step) * step
    found: list[datetime] = []
    end = until.astimezone(zone).replace(tzinfo=None) + _DAY
    while wall <= end:
        at = wall.replace(tzinfo=zone).astimezone(since.tzinfo)
        if since <= at <= until and at.astimezone(zone).replace(tzinfo=None) == wall and (not found or at > found[-1]):
            found.append(at)
        wall += step
    return found
