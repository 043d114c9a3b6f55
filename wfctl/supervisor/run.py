"""`wfctl supervise`: the service as a process, with signals, a log and word to systemd."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from wfctl.clock import pause
from wfctl.core.duration import format_duration
from wfctl.core.instants import format_instant
from wfctl.core.trigger import stamps
from wfctl.errors import StoreLocked
from wfctl.rpc.door import open_store
from wfctl.supervisor.desk import status_of
from wfctl.supervisor.logs import log_to_stderr
from wfctl.supervisor.notify import Notifier
from wfctl.supervisor.pauses import Pauses
from wfctl.supervisor.service import SupervisorService
from wfctl.supervisor.statusline import StatusLine

LOG = logging.getLogger("wfctl.supervisor")
_CUT_SHORT = 130  #: the exit status of a drain that a second SIGINT ended (7.6)
_STANDBY_EVERY_S = 0.5
_START_S = 300.0  #: asked of systemd at each step of a start, so that a long recovery is not cut off
_MARGIN_S = 20.0  #: asked for beyond the drain's grace, as the shipped unit has it


def supervise(
    root: Path, *, flags: Mapping[str, Any], standby: bool, until_idle: bool, log_format: str | None, environ: Mapping[str, str]
) -> int:
    """Run the supervisor of a store in the foreground until it is told to end; return the exit status.

    Raise StoreLocked unless `standby`; NoStore, NotAllowed, DamagedStore, MissingExtra for bad settings, IoError.
    """
    log_to_stderr(log_format, environ)
    _dump_stacks_when_killed()
    notifier = Notifier(environ)
    notifier.extend(_START_S)
    named = {(key if "." in key else f"supervisor.{key}"): value for key, value in flags.items()}
    with open_store(root) as store:
        service = SupervisorService(store, flags=named)
        service.until_idle = until_idle
        signals = _Signals(service)
        service.on_progress = lambda: notifier.extend(_START_S)
        signals.install()
        try:
            counts = _open(service, signals, notifier, standby=standby)
            if counts is None:
                return 0
            signals.pass_on()
            pauses = Pauses()
            service.on_quiet = pauses.look
            pauses.begin()
            _say_ready(service, counts)
            _tell(service, signals, notifier)
            service.run()
            going = len(service.driver.live)
        finally:
            signals.keep()
            notifier.stopping()
            service.close()
            signals.restore()
    left = f"; {going} run{'' if going == 1 else 's'} of it {'goes' if going == 1 else 'go'} on" if going else ""
    LOG.info("ended%s", left, extra={"action": "supervisor_ended"})
    return _CUT_SHORT if signals.is_cut_short else 0


def _tell(service: SupervisorService, signals: _Signals, notifier: Notifier) -> None:
    """Tell systemd that the service is ready, and from now on how it is: from the loop alone, after its rounds."""
    line = StatusLine(service)
    if notifier.is_heard:
        line.refresh()
        notifier.ready(line.text)

    def after_round() -> float | None:
        signals.say_repeated()
        if not notifier.is_heard:
            return None
        again = line.refresh()
        notifier.status(line.text)
        if service.is_ending:
            notifier.extend(_MARGIN_S)  # what is being ended may take its time
        return min((each for each in (again, notifier.beat()) if each is not None), default=None)

    def drain_begins() -> None:
        notifier.stopping()
        notifier.extend(service.settings.drain_grace_s + _MARGIN_S, is_first=True)

    service.on_round, service.on_reload, service.on_drain = after_round, notifier.reloading, drain_begins


def _dump_stacks_when_killed() -> None:
    """SIGQUIT, and SIGABRT, which a watchdog sends: write to stderr where each thread is, then die of it."""
    if not faulthandler.is_enabled():
        faulthandler.enable()
    faulthandler.register(signal.SIGQUIT, chain=True)


def _open(service: SupervisorService, signals: _Signals, notifier: Notifier, *, standby: bool) -> dict[str, int] | None:
    """Take the store; in standby wait for it, and to systemd be starting meanwhile. None when a signal ended the wait."""
    has_said = False
    while not signals.is_ending:
        try:
            return service.open()
        except StoreLocked as error:
            if not standby:
                raise
            if not has_said:
                LOG.info("standing by: %s", error.message, extra={"action": "standby"})
                notifier.status(f"standing by: {error.message}")
                has_said = True
            notifier.extend(_START_S)
            pause(_STANDBY_EVERY_S)
    return None


def _say_ready(service: SupervisorService, counts: Mapping[str, int]) -> None:
    """Log what runs here, what was recovered, and that it is ready."""
    croniter, tz_database = stamps()
    status = status_of(service)
    LOG.info(
        "wfctl %s, store %s, pid %d, croniter %s, tz database %s",
        status.version,
        status.store,
        status.pid,
        croniter,
        tz_database,
        extra={"action": "supervisor_started"},
    )
    found = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if found:
        LOG.info("recovered: %s", found, extra={"action": "recovered"})
    coming = (
        f"next {status.next_schedule_id} at {format_instant(status.next_instant)}" if status.next_instant else "nothing due"
    )
    total = sum(status.schedules.values())
    noun = "schedule" if total == 1 else "schedules"
    text = f"ready: {total} {noun}, {status.slots_total} slots, {coming}"
    LOG.info("%s", text, extra={"action": "ready"})


class _Signals:
    """What each signal does to the service; a handler only sets a flag and wakes the loop.

    One that comes before the loop is kept until `pass_on`, so that a start is not cut in the middle of a recovery.
    """

    def __init__(self, service: SupervisorService) -> None:
        self.is_ending = False
        self.is_cut_short = False
        self._service = service
        self._has_loop = False
        self._interrupts = 0
        self._terms = 0
        self._terms_said = 1  #: of the first one the drain speaks
        self._old: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over."""
        handlers = {signal.SIGTERM: self._term, signal.SIGINT: self._interrupt, signal.SIGHUP: self._hang_up}
        for number, handler in handlers.items():
            self._old[number] = signal.signal(number, handler)

    def pass_on(self) -> None:
        """From now on wake the loop; it is told what came before."""
        signal.set_wakeup_fd(self._service.wake_descriptor, warn_on_full_buffer=False)
        self._has_loop = True
        if self.is_ending:
            self._service.ask_to_stop()

    def keep(self) -> None:
        """From now on wake nobody: another SIGTERM while the store is being released changes nothing."""
        signal.set_wakeup_fd(-1)
        self._has_loop = False

    def restore(self) -> None:
        """Give the signals back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old.clear()

    def say_repeated(self) -> None:
        """Log each SIGTERM after the first; they change nothing. Not for a handler."""
        while self._terms_said < self._terms:
            self._terms_said += 1
            LOG.info("SIGTERM again: the drain goes on as it was", extra={"action": "sigterm_again"})

    def _term(self, number: int, frame: FrameType | None) -> None:
        self._terms += 1
        self._terminate()

    def _terminate(self) -> None:
        self.is_ending = True
        if self._has_loop:
            self._service.ask_to_stop()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        is_second = self.is_ending and self._interrupts > 1
        self._terminate()
        live = len(self._service.driver.live) if self._has_loop else 0
        if not live:
            return
        if is_second:
            self.is_cut_short = True
            self._service.ask_to_cut()
            return
        grace = format_duration(timedelta(seconds=self._service.settings.drain_grace_s))
        dash = "\N{EN DASH}" if (sys.stderr.encoding or "").lower().replace("-", "") == "utf8" else "-"
        said = f"draining {live} run{'' if live == 1 else 's'} ({grace}) {dash} Ctrl-C again ends the wait\n"
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), said.encode())

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._has_loop:
            self._service.ask_to_reload()
