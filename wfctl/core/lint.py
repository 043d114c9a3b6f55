"""What the author of a schedule may not have meant, found before it goes wrong: findings with stable codes (contract 4.6).

A *warning* is something that will surprise; a *note* is worth knowing and may well be meant. Nothing here is an error: what is
wrong is refused when it is saved. What is said of the trigger's words and clock changes is what `add` says of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from wfctl.core.cron import Expression, Field
from wfctl.core.drift import Drift, Moved, Stretch
from wfctl.core.duration import format_duration
from wfctl.core.instants import format_instant
from wfctl.core.model import CronTrigger, IntervalTrigger, Json, Misfire, OneshotTrigger, Overlap, ScheduleDefinition
from wfctl.core.preview import warnings_of
from wfctl.core.trigger import expression_of

Severity = Literal["warning", "note"]
LONG_PAUSED = timedelta(days=30)
_DAY = timedelta(days=1)
_NOTES = frozenset({"wrapped-range"})  #: of the warnings about words, those that only say how something is read
_SIGNED = re.compile(r"(?:Etc/)?GMT([+-])(\d{1,2})")
_FIXED = {
    "EST": "America/New_York",
    "MST": "America/Denver",
    "HST": "Pacific/Honolulu",
}  #: names that once meant an offset alone


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    code: str  #: a stable word; `wfctl help CODE` explains it
    severity: Severity
    message: str
    hint: str | None = None  #: what to do about it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What a store knows of a schedule besides its definition."""

    since: datetime  #: when it began, or began anew
    shortest_gap: timedelta | None  #: between successive instants, at the same UTC offset
    passed: int  #: instants that were consumed since, up to a few
    has_run: bool  #: whether a run was ever admitted
    is_finished: bool
    paused_at: datetime | None
    diagnostic: Mapping[str, Json] | None  #: why it is blocked
    input_problems: Sequence[str]  #: what its deployment's schema of today has against its input


def of_definition(definition: ScheduleDefinition, now: datetime) -> Iterator[Finding]:
    """Given a definition, yield what is to be said of it wherever it is: its trigger first, then its policies.

    Raise CalendarError where its calendar gives no answer.
    """
    for warning in warnings_of(definition.trigger, now):
        yield Finding(warning.code, "note" if warning.code in _NOTES else "warning", warning.message)
    if isinstance(definition.trigger, CronTrigger):
        yield from _of_cron(definition.trigger)
    if isinstance(definition.trigger, IntervalTrigger):
        yield from _of_interval(definition.trigger)
    yield from _of_policies(definition)


def of_stand(definition: ScheduleDefinition, stand: Stand, now: datetime) -> Iterator[Finding]:
    """Given a definition and how its schedule stands in its store, yield what is to be said of that."""
    if stand.diagnostic is not None:
        yield from of_diagnostic(stand.diagnostic)
    yield from of_input(stand.input_problems)
    if stand.is_finished:
        hint = "delete it, or give it a new `trigger.at`"
        yield Finding("finished", "note", "its one instant has passed; nothing of it will run again", hint)
    if stand.paused_at is not None and now - stand.paused_at >= LONG_PAUSED:
        days = (now - stand.paused_at).days
        message = f"it has been paused for {days} days, since {format_instant(stand.paused_at)}"
        yield Finding("long-paused", "note", message, "resume it, or delete it if nobody needs it")
    if stand.passed and not stand.has_run and not stand.is_finished and stand.paused_at is None:
        often = "one instant has" if stand.passed == 1 else "instants have"
        message = f"{often} passed since {format_instant(stand.since)}, and it never had a run"
        yield Finding("never-ran", "warning", message, "`wfctl occurrences` with its id says why not")
    yield from of_gap(definition, stand.shortest_gap)


def of_diagnostic(diagnostic: Mapping[str, Json]) -> Iterator[Finding]:
    """Given why a definition is blocked, yield what is to be said of it."""
    message = f"it is blocked and admits nothing: {diagnostic.get('message') or diagnostic.get('code')}"
    is_file = diagnostic.get("code") in ("invalid-definition", "missing-file") and not diagnostic.get("deployment_id")
    edit = "`wfctl schedule edit` with its id opens its file, with what is wrong on top"
    hint = edit if is_file else "`wfctl schedule show` with its id says where, and what to do"
    yield Finding("blocked-schedule", "warning", message, hint)


def of_input(problems: Sequence[str]) -> Iterator[Finding]:
    """Given what a deployment's schema has against an input, yield that."""
    for problem in problems:
        message = f"its deployment's schema refuses its input, and so each instant: {problem}"
        yield Finding("input-refused", "warning", message, "correct `input`, or the deployment's `input_schema`")


def no_deployment(name: str) -> Finding:
    """Return what is to be said where the deployment of a definition is not in the store."""
    return Finding("no-deployment", "warning", f"there is no deployment {name} in the store", "add the deployment first")


# Trigger and policies ---------------------------------------------------------------------------------------------------


def _of_cron(trigger: CronTrigger) -> Iterator[Finding]:
    expression = expression_of(trigger)
    yield from _uneven_steps(expression)
    signed = _SIGNED.fullmatch(trigger.timezone)
    if signed and int(signed[2]):
        ahead = "ahead of UTC, not behind" if signed[1] == "-" else "behind UTC, not ahead"
        message = f"{trigger.timezone} is {int(signed[2])} h {ahead} it: these names have their signs the other way round"
        yield Finding("zone-sign", "note", message, "name a place, such as Europe/Budapest, if one is meant")
    if trigger.timezone in _FIXED:
        place = _FIXED[trigger.timezone]
        hint = f"write {place} if that place is meant"
        yield Finding("zone-fixed", "note", f"{trigger.timezone} never has summer time", hint)


def _uneven_steps(expression: Expression) -> Iterator[Finding]:
    for field, size, unit in ((expression.minute, 60, "minute"), (expression.hour, 24, "hour")):
        step = _whole_step(field)
        if step is None or size % step == 0 or len(field.values) < 2:
            continue
        last = field.values[-1]
        rest = size - last + field.values[0]
        begins = "hour" if unit == "minute" else "day"
        message = f"'{field.words}' begins anew each {begins}: after {unit} {last} the next is {rest} {unit}s later, not {step}"
        even = f'use kind = "interval" with every = "{step}{unit[0]}" for even steps, or a step that divides {size}'
        yield Finding("uneven-step", "note", message, even)


def _whole_step(field: Field) -> int | None:
    """The step of a field that is `*/n` alone."""
    star, slash, step = field.words.partition("/")
    return int(step) if slash and star == "*" and step.isdigit() else None


def _of_interval(trigger: IntervalTrigger) -> Iterator[Finding]:
    every = trigger.every
    if every < timedelta(minutes=5) or _DAY % every == timedelta(0) or every % _DAY == timedelta(0):
        return
    message = f"{format_duration(every)} does not divide a day: its instants come at other times each day"
    yield Finding("interval-drifts", "note", message, "use cron if the time of day matters")


def _of_policies(definition: ScheduleDefinition) -> Iterator[Finding]:
    if definition.max_run == "none" and not isinstance(definition.trigger, OneshotTrigger):
        blocks = "keeps one of its places" if definition.overlap is Overlap.PARALLEL else "keeps all later ones from running"
        message = f"max_run is none: a run that hangs {blocks} until somebody cancels it"
        yield Finding("no-max-run", "note", message, 'set max_run to a duration, or to "auto"')
    if definition.overlap is Overlap.PARALLEL and definition.misfire is Misfire.LATEST:
        message = "with misfire latest, two instants that are due in one look give one run, for all that parallel allows"
        yield Finding("latest-parallel", "note", message)


def of_gap(definition: ScheduleDefinition, gap: timedelta | None) -> Iterator[Finding]:
    """Given the shortest time between two instants, where that is known, yield what is to be said of the lateness."""
    if gap is None or isinstance(definition.trigger, OneshotTrigger):
        return
    if definition.lateness > gap and definition.misfire is Misfire.SKIP:
        late, apart = format_duration(definition.lateness), format_duration(gap)
        message = f"lateness {late} is longer than the {apart} between instants: several may be on time at once"
        yield Finding("lateness-over-gap", "note", message, "shorten `lateness`, or set misfire to latest for one catch-up run")


# Drift ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stamps:
    """By what a calendar is worked out."""

    croniter: str
    tz_database: str
    source: str | None  #: where the tz database was read from, where that is known

    def __str__(self) -> str:
        where = f" from {self.source}" if self.source else ""
        return f"croniter {self.croniter} with tz {self.tz_database}{where}"


def of_drift(trigger: CronTrigger, revision: int, saved: Stamps, today: Stamps, drift: Drift | None) -> Iterator[Finding]:
    """Given how today's calendar differs from the one recorded, yield what is to be said; `drift` is None where none was."""
    again = "nothing is missed by it; save the schedule anew with `wfctl schedule set` to record its instants as they are now"
    by = f"(saved by {saved}; here is {today})"
    if drift is None:
        yield _not_recorded(revision, saved, today, again)
        return
    if drift.croniter is not None:
        message = f"croniter does not read '{trigger.expression}' as it did when revision {revision} was saved {by}"
        yield Finding("calendar-drift", "warning", f"{message}: {_moved(drift.croniter)}", again)
    clock = f"the clock of {trigger.timezone} is not the one of revision {revision} {by}"
    if drift.zone is not None:
        least = "" if drift.is_complete else "at least "
        number = drift.gone or drift.new
        one, many = ("moves", "move") if drift.gone else ("is new", "are new")
        what = f"instant of the coming year {one}" if number == 1 else f"instants of the coming year {many}"
        count = f"{least}{number:,} {what}"
        said = f"{clock}: {_stretch(drift.stretches[0])}; {count}, the first: {_moved(drift.zone)}"
        yield Finding("calendar-drift", "warning", said, again)
    elif not drift.is_complete:
        said = f"{clock}: {_stretch(drift.stretches[0])}; of the instants that were compared none moves, not all were"
        yield Finding("calendar-drift", "warning", said, again)
    elif drift.stretches:
        yield Finding("stamps-differ", "note", f"{clock}: {_stretch(drift.stretches[0])}; no instant of the coming year moves")
    elif drift.since >= drift.until:
        message = f"the record of revision {revision} ended at {format_instant(drift.until)}: nothing to come was compared"
        yield Finding("not-recorded", "note", message, again)
    elif saved != today and drift.croniter is None:
        compared = f"{drift.sampled} sampled instants and the clock of its zone until {format_instant(drift.until)}"
        yield Finding("stamps-differ", "note", f"{compared} are those of revision {revision} {by}")


def _not_recorded(revision: int, saved: Stamps, today: Stamps, again: str) -> Finding:
    is_same = (saved.croniter, saved.tz_database) == (today.croniter, today.tz_database)
    told = "they are the same" if is_same else f"saved by {saved}, here is {today}"
    message = f"revision {revision} keeps no record of its instants, so that only the versions can be compared: {told}"
    return Finding("not-recorded", "note", message, again)


def _moved(moved: Moved) -> str:
    if moved.then is None or moved.now is None:
        at = moved.now or moved.then
        word = "is new" if moved.then is None else "is none any more"
        return f"{format_instant(at)} {word}" if at is not None else word
    return f"{format_instant(moved.then)} -> {format_instant(moved.now)}"


def _stretch(stretch: Stretch) -> str:
    when = f"from {format_instant(stretch.since)} to {format_instant(stretch.until)}"
    return f"{when} it stands at {_offset(stretch.now)}, not at {_offset(stretch.then)}"


def _offset(offset: timedelta) -> str:
    seconds = round(offset.total_seconds())
    hours, rest = divmod(abs(seconds), 3600)
    more = f":{rest % 60:02}" if rest % 60 else ""
    return f"UTC{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}{more}"
