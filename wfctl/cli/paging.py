"""Lists that come in pages: --limit, --cursor and --all (contract 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from wfctl.cli import render, streams, values
from wfctl.cli.base import Common, Function
from wfctl.cli.completing import STATUSES
from wfctl.cli.render import Column
from wfctl.cli.text import escape

DEFAULT_LIMIT = 20
LARGEST_LIMIT = 100
Fetch = Callable[[int, str | None], Any]


def page_options(function: Function) -> Function:
    """Add `--limit`, `--cursor` and `--all`."""
    options = [
        click.option("--limit", type=int, metavar="N", help=f"Rows of a page, 1 to {LARGEST_LIMIT} (default {DEFAULT_LIMIT})."),
        click.option("--cursor", metavar="TOKEN", help="Go on where the page before ended; the filter must be the same."),
        click.option("--all", "everything", is_flag=True, help="All pages, one after the other."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def paging_options(function: Function) -> Function:
    """Add `--limit`, `--cursor`, `--all`, `--status`, `--since`, `--until` and `--reverse`."""
    options = [
        click.option("--status", metavar="A,B,...", type=STATUSES, help="Only these statuses."),
        click.option("--since", metavar="TIME", help="Not before this instant, or this long ago: 2h, 7d."),
        click.option("--until", metavar="TIME", help="Before this instant, or before this long ago: 2h, 7d."),
        click.option("-r", "--reverse", is_flag=True, help="The newest first; the pages after it lead back in time."),
    ]
    for option in reversed(options):
        function = option(function)
    return page_options(function)


def part_options(function: Function) -> Function:
    """Add `--limit` and `--cursor` to a list that is whole without them."""
    goes_on = "Go on where the page before ended; the filter must be the same."
    function = click.option("--cursor", metavar="TOKEN", help=goes_on)(function)
    size = f"A page of so many, 1 to {LARGEST_LIMIT} (default: all of them)."
    return click.option("--limit", type=int, metavar="N", help=size)(function)


def watch_option(function: Function) -> Function:
    """Add `--watch`."""
    says = "First the newest rows, as many as --limit asks for, then each change as it happens, until Ctrl-C."
    return click.option("--watch", "is_watching", is_flag=True, help=says)(function)


def write(
    common: Common,
    fetch: Fetch,
    columns: Sequence[Column],
    *,
    schema: str,
    name: Callable[[Any], str],
    limit: int | None,
    cursor: str | None,
    everything: bool,
    command: Sequence[str],
) -> None:
    """Write one page, or all of them; of one, say on stderr how to see the next: `command` is the line without its cursor."""
    if everything:
        items = _all(fetch, LARGEST_LIMIT if limit is None else limit, cursor)
        render.page(common, columns, items, schema=schema, name=name)
        return
    page = fetch(DEFAULT_LIMIT if limit is None else limit, cursor)
    render.page(common, columns, page.items, schema=schema, name=name, next_cursor=page.next_cursor)
    say_next(common, page.next_cursor, limit, command)


def say_next(common: Common, following: str | None, limit: int | None, command: Sequence[str]) -> None:
    """Say on stderr how to see the next page, where there is one."""
    if following is not None and not common.quiet:
        size = [] if limit is None else ["--limit", str(limit)]
        streams.talk(f"next page: {escape(values.command([*command, *_format(common), *size, '--cursor', following]))}")


def _all(fetch: Fetch, limit: int, cursor: str | None) -> Iterator[Any]:
    while True:
        page = fetch(limit, cursor)
        yield from page.items
        streams.flush()
        cursor = page.next_cursor
        if cursor is None:
            return


def line(common: Common, *words: str, **options: Any) -> list[str]:
    """Return a command line that can be typed again: its words and the options that have a value."""
    store = [] if common.store is None else ["--store", common.store]
    given = [[f"--{key}", str(value)] for key, value in options.items() if value is not None]
    return ["wfctl", *store, *words, *(word for pair in given for word in pair)]


def _format(common: Common) -> list[str]:
    return [] if common.output is None else ["-o", common.output]
