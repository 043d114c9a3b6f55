"""`wfctl schedule import crontab`: a crontab becomes deployments and schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wfctl.cli import parse, render, streams, values
from wfctl.cli.base import Common, command, dry_run_option
from wfctl.cli.completing import ZONE
from wfctl.cli.text import count_of, escape
from wfctl.errors import InvalidArgument, InvalidDefinition, Problem

if TYPE_CHECKING:
    from wfctl.operations.views import ImportView

_SYSTEM = ("/etc/crontab", "/etc/cron.d/")


@command()
@click.argument("file", metavar="FILE|-", type=click.Path(), help="The crontab; - for stdin, such as from `crontab -l`.")
@click.option("--user-column", is_flag=True, help="A user stands before each command, as in /etc/crontab and /etc/cron.d.")
@click.option(
    "--timezone", metavar="ZONE", type=ZONE, help="The zone of lines without CRON_TZ (default: the machine's, as for cron)."
)
@dry_run_option
def crontab(common: Common, file: str, user_column: bool, timezone: str | None, dry_run: bool) -> int:
    """Import a crontab: a deployment and a schedule a line.

    crontab -l | wfctl schedule import crontab - --dry-run

    What cannot be kept is listed with what to do, and makes the exit status 1. Nothing is changed unless every line that is
    kept is valid. Importing again adds only what is not there yet.
    """
    from wfctl.clock import local_zone
    from wfctl.operations.importing import import_crontab

    source = "the crontab on stdin" if file == "-" else parse.absolute(file)
    text = _text(file, source)
    if not user_column and source.startswith(_SYSTEM):
        raise InvalidArgument(f"{file} has a user before each command: add --user-column", {"add": ["--user-column"]})
    with common.open() as store:
        view = import_crontab(
            store, text, source=source, local_zone=local_zone(), user_column=user_column, timezone=timezone,
            dry_run=dry_run,
        )  # fmt: skip
    if common.format == "name":
        for it in view.lines:
            streams.answer(escape(it.schedule_id))
    else:
        render.item(common, view, details=lambda _: _said(view), name="")
    if common.is_human and not common.quiet:
        _advise(view, file)
    return 1 if view.left_out else 0


def _text(file: str, source: str) -> str:
    from wfctl.core.crontab import LARGEST_CRONTAB

    content = parse.read_file(file)
    if len(content) > LARGEST_CRONTAB or b"\0" in content:
        raise InvalidDefinition.of(source, [Problem("", "is no crontab: it is not text, or larger than 1 MiB")])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidDefinition.of(source, [Problem("", "is not UTF-8", line)]) from error


def _said(view: ImportView) -> str:
    if not view.lines and not view.left_out:
        return f"{escape(view.source)} holds no line that runs anything"
    rows = [["LINE", "SCHEDULE", "WHEN", "COMMAND"]] if view.lines else []
    rows += [
        [
            str(it.line),
            escape(it.schedule_id) + ("" if it.is_new else " (there already)"),
            escape(values.trigger(it.trigger)),
            escape(it.command),
        ]
        for it in view.lines
    ]
    lines = render.aligned(rows)
    for it in view.lines:
        lines += [f"line {it.line}: warning {each['code']}: {escape(each['message'])}" for each in it.warnings]
    if view.left_out:
        lines += ["", f"not kept: {count_of(len(view.left_out), 'line')}"] if lines else [f"not kept: {len(view.left_out)}"]
    for left in view.left_out:
        lines += [f"line {left.line}: {escape(left.text)}", f"  {escape(left.why)}", f"  instead: {escape(left.instead)}"]
    return "\n".join(lines)


def _advise(view: ImportView, file: str) -> None:
    if view.is_dry_run:
        streams.talk("dry run: nothing was changed")
        return
    new = [it for it in view.lines if it.is_new]
    if not new:
        return
    where = "the crontab (`crontab -e`)" if file == "-" else escape(Path(file).name)
    streams.talk(
        f"{count_of(len(new), 'schedule')} added. Now take these lines out of {where}, or cron runs them too.\n"
        "Other than with cron, an instant that finds its last run still going is skipped; `wfctl schedule set ID overlap=...`"
        " changes that."
    )
