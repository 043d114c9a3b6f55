"""Instants: points of UTC time, kept as integer microseconds and shown as RFC 3339 `Z` (contract 4.3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+-]\d{2}:?\d{2})?"  #: compiled at its first use


def to_micros(instant: datetime) -> int:
    """Given an aware datetime, return whole microseconds since the epoch. Raise ValueError for a naive one."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime is no instant")
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Given microseconds since the epoch, return the aware UTC datetime."""
    return EPOCH + timedelta(0, 0, micros)


def format_instant(instant: datetime) -> str:
    """Given an aware datetime, return RFC 3339 with `Z`: no fraction when it is zero, else six digits."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime is no instant")
    text = (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()
    return text.removesuffix("+00:00") + "Z"


def moment(instant: datetime, beside: datetime) -> str:
    """Given an instant, return it as one reads it beside another: `06:40:00Z` on the same day of UTC, else in full."""
    text = format_instant(instant.replace(microsecond=instant.microsecond // 1000 * 1000))
    if len(text) > 23:
        text = f"{text[:23]}Z"  # milliseconds are enough to read
    return text[11:] if instant.astimezone(UTC).date() == beside.astimezone(UTC).date() else text


def parse_instant(text: str) -> datetime:
    """Given RFC 3339 text with an offset, return the aware UTC datetime.

    Raise ValueError, with a message fit for the operator, for anything else; a naive time names the two ways to mend it.
    """
    match = re.fullmatch(_RFC3339, text, re.ASCII) if isinstance(text, str) and text.isascii() else None
    if match is None:
        raise ValueError(f"{text!r} is not an instant; write it as 2026-12-01T09:00:00Z or 2026-12-01T09:00:00+01:00")
    if match.group(3) is None:
        raise ValueError(f"{text!r} has no offset; write {text}Z for UTC, or add the offset of the place, as {text}+01:00")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not an instant: {error}") from error
