"""`wfctl cron explain` and `wfctl cron next`: expressions without a store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, preview, render, streams, values
from wfctl.cli.base import Common, command
from wfctl.cli.completing import ZONE
from wfctl.cli.render import Column
from wfctl.cli.text import escape
from wfctl.errors import InvalidArgument, InvalidDefinition

if TYPE_CHECKING:
    from datetime import datetime

    from wfctl.cli.style import Paint
    from wfctl.core.model import CronTrigger, Trigger
    from wfctl.core.rhythm import Rhythm

_MARKS = {"gap": "gap: moved", "fold-first": "fold: 1st pass", "fold-second": "fold: 2nd pass"}
MOST = 10_000  #: instants listed at once


def instant_columns(now: datetime, rows: list[dict[str, Any]], *, with_schedule: bool, is_narrow: bool) -> list[Column]:
    """Return the columns of a list of coming instants."""
    marks: Mapping[str, str] = _MARKS if is_narrow else preview.NOTES
    first = [Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it["schedule_id"], keep=True)] if with_schedule else []
    is_short = any("more" in row for row in rows)
    more = [Column(key="more", title="MORE", raw=lambda it: it.get("more"), keep=True)] if is_short else []
    return [
        *first,
        Column(key="instant", title="INSTANT (UTC)", raw=lambda it: it["instant"], keep=True),
        Column(key="local", title="LOCAL", raw=lambda it: it["local"], show=lambda it: it["shown"], keep=True),
        Column(key="left", title="LEFT", raw=lambda it: it["left_s"], show=lambda it: values.relative(it["instant"], now)),
        Column(
            key="note",
            title="NOTE",
            raw=lambda it: it["note"],
            show=lambda it: marks.get(it["note"] or "", ""),
            keep=any(row["note"] for row in rows),
        ),
        *more,
    ]


def instant_rows(
    trigger: Trigger,
    anchor: datetime | None,
    after: datetime,
    now: datetime,
    count: int,
    *,
    with_changes: bool = False,
    **more: Any,
) -> list[dict[str, Any]]:
    """Return the coming instants of a trigger as items of a list; `with_changes`, those that clock changes touch too."""
    from wfctl.core.preview import changed_rows
    from wfctl.core.preview import preview as rows_of

    found = list(rows_of(trigger, anchor, after, count))
    if with_changes:
        listed = {row.instant for row in found}
        found += [row for row in changed_rows(trigger, after) if row.instant not in listed]
        found.sort(key=lambda row: row.instant)
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
        for row in found
    ]


def write_instants(common: Common, rows: list[dict[str, Any]], now: datetime, *, with_schedule: bool) -> None:
    """Write coming instants as a list."""
    columns = instant_columns(now, rows, with_schedule=with_schedule, is_narrow=common.format == "table")
    shown = rows if common.is_human else [{key: value for key, value in row.items() if key != "shown"} for row in rows]
    name = (lambda it: f"{it['schedule_id']}@{it['instant']}") if with_schedule else (lambda it: it["instant"])
    render.page(common, columns, shown, schema="wfctl/instants.v1", name=name)


def check_count(count: int) -> None:
    """Refuse a number of instants that is none, or too many to show."""
    if not 1 <= count <= MOST:
        raise InvalidArgument(f"-n must be from 1 to {MOST}, not {count}")


zone_option = click.option(
    "--timezone", metavar="ZONE", type=ZONE, help="The zone that the expression is read in (default UTC)."
)
_expression = click.argument(
    "expression", metavar="EXPRESSION", nargs=-1, required=True, callback=lambda ctx, param, words: _in_quotes(words),
    help="Five fields in one argument: '30 2 * * 1-5'.",
)  # fmt: skip
dst_option = click.option("--dst", is_flag=True, help="Also the instants that clock changes of the coming 400 days touch.")


def _in_quotes(words: tuple[str, ...]) -> str:
    """The one argument that is the expression. The shell makes several of one without quotes, and file names of its stars."""
    if len(words) > 1:
        raise click.UsageError("the expression is one argument: put it in quotes, such as '30 2 * * 1-5'")
    return "".join(words)


@command(name="next")
@_expression
@zone_option
@click.option("-n", "count", type=int, default=5, show_default=True, metavar="N", help="How many instants.")
@click.option("--from", "start", metavar="INSTANT", help="Begin after this instant instead of now.")
@dst_option
def next_instants(common: Common, expression: str, timezone: str | None, count: int, start: str | None, dst: bool) -> None:
    """Show the coming instants of an expression.

    Instants are shown in UTC and in the zone of the expression; what a clock change moves or repeats is marked.
    """
    from wfctl.core.preview import warnings_of
    from wfctl.core.reading import reading_of

    now = common.now()
    check_count(count)
    after = parse.instant(start, "--from") if start else now
    trigger = _trigger(expression, timezone, after)
    if not common.quiet:
        streams.talk(reading_of(trigger))
    rows = instant_rows(trigger, None, after, now, count, with_changes=dst)
    write_instants(common, rows, now, with_schedule=False)
    if not common.quiet:
        for warning in warnings_of(trigger, after):
            streams.talk(f"warning {warning.code}: {warning.message}")


def _trigger(expression: str, timezone: str | None, after: datetime) -> CronTrigger:
    """Return what is asked about. Raise InvalidDefinition that says of each field that is wrong where it stands."""
    from wfctl.core.model import CronTrigger
    from wfctl.core.trigger import check_fires, parse_trigger

    plain = {"kind": "cron", "expression": expression, "timezone": "UTC" if timezone is None else timezone}
    try:
        trigger = parse_trigger(plain)
    except InvalidDefinition as error:
        said = [problem.message for problem in error.problems]
        what = said[0] if len(said) == 1 else f"{len(said)} problems" + "".join(f"\n  {each}" for each in said)
        raise InvalidDefinition(f"the expression cannot be read: {what}", problems=error.problems) from error
    assert isinstance(trigger, CronTrigger)
    check_fires(trigger, after)
    return trigger


# Explaining -------------------------------------------------------------------------------------------------------------


@command()
@_expression
@zone_option
@click.option("--from", "start", metavar="INSTANT", help="Look from this instant on instead of from now.")
def explain(common: Common, expression: str, timezone: str | None, start: str | None) -> None:
    """Say in English when an expression fires.

    Its fields, how often and how far apart it fires, the next instants, and what to beware of; no store is needed.
    """
    from wfctl.core.preview import warnings_of
    from wfctl.core.rhythm import rhythm_of
    from wfctl.core.trigger import expression_of, zone_of

    now = common.now()
    after = parse.instant(start, "--from") if start else now
    trigger = _trigger(expression, timezone, after)
    rhythm = rhythm_of(expression_of(trigger), after.astimezone(zone_of(trigger.timezone)).date())
    warnings = list(warnings_of(trigger, after))
    document = _document(trigger, after, now, rhythm) | {
        "warnings": [{"code": warning.code, "message": warning.message} for warning in warnings]
    }
    render.item(common, document, details=lambda paint: _card(trigger, after, now, rhythm, paint), name=trigger.expression)
    preview.say(common, [f"warning {warning.code}: {warning.message}" for warning in warnings])
    if common.is_human and not common.quiet:
        if timezone is None:
            streams.talk("no --timezone was given: it is read in UTC")
        if warnings:
            streams.talk(f"more about a warning: wfctl help {warnings[0].code}")


def _document(trigger: CronTrigger, after: datetime, now: datetime, rhythm: Rhythm) -> dict[str, Any]:
    from wfctl.core.reading import field_readings, reading_of
    from wfctl.core.trigger import expression_of

    expression = expression_of(trigger)
    names = ("minute", "hour", "day", "month", "weekday")
    return {
        "schema": "wfctl/cron-explain.v1",
        "expression": trigger.expression,
        "expanded": expression.expanded,
        "timezone": trigger.timezone,
        "reading": reading_of(trigger),
        "fields": {
            name: {"text": field.words, "reading": reading, "values": list(field.values)}
            for name, field, reading in zip(names, expression.fields, field_readings(expression), strict=True)
        },
        "either_day": expression.has_both_days,
        "fires": rhythm.fires,
        "days": rhythm.days,
        "fires_a_month": round(rhythm.a_month, 3),
        "shortest_gap_s": rhythm.shortest and rhythm.shortest.total_seconds(),
        "longest_gap_s": rhythm.longest and rhythm.longest.total_seconds(),
        "next": [
            {key: value for key, value in row.items() if key != "shown"}
            for row in instant_rows(trigger, None, after, now, preview.SHOWN)
        ],
    }


def _card(trigger: CronTrigger, after: datetime, now: datetime, rhythm: Rhythm, paint: Paint) -> str:
    from wfctl.core.reading import field_readings, reading_of
    from wfctl.core.trigger import expression_of

    expression = expression_of(trigger)
    dot = f" {paint.dot} "
    lines = [
        paint(escape(reading_of(trigger)), "bold"),
        f"  {dot.join(field_readings(expression))}",
        f"  {dot.join(_rhythm_words(rhythm))}",
        "",
        *(f"  {line}" for line in preview.instant_lines(trigger, None, after, now)),
    ]
    if expression.text != expression.expanded:
        lines.insert(1, f"  {expression.text} is read as {expression.expanded}")
    return "\n".join(lines)


def _rhythm_words(rhythm: Rhythm) -> list[str]:
    often, span = (rhythm.a_month, "month") if rhythm.a_month >= 1 else (rhythm.a_month * 12, "year")
    if rhythm.fires < 1:
        return ["fires less than once in eight years"]
    number = f"{often:,.0f}" if often >= 100 else f"{often:.1f}".removesuffix(".0") if often >= 1 else f"{often:.2f}"
    words = [f"{number} {'fire' if number == '1' else 'fires'} a {span} on average"]
    if rhythm.shortest is None or rhythm.longest is None:
        return words
    if rhythm.shortest == rhythm.longest:
        return [*words, f"always {_gap(rhythm.shortest)} apart"]
    return [
        *words,
        f"shortest gap {_gap(rhythm.shortest)}",
        f"longest {_gap(rhythm.longest)}",
    ]


def _gap(gap: timedelta) -> str:
    """In days, hours and minutes: a week is shown as 7d, beside a gap of 1d."""
    from wfctl.core.duration import format_duration

    rest = gap % timedelta(days=1)
    return (f"{gap.days}d" if gap.days else "") + (format_duration(rest) if rest or not gap.days else "")
