"""What `wfctl status` says first: one line for people and probes, and what to say where nobody answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from wfctl.cli import render, values
from wfctl.cli.style import Paint
from wfctl.cli.text import cells, count_of, escape
from wfctl.errors import NoSupervisor, TimedOut

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import Failing, Overdue, StatusView

PATIENCE_S = 10.0  #: how long a supervisor may take to say how it is


def ask(store: Store, patience_s: float = PATIENCE_S) -> StatusView:
    """Return how the supervisor of a store is. Raise NoSupervisor; TimedOut where one holds the store and does not answer."""
    try:
        return store.door.status(patience_s)
    except TimedOut as error:
        raise _silent(store, f"has not answered for {patience_s:g} s") from error
    except NoSupervisor as error:
        if not _is_owned(store):
            raise
        raise _silent(store, "takes no connection") from error


def _is_owned(store: Store) -> bool:
    from wfctl.store.locks import is_held

    return is_held(store.context.layout.path_of("scheduler_lock"))


def _silent(store: Store, what: str) -> TimedOut:
    from wfctl.store.locks import read_owner

    owner = read_owner(store.context.layout.path_of("scheduler_lock"))
    who = "the supervisor" if owner is None else f"the supervisor with pid {owner.pid} on {owner.host}"
    said = f"{who} holds the store and {what}: it is starting or ending, waits for the disk, or hangs; its log says more"
    return TimedOut(said, {} if owner is None else {"pid": owner.pid, "host": owner.host})


def head(view: StatusView, paint: Paint, now: datetime) -> list[str]:
    """Return the first lines: one that holds all of it, which on a narrow terminal goes on below; then versions and places."""
    up = values.duration(values.elapsed(view.started_at, None, now))
    parts = [
        f"supervisor: {paint.status(view.state)} (pid {view.pid}, up {up})",
        f"slots {view.slots_used}/{view.slots_total}"
        + "".join(f", {escape(each['name'])} {each['slots_used']}/{each['slots_total']}" for each in view.executors),
        _coming(view, now),
        *_counted(view, paint, now),
    ]
    counts = ", ".join(f"{number} {escape(word)}" for word, number in view.schedules.items() if number)
    total = sum(view.schedules.values())
    more = [
        count_of(total, "schedule") + (f" ({counts})" if counts else ""),
        f"wfctl {escape(view.version)} on {escape(view.host)}",
        f"store {escape(view.store)}",
    ]
    return [*_joined(parts, paint), *_joined(more, paint)]


def _coming(view: StatusView, now: datetime) -> str:
    if view.state == "draining":
        return "nothing is admitted"
    if view.next_instant is None:
        return "nothing to come"
    return f"next {escape(view.next_schedule_id)} {values.relative(view.next_instant, now)}"


def _counted(view: StatusView, paint: Paint, now: datetime) -> list[str]:
    """What a person should look at, each with how many there are."""
    parts = [paint(f"blocked {len(view.blocked)}", "red")] if view.blocked else []
    parts += [paint(f"waiting for the clock {len(view.waiting)}", "yellow")] if view.waiting else []
    parts += [paint(f"failing {len(view.failing)}", "red")] if view.failing else []
    parts += [paint(f"overdue {len(view.overdue)}", "yellow")] if view.overdue else []
    parts += [paint(f"problems {len(view.problems)}", "yellow")] if view.problems else []
    if view.interrupted:
        age = values.duration(values.elapsed(view.interrupted[0]["since"], None, now))
        parts.append(f"interrupted {len(view.interrupted)}, oldest {age}")
    return parts


def _joined(parts: list[str], paint: Paint) -> list[str]:
    """Put parts into one line; at a terminal that is narrower, into several."""
    dot, width = f" {paint.dot} ", render.terminal_width()
    lines: list[str] = []
    for part in parts:
        whole = f"{lines[-1]}{dot}{part}" if lines else part
        if lines and width is not None and cells(_plain(whole)) > width:
            lines.append(f"  {part}")
        else:
            lines[-1:] = [whole]
    return lines


def _plain(text: str) -> str:
    """Return a text without its colours."""
    import re

    return re.sub("\x1b\\[[0-9;]*m", "", text)


def failing(entry: Failing, now: datetime) -> str:
    """Return a schedule whose runs fail in one line, with what shows why."""
    since = values.relative(entry["since"], now)
    why = f"; see `wfctl run show {escape(entry['run_id'])}`" if entry["run_id"] else ""
    return f"{escape(entry['schedule_id'])}: {count_of(entry['failures'], 'run')} failed in a row, the first {since}{why}"


def overdue(entry: Overdue, now: datetime) -> str:
    """Return a run that takes too long in one line."""
    limit = f" of at most {values.duration(entry['max_run_s'])}" if entry["max_run_s"] is not None else ""
    whose = f" of {escape(entry['schedule_id'])}" if entry["schedule_id"] else ""
    at_work = values.duration(values.elapsed(entry["since"], None, now))
    return f"{escape(entry['run_id'])}{whose}: at work for {at_work}{limit}"
