"""`wfctl load`: the slots that the coming days want, hour by hour."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import click

from wfctl.cli import parse, render, values
from wfctl.cli.base import Common, command
from wfctl.cli.completing import ZONE, words
from wfctl.cli.style import Paint
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.operations.views import LoadView

_WIDTHS = {"hour": timedelta(hours=1), "15m": timedelta(minutes=15)}
#: up to which share of the slots, what stands for it, and in which colour
_LEVELS = ((0.0, "..", "dim"), (0.25, "--", ""), (0.5, "==", "green"), (0.75, "++", "yellow"), (1.0, "**", "yellow"))
_OVER = ("%%", "red")


@command()
@click.option("--days", metavar="N", type=click.IntRange(1, 400), default=7, show_default=True, help="How many days ahead.")
@click.option("--by", type=click.Choice(tuple(_WIDTHS)), metavar="hour|15m", default="hour", show_default=True,
              help="How fine the JSON is; for people it is always by the hour.")  # fmt: skip
@click.option(
    "--durations",
    metavar="HOW",
    type=words("history", "p95"),
    default="history",
    show_default=True,
    help="What runs take: history (the median), p95, a duration, or @FILE, JSON of durations by id.",
)
@click.option("--timezone", metavar="ZONE", type=ZONE, default="UTC", show_default=True, help="The zone of the hours shown.")
@click.option("--fail-over", metavar="N", type=float, help="Exit with 1 where more than N slots are wanted at once.")
def load(common: Common, days: int, by: str, durations: str, timezone: str, fail_over: float | None) -> int:
    """Show how many slots the coming days want, hour by hour.

    From the instants of every active schedule and from what its runs took. Wanted is what would run if there were no limit:
    where it is above the limit, runs wait or are skipped, and `wfctl simulate` says which.
    """
    from wfctl.operations import load as operation
    from wfctl.operations import simulating

    zone = parse.zone(timezone, "--timezone")
    given = parse.json_document(durations, "--durations") if durations.startswith("@") else durations
    now = common.now()
    with common.open() as store:
        view = operation.load(
            store.context,
            until=now + timedelta(days=days),
            width=_WIDTHS[by if common.is_program else "hour"],
            slots=simulating.slots_of(store.context, common.environ),
            durations=given,
        )
    render.item(common, view, details=lambda paint: "\n".join(lines_of(view, zone, timezone, paint)), name=timezone)
    peak = view.peak.used if view.peak else 0
    return 1 if fail_over is not None and peak > fail_over else 0


def lines_of(view: LoadView, zone: tzinfo, zone_name: str, paint: Paint) -> list[str]:
    """Return the week as a map: a line a day, a cell an hour; below it the tightest moment and what the cells mean."""
    days: dict[str, dict[int, float]] = {}
    for bucket in view.buckets:
        local = bucket.begins.astimezone(zone)
        day = days.setdefault(f"{local:%a %d}", {})
        day[local.hour] = max(day.get(local.hour, 0.0), bucket.mean)
    corner = escape(zone_name)
    scale = " ".join(f"{hour:02}" for hour in range(24))
    lines = [f"{corner:<6} {scale}"] if len(corner) <= 6 else [f"in {corner}", f"       {scale}"]
    for name, hours in days.items():
        cells = [_cell(hours[hour], view.slots, paint) if hour in hours else "  " for hour in range(24)]
        lines.append(f"{name} " + " ".join(cells).rstrip())
    lines += ["", _peak_line(view, zone)]
    lines.append(f"wanted of {view.slots} slots: .. none  -- up to 25 %  == 50 %  ++ 75 %  ** 100 %  %% more")
    if view.assumed:
        named = ", ".join(view.assumed[:5]) + (" and others" if len(view.assumed) > 5 else "")
        lines.append(f"no run of {escape(named)} is over yet: 1m is assumed; --durations says otherwise")
    return lines


def _cell(mean: float, slots: int, paint: Paint) -> str:
    share = mean / slots
    for most, text, style in _LEVELS:
        if share <= most:
            return paint(text, style) if style else text
    return paint(*_OVER)


def _peak_line(view: LoadView, zone: tzinfo) -> str:
    peak = view.peak
    if peak is None:
        return "nothing runs in this time"
    at: datetime = peak.at.astimezone(zone)
    named = [f"{escape(it['schedule_id'])} ({values.duration(it['duration_s'])})" for it in peak.schedules[:3]]
    more = f" and {len(peak.schedules) - 3} more" if len(peak.schedules) > 3 else ""
    return f"peak {peak.used} of {view.slots} slots, {at:%a %d %H:%M %Z}: {' over '.join(named)}{more}"
