"""How values look in tables and details: durations, instants, commands, reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.duration import brief, brief_seconds
from wfctl.core.instants import format_instant, parse_instant

#: what a shell takes as it is
_UNQUOTED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"


def duration(seconds: float | timedelta | None) -> str:
    """Return a duration in its two largest units, such as `2h 05m`, `41s`, `12ms`; empty for None."""
    if seconds is None:
        return ""
    return brief(seconds) if isinstance(seconds, timedelta) else brief_seconds(round(seconds, 6))


def instant(value: datetime | str | None) -> str:
    """Return RFC 3339 in UTC; empty for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else format_instant(value)


def as_datetime(value: datetime | str | None) -> datetime | None:
    """Return the datetime of an instant that may already be text."""
    return parse_instant(value) if isinstance(value, str) else value


def relative(value: datetime | str | None, now: datetime) -> str:
    """Return `in 3m` or `4h ago`; empty for None."""
    at = as_datetime(value)
    if at is None:
        return ""
    return ahead((at - now).total_seconds())


def ahead(seconds: float | None) -> str:
    """Given how far ahead something is, return it as `relative` does."""
    if seconds is None:
        return ""
    return f"in {_whole(seconds)}" if seconds >= 0 else f"{_whole(-seconds)} ago"


def _whole(seconds: float) -> str:
    return brief_seconds(max(1, round(seconds)))


def elapsed(start: datetime | str | None, end: datetime | str | None, now: datetime | None = None) -> float | None:
    """Return the seconds between two instants, up to `now` where the second is unknown; None where the first is."""
    first, last = as_datetime(start), as_datetime(end) or now
    return None if first is None or last is None else max(0.0, (last - first).total_seconds())


def size(number: int | None) -> str:
    """Return a number of bytes as people read it: `512 B`, `1.5 MiB`; empty for None."""
    if number is None:
        return ""
    amount, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"


def command(arguments: Sequence[str]) -> str:
    """Return an argument vector as a shell would take it."""
    words = [str(argument) for argument in arguments]
    if all(words) and not "".join(words).strip(_UNQUOTED):
        return " ".join(words)
    import shlex

    return shlex.join(words)


def trigger(plain: Mapping[str, Any] | None) -> str:
    """Given the plain form of a trigger, return it in one phrase."""
    if not plain:
        return ""
    kind = plain.get("kind")
    if kind == "cron":
        return f"{plain.get('expression')}  {plain.get('timezone') or 'UTC'}"
    if kind == "interval":
        return f"every {plain.get('every')}"
    return f"once at {plain.get('at')}"


def json_cell(value: Any) -> str:
    """Return a value as compact JSON; empty for None."""
    if value is None:
        return ""
    import json

    return json.dumps(value, ensure_ascii=False, default=str)
