"""What an explanation is made of, and what it is: the facts about one instant, and the answer (contract 5.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from wfctl.core.admission import ScheduleFacts
from wfctl.core.model import Candidate, Json, Reason, ScheduleDefinition, Span, Status, Trigger
from wfctl.core.trigger import Calendar

# Who was there ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One stay of a supervisor. `seen_at`: when it last left a trace; `ended_at`: None where it lives, or was killed."""

    pid: int
    host: str
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """The supervisor as it is now."""

    pid: int | None = None
    host: str | None = None
    started_at: datetime | None = None
    is_draining: bool = False
    problems: tuple[str, ...] = ()  #: what keeps it from admitting, in words


# Runs -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStory:
    """One process of a run."""

    k: int
    step: str
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None = None
    signal: int | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """One run, as far as its record can be read: `status` is None where it cannot, or is no more kept."""

    id: str
    status: Status | None
    schedule_id: str | None = None
    instant: datetime | None = None
    admitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 1
    reason: Reason | None = None
    interrupt: Mapping[str, Json] | None = None
    is_overdue: bool = False
    max_run: timedelta | None = None
    executions: tuple[ExecutionStory, ...] = ()
    problem: str | None = None  #: why its record cannot be read
    place: Mapping[str, Json] | None = None  #: where on a cluster it is, and what the cluster says of it

    @property
    def until(self) -> datetime | None:
        """When it gave its overlap slot free; None: it holds it still, or nobody knows."""
        return self.ended_at

    def waits_at(self, moment: datetime) -> datetime | None:
        """Return since when it waited for input at that moment; None where it did not."""
        begun = [each for each in self.executions if each.started_at is not None and each.started_at <= moment]
        if not begun or begun[-1].ended_at is None or begun[-1].ended_at > moment:
            return None
        last = begun[-1]
        later = next((each for each in self.executions if each.k > last.k), None)
        is_waiting = later.attempt > last.attempt if later is not None else self.status is Status.INTERRUPTED
        return last.ended_at if is_waiting else None


@dataclass(frozen=True, slots=True)
class Busy:
    """A time during which a run held an execution slot; `until` is None where it holds it still."""

    since: datetime
    until: datetime | None


# What accounts for the instant ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A row of the history, or the span row in which the instant lies."""

    status: Status
    recorded_at: datetime
    lateness: timedelta | None
    reason: Reason | None
    span: Span | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The candidate that the schedule holds."""

    candidate: Candidate
    floor: datetime
    diagnostic: Mapping[str, Json] | None = None
    ahead: tuple[str, ...] = ()  #: occurrences of other schedules that are served before it, the first of them
    ahead_count: int = 0
    holders: tuple[RunStory, ...] = ()  #: the runs that hold the execution slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The pause that consumed it, or will as long as it lasts."""

    since: datetime
    until: datetime | None  #: None: it lasts
    reason: str | None
    actor: str
    resumed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """It lies before the schedule's beginning."""

    begins: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The trigger in force does not name it; that of another revision does."""

    revision: int
    trigger: Trigger
    since: datetime
    until: datetime | None  #: None: it still is in force


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The schedule was deleted before."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Its record was let go with old history."""

    horizon: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """It is still to come, or due and not yet considered."""

    is_due: bool
    is_next: bool = False  #: no other instant comes before it
    pause: Paused | None = None
    diagnostic: Mapping[str, Json] | None = None
    floor: datetime | None = None
    facts: ScheduleFacts | None = None  #: for a decision about it, as things stand; None where it cannot be decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaccounted:
    """It lies before the watermark, and nothing says what became of it."""

    floor: datetime


Situation = Recorded | Held | Paused | Before | Elsewhere | Deleted | LetGo | Open | Unaccounted


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The revision that names the instant, or that it was considered under."""

    revision: int
    definition: ScheduleDefinition
    trigger: Trigger
    anchor: datetime
    recorded_at: datetime
    actor: str
    croniter: str
    tz_database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """The clock went back from `floor` to `at`, and the schedule began anew there (contract 5.14)."""

    at: datetime
    floor: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationFacts:
    """All that an explanation of one instant is made of. Instants are aware UTC."""

    schedule_id: str
    instant: datetime
    now: datetime
    is_instant: bool | None  #: None: the calendar cannot be asked
    why_unknown: str | None = None  #: why not, or by which other calendar it was saved
    in_force: InForce
    situation: Situation
    runs: Mapping[str, RunStory] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()  #: those around the instant and its record, by start
    knows_all_sessions: bool = True  #: False: older ones were let go
    presence: Presence | None = None  #: None: no supervisor is there now
    clock_steps: tuple[ClockStep, ...] = ()  #: those that went back behind the instant
    calendar: Calendar | None = None
    active: tuple[RunStory, ...] = ()  #: the schedule's runs that were unfinished when the instant was considered, or are now
    busy: tuple[Busy, ...] = ()  #: who held the execution slots from then on
    slots: int | None = None
    older: Candidate | None = None  #: what the schedule held when the instant was considered, if that is known
    newer: Recorded | None = None  #: what became of the instant that took its place
    pause: Paused | None = None  #: the pause that settled it
    edit: InForce | None = None  #: the revision whose saving settled it


# The answer -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, or holds: when, in words, as data, and where it is known from."""

    at: datetime | None
    code: str
    text: str
    source: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alternative:
    """What would have become of the instant, had another policy been set just before it."""

    policy: Mapping[str, Json]  #: the fields that differ, as in a definition; `max_concurrent_runs` is the setting
    outcome: str  #: `admitted`, another status, or `pending` where it would still wait
    at: datetime | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What became of an instant, why, and what else could have."""

    situation: str  #: a word: recorded, pending, coming, due, paused, before, edited, deleted, let-go, unaccounted
    status: Status | None
    will_run: bool | None  #: whether it ran or will; None: it is not decided, or nobody knows
    verdict: str
    lines: tuple[Line, ...]
    alternatives: tuple[Alternative, ...] = ()
    commands: tuple[str, ...] = ()  #: where to look next
