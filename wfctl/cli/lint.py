"""`wfctl schedule lint`: what may not be meant, before it goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from wfctl.cli import parse, render, streams
from wfctl.cli.base import Common, StoredId, command, quieten_logs
from wfctl.cli.render import Column
from wfctl.cli.style import Paint, paint_for
from wfctl.cli.text import count_of, escape

if TYPE_CHECKING:
    from wfctl.operations.context import Context
    from wfctl.operations.lint import FindingView

SCHEMA = "wfctl/findings.v1"
_STYLE = {"warning": "yellow", "note": "cyan"}


@command()
@click.argument(
    "schedule_ids", metavar="[ID...]", nargs=-1, type=StoredId("schedule"), help="Ids of schedules; none for all of them."
)
@click.option(
    "-f", "file", metavar="FILE|-", type=click.Path(), help="Look at a TOML file, or stdin, that is not in the store."
)
@click.option("--strict", is_flag=True, help="Count notes as findings too.")
@click.option("--drift", is_flag=True, help="Compare the coming year with what croniter and the tz database said when saved.")
def lint(common: Common, schedule_ids: Sequence[str], file: str | None, strict: bool, drift: bool) -> int:
    """Find what may not be meant in schedules.

    Warnings are what will surprise, notes what is worth knowing; `wfctl help CODE` explains each. Exit status 1: there are
    warnings, or with --strict notes. With -f no store is needed; in one, deployment and input are looked at too.
    """
    if file is not None and (schedule_ids or drift):
        raise click.UsageError(
            "-f looks at a file alone; leave out the ids" if schedule_ids else "--drift needs saved schedules"
        )
    if file is not None:
        found = _of_file(common, file)
        count = None
    else:
        from wfctl.operations.lint import lint_schedules

        with common.open() as store:
            found = lint_schedules(store.context, schedule_ids, with_drift=drift)
            count = len(set(schedule_ids)) if schedule_ids else len(store.list_schedules().items)
    _write(common, found)
    if not common.quiet and common.is_human:
        streams.talk(_summary(found, count))
        if drift:
            from wfctl.core.trigger import stamps

            croniter, tz_database = stamps()
            streams.talk(f"what was recorded of calendars was compared with today's: croniter {croniter}, tz {tz_database}")
    return int(any(strict or view.severity == "warning" for view in found))


def _of_file(common: Common, file: str) -> list[FindingView]:
    from wfctl.core.trigger import check_fires
    from wfctl.operations.lint import lint_definition
    from wfctl.store.definitions import schedule_from_toml

    name = "stdin" if file == "-" else PurePath(file).stem
    now = common.now()
    definition = schedule_from_toml(parse.read_file(file), f"schedule {name}")
    check_fires(definition.trigger, now)
    with ExitStack() as open_store:
        return lint_definition(name, definition, now, _store_at_hand(common, open_store))


def _store_at_hand(common: Common, stack: ExitStack) -> Context | None:
    """The store, where there is one that can be opened; else a word about what is not looked at."""
    from wfctl.errors import NoStore, WfctlError
    from wfctl.rpc.door import open_store

    quieten_logs(common.verbose)
    try:
        return stack.enter_context(open_store(common.root())).context
    except WfctlError as error:
        if not common.quiet and (common.store or not isinstance(error, NoStore)):
            streams.talk(f"deployment and input are not looked at: {escape(error.message)}")
        return None


def _write(common: Common, found: Sequence[FindingView]) -> None:
    if common.is_human and common.columns is None:
        paint = paint_for(common)
        for view in found:
            streams.answer(_lines(view, paint))
        return
    columns = [
        Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it.schedule_id, keep=True),
        Column(key="severity", title="SEVERITY", raw=lambda it: it.severity),
        Column(key="code", title="CODE", raw=lambda it: it.code, keep=True),
        Column(key="message", title="MESSAGE", raw=lambda it: it.message, free=True),
        Column(key="hint", title="HINT", raw=lambda it: it.hint, free=True),
    ]
    render.page(common, columns, found, schema=SCHEMA, name=lambda it: f"{it.schedule_id} {it.code}")


def _lines(view: FindingView, paint: Paint) -> str:
    head = f"{paint(escape(view.schedule_id), 'bold')}: {paint(view.severity, _STYLE[view.severity])} {view.code}"
    lines = [f"{head}: {escape(view.message)}"]
    if view.hint:
        lines.append(f"    {escape(view.hint)}")
    return "\n".join(lines)


def _summary(found: Sequence[FindingView], count: int | None) -> str:
    what = "the file" if count is None else count_of(count, "schedule")
    if not found:
        return f"{what}: nothing found"
    numbers = [
        count_of(number, severity)
        for severity in ("warning", "note")
        if (number := sum(view.severity == severity for view in found))
    ]
    first = next((view for view in found if view.severity == "warning"), found[0])
    return f"{what}: {', '.join(numbers)}; more about one: wfctl help {first.code}"
