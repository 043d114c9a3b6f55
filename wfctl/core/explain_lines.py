"""Lines that every explanation may have: what the instant is, who was there, and what the clock did (contract 5.10, 5.14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from wfctl.core.duration import brief, format_duration
from wfctl.core.explanation import ExplanationFacts, Line, Paused, Recorded, Session
from wfctl.core.instants import format_instant, moment
from wfctl.core.model import CronTrigger, IntervalTrigger, Trigger
from wfctl.core.preview import preview
from wfctl.core.trigger import CalendarError

SETTLED_UNSEEN = frozenset({"edited", "paused", "deleted", "clock"})  #: a change settled it, and no decision about it
_TICK = timedelta(microseconds=1)
_NOTES = {
    "gap": "moved here, since a clock change leaves out the time it names",
    "fold-first": "the first pass of an hour that a clock change repeats",
    "fold-second": "the second pass of an hour that a clock change repeats",
}


def trigger_words(trigger: Trigger, anchor: datetime | None = None) -> str:
    """Return a trigger as it is written: `*/20 * * * *, UTC`, `every 10m, counted from …`, `once`."""
    if isinstance(trigger, CronTrigger):
        return f"{trigger.expression}, {trigger.timezone}"
    if isinstance(trigger, IntervalTrigger):
        since = "" if anchor is None else f", counted from {format_instant(anchor)}"
        return f"every {format_duration(trigger.every)}{since}"
    return f"once at {format_instant(trigger.at)}"


def definition_source(facts: ExplanationFacts) -> str:
    """Return where the definition is known from, with what its calendar was read by."""
    found = facts.in_force
    return f"definition rev {found.revision}, croniter {found.croniter}, tz {found.tz_database}"


def instant_line(facts: ExplanationFacts) -> Line:
    """Say of which revision the instant is, or that its calendar does not name it."""
    found = facts.in_force
    words = trigger_words(found.trigger, found.anchor)
    text = f"instant of revision {found.revision} ({words})"
    if facts.is_instant is False:
        text = f"no instant of revision {found.revision} ({words}), and recorded all the same"
    note = _note(facts)
    if note:
        text += f", {note}"
    if facts.why_unknown:
        text += f"; {facts.why_unknown}"
    data = {"revision": found.revision, "croniter": found.croniter, "tz_database": found.tz_database}
    return Line(facts.instant, "instant", text, definition_source(facts), data)


def _note(facts: ExplanationFacts) -> str | None:
    """What a clock change of its zone did with the instant."""
    if not facts.is_instant or not isinstance(facts.in_force.trigger, CronTrigger):
        return None
    try:
        row = next(iter(preview(facts.in_force.trigger, None, facts.instant - _TICK, 1)), None)
    except (CalendarError, OverflowError):
        return None
    return _NOTES.get(row.note or "") if row is not None and row.instant == facts.instant else None


def clock_lines(facts: ExplanationFacts) -> Iterator[Line]:
    """Say that the clock was set back behind the instant, so that it came, or comes, twice."""
    for step in facts.clock_steps:
        text = (
            f"the clock was set back from {moment(step.floor, facts.instant)} by {brief(step.floor - step.at)}: what was "
            "recorded for this time and had admitted nothing was withdrawn, and the time came again"
        )
        data = {"from": format_instant(step.floor), "to": format_instant(step.at)}
        yield Line(step.at, "clock", text, "clock event", data)


# Who was there ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Away:
    """A time without a supervisor."""

    since: datetime | None  #: None: there never had been one
    until: datetime | None  #: None: there is none yet
    was_clean: bool  #: it ended in good order; else `since` is its last trace
    before: Session | None
    after: Session | None


def supervisor_at(facts: ExplanationFacts, at: datetime) -> str | None:
    """Return which supervisor was there, as a source: `supervisor host-a pid 812`; None where none is known of."""
    found = _session_at(facts, at)
    return None if found is None else f"supervisor {found.host} pid {found.pid}"


def _session_at(facts: ExplanationFacts, at: datetime) -> Session | None:
    begun = [each for each in facts.sessions if each.started_at <= at]
    last = begun[-1] if begun else None
    return last if last is not None and (last.ended_at is None or last.ended_at >= at) else None


def away_at(facts: ExplanationFacts, instant: datetime) -> Away | None:
    """Return the time without a supervisor in which an instant lies; None where one was there, as far as is known."""
    found = gap_at(facts, instant)
    return None if found is not None and not found.was_clean and _was_decided_by(facts, found.after) else found


def gap_at(facts: ExplanationFacts, moment: datetime) -> Away | None:
    """Return the time between two supervisors in which a moment lies.

    One that was killed leaves no trace of its end: after its last one it counts as away if the next began later than the
    moment, or if none is there now.
    """
    begun = [each for each in facts.sessions if each.started_at <= moment]
    before = begun[-1] if begun else None
    after = next((each for each in facts.sessions if each.started_at > moment), None)
    until = after.started_at if after is not None else None
    if before is None:
        return Away(None, until, True, None, after) if facts.knows_all_sessions else None
    if before.ended_at is not None:
        return None if before.ended_at >= moment else Away(before.ended_at, until, True, before, after)
    if before.seen_at >= moment or (after is None and facts.presence is not None):
        return None
    return Away(before.seen_at, until, False, before, after)


def _was_decided_by(facts: ExplanationFacts, after: Session | None) -> bool:
    """Tell whether the instant was considered before the next supervisor came: then the one before was there still."""
    row = facts.situation
    is_considered = isinstance(row, Recorded) and (row.reason or {}).get("code") not in SETTLED_UNSEEN
    return is_considered and isinstance(row, Recorded) and (after is None or row.recorded_at < after.started_at)


def away_lines(away: Away, facts: ExplanationFacts) -> Iterator[Line]:
    """Say when the supervisor went, and when the next one came."""
    data = {
        "from": None if away.since is None else format_instant(away.since),
        "until": None if away.until is None else format_instant(away.until),
    }
    if away.before is not None:
        who = f"the supervisor, pid {away.before.pid} on {away.before.host},"
        went = f"{who} ended" if away.was_clean else f"the last trace of {who[:-1]}; it was killed, or the machine went down"
        yield Line(away.since, "away", went, "supervisor sessions", data)
    elif away.until is None:
        yield Line(None, "away", "no supervisor was ever there", "supervisor sessions", data)
    if away.after is not None and away.until is not None:
        gap = "" if away.since is None else f", {brief(away.until - away.since)} later"
        first = "the first supervisor" if away.before is None else "the next supervisor"
        text = f"{first}, pid {away.after.pid} on {away.after.host}, began{gap}"
        yield Line(away.until, "back", text, "supervisor sessions", data)
    elif away.before is not None:
        yield Line(facts.now, "away", "no supervisor is there", "supervisor sessions", data)


def away_words(away: Away, beside: datetime) -> str:
    """Return a time without a supervisor as a clause."""
    since = "" if away.since is None else f" since {moment(away.since, beside)}"
    if away.until is None:
        return f"no supervisor is there{since}" if away.since else "no supervisor was ever there"
    began = f" until {moment(away.until, beside)}"
    return f"no supervisor was there{f' from {moment(away.since, beside)}' if away.since else ''}{began}"


# Pauses -------------------------------------------------------------------------------------------------------------------


def pause_lines(pause: Paused) -> Iterator[Line]:
    """Say when a pause began and ended, by whom, and why."""
    why = f": {pause.reason}" if pause.reason else ""
    data = {"reason": pause.reason, "actor": pause.actor, "until": None if pause.until is None else format_instant(pause.until)}
    yield Line(pause.since, "paused", f"paused by {pause.actor}{why}", "pause", data)
    if pause.until is not None:
        by = f" by {pause.resumed_by}" if pause.resumed_by else ""
        text = f"resumed{by}; {brief(pause.until - pause.since)} were paused, and are never replayed"
        yield Line(pause.until, "resumed", text, "pause", {"actor": pause.resumed_by})
