"""The line that `systemctl status` shows (sd_notify(3), STATUS=): what is running, what comes next, and what is wrong.

It tells times, not how long it is until then, so that it stays true while the loop sleeps: nothing is woken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from wfctl.core.instants import format_instant
from wfctl.store.ledger import runs, schedules

if TYPE_CHECKING:
    from wfctl.supervisor.service import SupervisorService

_EVERY_S = 1.0  #: how often it is made anew at most
_COST = 20.0  #: and not before this many times what making it took has passed


class StatusLine:
    """Makes the line anew when something has changed, but not for each of many changes at once."""

    def __init__(self, service: SupervisorService) -> None:
        self.text = ""
        self._service = service
        self._seen: object = None
        self._next_at = 0.0

    def refresh(self) -> float | None:
        """Bring `text` up to date; return in how many seconds to do so, where it was made only just now."""
        service = self._service
        ledger = service.context.ledger
        version = int(ledger.connection.execute("PRAGMA data_version").fetchone()[0])
        seen = (ledger, ledger.commits, version, dict(service.problems), service.is_held, service.is_ending, service.settings)
        if seen == self._seen:
            return None
        monotonic = service.context.clock.monotonic
        begun = monotonic()
        is_urgent = isinstance(self._seen, tuple) and seen[3:] != self._seen[3:]  # a problem, a drain, other settings
        if begun < self._next_at and not is_urgent:
            return self._next_at - begun
        self.text = status_line(service)
        self._seen = seen
        self._next_at = begun + max(_EVERY_S, _COST * (monotonic() - begun))
        return None


def status_line(service: SupervisorService) -> str:
    """Return the line for a supervisor as it is now."""
    context = service.context
    now = context.now()
    with context.ledger.reading() as connection:
        used = runs.slots_used(connection)
        coming = schedules.next_due(connection)
        counts = schedules.counts(connection)
    live = len(service.driver.live)
    return compose(
        problems=service.problems.values(),
        drain=f"draining, {_number(live, 'run')} left" if service.is_ending else "held by drain" if service.is_held else None,
        slots=(used, service.settings.max_concurrent_runs),
        coming=coming if coming is not None and coming[1] > now else None,
        counts=counts,
        now=now,
    )


def compose(
    *,
    problems: Iterable[str],
    drain: str | None,
    slots: tuple[int, int],
    coming: tuple[str, datetime] | None,
    counts: Mapping[str, int],
    now: datetime,
) -> str:
    """Given what there is to say, return it as one line, what is wrong first."""
    parts = [" ".join(problem.split()) for problem in problems]
    if drain is not None:
        parts.append(drain)
    parts.append(f"{slots[0]}/{slots[1]} slots")
    if coming is not None and drain is None:
        parts.append(f"next {coming[0]} at {clock_time(coming[1], now)}")
    total = _number(counts["total"], "schedule")
    paused = f", {counts['paused']} paused" if counts["paused"] else ""
    blocked = f", {counts['blocked']} BLOCKED" if counts["blocked"] else ""
    return " · ".join([*parts, total + paused + blocked])


def clock_time(instant: datetime, now: datetime) -> str:
    """Return a coming instant as `14:00Z`, with its seconds where it has some, and with its date where it is a day away."""
    text = format_instant(instant.replace(microsecond=0))
    shown = text[11:].replace(":00Z", "Z") if text.endswith(":00Z") else text[11:]
    return shown if instant - now < timedelta(days=1) else f"{text[:10]} {shown}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
