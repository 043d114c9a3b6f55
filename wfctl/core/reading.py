"""A trigger in English, for `add`, `edit`, `show` and `cron explain` (contract 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wfctl.core.cron import Expression, Field
from wfctl.core.duration import format_duration
from wfctl.core.instants import format_instant
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger, Trigger
from wfctl.core.trigger import expression_of

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_TIMES_LISTED = 4  #: times of day that are named one by one


def reading_of(trigger: Trigger, anchor: datetime | None = None) -> str:
    """Given a trigger, return what it says in English: `02:30 on Monday to Friday, Europe/Paris`.

    Given the anchor of an interval, that is named too. Raise CalendarError for a cron trigger that cannot be read any more.
    """
    match trigger:
        case CronTrigger(_, zone):
            return f"{_cron(expression_of(trigger))}, {zone}"
        case IntervalTrigger(every):
            since = f", counted from {format_instant(anchor)}" if anchor else ""
            return f"every {format_duration(every)}{since}"
        case OneshotTrigger(at):
            return f"once, at {format_instant(at)}"


def field_readings(expression: Expression) -> tuple[str, str, str, str, str]:
    """Given an expression, return its five fields in English: `minute 0`, `hour 0`, `day 13`, `every month`, `Friday`."""
    return (
        _numbers("minute", expression.minute),
        _numbers("hour", expression.hour),
        _numbers("day", expression.day),
        _named(expression.month, _MONTHS, 1, "every month"),
        _named(expression.weekday, _WEEKDAYS, 0, "every weekday"),
    )


def _cron(expression: Expression) -> str:
    parts = [_times(expression), _days(expression), _months(expression)]
    return " ".join(part for part in parts if part)


def _times(expression: Expression) -> str:
    minutes, hours = expression.minute, expression.hour
    if hours.is_every:
        return _every_hour(minutes)
    if len(minutes.values) * len(hours.values) <= _TIMES_LISTED:
        return _and([f"{hour:02}:{minute:02}" for hour in hours.values for minute in minutes.values])
    step = _even_step(minutes, 60)
    often = "every minute" if minutes.is_every else f"every {step} minutes" if step else _numbers("minute", minutes)
    return f"{often} of {_numbers('hour', hours)}"


def _every_hour(minutes: Field) -> str:
    if minutes.is_every:
        return "every minute"
    if step := _even_step(minutes, 60):
        return f"every {step} minutes"
    if minutes.values == (0,):
        return "every hour, on the hour"
    return f"every hour, at {_numbers('minute', minutes)}"


def _even_step(field: Field, size: int) -> int | None:
    """The step of values that divide the size evenly from 0 on: 0, 15, 30, 45 is 15."""
    count = len(field.values)
    step = size // count
    return step if count > 1 and step * count == size and field.values == tuple(range(0, size, step)) else None


def _days(expression: Expression) -> str:
    day = f"on {_numbers('day', expression.day)} of the month"
    weekday = f"on {_named(expression.weekday, _WEEKDAYS, 0, 'every weekday')}"
    if expression.has_both_days:
        return f"{day} OR {weekday}"
    if not expression.day.is_star:
        return day
    if not expression.weekday.is_star:
        return weekday
    return "" if expression.hour.is_every else "every day"


def _months(expression: Expression) -> str:
    return "" if expression.month.is_every else f"in {_named(expression.month, _MONTHS, 1, '')}"


def _numbers(noun: str, field: Field) -> str:
    if field.is_every:
        return f"every {noun}"
    plural = noun + "s" * (len(field.values) > 1)
    return f"{plural} {_and(_ranges([str(value) for value in field.values], field.values))}"


def _named(field: Field, names: Sequence[str], first: int, every: str) -> str:
    if field.is_every:
        return every
    values = field.values
    if names is _WEEKDAYS and 0 in values and 6 in values:
        # Sunday ends the week where Saturday is there too: Friday to Sunday.
        values = (*values[1:], 7)
    return _and(_ranges([names[(value - first) % len(names)] for value in values], values))


def _ranges(words: Sequence[str], values: Sequence[int]) -> list[str]:
    """The words with three or more successive values drawn together: `Monday to Friday`."""
    listed: list[str] = []
    start = 0
    for end in range(len(values)):
        if end + 1 < len(values) and values[end + 1] == values[end] + 1:
            continue
        run = words[start : end + 1]
        listed.extend([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)
        start = end + 1
    return listed


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
