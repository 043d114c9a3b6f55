"""`wfctl cron next`: expressions without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, preview, render, streams, values
from wfctl.cli.base import Common, command
from wfctl.cli.render import Column
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from datetime import datetime

    from wfctl.core.model import Trigger

MOST = 10_000  #: instants listed at once


def instant_columns(now: datetime, *, with_schedule: bool) -> list[Column]:
    """Return the columns of a list of coming instants."""
    first = [Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it["schedule_id"], keep=True)] if with_schedule else []
    return [
        *first,
        Column(key="instant", title="INSTANT (UTC)", raw=lambda it: it["instant"], keep=True),
        Column(key="local", title="LOCAL", raw=lambda it: it["local"], show=lambda it: it["shown"], keep=True),
        Column(key="left", title="LEFT", raw=lambda it: it["left_s"], show=lambda it: values.relative(it["instant"], now)),
        Column(key="note", title="NOTE", raw=lambda it: it["note"], show=lambda it: preview.NOTES.get(it["note"] or "", "")),
    ]


def instant_rows(
    trigger: Trigger, anchor: datetime | None, after: datetime, now: datetime, count: int, **more: Any
) -> list[dict[str, Any]]:
    """Return the coming instants of a trigger as items of a list."""
    from wfctl.core.preview import preview as rows_of

    return [
        {
            **more,
            "instant": values.instant(row.instant),
            "local": row.local.isoformat(),
            "timezone": preview.zone_name(trigger),
            "note": row.note,
            "left_s": round((row.instant - now).total_seconds(), 3),
            "shown": preview.local(row),
        }
        for row in rows_of(trigger, anchor, after, count)
    ]


def write_instants(common: Common, rows: list[dict[str, Any]], now: datetime, *, with_schedule: bool) -> None:
    """Write coming instants as a list."""
    columns = instant_columns(now, with_schedule=with_schedule)
    shown = rows if common.is_human else [{key: value for key, value in row.items() if key != "shown"} for row in rows]
    name = (lambda it: f"{it['schedule_id']}@{it['instant']}") if with_schedule else (lambda it: it["instant"])
    render.page(common, columns, shown, schema="wfctl/instants.v1", name=name)


def check_count(count: int) -> None:
    """Refuse a number of instants that is none, or too many to show."""
    if not 1 <= count <= MOST:
        raise InvalidArgument(f"-n must be from 1 to {MOST}, not {count}")


@command(name="next")
@click.argument("expression", metavar="EXPRESSION", help="Five fields in one argument: '30 2 * * 1-5'.")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="The zone that the expression is read in.")
@click.option("-n", "count", type=int, default=5, show_default=True, metavar="N", help="How many instants.")
@click.option("--from", "start", metavar="INSTANT", help="Begin after this instant instead of now.")
def next_instants(common: Common, expression: str, timezone: str, count: int, start: str | None) -> None:
    """Show the coming instants of an expression.

    Instants are shown in UTC and in the zone of the expression; what a clock change does is noted.
    """
    from wfctl.core.preview import warnings_of
    from wfctl.core.reading import reading_of
    from wfctl.core.trigger import check_fires, parse_trigger

    now = common.now()
    check_count(count)
    after = parse.instant(start, "--from") if start else now
    trigger = parse_trigger({"kind": "cron", "expression": expression, "timezone": timezone})
    check_fires(trigger, after)
    if not common.quiet:
        streams.talk(reading_of(trigger))
    write_instants(common, instant_rows(trigger, None, after, now, count), now, with_schedule=False)
    if not common.quiet:
        for warning in warnings_of(trigger, after):
            streams.talk(f"warning {warning.code}: {warning.message}")
