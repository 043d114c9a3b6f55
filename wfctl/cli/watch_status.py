"""`wfctl status --watch`: a board on a terminal, JSON lines elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import render, streams
from wfctl.cli.base import Common, Function
from wfctl.clock import pause
from wfctl.errors import NoSupervisor, TimedOut, WfctlError

if TYPE_CHECKING:
    from wfctl.cli.board import Board
    from wfctl.operations.glance import Glance, Told
    from wfctl.operations.store import Store
    from wfctl.operations.views import StatusView

EVERY = "2s"
SHOWN = 10  #: instants to come and changes, at most
_PATIENCE_S = 1.0  #: how long the supervisor may take to answer
_REST, _LONGEST_REST_S = 20, 10.0  #: it is left alone for so many times as long as it took to answer, up to so many seconds
_LOOK_FOR_READER_S = 0.5
_LONG_S = 3600.0  #: how long a board that stands still waits for a key
_STALE_S = 30.0  #: after which the ledger is read again though nothing was written: time has passed


class Every(click.ParamType[float, str]):
    """How often to look, as a duration; the value is in seconds."""

    name = "every"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from wfctl.core.duration import parse_duration

        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(value).total_seconds()
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0.1 <= seconds <= 3600:
            self.fail(f"{value!r} is not between 100ms and 1h", param, ctx)
        return seconds


def watch_option(function: Function) -> Function:
    """Add `--watch`."""
    says = "A live board until q or Ctrl-C; in a pipe, or with -o jsonl, the status as JSON, a line for each change."
    return click.option(
        "--watch", "every_s", metavar="[=2s]", type=Every(), is_flag=False, flag_value=EVERY, default=None, help=says
    )(function)


def watch(common: Common, every_s: float) -> int:
    """Show what there is and what changes, until somebody ends it; return the exit status."""
    import sys

    if common.output not in (None, "table", "plain", "jsonl"):
        raise click.UsageError(f"-o {common.output} cannot be written while it changes; use -o jsonl with --watch")
    is_board = common.output != "jsonl" and sys.stdout.isatty()
    if is_board and common.environ.get("TERM", "dumb") in ("", "dumb"):
        raise click.UsageError("a board needs a terminal that can move its cursor, and TERM says it cannot; use -o jsonl")
    if not is_board and common.output not in (None, "jsonl"):
        raise click.UsageError(f"-o {common.output} --watch is a board, which needs a terminal; use -o jsonl")
    with common.open() as store:
        return _show(common, store, every_s) if is_board else _write(store, every_s)


# JSON lines ---------------------------------------------------------------------------------------------------------------


def _write(store: Store, every_s: float) -> int:
    last, supervisor = None, Supervisor(store)
    while True:
        found = _document(store, *supervisor.ask())
        if found != last:
            streams.answer(render.json_text(found))
            streams.flush()
            last = found
        _wait(every_s, store.context.clock.monotonic)


def _wait(seconds: float, monotonic: Callable[[], float]) -> None:
    """Wait; a reader that is gone is noticed meanwhile."""
    ends_at = monotonic() + seconds
    while (left := ends_at - monotonic()) > 0:
        streams.check_reader()
        pause(min(left, _LOOK_FOR_READER_S))


def _document(store: Store, view: StatusView | None, absence: str | None) -> dict[str, Any]:
    """Return the status as `wfctl status -o json` gives it; without a supervisor what the ledger says, the rest null."""
    if view is not None:
        return view.to_json()
    from wfctl.operations.views import StatusView, plain
    from wfctl.supervisor.desk import ledger_facts

    facts = ledger_facts(store.context)
    coming = facts.coming or (None, None)
    known = {
        "state": "absent",
        "store": str(store.root),
        "slots_used": facts.slots_used,
        "next_schedule_id": coming[0],
        "next_instant": coming[1],
        "schedules": facts.schedules,
        "blocked": facts.blocked,
        "waiting": facts.waiting,
        "problems": [{"code": "absent", "message": absence}],
    }
    return {"schema": StatusView.schema, **{name: plain(known.get(name)) for name in StatusView.field_names()}}


class Supervisor:
    """Asks the supervisor how it is: each time, but the less often the longer its answers take."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._monotonic = store.context.clock.monotonic
        self._answer: tuple[StatusView | None, str | None] = (None, None)
        self._not_before = 0.0

    def ask(self) -> tuple[StatusView | None, str | None]:
        """Return the newest answer; without one, why there is none."""
        began = self._monotonic()
        if began >= self._not_before:
            self._answer = self._ask()
            ended = self._monotonic()
            self._not_before = ended + min(_LONGEST_REST_S, _REST * (ended - began))
        return self._answer

    def _ask(self) -> tuple[StatusView | None, str | None]:
        try:
            return self._store.door.status(_PATIENCE_S), None
        except NoSupervisor:
            return None, "no supervisor runs; waiting for one"
        except TimedOut:
            return None, "the supervisor does not answer"
        except WfctlError as error:
            return None, error.message


# The board ----------------------------------------------------------------------------------------------------------------


def _show(common: Common, store: Store, every_s: float) -> int:
    import signal
    from dataclasses import replace

    from wfctl.cli.board import layout
    from wfctl.cli.screen import GONE, Ended, Screen, end_by
    from wfctl.cli.style import paint_for

    monotonic = store.context.clock.monotonic
    facts, paint = Facts(common, store, every_s), paint_for(common)
    board, looked_at = facts.look(), monotonic()
    try:
        with Screen() as screen:
            while True:
                screen.draw(layout(board, *screen.size, paint))
                left = _LONG_S if board.is_paused else max(0.0, looked_at + every_s - monotonic())
                happened = screen.wait(left)
                if happened == GONE or (happened or "").lower().startswith("q"):
                    return 0
                if (happened or "").lower().startswith("p") and not board.is_paused:
                    board = replace(board, is_paused=True)
                elif (happened or "").lower().startswith("p") or (not board.is_paused and monotonic() >= looked_at + every_s):
                    board, looked_at = facts.look(), monotonic()
    except KeyboardInterrupt:  # not left to others, who would move the cursor of the terminal that was just given back
        return streams.INTERRUPTED
    except Ended as end:
        end_by(end.number)
    return 128 + signal.SIGTERM  # not reached: the signal has ended the process


class Facts:
    """What a board shows, read as it changes: where nothing was written the ledger is not read again."""

    def __init__(self, common: Common, store: Store, every_s: float) -> None:
        from datetime import timedelta

        from wfctl.core.duration import format_duration
        from wfctl.operations import glance
        from wfctl.operations.transitions import Feed

        self._common, self._store, self._supervisor = common, store, Supervisor(store)
        self._every = format_duration(timedelta(seconds=every_s))
        with store.context.ledger.reading():  # one state of the ledger: nothing falls between, nothing is told twice
            self._lately: deque[Told] = deque(glance.lately(store.context, SHOWN), SHOWN)
            self._feed = Feed(store.context)
        self._stamp: object = None
        self._read_at = 0.0
        self._glance: Glance | None = None

    def look(self) -> Board:
        """Return what there is now."""
        from wfctl.cli.board import Board

        view, absence = self._supervisor.ask()
        return Board(
            now=self._common.now(),
            store=str(self._store.root),
            supervisor=view,
            absence=absence,
            glance=self._read(),
            lately=tuple(reversed(self._lately)),
            every=self._every,
        )

    def _read(self) -> Glance:
        from wfctl.operations import glance

        context = self._store.context
        stamp = glance.stamp(context)
        now = context.clock.monotonic()
        if self._glance is None or stamp != self._stamp or now >= self._read_at + _STALE_S:
            self._stamp, self._read_at = stamp, now
            self._glance = glance.glance(context, coming=SHOWN)
            self._lately.extend(glance.told_of(context, view) for view in self._all_that_is_new())
        return self._glance

    def _all_that_is_new(self) -> list[Any]:
        found = self._feed.look()
        while self._feed.has_more:
            found = [*found, *self._feed.look()][-SHOWN:]
        return found
