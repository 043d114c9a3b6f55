"""Which records of a schedule contradict each other, in words that name the rows and the remedy (contract 7.4).

Nothing here repairs anything, and nothing guesses: what cannot be read is a contradiction, never an absence. Each code has one
explicit remedy, which `wfctl store verify --fix CODE NAME` carries out for the schedule or run that is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from wfctl.core.instants import format_instant
from wfctl.core.model import FINISHED, RUN_STATUSES, Json, Status, run_name

MAY_STAND_AHEAD = timedelta(hours=3)  #: so far the clock may step back before a schedule begins anew (5.14)


class Code(StrEnum):
    """What contradicts what. Codes are only added."""

    UNREADABLE = "unreadable"
    UNKNOWN_STATUS = "unknown-status"
    STATUS_DIFFERS = "status-differs"
    RUN_WITHOUT_OCCURRENCE = "run-without-occurrence"
    OCCURRENCE_WITHOUT_RUN = "occurrence-without-run"
    TWO_UNSETTLED = "two-unsettled"
    UNSETTLED_OF_FINISHED = "unsettled-of-finished"
    EXECUTION_WITHOUT_RUN = "execution-without-run"
    REVISION_MISSING = "revision-missing"
    REVISION_DIGEST = "revision-digest"
    WATERMARK_BEHIND = "watermark-behind"
    WATERMARK_AHEAD = "watermark-ahead"
    CANDIDATE_SETTLED = "candidate-settled"
    CANDIDATE_AHEAD = "candidate-ahead"
    STATE_MISSING = "state-missing"
    OTHER_DEPLOYMENT = "other-deployment"
    PAUSE_DIFFERS = "pause-differs"


#: What the explicit remedy of each does. None of them frees the slot of a process that lives.
REMEDIES: Mapping[Code, str] = {
    Code.UNREADABLE: "clears the field that cannot be read where nothing is decided by it, drops a candidate, and enters a run"
    " that cannot be read as failed (ambiguous); anything else takes a backup",
    Code.UNKNOWN_STATUS: "takes the status that the other record has, running where an execution is unsettled,"
    " else failed (ambiguous)",
    Code.STATUS_DIFFERS: "takes the run's own status, running where an execution of it is unsettled",
    Code.RUN_WITHOUT_OCCURRENCE: "enters the occurrence anew, with the status of its run",
    Code.OCCURRENCE_WITHOUT_RUN: "enters the run anew: running where an execution is unsettled, else failed (ambiguous)",
    Code.TWO_UNSETTLED: "settles all but the newest as outcome unknown, unless a process of theirs lives",
    Code.UNSETTLED_OF_FINISHED: "settles them as outcome unknown, unless a process of theirs lives",
    Code.EXECUTION_WITHOUT_RUN: "settles them as outcome unknown, unless a process of theirs lives",
    Code.REVISION_MISSING: "takes the definition's file as a new revision; ends a run that is pinned to the lost one as failed"
    " (ambiguous), unless a process of it lives",
    Code.REVISION_DIGEST: "takes the content from the definition's file where its digest is the one recorded, else takes that"
    " file as a new revision; ends a run that is pinned to the changed one as failed (ambiguous), unless a process of it lives",
    Code.WATERMARK_BEHIND: "moves the watermark forward to the last instant that is recorded",
    Code.WATERMARK_AHEAD: "moves the watermark back to the last instant that is recorded; what passed since counts as missed",
    Code.CANDIDATE_SETTLED: "drops the candidate; its row stays",
    Code.CANDIDATE_AHEAD: "drops the candidate; its instant comes due by the calendar",
    Code.STATE_MISSING: "enters the schedule's state anew, its calendar consumed up to now",
    Code.OTHER_DEPLOYMENT: "points the schedule at the deployment that its definition names",
    Code.PAUSE_DIFFERS: "lets it be paused, as one of the two says; `wfctl schedule resume` ends that",
}

#: Remedies after which nothing is admitted that would not have been, and no slot is free that was not: `--fix-safe`.
SAFE = frozenset({Code.CANDIDATE_SETTLED, Code.WATERMARK_BEHIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Records that cannot all be true."""

    code: Code
    rows: tuple[str, ...]  #: which, as a person would look for them
    message: str
    schedule: int | None = None  #: the number of the schedule that is blocked by it; None: a manual run's, or all are
    deployment: int | None = None  #: the number of the deployment whose schedules are blocked by it
    run: int | None = None
    is_history: bool = False  #: nothing is decided by these rows any more, so nothing is blocked by them

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form."""
        return {"code": self.code.value, "rows": list(self.rows), "message": self.message, "remedy": REMEDIES[self.code]}


# What is judged ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceFacts:
    """What a row of the history says. A field that cannot be read is None."""

    place: int
    schedule: int
    instant: datetime | None
    status: Status | None
    run: int | None
    problem: str | None = None  #: what of the row cannot be read
    is_status_unknown: bool = False  #: its status is what cannot be


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run's row says. A field that cannot be read is None."""

    number: int
    schedule: int | None
    instant: datetime | None
    status: Status | None
    problem: str | None = None
    is_status_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """What a schedule's own row says, and what of its history stands against that."""

    schedule: int
    watermark: datetime
    floor: datetime
    candidate: datetime | None
    clock: datetime  #: the latest wall clock that anything was consumed at
    beyond: tuple[datetime, ...] = ()  #: instants of rows behind the watermark that no clock event explains
    is_candidate_recorded: bool = False
    named_deployment: str | None = None  #: by the definition
    deployment: str | None = None  #: that it is run with
    paused_at: datetime | None = None
    pause: datetime | None = None  #: when the paused span that lasts began


def name_of_run(number: int) -> str:
    """Return a run's id; of a number that no run can have, what it is."""
    return run_name(number) if isinstance(number, int) and number >= 1 else f"run-{number}"


def row_of(name: str, instant: datetime | None, place: int | None = None) -> str:
    """Return the name of an occurrence's row."""
    return f"occurrence {name}@{format_instant(instant)}" if instant is not None else f"occurrence of {name}, place {place}"


# Judging ----------------------------------------------------------------------------------------------------------------


def judge_occurrence(name: str, row: OccurrenceFacts, run: RunFacts | None) -> list[Contradiction]:
    """Given a row of schedule `name` and the run that it names, or that was admitted for it, return what contradicts."""
    label = row_of(name, row.instant, row.place)
    if row.problem is not None:
        code = Code.UNKNOWN_STATUS if row.is_status_unknown else Code.UNREADABLE
        return [_found(code, row.schedule, f"{label}: {row.problem}", label, run=row.run)]
    is_admitted = row.status in RUN_STATUSES
    if row.run is None and not is_admitted and run is None:
        return []
    if run is None or run.number != row.run or (run.problem is None and not _belongs(row, run)):
        said = f"names {name_of_run(row.run)}" if row.run else f"is {row.status}, and names no run"
        other = "which is not there" if run is None else f"and {name_of_run(run.number)} is another's"
        if row.run is None and run is not None:
            other = f"and {name_of_run(run.number)} was admitted for it"
        code = Code.STATUS_DIFFERS if row.run is None and not is_admitted else Code.OCCURRENCE_WITHOUT_RUN
        number = row.run if run is None else run.number
        return [_found(code, row.schedule, f"{label} {said}, {other}", label, run=number)]
    return judge_run(name, run, row)


def judge_run(name: str, run: RunFacts, row: OccurrenceFacts | None) -> list[Contradiction]:
    """Given a scheduled run and the row of its instant, return what contradicts."""
    label = f"run {name_of_run(run.number)}"
    if run.problem is not None:
        code = Code.UNKNOWN_STATUS if run.is_status_unknown else Code.UNREADABLE
        return [_found(code, run.schedule, f"{label}: {run.problem}", label, run=run.number)]
    if run.schedule is None:
        return []
    named = row_of(name, run.instant)
    if row is None or row.run != run.number:
        why = "is not there" if row is None else "names no run" if row.run is None else f"names {name_of_run(row.run)}"
        message = f"{label} is {run.status}, and its {named} {why}"
        return [_found(Code.RUN_WITHOUT_OCCURRENCE, run.schedule, message, label, run=run.number)]
    if row.problem is None and row.status is not run.status:
        message = f"{label} is {run.status}, and its {named} is {row.status}"
        return [_found(Code.STATUS_DIFFERS, run.schedule, message, label, named, run=run.number)]
    return []


def _belongs(row: OccurrenceFacts, run: RunFacts) -> bool:
    return (run.schedule, run.instant) == (row.schedule, row.instant)


def judge_executions(number: int, schedule: int | None, status: Status | None, unsettled: Sequence[int]) -> list[Contradiction]:
    """Given a run's status and its unsettled executions by k, return what contradicts."""
    name = name_of_run(number)
    rows = [f"execution {name}/{k}" for k in unsettled]
    found: list[Contradiction] = []
    if len(unsettled) > 1:
        message = f"{name} has {len(unsettled)} unsettled executions ({_listed(unsettled)}), and there is one at most"
        found.append(_found(Code.TWO_UNSETTLED, schedule, message, *rows, run=number))
    if unsettled and status in FINISHED:
        message = f"{name} is {status}, and execution {_listed(unsettled)} of it is not settled"
        found.append(_found(Code.UNSETTLED_OF_FINISHED, schedule, message, f"run {name}", *rows, run=number))
    return found


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def judge_state(name: str, facts: StateFacts) -> list[Contradiction]:
    """Given a schedule's state beside its history, return what contradicts."""
    found: list[Contradiction] = []
    label = f"schedule {name}"

    def add(code: Code, message: str, *rows: str) -> None:
        found.append(_found(code, facts.schedule, message, label, *rows))

    if facts.beyond:
        last = facts.beyond[-1]
        said = f"{name} has a row at {format_instant(last)}, and is consumed only up to {format_instant(facts.watermark)}"
        add(Code.WATERMARK_BEHIND, f"{said}, with no clock event that explains it", *(row_of(name, at) for at in facts.beyond))
    if facts.floor > facts.clock + MAY_STAND_AHEAD:
        said = f"{name} is consumed up to {format_instant(facts.floor)}, and no clock has been there"
        add(Code.WATERMARK_AHEAD, f"{said}: the latest was {format_instant(facts.clock)}")
    if facts.candidate is not None and facts.is_candidate_recorded:
        message = f"{name} holds {format_instant(facts.candidate)}, which has a row already"
        add(Code.CANDIDATE_SETTLED, message, row_of(name, facts.candidate))
    elif facts.candidate is not None and facts.candidate > facts.floor:
        said = f"{name} holds {format_instant(facts.candidate)}, and is consumed only up to {format_instant(facts.floor)}"
        add(Code.CANDIDATE_AHEAD, said)
    if facts.paused_at != facts.pause:
        said = "is paused, and no paused span says so" if facts.pause is None else "has a paused span that lasts"
        other = (
            ""
            if facts.pause is None
            else f", and is {'not paused' if facts.paused_at is None else 'paused since another time'}"
        )
        add(Code.PAUSE_DIFFERS, f"{name} {said}{other}")
    if facts.named_deployment is not None and facts.named_deployment != facts.deployment:
        there = "one that is not there" if facts.deployment is None else facts.deployment
        add(Code.OTHER_DEPLOYMENT, f"{name} names deployment {facts.named_deployment}, and is entered with {there}")
    return found


def _found(code: Code, schedule: int | None, message: str, *rows: str, run: int | None = None) -> Contradiction:
    return Contradiction(code=code, rows=rows, message=message, schedule=schedule, run=run)


def diagnostic_of(found: Sequence[Contradiction]) -> dict[str, Json]:
    """Return the diagnostic that blocks a schedule, with every row by name. At least one contradiction is given."""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return {
        "code": "contradiction",
        "message": f"its records contradict each other: {found[0].message}{more}; see `wfctl store verify`",
        "rows": [row for each in found[:20] for row in each.rows],
        "contradictions": [each.to_json() for each in found[:20]],
    }
