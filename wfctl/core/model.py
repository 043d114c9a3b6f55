"""The values that everything else speaks in. Frozen; nothing here decides, reads or writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

Json = Any  #: what JSON can say: dict, list, str, int, float, bool, None
Reason = Mapping[str, Json]  #: `code` and its data (contract 8.7); sentences are made of it by core/reasons.py


class Overlap(StrEnum):
    """What to do when an occurrence comes due while the schedule has unfinished runs."""

    SKIP = "skip"
    QUEUE = "queue"
    PARALLEL = "parallel"


class Misfire(StrEnum):
    """What to do with an occurrence that is considered past the lateness allowance."""

    SKIP = "skip"
    LATEST = "latest"


class Status(StrEnum):
    """Where an occurrence, and from `admitted` on its run, stands (contract 8.3)."""

    PENDING = "pending"
    COALESCED = "coalesced"
    SKIPPED_OVERLAP = "skipped-overlap"
    SKIPPED_MISFIRE = "skipped-misfire"
    PREFLIGHT_REJECTED = "preflight-rejected"
    ADMITTED = "admitted"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


RUN_STATUSES = frozenset(
    {Status.ADMITTED, Status.RUNNING, Status.INTERRUPTED, Status.COMPLETED, Status.FAILED, Status.EXHAUSTED, Status.CANCELLED}
)
UNFINISHED = frozenset({Status.ADMITTED, Status.RUNNING, Status.INTERRUPTED})  #: hold their schedule's overlap slot (5.3)
HOLDS_EXECUTION_SLOT = frozenset({Status.ADMITTED, Status.RUNNING})  #: hold one of `max_concurrent_runs` (5.4)
FINISHED = RUN_STATUSES - UNFINISHED


# Definitions: what a person decides ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CronTrigger:
    """Five Unix fields in a zone. `expression` is normalised: names in lower case, single spaces, no `@alias`."""

    expression: str
    timezone: str = "UTC"

    @property
    def kind(self) -> Literal["cron"]:
        return "cron"


@dataclass(frozen=True, slots=True)
class IntervalTrigger:
    """`anchor + k * every`, k >= 1; the anchor is the ledger's (contract 4.4)."""

    every: timedelta

    @property
    def kind(self) -> Literal["interval"]:
        return "interval"


@dataclass(frozen=True, slots=True)
class OneshotTrigger:
    """One instant, aware UTC."""

    at: datetime

    @property
    def kind(self) -> Literal["oneshot"]:
        return "oneshot"


Trigger = CronTrigger | IntervalTrigger | OneshotTrigger
MaxRun = timedelta | Literal["auto", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """A command told of changes of health (contract 7.8)."""

    command: tuple[str, ...]
    after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """One file of schedules/: when, with which input, under which policies (contract 3)."""

    deployment: str
    trigger: Trigger
    input: Mapping[str, Json] = field(default_factory=dict)
    notes: str | None = None
    overlap: Overlap = Overlap.SKIP
    max_active_runs: int | None = None  #: set exactly with parallel
    misfire: Misfire = Misfire.SKIP
    lateness: timedelta = timedelta(seconds=60)
    max_run: MaxRun = "auto"
    max_steps: int | None = None
    notify: Notify | None = None

    @property
    def limit(self) -> int:
        """How many unfinished scheduled runs this schedule may have at once (contract 5.3)."""
        return self.max_active_runs or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a run."""

    name: str
    command: tuple[str, ...]
    retries: int = 0
    retry_delay: timedelta = timedelta(seconds=10)  #: doubles each time, at most ten minutes
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDefinition:
    """One file of deployments/: what to run (contract 3). At least one step."""

    steps: tuple[Step, ...]
    is_one_command: bool = False  #: written as `command = [...]` at the top rather than as `[[steps]]`
    description: str | None = None
    working_directory: str | None = None  #: None: the run's own directory
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_files: tuple[str, ...] = ()
    kill_grace: timedelta = timedelta(seconds=10)
    umask: int = 0o022
    executor: str = "local"
    files: Mapping[str, str] = field(default_factory=dict)  #: name -> "sha256:HEX"
    input_schema: Mapping[str, Json] | bool | None = None


# What the system decides ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """Instants that share one row: first and last, and how many where that is known without enumerating them (5.2)."""

    first: datetime
    last: datetime
    count: int | None


@dataclass(frozen=True, slots=True)
class DueInstants:
    """The newest due instants, ascending, and the span of the older ones, which nobody enumerates (5.2)."""

    instants: tuple[datetime, ...] = ()
    older: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The one unadmitted occurrence that a schedule may hold (5.5, 5.6)."""

    instant: datetime
    held_since: datetime  #: when it, or the one it replaced, was first held
    can_expire: bool  #: whether its own lateness can end it
    reason: Reason  #: what it waits for: code `overlap` or `capacity`


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """One row for the history: an instant, or a span of them, and what became of it."""

    instant: datetime  #: of a span, its last
    status: Status
    reason: Reason | None = None
    span: Span | None = None
    lateness: timedelta | None = None  #: how late it was when considered
    run: int | None = None  #: the number of the run, for an admitted one


def run_name(number: int) -> str:
    """Given a run's number, counted from 1, return its id: `run-000001`. Raise ValueError for a smaller number."""
    if number < 1:
        raise ValueError(f"runs are numbered from 1, not {number}")
    return f"run-{number:06d}"


def run_number(name: str) -> int | None:
    """Given a run's id, return its number; None for anything that no run can be called."""
    return int(name[4:]) if _RUN_ID.fullmatch(name) and name != "run-000000" else None


_RUN_ID = re.compile(r"run-(\d{6}|[1-9]\d{6,17})", re.ASCII)
