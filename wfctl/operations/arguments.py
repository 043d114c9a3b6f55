"""What lists are asked with: instants, names and words to choose by, checked before anything is read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wfctl.core.instants import parse_instant
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from wfctl.core.model import Status


def as_instant(value: Any, name: str) -> datetime | None:
    """Given an aware datetime, RFC 3339 text or None, return the instant. Raise InvalidArgument."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgument(f"{name} is a naive datetime; give one with a zone", {"argument": name})
        try:
            return value.astimezone(UTC)
        except OverflowError as error:
            raise InvalidArgument(f"{name}: {value} lies outside the calendar", {"argument": name}) from error
    try:
        return parse_instant(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}", {"argument": name}) from error


def as_names(value: Any) -> list[str] | None:
    """Given None, a word, comma-separated words, or several, return them as a list; None for none."""
    if value is None:
        return None
    if not isinstance(value, (str, Collection)) or not all(isinstance(word, str) for word in value):
        raise InvalidArgument(f"{value!r} is neither text nor a list of texts")
    words = value.split(",") if isinstance(value, str) else list(value)
    return [word.strip() for word in words if word.strip()]


def as_choice(value: Any, name: str) -> list[str] | None:
    """Given words to choose by, as `as_names` takes them, return them as a list. Raise InvalidArgument where there is none."""
    words = as_names(value)
    if words is not None and not words:
        raise InvalidArgument(f"{name} names nothing; leave it out to have all", {"argument": name})
    return words


def as_statuses(value: Any, known: Collection[Status]) -> list[Status] | None:
    """Given status words, return the statuses. Raise InvalidArgument, with what was perhaps meant, for unknown ones."""
    from wfctl.core.model import Status

    words = as_choice(value, "status")
    for word in words or ():
        if word not in known:
            from wfctl.core.near import near_data
            from wfctl.core.plain import suggestion

            message = f"unknown status {word!r}{suggestion(word, sorted(known))}"
            raise InvalidArgument(message, {"argument": "status", "known": sorted(known), **near_data(word, sorted(known))})
    return None if words is None else sorted({Status(word) for word in words})
