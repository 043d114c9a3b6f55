"""The values that everything else speaks in. Frozen; nothing here decides, reads or writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from wfctl.core.ids import run_name as run_name
from wfctl.value import Value

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


class CronTrigger(Value, kw_only=False):
    """Five Unix fields in a zone. `expression` is normalised: names in lower case, single spaces, no `@alias`."""

    expression: str
    timezone: str = "UTC"

    @property
    def kind(self) -> Literal["cron"]:
        return "cron"


class IntervalTrigger(Value, kw_only=False):
    """`anchor + k * every`, k >= 1; the anchor is the ledger's (contract 4.4)."""

    every: timedelta

    @property
    def kind(self) -> Literal["interval"]:
        return "interval"


class OneshotTrigger(Value, kw_only=False):
    """One instant, aware UTC."""

    at: datetime

    @property
    def kind(self) -> Literal["oneshot"]:
        return "oneshot"


Trigger = CronTrigger | IntervalTrigger | OneshotTrigger
ONE_COMMAND_STEP = "main"  #: name of the only step of the one-command form
LOCAL, SLURM = "local", "slurm"
EXECUTORS = (LOCAL, SLURM)  #: who may run a deployment's commands: this machine's keeper, a Slurm cluster
MaxRun = timedelta | Literal["auto", "none"]


class Notify(Value):
    """A command told of changes of health (contract 7.8)."""

    command: tuple[str, ...]
    after: int = 1


class ScheduleDefinition(Value):
    """One file of schedules/: when, with which input, under which policies (contract 3)."""

    deployment: str
    trigger: Trigger
    input: Mapping[str, Json] = {}
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


class Step(Value):
    """One command of a run."""

    name: str
    command: tuple[str, ...]
    retries: int = 0
    retry_delay: timedelta = timedelta(seconds=10)  #: doubles each time, at most ten minutes
    timeout: timedelta | None = None


class SlurmNeeds(Value):
    """What a deployment asks of a Slurm cluster; None: the cluster's own default."""

    partition: str | None = None
    account: str | None = None
    cpus: int | None = None  #: of the one task
    memory: str | None = None  #: of each node, as Slurm writes it: `4G`
    time_limit: timedelta | None = None  #: Slurm's own, apart from `max_run` and `timeout`
    nodes: str | None = None  #: a number, or a range such as `2-4`
    options: tuple[str, ...] = ()  #: more of `sbatch`, each `--name=value`


class DeploymentDefinition(Value):
    """One file of deployments/: what to run (contract 3). At least one step."""

    steps: tuple[Step, ...]
    is_one_command: bool = False  #: written as `command = [...]` at the top rather than as `[[steps]]`
    description: str | None = None
    working_directory: str | None = None  #: None: the run's own directory
    environment: Mapping[str, str] = {}
    environment_files: tuple[str, ...] = ()
    kill_grace: timedelta = timedelta(seconds=10)
    umask: int = 0o022
    executor: str = LOCAL
    slurm: SlurmNeeds | None = None  #: set only with the executor `slurm`
    files: Mapping[str, str] = {}  #: name -> "sha256:HEX"
    input_schema: Mapping[str, Json] | bool | None = None


# What the system decides ------------------------------------------------------------------------------------------------


class Span(Value, kw_only=False):
    """Instants that share one row: first and last, and how many where that is known without enumerating them (5.2)."""

    first: datetime
    last: datetime
    count: int | None


class DueInstants(Value, kw_only=False):
    """The newest due instants, ascending, and the span of the older ones, which nobody enumerates (5.2)."""

    instants: tuple[datetime, ...] = ()
    older: Span | None = None


class Candidate(Value):
    """The one unadmitted occurrence that a schedule may hold (5.5, 5.6)."""

    instant: datetime
    held_since: datetime  #: when it, or the one it replaced, was first held
    can_expire: bool  #: whether its own lateness can end it
    reason: Reason  #: what it waits for: code `overlap` or `capacity`


class Settlement(Value):
    """One row for the history: an instant, or a span of them, and what became of it."""

    instant: datetime  #: of a span, its last
    status: Status
    reason: Reason | None = None
    span: Span | None = None
    lateness: timedelta | None = None  #: how late it was when considered
    run: int | None = None  #: the number of the run, for an admitted one


def run_number(name: str) -> int | None:
    """Given a run's id, return its number; None for anything that no run can be called."""
    return int(name[4:]) if re.fullmatch(RUN_ID, name, re.ASCII) and name != "run-000000" else None


RUN_ID = r"run-(\d{6}|[1-9]\d{6,17})"
