"""The only `datetime.now` and the only waiting. Everything else is handed a time (contract 9.4)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path


class Clock(Protocol):
    """What tells the time: the wall clock decides instants, the monotonic one measures durations."""

    @property
    def is_system(self) -> bool:
        """Whether this is the machine's own clock, so that the kernel's timers may be used to wait for it."""

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC datetime."""

    def monotonic(self) -> float:
        """Return seconds that steps of the wall clock neither stretch nor cut."""


class SystemClock:
    """The machine's clock."""

    is_system = True

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC datetime."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some fixed point."""
        return time.monotonic()


class GivenClock:
    """A clock that the caller of the Python API handed over, held to the rules of contract 9.4."""

    is_system = False

    def __init__(self, given: Any) -> None:
        self._given = given
        self._monotonic = getattr(given, "monotonic", None) or time.monotonic

    def now(self) -> datetime:
        """Return the given clock's time in UTC. Raise InvalidArgument when it is no aware datetime."""
        now = self._given.now()
        if not isinstance(now, datetime) or now.tzinfo is None:
            raise InvalidArgument(f"the clock's now() gave {now!r}; it must give an aware datetime, such as datetime.now(UTC)")
        return now.astimezone(UTC)

    def monotonic(self) -> float:
        """Return the given clock's seconds, or the system's where it has none."""
        return float(self._monotonic())


def as_clock(given: Any = None) -> Clock:
    """Given nothing, a clock of ours or any object with `now()`, return a Clock. Raise InvalidArgument for anything else."""
    if given is None:
        return SystemClock()
    if isinstance(given, (SystemClock, GivenClock)):
        return given
    if not callable(getattr(given, "now", None)):
        raise InvalidArgument(f"{type(given).__name__} is no clock: it has no now()")
    return GivenClock(given)


def local_zone(etc: str | Path = "/etc") -> str:
    """Return the name of the zone that this machine's clock is set to, which is the one that cron reads its lines in."""
    try:
        _, found, name = os.readlink(f"{etc}/localtime").rpartition("zoneinfo/")  # noqa: PTH115
    except OSError:
        found, name = "", ""
    if not found:
        try:
            with open(f"{etc}/timezone", encoding="utf-8") as file:
                name = file.read().strip()
        except (OSError, UnicodeDecodeError):
            name = ""
    return "UTC" if name in ("", "Etc/UTC", "Etc/UCT", "UCT", "Universal", "Zulu") else name


def pause(seconds: float) -> None:
    """Wait for real time to pass; for retries of a few milliseconds only."""
    time.sleep(seconds)
