"""Listing schedules, by id: all of them, or page by page.

A thousand of them take hardly longer than ten: those of which there is nothing to say but their next instant, which are nearly
all, are read in one walk. Each of the others is described with the same care as when it is asked for by its name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice
from json import JSONDecoder
from typing import Any

from wfctl.core.instants import from_micros, parse_instant
from wfctl.errors import InvalidArgument
from wfctl.operations.arguments import as_choice
from wfctl.operations.context import Context
from wfctl.operations.filepass import everything
from wfctl.operations.views import Page, ScheduleView
from wfctl.store.ledger import definitions, listed

SCHEDULES = "wfctl/schedules.v1"
STATES = ("active", "paused", "finished", "blocked", "deleted")
_decode = JSONDecoder().raw_decode


def list_schedules(context: Context, *, include_deleted: bool, status: Any, limit: Any, cursor: Any) -> Page[ScheduleView]:
    """Return schedules by id: all of them, or with a limit a page and where it goes on. Raise InvalidArgument, BadCursor."""
    states = _states(status)
    wants_deleted = include_deleted or "deleted" in (states or ())
    if limit is None and cursor is None:
        everything(context)
        with context.ledger.reading() as connection:
            found = _views(context, connection, "", wants_deleted)
            return Page(tuple(view for view in found if states is None or view.state in states), None, SCHEDULES)
    from wfctl.operations.cursors import PAGE, check_limit, make_cursor, read_cursor

    scope = {"list": SCHEDULES, "deleted": wants_deleted, "states": sorted(states or [])}
    size = check_limit(PAGE if limit is None else limit)
    after = "" if cursor is None else str(read_cursor(scope, cursor)["after"])
    everything(context)
    with context.ledger.reading() as connection:
        found = _views(context, connection, after, wants_deleted)
        items = tuple(islice((view for view in found if states is None or view.state in states), size + 1))
    following = make_cursor(scope, {"after": items[size - 1].id}) if len(items) > size else None
    return Page(items[:size], following, SCHEDULES)


def _states(status: Any) -> Collection[str] | None:
    states = as_choice(status, "status")
    for state in states or ():
        if state not in STATES:
            from wfctl.core.near import near_data
            from wfctl.core.plain import suggestion

            data = {"argument": "status", "known": list(STATES), **near_data(state, STATES)}
            raise InvalidArgument(f"unknown state {state!r}{suggestion(state, STATES)}", data)
    return states


def _views(context: Context, connection: sqlite3.Connection, after: str, wants_deleted: bool) -> Iterator[ScheduleView]:
    active = listed.active_runs(connection)
    now = context.now()
    for row in listed.schedules(connection, after=after):
        if not row[2] or wants_deleted:
            yield _quick_view(row, active, now) or _careful_view(context, connection, row[0])


def _careful_view(context: Context, connection: sqlite3.Connection, number: int) -> ScheduleView:
    from wfctl.operations.describe import schedule_view

    return schedule_view(context, connection, definitions.get(connection, number))


def _quick_view(row: listed.Listed, active: dict[int, tuple[str, ...]], now: datetime) -> ScheduleView | None:
    """Return a schedule whose rows are sound and have nothing special to say; None for any other.

    What a list shows is not run by it: that a text is the one that was saved is for those to check who go by it.
    """
    number, name, _, revision, text, max_run, begins, grid, consumed, following = row
    if text is None:
        return None
    try:
        definition, _ = _decode(text)
        trigger = definition["trigger"]
        effective_from, anchor, watermark = from_micros(begins), from_micros(grid), from_micros(consumed)
        floor = max(watermark, effective_from)
        is_finished = trigger["kind"] == "oneshot" and parse_instant(trigger["at"]) <= floor
        coming = None if following is None else from_micros(following)
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return ScheduleView(
        id=name,
        state="finished" if is_finished else "active",
        diagnostic=None,
        revision=revision,
        effective_from=effective_from,
        next_instant=coming,
        candidate=None,
        active_runs=active.get(number, ()),
        definition=definition,
        anchor=anchor,
        watermark=watermark,
        waits_until=floor if floor > now else None,
        max_run_s=None if max_run is None else max_run / 1_000_000,
        paused_at=None,
        pause_reason=None,
        pause_actor=None,
    )
