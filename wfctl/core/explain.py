"""What became of one instant, past or to come, and why: the sentences of `occurrence explain` (contract 5.10).

Nothing is decided here. What is said of the past is made of what was recorded; what is said of another policy, or of what is
not decided yet, is the answer of the production decision (`core/admission.py`) to changed facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from wfctl.core.admission import Decision, decide_admission
from wfctl.core.alternatives import PENDING, Setting, alternatives
from wfctl.core.duration import brief, format_duration
from wfctl.core.explain_lines import (
    SETTLED_UNSEEN,
    Away,
    away_at,
    away_lines,
    away_words,
    clock_lines,
    gap_at,
    instant_line,
    pause_lines,
    supervisor_at,
    trigger_words,
)
from wfctl.core.explain_settled import considered_line, in_the_way, policy_words, setting_of, tell
from wfctl.core.explanation import (
    Alternative,
    Before,
    Deleted,
    Elsewhere,
    Explanation,
    ExplanationFacts,
    Held,
    LetGo,
    Line,
    Open,
    Paused,
    Recorded,
    RunStory,
    Unaccounted,
)
from wfctl.core.instants import format_instant, moment
from wfctl.core.model import DueInstants, Json, Misfire, Status
from wfctl.core.run_story import has_run, story, verdict, was_doing

NEVER = "it did not run, and will not"
_NOBODY_SAW = frozenset({"abandoned", "outcome-unknown", "not-started"})  #: ends that a later supervisor found
_TICK = timedelta(microseconds=1)
_JUST_NOW = timedelta(seconds=5)  #: a supervisor that is there has considered an instant by then


def explain(facts: ExplanationFacts) -> Explanation:
    """Given the facts about an instant, return what became of it, why, and what else could have.

    Shape: the verdict is one sentence that begins with the status; lines ascend by time, those without one stand where they
    belong. Source: contract 5.10.
    """
    match facts.situation:
        case Recorded() as row:
            found = _run(facts, row) if row.run is not None else _settled(facts, row)
        case Held() as held:
            found = _held(facts, held)
        case Open() as coming:
            found = _due(facts, coming) if coming.is_due else _coming(facts, coming)
        case Paused() as pause:
            text = f"paused - {NEVER}: the schedule was paused by {pause.actor}{_because(pause)}."
            found = _plain(facts, "paused", text, pause_lines(pause), will_run=False)
        case Before() as before:
            found = _before(facts, before)
        case Elsewhere() as elsewhere:
            found = _elsewhere(facts, elsewhere)
        case Deleted() as deleted:
            found = _deleted(facts, deleted)
        case LetGo() as gone:
            found = _let_go(facts, gone)
        case Unaccounted() as lost:
            found = _unaccounted(facts, lost)
    schedule = f"wfctl schedule show {facts.schedule_id}"
    return replace(found, lines=_in_order(found.lines), commands=tuple(dict.fromkeys((*found.commands, schedule))))


def _in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines by time; one without a time keeps to the line before it."""
    keyed: list[tuple[datetime, Line]] = []
    last = datetime.min.replace(tzinfo=None)
    for line in lines:
        last = line.at.replace(tzinfo=None) if line.at is not None else last
        keyed.append((last, line))
    return tuple(line for _, line in sorted(keyed, key=lambda pair: pair[0]))


def _plain(
    facts: ExplanationFacts,
    situation: str,
    text: str,
    lines: Iterable[Line],
    *,
    will_run: bool | None,
    commands: Sequence[str] = (),
    status: Status | None = None,
    found: tuple[Alternative, ...] = (),
) -> Explanation:
    return Explanation(
        situation=situation,
        status=status,
        will_run=will_run,
        verdict=text,
        lines=(instant_line(facts), *clock_lines(facts), *lines),
        alternatives=found,
        commands=tuple(commands),
    )


def _because(pause: Paused) -> str:
    return f" ({pause.reason})" if pause.reason else ""


# Recorded -----------------------------------------------------------------------------------------------------------------


def _settled(facts: ExplanationFacts, row: Recorded) -> Explanation:
    """A row that admitted nothing."""
    told = tell(facts, row)
    setting = setting_of(facts, row)
    is_considered = (row.reason or {}).get("code") not in SETTLED_UNSEEN
    considered = [considered_line(facts, row)] if is_considered else []
    lines = [*_span(row), *_absence(facts, row), *considered, *_ahead_of_clock(facts, row), *told.lines]
    return _plain(
        facts,
        "recorded",
        f"{row.status.value} - {NEVER}: {told.clause}.",
        lines,
        will_run=False,
        commands=told.commands,
        status=row.status,
        found=() if setting is None else alternatives(setting, row.status.value),
    )


def _run(facts: ExplanationFacts, row: Recorded) -> Explanation:
    """A row that became a run."""
    assert row.run is not None
    run = facts.runs.get(row.run) or RunStory(id=row.run, status=None, problem="it is not there")
    admitted = row.recorded_at if run.admitted_at is None else run.admitted_at
    text = f"admitted as {row.run}, {brief(admitted - facts.instant)} late ({_allowed(facts)})"
    data: dict[str, Json] = {"run_id": row.run, "lateness_s": (admitted - facts.instant).total_seconds()}
    if (run.reason or {}).get("code") == "ledger-restored":
        text = f"entered as {row.run}: its directory was found, and the ledger did not know it"
    lines = [
        *_absence(facts, row),
        Line(admitted, "admitted", text, supervisor_at(facts, admitted), data),
        *_ahead_of_clock(facts, row),
        *story(run, facts.now, facts.instant),
        *_found_later(facts, run),
    ]
    commands = [f"wfctl run show {row.run}", f"wfctl run logs {row.run}"]
    if row.status is Status.INTERRUPTED:
        commands.insert(0, f"wfctl run resume {row.run}")
    said = f"{row.status.value} - {verdict(run, facts.now)}."
    return _plain(facts, "recorded", said, lines, will_run=has_run(run), commands=commands, status=row.status)


def _found_later(facts: ExplanationFacts, run: RunStory) -> Iterator[Line]:
    """Of an end that nobody saw: when the supervisor went, and when the one came that found it so."""
    if (run.reason or {}).get("code") not in _NOBODY_SAW or run.ended_at is None:
        return
    finder = next((each for each in reversed(facts.sessions) if each.started_at <= run.ended_at), None)
    if finder is not None and run.admitted_at is not None and finder.started_at > run.admitted_at:
        away = gap_at(facts, finder.started_at - _TICK)
        if away is not None:
            yield from away_lines(away, facts)


def _allowed(facts: ExplanationFacts) -> str:
    definition = facts.in_force.definition
    if definition.misfire is Misfire.LATEST:
        return "misfire=latest: however late"
    return f"allowed {format_duration(definition.lateness)}"


def _span(row: Recorded) -> Iterator[Line]:
    if row.span is not None:
        count = "many" if row.span.count is None else f"{row.span.count:,}"
        first, last = format_instant(row.span.first), format_instant(row.span.last)
        text = f"one of {count} instants from {first} to {last} that have one record together"
        yield Line(None, "span", text, None, {"first": first, "last": last, "count": row.span.count})


def _absence(facts: ExplanationFacts, row: Recorded) -> Iterator[Line]:
    """Who was not there: what the sessions say, else what the reason recorded."""
    away = away_at(facts, facts.instant)
    if away is not None:
        yield from away_lines(away, facts)
        return
    absent = (row.reason or {}).get("absent")
    if isinstance(absent, Mapping) and str(absent.get("from")) <= format_instant(facts.instant) <= str(absent.get("until")):
        text = f"no supervisor was there from {absent.get('from')} until {absent.get('until')}"
        yield Line(None, "away", text, "recorded reason", dict(absent))


def _ahead_of_clock(facts: ExplanationFacts, row: Recorded) -> Iterator[Line]:
    if row.recorded_at > facts.now:
        text = "the clock was set back since: it was recorded at a time that is still to come"
        yield Line(row.recorded_at, "clock", text, None, {"now": format_instant(facts.now)})


# Held ---------------------------------------------------------------------------------------------------------------------


def _held(facts: ExplanationFacts, held: Held) -> Explanation:
    candidate, reason = held.candidate, held.candidate.reason
    is_overlap = reason.get("code") == "overlap"
    waits_for = _names([run.id for run in facts.active]) if is_overlap else "an execution slot"
    ends = _how_it_ends(facts, held)
    lines = [
        Line(candidate.held_since, "held", _why_held(facts, held), supervisor_at(facts, candidate.held_since), dict(reason)),
        *in_the_way(facts, facts.active if is_overlap else held.holders),
        *_queue(held),
        *_hindrances(facts, held.diagnostic),
        *(Line(at, "ends", text, None, {}) for at, _, text in ends),
    ]
    until = f", unless {ends[0][1]}" if ends else ""
    commands = [f"wfctl run show {run.id}" for run in (facts.active if is_overlap else held.holders)[:1]]
    return _plain(
        facts,
        "pending",
        f"pending - it is held, and runs when {waits_for} {'ends' if is_overlap else 'is free'}{until}{_but(facts, held)}.",
        lines,
        will_run=None,
        commands=commands,
        status=Status.PENDING,
        found=_alternatives_of_held(facts, held),
    )


def _but(facts: ExplanationFacts, held: Held) -> str:
    """What keeps it from being looked at, even when there is room."""
    if held.diagnostic is not None:
        return "; but the schedule is blocked"
    if facts.presence is None:
        return "; but no supervisor is there"
    problem = "the supervisor is draining" if facts.presence.is_draining else next(iter(facts.presence.problems), "")
    return f"; but {problem}" if problem else ""


def _names(names: Sequence[str]) -> str:
    if len(names) < 2:
        return names[0] if names else "the run before it"
    return f"one of {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _why_held(facts: ExplanationFacts, held: Held) -> str:
    reason = held.candidate.reason
    if reason.get("code") == "capacity":
        limit = reason.get("limit")
        return f"held for an execution slot: all {limit} are taken (max_concurrent_runs)"
    at = max(held.candidate.held_since, facts.instant)
    doing = ", ".join(was_doing(run, at, facts.instant) for run in facts.active[:5])
    return f"held: {policy_words(facts.in_force.definition)}, and {doing or 'its room was taken'}"


def _queue(held: Held) -> Iterator[Line]:
    if held.candidate.reason.get("code") != "capacity":
        return
    if not held.ahead_count:
        yield Line(None, "queue", "the next execution slot is its own: nothing was held for longer", None, {"ahead": 0})
        return
    more = f" and {held.ahead_count - len(held.ahead)} more" if held.ahead_count > len(held.ahead) else ""
    text = f"served before it, since they are held for longer: {', '.join(held.ahead)}{more}"
    yield Line(None, "queue", text, None, {"ahead": held.ahead_count})


def _how_it_ends(facts: ExplanationFacts, held: Held) -> list[tuple[datetime, str, str]]:
    """What would end it without a run, the earliest first: when, as a clause, and as a sentence."""
    found: list[tuple[datetime, str, str]] = []
    definition = facts.in_force.definition
    if held.candidate.can_expire:
        ends, allowed = facts.instant + definition.lateness, format_duration(definition.lateness)
        sentence = f"its lateness is used up (lateness={allowed}): it is skipped-misfire then"
        found.append((ends, f"that takes until after {moment(ends, facts.instant)} (lateness={allowed})", sentence))
    coming = facts.calendar.next_after(max(held.floor, facts.instant)) if facts.calendar is not None else None
    if coming is not None and not any(coming > ends for ends, _, _ in found):
        shown = moment(coming, facts.instant)
        sentence = f"{shown} comes due, and takes its place if it must be held too"
        found.append((coming, f"the newer {shown} takes its place first", sentence))
    return sorted(found)


def _alternatives_of_held(facts: ExplanationFacts, held: Held) -> tuple[Alternative, ...]:
    if facts.calendar is None or any(run.status is None for run in facts.active):
        return ()
    setting = Setting(
        schedule_id=facts.schedule_id,
        definition=facts.in_force.definition,
        calendar=facts.calendar,
        instant=facts.instant,
        at=facts.now,
        until=facts.now,
        active=facts.active,
        busy=facts.busy,
        slots=facts.slots,
        held=held.candidate,
        ahead=held.ahead_count,
    )
    return tuple(each for each in alternatives(setting, PENDING) if each.outcome == Status.ADMITTED.value)


# Not decided yet ----------------------------------------------------------------------------------------------------------


def _coming(facts: ExplanationFacts, coming: Open) -> Explanation:
    left = brief(facts.instant - facts.now)
    lines = [*_hindrances(facts, coming.diagnostic)]
    commands: list[str] = []
    if coming.pause is not None:
        lines = [*pause_lines(coming.pause), *lines]
        text = f"paused - it will not run, unless the schedule is resumed before it, within {left}."
        commands.append(f"wfctl schedule resume {facts.schedule_id}")
    elif coming.diagnostic is not None:
        text = f"blocked - it will not run, unless what blocks the schedule is mended before it, within {left}."
        commands += _mending(facts, coming.diagnostic)
    elif facts.presence is None:
        text = f"coming - it is due in {left}, and no supervisor is there to run it."
        commands.append("wfctl supervise")
    else:
        likely = _likely(facts, coming)
        lines += [] if likely is None else [*in_the_way(facts, facts.active), likely]
        way = ", and nothing stands in its way now" if likely is None else f"; {likely.text}"
        if facts.presence.is_draining or facts.presence.problems:
            commands.append("wfctl status")
            hindrance = "the supervisor is draining" if facts.presence.is_draining else facts.presence.problems[0]
            way = f", but {hindrance}"
        text = f"coming - it is due in {left}{way}."
    return _plain(facts, "coming", text, lines, will_run=None, commands=commands)


def _likely(facts: ExplanationFacts, coming: Open) -> Line | None:
    """What the next instant would come to if what runs now still ran then; None where nothing is in its way."""
    if coming.facts is None or not coming.is_next:
        return None
    alone = coming.facts._replace(due=DueInstants((facts.instant,)))
    decided = decide_admission(alone, now=facts.instant, free_slots=_many(facts))
    outcome = _outcome(decided, facts.instant)
    if outcome in (None, Status.ADMITTED.value):
        return None
    names = _names([run.id for run in facts.active])
    what = "it is held until then" if outcome == PENDING else f"it would be {outcome}"
    text = f"unless {names} ends before, {what} ({policy_words(facts.in_force.definition)})"
    return Line(facts.now, "likely", text, "decided on what holds now", {"outcome": outcome})


def _many(facts: ExplanationFacts) -> int:
    return len(facts.active) + 1  # whether an execution slot is free then is not foretold


def _outcome(decided: Decision, instant: datetime) -> str | None:
    row = next((row for row in decided.settled if row.instant == instant), None)
    if row is None:
        row = next((row for row in decided.settled if row.span and row.span.first <= instant <= row.span.last), None)
    if row is not None:
        return row.status.value
    return PENDING if decided.candidate is not None and decided.candidate.instant == instant else None


def _due(facts: ExplanationFacts, coming: Open) -> Explanation:
    """Due, and no decision about it is recorded: who should have, and what the decision would be now."""
    late = facts.now - facts.instant
    away = away_at(facts, facts.instant) if facts.presence is None else None
    would = _would_be(facts, coming)
    lines: list[Line] = [*([] if away is None else away_lines(away, facts)), *_hindrances(facts, coming.diagnostic, away)]
    commands: list[str] = []
    if coming.diagnostic is not None:
        why = f"the schedule is blocked: {coming.diagnostic.get('message')}"
        commands += _mending(facts, coming.diagnostic)
    elif facts.presence is None:
        why = away_words(away, facts.instant) if away is not None else "no supervisor is there"
        commands.append("wfctl supervise")
    elif facts.presence.is_draining:
        why = "the supervisor is draining, and admits nothing"
        commands.append("wfctl drain --undo")
    elif facts.presence.problems:
        why = facts.presence.problems[0]
        commands.append("wfctl status")
    elif late <= _JUST_NOW:
        why = "it came due just now"
    else:
        why = "the supervisor has not come to it yet: it may be asking preflight"
        commands.append("wfctl status")
    if would is not None:
        lines.append(Line(facts.now, "would-be", would, "decided on what holds now", {}))
    text = f"due - it has not run, for {brief(late)}: {why}."
    return _plain(facts, "due", text, lines, will_run=None, commands=commands)


def _would_be(facts: ExplanationFacts, coming: Open) -> str | None:
    if coming.facts is None:
        return None
    slots = facts.slots if facts.slots is not None else _many(facts)
    free = slots - sum(each.until is None for each in facts.busy)
    decided = decide_admission(coming.facts, now=facts.now, free_slots=free, slot_limit=slots)
    outcome = _outcome(decided, facts.instant)
    late = brief(facts.now - facts.instant)
    if outcome is None:
        return None
    if outcome == Status.ADMITTED.value:
        return f"considered now, {late} late ({_allowed(facts)}), it would run"
    return f"considered now, {late} late ({_allowed(facts)}), it would be {'held' if outcome == PENDING else outcome}"


def _hindrances(facts: ExplanationFacts, diagnostic: Mapping[str, Json] | None, away: Away | None = None) -> Iterator[Line]:
    """What keeps everything of the schedule, or of the store, from being admitted now."""
    if diagnostic is not None:
        text = f"the schedule is blocked: {diagnostic.get('message')}"
        yield Line(facts.now, "blocked", text, str(diagnostic.get("file") or "") or None, dict(diagnostic))
    presence = facts.presence
    if presence is None:
        if away is None:
            text = "no supervisor is there: nothing is admitted until one is started"
            yield Line(facts.now, "away", text, "scheduler.lock", {})
        return
    source = None if presence.pid is None else f"supervisor {presence.host} pid {presence.pid}"
    if presence.is_draining:
        yield Line(facts.now, "draining", "the supervisor is draining, and admits nothing", source, {})
    for problem in presence.problems:
        yield Line(facts.now, "problem", problem, source, {})


def _mending(facts: ExplanationFacts, diagnostic: Mapping[str, Json]) -> list[str]:
    if diagnostic.get("code") == "contradiction":
        return [f"wfctl store verify {facts.schedule_id}"]
    if diagnostic.get("deployment_id"):
        return [f"wfctl deployment show {diagnostic['deployment_id']}"]
    return []


# Nobody's -----------------------------------------------------------------------------------------------------------------


def _before(facts: ExplanationFacts, before: Before) -> Explanation:
    begins = moment(before.begins, facts.instant)
    line = Line(before.begins, "begins", "the schedule begins: nothing before is ever made up for", "definition", {})
    text = f"no occurrence - {NEVER}: the schedule began at {begins}, after this time."
    return _plain(facts, "before", text, [line], will_run=False)


def _elsewhere(facts: ExplanationFacts, found: Elsewhere) -> Explanation:
    force = facts.in_force
    words, others = trigger_words(force.trigger, force.anchor), trigger_words(found.trigger)
    is_older = found.until is not None and found.until <= force.recorded_at
    did = f"did, until {moment(found.until, facts.instant)}" if is_older and found.until is not None else "does"
    did_not = NEVER if facts.instant <= facts.now else "it will not run"
    text = (
        f"no occurrence - {did_not}: revision {force.revision} ({words}), in force since "
        f"{moment(force.recorded_at, facts.instant)}, does not name this time; revision {found.revision} ({others}) {did}."
    )
    lines = [Line(force.recorded_at, "edited", f"revision {force.revision} saved by {force.actor}: {words}", "definition", {})]
    if not is_older:
        lines.append(Line(found.since, "edited", f"revision {found.revision} began: {others}", "definition", {}))
    return Explanation(
        situation="edited",
        status=None,
        will_run=False,
        verdict=text,
        lines=(*lines, *clock_lines(facts)),
        commands=(f"wfctl schedule revisions {facts.schedule_id}",),
    )


def _deleted(facts: ExplanationFacts, deleted: Deleted) -> Explanation:
    said = NEVER if facts.instant <= facts.now else "it will not run"
    text = f"deleted - {said}: the schedule was deleted at {moment(deleted.at, facts.instant)}."
    line = Line(deleted.at, "deleted", "the schedule was deleted; its id is never used again", "definition", {})
    return _plain(facts, "deleted", text, [line], will_run=False)


def _let_go(facts: ExplanationFacts, gone: LetGo) -> Explanation:
    last = gone.horizon - _TICK
    text = (
        "let go - nobody knows any more whether it ran: its record went with all up to "
        f"{moment(last, facts.instant)}, by `store gc` or the setting [history]."
    )
    data = {"horizon": format_instant(gone.horizon)}
    line = Line(last, "horizon", "up to here the history was let go; after it, it is whole", "retention", data)
    return _plain(facts, "let-go", text, [line], will_run=None)


def _unaccounted(facts: ExplanationFacts, lost: Unaccounted) -> Explanation:
    text = "unaccounted - nothing says what became of it, though the calendar is consumed beyond it: records are missing."
    data = {"watermark": format_instant(lost.floor)}
    line = Line(lost.floor, "watermark", "up to here the calendar is consumed", "ledger", data)
    names = (f"wfctl occurrence audit {facts.schedule_id}", f"wfctl store verify {facts.schedule_id}")
    return _plain(facts, "unaccounted", text, [line], will_run=None, commands=names)
