"""`wfctl occurrence explain`: what became of any instant, past or to come, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wfctl.cli import naming, render, streams, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.style import Paint
from wfctl.cli.text import cells, escape
from wfctl.core.instants import moment

if TYPE_CHECKING:
    from wfctl.operations.views import ExplanationLineView, ExplanationView

_WIDE = 110  #: columns from which on the sources stand at the right; below that they are left out
_LINE = 80  #: columns of the line that says where to look next
_NARROWEST = 40
NEVER = datetime.min.replace(tzinfo=UTC)  #: beside it every time is read in full


@command()
@click.argument("occurrence", metavar="SCHEDULE@INSTANT", type=StoredId("schedule"), help="Any instant of a schedule.")
def explain(common: Common, occurrence: str) -> None:
    """Say what became of any instant, past or to come, and why.

    Which revision, how late, which run held the slot, which limit was full, when the supervisor was away, a pause, a clock
    change; and what another policy, set just before, would have done: that is decided anew, not guessed, and left out where
    too little is known. It assumes that preflight would have passed. Times are UTC. Exit status 66: no instant of it, and the
    nearest are named.
    """
    now = common.now()
    with common.open() as store:
        schedule_id, instant = naming.occurrence(store, occurrence, now)
        view = store.explain_occurrence(schedule_id=schedule_id, instant=instant)
    name = f"{view.schedule_id}@{values.instant(view.instant)}"
    render.item(common, view, details=lambda paint: _details(view, name, paint, _width(common)), name=name)
    if common.is_human and not common.quiet and view.commands:
        streams.talk(escape(_pointer([_with_store(common, each) for each in view.commands])))


def _width(common: Common) -> int | None:
    """How wide the answer may be: as the terminal, in a pipe without bound."""
    width = render.terminal_width() if common.format == "table" else None
    return None if width is None else max(width, _NARROWEST)


def _pointer(commands: Sequence[str]) -> str:
    """Return where to look next: the first command, and of the others what fits on the line."""
    line = f"see: {commands[0]}"
    for each in commands[1:]:
        if len(line) + 2 + len(each) <= _LINE:
            line += f"; {each}"
    return line


def _with_store(common: Common, line: str) -> str:
    return line if common.store is None else line.replace("wfctl ", f"wfctl --store {values.command([common.store])} ", 1)


# For people ---------------------------------------------------------------------------------------------------------------


def _details(view: ExplanationView, name: str, paint: Paint, width: int | None) -> str:
    named = _wrapped(f"{escape(name)}  {_local(view)}; times are UTC", width, 2)
    named[0] = named[0].replace(escape(name), paint(escape(name), "bold"), 1)
    parts = [_verdict(view, paint, width), *named]
    parts += _lines(view.lines, view.instant, paint, width)
    parts += _alternatives(view, width)
    return "\n".join(parts)


def _verdict(view: ExplanationView, paint: Paint, width: int | None) -> str:
    word, _, rest = escape(view.verdict).partition(" - ")
    dash = "\u2013" if paint.unicode else "-"
    lines = _wrapped(f"{word} {dash} {rest}", width, 0)
    lines[0] = lines[0].replace(word, paint.status(word) if view.status else paint(word, "bold"), 1)
    return "\n".join(lines)


def _local(view: ExplanationView) -> str:
    """The instant by the clock of its schedule's zone."""
    from wfctl.core.trigger import CalendarError, zone_of

    zone = view.timezone or "UTC"
    try:
        local = view.instant.astimezone(zone_of(zone))
    except CalendarError:
        return f"in {escape(zone)}, which is not known here"
    shown = local.strftime("%a %Y-%m-%d %H:%M" + (":%S" if local.second else "") + " %Z")
    return f"{shown}" + ("" if zone == "UTC" else f" in {escape(zone)}")


def _lines(lines: Sequence[ExplanationLineView], beside: datetime, paint: Paint, width: int | None) -> list[str]:
    is_one_day = all(each.at is None or each.at.date() == beside.date() for each in lines)
    times = ["" if each.at is None else moment(each.at, beside if is_one_day else NEVER) for each in lines]
    room = max((len(time) for time in times), default=0)
    sources = [escape(each.source or "") for each in lines]
    right = max((cells(source) for source in sources), default=0) if width is not None and width >= _WIDE else 0
    out: list[str] = []
    for each, time, source in zip(lines, times, sources, strict=True):
        indent = 2 + room + 2
        body = None if width is None else width - (right + 2 if right else 0)
        wrapped = _wrapped(f"{'':2}{time.ljust(room)}  {escape(each.text)}", body, indent)
        if width is None and source:
            wrapped[-1] += f"  [{source}]"
        elif right and source:
            wrapped[0] += " " * (body - cells(wrapped[0]) + 2 if body else 2) + paint(source, "dim")
        out += wrapped
    return out


def _alternatives(view: ExplanationView, width: int | None) -> list[str]:
    ran = [escape(each.text) for each in view.alternatives if each.outcome == "admitted"]
    others = [escape(each.text) for each in view.alternatives if each.outcome != "admitted"]
    verb = "would run" if view.status == "pending" else "would have run"
    out = _wrapped(f"{verb} under: {'; '.join(ran)}", width, 2) if ran else []
    return out + (_wrapped(f"not under: {'; '.join(others)}", width, 2) if others else [])


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    if width is None or cells(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=True, break_on_hyphens=False, drop_whitespace=True
    ) or [text]
