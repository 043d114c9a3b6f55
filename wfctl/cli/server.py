"""`wfctl status` and `wfctl reload`: talking to the running supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import render, values
from wfctl.cli.base import Common, command
from wfctl.cli.style import Paint
from wfctl.cli.text import count_of, escape
from wfctl.clock import pause

if TYPE_CHECKING:
    from wfctl.operations.views import ReloadView, StatusView

_LOOK_EVERY_S = 0.2


@command()
def status(common: Common) -> int:
    """Show the running supervisor at a glance.

    Exit status 0 when it is ready, 1 when it is degraded (something is blocked, late, or it drains), 69 when none runs.
    """
    with common.open() as store:
        view = store.server_status()
    now = common.now()
    render.item(common, view, details=lambda paint: _details(view, paint, now), name=view.state)
    return 0 if view.state == "ready" else 1


def _details(view: StatusView, paint: Paint, now: datetime) -> str:
    up = values.duration(values.elapsed(view.started_at, None, now))
    dot = f" {paint.dot} "
    who = f"pid {view.pid} on {escape(view.host)}, up {up}, wfctl {escape(view.version)}"
    head = f"supervisor: {paint.status(view.state)} ({who})"
    coming = "nothing to come"
    if view.next_instant is not None:
        when = f"{values.relative(view.next_instant, now)} ({values.instant(view.next_instant)})"
        coming = f"next {escape(view.next_schedule_id)} {when}"
    counts = ", ".join(f"{number} {escape(word)}" for word, number in view.schedules.items() if number)
    total = sum(view.schedules.values())
    lines = [
        head,
        dot.join(
            [
                f"slots {view.slots_used}/{view.slots_total}",
                coming,
                count_of(total, "schedule") + (f" ({counts})" if counts else ""),
            ]
        ),
        *(f"{paint('BLOCKED', 'red')} {_about(entry)}" for entry in view.blocked),
        *(f"{paint('WAITING', 'yellow')} {_about(entry)}" for entry in view.waiting),
        *(f"{paint('NOTE', 'yellow')} {_about(entry)}" for entry in view.problems),
        f"store {escape(view.store)}",
    ]
    return "\n".join(lines)


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

    For maintenance: active runs go on. With --undo admission is open again; what came due meanwhile is treated as after
    downtime, by each schedule's misfire policy. A restart of the supervisor opens it too.
    """
    if undo and wait:
        raise click.UsageError("--wait goes with a drain, not with --undo")
    with common.open() as store:
        view = store.drain(undo=undo)
        while wait and view.slots_used:
            pause(_LOOK_EVERY_S)
            view = store.server_status()
    render.item(common, view, details=lambda _: _drained(view, undo), name=view.state)
    return 0


def _drained(view: StatusView, undo: bool) -> str:
    if undo:
        return "admission is open again"
    going = f"{count_of(view.slots_used, 'run')} going on" if view.slots_used else "nothing executes"
    return f"admission has stopped; {going}; `wfctl drain --undo` opens it again"


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
