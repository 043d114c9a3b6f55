"""The words of a cron expression: exactly five Unix fields, or a refusal that says what to write instead (contract 4.1).

Nothing here knows a calendar. An accepted expression is spelled out for croniter as plain lists of numbers, so that none of its
extensions and none of its own readings of ranges can matter. croniter 7.0.0: `5-5` is the whole field, `R` is a new value at
each parse, a sixth field is seconds, and `0 0 */2 * 0-6` drops the weekdays instead of joining them with OR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wfctl.core.near import near

MAX_CHARACTERS = 256  #: contract 3.6
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SHAPE = "write five fields: minute, hour, day of month, month, day of week, such as '30 2 * * 1-5'"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WORD = re.compile(r"[^ \t]+")
_ITEM = re.compile(r"(?P<low>\*|\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\w+))?", re.ASCII)
_HASHED = re.compile(r"[hr](?:\(.*\))?(?:/.*)?", re.ASCII)


Mark = tuple[int, int]  #: where in a text: the first character and the one after the last


class ExpressionRefused(ValueError):
    """The expression is not one of ours.

    `messages` has a sentence for each thing that is wrong with it, `marks` where in the text it stands; None: everywhere.
    `near` has what was perhaps meant instead of the whole text.
    """

    def __init__(self, messages: Iterable[str], marks: Iterable[Mark | None] = (), near: Iterable[str] = ()) -> None:
        self.messages = tuple(messages)
        self.near = tuple(near)
        given = tuple(marks)
        self.marks = (*given, *[None] * (len(self.messages) - len(given)))
        super().__init__("; ".join(self.messages))


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What one of the five fields may hold."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)


MINUTE = FieldRule("minute", 0, 59)
HOUR = FieldRule("hour", 0, 23)
DAY = FieldRule("day of month", 1, 31)
MONTH = FieldRule("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY = FieldRule("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)})
RULES = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class Field:
    """One field as read: its words, the values they stand for (Sunday is 0), and whether they restrict nothing (`*`)."""

    rule: FieldRule
    words: str
    values: tuple[int, ...]  #: ascending, without repeats
    is_star: bool
    is_wrapped: bool  #: holds an unstepped range whose end lies before its start, as `fri-mon`

    @property
    def is_every(self) -> bool:
        """Whether it takes every value, however that is written."""
        return len(self.values) == (7 if self.rule is WEEKDAY else self.rule.high - self.rule.low + 1)

    @property
    def spelled(self) -> str:
        """The field as croniter gets it: `*` or a list of numbers."""
        return "*" if self.is_star else ",".join(map(str, self.values))

    @property
    def expanded(self) -> str:
        """The field for showing: a wrapped range as the values it stands for, anything else as written."""
        if not self.is_wrapped:
            return self.words
        if self.is_star:
            return "*"
        names = {number: name for name, number in self.rule.names.items()}
        return ",".join(names.get(value, str(value)) for value in self.values)


@dataclass(frozen=True, slots=True)
class Expression:
    """Five fields."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def fields(self) -> tuple[Field, ...]:
        return (self.minute, self.hour, self.day, self.month, self.weekday)

    @property
    def text(self) -> str:
        """The normal form, which is stored: lower case, single blanks, no alias."""
        return " ".join(field.words for field in self.fields)

    @property
    def spelled(self) -> str:
        return " ".join(field.spelled for field in self.fields)

    @property
    def expanded(self) -> str:
        return " ".join(field.expanded for field in self.fields)

    @property
    def has_both_days(self) -> bool:
        """Whether day of month and day of week are both restricted, so that either matches."""
        return not self.day.is_star and not self.weekday.is_star


def parse_expression(text: str) -> Expression:
    """Given the text of a cron expression, return its five fields.

    Raise ExpressionRefused, with a sentence for each field that is wrong, for anything outside contract 4.1.
    """
    words = _split(text)
    fields: list[Field] = []
    messages: list[str] = []
    marks: list[Mark | None] = []
    places = [match.start() for match in _WORD.finditer(text)]  # of an alias, which has one word, every field is right
    for number, (rule, word) in enumerate(zip(RULES, words, strict=True)):
        try:
            fields.append(_parse_field(rule, word))
        except ExpressionRefused as refused:
            messages.extend(refused.messages)
            marks.extend(mark and (places[number] + mark[0], places[number] + mark[1]) for mark in refused.marks)
    if messages:
        raise ExpressionRefused(messages, marks)
    return Expression(*fields)


def _split(text: str) -> list[str]:
    """The five words of the text in lower case, aliases resolved."""
    _check_characters(text)
    plain = text.strip(" \t").lower()
    if plain.startswith("@"):
        plain = _resolve_alias(plain)
    if plain.startswith(("cron_tz=", "tz=")):
        raise ExpressionRefused(
            [f"{_shown(text)} names a zone; write it in the field `timezone` and keep only the five fields"]
        )
    if re.search(r"(?:^|[ \t])#", plain):
        raise ExpressionRefused(
            [f"{_shown(text)} holds a comment; write it in the field `notes` and keep only the five fields"]
        )
    words = re.split(r"[ \t]+", plain) if plain else []
    if len(words) == len(RULES):
        return words
    if not words:
        raise ExpressionRefused([f"the expression is empty; {_SHAPE}"])
    places = [match.span() for match in _WORD.finditer(text)]
    beyond = [(places[len(RULES)][0], places[-1][1])] if len(words) > len(RULES) and len(places) == len(words) else []
    count = f"{_shown(text)} has {len(words)} field{'s' * (len(words) != 1)}, not five"
    if len(words) in (6, 7):
        raise ExpressionRefused([f"{count}; seconds and years are not taken, {_SHAPE}"], beyond)
    raise ExpressionRefused([f"{count}; {_SHAPE}"], beyond)


def _check_characters(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        limit = f"the limit is {MAX_CHARACTERS}"
        raise ExpressionRefused(
            [f"the expression has {len(text)} characters, {limit}; write ranges and steps instead of long lists"]
        )
    for position, character in enumerate(text, 1):
        if character in "\r\n":
            message = f"{_shown(text)} spans several lines; write the five fields on one line"
            raise ExpressionRefused([message], [(position - 1, position)])
        if not (character == "\t" or " " <= character <= "~"):
            what = f"character {position} of {_shown(text)} is {character!a}"
            message = f"{what}; write plain ASCII, with blanks between the fields"
            raise ExpressionRefused([message], [(position - 1, position)])


def _resolve_alias(plain: str) -> str:
    if plain in ALIASES:
        return ALIASES[plain]
    word = plain.split()[0]
    if word == "@reboot":
        advice = "starting up is no instant of a calendar; use a systemd unit that calls `wfctl run start`"
    elif word == "@every":
        advice = 'that is no calendar; write a trigger of kind = "interval", such as every = "5m"'
    else:
        close = near(word, ALIASES, 1)
        advice = f"did you mean {close[0]}?" if close else f"write one of {', '.join(ALIASES)}, or five fields"
        raise ExpressionRefused([f"{_shown(plain)} is not taken: {advice}"], near=close)
    raise ExpressionRefused([f"{_shown(plain)} is not taken: {advice}"])


def _parse_field(rule: FieldRule, words: str) -> Field:
    values: set[int] = set()
    is_star = is_wrapped = False
    messages: list[str] = []
    marks: list[Mark] = []
    for item in dict.fromkeys(words.split(",")):
        try:
            taken, wraps = _parse_item(rule, item, words)
        except ExpressionRefused as refused:
            messages.extend(refused.messages)
            marks.extend([_place(words, item)] * len(refused.messages))
            continue
        values.update(taken)
        is_star = is_star or item == "*"
        is_wrapped = is_wrapped or wraps
    if messages:
        raise ExpressionRefused(messages, marks)
    if rule is WEEKDAY:
        values = {value % 7 for value in values}
    return Field(rule, words, tuple(sorted(values)), is_star, is_wrapped)


def _place(words: str, item: str) -> Mark:
    """Where the first item of a list that reads like this one stands; an empty one is shown by the comma beside it."""
    start = 0
    for other in words.split(","):
        if other == item:
            break
        start += len(other) + 1
    return (start, start + len(item)) if item else (max(0, start - 1), max(1, start))


def _parse_item(rule: FieldRule, item: str, words: str) -> tuple[list[int], bool]:
    """The values of one item of a list, and whether it wraps."""
    match = _ITEM.fullmatch(item)
    if match is None or (match["low"] == "*" and match["high"]):
        raise _refuse(rule, item, _advice(rule, item, words))
    _check_extensions(rule, item)
    step = _number_of_step(rule, item, match["step"])
    if match["low"] == "*":
        high = 6 if rule is WEEKDAY else rule.high
        return list(range(rule.low, high + 1, step or 1)), False
    low = _value(rule, item, match["low"])
    if match["high"] is None:
        if step is not None:
            raise _refuse(rule, item, _advice_for_start_with_step(rule, low, step))
        return [low], False
    high = _value(rule, item, match["high"])
    if low == high or (rule is WEEKDAY and low == 7 and high == 0):
        raise _refuse(rule, item, f"a range of one value is read in different ways, write '{match['low']}'")
    if low < high:
        return list(range(low, high + 1, step or 1)), False
    wrapped = _wrapped(rule, low, high, step or 1)
    if step is not None:
        instead = ",".join(map(str, sorted(wrapped)))
        raise _refuse(rule, item, f"a step over a range that wraps is read in different ways, write '{instead}'")
    return wrapped, True


def _wrapped(rule: FieldRule, low: int, high: int, step: int) -> list[int]:
    """The values from low over the end of the field to high: 22-2 is 22, 23, 0, 1, 2."""
    size = 7 if rule is WEEKDAY else rule.high - rule.low + 1
    span = (high - low) % size
    return [(low - rule.low + offset) % size + rule.low for offset in range(0, span + 1, step)]


def _number_of_step(rule: FieldRule, item: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit():
        raise _refuse(rule, item, f"the step '{text}' is not a number, write one such as '*/5'")
    if int(text) == 0:
        raise _refuse(rule, item, "a step of 0 never advances, write 1 or more")
    return int(text)


def _value(rule: FieldRule, item: str, text: str) -> int:
    """The number that a number or a name stands for."""
    if text in rule.names:
        return rule.names[text]
    if not text.isdigit():
        raise _refuse(rule, item, _advice_for_name(rule, text))
    number = int(text) if len(text) <= 9 else rule.high + 1
    if not rule.low <= number <= rule.high:
        sunday = " (0 and 7 are Sunday)" if rule is WEEKDAY else ""
        raise ExpressionRefused([f"{rule.name} {text} is outside {rule.low}-{rule.high}{sunday}; write a number inside"])
    return number


def _check_extensions(rule: FieldRule, item: str) -> None:
    """Refuse what other crons add: H, R, L, W."""
    if _HASHED.fullmatch(item):
        raise _refuse(rule, item, f"a hashed or random value is not taken, write a number of {rule.low}-{rule.high}")
    if rule is DAY and re.fullmatch(r"l(?:-\d+)?|lw", item):
        raise _refuse(
            rule, item, "`L` is not taken, write '28-31' and let the command check for the last day, or '1' for the day after"
        )
    if rule is DAY and re.fullmatch(r"w\d+|\d+w", item):
        raise _refuse(rule, item, "`W` is not taken, write the day as a number, or '1-5' as day of week for working days")
    if rule is WEEKDAY and re.fullmatch(rf"l\d*|(?:\d+|{'|'.join(_DAYS)})l", item):
        raise _refuse(rule, item, "`L` is not taken, write the weekday alone and let the command check for the last one")


def _advice(rule: FieldRule, item: str, words: str) -> str:
    """What to write instead of an item that has not the shape of one."""
    if not item:
        return f"there is an empty item in '{_cut(words)}', write values between single commas"
    if item == "?":
        return "`?` is not taken, write '*'"
    if "#" in item:
        return "`#` is not taken, write the weekday alone and let the command check which one of the month it is"
    if item.startswith("-"):
        return f"negative numbers are not taken, write a number of {rule.low}-{rule.high}"
    if item.count("/") > 1:
        return "only one step is taken, write it as '*/10' or '0-30/10'"
    if re.fullmatch(r"\w+-", item):
        return f"the range has no end, write '{item}{rule.high}'"
    if re.fullmatch(r"[^.]*\d\.\d.*", item):
        return "fractions are not taken, write whole numbers"
    if _HASHED.fullmatch(item):
        return f"a hashed or random value is not taken, write a number of {rule.low}-{rule.high}"
    return "write '*', a number, a range such as '1-5', a list such as '1,3' or a step such as '*/2'"


def _advice_for_start_with_step(rule: FieldRule, low: int, step: int) -> str:
    high = 6 if rule is WEEKDAY and low < 7 else rule.high
    values = range(low, high + 1, step)
    instead = f"{low}-{high}/{step}" if len(values) > 1 else str(low)
    return f"a start with a step is read in different ways, write '{instead}'"


def _advice_for_name(rule: FieldRule, text: str) -> str:
    names = list(rule.names)
    ours = f"; names are the English {', '.join(names)}" if names else ""
    for other in RULES:
        if other is not rule and text in other.names:
            return f"'{text}' is a {other.name}, write it in that field{ours}"  # or the Tuesday of another language
    if text[:3] in names:
        return f"names have three letters, write '{text[:3]}'"
    swapped = [name for name in names if sorted(name) == sorted(text)]  # anything less alike may be of another language
    if swapped:
        return f"did you mean '{swapped[0]}'?"
    if names:
        return f"write a number of {rule.low}-{rule.high}, or one of {', '.join(names)}"
    return f"write a number of {rule.low}-{rule.high}"


def _refuse(rule: FieldRule, item: str, advice: str) -> ExpressionRefused:
    return ExpressionRefused([f"{rule.name} '{_cut(item)}': {advice}"])


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _shown(text: str) -> str:
    return ascii(_cut(text))
