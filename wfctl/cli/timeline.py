"""`wfctl timeline`: what ran, what did not and why, what goes on, and what is expected, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, render, streams
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.render import Column
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from wfctl.operations.timeline_views import TimelineView

_PIPE = 100  #: cells of a picture in a pipe, where COLUMNS says nothing else
_IN_LETTERS = 20_000  #: runs and marks looked at where cells fold many of them into one

COLUMNS = [
    Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it.schedule_id, keep=True),
    Column(key="instant", title="INSTANT", raw=lambda it: it.instant),
    Column(key="what", title="WHAT", raw=lambda it: it.what),
    Column(key="begins", title="FROM", raw=lambda it: it.begins),
    Column(key="ends", title="TO", raw=lambda it: it.ends),
    Column(key="took", title="TOOK", raw=lambda it: it.took),
    Column(key="run_id", title="RUN", raw=lambda it: it.run_id),
    Column(key="why", title="WHY", raw=lambda it: it.why, free=True),
]


@command()
@click.argument("schedule_ids", metavar="[SCHEDULE]...", nargs=-1, type=StoredId("schedule"), help="Show only these schedules.")
@click.option("--since", metavar="T", default="12h", show_default=True, help="From this instant, or so long ago: 90m, 7d.")
@click.option(
    "--until",
    metavar="T",
    default="2h",
    show_default=True,
    help="To this instant, so long ahead, now, or so long ago: `6h ago`.",
)
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="The zone of the times shown.")
@click.option(
    "--by",
    type=click.Choice(("schedule", "deployment", "slot")),
    metavar="WHAT",
    default="schedule",
    show_default=True,
    help="A lane for each schedule, deployment or slot.",
)
@click.option("--svg", metavar="FILE", help="Write the picture as SVG; - is stdout.")
@click.option("--html", metavar="FILE", help="Write a page to look into: zoom, keyboard, table, load ahead; - is stdout.")
def timeline(
    common: Common, schedule_ids: Sequence[str], since: str, until: str, timezone: str, by: str, svg: str | None,
    html: str | None,
) -> None:  # fmt: skip
    """Draw what happened, what goes on and what is expected.

    wfctl timeline --since 24h --html week.html

    A line a schedule, one more for each run beside another; of what meets in one cell the worst is shown. What is expected is
    decided by the very code of the supervisor, with the lengths that runs had before. A file is one piece: nothing in it points
    anywhere else.
    """
    from wfctl.operations import picture, simulating

    if svg == "-" and html == "-":
        raise click.UsageError("--svg - and --html - cannot both be written to stdout")
    zone = _zone(timezone)
    now = common.now()
    first, last = _window(since, until, now)
    with common.open() as store:
        slots = simulating.slots_of(store.context, common.environ)
        view = picture.timeline(
            store.context,
            schedule_ids=list(schedule_ids) or None,
            since=first,
            until=last,
            slots=slots,
            timezone=timezone,
            by=by,
            most=picture.MOST if svg or html else _IN_LETTERS,
        )
        _write_files(common, view, zone, svg, html, lambda: _load(store, view))
    if common.output is not None or not (svg or html):
        _answer(common, view, zone)


def _zone(name: str) -> tzinfo:
    from wfctl.core.plain import suggestion
    from wfctl.core.trigger import is_zone, valid_zones, zone_of

    if not is_zone(name):
        raise InvalidArgument(f"--timezone: {name!r} is no zone that is known here{suggestion(name, sorted(valid_zones()))}")
    return zone_of(name)


def _window(since: str, until: str, now: datetime) -> tuple[datetime, datetime]:
    first = parse.moment(since, "--since", now)
    assert first is not None
    is_back = until == "now" or until.endswith(" ago")
    last = parse.moment(until, "--until", now) if is_back else parse.ahead(until, "--until", now)
    assert last is not None
    if first >= last:
        raise InvalidArgument("--since is not before --until: there is nothing between them")
    return first, last


def _load(store: Any, view: TimelineView) -> Any:
    """Return the load of the coming week, or of as much of it as is worked out in a moment; None where there is none."""
    from datetime import timedelta

    from wfctl.operations import load, picture_ahead

    now = store.context.now()
    end = picture_ahead.horizon(store.context, now, now + timedelta(days=7), 20_000)
    return None if end is None else load.load(store.context, until=end, width=timedelta(hours=1), slots=view.slots)


# Answers ----------------------------------------------------------------------------------------------------------------


def _answer(common: Common, view: TimelineView, zone: tzinfo) -> None:
    from wfctl.cli.timeline_text import lines_of
    from wfctl.cli.timeline_words import Words

    if common.format == "csv":
        render.page(
            common, COLUMNS, Words(view, zone, for_programs=True).all(), schema=view.schema, name=lambda it: it.schedule_id
        )
    elif common.format == "name":
        render.page(common, COLUMNS, view.lanes, schema=view.schema, name=lambda it: it.name)
    else:
        width = render.terminal_width() or _columns(common) or _PIPE
        render.item(common, view, details=lambda paint: "\n".join(lines_of(view, zone, paint, width)), name="")


def _columns(common: Common) -> int | None:
    asked = common.environ.get("COLUMNS", "")
    return int(asked) if asked.isdigit() and 0 < int(asked) < 10_000 else None


# Files ------------------------------------------------------------------------------------------------------------------


def _write_files(
    common: Common, view: TimelineView, zone: tzinfo, svg: str | None, html: str | None, load: Callable[[], Any]
) -> None:
    if svg is not None:
        from wfctl.cli.svg import svg_of

        _write(common, svg, svg_of(view, zone))
    if html is not None:
        from wfctl.cli.html import page_of

        _write(common, html, page_of(view, zone, load=load()))


def _write(common: Common, name: str, text: str) -> None:
    from wfctl.cli.exporting import write_export

    if name == "-":
        streams.raw(text)
        return
    write_export(parse.absolute(name), text.encode())
    if not common.quiet:
        streams.talk(f"wrote {name}")
