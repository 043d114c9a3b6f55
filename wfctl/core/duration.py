"""Durations as people write them: `250ms 5s 10m 1h30m 2d 1w` (contract 3.10)."""

from __future__ import annotations

import re
from datetime import timedelta

_MILLISECOND = timedelta(milliseconds=1)
_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}  #: in milliseconds, largest first
_NEXT_UNIT = {"w": "d", "d": "h", "h": "m", "m": "s", "s": "ms"}
# Patterns are compiled at their first use, and kept by `re`: most commands read no duration.
_FORM = "".join(rf"(?:(\d{{1,12}}){unit})?" for unit in _UNITS)
_WORDS = {
    "w": "weeks?",
    "d": "days?",
    "h": "hours?|hrs?",
    "m": "minutes?|mins?",
    "s": "seconds?|secs?",
    "ms": "milliseconds?|msecs?",
}
_LONG_FORM = " *".join(rf"(?:(\d{{1,12}}) ?(?:{words}|{unit})(?![a-z]))?" for unit, words in _WORDS.items())
_ISO_FORM = r"P(?:(\d{1,12})W)?(?:(\d{1,12})D)?(?:T(?=\d)(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,12})S)?)?()"
_BARE_END = r"(?:.*?(ms|[wdhms]))?(\d+)"
_PART = r"(\d+(?:\.\d+)?)\s*(ms|[wdhms])"
_DAYS, _HOURS, _MINUTES = (86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")
LONGEST = timedelta(days=36_525)  #: a century: any instant of this era plus or minus it is still a datetime


class DurationRefused(ValueError):
    """The text is no duration of ours; `near` has what was perhaps meant."""

    def __init__(self, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.near = near


def parse_duration(text: str) -> timedelta:
    """Given a duration, return it as a timedelta of whole milliseconds, zero included.

    Shape: numbers with a unit, the largest unit first, each at most once: `1h30m`. The long forms `2 weeks`, `5min` and `PT5M`
    are read too.
    Raise ValueError, with a message fit for the operator and a suggestion where one can be made, for anything else.
    Source: contract 3.10.
    """
    if not isinstance(text, str):
        raise ValueError(f'{text!r} is not a duration; write it as text with a unit, such as "5s", "10m" or "1h30m"')
    fits = len(text) <= 80 and text == text.strip()
    match = (re.fullmatch(_FORM, text, re.ASCII) or _long_form(text)) if fits else None
    if match is None or not any(match.groups()):
        raise _refusal(text)
    amounts = zip(match.groups(), _UNITS.values(), strict=True)
    total = sum(int(amount) * size for amount, size in amounts if amount)
    if total > LONGEST // _MILLISECOND:
        raise ValueError(f"{text!r} is too long; the longest duration is {format_duration(LONGEST)} (100 years)")
    return timedelta(milliseconds=total)


def format_duration(duration: timedelta) -> str:
    """Given a duration, return its one canonical text, which `parse_duration` reads back: `1h30m`, `1w`, `250ms`, `0s`.

    Parts of a millisecond are cut; a negative duration, which only arises between clock readings, gets a minus sign.
    """
    if duration < timedelta(0):
        return "-" + format_duration(-duration)
    rest = duration // _MILLISECOND
    parts = []
    for unit, size in _UNITS.items():
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"


def brief(span: timedelta) -> str:
    """Given a duration, return it as people read it, in its two largest units: `2h 05m`, `41s`, `12ms`."""
    return brief_seconds(span.total_seconds())


def brief_seconds(total: float) -> str:
    """Given seconds, return them as `brief` does."""
    if total < 0:
        return "-" + brief_seconds(-total)
    if total < 1:
        return f"{round(total * 1000)}ms" if total >= 0.0005 else "0s"
    if total < 10:
        return f"{total:.1f}".removesuffix(".0") + "s"
    whole = round(total)
    if whole < 60:
        return f"{whole}s"
    size, unit, below, below_unit = _DAYS if whole >= 86_400 else _HOURS if whole >= 3600 else _MINUTES
    first, rest = divmod(whole, size)
    second = rest // below
    return f"{first}{unit} {second:02d}{below_unit}" if second else f"{first}{unit}"


def _long_form(text: str) -> re.Match[str] | None:
    return re.fullmatch(_LONG_FORM, text, re.ASCII) or re.fullmatch(_ISO_FORM, text, re.ASCII)


def _refusal(text: str) -> DurationRefused:
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    if text.strip().startswith("-"):
        return DurationRefused(f"{shown} is negative; a duration is zero or more, such as 5s, 10m or 1h30m")
    suggestion = _suggestion(text)
    bare = re.fullmatch(_BARE_END, text, re.ASCII)
    if suggestion is None:
        return DurationRefused(f"{shown} is not a duration; write 250ms, 5s, 10m, 1h30m, 2d or 1w")
    wrong = "is not a duration" if bare is None else "ends in a number without a unit"
    return DurationRefused(f"{shown} {wrong}; did you mean {suggestion}?", (suggestion,))


def _suggestion(text: str) -> str | None:
    """What the text most likely meant, in the canonical form, or None."""
    if not text.isascii() or len(text) > 80:
        return None
    plain = text.strip().lower()
    for unit, words in _WORDS.items():
        plain = re.sub(rf"(?<=[\d\s])(?:{words})(?![a-z])", unit, plain)
    plain = re.sub(r"(?:\s|,|and)+", "", plain)
    bare = re.fullmatch(_BARE_END, plain, re.ASCII)
    if bare is not None:
        plain += _NEXT_UNIT.get(bare.group(1), "?") if bare.group(1) else "s"
    parts = re.findall(_PART, plain, re.ASCII)
    if not parts or "".join(amount + unit for amount, unit in parts) != plain:
        return None
    total = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    if total > LONGEST // _MILLISECOND:
        return None
    return format_duration(timedelta(milliseconds=round(total)))
