"""`wfctl status` and `wfctl reload`: talking to the running supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import render, status_text, streams, values
from wfctl.cli.base import Common, command
from wfctl.cli.style import Paint
from wfctl.cli.text import count_of, escape
from wfctl.cli.watch_status import watch, watch_option
from wfctl.clock import pause

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import ReloadView, RunView, StatusView

_LOOK_EVERY_S = 0.2
_ASKING = 10  #: runs that wait for input, named by `status`


@command()
@watch_option
def status(common: Common, every_s: float | None) -> int:
    """Show the running supervisor at a glance.

    Exit status 0 when it is ready; 1 when it drains or is degraded: something is blocked, overdue, waits for the clock, or is
    said to be a problem; 69 when none runs, 75 when one does and does not answer. -q prints the state alone.
    With --watch it also waits for one that is not there, or comes back; q ends it with 0.
    """
    if every_s is not None:
        return watch(common, every_s)
    with common.open(may_log=False) as store:
        view = status_text.ask(store)
        asking = list(store.list_runs(status="interrupted", limit=_ASKING).items) if common.is_human else []
    now = common.now()
    render.item(common, view, details=lambda paint: _details(view, asking, paint, now), name=view.state)
    return 0 if view.state == "ready" else 1


def _details(view: StatusView, asking: Sequence[RunView], paint: Paint, now: datetime) -> str:
    lines = [
        *status_text.head(view, paint, now),
        *(f"{paint('BLOCKED', 'red')} {_about(entry)}{mended_by(entry)}" for entry in view.blocked),
        *(f"{paint('WAITING', 'yellow')} {_about(entry)}" for entry in view.waiting),
        *(f"{paint('FAILING', 'red')} {status_text.failing(entry, now)}" for entry in view.failing),
        *(f"{paint('OVERDUE', 'yellow')} {status_text.overdue(entry, now)}" for entry in view.overdue),
        *(f"{paint('ASKS', 'yellow')} {_asks(run, now)}" for run in asking),
        *(f"{paint('NOTE', 'yellow')} {_about(entry)}" for entry in view.problems),
    ]
    if view.state == "draining":
        undo = "`wfctl drain --undo` opens it again, unless it is ending"
        lines.append(f"{paint('DRAINING', 'yellow')} nothing is admitted or resumed; {undo}")
    return "\n".join(lines)


def _asks(view: RunView, now: datetime) -> str:
    """A run that waits for input, its question, and how to answer."""
    from wfctl.cli.run import answer_line

    asked = view.interrupt.get("message") if isinstance(view.interrupt, Mapping) else None
    since = values.relative(view.trace[-1].ended_at, now) if view.trace else ""
    who = f"{view.run_id} of {view.schedule_id or view.deployment_id}" + (f", {since}" if since else "")
    return f"{escape(who)}: {escape(asked or 'it waits for input')}; answer with `{answer_line(view)}`"


def mended_by(entry: Mapping[str, Any]) -> str:
    """The command that mends what blocks a schedule, where the message names none."""
    inner = entry.get("diagnostic")
    diagnostic = inner if isinstance(inner, Mapping) else entry
    if diagnostic.get("code") not in ("invalid-definition", "missing-file"):
        return ""
    deployment = diagnostic.get("deployment_id")
    line = f"deployment edit {deployment}" if deployment else f"schedule edit {entry.get('schedule_id') or entry.get('id')}"
    return f"; mend it with `wfctl {escape(line)}`"


def _about(entry: Mapping[str, Any]) -> str:
    """A blocked or waiting schedule, or another problem, in one line."""
    name = entry.get("id") or entry.get("schedule_id") or entry.get("name") or ""
    inner = entry.get("diagnostic")
    said = entry.get("message") or (inner.get("message") if isinstance(inner, Mapping) else inner) or entry.get("code")
    until = entry.get("until") or entry.get("waits_until")
    if until:
        said = f"{said + ', ' if said else ''}waits for the clock until {values.instant(until)}"
    known = {"id", "schedule_id", "name", "message", "diagnostic", "code", "until", "waits_until"}
    if not said:
        said = values.json_cell({key: text for key, text in entry.items() if key not in known} or dict(entry))
    return f"{escape(name)}: {escape(said)}" if name else escape(said)


@command()
@click.option("--undo", is_flag=True, help="Open admission again.")
@click.option("--wait", is_flag=True, help="Return once nothing executes any more.")
def drain(common: Common, undo: bool, wait: bool) -> int:
    """Stop admission and refuse resumes, without ending the supervisor.

    For maintenance: active runs go on, also those that were started by hand. With --undo admission is open again; what came due
    meanwhile is treated as after downtime, by each schedule's misfire policy. A restart of the supervisor opens it too.
    """
    if undo and wait:
        raise click.UsageError("--wait goes with a drain, not with --undo")
    with common.open() as store:
        view = store.drain(undo=undo)
        going = _executing(store)
        if wait and going:
            try:
                if not common.quiet:
                    streams.talk(f"admission has stopped; waiting for {_some(going)}")
                while going:
                    pause(_LOOK_EVERY_S)
                    going = _executing(store)
            except KeyboardInterrupt:
                streams.talk(f"\nstill draining, {_some(going)} going on; `wfctl drain --undo` opens admission again")
                return streams.INTERRUPTED
            view = store.server_status()
    render.item(common, view, details=lambda _: _drained(going, undo), name=view.state)
    return 0


def _executing(store: Store) -> list[str]:
    """Name the runs that are at work, up to a page of them: those started by hand too, which take no slot."""
    return [view.run_id for view in store.list_runs(status="admitted,running", limit=100).items]


def _some(runs: Sequence[str]) -> str:
    return f"{count_of(len(runs), 'run')} ({', '.join(map(escape, runs[:3]))}{', ...' if len(runs) > 3 else ''})"


def _drained(going: Sequence[str], undo: bool) -> str:
    if undo:
        return "admission is open again"
    said = f"{count_of(len(going), 'run')} going on" if going else "nothing executes"
    return f"admission has stopped; {said}; `wfctl drain --undo` opens it again"


@command()
def reload(common: Common) -> None:
    """Read settings and definitions again now.

    The supervisor does so by itself within ten seconds, and at once where the kernel tells it of a change.
    """
    with common.open() as store:
        view = store.reload()
    render.item(common, view, details=lambda _: _reloaded(view), name="reloaded")


def _reloaded(view: ReloadView) -> str:
    head = f"reloaded: {view.changed} changed, {view.blocked} blocked"
    return "\n".join([head, *(f"  {_about(entry)}" for entry in view.problems)])
