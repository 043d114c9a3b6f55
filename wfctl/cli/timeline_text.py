"""A timeline drawn in letters: a line a lane, a cell a stretch of time, the worst of a cell on top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from wfctl.cli.style import Paint
from wfctl.cli.text import cells, escape, pad
from wfctl.cli.timeline_words import KINDS, Words, kind_of, kind_of_expected
from wfctl.core import axis

if TYPE_CHECKING:
    from wfctl.operations.timeline_views import DrawnRunView, LaneView, MarkView, TimelineView

NARROWEST = 48
_LABEL = 26  #: cells of the longest name that stands beside its lane; a longer one has a line of its own
_FEW = 6  #: notes of a kind
_RANK = {kind: number for number, kind in enumerate(KINDS)}
_WAIT, _END, _BEGIN, _BODY = 40, 41, 42, 43  #: behind every mark
_AHEAD, _LATE, _PAUSE, _AWAY, _NOW = 50, 51, 52, 53, 54


class Look(NamedTuple):
    """What stands for something: in ASCII, in UTF-8, and the colour that repeats it."""

    ascii: str
    unicode: str
    style: str


LOOKS: dict[str, Look] = {
    "completed": Look("=", "▮", "green"),
    "failed": Look("!", "✗", "red"),
    "exhausted": Look("E", "⊠", "red"),
    "preflight-rejected": Look("r", "⊟", "red"),
    "skipped-misfire": Look("m", "⊖", "yellow"),
    "skipped-overlap": Look("x", "⊘", "yellow"),
    "cancelled": Look("c", "⊗", "yellow"),
    "overdue": Look("O", "◆", "yellow"),
    "interrupted": Look("~", "≈", "yellow"),
    "pending": Look("?", "◌", "cyan"),
    "running": Look(">", "▶", "cyan"),
    "admitted": Look("a", "▷", "cyan"),
    "coalesced": Look("v", "↷", "dim"),
    "paused": Look("p", "‖", "yellow"),
    "expected": Look(".", "·", "cyan"),
    "unlikely": Look(",", "◦", "dim"),
    "begin": Look("[", "▐", ""),
    "body": Look("=", "█", ""),
    "end": Look("]", "▌", ""),
    "late": Look("_", "─", "dim"),
    "pause": Look("-", "╌", "yellow"),
    "away": Look(":", "░", "dim"),
    "now": Look("|", "│", "dim"),
    "clock": Look("C", "C", "red"),
}


@dataclass(slots=True)
class _Cell:
    rank: int = 99
    look: str = ""
    style: str = ""


class _Row:
    """One line of cells."""

    def __init__(self, width: int) -> None:
        self.cells = [_Cell() for _ in range(width)]

    def put(self, column: int, rank: int, look: str, style: str | None = None) -> None:
        """Put something into a cell, unless something worse is there."""
        if 0 <= column < len(self.cells) and rank < self.cells[column].rank:
            self.cells[column] = _Cell(rank, look, LOOKS[look].style if style is None else style)

    def fill(self, first: int, last: int, rank: int, look: str, style: str | None = None) -> None:
        """Put the same into cells, both ends included."""
        for column in range(max(0, first), min(last, len(self.cells) - 1) + 1):
            self.put(column, rank, look, style)

    def text(self, paint: Paint) -> str:
        """Return the line, each stretch of one colour painted at once."""
        parts: list[tuple[str, str]] = []
        for cell in self.cells:
            glyph = _glyph(cell.look, paint) if cell.look else " "
            if parts and parts[-1][1] == cell.style:
                parts[-1] = (parts[-1][0] + glyph, cell.style)
            else:
                parts.append((glyph, cell.style))
        while parts and not parts[-1][0].strip():
            parts.pop()
        return "".join(paint(text, style) for text, style in parts)


def _glyph(look: str, paint: Paint) -> str:
    return LOOKS[look].unicode if paint.unicode else LOOKS[look].ascii


class _Picture:
    """One timeline in letters."""

    def __init__(self, view: TimelineView, zone: tzinfo, paint: Paint, width: int) -> None:
        self.view, self.zone, self.paint = view, zone, paint
        self.words = Words(view, zone)
        self.zone_text = escape(f"{view.now.astimezone(zone):%Z}")
        names = [cells(escape(lane.name)) for lane in view.lanes]
        beside = [name for name in names if name <= max(8, min(_LABEL, width // 4))]
        self.label = max(*beside, cells(self.zone_text), 0)
        self.width = max(NARROWEST, width) - self.label - 2
        self.seen: set[str] = set()
        self.noted = {name for name, _ in self.words.lane_notes()}

    def column(self, at: datetime) -> int:
        """Return the cell that a time lies in; outside the window one beside the picture."""
        view = self.view
        return int((at - view.since) / (view.until - view.since) * self.width)

    # -- lines -----------------------------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """Return the whole picture."""
        lanes = [line for lane in self.view.lanes for line in self._lane(lane)]
        return [*self._axis(), *lanes, *self._below(), "", *self._legend(), *self._notes()]

    def _axis(self) -> list[str]:
        step = axis.step_of(self.view.until - self.view.since, max(2, self.width // 8))
        ticks = axis.ticks(self.view.since, self.view.until, self.zone, step=step)
        days, times, marks = ([" "] * (self.width + 16) for _ in range(3))
        for tick in ticks:
            column = self.column(tick.at)
            if column >= self.width:
                continue
            if tick.day and step < timedelta(days=1):
                _write(days, column, tick.day, self.width)
            if _write(times, column, tick.label, self.width):
                marks[column] = _glyph("now", self.paint)
        heads = [self.zone_text, "", ""]
        lines = [
            f"{pad(head, self.label)}  {''.join(cells)}".rstrip()
            for head, cells in zip(heads, (days, times, marks), strict=True)
        ]
        return (
            lines
            if any(letter != " " for letter in days)
            else [f"{pad(heads[0], self.label)}{lines[1][self.label :]}", lines[2]]
        )

    def _lane(self, lane: LaneView) -> list[str]:
        rows = [_Row(self.width) for _ in range(lane.tracks)]
        self._around(lane, rows)
        for run in lane.runs:
            self._run(rows[run.track], run, has_start=lane.kind != "slot")
        for mark in lane.marks:
            self._mark(rows[0], mark)
        for each in lane.expected:
            kind = kind_of_expected(each)
            self.seen.add(kind)
            first, last = self.column(each.begins), self.column(each.ends or self.view.until)
            if self.column(self.view.now) == first:
                first += 1
            rows[each.track].fill(first, max(first, last), _AHEAD, kind)
            rows[each.track].put(first, _RANK[kind], kind)
        for row in rows:
            for cell in row.cells:
                self.seen.add(cell.look)
        name = escape(lane.name)
        star = "*" if lane.name in self.noted else " "
        own = [] if cells(name) <= self.label else [f"{self.paint(name, 'bold')} {star}".rstrip()]
        label = f"{self.paint(pad('' if own else name, self.label), 'bold')}{' ' if own else star} "
        blank = " " * (self.label + 2)
        return own + [f"{label if number == 0 else blank}{row.text(self.paint)}".rstrip() for number, row in enumerate(rows)]

    def _around(self, lane: LaneView, rows: Sequence[_Row]) -> None:
        """Draw what lies behind everything: now, when nobody was there, pauses."""
        view = self.view
        for row in rows:
            if view.since <= view.now < view.until:
                row.put(self.column(view.now), _NOW, "now")
            for gap in view.absences:
                row.fill(self.column(gap.begins), self.column(gap.ends or view.now), _AWAY, "away")
        for pause in lane.pauses if len({each.schedule_id for each in lane.pauses}) == 1 and lane.kind != "unrun" else ():
            rows[0].fill(self.column(pause.begins), self.column(pause.ends or view.until), _PAUSE, "pause")

    def _run(self, row: _Row, run: DrawnRunView, *, has_start: bool) -> None:
        kind, style = kind_of(run), LOOKS[kind_of(run)].style
        end = run.ended_at or self.view.now
        first, last = self.column(run.admitted_at), self.column(max(end, run.admitted_at))
        if run.ended_at is not None and last > first and self._is_edge(end):
            last -= 1  # it ended where the next cell begins
        if end - run.admitted_at < (self.view.until - self.view.since) / self.width and kind == "completed":
            last = first  # shorter than a cell: one mark, though it touches two
        self.seen.add(kind)
        if has_start and run.instant is not None and self.column(run.instant) < first:
            row.fill(self.column(run.instant), first - 1, _LATE, "late")
        if last > first:
            row.put(first, _BEGIN, "begin", style)
            row.fill(first + 1, last, _BODY, "body", style)
            for wait in run.waits:
                row.fill(self.column(wait.begins), self.column(wait.ends or end), _WAIT, "interrupted")
        if kind != "completed":
            row.put(last, _RANK[kind], kind)
        elif last > first:
            row.put(last, _END, "end", style)
        else:
            row.put(last, _END, "completed")
        if run.expected_end is not None and run.ended_at is None:
            row.fill(last + 1, self.column(run.expected_end), _AHEAD, "expected")

    def _is_edge(self, at: datetime) -> bool:
        view = self.view
        place = (at - view.since) / (view.until - view.since) * self.width
        return place - int(place) < 1e-9

    def _mark(self, row: _Row, mark: MarkView) -> None:
        self.seen.add(mark.status)
        if mark.span is not None:
            row.fill(self.column(mark.span.first), self.column(mark.span.last), _RANK[mark.status], mark.status)
            return
        held = mark.held_since is not None and self.view.since <= self.view.now < self.view.until
        at = self.view.now if held else mark.instant
        if held:
            row.fill(self.column(mark.instant), self.column(self.view.now), _LATE, "late")
        row.put(self.column(at), -1 if held else _RANK[mark.status], mark.status)

    def _below(self) -> list[str]:
        """Return the line that names what is marked in the whole picture: now, and steps of the clock."""
        view, line = self.view, [" "] * self.width
        for event in view.clock_events:
            if 0 <= self.column(event.at) < self.width:
                line[self.column(event.at)] = "C"
                self.seen.add("clock")
        if view.since <= view.now < view.until:
            column = self.column(view.now)
            text = f"^ now {view.now.astimezone(self.zone):%H:%M %Z}"
            if column + len(text) > self.width:
                text = f"now {view.now.astimezone(self.zone):%H:%M %Z} ^"
                column -= len(text) - 1
            for offset, letter in enumerate(text):
                if 0 <= column + offset < self.width and (letter != " " or line[column + offset] == " "):
                    line[column + offset] = letter
        text = "".join(line).rstrip()
        return [" " * (self.label + 2) + text] if text else []

    # -- below the picture -----------------------------------------------------------------------------------------------

    def _legend(self) -> list[str]:
        """Return what the signs mean, of those that are in the picture."""
        paint = self.paint
        shown = []
        for kind, said in KINDS.items():
            if kind in self.seen:
                sign = _glyph(kind, paint)
                if kind == "completed":
                    sign = f"{_glyph('begin', paint)}{_glyph('body', paint)}{_glyph('end', paint)} or {sign}"
                shown.append((f"{sign} {said}", f"{paint(sign, LOOKS[kind].style)} {said}"))
        for look, said in (
            ("late", "waits to start"),
            ("pause", "paused"),
            ("away", "no supervisor"),
            ("clock", "clock set back"),
        ):
            if look in self.seen:
                shown.append((f"{_glyph(look, paint)} {said}", f"{paint(_glyph(look, paint), LOOKS[look].style)} {said}"))
        return _flowed(shown, self.label + 2 + self.width)

    def _notes(self) -> list[str]:
        lines = [self.words.summary()] if self.view.lanes else []
        notes = [f"* {name} {said}" for name, said in self.words.lane_notes()]
        if len(notes) > _FEW:
            notes = [*notes[: _FEW - 1], f"* and {len(notes) - _FEW + 1} more; -o json has all of it"]
        general = self.words.notes()
        gaps = [note for note in general if note.startswith("no supervisor from")]
        if len(gaps) > _FEW:
            general = [*gaps[-_FEW:], f"and {len(gaps) - _FEW} more times without", *(n for n in general if n not in gaps)]
        return [line for text in [*lines, *notes, *general] for line in _wrapped(escape(text), self.label + 2 + self.width)]


def _write(line: list[str], column: int, text: str, width: int) -> bool:
    """Write a label into a line where it fits, with a blank on either side."""
    if column + len(text) > width or any(letter != " " for letter in line[max(0, column - 1) : column + len(text) + 1]):
        return False
    line[column : column + len(text)] = list(text)
    return True


def _flowed(shown: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return pieces on as few lines as they fit on."""
    lines: list[str] = []
    length = 0
    for plain, painted in shown:
        if lines and length + 3 + cells(plain) <= width:
            lines[-1] += f"   {painted}"
            length += 3 + cells(plain)
        else:
            lines.append(painted)
            length = cells(plain)
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [text]


def lines_of(view: TimelineView, zone: tzinfo, paint: Paint, width: int) -> list[str]:
    """Given a timeline, return it drawn in letters, as wide as asked: a pipe is as wide as it is said to be."""
    if not view.lanes:
        words = Words(view, zone)
        none = "nothing happened in this time" if view.idle else "there are no schedules, and nothing ran"
        return [f"{none}: {words.window()} {words.zone_name}", *words.notes()]
    return _Picture(view, zone, paint, width).lines()
