"""A schedule for people: its reading in English, its policies, the next instants and what to beware of (contract 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wfctl.cli import streams, values
from wfctl.cli.base import Common
from wfctl.cli.render import aligned
from wfctl.cli.style import Paint
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.core.model import Trigger
    from wfctl.core.preview import PreviewRow
    from wfctl.operations.views import ScheduleView

NOTES = {
    "gap": "moved out of a clock change",
    "fold-first": "first pass of a repeated hour",
    "fold-second": "second pass of a repeated hour",
}
SHOWN = 5  #: instants


def trigger_of(view: ScheduleView) -> Trigger | None:
    """Return the trigger of a schedule; None where no definition of it was ever valid."""
    from wfctl.core.trigger import parse_trigger

    return parse_trigger(view.definition["trigger"]) if view.definition else None


def local(row: PreviewRow, *, has_seconds: bool = False) -> str:
    """Return an instant as the clock of its schedule's zone shows it: `Tue 2026-12-01 02:30 CET`."""
    seconds = ":%S" if has_seconds or row.local.second else ""
    return row.local.strftime(f"%a %Y-%m-%d %H:%M{seconds} %Z")


def zone_name(trigger: Trigger) -> str:
    """Return the zone that a trigger is read in."""
    return getattr(trigger, "timezone", "UTC")


def instant_lines(trigger: Trigger, anchor: datetime | None, after: datetime, now: datetime, count: int = SHOWN) -> list[str]:
    """Return the coming instants as aligned lines: how far off, in the trigger's zone, in UTC, and what its clock does."""
    from wfctl.core.preview import preview

    rows = preview(trigger, anchor, after, count)
    if not rows:
        return ["no instants to come"]
    header = [f"next {len(rows)}", zone_name(trigger), "instant (UTC)", ""]
    has_seconds = any(row.local.second for row in rows)
    lines = [
        [
            values.relative(row.instant, now),
            local(row, has_seconds=has_seconds),
            values.instant(row.instant),
            NOTES.get(row.note or "", ""),
        ]
        for row in rows
    ]
    return aligned([header, *lines])


def card(view: ScheduleView, paint: Paint, now: datetime) -> str:
    """Return what `add`, `set`, `resume` and `show` say of a schedule."""
    from wfctl.core.reading import reading_of
    from wfctl.core.trigger import CalendarError

    head = f"{paint(escape(view.id), 'bold')}  revision {view.revision}  {paint.status(view.state)}"
    trigger = trigger_of(view)
    if view.definition is None or trigger is None:
        return head
    lines = [f"{head}  deployment {escape(view.definition.get('deployment'))}"]
    try:
        after = max(now, view.effective_from.astimezone(UTC)) if view.effective_from else now
        lines.append(f"  {escape(reading_of(trigger, view.anchor if trigger.kind == 'interval' else None))}")
        lines.append(f"  {policies(view, paint)}")
        coming = _coming(view, trigger, after, now)
    except CalendarError as error:
        coming = [f"the calendar gives no answer: {escape(error)}"]
    return "\n".join([*lines, "", *("  " + line for line in coming)])


def _coming(view: ScheduleView, trigger: Trigger, after: datetime, now: datetime) -> list[str]:
    if view.state not in ("active", "blocked", "paused"):
        return [f"no instants to come: it is {view.state}"]
    lines = instant_lines(trigger, view.anchor, after, now)
    return ["while it is paused none of these is admitted:", *lines] if view.state == "paused" else lines


def policies(view: ScheduleView, paint: Paint) -> str:
    """Return a schedule's policies in one line."""
    definition = view.definition or {}
    overlap = escape(definition.get("overlap") or "skip")
    if definition.get("max_active_runs"):
        overlap += f" (at most {definition['max_active_runs']} at once)"
    parts = [
        f"overlap {overlap}",
        f"misfire {escape(definition.get('misfire') or 'skip')}",
        f"late after {escape(definition.get('lateness') or '60s')}",
        _ended_after(definition.get("max_run"), view.max_run_s),
    ]
    if definition.get("max_steps"):
        parts.append(f"at most {definition['max_steps']} executions a run")
    return f" {paint.dot} ".join(parts)


def _ended_after(said: Any, seconds: float | None) -> str:
    if seconds is None:
        return "no time limit"
    return f"ended after {values.duration(seconds)}" + (" (auto)" if said in (None, "auto") else "")


def warning_lines(view: ScheduleView, now: datetime) -> list[str]:
    """Return the warnings about a schedule's trigger, one a line."""
    from wfctl.core.preview import warnings_of
    from wfctl.core.trigger import CalendarError

    trigger = trigger_of(view)
    try:
        found = [] if trigger is None else list(warnings_of(trigger, now))
    except CalendarError:
        return []
    return [f"warning {warning.code}: {escape(warning.message)}" for warning in found]


def say(common: Common, lines: Sequence[str]) -> None:
    """Write warnings where they belong: below the card for people, on stderr for programs, nowhere with -q."""
    if common.quiet:
        return
    for line in lines:
        (streams.answer if common.is_human else streams.talk)(line)
