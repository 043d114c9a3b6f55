"""`wfctl store gc`: letting old history go by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wfctl.cli import prompt, render, streams, values
from wfctl.cli.base import Common, command, dry_run_option
from wfctl.cli.text import count_of

if TYPE_CHECKING:
    from wfctl.operations.views import GcView


@command()
@click.option("--keep", metavar="DURATION", help="Keep what is not older than this, such as 90d (default: keep_days).")
@click.option(
    "--keep-runs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of each schedule, keep what is not older than its newest N runs (default: keep_runs).",
)
@dry_run_option
def gc(common: Common, keep: str | None, keep_runs: int | None, dry_run: bool) -> int:
    """Let old history go.

    Occurrences go, with their finished runs and what these wrote. With both limits, what is beyond either goes. Ids, revisions,
    unfinished runs and held occurrences are always kept. The supervisor may run meanwhile; with the settings of [history] it
    does the same by itself.
    """
    with common.open() as store:
        view = store.collect_garbage(keep=keep, keep_runs=keep_runs, dry_run=True)
        if not dry_run and (view.occurrences or view.runs):
            if not prompt.confirm(common, f"Remove {_what(view)} for good?"):
                return 1
            view = store.collect_garbage(keep=keep, keep_runs=keep_runs)
        elif not dry_run:
            view = store.collect_garbage(keep=keep, keep_runs=keep_runs)
    render.item(common, view, details=lambda _: _said(view), name=str(view.runs))
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")
    return 0


def _what(view: GcView) -> str:
    return f"{count_of(view.occurrences, 'occurrence')} and {count_of(view.runs, 'run')}"


def _said(view: GcView) -> str:
    if not view.occurrences and not view.runs:
        return "nothing is old enough to go"
    verb = "would remove" if view.is_dry_run else "removed"
    limits = [f"recorded before {values.instant(view.before)}"] if view.before is not None else []
    limits += [f"older than the newest {count_of(view.keep_runs, 'run')} of each schedule"] if view.keep_runs else []
    return f"{verb} {_what(view)} {' or '.join(limits)}"
