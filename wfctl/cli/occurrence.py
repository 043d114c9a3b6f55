"""`wfctl occurrence show` and `wfctl occurrences`: what became of instants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wfctl.cli import paging, parse, render, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.paging import paging_options
from wfctl.cli.render import Column
from wfctl.cli.style import Paint
from wfctl.cli.text import escape
from wfctl.core import reasons

if TYPE_CHECKING:
    from wfctl.operations.views import OccurrenceView

SCHEMA = "wfctl/occurrences.v1"


def name_of(view: OccurrenceView) -> str:
    """Return the name of an occurrence: SCHEDULE@INSTANT."""
    return f"{view.schedule_id}@{values.instant(view.instant)}"


def _span(view: OccurrenceView) -> str:
    if view.span is None:
        return ""
    count = "many" if view.span.count is None else f"{view.span.count:,}"
    return f"{count} instants from {values.instant(view.span.first)} to {values.instant(view.span.last)}"


def _why(view: OccurrenceView) -> str:
    return "; ".join(part for part in (_span(view), reasons.phrase(view.reason)) if part)


COLUMNS = [
    Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it.schedule_id, keep=True),
    render.instants("instant", "INSTANT (UTC)", lambda it: it.instant, keep=True),
    Column(key="status", title="STATUS", raw=lambda it: it.status, status=True, keep=True),
    Column(key="run_id", title="RUN", raw=lambda it: it.run_id),
    render.durations("lateness_s", "LATE", lambda it: it.lateness_s),
    Column(key="revision", title="REV", raw=lambda it: it.revision, right=True),
    Column(key="reason", title="WHY", raw=lambda it: it.reason, show=_why, free=True),
    Column(key="span", title="SPAN", raw=lambda it: it.span and it.span.to_json(), show=_span, extra=True),
    render.instants("recorded_at", "RECORDED", lambda it: it.recorded_at, extra=True),
]


@command()
@click.argument("schedule_ids", metavar="[SCHEDULE]...", nargs=-1, type=StoredId("schedule"), help="Only of these schedules.")
@paging_options
def occurrences(
    common: Common, schedule_ids: Sequence[str], limit: int | None, cursor: str | None, everything: bool, status: str | None,
    since: str | None, until: str | None,
) -> None:  # fmt: skip
    """List occurrences, oldest first.

    The one that a schedule holds back stands on top of the first page, as pending. `wfctl help states` explains the statuses.
    """
    now = common.now()
    first, last = parse.moment(since, "--since", now), parse.moment(until, "--until", now)
    with common.open() as store:
        paging.write(
            common,
            lambda size, place: store.list_schedule_occurrences(
                schedule_id=list(schedule_ids) or None, limit=size, cursor=place, status=status, since=first, until=last
            ),
            COLUMNS,
            schema=SCHEMA,
            name=name_of,
            limit=limit,
            cursor=cursor,
            everything=everything,
            command=paging.line(
                common,
                "occurrences",
                *schedule_ids,
                status=status,
                since=values.instant(first) or None,
                until=values.instant(last) or None,
            ),
        )


@command()
@click.argument("occurrence", metavar="SCHEDULE@INSTANT", help="Its name, as lists with -o name print it.")
def show(common: Common, occurrence: str) -> None:
    """Show one occurrence: SCHEDULE@INSTANT."""
    schedule_id, at = parse.occurrence_name(occurrence)
    with common.open() as store:
        view = store.get_occurrence(schedule_id=schedule_id, instant=at)
    render.item(common, view, details=lambda paint: _details(view, paint), name=name_of(view), columns=COLUMNS)


def _details(view: OccurrenceView, paint: Paint) -> str:
    facts = [
        ("why", escape(_why(view))),
        ("run", escape(view.run_id or "")),
        ("late", values.duration(view.lateness_s)),
        ("revision", "" if view.revision is None else str(view.revision)),
        ("recorded", values.instant(view.recorded_at)),
    ]
    rest = render.pairs(facts, paint, indent=2)
    return f"{paint(escape(name_of(view)), 'bold')}  {paint.status(view.status)}" + (f"\n{rest}" if rest else "")
