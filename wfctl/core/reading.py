"""A trigger in English, for `add`, `edit`, `show` and `cron explain` (contract 4.6).

The words name exactly the times that the fields name, no more and no fewer. Where a step does not divide the hour or the day
evenly they say where it begins and ends, since it starts anew each time; where day of month and day of week are both
restricted they say OR, and name the months before it, to which both belong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from wfctl.core.cron import Expression, Field
from wfctl.core.duration import format_duration
from wfctl.core.instants import format_instant
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger, Trigger
from wfctl.core.trigger import expression_of

MONTHS = (
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
_TIMES_LISTED = 4  #: times of day that are named one by one, where they could be drawn together
_HOURS_LISTED = 12  #: single times of day that are named one by one, where they cannot
_RUNS_NAMED = 3  #: stretches of hours that are named as `from … to …`
_STEPS_NAMED = 5  #: values from which on a list with an even step is named as a step


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
        "every month" if expression.month.is_every else _and(_months(expression.month)),
        "every day of the week" if expression.weekday.is_every else _and(_weekdays(expression.weekday)),
    )


def _cron(expression: Expression) -> str:
    times = _times(expression.minute, expression.hour)
    days = _days(expression)
    month = "" if expression.month.is_every else _in_months(expression.month)
    if expression.has_both_days:  # the months first, for they hold for both: `in March, on day 1 OR on Friday`
        return f"{times} {month}, {days}" if month else f"{times} {days}"
    return " ".join(part for part in (times, days, month) if part)


# Times of day -----------------------------------------------------------------------------------------------------------


def _times(minutes: Field, hours: Field) -> str:
    if hours.is_every:
        return _every_hour(minutes)
    if len(minutes.values) * len(hours.values) <= _TIMES_LISTED:
        return _clock_times(minutes, hours)
    step = _even_step(minutes)
    told = _stretches(minutes, hours, step) if step else None
    if told is not None:
        return told
    if len(minutes.values) == 1 and len(hours.values) <= _HOURS_LISTED:
        return _clock_times(minutes, hours)
    return f"{_minutes(minutes, step)} of {_numbers('hour', hours)}"


def _clock_times(minutes: Field, hours: Field) -> str:
    return _and([f"{hour:02}:{minute:02}" for hour in hours.values for minute in minutes.values])


def _every_hour(minutes: Field) -> str:
    step = _even_step(minutes)
    if step == 60:
        return "every hour, on the hour" if minutes.values == (0,) else f"every hour, at minute {minutes.values[0]}"
    if step:
        return _minutes(minutes, step)
    told = _minutes(minutes, step)
    return f"{told} of every hour" if told.startswith("every") else f"every hour, {told}"


def _minutes(minutes: Field, step: int | None) -> str:
    """The minutes of an hour, however often it comes: `every 10 minutes`, `every 7 minutes from :00 to :56`, `at minute 5`."""
    first, last = minutes.values[0], minutes.values[-1]
    if step == 1:
        return "every minute"
    if step and step < 60:
        return f"every {step} minutes" + (f" from :{first:02}" if first else "")
    uneven = _step(minutes.values)
    if uneven:
        return f"every {uneven} minutes from :{first:02} to :{last:02}"
    return f"at {_numbers('minute', minutes)}"


def _stretches(minutes: Field, hours: Field, step: int) -> str | None:
    """Times that go on evenly from hour to hour: `every 10 minutes from 09:00 to 17:50`; None where their stretches are many.

    Given: `step`, the minutes from one to the next, 60 for one minute of an hour.
    """
    first, last = minutes.values[0], minutes.values[-1]
    apart = _step(hours.values)
    if step == 60 and apart:
        return f"every {apart} hours from {hours.values[0]:02}:{first:02} to {hours.values[-1]:02}:{first:02}"
    runs = _runs(hours.values)
    if len(runs) > _RUNS_NAMED or (step == 60 and len(runs) == len(hours.values)):
        return None
    often = {1: "every minute", 60: "every hour"}.get(step, f"every {step} minutes")
    stretches = [f"from {run[0]:02}:{first:02} to {run[-1]:02}:{last:02}" for run in runs if step < 60 or len(run) > 1]
    single = [f"at {run[0]:02}:{first:02}" for run in runs if step == 60 and len(run) == 1]
    return f"{often} {_and([*stretches, *single])}"


def _even_step(minutes: Field) -> int | None:
    """The step of minutes that go on evenly over the hour's end: 5, 20, 35, 50 is 15, one minute is 60."""
    values = minutes.values
    step = 60 // len(values)
    return step if step * len(values) == 60 and values == tuple(range(values[0], 60, step)) else None


# Days and months --------------------------------------------------------------------------------------------------------


def _days(expression: Expression) -> str:
    day = f"on {_numbers('day', expression.day, ' of the month')}"
    weekday = "every day of the week" if expression.weekday.is_every else _and(_weekdays(expression.weekday))
    if expression.has_both_days:
        return f"{day} OR on {weekday}"
    if not expression.day.is_every:
        return day
    if not expression.weekday.is_every:
        return f"on {weekday}"
    return "" if expression.hour.is_every else "every day"


def _weekdays(field: Field) -> list[str]:
    """Monday first, Sunday last; a stretch over the end of the week is one: `Friday to Monday`."""
    runs = _joined(_runs(sorted(value or 7 for value in field.values)), 7)
    return _named(runs, lambda value: _WEEKDAYS[value % 7])


def _months(field: Field) -> list[str]:
    return _named(_joined(_runs(field.values), 12), lambda value: MONTHS[value - 1])


def _in_months(field: Field) -> str:
    words = _months(field)
    return f"from {words[0]}" if len(words) == 1 and " to " in words[0] else f"in {_and(words)}"


# Lists ------------------------------------------------------------------------------------------------------------------


def _numbers(noun: str, field: Field, belongs: str = "") -> str:
    """The values of a field: `every minute`, `days 1, 5 and 7 to 9 of the month`, `every 2nd day of the month from 1 to 31`."""
    if field.is_every:
        return f"every {noun}{belongs}"
    values = field.values
    step = _step(values)
    if step and len(values) >= _STEPS_NAMED:
        return f"every {_ordinal(step)} {noun}{belongs} from {values[0]} to {values[-1]}"
    return f"{noun}{'s' * (len(values) > 1)} {_and(_named(_runs(values), str))}{belongs}"


def _step(values: Sequence[int]) -> int | None:
    """The step of at least four values that lie evenly apart, 2 or more; None for others."""
    if len(values) < 4:
        return None
    step = values[1] - values[0]
    return step if step > 1 and list(values) == list(range(values[0], values[-1] + 1, step)) else None


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _runs(values: Sequence[int]) -> list[list[int]]:
    """The values as stretches of successive ones."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] + 1 == value:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _joined(runs: list[list[int]], size: int) -> list[list[int]]:
    """The stretches of values 1 to `size`, with the last and the first joined where that makes one of three or more."""
    if len(runs) < 2 or runs[0][0] != 1 or runs[-1][-1] != size or len(runs[0]) + len(runs[-1]) < 3:
        return runs
    return [*runs[1:-1], [*runs[-1], *runs[0]]]


def _named(runs: Sequence[Sequence[int]], name: Callable[[int], str]) -> list[str]:
    """The stretches in words, three or more successive values drawn together: `Monday to Friday`."""
    words: list[str] = []
    for run in runs:
        words.extend([f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else map(name, run))
    return words


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
