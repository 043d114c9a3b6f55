"""What a change of a definition changes: its fields, and which instants come and go (contract 3.2, 4.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.model import Trigger
from wfctl.core.trigger import calendar_of, instants_after

MOST_INSTANTS = 3000  #: of each calendar that are compared; what comes after the last one common to both reach is left out


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field, by its dotted key, and its value before and after; None where it is not set."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDifference:
    """Two calendars side by side, from `since` up to and including `until`."""

    since: datetime
    until: datetime
    before: int  #: instants of the old one
    after: int  #: instants of the new one
    common: int
    first_old: datetime | None  #: at the first difference: the instant of the old one that the new one lacks there, if any
    first_new: datetime | None

    @property
    def is_same(self) -> bool:
        return self.before == self.after == self.common


def field_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Given two definitions in their plain form, return the fields that differ; null reads as absent."""
    old, new = dict(_flat(before)), dict(_flat(after))
    paths = dict.fromkeys([*old, *new])
    return tuple(FieldChange(path, old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path))


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in table.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{path}{key}.")
        elif item is not None and item != {}:
            yield f"{path}{key}", list(item) if isinstance(item, tuple) else item


def calendar_difference(
    old: tuple[Trigger, datetime | None], new: tuple[Trigger, datetime | None], since: datetime, until: datetime
) -> CalendarDifference:
    """Given two triggers, each with its anchor, return how their instants in (since, until] differ.

    Shape: where a calendar has more than `MOST_INSTANTS`, `until` is the last instant that was compared.
    Raise CalendarError where a calendar gives no answer.
    """
    olds, old_end = _instants(*old, since, until)
    news, new_end = _instants(*new, since, until)
    end = min(old_end, new_end)
    before, after = {each for each in olds if each <= end}, {each for each in news if each <= end}
    gone, come = sorted(before - after), sorted(after - before)
    at = min([*gone[:1], *come[:1]], default=None)
    following = [each for each in news if at is not None and each >= at]
    return CalendarDifference(
        since=since,
        until=end,
        before=len(before),
        after=len(after),
        common=len(before & after),
        first_old=next((each for each in olds if at is not None and each >= at), None),
        first_new=following[0] if following else None,
    )


def _instants(trigger: Trigger, anchor: datetime | None, since: datetime, until: datetime) -> tuple[list[datetime], datetime]:
    """Return the instants, and up to where they are all known."""
    found: list[datetime] = []
    for instant in instants_after(calendar_of(trigger, anchor), since):
        if instant > until:
            break
        found.append(instant)
        if len(found) >= MOST_INSTANTS:
            return found, instant
    return found, until
