"""`wfctl run wait` and `wfctl occurrence wait`: until something has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wfctl.cli import occurrence as occurrences
from wfctl.cli import parse, render, runs, streams
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.completing import STATUS
from wfctl.cli.run import outcome
from wfctl.cli.style import paint_for
from wfctl.cli.text import escape
from wfctl.core.model import Status
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from wfctl.operations.views import OccurrenceView, RunView

_timeout = click.option("--timeout", metavar="DURATION", help="Give up after so long, with exit status 75: 30s, 10m.")


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse.seconds(text, "--timeout")


@command(name="wait")
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True, type=StoredId("run"), help="Ids of runs.")
@click.option("--any", "any_one", is_flag=True, help="Until one of them has ended, not all.")
@_timeout
def run_wait(common: Common, run_ids: Sequence[str], any_one: bool, timeout: str | None) -> int:
    """Wait until runs have ended.

    Each is named as it ends. Exit status 0: what has ended, completed; 1: something ended otherwise; 75: timed out; 66: no such
    run. A run that waits for input has not ended: that is said on stderr, and waited on.
    """
    from wfctl.operations.awaiting import await_runs

    is_streaming = common.is_human or common.format in ("name", "jsonl")
    seconds = _seconds(timeout)
    with common.open() as store:
        over = await_runs(
            store,
            run_ids,
            any_one=any_one,
            timeout=seconds,
            on_end=lambda view: _write_ended(common, view) if is_streaming else None,
            on_interrupt=lambda view: _talk(common, outcome(view)),
        )
    if not is_streaming:
        _write_all(common, over, is_list=len(run_ids) > 1)
    return 0 if all(view.status == Status.COMPLETED for view in over) else 1


def _write_ended(common: Common, view: RunView) -> None:
    render.item(common, view, details=lambda _: outcome(view), name=view.run_id)
    streams.flush()


def _write_all(common: Common, views: Sequence[RunView], *, is_list: bool) -> None:
    columns = runs.columns(common.now())
    if is_list:
        render.page(common, columns, views, schema=runs.SCHEMA, name=lambda it: it.run_id)
    else:
        render.item(common, views[0], details=lambda _: outcome(views[0]), name=views[0].run_id, columns=columns)


@command(name="wait")
@click.argument(
    "occurrence", metavar="SCHEDULE@INSTANT", type=StoredId("schedule"), help="Its name, as lists with -o name print it."
)
@click.option("--for", "state", metavar="STATUS", type=STATUS, help="Until it has come to this status. Default: completed.")
@_timeout
def occurrence_wait(common: Common, occurrence: str, state: str | None, timeout: str | None) -> int:
    """Wait until an occurrence has ended: SCHEDULE@INSTANT.

    One that lies ahead is waited for. Exit status 0: it completed, or came to the status asked for; 1: it ended otherwise; 75:
    timed out; 66: it never will be, because it is no instant of the schedule, or the schedule has passed it or was deleted.
    """
    from wfctl.operations.awaiting import await_occurrence

    schedule_id, at = parse.occurrence_name(occurrence)
    words = parse.words(state, [status.value for status in Status], "--for")
    if words is not None and len(words) != 1:
        raise InvalidArgument("--for takes one status")
    seconds = _seconds(timeout)
    with common.open() as store:
        view, is_there = await_occurrence(
            store,
            schedule_id,
            at,
            state=None if words is None else Status(words[0]),
            timeout=seconds,
            on_note=lambda note: _talk(common, escape(note)),
        )
    name = occurrences.name_of(view)
    render.item(common, view, details=lambda _: _stands(common, view), name=name, columns=occurrences.COLUMNS)
    return 0 if is_there else 1


def _stands(common: Common, view: OccurrenceView) -> str:
    parts = [escape(occurrences.name_of(view)), paint_for(common).status(view.status), escape(view.run_id or "")]
    why = occurrences.why(view)
    return "  ".join(filter(None, parts)) + (f": {escape(why)}" if why else "")


def _talk(common: Common, text: str) -> None:
    if not common.quiet:
        streams.talk(text)
