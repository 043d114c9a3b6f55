"""`wfctl supervise`: the service as a process, with signals, a log and word to systemd."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from wfctl.clock import pause
from wfctl.core.instants import format_instant
from wfctl.core.trigger import stamps
from wfctl.errors import StoreLocked
from wfctl.rpc.door import open_store
from wfctl.supervisor.desk import status_of
from wfctl.supervisor.logs import log_to_stderr
from wfctl.supervisor.notify import Notifier
from wfctl.supervisor.service import SupervisorService

LOG = logging.getLogger("wfctl.supervisor")
_CUT_SHORT = 130  #: the exit status of a drain that a second SIGINT ended (7.6)
_STANDBY_EVERY_S = 0.5


def supervise(
    root: Path, *, flags: Mapping[str, Any], standby: bool, until_idle: bool, log_format: str, environ: Mapping[str, str]
) -> int:
    """Run the supervisor of a store in the foreground until it is told to end; return the exit status.

    Raise StoreLocked unless `standby`; NoStore, NotAllowed, DamagedStore, MissingExtra for bad settings, IoError.
    """
    log_to_stderr(log_format)
    named = {(key if "." in key else f"supervisor.{key}"): value for key, value in flags.items()}
    with open_store(root) as store:
        service = SupervisorService(store, flags=named)
        service.until_idle = until_idle
        signals = _Signals(service)
        notifier = Notifier(environ)
        counts = _open(service, signals, standby=standby)
        if counts is None:
            return 0
        service.on_round, service.on_reload = notifier.beat, notifier.reloading
        try:
            signals.install()
            _say_ready(service, counts, notifier)
            service.run()
            notifier.send("STOPPING=1")
        finally:
            signals.restore()
            service.close()
    LOG.info("ended", extra={"action": "supervisor_ended"})
    return _CUT_SHORT if signals.is_cut_short else 0


def _open(service: SupervisorService, signals: _Signals, *, standby: bool) -> dict[str, int] | None:
    """Take the store; in standby wait for it. None when a signal ended the wait."""
    has_said = False
    with signals.ending_a_wait() as ended:
        while not ended:
            try:
                return service.open()
            except StoreLocked as error:
                if not standby:
                    raise
                if not has_said:
                    LOG.info("standing by: %s", error.message, extra={"action": "standby"})
                    has_said = True
                pause(_STANDBY_EVERY_S)
    return None


def _say_ready(service: SupervisorService, counts: Mapping[str, int], notifier: Notifier) -> None:
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
    text = f"ready: {total} schedules, {status.slots_total} slots, {coming}"
    LOG.info("%s", text, extra={"action": "ready"})
    notifier.ready(text)


class _Signals:
    """What each signal does to the service; a handler only sets a flag and wakes the loop."""

    def __init__(self, service: SupervisorService) -> None:
        self.is_cut_short = False
        self._service = service
        self._interrupts = 0
        self._old: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over."""
        handlers = {signal.SIGTERM: self._terminate, signal.SIGINT: self._interrupt, signal.SIGHUP: self._hang_up}
        for number, handler in handlers.items():
            self._old[number] = signal.signal(number, handler)
        signal.set_wakeup_fd(self._service.wake_descriptor, warn_on_full_buffer=False)

    def restore(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old.clear()

    def ending_a_wait(self) -> _EndedWait:
        """While the store is waited for, SIGTERM and SIGINT end the wait."""
        return _EndedWait()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._service.ask_to_stop()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._service.ask_to_stop()
            live = len(self._service.driver.live)
            grace = self._service.settings.drain_grace_s
            if live:
                os.write(sys.stderr.fileno(), f"draining {live} runs ({grace:g} s); Ctrl-C again ends the wait\n".encode())
        elif self._service.driver.live:
            self.is_cut_short = True
            self._service.ask_to_cut()

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        self._service.ask_to_reload()


class _EndedWait:
    """A flag that SIGTERM and SIGINT raise while the context lasts."""

    def __init__(self) -> None:
        self._is_set = False
        self._old: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self._is_set

    def __enter__(self) -> _EndedWait:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._old[number] = signal.signal(number, self._set)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self._is_set = True
