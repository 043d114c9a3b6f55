"""What a change of a definition changes, for people: fields, and which instants come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from wfctl.cli import values
from wfctl.cli.render import aligned
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.core.difference import CalendarDifference

AHEAD = timedelta(days=30)  #: how far calendars are compared


def field_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the fields that differ, one a line: the key, the value before, the value after."""
    from wfctl.core.difference import field_changes

    rows = [[change.path, _shown(change.before), "->", _shown(change.after)] for change in field_changes(before, after)]
    return aligned([[escape(cell) for cell in row] for row in rows])


def _shown(value: Any) -> str:
    return values.json_cell(value) or "unset"


def calendars(
    before: Mapping[str, Any], after: Mapping[str, Any], anchors: Sequence[datetime | None], now: datetime
) -> CalendarDifference | None:
    """Given two definitions of schedules and their anchors, return how their coming instants differ; None: not at all.

    A trigger that cannot be read any more has no instants to compare: None, too.
    """
    from wfctl.core.difference import calendar_difference
    from wfctl.core.trigger import CalendarError, parse_trigger
    from wfctl.errors import InvalidDefinition

    if before.get("trigger") == after.get("trigger") and anchors[0] == anchors[1]:
        return None
    try:
        old, new = parse_trigger(before["trigger"]), parse_trigger(after["trigger"])
        return calendar_difference((old, anchors[0]), (new, anchors[1]), now, now + AHEAD)
    except (CalendarError, InvalidDefinition):
        return None


def calendar_line(found: CalendarDifference, zone: str) -> str:
    """Return one line that says how many instants come and go, and where the first difference is."""
    days = max(1, round((found.until - found.since) / timedelta(days=1)))
    span = f"next {days} days" if days > 1 else "next day"
    gone, come = found.before - found.common, found.after - found.common
    if found.is_same:
        return f"calendar, {span}: the same {found.before} instants"
    counts = f"{found.before} instants -> {found.after}   (+{come} -{gone}, {found.common} in common)"
    first = f"first difference: {_local(found.first_old, zone)} -> {_local(found.first_new, zone)}"
    return f"calendar, {span}: {counts}\n  {first}"


def _local(instant: datetime | None, zone: str) -> str:
    from wfctl.core.trigger import zone_of

    if instant is None:
        return "none"
    seconds = ":%S" if instant.second else ""
    return instant.astimezone(zone_of(zone)).strftime(f"%a %Y-%m-%d %H:%M{seconds} %Z")


def replay_lines(since: datetime, counts: Mapping[str, tuple[Any, Any]], now: datetime) -> list[str]:
    """Return what the past would have looked like under a changed definition: what would differ, or that nothing would."""
    span = f"last {values.duration((now - since).total_seconds())}"
    changed = [f"{name} {_counted(old)} -> {_counted(new)}" for name, (old, new) in counts.items() if old != new]
    return [f"policy replay, {span}: {', '.join(changed) if changed else 'the same'}"]


def _counted(found: Any) -> str:
    return values.duration(found.total_seconds()) if isinstance(found, timedelta) else str(found)
