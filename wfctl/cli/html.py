"""A timeline as one page to look into: it needs nothing but itself, and refuses to fetch anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from string import Template
from typing import TYPE_CHECKING

from wfctl import __version__
from wfctl.cli import values
from wfctl.cli.svg import DARK, LIGHT, WIDTH, Chart, definitions, page_file, shape, style, text
from wfctl.cli.text import count_of
from wfctl.cli.timeline_words import Said, Words

if TYPE_CHECKING:
    from wfctl.operations.timeline_views import TimelineView
    from wfctl.operations.views import LoadView

_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  #: up to which share of the slots
_LEVEL_WORDS = ("none", "up to 25 %", "up to 50 %", "up to 75 %", "up to 100 %", "more than there are")
_COLUMNS = ("schedule", "instant", "from", "to", "took", "run", "what", "why")
_KEYS = (
    "Hover or <kbd>Tab</kbd> for details, arrow keys walk from bar to bar. Drag to look closer, <kbd>+</kbd> <kbd>-</kbd> or"
    " <kbd>Ctrl</kbd> and wheel zoom, <kbd>0</kbd> shows all again."
)


def page_of(view: TimelineView, zone: tzinfo, *, load: LoadView | None) -> str:
    """Given a timeline, and the load of the time ahead if it is known, return the whole page."""
    chart, words = Chart(view, zone), Words(view, zone)
    content = chart.content()
    script, sheet = page_file("timeline.js"), _sheet()
    title = f"{words.window()}, {words.zone_name}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, sheet)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<meta name="generator" content="wfctl {text(__version__)}"><link rel="icon" href="data:,">'
        f"<title>Timeline: {text(title)}</title><style>{sheet}</style></head>\n<body>"
        f'<h1>Timeline</h1><p>{text(title)}</p><p class="dim">{text(words.summary() or "nothing happened in it")}</p>'
        f"{_tools()}{_chart(chart, words, content)}{_legend(chart)}{_notes(words)}{_load(load, words, zone)}{_table(words)}"
        f"<footer>Drawn by wfctl {text(__version__)}, {text(_moment(view.now, zone))}."
        f" All times are {text(words.zone_name)}.</footer>"
        f'<div id="tip" role="tooltip" hidden></div>\n<script>{script}</script></body></html>\n'
    )


def _policy(script: str, sheet: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (script, sheet)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; img-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def _sheet() -> str:
    page = Template(page_file("page.css"))
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{page.substitute(DARK)}}}\n"
    return f"{page.substitute(LIGHT)}{dark}{style()}{page_file('print.css')}"


def _moment(at: datetime, zone: tzinfo) -> str:
    return f"{at.astimezone(zone):%a %d %b %Y %H:%M:%S %Z}"


# The picture ------------------------------------------------------------------------------------------------------------


def _tools() -> str:
    buttons = (("in", "Zoom in"), ("out", "Zoom out"), ("whole", "All"), ("earlier", "Earlier"), ("later", "Later"))
    drawn = "".join(f'<button type="button" id="{name}">{said}</button>' for name, said in buttons)
    return (
        f'<div class="bar-of-tools script" hidden role="group" aria-label="Zoom">{drawn}<span class="dim">{_KEYS}</span></div>'
    )


def _chart(chart: Chart, words: Words, content: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {chart.height}" width="{WIDTH}" height="{chart.height}"'
    name = text(f"Timeline, {words.window()}")
    drawn = f'<svg class="wf" {size} role="group" aria-label="{name}"{chart.attributes()}>{definitions()}{content}</svg>'
    return f'<div class="chart">{drawn}<div id="select" hidden></div></div>'


def _legend(chart: Chart) -> str:
    items = "".join(
        f'<li><svg class="wf" viewBox="-11 -9 22 18" aria-hidden="true"><g class="k-{kind}">{shape(kind)}</g></svg>'
        f"{text(said)}</li>"
        for kind, said in chart.legend()
    )
    return f'<ul class="chips" aria-label="Legend">{items}</ul>'


def _notes(words: Words) -> str:
    notes = [f"<b>{text(name)}</b> {text(said)}" for name, said in words.lane_notes()]
    notes += [text(note) for note in words.notes()]
    return f'<ul class="notes">{"".join(f"<li>{note}</li>" for note in notes)}</ul>' if notes else ""


def _table(words: Words) -> str:
    """Return everything that is drawn as a table: what the picture says to those who do not see it."""
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    rows = ["".join(f"<td>{text(cell)}</td>" for cell in _row(said)) for said in words.all()]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<details><summary>As a table ({count_of(len(rows), 'row')})</summary>"
        f'<div class="scroll"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _row(said: Said) -> tuple[str, ...]:
    return (said.schedule_id, said.instant, said.begins, said.ends, said.took, said.run_id, said.what, said.why)


# The load ahead ---------------------------------------------------------------------------------------------------------


def _load(load: LoadView | None, words: Words, zone: tzinfo) -> str:
    if load is None or not load.buckets:
        return ""
    days: dict[str, dict[int, tuple[float, int]]] = {}
    for bucket in load.buckets:
        local = bucket.begins.astimezone(zone)
        hours = days.setdefault(f"{local:%a %d %b}", {})
        mean, peak = hours.get(local.hour, (0.0, 0))
        hours[local.hour] = max(mean, bucket.mean), max(peak, bucket.peak)
    head = "".join(f'<th scope="col">{hour:02}</th>' for hour in range(24))
    rows = "".join(
        f'<tr><th scope="row">{text(day)}</th>{"".join(_cells(day, hours, load.slots))}</tr>' for day, hours in days.items()
    )
    key = "".join(f'<span><i class="l{level}"></i>{said}</span>' for level, said in enumerate(_LEVEL_WORDS))
    span = values.duration(timedelta(seconds=round((load.until - load.since).total_seconds())))
    return (
        f"<section><h2>Execution slots wanted, the next {span}</h2>"
        f'<p class="dim">The average of each hour, of {count_of(load.slots, "slot")}: what would run if there were no limit.'
        f"{text(_peak(load, zone))}</p>"
        f'<div class="scroll"><table class="heat"><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="key" aria-hidden="true">{key}</p></section>'
    )


def _cells(day: str, hours: dict[int, tuple[float, int]], slots: int) -> Iterator[str]:
    for hour in range(24):
        if hour not in hours:
            yield "<td></td>"
            continue
        mean, peak = hours[hour]
        level = next((number for number, most in enumerate(_LEVELS) if mean / slots <= most), len(_LEVELS))
        shown = "0" if mean == 0 else f"{mean:.1f}".replace("0.", ".") if mean >= 0.05 else "&lt;.1"
        said = text(f"{day} {hour:02}:00: {mean:.2f} of {slots} slots on average, at most {peak}")
        yield f'<td class="l{level}" title="{said}">{shown}</td>'


def _peak(load: LoadView, zone: tzinfo) -> str:
    peak = load.peak
    if peak is None:
        return " Nothing runs in this time."
    named = [f"{each['schedule_id']} ({values.duration(each['duration_s'])})" for each in peak.schedules[:3]]
    more = f" and {len(peak.schedules) - 3} more" if len(peak.schedules) > 3 else ""
    return f" The most is {peak.used} at once, {peak.at.astimezone(zone):%a %d %b %H:%M}: {', '.join(named)}{more}."
