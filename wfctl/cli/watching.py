"""`--watch`: the newest rows of a list, then each change as a row of its own, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import paging, render, streams
from wfctl.cli.base import Common, stored_names
from wfctl.errors import NotFound

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import OccurrenceView, RunView, TransitionView
    from wfctl.operations.watching import Watch

_LOOK_FOR_READER_S = 0.5
_BEFORE_ITS_END = {"ended_at": None, "exit_status": None, "signal": None, "reason": None, "output": None, "checkpoint": None}
_BEFORE_ITS_START = {**_BEFORE_ITS_END, "started_at": None, "interrupt": None, "overdue": False, "trace": ()}

#: How wide columns are before anything is known to be in them.
LEAST = {"instant": 20, "run_id": 10, "lateness_s": 5, "started_at": 27, "duration_s": 6, "reason": 20}


def refuse_paging(cursor: str | None, everything: bool, until: str | None, reverse: bool) -> None:
    """Raise UsageError for options of a page that ends where a watch begins."""
    given = {"--cursor": cursor is not None, "--all": everything, "--until": until is not None, "--reverse": reverse}
    for option, is_given in given.items():
        if is_given:
            raise click.UsageError(f"{option} and --watch exclude each other: a watch begins at the newest row and goes on")


def least_widths(common: Common, schedule_ids: Sequence[str], *, longest_status: str) -> dict[str, int]:
    """Return how wide columns are from the beginning: ids of schedules as long as those that are there."""
    try:
        names = list(schedule_ids) or stored_names(str(common.root()), "schedule")
    except OSError:
        names = []
    longest = max(map(len, names), default=0)
    occurrence = longest + 1 + LEAST["instant"]
    return {**LEAST, "status": len(longest_status), "schedule_id": longest, "occurrence": occurrence}


def follow(rows: render.Growing, newest: Sequence[Any], changes: Watch, row_of: Callable[[TransitionView], Any | None]) -> None:
    """Write the newest rows, then one for each change that has one, until somebody ends it."""
    rows.write(newest)
    with changes:
        while True:
            change = changes.wait(_LOOK_FOR_READER_S)
            streams.check_reader()
            if change is not None and (row := row_of(change)) is not None:
                rows.write([row])


def limit_of(limit: int | None) -> int:
    """Return how many of the newest rows are asked for."""
    return paging.DEFAULT_LIMIT if limit is None else limit


# Rows ---------------------------------------------------------------------------------------------------------------------


def occurrence_row(store: Store, change: TransitionView) -> OccurrenceView | None:
    """Return the occurrence as it was once the change had happened; None for a change of something else."""
    from wfctl.operations.views import OccurrenceView

    if change.kind == "schedule" or change.schedule_id is None or change.instant is None or change.to is None:
        return None
    if change.kind == "run":
        try:
            found = store.get_occurrence(schedule_id=change.schedule_id, instant=change.instant)
            return replace(found, status=change.to, reason=change.reason, run_id=change.run_id)
        except NotFound:  # pruned by now: what the change itself says is left
            pass
    return OccurrenceView(
        schedule_id=change.schedule_id,
        instant=change.instant,
        status=change.to,
        run_id=change.run_id,
        revision=change.revision,
        lateness_s=change.lateness_s,
        reason=change.reason,
        span=change.span,
        recorded_at=change.at,
    )


def run_row(store: Store, change: TransitionView) -> RunView | None:
    """Return the run as it was once the change had happened; None for a change of something else."""
    if change.run_id is None or change.to is None:
        return None
    try:
        found = store.inspect_run(run_id=change.run_id)
    except NotFound:
        return None
    if found.status == change.to and found.attempt == change.attempt:
        return found
    later = _BEFORE_ITS_START if change.to == "admitted" else _BEFORE_ITS_END
    given: dict[str, Any] = {**later, "status": change.to, "attempt": change.attempt}
    return replace(found, **given)
