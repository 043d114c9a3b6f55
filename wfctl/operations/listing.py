"""Listing occurrences and runs page by page, oldest first, or newest first where that is asked (contract 8.1, 8.2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from wfctl.core.instants import format_instant
from wfctl.core.model import RUN_STATUSES, Status, run_name, run_number
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations import finding
from wfctl.operations.arguments import as_choice as as_choice
from wfctl.operations.arguments import as_instant as as_instant
from wfctl.operations.arguments import as_names, as_statuses
from wfctl.operations.context import Context
from wfctl.operations.cursors import check_limit, make_cursor, read_cursor
from wfctl.operations.describe import Named, occurrence_view, pending_view, run_view
from wfctl.operations.shown import OccurrenceView, Page, RunView
from wfctl.store.ledger import definitions, occurrences, runs
from wfctl.store.ledger import schedules as states
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.value import Value

OCCURRENCES, RUNS = "wfctl/occurrences.v1", "wfctl/runs.v1"


class _Filter(Value, kw_only=False):
    """What a listing of occurrences is bound to."""

    store: str
    names: list[str] | None
    statuses: list[Status] | None
    since: datetime | None
    until: datetime | None
    reverse: bool = False

    def scope(self) -> dict[str, Any]:
        times = [None if time is None else format_instant(time) for time in (self.since, self.until)]
        asked = {"list": OCCURRENCES, "store": self.store, "schedules": self.names, "statuses": self.statuses, "times": times}
        return {**asked, "order": "newest first"} if self.reverse else asked

    def takes_pending(self, instant: datetime) -> bool:
        is_asked = self.statuses is None or Status.PENDING in self.statuses
        is_late_enough = self.since is None or instant >= self.since
        return is_asked and is_late_enough and (self.until is None or instant < self.until)


def list_occurrences(
    context: Context, *, schedule_id: Any, limit: Any, cursor: Any, status: Any, since: Any, until: Any, reverse: bool
) -> Page[OccurrenceView]:
    """Return a page of the history of some schedules, or of all, oldest first, or with `reverse` newest first.

    Held candidates come first, by schedule id, and count against the limit. Raise InvalidArgument, BadCursor, NotFound.
    """
    size = check_limit(limit)
    names = as_names(schedule_id)
    asked = _Filter(
        store=context.ledger.store_id,
        names=None if names is None else sorted(set(names)),
        statuses=as_statuses(status, set(Status)),
        since=as_instant(since, "since"),
        until=as_instant(until, "until"),
        reverse=reverse,
    )
    scope = asked.scope()
    position: dict[str, Any] = {"pending": ""} if cursor is None else read_cursor(scope, cursor)
    with context.ledger.reading() as connection:
        numbers = _numbers_of(connection, asked.names)
        items: list[OccurrenceView] = []
        if "pending" in position:
            waiting = _pending(connection, numbers, asked, after=str(position["pending"]))
            items = [pending_view(state) for state in waiting[:size]]
            if len(waiting) > size:
                return Page(tuple(items), make_cursor(scope, {"pending": items[-1].schedule_id}), OCCURRENCES)
        place = position.get("place", occurrences.LAST_PLACE if reverse else 0)
        return _stored_page(context, connection, numbers, asked, items, size, place=place)


def _numbers_of(connection: sqlite3.Connection, names: Sequence[str] | None) -> list[int] | None:
    return None if names is None else [finding.require(connection, "schedule", name).number for name in names]


def _pending(
    connection: sqlite3.Connection, numbers: list[int] | None, asked: _Filter, *, after: str
) -> list[states.ScheduleRow]:
    return [
        state
        for state in states.with_candidate(connection, numbers)
        if state.id > after and state.deleted_at is None and state.candidate and asked.takes_pending(state.candidate.instant)
    ]


def _stored_page(
    context: Context,
    connection: sqlite3.Connection,
    numbers: list[int] | None,
    asked: _Filter,
    items: list[OccurrenceView],
    size: int,
    *,
    place: int,
) -> Page[OccurrenceView]:
    between: dict[str, Any] = {"after": 0, "before": place, "newest": True} if asked.reverse else {"after": place}
    rows = occurrences.page(
        connection,
        schedules=numbers,
        statuses=asked.statuses,
        since=asked.since,
        until=asked.until,
        limit=size - len(items) + 1,
        **between,
    )
    rows = rows[::-1] if asked.reverse else rows
    shown = rows[: size - len(items)]
    names = _names_of(connection, (row.schedule for row in shown))
    items = [*items, *(occurrence_view(context, names[row.schedule], row) for row in shown)]
    if len(rows) <= len(shown):
        return Page(tuple(items), None, OCCURRENCES)
    return Page(tuple(items), make_cursor(asked.scope(), {"place": shown[-1].place if shown else place}), OCCURRENCES)


def _names_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, str]:
    return {number: name_of(connection, number) for number in set(numbers)}


def name_of(connection: sqlite3.Connection, number: int) -> str:
    """Return the id of a schedule that rows name by its number."""
    try:
        return definitions.get(connection, number).id
    except UnreadableRow:
        return f"number-{number}"  # a row of no schedule that is known: shown, so that a person sees it (7.4)


def newest_occurrences(context: Context, *, schedule_id: Any, status: Any, since: Any, limit: Any) -> list[OccurrenceView]:
    """Return the last occurrences of some schedules, or of all, oldest first; what is held now stands last and counts.

    Raise InvalidArgument, NotFound.
    """
    size = check_limit(limit)
    names, statuses, start = as_names(schedule_id), as_statuses(status, set(Status)), as_instant(since, "since")
    asked = _Filter(store="", names=names, statuses=statuses, since=start, until=None)
    with context.ledger.reading() as connection:
        numbers = _numbers_of(connection, None if names is None else sorted(set(names)))
        held = [pending_view(state) for state in _pending(connection, numbers, asked, after="")[:size]]
        given: dict[str, Any] = {"schedules": numbers, "statuses": statuses, "since": start, "until": None, "newest": True}
        rows = occurrences.page(connection, **given, after=0, limit=size - len(held)) if len(held) < size else []
        stored = _names_of(connection, (row.schedule for row in rows))
        return [*(occurrence_view(context, stored[row.schedule], row) for row in rows), *held]


def get_occurrence(context: Context, *, schedule_id: str, instant: Any) -> OccurrenceView:
    """Return one occurrence: its row, the span row it lies in, or the held candidate. Raise NotFound, InvalidArgument."""
    at = as_instant(instant, "instant")
    if at is None:
        raise InvalidArgument("instant is missing; name the occurrence as SCHEDULE@INSTANT", {"argument": "instant"})
    with context.ledger.reading() as connection:
        row = finding.require(connection, "schedule", schedule_id)
        state = states.find(connection, row.number)
        if state is not None and state.candidate is not None and state.candidate.instant == at:
            return pending_view(state)
        found = occurrences.find(connection, row.number, at)
        if found is None:
            raise _not_recorded(schedule_id, at, occurrences.beside(connection, row.number, at))
        return occurrence_view(context, schedule_id, found)


def list_runs(
    context: Context, *, schedule_id: Any, deployment_id: Any, status: Any, since: Any, until: Any, limit: Any, cursor: Any,
    reverse: bool,
) -> Page[RunView]:  # fmt: skip
    """Return a page of runs, oldest first or with `reverse` newest first, by schedule, deployment, status or time of admission.

    Raise InvalidArgument, BadCursor, NotFound.
    """
    size = check_limit(limit)
    names = as_names(schedule_id)
    if deployment_id is not None and not isinstance(deployment_id, str):
        raise InvalidArgument(f"deployment_id must be text, not {deployment_id!r}", {"argument": "deployment_id"})
    statuses = as_statuses(status, RUN_STATUSES)
    start, end = as_instant(since, "since"), as_instant(until, "until")
    times = [None if time is None else format_instant(time) for time in (start, end)]
    chosen = None if names is None else sorted(set(names))
    scope = {
        "list": RUNS,
        "store": context.ledger.store_id,
        "schedules": chosen,
        "deployment": deployment_id,
        "statuses": statuses,
        "times": times,
    }
    begin: dict[str, Any] = {"after": 0}
    if reverse:
        scope, begin = {**scope, "order": "newest first"}, {"before": runs.LAST_NUMBER}
    position = begin if cursor is None else read_cursor(scope, cursor)
    between = {"after": 0, "before": position["before"], "newest": True} if reverse else {"after": position["after"]}
    with context.ledger.reading() as connection:
        numbers = _numbers_of(connection, chosen)
        deployment = None if deployment_id is None else finding.require(connection, "deployment", deployment_id).number
        rows = runs.page(
            connection,
            schedules=numbers,
            deployment=deployment,
            statuses=statuses,
            since=start,
            until=end,
            limit=size + 1,
            **between,
        )
        rows = rows[::-1] if reverse else rows
        named = Named(connection)
        items = tuple(run_view(context, connection, row, named) for row in rows[:size])
    end_of_page = "before" if reverse else "after"
    following = make_cursor(scope, {end_of_page: rows[size - 1].number}) if len(rows) > size else None
    return Page(items, following, RUNS)


def newest_runs(
    context: Context, *, schedule_id: Any, deployment_id: Any, status: Any, since: Any, limit: Any
) -> list[RunView]:
    """Return the last runs, oldest first, as `list_runs` chooses them. Raise InvalidArgument, NotFound."""
    size = check_limit(limit)
    names, statuses, start = as_names(schedule_id), as_statuses(status, RUN_STATUSES), as_instant(since, "since")
    with context.ledger.reading() as connection:
        numbers = _numbers_of(connection, None if names is None else sorted(set(names)))
        deployment = None if deployment_id is None else finding.require(connection, "deployment", deployment_id).number
        given: dict[str, Any] = {"statuses": statuses, "since": start, "until": None, "newest": True}
        rows = runs.page(connection, schedules=numbers, deployment=deployment, **given, after=0, limit=size)
        named = Named(connection)
        return [run_view(context, connection, row, named) for row in rows]


def require_run(connection: sqlite3.Connection, run_id: Any) -> runs.RunRow:
    """Return a run by its id. Raise NotFound."""
    if not isinstance(run_id, str):
        raise InvalidArgument(f"run_id must be text, not {run_id!r}", {"argument": "run_id"})
    number = run_number(run_id)
    row = runs.find(connection, number) if number is not None else None
    if row is None:
        raise _no_run(connection, run_id)
    return row


def _no_run(connection: sqlite3.Connection, run_id: str) -> NotFound:
    """Of a number written short, such as `run-12` or `12`, the run that has it was meant."""
    from wfctl.core.near import did_you_mean

    digits = run_id[-18:].rpartition("-")[2]
    number = int(digits) if digits.isdecimal() and digits.isascii() else 0
    near = [run_name(number)] if number and runs.find(connection, number) is not None else []
    hint = did_you_mean(near) or "; `wfctl runs` lists what there is"
    return NotFound(f"no run {run_id!r}{hint}", {"kind": "run", "id": run_id, "near": near})


def _not_recorded(schedule_id: str, at: datetime, beside: Sequence[datetime]) -> NotFound:
    name = f"{schedule_id}@{format_instant(at)}"
    near = [f"{schedule_id}@{format_instant(each)}" for each in beside]
    hint = f"; the nearest {'are' if len(near) > 1 else 'is'} {' and '.join(near)}" if near else ""
    listed = f"`wfctl occurrences {schedule_id}` lists what is"
    return NotFound(f"{name} is not recorded{hint}; {listed}", {"occurrence": name, "near": near})


def run_of(context: Context, number: int) -> runs.RunRow:
    """Return a run that is known to be there."""
    row = runs.find(context.ledger.connection, number)
    assert row is not None
    return row
