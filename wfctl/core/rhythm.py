"""How often an expression fires: how many times a year, and how far apart, on the clock of its zone (clock changes aside)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise

from wfctl.core.cron import Expression

YEARS = 8  #: looked at where it fires less than once a year: each pair of leap days but for 2096 and 2104
_MONTH = 30.436875  #: days, on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How an expression fires over a time."""

    since: date
    days: int  #: how many were looked at
    fires: int  #: in those days
    shortest: timedelta | None  #: between two successive ones, the first of them within those days; None where there are no two
    longest: timedelta | None

    @property
    def a_month(self) -> float:
        """How often it fires in a month on average."""
        return self.fires * _MONTH / self.days


def rhythm_of(expression: Expression, since: date) -> Rhythm:
    """Given an expression, return how it fires in the year that begins on that day, or in eight where it fires in none.

    Nothing but the fields is asked, so the cost is that of looking at each day, however often it fires.
    """
    horizon = [since + timedelta(days=number) for number in range(YEARS * 366) if _is_in_calendar(since, number)]
    matching = [day for day in horizon if _matches(expression, day)]
    days = 366 if _has_leap_day(since) else 365
    if not matching or matching[0] - since >= timedelta(days=days):
        days = len(horizon)
    within = sum(day - since < timedelta(days=days) for day in matching)
    times = [time(hour, minute) for hour in expression.hour.values for minute in expression.minute.values]
    gaps = _gaps(times, matching[: within + 1]) if matching else set()
    return Rhythm(
        since=since,
        days=days,
        fires=within * len(times),
        shortest=min(gaps, default=None),
        longest=max(gaps, default=None),
    )


def _is_in_calendar(since: date, number: int) -> bool:
    return (date.max - since).days > number


def _has_leap_day(since: date) -> bool:
    """Whether the year that begins on that day has 366 days."""
    leap = since.year if since.month <= 2 else since.year + 1
    return leap % 4 == 0 and (leap % 100 != 0 or leap % 400 == 0)


def _matches(expression: Expression, day: date) -> bool:
    if day.month not in expression.month.values:
        return False
    is_day = day.day in expression.day.values
    is_weekday = day.isoweekday() % 7 in expression.weekday.values
    return is_day or is_weekday if expression.has_both_days else is_day and is_weekday


def _gaps(times: list[time], days: list[date]) -> set[timedelta]:
    """The spans between successive times of day, and from the last of a day to the first of the next."""
    moments = [datetime.combine(date.min, each) for each in times]
    within = {later - earlier for earlier, later in pairwise(moments)} if days else set()
    night = timedelta(days=1) - (moments[-1] - moments[0])
    return within | {night + (later - earlier) - timedelta(days=1) for earlier, later in pairwise(days)}
