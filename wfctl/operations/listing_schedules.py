"""Listing schedules, by id: all of them, or page by page.

A thousand of them take hardly longer than ten: those of which there is nothing to say but their next instant, which are nearly
all, are read in one walk, and of each is made what is asked for. The others are described one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from wfctl.core.instants import from_micros, parse_instant, to_micros
from wfctl.core.json_text import loads
from wfctl.operations.context import Context
from wfctl.operations.filepass import everything
from wfctl.store.ledger import definitions, listed

if TYPE_CHECKING:
    from wfctl.operations.shown import CandidateView, Page, ScheduleView

SCHEDULES = "wfctl/schedules.v1"
STATES = ("active", "paused", "finished", "blocked", "deleted")
Make = Callable[[Any], Any] | None


class ListedSchedule:
    """A schedule of which there is nothing special to say, with the attributes of a view, made when they are asked for.

    What a list shows is not run by it: that a text is the one that was saved is for those to check who go by it.
    """

    __slots__ = ("_row", "active_runs", "definition", "id", "next_instant", "revision", "state", "waits_until")

    diagnostic: dict[str, Any] | None = None
    candidate: CandidateView | None = None
    paused_at: datetime | None = None
    pause_reason: str | None = None
    pause_actor: str | None = None

    def __init__(self, row: listed.Listed, active_runs: tuple[str, ...], instants: _Instants, now: int) -> None:
        """Raise LookupError, TypeError or ValueError for a text that no definition has."""
        _, self.id, _, self.revision, text, _, begins, _, consumed, following = self._row = row
        assert text is not None
        self.active_runs = active_runs
        self.definition = loads(text)
        self.next_instant: datetime | None = instants[following]
        floor = max(begins, consumed)
        self.waits_until: datetime | None = instants[floor] if floor > now else None
        trigger = self.definition["trigger"]
        is_finished = trigger["kind"] == "oneshot" and parse_instant(trigger["at"]) <= instants[floor]
        self.state = "finished" if is_finished else "active"

    @property
    def effective_from(self) -> datetime:
        """Where its calendar begins."""
        return from_micros(self._row[6])

    @property
    def anchor(self) -> datetime:
        """What an interval is counted from."""
        return from_micros(self._row[7])

    @property
    def watermark(self) -> datetime:
        """Up to where its calendar is consumed."""
        return from_micros(self._row[8])

    @property
    def max_run_s(self) -> float | None:
        """The limit of an attempt."""
        return None if self._row[5] is None else self._row[5] / 1_000_000

    def view(self) -> ScheduleView:
        """Return it as every other schedule."""
        from wfctl.operations.shown import ScheduleView

        return ScheduleView(**{name: getattr(self, name) for name in ScheduleView.field_names()})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the view."""
        return self.view().to_json()


class _Instants(dict[int | None, Any]):
    """Microseconds -> instant: many schedules share theirs, and each is made once."""

    def __missing__(self, micros: int | None) -> Any:
        self[micros] = found = None if micros is None else from_micros(micros)
        return found


def list_schedules(context: Context, *, include_deleted: bool, status: Any, limit: Any, cursor: Any) -> Page[ScheduleView]:
    """Return schedules by id: all of them, or with a limit a page and where it goes on. Raise InvalidArgument, BadCursor."""
    from wfctl.operations.shown import Page

    found, following = rows_of(context, include_deleted=include_deleted, status=status, limit=limit, cursor=cursor)
    return Page(tuple(row.view() if isinstance(row, ListedSchedule) else row for row in found), following, SCHEDULES)


def rows_of(
    context: Context, *, include_deleted: bool, status: Any, limit: Any, cursor: Any, make: Make = None
) -> tuple[list[Any], str | None]:
    """Return what `list_schedules` does, for who shows it at once, and the cursor. Raise InvalidArgument, BadCursor.

    With `make`, what that makes of each row is returned instead, and no row is kept.
    """
    states = _states(status)
    wants_deleted = include_deleted or "deleted" in (states or ())

    def rows(connection: sqlite3.Connection, after: str) -> Iterator[ListedSchedule | ScheduleView]:
        found = _rows(context, connection, after, wants_deleted)
        return found if states is None else (row for row in found if row.state in states)

    scope = {"list": SCHEDULES, "deleted": wants_deleted, "states": sorted(states or [])}
    return by_id(context, rows, scope, limit=limit, cursor=cursor, make=make)


def by_id(
    context: Context,
    rows: Callable[[sqlite3.Connection, str], Iterator[Any]],
    scope: Mapping[str, Any],
    *,
    limit: Any,
    cursor: Any,
    make: Make = None,
) -> tuple[list[Any], str | None]:
    """Given what gives the rows behind an id, return all of them, or with a limit a page and the cursor that goes on.

    The definition files are looked at first. Raise InvalidArgument, BadCursor.
    """
    if limit is None and cursor is None:
        everything(context)
        with context.ledger.reading() as connection:
            found = rows(connection, "")
            return list(found if make is None else map(make, found)), None
    from wfctl.operations.cursors import PAGE, check_limit, make_cursor, read_cursor

    size = check_limit(PAGE if limit is None else limit)
    after = "" if cursor is None else str(read_cursor(scope, cursor)["after"])
    everything(context)
    with context.ledger.reading() as connection:
        page = list(islice(rows(connection, after), size + 1))
    following = make_cursor(scope, {"after": page[size - 1].id}) if len(page) > size else None
    return list(page[:size] if make is None else map(make, page[:size])), following


def _states(status: Any) -> Collection[str] | None:
    if status is None:
        return None
    from wfctl.operations.arguments import as_choice

    states = as_choice(status, "status")
    for state in states or ():
        if state not in STATES:
            from wfctl.core.near import near_data
            from wfctl.core.plain import suggestion
            from wfctl.errors import InvalidArgument

            data = {"argument": "status", "known": list(STATES), **near_data(state, STATES)}
            raise InvalidArgument(f"unknown state {state!r}{suggestion(state, STATES)}", data)
    return states


def _rows(
    context: Context, connection: sqlite3.Connection, after: str, wants_deleted: bool
) -> Iterator[ListedSchedule | ScheduleView]:
    active = listed.active_runs(connection)
    now, instants = to_micros(context.now()), _Instants()
    for row in listed.schedules(connection, after=after):
        if row[2] and not wants_deleted:
            continue
        runs = active.get(row[0], ())
        try:
            found = None if row[4] is None else ListedSchedule(row, runs, instants, now)
        except (LookupError, TypeError, ValueError, RecursionError):
            found = None
        yield found or _described(context, connection, row[0], runs)


def _described(context: Context, connection: sqlite3.Connection, number: int, active_runs: tuple[str, ...]) -> ScheduleView:
    from wfctl.operations.describe_definitions import listed_schedule

    return listed_schedule(context, connection, definitions.get(connection, number), active_runs)
