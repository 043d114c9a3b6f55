"""`wfctl runs`: the list. By itself, so that it does not wait for what starts, follows and ends a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import paging, parse, render, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.paging import paging_options, watch_option
from wfctl.cli.render import Column
from wfctl.core import reasons

if TYPE_CHECKING:
    from wfctl.operations.shown import RunView
    from wfctl.operations.views import TransitionView

SCHEMA = "wfctl/runs.v1"
FINAL = frozenset({"completed", "failed", "exhausted", "cancelled"})


def occurrence(view: RunView) -> str:
    return f"{view.schedule_id}@{values.instant(view.instant)}" if view.schedule_id else "manual"


def ended(view: Any) -> str:
    """How a run or an execution ended: its exit status, or the name of the signal."""
    if view.signal:
        return reasons.signal_name(view.signal)
    return "" if view.exit_status is None else str(view.exit_status)


def why(view: RunView) -> str:
    if view.status == "interrupted" and isinstance(view.interrupt, dict):
        return f"waits for input: {view.interrupt.get('message') or values.json_cell(view.interrupt)}"
    said = reasons.phrase(view.reason)
    return f"{said}; overdue" if said and view.overdue else ("overdue" if view.overdue else said)


def _total(view: RunView, key: str) -> Any:
    """The sum of a figure over all executions, of memory the largest; None where none is known."""
    known = [getattr(execution, key) for execution in view.trace if getattr(execution, key) is not None]
    return None if not known else max(known) if key == "max_rss_bytes" else sum(known)


def columns(now: datetime | Callable[[], datetime]) -> list[Column]:
    def took(view: RunView) -> float | None:
        until = None if view.status in FINAL else now() if callable(now) else now
        return values.elapsed(view.started_at, view.ended_at, until)

    def peak(view: RunView) -> Any:
        return _total(view, "max_rss_bytes")

    return [
        Column(key="run_id", title="RUN", raw=lambda it: it.run_id, keep=True),
        Column(key="status", title="STATUS", raw=lambda it: it.status, status=True, keep=True),
        Column(key="occurrence", title="OCCURRENCE", raw=occurrence, keep=True),
        render.durations("duration_s", "TOOK", took),
        Column(key="exit_status", title="EXIT", raw=lambda it: it.exit_status, show=ended, right=True),
        Column(key="reason", title="WHY", raw=lambda it: it.reason, show=why, free=True, keep=True),
        render.instants("started_at", "STARTED (UTC)", lambda it: it.started_at),
        Column(key="deployment_id", title="DEPLOYMENT", raw=lambda it: it.deployment_id),
        render.durations("cpu_s", "CPU", lambda it: _total(it, "cpu_s")),
        Column(key="max_rss_bytes", title="PEAK", raw=peak, show=lambda it: values.size(peak(it)), right=True),
        Column(key="attempt", title="ATTEMPT", raw=lambda it: it.attempt, right=True, extra=True),
        Column(
            key="deployment_revision", title="DEPLOYMENT REV", raw=lambda it: it.deployment_revision, right=True, extra=True
        ),
        render.instants("ended_at", "ENDED (UTC)", lambda it: it.ended_at, extra=True),
        Column(key="signal", title="SIGNAL", raw=lambda it: it.signal, right=True, extra=True),
    ]


@command()
@click.option("--schedule", "schedule_id", metavar="ID", type=StoredId("schedule"), help="Only runs of this schedule.")
@click.option("--deployment", "deployment_id", metavar="ID", type=StoredId("deployment"), help="Only runs of this deployment.")
@paging_options
@watch_option
def runs(
    common: Common, schedule_id: str | None, deployment_id: str | None, limit: int | None, cursor: str | None, everything: bool,
    status: str | None, since: str | None, until: str | None, reverse: bool, is_watching: bool,
) -> None:  # fmt: skip
    """List the runs, oldest first.

    With --watch the newest are listed, and then a row is added for each change of a run, with a supervisor or without; -o jsonl
    is the form for programs.
    """
    now = common.now()
    first, last = parse.moment(since, "--since", now), parse.moment(until, "--until", now)
    chosen: dict[str, Any] = {
        "schedule_id": schedule_id,
        "deployment_id": deployment_id,
        "status": status,
        "since": first,
        "until": last,
    }
    if is_watching:
        from wfctl.cli import watching

        watching.refuse_paging(cursor, everything, until, reverse)
        del chosen["until"]
        _watch(common, chosen, limit)
        return
    from wfctl.operations.listing import list_runs

    with common.listing() as context:
        paging.write(
            common,
            lambda size, place: list_runs(context, limit=size, cursor=place, reverse=reverse, **chosen),
            columns(now),
            schema=SCHEMA,
            name=lambda it: it.run_id,
            limit=limit,
            cursor=cursor,
            everything=everything,
            command=paging.line(
                common,
                "runs",
                *(["--reverse"] if reverse else []),
                schedule=schedule_id,
                deployment=deployment_id,
                status=status,
                since=values.instant(first) or None,
                until=values.instant(last) or None,
            ),
        )


def _watch(common: Common, chosen: dict[str, Any], limit: int | None) -> None:
    from wfctl.cli import watching
    from wfctl.operations.listing import newest_runs
    from wfctl.operations.watching import from_now_on

    chosen_ids = [chosen["schedule_id"]] if chosen["schedule_id"] else []
    least = watching.least_widths(common, chosen_ids, longest_status="interrupted")
    rows = render.Growing(common, columns(common.now), schema=SCHEMA, name=lambda it: it.run_id, least=least)

    def row_of(change: TransitionView) -> RunView | None:
        view = watching.run_row(store, change)
        wanted = chosen["deployment_id"]
        return view if view is None or wanted in (None, view.deployment_id) else None

    with common.open() as store:
        newest, changes = from_now_on(
            store,
            lambda context: newest_runs(context, limit=watching.limit_of(limit), **chosen),
            schedule_id=chosen["schedule_id"],
            status=chosen["status"],
        )
        watching.follow(rows, newest, changes, row_of)
