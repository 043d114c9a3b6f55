"""Short words for tables about one decision: instants by their distance from NOON, facts by what differs from the usual."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from wfctl.core.admission import PASSED, Decision, ScheduleFacts, Verdict
from wfctl.core.model import Candidate, DueInstants, IntervalTrigger, Misfire, Overlap, ScheduleDefinition, Span, run_name

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  #: `now` of every table
FULL = {"code": "capacity", "limit": 4}
REJECTED = Verdict(reason={"code": "preflight", "problem": "no such program: /srv/report"})


def ago(seconds: float) -> datetime:
    """The instant so many seconds before NOON."""
    return NOON - timedelta(seconds=seconds)


def due(*seconds: float, older: Span | None = None) -> DueInstants:
    """What came due, in seconds before NOON, oldest first."""
    return DueInstants(tuple(map(ago, seconds)), older)


def held(seconds: float, *, since: float | None = None, can_expire: bool = True) -> Candidate:
    """A candidate whose instant was so many seconds before NOON, held since then."""
    return Candidate(
        instant=ago(seconds), held_since=ago(seconds if since is None else since), can_expire=can_expire, reason=FULL
    )


def facts(
    schedule_id: str = "report",
    *,
    overlap: str = "skip",
    misfire: str = "skip",
    limit: int | None = None,
    lateness: float = 60,
    active: int | Iterable[str] = 0,
    floor: datetime | None = None,
    verdict: Verdict | None = PASSED,
    **more: Any,
) -> ScheduleFacts:
    """The facts of a schedule that has nothing due, nothing held and nothing running, unless said."""
    return ScheduleFacts(
        schedule_id=schedule_id,
        definition=ScheduleDefinition(
            deployment="report",
            trigger=IntervalTrigger(timedelta(seconds=30)),
            overlap=Overlap(overlap),
            max_active_runs=(limit or 2) if overlap == "parallel" else None,
            misfire=Misfire(misfire),
            lateness=timedelta(seconds=lateness),
        ),
        active=tuple(run_name(900 + n) for n in range(active)) if isinstance(active, int) else tuple(active),
        floor=floor or ago(3600),
        verdict=verdict,
        **more,
    )


def fate(decision: Decision, seconds: float) -> str:
    """What became of the instant: the status of its only row, or how it is held, or `untouched`."""
    instant = ago(seconds)
    rows = [row for row in decision.settled if row.instant == instant]
    assert len(rows) <= 1
    candidate = decision.candidate
    if candidate and candidate.instant == instant:
        assert not rows
        return "held, can expire" if candidate.can_expire else "held, no expiry"
    return str(rows[0].status) if rows else "untouched"


def because(decision: Decision, seconds: float) -> dict[str, Any]:
    """The reason of the instant's row, or of its being held."""
    rows = [row.reason or {} for row in decision.settled if row.instant == ago(seconds)]
    candidate = decision.candidate
    return dict(rows[0] if rows or candidate is None else candidate.reason)


def rows(decision: Decision) -> list[tuple[float, str]]:
    """The rows in their order: seconds before NOON, status."""
    return [((NOON - row.instant).total_seconds(), str(row.status)) for row in decision.settled]
