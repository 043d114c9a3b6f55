"""Telling somebody that a schedule's health changed: `[notify] command`, through the keeper, outside the slots (contract 7.8).

What is to be told is in the ledger (`operations/telling.py` enters it when it happens) until its command ended with 0: it
outlives a restart and a crash. Each try is marked before it is launched, and has an exit record as a run's execution has, so a
try that succeeded is never repeated; only where the keeper was killed while the command ran may something be told twice.

One at a time a schedule, in order; four at once. A command that fails, or takes longer than 30 s, is logged, shown by `status`,
and tried again after 10 s, 1 min and 10 min; then when something newer has been told, on reload, or by the next supervisor.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from wfctl.core.event_text import event_message
from wfctl.core.health_events import Word
from wfctl.core.instants import format_instant
from wfctl.core.model import Notify, run_number
from wfctl.core.reasons import signal_name
from wfctl.errors import IoError, WfctlError
from wfctl.keeper.journal import read_end
from wfctl.keeper.protocol import Ended, Holding, Keeper, LaunchRequest, Refused, Report
from wfctl.keeper.records import DamagedRecord
from wfctl.operations import preflight, telling
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.store import noticedir
from wfctl.store.ledger import health, schedules
from wfctl.store.ledger.health import NoticeRow
from wfctl.store.noticedir import NoticePaths
from wfctl.supervisor.health import Health

LOG = logging.getLogger("wfctl.notices")
SCHEMA = "wfctl/event.v1"
AT_ONCE = 4
LIMIT_S, GRACE_S = 25.0, 5.0  #: TERM after 25 s, KILL after 30 s
RETRIES_S = (10.0, 60.0, 600.0)
TAIL = 2048  #: bytes of a run's stderr that are told
_UNSEEN_S = 5.0  #: how long after that the end of a command is waited for, whose keeper may be gone
_LOOK_EVERY_S = 1.0
_PUT_OFF, _PUT_OFF_S = 20, 0.1  #: rounds that may put it off because something is about to come due, and for how long each


@dataclass(slots=True)
class _Flight:
    """One try under way. Times are monotonic seconds."""

    row: NoticeRow  #: as it is since the try was marked
    paths: NoticePaths
    keeper: Keeper
    stop_at: float
    is_stopped: bool = False

    @property
    def gone_at(self) -> float:
        return self.stop_at + GRACE_S + _UNSEEN_S


@dataclass(slots=True)
class _Outcome:
    row: NoticeRow
    paths: NoticePaths
    error: str | None  #: None: told


class Notices:
    """Everything that is to be told. For the thread of the loop."""

    def __init__(self, context: Context, driver: Driver, problems: Health, base: Mapping[str, str]) -> None:
        self._context = context
        self._driver = driver
        self._problems = problems
        self._base = base
        self._flights: dict[str, _Flight] = {}  #: by the name under which the keeper knows it
        self._reports: list[Ended | Refused] = []
        self._retry_at: dict[int, float] = {}  #: by number of what failed
        self._resting: set[int] = set()  #: numbers that failed too often to be tried again unasked
        self._seen: tuple[int, int] | None = None
        self._put_off = 0
        self._is_anew = True
        self._is_dirty = True  #: what is to be told is to be looked at
        driver.on_other = self._take

    # -- the loop's calls ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take up what an earlier supervisor left: what was launched is settled by its record, or by the keeper's word."""
        with self._context.ledger.transaction() as connection:
            for number in health.drop_unreadable(connection):
                LOG.error("notice %d cannot be read and is not told", number, extra={"action": "notice_dropped"})
        for row in self._rows():
            if row.is_launched:
                self._recover(row)
        self._show()
        noticedir.remove_others(self._context.layout, [flight.paths for flight in self._flights.values()])

    def work(self, *, is_quiet: bool) -> bool:
        """Take in what ended, and tell what is to be told; return whether a try ended or was begun.

        `is_quiet`: nothing is about to come due; else it is put off a little. Raise IoError, TimedOut.
        """
        has_settled = self._settle_ended()
        self._watch()
        self._notice_changes()
        if not self._is_dirty:
            return has_settled
        if not is_quiet and self._put_off < _PUT_OFF:
            self._put_off += 1
            return has_settled
        self._put_off, self._is_dirty = 0, False
        telling.look_at_blocked(self._context, is_anew=self._is_anew)
        self._is_anew = False
        return self._start() or has_settled

    def next_timer(self) -> float | None:
        """Return the monotonic time at which a limit, a retry or another look is due."""
        if self._put_off:
            return self._now() + _PUT_OFF_S
        flights = self._flights.values()
        times = [each.stop_at for each in flights if not each.is_stopped] + list(self._retry_at.values())
        if flights:
            times.append(self._now() + _LOOK_EVERY_S)
        return min(times) if times else None

    def reload(self) -> None:
        """The command may be another one: what failed is tried again now."""
        self._retry_at.clear()
        self._resting.clear()
        self._is_anew = self._is_dirty = True

    @property
    def is_busy(self) -> bool:
        """Tell whether a command runs."""
        return bool(self._flights)

    # -- taking in -------------------------------------------------------------------------------------------------------

    def _take(self, report: Report) -> None:
        """Remember what the keeper reports; it is settled in a transaction of its own."""
        if isinstance(report, Ended | Refused) and report.run in self._flights:
            self._reports.append(report)

    def _settle_ended(self) -> bool:
        outcomes = {}
        for report in self._reports:
            flight = self._flights.get(report.run)
            if flight is not None and flight.row.tries == report.k:
                outcomes[report.run] = _Outcome(flight.row, flight.paths, _failure_of(report, flight))
        for name, flight in self._flights.items():
            if name not in outcomes and self._now() >= flight.gone_at and self._is_over(flight):
                outcomes[name] = _Outcome(flight.row, flight.paths, _failure_by_record(flight))
        self._settle(list(outcomes.values()))
        for name in outcomes:
            del self._flights[name]
        self._reports = []
        return bool(outcomes)

    def _is_over(self, flight: _Flight) -> bool:
        """Tell whether nothing more is heard of a try: a keeper that lives reports its end, however long it takes."""
        return flight.keeper.closed or _recorded(flight.paths, flight.row) is not None

    def _settle(self, outcomes: list[_Outcome]) -> None:
        """Write down how tries ended, then let go of their directories."""
        if not outcomes:
            return
        with self._context.ledger.transaction() as connection:
            waiting = health.notices(connection)
            for outcome in outcomes:
                if outcome.error is None:  # what failed before it, and rests, is out of date by now
                    health.remove(connection, [outcome.row.number, *_out_of_date(waiting, outcome.row)])
                else:
                    health.note_failed(connection, outcome.row.number, outcome.error)
        for outcome in outcomes:
            noticedir.remove(outcome.paths)
            self._say(outcome)
        self._show()

    def _say(self, outcome: _Outcome) -> None:
        row = outcome.row
        extra = {"action": "notified" if outcome.error is None else "notify_failed", "schedule": row.schedule_id}
        self._retry_at.pop(row.number, None)
        if outcome.error is None:
            LOG.info("told %s of %s", row.word, row.schedule_id, extra=extra)
            return
        LOG.warning("could not tell %s of %s: %s", row.word, row.schedule_id, outcome.error, extra=extra)
        if row.tries <= len(RETRIES_S):
            self._retry_at[row.number] = self._now() + RETRIES_S[row.tries - 1]
        else:
            self._resting.add(row.number)

    def _show(self) -> None:
        """Let `status` say what could not be told (7.8); each failure was logged."""
        shown = self._problems.problems
        failed = [row for row in self._rows() if row.error is not None]
        if not failed:
            shown.pop("notify", None)
            return
        last = failed[-1]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        shown["notify"] = f"could not tell {last.word} of {last.schedule_id}: {last.error}{more}"

    def _watch(self) -> None:
        """End what takes too long, and keep what it says within bounds."""
        for name, flight in self._flights.items():
            noticedir.bound_said(flight.paths)
            if not flight.is_stopped and self._now() >= flight.stop_at:
                flight.is_stopped = True
                if not flight.keeper.closed:
                    flight.keeper.stop(name, flight.row.tries, timedelta(seconds=GRACE_S))

    # -- telling ---------------------------------------------------------------------------------------------------------

    def _notice_changes(self) -> None:
        """Look again where something was written, by whomever, or a retry is due."""
        connection = self._context.ledger.connection
        seen = (self._context.ledger.commits, int(connection.execute("PRAGMA data_version").fetchone()[0]))
        moment = self._now()
        if seen != self._seen or any(at <= moment for at in self._retry_at.values()):
            self._is_dirty = True
        self._seen = seen

    def _start(self) -> bool:
        """Mark and launch what is to be told and has nothing before it; return whether anything was."""
        rows = self._rows()
        if not rows:
            return False
        if self._driver.keeper.closed or self._problems.is_exhausted:
            self._is_dirty = True  # there is no keeper, or no room: later
            return False
        chosen, silent = self._choose(rows)
        if not chosen and not silent:
            return False
        with self._context.ledger.transaction() as connection:
            health.remove(connection, silent)
            for row, _ in chosen:
                health.mark_launched(connection, row.number)
        for row, notify in chosen:
            self._retry_at.pop(row.number, None)
            self._launch(replace(row, tries=row.tries + 1, is_launched=True), notify)
        if silent:
            self._show()
        return True

    def _choose(self, rows: list[NoticeRow]) -> tuple[list[tuple[NoticeRow, Notify]], list[int]]:
        """Return what to launch now, and the numbers of what nobody is to be told of any more."""
        busy = {row.schedule for row in rows if row.is_launched}
        chosen: list[tuple[NoticeRow, Notify]] = []
        silent = []
        for row in rows:
            if len(self._flights) + len(chosen) >= AT_ONCE:
                break
            if row.schedule in busy or row.number in self._resting:
                continue
            notify = telling.notify_of(self._context, row.schedule)
            if notify is None:
                silent.append(row.number)
                continue
            busy.add(row.schedule)  # what is behind it waits, so that things are told in their order
            if self._retry_at.get(row.number, 0.0) <= self._now():
                chosen.append((row, notify))
        return chosen, silent

    def _launch(self, row: NoticeRow, notify: Notify) -> None:
        paths = NoticePaths(self._context.layout, row.number, row.tries)
        try:
            request = self._request(row, notify, paths)
        except WfctlError as error:
            self._settle([_Outcome(row, paths, error.message)])
            return
        self._flights[request.run] = _Flight(row, paths, self._driver.keeper, self._now() + LIMIT_S)
        self._driver.keeper.launch([request])

    def _request(self, row: NoticeRow, notify: Notify, paths: NoticePaths) -> LaunchRequest:
        """Make the directory of a try, and return its launch. Raise IoError."""
        event = self._event_of(row)
        environment = {
            **self._base,
            "WFCTL_STORE": str(self._context.layout.root),
            "WFCTL_EVENT": row.word,
            "WFCTL_SCHEDULE_ID": row.schedule_id,
            "WFCTL_OCCURRENCE": event["instant"] or "",
            "WFCTL_RUN_ID": event["run_id"] or "",
        }
        name = notify.command[0]
        program = preflight.find_program(name, environment, Path("/"))
        if program is None:
            raise IoError(f"the notify command {name} is not there, or may not be executed")
        noticedir.prepare(paths, json.dumps(event).encode("ascii") + b"\n")
        return LaunchRequest(
            run=_name_of(row.number),
            k=row.tries,
            program=str(program),
            argv=notify.command,
            environment=environment,
            cwd="/",
            umask=0o022,
            stdout=str(paths.said),
            stderr=str(paths.said),
            directory=str(paths.root),
            stdin=str(paths.event),
        )

    def _event_of(self, row: NoticeRow) -> dict[str, Any]:
        """Return the whole event, `wfctl/event.v1`."""
        kept = {name: row.event.get(name) for name in _KEPT}
        found = schedules.find(self._context.ledger.connection, row.schedule)
        coming = None if found is None or not found.is_admitting else found.next_instant
        event: dict[str, Any] = {
            "schema": SCHEMA,
            **kept,
            "event": row.word,
            "schedule_id": row.schedule_id,
            "next_instant": None if coming is None else format_instant(coming),
            "host": socket.gethostname(),
            "store": str(self._context.layout.root),
            "coalesced": row.coalesced,
            "stderr_tail": self._stderr_of(kept["run_id"]) if row.word in _WITH_STDERR else None,
        }
        return {**event, "message": event_message(event)}

    def _stderr_of(self, run_id: Any) -> str | None:
        if not isinstance(run_id, str) or run_number(run_id) is None:
            return None
        return noticedir.tail(self._context.layout.run(run_id).stderr, TAIL)

    # -- what was left ---------------------------------------------------------------------------------------------------

    def _recover(self, row: NoticeRow) -> None:
        """Settle, or adopt, a try that an earlier supervisor marked."""
        name, paths = _name_of(row.number), NoticePaths(self._context.layout, row.number, row.tries)
        flight = _Flight(row, paths, self._driver.keeper, self._now() + LIMIT_S)
        if _recorded(paths, row) is None:
            try:
                state = self._driver.keeper.forbid(name, row.tries).state
            except WfctlError:
                state = Holding.ENDED
            if state is Holding.RUNNING:
                self._flights[name] = flight
                return
            if state is Holding.FORBIDDEN:  # marked, and never launched: told now
                with self._context.ledger.transaction() as connection:
                    health.note_not_launched(connection, row.number)
                return
        self._settle([_Outcome(row, paths, _failure_by_record(flight))])
        self._retry_at.pop(row.number, None)
        self._resting.discard(row.number)

    def _rows(self) -> list[NoticeRow]:
        with self._context.ledger.reading() as connection:
            return health.notices(connection)

    def _now(self) -> float:
        return self._context.clock.monotonic()


_KEPT = ("event", "schedule_id", "at", "since", "failures", "instant", "run_id", "status", "reason", "interrupt")
_WITH_STDERR = frozenset({Word.FAILED, Word.FAILING, Word.OVERDUE, Word.WAITING})
_UNSEEN = "nobody saw how it ended"


def _name_of(number: int) -> str:
    """Return the name under which a keeper knows what is to be told; runs have others."""
    return f"notice-{number:06d}"


def _recorded(paths: NoticePaths, row: NoticeRow) -> Ended | Refused | None:
    """Return what the exit record of exactly this try says."""
    try:
        return read_end(paths.store, paths.root, _name_of(row.number), row.tries)
    except (DamagedRecord, OSError):
        return None


def _failure_by_record(flight: _Flight) -> str | None:
    report = _recorded(flight.paths, flight.row)
    return _UNSEEN if report is None else _failure_of(report, flight)


def _out_of_date(rows: list[NoticeRow], told: NoticeRow) -> list[int]:
    """Return the numbers of what failed before something newer of the same schedule was told."""
    return [row.number for row in rows if row.schedule == told.schedule and row.number < told.number and row.tries]


def _failure_of(report: Ended | Refused, flight: _Flight) -> str | None:
    """Return what a try failed by, in words; None where it did not."""
    if isinstance(report, Refused):
        return f"its command could not be started: {os.strerror(report.errno)}"
    if report.exit_status == 0:
        return None
    said = (noticedir.tail(flight.paths.said, 500) or "").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if flight.is_stopped:
        return f"its command took longer than {LIMIT_S:g} s and was ended{last}"
    how = f"exit status {report.exit_status}" if report.signal is None else f"ended by {signal_name(report.signal)}"
    return f"its command failed, {how}{last}"
