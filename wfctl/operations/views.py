"""What operations return: frozen values whose attributes are the JSON keys of contract 8.7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from wfctl.core.instants import format_instant, parse_instant


def plain(value: Any) -> Any:
    """Given what a view holds, return the same as JSON can say it: instants as text, tuples as lists, views as objects."""
    if isinstance(value, View):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # an enum's member is its word
    return value


class View:
    """Base of all results. `to_json()` gives plain dicts, lists, strings, numbers and null."""

    __slots__ = ()
    schema: ClassVar[str] = ""  #: name and version of the JSON shape

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, the same over every door, with its `schema`."""
        return {"schema": self.schema, **plain(self)} if self.schema else plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanView(View):
    """Instants that share a row; `count` is null where it is neither known nor worked out (up to 1,000)."""

    first: datetime
    last: datetime
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceView(View):
    """One instant of one schedule and what became of it."""

    schema: ClassVar[str] = "wfctl/occurrence.v1"

    schedule_id: str
    instant: datetime
    status: str
    run_id: str | None
    revision: int | None
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    span: SpanView | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(View):
    """One execution of an admitted occurrence, or one started by hand."""

    schema: ClassVar[str] = "wfctl/run.v1"

    run_id: str
    kind: str
    schedule_id: str | None
    instant: datetime | None
    revision: int | None
    deployment_id: str
    deployment_revision: int
    status: str
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None
    signal: int | None
    reason: Mapping[str, Any] | None
    max_run_s: float | None
    overdue: bool
    input: Any
    output: Any
    checkpoint: Any
    interrupt: Any
    trace: tuple[ExecutionView, ...]
    admitted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView(View):
    """The one held, unadmitted occurrence of a schedule."""

    instant: datetime
    held_since: datetime
    can_expire: bool
    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionView(View):
    """One saved state of a definition."""

    revision: int
    recorded_at: datetime
    actor: str
    croniter: str
    tz_database: str
    content: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView(View):
    """The supervisor and its store at a glance."""

    schema: ClassVar[str] = "wfctl/status.v1"

    state: str  #: ready, draining, degraded
    pid: int
    host: str
    started_at: datetime
    version: str
    store: str
    slots_used: int
    slots_total: int
    next_schedule_id: str | None
    next_instant: datetime | None
    schedules: Mapping[str, int]  #: how many in each state
    blocked: tuple[Mapping[str, Any], ...]
    waiting: tuple[Mapping[str, Any], ...]  #: schedules that wait for the clock (contract 5.14)
    problems: tuple[Mapping[str, Any], ...]  #: what else the operator should know, such as files that are ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadView(View):
    """What a reload found."""

    schema: ClassVar[str] = "wfctl/reload.v1"

    changed: int  #: definitions taken up
    blocked: int  #: schedules that are blocked now
    problems: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView(View):
    """One thing that a run needs, and whether it is there."""

    name: str
    ok: bool
    detail: str | None


def status_from_json(plain: Mapping[str, Any]) -> StatusView:
    """Given the JSON of a status, return the view."""
    named = {field.name: plain[field.name] for field in fields(StatusView)}
    for name in ("started_at", "next_instant"):
        named[name] = None if named[name] is None else parse_instant(named[name])
    for name in ("blocked", "waiting", "problems"):
        named[name] = tuple(named[name])
    return StatusView(**named)


def reload_from_json(plain: Mapping[str, Any]) -> ReloadView:
    """Given the JSON of a reload, return the view."""
    return ReloadView(changed=plain["changed"], blocked=plain["blocked"], problems=tuple(plain["problems"]))


Item = TypeVar("Item", bound=View)


@dataclass(frozen=True, slots=True)
class Page(View, Generic[Item]):
    """A page of a list; `next_cursor` is null on the last one."""

    items: tuple[Item, ...]
    next_cursor: str | None
    list_schema: str

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def to_json(self) -> dict[str, Any]:
        """Return `schema`, `items` and `next_cursor`."""
        return {"schema": self.list_schema, "items": [plain(item) for item in self.items], "next_cursor": self.next_cursor}
