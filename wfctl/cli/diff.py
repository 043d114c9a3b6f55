"""`wfctl schedule diff`: two definitions side by side, and what becomes of the calendar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import difference, parse, render, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.text import escape
from wfctl.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from wfctl.core.difference import CalendarDifference
    from wfctl.operations.store import Store
    from wfctl.operations.views import ScheduleView

SCHEMA = "wfctl/diff.v1"


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two: what it is called, and what it says."""

    name: str
    definition: Mapping[str, Any]
    anchor: datetime | None


@command()
@click.argument("before", metavar="ID[@REVISION]", type=StoredId("schedule"), help="A schedule, or one of its revisions.")
@click.argument(
    "after", metavar="[ID[@REVISION]]", required=False, type=StoredId("schedule"), help="Another (default: the one before)."
)
@click.option(
    "-f", "file", metavar="FILE|-", type=click.Path(), help="Compare with the definition in a TOML file, or on stdin."
)
def diff(common: Common, before: str, after: str | None, file: str | None) -> int:
    """Show how two definitions differ, and what becomes of the calendar.

    wfctl schedule diff nightly@1 nightly@3

    With one schedule its last revision is compared with the one before. The exit status is 0 where nothing differs, 1 where
    something does.
    """
    if file is not None and after is not None:
        raise click.UsageError("give either a second schedule or a file with -f, not both")
    with common.open() as store:
        sides = _sides(store, before, after, file)
    old, new = sides
    compared = difference.calendars(old.definition, new.definition, (old.anchor, new.anchor), common.now())
    found = _document(old, new, compared)
    render.item(common, found, details=lambda _: _said(old, new, compared), name=f"{old.name} {new.name}")
    return 1 if found["fields"] else 0


def _sides(store: Store, before: str, after: str | None, file: str | None) -> tuple[_Side, _Side]:
    if file is not None:
        left = _side(store, before)
        plain = parse.definition_file(file, "schedule", file)
        return left, _Side("stdin" if file == "-" else file, _full(plain), left.anchor)
    if after is not None:
        return _side(store, before), _side(store, after)
    right = _side(store, before)
    name, _, revision = right.name.partition("@")
    if int(revision) < 2:
        raise InvalidArgument(f"{right.name} is the first revision of {name}; name another schedule, or a file with -f")
    return _side(store, f"{name}@{int(revision) - 1}"), right


def _full(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a definition of a file with its defaults, as a store gives it back."""
    from wfctl.core.definition import schedule_from_plain, schedule_to_plain
    from wfctl.operations.saving import as_written

    return as_written(schedule_to_plain(schedule_from_plain(plain)), plain)


def _side(store: Store, named: str) -> _Side:
    name, at, revision = named.partition("@")
    view: ScheduleView = store.get_schedule(schedule_id=name)
    if not at:
        if view.definition is None:
            raise NotFound(f"schedule {name} never was valid, so there is nothing to compare", {"id": name})
        return _Side(f"{name}@{view.revision}", view.definition, view.anchor)
    if not revision.isdigit():
        raise InvalidArgument(f"{named!r} is not ID@REVISION; a revision is a number, such as {name}@{view.revision}")
    cursor = None
    while True:
        page = store.list_revisions(schedule_id=name, limit=100, cursor=cursor)
        for each in page.items:
            if each.revision == int(revision):
                return _Side(named, each.definition, view.anchor)
        cursor = page.next_cursor
        if cursor is None:
            raise NotFound(f"schedule {name} has no revision {revision}; the last is {view.revision}", {"id": name})


def _document(old: _Side, new: _Side, compared: CalendarDifference | None) -> dict[str, Any]:
    from wfctl.core.difference import field_changes

    fields = [{"path": it.path, "before": it.before, "after": it.after} for it in field_changes(old.definition, new.definition)]
    calendar = compared and {
        "since": values.instant(compared.since),
        "until": values.instant(compared.until),
        "before": compared.before,
        "after": compared.after,
        "common": compared.common,
        "first_before": values.instant(compared.first_old) or None,
        "first_after": values.instant(compared.first_new) or None,
    }
    return {"schema": SCHEMA, "before": old.name, "after": new.name, "fields": fields, "calendar": calendar}


def _said(old: _Side, new: _Side, compared: CalendarDifference | None) -> str:
    fields = difference.field_lines(old.definition, new.definition)
    if not fields:
        return f"{escape(old.name)} and {escape(new.name)} say the same"
    lines = [f"{escape(old.name)} -> {escape(new.name)}", *(f"  {line}" for line in fields)]
    if compared is not None:
        zone = (new.definition.get("trigger") or {}).get("timezone") or "UTC"
        lines += [f"  {line}" for line in difference.calendar_line(compared, zone).splitlines()]
    return "\n".join(lines)
