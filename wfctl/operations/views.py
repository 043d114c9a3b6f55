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
    instant: datetime | None  #: with the others that may be null: unknown, its row cannot be read (7.4)
    status: str | None
    run_id: str | None
    revision: int | None
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    span: SpanView | None
    recorded_at: datetime | None


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
class GcView(View):
    """What was let go of the history, or with `is_dry_run` would be."""

    schema: ClassVar[str] = "wfctl/gc.v1"

    occurrences: int
    runs: int
    before: datetime | None  #: older than this; null: no limit of age
    keep_runs: int | None
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsView(View):
    """A class of records, how many there are, and how many contradictions are among them."""

    name: str
    count: int
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictionView(View):
    """Records that cannot all be true, and their remedy (contract 7.4)."""

    code: str
    schedule_id: str | None
    deployment_id: str | None
    run_id: str | None
    rows: tuple[str, ...]
    message: str
    remedy: str  #: what `command` does
    command: str | None  #: null where nothing is decided by these rows any more
    blocks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FixView(View):
    """One remedy that was carried out, or why it could not be."""

    code: str
    rows: tuple[str, ...]
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyView(View):
    """Whether all records of a store agree."""

    schema: ClassVar[str] = "wfctl/verify.v1"

    ok: bool
    records: tuple[RecordsView, ...]
    contradictions: tuple[ContradictionView, ...]
    problems: tuple[str, ...]  #: what else is wrong
    fixed: tuple[FixView, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoView(View):
    """What a store holds."""

    schema: ClassVar[str] = "wfctl/store-info.v1"

    path: str
    store_id: str
    format: int
    schedules: int  #: that are not deleted, as deployments
    deployments: int
    occurrences: int
    runs: int
    executions: int
    ledger_bytes: int
    runs_bytes: int
    artifacts_bytes: int
    owner: Mapping[str, Any] | None  #: the supervisor that holds it now: pid, host, started_at
    oldest: datetime | None  #: since when there are records


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheckView(View):
    """One thing that wfctl needs, whether it is so, and what to do where it is not."""

    name: str
    ok: bool
    detail: str
    fix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView(View):
    """What `wfctl doctor` found."""

    schema: ClassVar[str] = "wfctl/doctor.v1"

    ok: bool
    checks: tuple[DoctorCheckView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView(View):
    """One thing that a run needs, and whether it is there."""

    name: str
    ok: bool
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProblemView(View):
    """One thing in a schedule's history that does not fit."""

    code: str  #: missing, unexpected, overlap, revision, status, run, count, span or pause
    instant: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedView(View):
    """A part of a history whose instants could not be recounted: only the joins of what is recorded were checked."""

    since: datetime
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(View):
    """The balance of a schedule's instants (contract 5.15). Counts are null where there are more than are counted."""

    schema: ClassVar[str] = "wfctl/audit.v1"

    schedule_id: str
    since: datetime | None  #: where the calendar began, or from which instant on it was asked; null: it never was valid
    until: datetime | None
    horizon: datetime | None  #: older instants are no more kept, and not looked at; null: all are
    instants: int | None
    counts: Mapping[str, int | None]  #: by status, `pending` and `paused` among them
    kept: int  #: runs of before the clock stepped back, at times that the calendar does not name
    withdrawn: int  #: what clock events took back; it is not counted
    is_balanced: bool
    unchecked: tuple[UncheckedView, ...]
    problems: tuple[AuditProblemView, ...]
    problems_left_out: int


def status_from_json(plain: Mapping[str, Any]) -> StatusView:
    """Given the JSON of a status, return the view."""
    named = {field.name: plain[field.name] for field in fields(StatusView)}
    for name in ("started_at", "next_instant"):
        named[name] = None if named[name] is None else parse_instant(named[name])
    for name in ("blocked", "problems"):
        named[name] = tuple(named[name])
    named["waiting"] = tuple({**each, "until": parse_instant(each["until"])} for each in named["waiting"])
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
