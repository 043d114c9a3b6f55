"""What a live board shows, laid out: facts in, lines out. It draws nothing, reads nothing and knows no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from wfctl.cli import values
from wfctl.cli.style import PLAIN, STATUS_STYLE, Paint
from wfctl.cli.text import cells, count_of, escape, pad
from wfctl.core import reasons

if TYPE_CHECKING:
    from wfctl.operations.glance import Glance, Going, Told
    from wfctl.operations.views import StatusView

GAP = 2  #: blanks between columns
NARROWEST = 8  #: cells to which a column that gives way may shrink
_LEAST = 2  #: rows that a section keeps, where it has them, before another one is dropped
_BAR = 20  #: cells of the bar of slots, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Everything that a board shows."""

    now: datetime
    store: str
    supervisor: StatusView | None
    absence: str | None  #: why there is nothing of the supervisor
    glance: Glance
    lately: Sequence[Told]  #: the newest first
    every: str  #: how often it looks
    is_paused: bool = False


class _Column(NamedTuple):
    """A column of a section. The larger `rank`, the sooner it is left out; 0: never. What `gives` shrinks before that."""

    rank: int = 0
    gives: bool = False


class _Cell(NamedTuple):
    """A text, escaped already, and its style."""

    text: str
    style: str | None = None


@dataclass(slots=True)
class _Section:
    """A part of the board: a title and rows below it."""

    title: str
    columns: tuple[_Column, ...]
    rows: list[tuple[_Cell, ...]] = field(default_factory=list)
    nothing: str = ""  #: what is said where there are no rows
    total: int | None = None  #: how many there are, where not all of them are rows

    @property
    def wants(self) -> int:
        return len(self.rows) or bool(self.nothing)

    @property
    def least(self) -> int:
        return min(self.wants, _LEAST)


def layout(board: Board, width: int, height: int, paint: Paint) -> list[str]:
    """Return the lines of a board for a screen of that size: at most `height`, none wider than `width` cells.

    Where not everything fits rows are left out, which the section's title says; then sections, what comes next first, then what
    happened lately, what runs, and what waits for input. What is wrong stays longest.
    """
    head = _head(board, width, paint)[: max(1, height)]
    foot = [_line([_foot(board, paint)], width, paint, "dim")] if height > len(head) + 2 else []
    room = height - len(head) - len(foot)
    by_rank = [
        each for each in (_wrong(board), _asking(board), _running(board), _lately(board, paint), _coming(board)) if each.wants
    ]
    while by_rank and sum(1 + each.least for each in by_rank) > room:
        by_rank.pop()
    shares = _shares(by_rank, room)
    spare = room - sum(1 + share for share in shares)
    is_airy = spare >= len(by_rank)
    on_screen = sorted(zip(by_rank, shares, strict=True), key=lambda each: _ORDER.index(each[0].title))
    body: list[str] = []
    for section, share in on_screen:
        body += [""] if is_airy else []
        body += _drawn(section, share, width, paint)
    body += [""] * (room - len(body)) if foot else []
    return head + body + foot


def _shares(sections: Sequence[_Section], room: int) -> list[int]:
    """Return how many rows each section gets: first its least, then one more in turn while there is room."""
    shares = [section.least for section in sections]
    left = room - sum(1 + share for share in shares)
    while left > 0 and any(share < section.wants for section, share in zip(sections, shares, strict=True)):
        for index, section in enumerate(sections):
            if left > 0 and shares[index] < section.wants:
                shares[index] += 1
                left -= 1
    return shares


# The lines above and below ------------------------------------------------------------------------------------------------


def _head(board: Board, width: int, paint: Paint) -> list[str]:
    view, found = board.supervisor, board.glance
    if view is None:
        first = [_Cell("wfctl", "bold"), _Cell(escape(board.absence or "no supervisor"), "red")]
    else:
        up = brief(values.elapsed(view.started_at, None, board.now) or 0.0)
        first = [
            _Cell("wfctl", "bold"),
            _Cell(_glyphed(view.state, paint), STATUS_STYLE.get(view.state)),
            _Cell(f"pid {view.pid} on {escape(view.host)}, up {up}"),
        ]
    total = sum(found.counts.values())
    counts = ", ".join(f"{number} {word}" for word, number in found.counts.items() if number)
    second = [
        _Cell(_slots(found.slots_used, None if view is None else view.slots_total, paint)),
        _Cell(count_of(total, "schedule") + (f": {counts}" if counts else "")),
        _Cell(escape(board.store), "dim"),
    ]
    return [_line(first, width, paint), _line(second, width, paint)]


def _slots(used: int, total: int | None, paint: Paint) -> str:
    if total is None:
        return f"slots {used} used"
    full, empty = ("█", "░") if paint.unicode else ("#", ".")
    size = min(total, _BAR)
    filled = min(size, -(-used * size // total))
    bar = full * filled + empty * (size - filled)
    return f"slots {bar if paint.unicode else f'[{bar}]'} {used}/{total}"


def _foot(board: Board, paint: Paint) -> _Cell:
    parts = [f"{board.now:%H:%M}Z", "the board is paused, p goes on" if board.is_paused else f"every {board.every}, p pauses"]
    return _Cell(f" {paint.dot} ".join([*parts, "q quits"]))


def _line(parts: Sequence[_Cell], width: int, paint: Paint, style: str | None = None) -> str:
    """Return the parts in one line; those that do not fit are left out from the right, and the first is cut."""
    kept = list(parts)
    while len(kept) > 1 and sum(cells(part.text) for part in kept) + GAP * (len(kept) - 1) > width:
        kept.pop()
    if len(kept) == 1:
        kept = [_Cell(cut(kept[0].text, width, paint), kept[0].style)]
    return (" " * GAP).join(paint(part.text, part.style or style) for part in kept)


# The sections -------------------------------------------------------------------------------------------------------------

_WRONG, _ASKING, _RUNNING, _COMING, _LATELY = "NEEDS ATTENTION", "WAITING FOR INPUT", "RUNNING", "NEXT (UTC)", "LATELY (UTC)"
_ORDER = (_WRONG, _ASKING, _RUNNING, _COMING, _LATELY)


def _wrong(board: Board) -> _Section:
    rows = [
        (_Cell("blocked", "red"), _Cell(escape(why if name in why else f"{name}: {why}"))) for name, why in board.glance.blocked
    ]
    for name, until in board.glance.held_up:
        said = f"{escape(name)}: waits for the clock until {values.instant(until)}"
        rows.append((_Cell("clock", "yellow"), _Cell(said)))
    for problem in board.supervisor.problems if board.supervisor else ():
        said = escape(problem.get("message") or problem.get("code"))
        rows.append((_Cell("note", "yellow"), _Cell(said)))
    return _Section(_WRONG, (_Column(), _Column(gives=True)), list(rows))


def _asking(board: Board) -> _Section:
    rows = [
        (
            _Cell(each.run_id),
            _Cell(_who(each)),
            _Cell(f"for {_age(each.since, board.now)}"),
            _Cell(escape(each.message or ""), "yellow"),
        )
        for each in board.glance.asking
    ]
    return _Section(_ASKING, (_Column(), _Column(gives=True), _Column(rank=1), _Column(rank=2, gives=True)), list(rows))


def _running(board: Board) -> _Section:
    found = board.glance
    rows = [
        (
            _Cell(each.run_id),
            _Cell(_who(each)),
            _Cell(f"since {_clock(each.since, board.now)}"),
            _Cell(f"for {_age(each.since, board.now)}"),
            _Cell("overdue", "red") if each.is_overdue else _Cell(""),
        )
        for each in found.going
    ]
    columns = (_Column(), _Column(gives=True), _Column(rank=2), _Column(rank=1), _Column())
    total = len(rows) + found.unnamed if found.unnamed else None
    return _Section(_RUNNING, columns, list(rows), nothing="nothing runs", total=total)


def _coming(board: Board) -> _Section:
    rows = [
        (_Cell(_left(instant, board.now)), _Cell(_clock(instant, board.now)), _Cell(escape(name)))
        for name, instant in board.glance.coming
    ]
    columns = (_Column(), _Column(rank=1), _Column(gives=True))
    return _Section(_COMING, columns, list(rows), nothing="nothing to come")


def _lately(board: Board, paint: Paint) -> _Section:
    rows = [
        (
            _Cell(_clock(each.at, board.now)),
            _Cell(_glyphed(each.to, paint), STATUS_STYLE.get(each.to)),
            _Cell(escape(each.name)),
            _Cell(each.run_id or ""),
            _Cell(escape(reasons.phrase(each.reason))),
        )
        for each in board.lately
    ]
    columns = (_Column(rank=3), _Column(), _Column(gives=True), _Column(rank=1), _Column(rank=2, gives=True))
    return _Section(_LATELY, columns, list(rows), nothing="nothing yet")


def _who(run: Going) -> str:
    return escape(run.name) + (" (by hand)" if run.is_manual else "")


def _glyphed(word: str, paint: Paint) -> str:
    return Paint(colour=PLAIN.colour, unicode=paint.unicode).status(word)


# Drawing a section --------------------------------------------------------------------------------------------------------


def _drawn(section: _Section, share: int, width: int, paint: Paint) -> list[str]:
    rows, total = section.rows[:share], section.total or len(section.rows)
    title = section.title + (f"  {len(rows)} of {total}" if total > len(rows) else "")
    lines = [paint(cut(title, width, paint), "bold")]
    if not rows:
        return [*lines, *([paint(cut(section.nothing, width, paint), "dim")] * min(share, 1))]
    shown, widths = _fitted(section.columns, rows, width)
    for row in rows:
        parts = [
            paint(pad(cut(row[at].text, wide, paint), wide), row[at].style) for at, wide in zip(shown, widths, strict=True)
        ]
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _fitted(columns: Sequence[_Column], rows: Sequence[tuple[_Cell, ...]], width: int) -> tuple[list[int], list[int]]:
    """Return which columns are shown, and how wide each is: what gives shrinks first, then columns are left out by rank."""
    natural = [max(cells(row[at].text) for row in rows) for at in range(len(columns))]
    shown = [at for at, wide in enumerate(natural) if wide]
    while True:
        widths = [natural[at] for at in shown]
        over = sum(widths) + GAP * (len(shown) - 1) - width
        for place in sorted(range(len(shown)), key=lambda place: -columns[shown[place]].rank):  # what goes first gives first
            if over > 0 and columns[shown[place]].gives:
                given = min(over, max(0, widths[place] - NARROWEST))
                widths[place] -= given
                over -= given
        droppable = [at for at in shown if columns[at].rank]
        if over <= 0 or (not droppable and len(shown) == 1):
            return shown, [min(wide, width) for wide in widths]
        shown.remove(max(droppable, key=lambda at: columns[at].rank) if droppable else shown[-1])


def cut(text: str, width: int, paint: Paint) -> str:
    """Return a text that takes no more than `width` cells, with a mark where something of it is left out."""
    if cells(text) <= width:
        return text
    mark = "…" if paint.unicode else ".."
    if width <= cells(mark):
        return mark[: max(0, width)]
    text = text[: 4 * width]  # enough of it, whatever it is made of
    while cells(text) + cells(mark) > width:
        text = text[:-1]
    return text + mark


# Times --------------------------------------------------------------------------------------------------------------------


def brief(seconds: float) -> str:
    """Return a duration that changes no more often than it must: seconds below a minute, then minutes, then hours."""
    whole = max(0, int(seconds))
    for size, unit, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit}" + (f" {rest:02d}{small}" if rest else "")
    return f"{whole // 60}m" if whole >= 60 else f"{whole}s"


def _age(since: datetime, now: datetime) -> str:
    return brief((now - since).total_seconds())


def _left(instant: datetime, now: datetime) -> str:
    seconds = (instant - now).total_seconds()
    return f"in {brief(seconds)}" if seconds >= 1 else "now" if seconds > -1 else f"due {brief(-seconds)}"


def _clock(at: datetime, now: datetime) -> str:
    """Return the time of the day, with the date where that is another one than today's."""
    return f"{at:%H:%M:%S}Z" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}Z"
