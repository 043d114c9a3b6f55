"""Answers: tables fitted to a terminal, plain columns that are never cut, JSON, CSV, names. The only import of rich.

Cells are escaped here, once; what a column's functions return may hold anything that users wrote.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from wfctl.cli import streams, values
from wfctl.cli.base import Common
from wfctl.cli.streams import is_utf8
from wfctl.cli.style import STATUS_STYLE, Details, Paint, paint_for
from wfctl.cli.text import UNSAFE, cells, escape, pad

GAP = 2  #: blanks between columns
NARROWEST = 14  #: cells to which a column of free text may shrink before it is hidden
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Column:
    """A column of a list: its key (for --columns and csv), its title, and its two readings of an item.

    `raw` is for programs, `show` for people (None: the raw value). A column to `keep` is never hidden: an id. `free` text may
    shrink on a terminal. A `status` has a style and a glyph. An `extra` column is there only when asked for by name.
    """

    __slots__ = ("extra", "free", "keep", "key", "raw", "right", "show", "status", "title")

    def __init__(
        self,
        *,
        key: str,
        title: str,
        raw: Callable[[Any], Any],
        show: Callable[[Any], str] | None = None,
        right: bool = False,
        keep: bool = False,
        free: bool = False,
        status: bool = False,
        extra: bool = False,
    ) -> None:
        self.key, self.title, self.raw, self.show = key, title, raw, show
        self.right, self.keep, self.free, self.status, self.extra = right, keep, free, status, extra

    def text(self, item: Any) -> str:
        """Return the cell for people, escaped; empty for nothing."""
        value = self.raw(item) if self.show is None else self.show(item)
        return "" if value is None else escape(value)


def instants(key: str, title: str, raw: Callable[[Any], Any], *, keep: bool = False, extra: bool = False) -> Column:
    """Return a column of instants."""
    return Column(key=key, title=title, raw=raw, show=lambda it: values.instant(raw(it)), keep=keep, extra=extra)


def durations(key: str, title: str, raw: Callable[[Any], Any]) -> Column:
    """Return a column of durations: seconds for programs, two units for people."""
    return Column(key=key, title=title, raw=raw, show=lambda it: values.duration(raw(it)), right=True)


# JSON -------------------------------------------------------------------------------------------------------------------


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that no terminal interprets; in a stream without UTF-8, as ASCII."""
    import json

    text = json.dumps(value, ensure_ascii=not is_utf8(sys.stdout), indent=indent)
    return UNSAFE.sub(lambda match: match.group() if match.group() == "\n" else f"\\u{ord(match.group()):04x}", text)


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
            _write_csv(common, _chosen(common, columns), items)
        case "table":
            _write_table(common, _chosen(common, columns), list(items))
        case _:
            _write_plain(common, _chosen(common, columns), list(items))


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
            _write_csv(common, _chosen(common, columns or _columns_of(view)), [view])
        case _:
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


def _chosen(common: Common, columns: Sequence[Column]) -> list[Column]:
    if common.columns is None:
        return [column for column in columns if not column.extra]
    known = {column.key: column for column in columns}
    names = [name.strip().lower().replace("-", "_") for name in common.columns.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no column {name!r}; the columns are {', '.join(known)}")
    return [known[name] for name in names]


# Plain columns ----------------------------------------------------------------------------------------------------------


def _write_plain(common: Common, columns: Sequence[Column], items: Sequence[Any]) -> None:
    rows = [[column.text(it) or "-" for column in columns] for it in items]
    titles = [column.title for column in columns]
    lines = rows if common.no_header else [titles, *rows]
    for line in aligned(lines, [column.right for column in columns]):
        streams.answer(line)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """Given rows of cells, return them as lines of aligned columns, without trailing blanks."""
    if not rows:
        return []
    to_right = [*right, *(False for _ in range(len(rows[0]) - len(right)))]
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        (" " * GAP).join(pad(cell, width, right=at) for cell, width, at in zip(row, widths, to_right, strict=True)).rstrip()
        for row in rows
    ]


def pairs(rows: Sequence[tuple[str, str]], paint: Paint, *, indent: int = 0) -> str:
    """Given labels and values, already escaped, return one line for each that has a value, the values aligned."""
    kept = [(label, value) for label, value in rows if value]
    width = max((len(label) for label, _ in kept), default=0)
    return "\n".join(f"{' ' * indent}{paint(label.ljust(width), 'bold')}{' ' * GAP}{value}" for label, value in kept)


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

    from wfctl.operations.views import plain

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


class Fit(NamedTuple):
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
        word = "column" if len(hidden) == 1 else "columns"
        streams.talk(f"({len(hidden)} {word} hidden: {', '.join(hidden)}; see them with --columns or -o plain)")


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

    shown = Text(text or paint.dash, style=STATUS_STYLE.get(str(column.raw(it)), "") if column.status else "", end="")
    if shown.cell_len > width:
        shown.truncate(max(1, width - (0 if paint.unicode else 2)), overflow="ellipsis" if paint.unicode else "crop")
        if not paint.unicode:
            shown.append("..")
    return shown
