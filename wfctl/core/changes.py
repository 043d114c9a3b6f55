"""What pause, resume, delete and edits do to what was due before them (contract 3.4, 5.11, 5.12, 5.14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from wfctl.core.admission import REANCHOR_AFTER
from wfctl.core.instants import format_instant
from wfctl.core.model import (
    Candidate,
    DueInstants,
    IntervalTrigger,
    Json,
    ScheduleDefinition,
    Settlement,
    Span,
    Status,
    Trigger,
)


class Cause(StrEnum):
    """Why something due is settled without ever being considered; the word is the code of the reason."""

    EDITED = "edited"
    PAUSED = "paused"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What a change settles before it takes effect: the rows, oldest first, and the instant up to which all is consumed."""

    settled: tuple[Settlement, ...]
    watermark: datetime | None  #: None: nothing was consumed


def close_all(due: DueInstants, candidate: Candidate | None, *, cause: Cause, now: datetime) -> Closing:
    """Given what is due and held, return the rows by which a trigger change, a pause or a delete ends it.

    What was due is `skipped-misfire`, the candidate `coalesced`, both with the cause as their reason.
    Source: contract 3.4, 5.11, 5.12; bounded as 5.2.
    """
    rows = _rows_of(due, cause=cause, now=now)
    if candidate:
        reason = {"code": cause.value, "held_since": format_instant(candidate.held_since)}
        late = now - candidate.instant
        rows.append(Settlement(instant=candidate.instant, status=Status.COALESCED, reason=reason, lateness=late))
    return Closing(settled=tuple(sorted(rows, key=lambda row: row.instant)), watermark=now)


def close_missed(due: DueInstants, *, lateness: timedelta, now: datetime) -> Closing:
    """Given what is due, return the rows by which a change of `misfire` or `lateness` ends what was missed before it.

    On-time instants stay due, for the new definition. Source: contract 3.4.
    """
    missed = DueInstants(tuple(instant for instant in due.instants if now - instant > lateness), due.older)
    return Closing(settled=tuple(_rows_of(missed, cause=Cause.EDITED, now=now)), watermark=_last(missed))


def _rows_of(due: DueInstants, *, cause: Cause, now: datetime) -> list[Settlement]:
    reason = {"code": cause.value}
    spans: list[tuple[datetime, Span | None]] = [(due.older.last, due.older)] if due.older else []
    return [
        Settlement(instant=instant, status=Status.SKIPPED_MISFIRE, reason=reason, span=span, lateness=now - instant)
        for instant, span in [*spans, *((instant, None) for instant in due.instants)]
    ]


def _last(due: DueInstants) -> datetime | None:
    if due.instants:
        return due.instants[-1]
    return due.older.last if due.older else None


def must_reanchor(floor: datetime, now: datetime) -> bool:
    """Tell whether the clock stands so far before what is consumed that the schedule starts anew at `now` (5.14)."""
    return floor - now > REANCHOR_AFTER


def anchor_before(trigger: Trigger, anchor: datetime, now: datetime) -> datetime | None:
    """Given an anchor that lies after `now`, return one of the same grid that does not; None where nothing need change.

    An interval that was made in the false future must not be silent until then (4.4).
    """
    if not isinstance(trigger, IntervalTrigger) or anchor <= now:
        return None
    return anchor - -((now - anchor) // trigger.every) * trigger.every


def changes_trigger(old: ScheduleDefinition, new: ScheduleDefinition) -> bool:
    """Tell whether an edit moves the calendar: a change of trigger or zone (3.4)."""
    return old.trigger != new.trigger


def changes_misfire(old: ScheduleDefinition, new: ScheduleDefinition) -> bool:
    """Tell whether an edit changes what counts as missed or what becomes of it (3.4)."""
    return old.misfire != new.misfire or old.lateness != new.lateness


def changed_fields(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[str]:
    """Given two definitions as plain values, return the names of the fields that differ, dotted within tables."""
    names: list[str] = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            names += [f"{key}.{name}" for name in changed_fields(before, after)]
        elif before != after:
            names.append(key)
    return names


def clock_reason(floor: datetime, now: datetime) -> dict[str, Json]:
    """Return the data of a clock event: where the clock stood and where it stands."""
    return {"code": "clock", "from": format_instant(floor), "to": format_instant(now)}
