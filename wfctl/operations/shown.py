"""What lists show: schedules, occurrences, runs, deployments and their pages, as frozen values (contract 8.7).

Their attributes are the JSON keys. They stand apart from the other results because a list in a pipe has no time for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from wfctl.core.instants import format_instant
from wfctl.value import Value


def plain(value: Any) -> Any:
    """Given what a view holds, return the same as JSON can say it: instants as text, tuples as lists, views as objects."""
    if isinstance(value, View):
        return {key_of(name): plain(getattr(value, name)) for name in value.field_names()}
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # an enum's member is its word
    return value


def key_of(name: str) -> str:
    """Return the JSON key of a field: where the key is a word of Python the field's name ends with an underscore."""
    return name.removesuffix("_")


class View(Value):
    """Base of all results. `to_json()` gives plain dicts, lists, strings, numbers and null."""

    schema: ClassVar[str] = ""  #: name and version of the JSON shape

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, the same over every door, with its `schema`."""
        return {"schema": self.schema, **plain(self)} if self.schema else plain(self)


class SpanView(View):
    """Instants that share a row; `count` is null where it is neither known nor worked out (up to 1,000)."""

    first: datetime
    last: datetime
    count: int | None


class OccurrenceView(View):
    """One instant of one schedule and what became of it."""

    schema: ClassVar[str] = "wfctl/occurrence.v1"

    schedule_id: str
    instant: datetime | None  #: with the others that may be null: unknown, its row cannot be read (7.4)
    status: str | None
    run_id: str | None
    revision: int | None
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    span: SpanView | None
    recorded_at: datetime | None


class ExecutionView(View):
    """One process started for a step."""

    k: int
    step: str
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None
    signal: int | None
    cpu_s: float | None
    max_rss_bytes: int | None
    left_behind: int | None
    reason: Mapping[str, Any] | None = None


class RunView(View):
    """One execution of an admitted occurrence, or one started by hand."""

    schema: ClassVar[str] = "wfctl/run.v1"

    run_id: str
    kind: str | None  #: with the others that may be null: unknown, the run's record cannot be read (7.4)
    schedule_id: str | None
    instant: datetime | None
    revision: int | None
    deployment_id: str | None
    deployment_revision: int | None
    status: str | None
    attempt: int | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None
    signal: int | None
    reason: Mapping[str, Any] | None
    max_run_s: float | None
    overdue: bool | None
    input: Any
    output: Any
    checkpoint: Any
    interrupt: Any
    trace: tuple[ExecutionView, ...]
    admitted_at: datetime | None
    place: Mapping[str, Any] | None = None  #: of a run on a cluster: executor, job, node, and what the cluster says of it


class CandidateView(View):
    """The one held, unadmitted occurrence of a schedule."""

    instant: datetime
    held_since: datetime
    can_expire: bool
    reason: Mapping[str, Any]


class ScheduleView(View):
    """A schedule as it stands."""

    schema: ClassVar[str] = "wfctl/schedule.v1"

    id: str
    state: str
    diagnostic: Mapping[str, Any] | None
    revision: int | None  #: null where it never was valid
    effective_from: datetime | None
    next_instant: datetime | None
    candidate: CandidateView | None
    active_runs: tuple[str, ...]
    definition: Mapping[str, Any] | None
    anchor: datetime | None
    watermark: datetime | None
    waits_until: datetime | None  #: set while the wall clock stands before what is already consumed (contract 5.14)
    max_run_s: float | None
    paused_at: datetime | None
    pause_reason: str | None
    pause_actor: str | None


class DeploymentView(View):
    """A deployment as it stands."""

    schema: ClassVar[str] = "wfctl/deployment.v1"

    id: str
    state: str
    diagnostic: Mapping[str, Any] | None
    revision: int | None  #: null where it never was valid
    definition: Mapping[str, Any] | None
    digest: str | None
    schedules: tuple[str, ...]


class RevisionView(View):
    """One saved state of a definition."""

    revision: int
    recorded_at: datetime
    actor: str
    croniter: str
    tz_database: str
    content: str
    definition: Mapping[str, Any]


Item = TypeVar("Item", bound=View)


class Page(View, Generic[Item]):
    """A page of a list; `next_cursor` is null on the last one."""

    items: tuple[Item, ...]
    next_cursor: str | None
    list_schema: str

    def __init__(self, items: tuple[Item, ...], next_cursor: str | None, list_schema: str) -> None:
        super().__init__(items=items, next_cursor=next_cursor, list_schema=list_schema)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def to_json(self) -> dict[str, Any]:
        """Return `schema`, `items` and `next_cursor`."""
        return {"schema": self.list_schema, "items": [plain(item) for item in self.items], "next_cursor": self.next_cursor}
