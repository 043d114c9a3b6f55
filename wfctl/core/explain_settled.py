"""Why an instant was settled without a run: what stood in its way, as sentences made of the recorded reason (contract 5.10).

Each code that such a row can have (contract 8.7) has a teller: a clause for the verdict, and lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from wfctl.core.alternatives import Setting
from wfctl.core.duration import brief, format_duration
from wfctl.core.explain_lines import away_at, away_words, supervisor_at
from wfctl.core.explanation import ExplanationFacts, Line, Recorded, RunStory
from wfctl.core.instants import moment, parse_instant
from wfctl.core.model import Candidate, Json, Misfire, Overlap, Reason, ScheduleDefinition
from wfctl.core.reasons import phrase
from wfctl.core.run_story import was_doing, what_came_of

_LISTED = 5  #: runs that get a line each


class Told(NamedTuple):
    """What is told of a reason."""

    clause: str  #: after `it did not run, and will not: `
    lines: Sequence[Line]
    commands: Sequence[str] = ()


Teller = Callable[[ExplanationFacts, Recorded, Mapping[str, Json]], Told]


def tell(facts: ExplanationFacts, row: Recorded) -> Told:
    """Given a row that admitted nothing, return why, in a clause and in lines."""
    reason = row.reason or {}
    teller = TELLERS.get(str(reason.get("code")))
    if teller is None:  # a code of a newer version
        return Told(phrase(reason) or row.status.value, [_because(facts, row, phrase(reason) or row.status.value)])
    return teller(facts, row, reason)


def _because(facts: ExplanationFacts, row: Recorded, text: str, **data: Json) -> Line:
    code = str((row.reason or {}).get("code", row.status.value))
    return Line(row.recorded_at, code, text, None, data)


def considered_line(facts: ExplanationFacts, row: Recorded) -> Line:
    """Say how late the instant was considered, and how late is allowed."""
    late = row.lateness if row.lateness is not None else row.recorded_at - facts.instant
    if row.span is not None:
        late = row.recorded_at - facts.instant
    definition = facts.in_force.definition
    allowed = f"allowed {format_duration(definition.lateness)}"
    if definition.misfire is Misfire.LATEST:
        allowed = "misfire=latest: however late"
    data = {"lateness_s": late.total_seconds(), "allowed_s": definition.lateness.total_seconds()}
    text = f"considered {brief(late)} late ({allowed})"
    if (row.reason or {}).get("code") in ("capacity", "outlived", "newer"):
        text = f"settled {brief(late)} after its instant ({allowed})"
    return Line(row.recorded_at, "considered", text, supervisor_at(facts, row.recorded_at), data)


# The tellers --------------------------------------------------------------------------------------------------------------


def policy_words(definition: ScheduleDefinition) -> str:
    """Return the overlap policy as it is written."""
    if definition.overlap is Overlap.PARALLEL:
        return f"overlap=parallel with max_active_runs={definition.limit}"
    return f"overlap={definition.overlap.value}"


def _overlap(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    names = [str(name) for name in reason.get("runs") or ()]
    stories = [facts.runs.get(name) or RunStory(id=name, status=None) for name in names]
    doing = [was_doing(run, row.recorded_at, facts.instant) for run in stories[:_LISTED]]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    text = f"{policy_words(facts.in_force.definition)}, and {', '.join(doing) or 'its room was taken'}{more}"
    lines = [_because(facts, row, text, runs=names, limit=reason.get("limit")), *in_the_way(facts, stories)]
    if len(names) == 1:
        clause = doing[0].partition(" (")[0]
    else:
        clause = f"{len(names)} runs held all {reason.get('limit')} slots of the schedule"
    return Told(clause, lines, [f"wfctl run {verb} {name}" for name in names[:1] for verb in ("show", "logs")])


def in_the_way(facts: ExplanationFacts, stories: Sequence[RunStory]) -> Iterator[Line]:
    """Say of each run that was in the way when it ended, or that it still is there."""
    for run in stories[:_LISTED]:
        line = what_came_of(run, facts.instant, facts.now)
        if line is not None:
            yield line


def _capacity(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    limit = reason.get("limit")
    every = f"all {limit} execution slots were taken" if limit else "no execution slot was free"
    allowed = format_duration(facts.in_force.definition.lateness)
    text = f"{every} (max_concurrent_runs) until it was later than the {allowed} allowed: it was held for a slot, and expired"
    clause = f"{every} for longer than the {allowed} it may be late"
    return Told(clause, [_because(facts, row, text, limit=limit)], ["wfctl runs --status running"])


def _missed(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    seconds = reason.get("allowed_s")
    allowed = _allowance(facts, seconds)
    late = brief(row.recorded_at - facts.instant)
    away = away_at(facts, facts.instant)
    text = f"misfire=skip: an instant that is later than {allowed} is let pass"
    lines = [_because(facts, row, text, allowed_s=seconds)]
    if away is not None:
        return Told(f"{away_words(away, facts.instant)}, and it was too late then", lines)
    absent = reason.get("absent")
    if not isinstance(absent, Mapping):
        says = "the supervisor was there and came to it late: the machine slept or stood still, the clock was set forward, or "
        lines.insert(0, Line(None, "late", f"{says}admission was stopped or the schedule blocked meanwhile", None, {}))
    return Told(f"it was considered {late} late, and {allowed} is allowed", lines)


def _allowance(facts: ExplanationFacts, seconds: Json) -> str:
    """Return the lateness that was allowed, from the reason where it says so."""
    known = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return format_duration(timedelta(seconds=seconds) if known else facts.in_force.definition.lateness)


def _outlived(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    by = _time(reason.get("by"), facts)
    text = f"it was held, and {by} was missed after it: with misfire=skip a held start is never older than a missed one"
    return Told(f"it was held until the newer {by} was missed", [_because(facts, row, text, by=reason.get("by"))])


def _newer(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    by = _time(reason.get("by"), facts)
    if facts.in_force.definition.misfire is Misfire.LATEST:
        text = f"misfire=latest: of all that is held or due only the newest is considered, {by}"
    else:
        text = f"it was held, and {by} came due and had to be held too: a schedule holds one instant, the newest"
    lines = [_because(facts, row, text, by=reason.get("by"))]
    commands = []
    if facts.newer is not None:
        run = f" as {facts.newer.run}" if facts.newer.run else ""
        at = facts.newer.recorded_at
        lines.append(Line(at, "newer", f"{by} is {facts.newer.status.value}{run}", None, {"run_id": facts.newer.run}))
        commands = [f"wfctl occurrence explain {facts.schedule_id}@{reason.get('by')}"]
    return Told(f"the newer {by} took its place", lines, commands)


def _edited(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    edit = facts.edit
    who = f" by {edit.actor}" if edit is not None else ""
    to = f", revision {edit.revision}" if edit is not None else ""
    text = f"the schedule was edited{who}{to}: {_settles(reason)}"
    return Told(f"the schedule was edited{who} before it could run", [_because(facts, row, text, **_held_since(reason))],
                [f"wfctl schedule revisions {facts.schedule_id}"])  # fmt: skip


def _paused(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    pause = facts.pause
    who = f" by {pause.actor}" if pause is not None else ""
    why = f" ({pause.reason})" if pause is not None and pause.reason else ""
    text = f"the schedule was paused{who}{why}: {_settles(reason)}"
    return Told(f"the schedule was paused{who}{why} before it could run", [_because(facts, row, text, **_held_since(reason))])


def _deleted(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    text = f"the schedule was deleted: {_settles(reason)}"
    return Told("the schedule was deleted before it could run", [_because(facts, row, text, **_held_since(reason))])


def _settles(reason: Reason) -> str:
    held = reason.get("held_since")
    if held is not None:
        return f"what it held, since {held}, was dropped"
    return "what it held was dropped" if "held_since" in reason else "what was due before and not yet considered was let pass"


def _held_since(reason: Reason) -> dict[str, Json]:
    return {"held_since": reason["held_since"]} if "held_since" in reason else {}


def _clock(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    text = f"the clock was set back from {_time(reason.get('from'), facts)} to {_time(reason.get('to'), facts)}"
    return Told(text, [_because(facts, row, text)])


def _preflight(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    problems = [each for each in reason.get("problems") or () if isinstance(each, Mapping)]
    said = [f"{each.get('path')}: {each.get('message')}".removeprefix(": ") for each in problems]
    lines = [
        Line(row.recorded_at, "preflight", text, "preflight", dict(each)) for text, each in zip(said, problems, strict=True)
    ]
    deployment = facts.in_force.definition.deployment
    return Told(f"what its run needs was not there: {phrase(reason).removeprefix('preflight: ')}",
                lines or [_because(facts, row, phrase(reason))], [f"wfctl deployment check {deployment}"])  # fmt: skip


def _preflight_timeout(facts: ExplanationFacts, row: Recorded, reason: Reason) -> Told:
    within = f" within {reason['limit_s']:g}s" if isinstance(reason.get("limit_s"), (int, float)) else " in time"
    text = f"preflight did not answer{within}: a mount that does not answer, perhaps"
    deployment = facts.in_force.definition.deployment
    return Told(text, [_because(facts, row, text)], [f"wfctl deployment check {deployment}"])


TELLERS: dict[str, Teller] = {
    "overlap": _overlap,
    "capacity": _capacity,
    "missed": _missed,
    "outlived": _outlived,
    "newer": _newer,
    "edited": _edited,
    "paused": _paused,
    "deleted": _deleted,
    "clock": _clock,
    "preflight": _preflight,
    "preflight-timeout": _preflight_timeout,
}


def _time(text: Json, facts: ExplanationFacts) -> str:
    """Return an instant of a reason as it is read beside the one that is explained."""
    try:
        return moment(parse_instant(text), facts.instant)
    except ValueError:
        return str(text)


# Another policy -----------------------------------------------------------------------------------------------------------


def begins_at(row: Recorded, instant: datetime, was_there: bool) -> datetime | None:
    """Return when an instant that was let pass was first considered; None where no policy would have mattered."""
    code = (row.reason or {}).get("code")
    if code in ("overlap", "missed", "outlived"):
        return row.recorded_at
    if code == "capacity":
        return instant if was_there else None
    if code == "newer":
        return instant if was_there and "absent" not in (row.reason or {}) else row.recorded_at
    return None


def setting_of(facts: ExplanationFacts, row: Recorded) -> Setting | None:
    """Return the instant as it was about to be considered; None where too little of it is known."""
    at = begins_at(row, facts.instant, away_at(facts, facts.instant) is None)
    if at is None or facts.calendar is None or facts.is_instant is not True:
        return None
    if any(run.status is None for run in facts.active):
        return None
    held = facts.older
    if (row.reason or {}).get("code") == "outlived":
        reason = {"code": "capacity", "limit": facts.slots}
        held = Candidate(instant=facts.instant, held_since=facts.instant, can_expire=False, reason=reason)
    return Setting(
        schedule_id=facts.schedule_id,
        definition=facts.in_force.definition,
        calendar=facts.calendar,
        instant=facts.instant,
        at=at,
        until=max(facts.now, at),
        active=facts.active,
        busy=facts.busy,
        slots=facts.slots,
        held=held,
    )
