"""A timeline drawn as SVG: one piece, marks as shapes, dark and light, a text equivalent for each bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from functools import cache
from html import escape as _markup
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from wfctl.cli.text import escape
from wfctl.cli.timeline_words import KINDS, Said, Words, kind_of, kind_of_expected
from wfctl.core import axis

if TYPE_CHECKING:
    from wfctl.operations.timeline_views import DrawnPauseView, DrawnRunView, ExpectedView, LaneView, MarkView, TimelineView

NAMESPACE = "http://www.w3.org/2000/svg"
WIDTH, RIGHT = 1120, 18
NEAR = 15  #: how far apart two shapes of a kind must be
_TRACK, _BAR, _PAD, _HEAD = 20, 13, 9, 46
_LETTER = 7.0  #: how wide a letter of a name is, about
_SMALL = 5.8  #: of the smaller text below it
_LABEL = (200, 250)  #: the column of names: at least, at most

#: Told apart by people who do not see colours alike, by light and dark (after Okabe and Ito).
LIGHT = {
    "paper": "#ffffff", "ink": "#1a1f24", "muted": "#5b6570", "grid": "#dde2e7", "zebra": "#f5f7f9", "done": "#00805d",
    "bad": "#c23b00", "warn": "#9a6200", "live": "#0067a3", "pause": "#8f3f7a",
}  # fmt: skip
DARK = {
    "paper": "#12171d", "ink": "#e8edf2", "muted": "#9ba8b4", "grid": "#2c353f", "zebra": "#182028", "done": "#2fbf93",
    "bad": "#ff8552", "warn": "#f2b536", "live": "#5cb6f2", "pause": "#dc9ac6",
}  # fmt: skip

#: kind -> its shape, around (0, 0) and six units large either way
SHAPES = {
    "failed": '<circle class="w-solid" r="6.4"/><path class="w-cut" d="M-2.4-2.4 2.4 2.4M2.4-2.4-2.4 2.4"/>',
    "exhausted": '<rect class="w-solid" x="-6" y="-6" width="12" height="12" rx="1"/><path class="w-cut" d="M-3 0H3"/>',
    "preflight-rejected": '<path class="w-solid" d="M0-6.8 7 5.8H-7Z"/><path class="w-cut" d="M0-2V1.6M0 3.8V4"/>',
    "skipped-misfire": '<circle class="w-hollow" r="5.4"/><path class="w-line" d="M0-3V0L2.4 1.6"/>',
    "skipped-overlap": '<circle class="w-hollow" r="5.4"/><path class="w-line" d="M-3.8 3.8 3.8-3.8"/>',
    "cancelled": '<rect class="w-hollow" x="-5.2" y="-5.2" width="10.4" height="10.4" rx="1"/>'
    '<path class="w-line" d="M-2.4-2.4 2.4 2.4M2.4-2.4-2.4 2.4"/>',
    "overdue": '<path class="w-solid" d="M0-7.2 7.2 0 0 7.2-7.2 0Z"/><path class="w-cut" d="M0-3.2V.6M0 3.2V3.4"/>',
    "interrupted": '<path class="w-solid" d="M-6.4-6H6.4V3H0L-3.6 6.6V3H-6.4Z"/>'
    '<path class="w-cut" d="M-3.2-1.5h.01M0-1.5h.01M3.2-1.5h.01"/>',
    "pending": '<circle class="w-hollow" r="5.4" stroke-dasharray="2.4 1.9"/>',
    "running": '<path class="w-solid" d="M-4.8-6.2 6.4 0-4.8 6.2Z"/>',
    "admitted": '<path class="w-hollow" d="M-3.8-5 5.4 0-3.8 5Z"/>',
    "coalesced": '<path class="w-line" d="M-4.6-4 -.6 0-4.6 4M.4-4 4.4 0 .4 4"/>',
    "paused": '<path class="w-line" stroke-width="2.6" d="M-2.4-4.2V4.2M2.4-4.2V4.2"/>',
    "unlikely": '<circle class="w-hollow" r="3.6" stroke-dasharray="1.6 1.4"/><path class="w-line" d="M-2.4 2.4 2.4-2.4"/>',
    "clock": '<circle class="w-hollow" r="5.6"/><path class="w-line" d="M3-2.6A4 4 0 1 0 3 2.6M3-2.6V-.4M3-2.6H.8"/>',
}
_SHOWN_IN_LEGEND = {
    "completed": '<rect class="bar" x="-9" y="-5" width="18" height="10" rx="2"/>',
    "expected": '<rect class="bar" x="-9" y="-5" width="18" height="10" rx="2"/>',
    "pause": '<rect class="pause" x="-9" y="-6" width="18" height="12"/>',
    "away": '<rect class="away" x="-9" y="-6" width="18" height="12"/><path class="away-line" d="M-9-6V6M9-6V6"/>',
    "late": '<path class="late" d="M-9 0H9"/>',
    "wait": '<rect class="wait" x="-9" y="-5" width="18" height="10" rx="2"/>',
    "span": '<rect class="span" x="-9" y="-5" width="18" height="10"/>',
}
_PATTERNS = (
    '<pattern id="p-away" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="pat-away" d="M0 0V7"/></pattern>'
    '<pattern id="p-pause" width="5" height="5" patternUnits="userSpaceOnUse"><path class="pat-pause" d="M.5 0V5"/></pattern>'
    '<pattern id="p-span" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<path class="pat-span" d="M0 0V6"/></pattern>'
    '<pattern id="p-bad" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="pat-bad" d="M0 0V5"/></pattern>'
)


def text(value: object) -> str:
    """Return what anybody wrote as text of a document: no markup of theirs, no letter that a document may not hold."""
    return _markup(escape(value).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff"), quote=True)


@cache
def page_file(name: str) -> str:
    """Return one of the files that go into every picture."""
    return (Path(__file__).parent / "page" / name).read_text("utf-8")


def style() -> str:
    """Return the style sheet of a picture: light, dark where that is preferred, light again on paper."""
    template = Template(page_file("chart.css"))
    light, dark = template.substitute(LIGHT), template.substitute(DARK)
    return f"{light}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n"


def definitions() -> str:
    """Return the shapes and patterns that the marks of a picture name."""
    shapes = "".join(f'<symbol id="s-{kind}" viewBox="-8 -8 16 16">{shape}</symbol>' for kind, shape in SHAPES.items())
    return f"<defs>{_PATTERNS}{shapes}</defs>"


def shape(kind: str, x: float = 0, y: float = 0) -> str:
    """Return a mark around a point."""
    if kind in _SHOWN_IN_LEGEND:
        return f'<g transform="translate({_n(x)} {_n(y)})">{_SHOWN_IN_LEGEND[kind]}</g>'
    return f'<use href="#s-{kind}" x="{_n(x - 8)}" y="{_n(y - 8)}" width="16" height="16"/>'


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


class Legend(NamedTuple):
    """One entry of a legend: what is drawn, and what is said of it."""

    kind: str
    said: str


class Chart:
    """The lanes of a timeline with their axis, as elements; a page moves them when it is zoomed."""

    def __init__(self, view: TimelineView, zone: tzinfo) -> None:
        self.view, self.zone = view, zone
        self.words = Words(view, zone)
        self.noted = {lane.name for lane in view.lanes if lane.state == "blocked"}
        longest = max((len(escape(lane.name)) for lane in view.lanes), default=10)
        self.left = round(min(_LABEL[1], max(_LABEL[0], longest * _LETTER + 24)))
        self.seen: dict[str, None] = {}
        self.drawn: dict[tuple[str, str], float] = {}  #: where the last mark of a lane and a kind has its shape
        self.height = _HEAD
        self.body = "".join(self._lane(number, lane) for number, lane in enumerate(view.lanes))
        self.height += 2

    def x(self, at: datetime) -> float:
        """Return where a time lies."""
        view = self.view
        share = (at - view.since) / (view.until - view.since)
        return self.left + share * (WIDTH - RIGHT - self.left)

    def content(self) -> str:
        """Return everything that is drawn."""
        plot = f'x="{self.left}" y="0" width="{WIDTH - RIGHT - self.left}" height="{self.height}"'
        clip = f'<clipPath id="plot"><rect {plot}/></clipPath>'
        return f"{clip}{self.grounds}{self._behind()}{self._axis()}{self.body}{self._before()}"

    def attributes(self) -> str:
        """Return what a page must know to move what is drawn, as attributes."""
        view = self.view
        values = {
            "since": view.since.timestamp(),
            "until": view.until.timestamp(),
            "now": view.now.timestamp(),
            "left": self.left,
            "right": RIGHT,
            "head": _HEAD,
            "height": self.height,
            "zone": view.timezone,
        }
        return "".join(f' data-{name}="{text(value)}"' for name, value in values.items())

    def legend(self) -> list[Legend]:
        """Return what is in the picture, the worst first, and what lies behind it."""
        found = [Legend(kind, said) for kind, said in KINDS.items() if kind in self.seen]
        more = {
            "span": "many instants, one reason",
            "late": "time it waited to start",
            "wait": "time it waited for input",
            "pause": "paused",
            "away": "no supervisor",
            "clock": "clock set back",
        }
        return found + [Legend(kind, said) for kind, said in more.items() if kind in self.seen]

    # -- around ----------------------------------------------------------------------------------------------------------

    @property
    def grounds(self) -> str:
        """Return the stripes behind the lanes."""
        return (
            "".join(
                f'<rect class="zebra" x="0" y="{top}" width="{WIDTH}" height="{height}" data-full="1"/>'
                for top, height in self._stripes[::2]
            )
            + f'<path class="edge" d="M0 {_HEAD - 0.5}H{WIDTH}" data-line="1"/>'
        )

    @property
    def _stripes(self) -> list[tuple[int, int]]:
        tops, top = [], _HEAD
        for lane in self.view.lanes:
            height = _height(lane, self.left)
            tops.append((top, height))
            top += height
        return tops

    def _behind(self) -> str:
        view, parts = self.view, []
        if view.now < view.until:
            begins = max(view.now, view.since)
            parts.append(self._band("future", begins, view.until, ""))
        for gap in view.absences:
            self.seen["away"] = None
            said = self.words.absence(gap)
            ends = gap.ends or min(view.now, view.until)
            parts.append(self._band("away", max(gap.begins, view.since), ends, said))
        return f'<g clip-path="url(#plot)">{"".join(parts)}</g>'

    def _band(self, kind: str, begins: datetime, ends: datetime, said: str) -> str:
        left, right = self.x(begins), self.x(ends)
        title = f"<title>{text(said)}</title>" if said else ""
        inner = f'<rect class="{kind}" y="{_HEAD}" width="{_n(max(1, right - left))}" height="{self.height - _HEAD}"/>'
        return f'<g class="band" transform="translate({_n(left)} 0)"{_times(begins, ends)}{_spoken(said)}>{title}{inner}</g>'

    def _axis(self) -> str:
        view = self.view
        step = axis.step_of(view.until - view.since, round((WIDTH - RIGHT - self.left) / 72))
        parts, now = [], self.x(view.now)
        for tick in axis.ticks(view.since, view.until, self.zone, step=step):
            at = self.x(tick.at)
            parts.append(f'<path class="grid" d="M{_n(at)} {_HEAD - 6}V{self.height}"/>')
            if at < WIDTH - RIGHT - 20 and abs(now - at - 18) > 20:
                parts.append(f'<text class="dim" x="{_n(at + 3)}" y="{_HEAD - 9}">{text(tick.label)}</text>')
            if tick.day and step.days < 1 and at < WIDTH - RIGHT - 60:
                parts.append(f'<text class="day" x="{_n(at + 3)}" y="{_HEAD - 26}">{text(tick.day)}</text>')
        zone = f'<text class="dim" x="10" y="{_HEAD - 9}">{text(self.words.zone_name)}</text>'
        return f'{zone}<g class="axis">{"".join(parts)}</g>'

    def _before(self) -> str:
        view, parts = self.view, []
        for event in view.clock_events:
            self.seen["clock"] = None
            said = f"the clock was set back to {self.words.at(event.at)} from {self.words.at(event.floor)}"
            parts.append(
                f'<g class="m k-failed" role="img" transform="translate({_n(self.x(event.at))} 0)"{_times(event.at, event.at)}'
                f'{_spoken(said)}><title>{text(said)}</title><path class="clock" d="M0 {_HEAD}V{self.height}"/>'
                f"{shape('clock', 0, _HEAD)}</g>"
            )
        if view.since <= view.now < view.until:
            pill = f'<rect class="pill" x="-36" y="{_HEAD - 45}" width="72" height="17" rx="8"/>'
            label = f"now {view.now.astimezone(self.zone):%H:%M}"
            parts.append(
                f'<g class="band" transform="translate({_n(self.x(view.now))} 0)"{_times(view.now, view.now)}>'
                f'<path class="now" d="M0 {_HEAD - 28}V{self.height}"/>{pill}'
                f'<text class="pill-text" x="0" y="{_HEAD - 33}" text-anchor="middle">{label}</text></g>'
            )
        return "".join(parts)

    # -- lanes -----------------------------------------------------------------------------------------------------------

    def _lane(self, number: int, lane: LaneView) -> str:
        top, height = self.height, _height(lane, self.left)
        self.height += height
        parts = [self._label(lane, top)]
        marks: list[tuple[int, str]] = []
        if len({each.schedule_id for each in lane.pauses}) == 1 and lane.kind != "unrun":
            marks += [(99, self._pause(lane, pause, top, height)) for pause in lane.pauses]
        marks += [(60, self._expected(lane, each, top)) for each in lane.expected]
        marks += [(_order(kind_of(run), 40), self._run(lane, run, top)) for run in lane.runs]
        for mark in lane.marks:
            is_near = self._is_near(lane, mark)
            marks.append((_order(mark.status, 20) + (15 if is_near else 0), self._mark(lane, mark, top, is_near)))
        drawn = "".join(mark for _, mark in sorted(marks, key=lambda each: -each[0]))
        name = text(f"{lane.name}, {lane.kind}" + (f", {lane.state}" if lane.state else ""))
        return (
            f'<g class="lane" data-lane="{number}" role="group" aria-label="{name}">{"".join(parts)}'
            f'<g clip-path="url(#plot)">{drawn}</g></g>'
        )

    def _label(self, lane: LaneView, top: int) -> str:
        lines = _name_lines(lane.name, self.left)
        parts = [
            f'<text class="name" x="10" y="{top + 17 + 14 * number}">{text(line)}</text>' for number, line in enumerate(lines)
        ]
        below = lane.reading or ""
        kind = "dim"
        if lane.state not in (None, "active"):
            below, kind = f"{lane.state}" + (f", {below}" if below else ""), "alarm" if lane.state == "blocked" else "dim"
        if below:
            room = int((self.left - 16) / _SMALL)
            cut = below if len(below) <= room else f"{below[: room - 1].rstrip()}…"
            parts.append(f'<text class="{kind}" x="10" y="{top + 17 + 14 * len(lines)}">{text(cut)}</text>')
        return f"<g><title>{text(f'{lane.name}: {below}' if below else lane.name)}</title>{''.join(parts)}</g>"

    def _item(self, said: Said, begins: datetime, ends: datetime, y: float, inner: str, is_near: bool = False) -> str:
        """Return one bar or mark, with what is said of it."""
        spoken, near = said.text, " near" if is_near else ""
        self.seen[said.kind] = None
        at = f'transform="translate({_n(self.x(begins))} {_n(y)})"{_times(begins, ends)}'
        title = f"<title>{text(spoken)}</title>"
        return f'<g class="m k-{said.kind}{near}" role="img" {at}{_spoken(spoken)}>{title}{inner}</g>'

    def _run(self, lane: LaneView, run: DrawnRunView, top: int) -> str:
        said, view = self.words.run(lane, run), self.view
        begins, ends = run.admitted_at, max(run.ended_at or min(view.now, view.until), run.admitted_at)
        width = max(3.0, self.x(ends) - self.x(begins))
        y = top + _PAD + run.track * _TRACK + (_TRACK - _BAR) / 2 - 2
        inner = _rect("bar", width, 'rx="2" data-w="3"')
        if said.kind in ("failed", "exhausted"):
            inner += _rect("hatch", width, 'rx="2" data-w="3"')
        inner += self._waiting(run, begins, ends, has_start=lane.kind != "slot")
        if run.expected_end is not None and run.ended_at is None and run.expected_end > view.now:
            tail = max(1, self.x(run.expected_end) - self.x(ends))
            inner += f'<rect class="tail" x="{_n(width)}" width="{_n(tail)}" {_INNER}{_times(ends, run.expected_end)}/>'
        if lane.kind != "schedule" and run.schedule_id is not None:
            need = len(run.schedule_id) * 5.6 + 20
            hidden = "" if need < width else ' display="none"'
            inner += f'<text class="tape" x="5" y="10" data-need="{_n(need)}"{hidden}>{text(run.schedule_id)}</text>'
        if said.kind in SHAPES:
            at = width - 8 if width > 18 else width / 2
            inner += f'<g class="end" transform="translate({_n(at)} {_BAR / 2})">{shape(said.kind)}</g>'
        return self._item(said, begins, ends, y, inner)

    def _waiting(self, run: DrawnRunView, begins: datetime, ends: datetime, *, has_start: bool) -> str:
        """Return when a run waited: for input, and before it was admitted."""
        inner = ""
        for wait in run.waits:
            self.seen["wait"] = None
            left, right = self.x(wait.begins), self.x(wait.ends or ends)
            size = f'x="{_n(left - self.x(begins))}" width="{_n(max(2, right - left))}"'
            inner += f'<rect class="wait" {size} {_INNER}{_times(wait.begins, wait.ends or ends)}/>'
        back = 0.0 if run.instant is None else self.x(begins) - self.x(run.instant)
        if has_start and run.instant is not None and back > 0.2:
            if back > 3:
                self.seen["late"] = None
            inner += f'<path class="late" d="M{_n(-back)} {_BAR / 2}H0" data-from="{run.instant.timestamp()}"/>'
        return inner

    def _mark(self, lane: LaneView, mark: MarkView, top: int, is_near: bool) -> str:
        said = self.words.mark(lane, mark)
        y = top + _PAD + _TRACK / 2 - 2
        if mark.span is not None:
            self.seen["span"] = None
            width = max(4.0, self.x(mark.span.last) - self.x(mark.span.first))
            inner = f'<rect class="span" y="-6" width="{_n(width)}" height="12" data-w="4"/>'
            inner += f'<g class="mid" transform="translate({_n(width / 2)} 0)">{shape(mark.status)}</g>'
            return self._item(said, mark.span.first, mark.span.last, y, inner)
        if mark.held_since is not None and self.view.since <= self.view.now < self.view.until:
            self.seen["late"] = None
            back = self.x(mark.instant) - self.x(self.view.now)
            inner = (
                f'<path class="late held" stroke-dasharray="2 3" d="M{_n(back)} 0H-6" data-from="{mark.instant.timestamp()}"/>'
            )
            return self._item(said, self.view.now, self.view.now, y, inner + shape("pending"))
        inner = f'<rect class="tick" x="-1" y="-6" width="2" height="12"/><g class="sym">{shape(mark.status)}</g>'
        return self._item(said, mark.instant, mark.instant, y, inner, is_near)

    def _is_near(self, lane: LaneView, mark: MarkView) -> bool:
        """Tell whether a mark of the same kind is drawn so close before this one that they would cover each other."""
        if mark.span is not None or mark.held_since is not None:
            return False
        key, at = (lane.name, mark.status), self.x(mark.instant)
        if key in self.drawn and at - self.drawn[key] < NEAR:
            return True
        self.drawn[key] = at
        return False

    def _pause(self, lane: LaneView, pause: DrawnPauseView, top: int, height: int) -> str:
        said = self.words.pause(lane, pause)
        ends = pause.ends or self.view.until
        width = max(2.0, self.x(ends) - self.x(pause.begins))
        inner = f'<rect class="pause" y="2" width="{_n(width)}" height="{height - 4}" data-w="2"/>'
        return self._item(said, pause.begins, ends, top, inner)

    def _expected(self, lane: LaneView, each: ExpectedView, top: int) -> str:
        said = self.words.expected(lane, each)
        y = top + _PAD + each.track * _TRACK + (_TRACK - _BAR) / 2 - 2
        ends = min(each.ends or self.view.until, self.view.until)
        if kind_of_expected(each) == "unlikely":
            return self._item(said, each.begins, each.begins, y + _BAR / 2, shape("unlikely"))
        width = max(2.0, self.x(ends) - self.x(each.begins))
        thin = "" if width >= 6 else " thin"
        inner = f'<rect class="bar{thin}" width="{_n(width)}" height="{_BAR}" rx="1" data-w="2"/>'
        return self._item(said, each.begins, max(ends, each.begins), y, inner)


_INNER = f'y="1" height="{_BAR - 2}"'


def _rect(kind: str, width: float, more: str) -> str:
    return f'<rect class="{kind}" width="{_n(width)}" height="{_BAR}" {more}/>'


def _times(begins: datetime, ends: datetime) -> str:
    return f' data-b="{begins.timestamp():.3f}" data-e="{ends.timestamp():.3f}"'


def _spoken(said: str) -> str:
    return f' aria-label="{text(said)}"' if said else ""


def _order(kind: str, base: int) -> int:
    """Return the layer of a mark: the worst is drawn last, over the others."""
    kinds: Sequence[str] = list(KINDS)
    return base + kinds.index(kind) if kind in kinds else base


def _name_lines(name: str, left: int) -> list[str]:
    """Return a name on as many lines as it takes: it is never cut."""
    shown, room = escape(name), max(8, int((left - 16) / _LETTER))
    return [shown[at : at + room] for at in range(0, len(shown), room)] or [""]


def _height(lane: LaneView, left: int) -> int:
    lines = len(_name_lines(lane.name, left)) + (1 if lane.reading or lane.state not in (None, "active") else 0)
    return max(lane.tracks * _TRACK + 2 * _PAD, lines * 14 + 14)


# The whole file -----------------------------------------------------------------------------------------------------------


def svg_of(view: TimelineView, zone: tzinfo) -> str:
    """Given a timeline, return it as a whole SVG file, with its title, its legend and its notes."""
    chart, words = Chart(view, zone), Words(view, zone)
    content = chart.content()
    title = f"{words.window()}, {words.zone_name}"
    top = 44
    below, height = _legend(chart, top + chart.height + 24)
    notes = [f"{name} {said}" for name, said in words.lane_notes()] + words.notes()
    parts = [f'<text class="dim" x="10" y="{_n(height + 16 * number)}">{text(note)}</text>' for number, note in
             enumerate(_folded([words.summary(), *notes]))]  # fmt: skip
    height += 16 * len(parts) + 4
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="{NAMESPACE}" class="wf" viewBox="0 0 {WIDTH} {_n(height)}" width="{WIDTH}" height="{_n(height)}"'
        f' role="group" aria-labelledby="t d"><title id="t">Timeline, {text(title)}</title>'
        f'<desc id="d">{text(words.summary())}</desc><style>{style()}</style>{definitions()}'
        f'<rect class="sheet" width="{WIDTH}" height="{_n(height)}"/><text class="title" x="10" y="26">{text(title)}</text>'
        f'<g transform="translate(0 {top})">{content}</g>{below}<g>{"".join(parts)}</g></svg>\n'
    )


def _folded(notes: Sequence[str], room: int = 180) -> Iterator[str]:
    import textwrap

    for note in notes[:24]:
        yield from textwrap.wrap(escape(note), room, break_on_hyphens=False)
    if len(notes) > 24:
        yield f"and {len(notes) - 24} more"


def _legend(chart: Chart, top: int) -> tuple[str, int]:
    parts, x, y = [], 20.0, top
    for kind, said in chart.legend():
        width = 34 + len(said) * 7.1
        if x + width > WIDTH - 10:
            x, y = 20.0, y + 22
        parts.append(f'<g class="k-{kind}">{shape(kind, x, y)}</g><text x="{_n(x + 14)}" y="{y + 4}">{text(said)}</text>')
        x += width
    return f'<g aria-hidden="true">{"".join(parts)}</g>', y + 32
