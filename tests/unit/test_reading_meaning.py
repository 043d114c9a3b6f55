"""The English of an expression means its instants: read back by a reader of its own, over thousands of expressions (4.1, 4.6).

The reader below knows English, months and weekdays, and nothing of cron or of how the words were made.
"""

from __future__ import annotations

import random
import re
from calendar import day_name, month_name
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.chance import times
from wfctl.core.cron import RULES, Expression, ExpressionRefused, FieldRule, parse_expression
from wfctl.core.model import CronTrigger
from wfctl.core.preview import preview
from wfctl.core.reading import field_readings, reading_of
from wfctl.core.trigger import CalendarError, CronCalendar

MINUTES, HOURS, DAYS = frozenset(range(60)), frozenset(range(24)), frozenset(range(1, 32))
MONTHS = {name: number for number, name in enumerate(month_name) if name}
WEEKDAYS = {name: (number + 1) % 7 for number, name in enumerate(day_name)}  # Sunday is 0


# The reader -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meaning:
    """What a sentence says: times of day, months, and on which days."""

    times: frozenset[tuple[int, int]]
    days: frozenset[int]
    weekdays: frozenset[int]
    months: frozenset[int]
    either: bool  #: day of month OR day of week
    zone: str

    def says(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        is_day = day or weekday if self.either else day and weekday
        return (local.hour, local.minute) in self.times and is_day and local.month in self.months


def read(sentence: str) -> Meaning:
    """Return what a sentence means. Raise ValueError for one that is not understood to its end."""
    words, zone = sentence.rsplit(", ", 1)
    days, weekdays, months, either = DAYS, frozenset(WEEKDAYS.values()), frozenset(MONTHS.values()), False
    if " OR " in words:
        words, _, other = words.partition(" OR on ")
        weekdays, either = of_weekdays(other), True
        words, _, first = words.rpartition("on ")
        days = of_days(first)
        words = words.rstrip(" ").removesuffix(",")
        words, months = cut_months(words)
        return Meaning(of_times(words), days, weekdays, months, either, zone)
    words, months = cut_months(words)
    if words.endswith(" every day"):
        words = words.removesuffix(" every day")
    elif " on " in words and not words.endswith("on the hour"):
        words, _, which = words.rpartition(" on ")
        if "of the month" in which:
            days = of_days(which)
        else:
            weekdays = of_weekdays(which)
    return Meaning(of_times(words), days, weekdays, months, either, zone)


def cut_months(words: str) -> tuple[str, frozenset[int]]:
    named = "|".join(MONTHS)
    match = re.fullmatch(rf"(.*) (?:in|from) ((?:{named})(?:(?:, | and | to )(?:{named}))*)", words)
    if match is None:
        return words, frozenset(MONTHS.values())
    return match[1], listed(match[2], MONTHS, 12)


def of_weekdays(words: str) -> frozenset[int]:
    return frozenset(WEEKDAYS.values()) if words == "every day of the week" else listed(words, WEEKDAYS, 7)


def of_days(words: str) -> frozenset[int]:
    assert "of the month" in words, words
    words = words.replace(" of the month", "")
    return numbers(words, "day", DAYS)


def listed(words: str, known: dict[str, int], size: int) -> frozenset[int]:
    """`A, B to D and E`, going round at the end."""
    found: set[int] = set()
    for part in re.split(r", | and ", words):
        first, _, last = part.partition(" to ")
        at = known[first]
        while True:
            found.add(at)
            if at == known[last or first]:
                break
            at = at % size + 1 if size == 12 else (at + 1) % size
    return frozenset(found)


def numbers(words: str, noun: str, everything: frozenset[int]) -> frozenset[int]:
    """`every day`, `day 3`, `days 1, 3 to 5 and 9`, `every 2nd day from 1 to 31`."""
    if words == f"every {noun}":
        return everything
    match = re.fullmatch(rf"every (\d+)(?:st|nd|rd|th) {noun} from (\d+) to (\d+)", words)
    if match:
        return frozenset(range(int(match[2]), int(match[3]) + 1, int(match[1])))
    match = re.fullmatch(rf"{noun}s? (.+)", words)
    if match is None:
        raise ValueError(words)
    return listed(match[1], {str(number): number for number in everything}, 10**9) if "to" not in match[1] else spans(match[1])


def spans(words: str) -> frozenset[int]:
    found: set[int] = set()
    for part in re.split(r", | and ", words):
        first, _, last = part.partition(" to ")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def clock(text: str) -> int:
    assert re.fullmatch(r"\d\d:\d\d", text), text
    return int(text[:2]) * 60 + int(text[3:])


def of_times(words: str) -> frozenset[tuple[int, int]]:
    return frozenset(divmod(minute, 60) for minute in of_minutes(words))


def of_minutes(words: str) -> set[int]:
    """Minutes of the day."""
    if re.match(r"\d\d:\d\d", words):
        return {clock(part) for part in re.split(r", | and ", words)}
    if words == "every hour, on the hour":
        return {hour * 60 for hour in HOURS}
    if words.startswith("every hour, at "):
        return crossed(HOURS, numbers(words.removeprefix("every hour, at "), "minute", MINUTES))
    match = re.fullmatch(r"(.+) of (every hour|hours? .+|every \d+(?:st|nd|rd|th) hour .+)", words)
    if match:
        return crossed(numbers(match[2], "hour", HOURS), of_one_hour(match[1]))
    match = re.fullmatch(r"every (minute|hour|(\d+) (minutes|hours))(?: (.+))?", words)
    if match is None:
        raise ValueError(words)
    step = int(match[2] or 1) * (60 if "hour" in match[1] else 1)
    if match[4] is None:
        return set(range(0, 24 * 60, step))
    start = re.fullmatch(r"from :(\d\d)", match[4])
    if start:
        return set(range(int(start[1]), 24 * 60, step))
    found: set[int] = set()
    for part in re.split(r", | and ", match[4]):
        stretch = re.fullmatch(r"from (\d\d:\d\d) to (\d\d:\d\d)", part)
        if stretch:
            first, last = clock(stretch[1]), clock(stretch[2])
            assert (last - first) % step == 0, f"{words}: the end is not reached"
            found.update(range(first, last + 1, step))
        else:
            found.add(clock(part.removeprefix("at ")))
    return found


def of_one_hour(words: str) -> frozenset[int]:
    """Minutes of whatever hour comes."""
    if words == "every minute":
        return MINUTES
    match = re.fullmatch(r"every (\d+) minutes(?: from :(\d\d)(?: to :(\d\d))?)?", words)
    if match:
        first, last = int(match[2] or 0), int(match[3] or 59)
        assert match[3] is None or (last - first) % int(match[1]) == 0
        return frozenset(range(first, last + 1, int(match[1])))
    return numbers(words.removeprefix("at "), "minute", MINUTES)


def crossed(hours: frozenset[int], minutes: frozenset[int]) -> set[int]:
    return {hour * 60 + minute for hour in hours for minute in minutes}


# Random expressions -----------------------------------------------------------------------------------------------------


def an_item(chance: random.Random, rule: FieldRule) -> str:
    low, high = chance.randint(rule.low, rule.high), chance.randint(rule.low, rule.high)
    step = chance.choice([1, 2, 2, 3, 4, 5, 6, 7, 10, 12, 15, 20, 25, 30, 45])
    shape = chance.choice(["{low}", "{low}", "{low}-{high}", "*/{step}", "{low}-{high}/{step}"])
    return shape.format(low=low, high=high, step=step)


def a_field(chance: random.Random, rule: FieldRule) -> str:
    if chance.random() < 0.3:
        return "*"
    return ",".join(an_item(chance, rule) for _ in range(chance.choice([1, 1, 1, 2, 3, 6])))


def expressions(seed: int, count: int) -> Iterator[Expression]:
    chance = random.Random(seed)
    while count:
        try:
            made = parse_expression(" ".join(a_field(chance, rule) for rule in RULES))
        except ExpressionRefused:
            continue
        count -= 1
        yield made


EXAMPLES = [
    "* * * * *", "0 * * * *", "5 * * * *", "*/7 * * * *", "*/15 * * * *", "5-59/15 * * * *", "5,35 * * * *", "*/25 * * * *",
    "*/10 9-17 * * 1-5", "*/7 9-17 * * *", "0 9-17 * * *", "30 9-17/2 * * *", "0 */2 * * *", "0 */5 * * *", "* 5 * * *",
    "0 8-11,14-17 * * *", "0 8-11,20 * * *", "0 3,8-11 * * *", "*/10 22-2 * * fri", "0 1,3,8,12,20 * * *", "*/10 */3 * * *",
    "10-59/20 1,4,9,12 * * *", "0 0 13 * 5", "0 0 */2 * 1", "0 0 1 */3 */2", "0 6 1 mar fri", "0 6 */2 1-3 fri",
    "0 0 1-31 * 1", "0 0 1 * 0-6", "0 0 1-31 * *", "0 0 * * 0-6", "0 0 * 11-2 fri-mon", "0 0 * * sun,mon", "0 0 29 2 *",
    "7 * 1 * *", "*/20 * 1 6 *", "59 23 31 12 7",
]  # fmt: skip


def means_its_fields(expression: Expression) -> None:
    sentence = reading_of(CronTrigger(expression.text, "Etc/GMT-2"))
    meaning = read(sentence)
    told = f"{expression.text}: {sentence}"
    times = {(hour, minute) for hour in expression.hour.values for minute in expression.minute.values}
    assert meaning.times == times, told
    assert meaning.months == set(expression.month.values), told
    assert meaning.days == set(expression.day.values), told
    assert meaning.weekdays == set(expression.weekday.values), told
    assert meaning.either == expression.has_both_days == (" OR " in sentence), told
    assert meaning.zone == "Etc/GMT-2"


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_words_of_an_example_mean_its_fields(text: str) -> None:
    means_its_fields(parse_expression(text))


@pytest.mark.parametrize("seed", range(4))
def test_the_words_mean_the_fields_over_thousands_of_expressions(seed: int) -> None:  # contract 4.1, 4.6
    for expression in expressions(seed, times(700)):
        means_its_fields(expression)


def test_the_words_of_each_field_mean_its_values() -> None:
    for expression in expressions(99, times(1000)):
        minute, hour, day, month, weekday = field_readings(expression)
        assert numbers(minute, "minute", MINUTES) == set(expression.minute.values), minute
        assert numbers(hour, "hour", HOURS) == set(expression.hour.values), hour
        assert numbers(day, "day", DAYS) == set(expression.day.values), day
        months = frozenset(MONTHS.values()) if month == "every month" else listed(month, MONTHS, 12)
        assert months == set(expression.month.values), month
        assert of_weekdays(weekday) == set(expression.weekday.values), weekday


@pytest.mark.parametrize("seed", range(4))
def test_the_words_mean_the_instants(seed: int) -> None:  # contract 4.2, 4.6
    """From a random time on the next instants are exactly the minutes that the words say, however far apart they are."""
    chance = random.Random(1000 + seed)
    for expression in expressions(1000 + seed, times(120)):
        trigger = CronTrigger(expression.text, "UTC")
        meaning = read(reading_of(trigger))
        after = datetime(
            2024 + chance.randrange(6), chance.randint(1, 12), chance.randint(1, 28), chance.randrange(24), 17, tzinfo=UTC
        )
        try:
            found = [row.instant for row in preview(trigger, None, after, 4)]
        except CalendarError:
            assert not any(meaning.says(day) for day in noons(meaning, after, 366 * 8)), expression.text
            continue
        assert found == list(said(meaning, after, 4)), (expression.text, reading_of(trigger))


def noons(meaning: Meaning, after: datetime, days: int) -> Iterator[datetime]:
    """A time of each of the coming days at which the sentence speaks."""
    hour, minute = min(meaning.times)
    start = after.replace(hour=hour, minute=minute)
    return (start + timedelta(days=number) for number in range(days))


def said(meaning: Meaning, after: datetime, count: int) -> Iterator[datetime]:
    """The first minutes later than `after` at which the sentence speaks."""
    midnight = after.replace(hour=0, minute=0)
    times = sorted(meaning.times)
    while count:
        if meaning.says(midnight.replace(hour=times[0][0], minute=times[0][1])):
            for hour, minute in times:
                at = midnight.replace(hour=hour, minute=minute)
                if at > after and count:
                    count -= 1
                    yield at
        midnight += timedelta(days=1)


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran"])
def test_at_a_clock_change_only_marked_instants_are_not_what_the_words_say(zone: str) -> None:  # contract 4.2, 4.6
    for expression in expressions(7, times(20)):
        trigger = CronTrigger(expression.text, zone)
        meaning = read(reading_of(trigger))
        for month in (3, 4, 10, 11):
            after = datetime(2027, month, 1, 12, 1, tzinfo=UTC) + timedelta(days=6)
            try:
                rows = preview(trigger, None, after, 40)
            except CalendarError:
                continue
            wrong = [row for row in rows if row.note != "gap" and not meaning.says(row.local.replace(tzinfo=None))]
            assert not wrong, (expression.text, wrong[0])


def test_both_passes_of_a_repeated_hour_are_said_once_and_come_twice() -> None:
    calendar = CronCalendar(CronTrigger("30 2 * * *", "Europe/Paris"))
    first = calendar.next_after(datetime(2027, 10, 30, 12, tzinfo=UTC))
    assert [f"{at:%d %H:%M}" for at in (first, calendar.next_after(first))] == ["31 00:30", "31 01:30"]


@pytest.mark.parametrize(
    "sentence",
    [
        "every 7 minutes from :00 to :55 of every hour, UTC",
        "every 2 hours from 00:00 to 23:00 every day, UTC",
        "now and then, UTC",
    ],
)
def test_the_reader_takes_no_sentence_that_does_not_add_up(sentence: str) -> None:
    with pytest.raises((ValueError, AssertionError, KeyError)):
        read(sentence)
