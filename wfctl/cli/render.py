"""Answers: tables fitted to a terminal, plain columns that are never cut, JSON, CSV, names. The only import of rich.

Cells are escaped here, once; what a column's functions return may hold anything that users wrote.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import streams, values
from wfctl.cli.base import Common
from wfctl.cli.streams import is_utf8
from wfctl.cli.text import UNSAFE, cells, escape, pad
from wfctl.errors import InvalidArgument
from wfctl.value import Value

if TYPE_CHECKING:
    from wfctl.cli.style import Details, Paint

GAP = 2  #: blanks between columns
NARROWEST = 14  #: cells to which a column of free text may shrink before it is hidden
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Column:
    """A column of a list: its key (for --columns and csv), its title, and its two readings of an item.

    `raw` is for programs. For people there is what `show` makes of the item, or `write` of a raw value that is not None; else
    the raw value. A column to `keep` is never hidden: an id. `free` text may shrink on a terminal. A `status` has a style and a
    glyph. An `extra` column is there only when asked for by name.
    """

    __slots__ = ("extra", "free", "keep", "key", "raw", "right", "show", "status", "title", "write")

    def __init__(
        self,
        *,
        key: str,
        title: str,
        raw: Callable[[Any], Any],
        show: Callable[[Any], str] | None = None,
        write: Callable[[Any], str] | None = None,
        right: bool = False,
        keep: bool = False,
        free: bool = False,
        status: bool = False,
        extra: bool = False,
    ) -> None:
        self.key, self.title, self.raw, self.show, self.write = key, title, raw, show, write
        self.right, self.keep, self.free, self.status, self.extra = right, keep, free, status, extra

    def text(self, item: Any) -> str:
        """Return the cell for people, escaped; empty for nothing."""
        value = self.raw(item) if self.show is None else self.show(item)
        return "" if value is None else escape(value if self.write is None else self.write(value))

    def texts(self, held: Iterable[Any]) -> list[str]:
        """Given what `show` or `raw` gives of several items, return their cells: what `text` gives for each."""
        found = ["" if value is None else str(value) for value in held] if self.write is None else self._written(held)
        return found if "".join(found).isprintable() else [escape(text) for text in found]

    def _written(self, held: Iterable[Any]) -> list[str]:
        """Many rows hold what others hold: what is equal is written once."""
        assert self.write is not None
        known: dict[Any, str] = {None: ""}
        found: list[str] = []
        for value in held:
            text = known.get(value)
            if text is None:
                text = known[value] = self.write(value)
            found.append(text)
        return found


def instants(key: str, title: str, raw: Callable[[Any], Any], *, keep: bool = False, extra: bool = False) -> Column:
    """Return a column of instants."""
    return Column(key=key, title=title, raw=raw, write=values.instant, keep=keep, extra=extra)


def durations(key: str, title: str, raw: Callable[[Any], Any]) -> Column:
    """Return a column of durations: seconds for programs, two units for people."""
    return Column(key=key, title=title, raw=raw, write=values.duration, right=True)


# JSON -------------------------------------------------------------------------------------------------------------------


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that no terminal interprets; in a stream without UTF-8, as ASCII."""
    import json

    text = json.dumps(value, ensure_ascii=not is_utf8(sys.stdout), indent=indent)
    if text.isprintable():
        return text
    return re.sub(UNSAFE, lambda match: match.group() if match.group() == "\n" else f"\\u{ord(match.group()):04x}", text)


# Lists ------------------------------------------------------------------------------------------------------------------


def page(
    common: Common,
    columns: Sequence[Column],
    items: Iterable[Any],
    *,
    schema: str,
    name: Callable[[Any], str],
    next_cursor: str | None = None,
) -> None:
    """Write a list to stdout in the format asked for. Only `jsonl`, `csv` and `name` are written while items still come."""
    match common.format:
        case "json":
            document = {"schema": schema, "items": [_plain(item) for item in items], "next_cursor": next_cursor}
            streams.answer(json_text(document, indent=2))
        case "jsonl":
            for item in items:
                streams.answer(json_text(_plain(item)))
        case "name":
            for item in items:
                streams.answer(escape(name(item)))
        case "csv":
            _write_csv(common, chosen(common, columns), items)
        case "table":
            _write_table(common, chosen(common, columns), list(items))
        case _:
            shown = chosen(common, columns)
            write_plain(common, shown, list(map(cells_of(shown), items)))


def item(
    common: Common,
    view: Any,
    *,
    details: Details,
    name: str,
    columns: Sequence[Column] = (),
) -> None:
    """Write one thing to stdout: for people what `details` returns, for programs its JSON, its row, or its name."""
    match common.format:
        case "json":
            streams.answer(json_text(_document(view), indent=2))
        case "jsonl":
            streams.answer(json_text(_document(view)))
        case "name":
            streams.answer(escape(name))
        case "csv":
            _write_csv(common, chosen(common, columns or _columns_of(view)), [view])
        case _:
            from wfctl.cli.style import paint_for

            streams.answer(details(paint_for(common)))


def _plain(view: Any) -> Any:
    """An item of a list: the view's JSON without the schema, which the list's stands for."""
    if isinstance(view, Mapping):
        return dict(view)
    return {key: value for key, value in view.to_json().items() if key != "schema"}


def _document(view: Any) -> Any:
    return dict(view) if isinstance(view, Mapping) else view.to_json()


def _columns_of(view: Any) -> list[Column]:
    def of(key: str) -> Column:
        return Column(key=key, title=key.upper(), raw=lambda it: _document(it)[key])

    return [of(key) for key in _document(view) if key != "schema"]


def chosen(common: Common, columns: Sequence[Column]) -> list[Column]:
    """Return the columns that --columns names, else those that need not be asked for. Raise InvalidArgument."""
    if common.columns is None:
        return [column for column in columns if not column.extra]
    known = {column.key: column for column in columns}
    names = [name.strip().lower().replace("-", "_") for name in common.columns.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise _no_column(name, list(known))
    return [known[name] for name in names]


def _no_column(name: str, known: list[str]) -> InvalidArgument:
    from wfctl.core.near import did_you_mean, near

    meant = near(name, known)
    message = f"there is no column {name!r}{did_you_mean(meant)}".removesuffix("?")
    data = {"argument": "columns", "value": name, "near": meant}
    return InvalidArgument(f"{message}; the columns are {', '.join(known)}", data)


# Plain columns ----------------------------------------------------------------------------------------------------------


def cells_of(columns: Sequence[Column]) -> Callable[[Any], list[Any]]:
    """Return what reads out of an item what plain columns hold of it."""
    readers = [column.show or column.raw for column in columns]
    return lambda it: [read(it) for read in readers]


def write_plain(common: Common, columns: Sequence[Column], held: Sequence[list[Any]]) -> None:
    """Write a list in plain columns. `held`: what `cells_of` reads out of each item; the items need not be there any more."""
    by_column = zip(*held, strict=True) if held else [()] * len(columns)
    shown = [[text or "-" for text in column.texts(each)] for column, each in zip(columns, by_column, strict=True)]
    if not common.no_header:
        shown = [[column.title, *texts] for column, texts in zip(columns, shown, strict=True)]
    lines = _lines(shown, [column.right for column in columns])
    streams.raw("\n".join([*lines, ""]))


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """Given rows of cells, return them as lines of aligned columns, without trailing blanks."""
    if not rows:
        return []
    to_right = [*right, *(False for _ in range(len(rows[0]) - len(right)))]
    return _lines([list(column) for column in zip(*rows, strict=True)], to_right)


def _lines(columns: Sequence[list[str]], right: Sequence[bool]) -> list[str]:
    """Given the cells of each column, return the lines."""
    padded = [_padded(column, to_right) for column, to_right in zip(columns, right, strict=True)]
    return [(" " * GAP).join(row).rstrip() for row in zip(*padded, strict=True)]


def _padded(column: list[str], to_right: bool) -> list[str]:
    """Return the cells of a column, all as wide as the widest."""
    if "".join(column).isascii():  # the usual case, and the quick one
        width = max(map(len, column), default=0)
        return [cell.rjust(width) for cell in column] if to_right else [cell.ljust(width) for cell in column]
    width = max(map(cells, column))
    return [pad(cell, width, right=to_right) for cell in column]


def pairs(rows: Sequence[tuple[str, str]], paint: Paint, *, indent: int = 0) -> str:
    """Given labels and values, already escaped, return one line for each that has a value, the values aligned."""
    kept = [(label, value) for label, value in rows if value]
    width = max((len(label) for label, _ in kept), default=0)
    return "\n".join(f"{' ' * indent}{paint(label.ljust(width), 'bold')}{' ' * GAP}{value}" for label, value in kept)


class Growing:
    """A list that is written while it grows, each row as it comes: aligned by what was seen so far, and never redrawn."""

    def __init__(
        self, common: Common, columns: Sequence[Column], *, schema: str, name: Callable[[Any], str], least: Mapping[str, int]
    ) -> None:
        """`least`: how wide columns are from the beginning, by their keys. Raise UsageError for a format that cannot grow."""
        if common.output in ("json", "csv", "name"):
            raise click.UsageError(f"-o {common.output} cannot be written while rows still come; use -o jsonl with --watch")
        self._common = common
        self._columns = chosen(common, columns)
        self._schema, self._name = schema, name
        titles = [0 if common.no_header else cells(column.title) for column in self._columns]
        self._widths = [max(title, least.get(column.key, 0)) for column, title in zip(self._columns, titles, strict=True)]
        self._has_header = False

    def write(self, items: Sequence[Any]) -> None:
        """Write some rows, at the first time below the header, and hand them over at once."""
        if self._common.is_human:
            self._write_rows([[column.text(it) or "-" for column in self._columns] for it in items], items)
        else:
            page(self._common, self._columns, items, schema=self._schema, name=self._name)
        streams.flush()

    def _write_rows(self, rows: Sequence[Sequence[str]], items: Sequence[Any]) -> None:
        self._widths = [max(width, *(cells(row[index]) for row in rows), 0) for index, width in enumerate(self._widths)]
        fitted = fit(self._columns, self._widths, terminal_width())
        if not (self._has_header or self._common.no_header):
            streams.answer(self._line([column.title for column in self._columns], fitted, None))
        self._has_header = True
        for row, it in zip(rows, items, strict=True):
            streams.answer(self._line(row, fitted, it))

    def _line(self, row: Sequence[str], fitted: Fit, it: Any) -> str:
        from wfctl.cli.style import STATUS_STYLE, paint_for

        paint = paint_for(self._common)
        parts = []
        for index, width in zip(fitted.shown, fitted.widths, strict=True):
            column = self._columns[index]
            text = pad(cut(row[index], width, paint), width, right=column.right)
            style = None if it is None or not column.status else STATUS_STYLE.get(str(column.raw(it)))
            parts.append(paint(text, style))
        return (" " * GAP).join(parts).rstrip()


def cut(text: str, width: int, paint: Paint) -> str:
    """Return a text that takes no more than `width` cells, with a mark where something of it is left out."""
    if cells(text) <= width:
        return text
    mark = "…" if paint.unicode else ".."
    while text and cells(text) + cells(mark) > width:
        text = text[:-1]
    return text + mark


# CSV --------------------------------------------------------------------------------------------------------------------


def _write_csv(common: Common, columns: Sequence[Column], items: Iterable[Any]) -> None:
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if not common.no_header:
        writer.writerow([column.key for column in columns])
    for it in items:
        writer.writerow([csv_cell(column.raw(it)) for column in columns])
        streams.raw(buffer.getvalue())
        buffer.seek(0)
        buffer.truncate()
    streams.raw(buffer.getvalue())


def csv_cell(value: Any) -> str:
    """Return a cell that neither a terminal nor a spreadsheet interprets: text that begins a formula gets a quote before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        return csv_cell(_csv_text(value))
    text = escape(value)
    return f"'{text}" if value.startswith(_FORMULA) else text


def _csv_text(value: Any) -> str:
    from datetime import datetime

    from wfctl.operations.shown import plain

    return values.instant(value) if isinstance(value, datetime) else values.json_cell(plain(value))


# Tables on a terminal ---------------------------------------------------------------------------------------------------


def terminal_width() -> int | None:
    """Return how many cells stdout is wide; None where it is no terminal, so that nothing is cut."""
    asked = os.environ.get("COLUMNS", "")
    if not sys.stdout.isatty():
        return None
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


class Fit(Value, kw_only=False):
    """Which columns of a table are shown, and how wide each is."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]


def fit(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> Fit:
    """Given columns and how wide their cells are, return what fits into `width`.

    Free text shrinks first; then columns are hidden from the right, those of ids never; an id or an instant is never cut.
    """
    shown = list(range(len(columns)))
    while True:
        widths = {index: natural[index] for index in shown}
        spare = None if width is None else width - sum(widths.values()) - GAP * (len(shown) - 1)
        if spare is None or spare >= 0:
            break
        for index in reversed(shown):
            if columns[index].free and spare < 0:
                cut = min(-spare, max(0, widths[index] - max(NARROWEST, len(columns[index].title))))
                widths[index] -= cut
                spare += cut
        hidden = next((index for index in reversed(shown) if not columns[index].keep), None)
        if spare >= 0 or hidden is None:
            break
        shown.remove(hidden)
    return Fit(tuple(shown), tuple(widths[index] for index in shown))


def _write_table(common: Common, columns: Sequence[Column], items: Sequence[Any]) -> None:
    from wfctl.cli.style import paint_for

    paint = paint_for(common)
    if not items:
        if not common.quiet:
            streams.talk("nothing to list")
        return
    rows = [[column.text(it) for column in columns] for it in items]
    if paint.unicode:
        rows = [[_glyphed(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows]
    natural = [
        max(cells(column.title), *(cells(row[index]) or 1 for row in rows)) if not common.no_header
        else max(cells(row[index]) or 1 for row in rows)
        for index, column in enumerate(columns)
    ]  # fmt: skip
    fitted = fit(columns, natural, terminal_width())
    _draw(common, columns, items, rows, fitted, paint)
    hidden = [column.key for index, column in enumerate(columns) if index not in fitted.shown]
    if hidden and not common.quiet:
        word, them = ("column", "it") if len(hidden) == 1 else ("columns", "them")
        streams.talk(f"({len(hidden)} {word} hidden: {', '.join(hidden)}; see {them} with --columns or -o plain)")


def _glyphed(column: Column, cell: str) -> str:
    from wfctl.cli.style import PLAIN, Paint

    return Paint(colour=PLAIN.colour, unicode=True).status(cell) if column.status and cell else cell


def _draw(
    common: Common, columns: Sequence[Column], items: Sequence[Any], rows: Sequence[Sequence[str]], fitted: Fit, paint: Paint
) -> None:
    from io import StringIO

    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rule = "─" if paint.unicode else "-"
    lines = ["    ", "    ", f" {rule}{rule} ", "    ", "    ", "    ", "    ", "    "]
    table = Table(
        box=Box("\n".join(lines) + "\n", ascii=not paint.unicode),
        show_edge=False,
        show_header=not common.no_header,
        header_style="bold",
        padding=(0, GAP - 1, 0, 0),
        pad_edge=False,
    )
    for index, width in zip(fitted.shown, fitted.widths, strict=True):
        column = columns[index]
        table.add_column(
            Text(column.title),
            width=width,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="crop",
        )
    for it, row in zip(items, rows, strict=True):
        table.add_row(*(_cell(columns[index], it, row[index], width, paint)
                        for index, width in zip(fitted.shown, fitted.widths, strict=True)))  # fmt: skip
    total = sum(fitted.widths) + GAP * len(fitted.widths)
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=max(total, 1),
        force_terminal=paint.colour,
        color_system="standard" if paint.colour else None,
        no_color=not paint.colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(table)
    text = buffer.getvalue() if paint.colour else "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))
    streams.raw(text)


def _cell(column: Column, it: Any, text: str, width: int, paint: Paint) -> Any:
    from rich.text import Text

    from wfctl.cli.style import STATUS_STYLE

    shown = Text(text or paint.dash, style=STATUS_STYLE.get(str(column.raw(it)), "") if column.status else "", end="")
    if shown.cell_len > width:
        shown.truncate(max(1, width - (0 if paint.unicode else 2)), overflow="ellipsis" if paint.unicode else "crop")
        if not paint.unicode:
            shown.append("..")
    return shown
