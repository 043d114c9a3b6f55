"""`wfctl schedules`: the list. By itself, so that a list of a thousand does not wait for what changes one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import paging, render, streams, values
from wfctl.cli.base import Common, command
from wfctl.cli.completing import words
from wfctl.cli.paging import part_options
from wfctl.cli.render import Column
from wfctl.cli.text import count_of, escape

if TYPE_CHECKING:
    from wfctl.operations.listing_schedules import ListedSchedule
    from wfctl.operations.shown import ScheduleView

STATES = ("active", "paused", "blocked", "finished", "deleted")
SCHEMA = "wfctl/schedules.v1"
_MOST_BLOCKED = 5  #: of which the list says what blocks them


def _field(name: str) -> Callable[[ScheduleView | ListedSchedule], Any]:
    return lambda view: (view.definition or {}).get(name)


def columns(now: datetime) -> list[Column]:
    def left(view: ScheduleView | ListedSchedule) -> float | None:
        return None if view.next_instant is None else (view.next_instant - now).total_seconds()

    return [
        Column(key="id", title="ID", raw=lambda it: it.id, keep=True),
        Column(key="state", title="STATE", raw=lambda it: it.state, status=True, keep=True),
        Column(key="trigger", title="TRIGGER", raw=_field("trigger"), show=lambda it: values.trigger(_field("trigger")(it))),
        render.instants("next_instant", "NEXT (UTC)", lambda it: it.next_instant),
        Column(key="left", title="LEFT", raw=left, write=values.ahead),
        Column(key="revision", title="REV", raw=lambda it: it.revision, right=True),
        Column(key="active_runs", title="ACTIVE", raw=lambda it: len(it.active_runs), right=True),
        Column(key="deployment", title="DEPLOYMENT", raw=_field("deployment")),
        Column(key="notes", title="NOTES", raw=remark, free=True),
        Column(key="overlap", title="OVERLAP", raw=_field("overlap"), extra=True),
        Column(key="misfire", title="MISFIRE", raw=_field("misfire"), extra=True),
        render.instants("candidate", "HELD (UTC)", lambda it: it.candidate and it.candidate.instant, extra=True),
        render.instants("effective_from", "EFFECTIVE FROM (UTC)", lambda it: it.effective_from, extra=True),
    ]


def remark(view: ScheduleView | ListedSchedule) -> str | None:
    """What is most worth knowing of a schedule: why it is blocked or paused, else its notes."""
    if view.diagnostic:
        return str(view.diagnostic.get("message") or view.diagnostic.get("code"))
    if view.paused_at:
        return f"paused {values.instant(view.paused_at)}" + (f': "{view.pause_reason}"' if view.pause_reason else "")
    if view.waits_until:
        return f"waits for the clock until {values.instant(view.waits_until)}"
    return (view.definition or {}).get("notes")


@command()
@click.option(
    "--state",
    metavar="A,B,...",
    type=words("active", "paused", "blocked", "finished", "deleted", is_list=True),
    help="Only schedules in these states: active, paused, blocked, finished, deleted.",
)
@click.option(
    "--sort", type=click.Choice(("id", "next")), metavar="BY", default="id", show_default=True, help="Order by id or next."
)
@click.option("--include-deleted", is_flag=True, help="Deleted ones too.")
@part_options
def schedules(
    common: Common, state: str | None, sort: str, include_deleted: bool, limit: int | None, cursor: str | None
) -> None:
    """List the schedules."""
    from wfctl.operations.listing_schedules import rows_of

    if sort == "next" and (limit is not None or cursor is not None):
        raise click.UsageError("--sort next takes the whole list: leave out --limit and --cursor")
    now = common.now()
    is_plain = common.format == "plain" and sort == "id"
    chosen: dict[str, Any] = {"include_deleted": include_deleted, "status": state, "limit": limit, "cursor": cursor}
    with common.listing() as context:
        shown = render.chosen(common, columns(now)) if is_plain else ()
        found, following = rows_of(context, **chosen, make=render.cells_of(shown) if is_plain else None)
    if is_plain:
        render.write_plain(common, shown, found)
    else:
        if sort == "next":
            found.sort(key=lambda view: (view.next_instant is None, view.next_instant, view.id))
        render.page(common, columns(now), found, schema=SCHEMA, name=lambda it: it.id, next_cursor=following)
    words = ["--include-deleted"] if include_deleted else []
    paging.say_next(common, following, limit, paging.line(common, "schedules", *words, state=state))
    if common.format == "table" and found and following is None and cursor is None and not common.quiet:
        counts = [
            f"{sum(view.state == word for view in found)} {word}"
            for word in STATES
            if any(view.state == word for view in found)
        ]
        streams.talk(f"{count_of(len(found), 'schedule')}: {', '.join(counts)}")
        _say_blocked([view for view in found if view.state == "blocked"])


def _say_blocked(views: Sequence[ScheduleView | ListedSchedule]) -> None:
    """Name what blocks schedules, and what mends it: NOTES may be cut, or hidden, where a terminal is narrow."""
    from wfctl.cli.server import mended_by

    for view in views[:_MOST_BLOCKED]:
        entry = {"id": view.id, "diagnostic": view.diagnostic}
        streams.talk(f"{escape(view.id)} is blocked: {escape(remark(view))}{mended_by(entry)}")
    if len(views) > _MOST_BLOCKED:
        streams.talk(f"and {len(views) - _MOST_BLOCKED} more; `wfctl status` names what blocks each")
