"""What operations return: frozen values whose attributes are the JSON keys of contract 8.7. What lists show is in `shown`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from wfctl.core.instants import parse_instant
from wfctl.operations.shown import CandidateView as CandidateView
from wfctl.operations.shown import DeploymentView as DeploymentView
from wfctl.operations.shown import ExecutionView as ExecutionView
from wfctl.operations.shown import OccurrenceView as OccurrenceView
from wfctl.operations.shown import Page as Page
from wfctl.operations.shown import RevisionView as RevisionView
from wfctl.operations.shown import RunView as RunView
from wfctl.operations.shown import ScheduleView as ScheduleView
from wfctl.operations.shown import SpanView as SpanView
from wfctl.operations.shown import View as View
from wfctl.operations.shown import key_of as key_of
from wfctl.operations.shown import plain as plain


class Waiting(TypedDict):
    """A schedule that waits for the clock, and until when."""

    id: str
    until: datetime


class Interrupted(TypedDict):
    """A run that waits for input: since when, and what it asks for (contract 7.2)."""

    run_id: str
    schedule_id: str | None
    since: datetime
    message: str | None


class Overdue(TypedDict):
    """A run that has used up most of its `max_run` (contract 6.8)."""

    run_id: str
    schedule_id: str | None
    since: datetime  #: when its attempt began
    max_run_s: float | None


class Failing(TypedDict):
    """A schedule whose last scheduled runs failed (contract 7.8)."""

    schedule_id: str
    failures: int  #: in a row
    since: datetime  #: when the first of them ended
    run_id: str | None  #: the last one


class TransitionView(View):
    """Something that changed: an occurrence was held or recorded, a run went on or ended, a schedule was changed.

    An admission is told once, as that of its occurrence, with the id of the run; from then on the run's changes are told.
    """

    schema: ClassVar[str] = "wfctl/transition.v1"

    kind: str  #: occurrence, run or schedule
    schedule_id: str | None  #: null: a run started by hand
    instant: datetime | None
    run_id: str | None
    from_: str | None  #: null: it was not there before
    to: str | None  #: null: what was held was withdrawn by a clock event
    reason: Mapping[str, Any] | None
    at: datetime  #: when it was recorded, as far as that is known
    revision: int | None  #: of the schedule
    attempt: int | None  #: of the run
    lateness_s: float | None
    span: SpanView | None


class WatchView(View):
    """What is told from now on over the connection that asked; null: whatever it is about."""

    schema: ClassVar[str] = "wfctl/watch.v1"

    schedule_id: tuple[str, ...] | None
    run_id: tuple[str, ...] | None
    status: tuple[str, ...] | None
    since: datetime


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
    waiting: tuple[Waiting, ...]  #: schedules that wait for the clock (contract 5.14)
    problems: tuple[Mapping[str, Any], ...]  #: what else the operator should know, such as files that are ignored
    interrupted: tuple[Interrupted, ...] = ()  #: runs that wait for input, the oldest first; at most 100
    overdue: tuple[Overdue, ...] = ()  #: runs that go on for longer than they should; at most 100
    failing: tuple[Failing, ...] = ()  #: schedules whose last runs failed, the longest first; at most 100
    executors: tuple[Mapping[str, Any], ...] = ()  #: beside this machine: name, slots_used, slots_total


class ReloadView(View):
    """What a reload found."""

    schema: ClassVar[str] = "wfctl/reload.v1"

    changed: int  #: definitions taken up
    blocked: int  #: schedules that are blocked now
    problems: tuple[Mapping[str, Any], ...]


class GcView(View):
    """What was let go of the history, or with `is_dry_run` would be."""

    schema: ClassVar[str] = "wfctl/gc.v1"

    occurrences: int
    runs: int
    before: datetime | None  #: older than this; null: no limit of age
    keep_runs: int | None
    is_dry_run: bool


class BackupView(View):
    """A backup that was taken."""

    schema: ClassVar[str] = "wfctl/backup.v1"

    backup: str  #: the file; `-` for stdout
    bytes: int | None  #: of the file; null where it went to stdout
    is_compressed: bool
    path: str  #: of the store
    store_id: str
    taken_at: datetime  #: the moment that it shows
    schedules: int  #: that are not deleted, as deployments
    deployments: int
    occurrences: int
    runs: int
    notes: tuple[str, ...]  #: what was left out


class RestoreView(View):
    """A store into whose place a backup was put, or with `is_dry_run` would be."""

    schema: ClassVar[str] = "wfctl/restore.v1"

    path: str  #: of the store
    backup: str
    store_id: str
    taken_at: datetime  #: the moment that the backup shows
    version: str  #: of the wfctl that took it
    schedules: int  #: that are not deleted, as deployments
    deployments: int
    occurrences: int
    runs: int
    run_directories: int  #: of runs that were not there; those that were stay as they are
    kept: str | None  #: where what was replaced is; null: there was nothing
    is_dry_run: bool
    notes: tuple[str, ...]  #: in what the store differs from before


class RecordsView(View):
    """A class of records, how many there are, and how many contradictions are among them."""

    name: str
    count: int
    problems: int


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


class FixView(View):
    """One remedy that was carried out, or why it could not be."""

    code: str
    rows: tuple[str, ...]
    ok: bool
    detail: str


class VerifyView(View):
    """Whether all records of a store agree."""

    schema: ClassVar[str] = "wfctl/verify.v1"

    ok: bool
    records: tuple[RecordsView, ...]
    contradictions: tuple[ContradictionView, ...]
    problems: tuple[str, ...]  #: what else is wrong
    fixed: tuple[FixView, ...]
    notes: tuple[str, ...]


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
    replaced_bytes: int  #: what restores have replaced, and is kept
    owner: Mapping[str, Any] | None  #: the supervisor that holds it now: pid, host, started_at
    oldest: datetime | None  #: since when there are records


class DoctorCheckView(View):
    """One thing that wfctl needs, whether it is so, and what to do where it is not."""

    name: str
    ok: bool
    detail: str
    fix: str | None


class DoctorView(View):
    """What `wfctl doctor` found."""

    schema: ClassVar[str] = "wfctl/doctor.v1"

    ok: bool
    checks: tuple[DoctorCheckView, ...]


class CheckView(View):
    """One thing that a run needs, and whether it is there."""

    name: str
    ok: bool
    detail: str | None


class AuditProblemView(View):
    """One thing in a schedule's history that does not fit."""

    code: str  #: missing, unexpected, overlap, revision, status, run, count, span or pause
    instant: datetime
    message: str


class UncheckedView(View):
    """A part of a history whose instants could not be recounted: only the joins of what is recorded were checked."""

    since: datetime
    until: datetime
    reason: str


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


class ImportedView(View):
    """A line of a crontab that became a schedule and its deployment."""

    line: int
    text: str
    schedule_id: str
    deployment_id: str
    trigger: Mapping[str, Any]
    command: str
    is_new: bool  #: false: the same was there already
    warnings: tuple[Mapping[str, str], ...]


class LeftOutView(View):
    """A line of a crontab, or a part of its meaning, that is not kept, and what to do instead."""

    line: int
    text: str
    why: str
    instead: str


class ImportView(View):
    """What became of a crontab."""

    schema: ClassVar[str] = "wfctl/import.v1"

    source: str
    lines: tuple[ImportedView, ...]
    left_out: tuple[LeftOutView, ...]
    is_dry_run: bool


class ExplanationLineView(View):
    """One thing that happened, or holds: when, in words, as data, and where it is known from."""

    at: datetime | None  #: null: it has no time, and stands where it belongs
    code: str
    text: str
    source: str | None
    data: Mapping[str, Any]


class AlternativeView(View):
    """What would have become of an instant, had another policy been set just before it."""

    policy: Mapping[str, Any]  #: the fields that differ, as in a definition; `max_concurrent_runs` is the setting
    outcome: str  #: `admitted`, another status, or `pending` where it would wait still
    at: datetime | None
    text: str


class ExplanationView(View):
    """What became of an instant, past or to come, and why (contract 5.10)."""

    schema: ClassVar[str] = "wfctl/explanation.v1"

    schedule_id: str
    instant: datetime
    is_instant: bool | None  #: whether the calendar names it; null: that cannot be worked out here
    situation: str  #: recorded, pending, coming, due, paused, before, edited, deleted, let-go, unaccounted or blocked
    status: str | None  #: of what is recorded, or held
    will_run: bool | None  #: whether it ran or will; null: it is not decided, or nobody knows
    verdict: str
    revision: int | None
    trigger: str | None
    timezone: str | None
    croniter: str | None  #: by which that revision was saved, as `tz_database`
    tz_database: str | None
    run_id: str | None
    lateness_s: float | None
    reason: Mapping[str, Any] | None
    lines: tuple[ExplanationLineView, ...]
    alternatives: tuple[AlternativeView, ...]  #: those under which it runs first
    commands: tuple[str, ...]  #: where to look next


class SimulatedView(View):
    """What would become of one schedule's instants."""

    schedule_id: str
    fires: int
    admitted: int
    skipped: Mapping[str, int]  #: by `status: reason`
    coalesced: int
    held: bool  #: an instant is still held at the end
    longest_wait_s: float  #: from the instant to its start
    peak_runs: int
    duration_s: float  #: that its runs were played with
    duration_from: str  #: history, given or assumed


class SimulationView(View):
    """What would happen from now on, decided as the supervisor decides."""

    schema: ClassVar[str] = "wfctl/simulation.v1"

    since: datetime
    until: datetime
    slots: int
    peak_slots: int
    seed: int
    schedules: tuple[SimulatedView, ...]


class LoadBucketView(View):
    """A piece of time: slots wanted on average, and at most."""

    begins: datetime
    mean: float
    peak: int


class PeakView(View):
    """The moment at which the most slots are wanted, and by which schedules, the longest run first."""

    at: datetime
    used: int
    schedules: tuple[Mapping[str, Any], ...]  #: schedule_id, duration_s


class LoadView(View):
    """How many execution slots the coming days want."""

    schema: ClassVar[str] = "wfctl/load.v1"

    since: datetime
    until: datetime
    slots: int
    bucket_s: float
    buckets: tuple[LoadBucketView, ...]
    peak: PeakView | None
    assumed: tuple[str, ...]  #: schedules of whose runs none is over yet


# Back from JSON -----------------------------------------------------------------------------------------------------------


def from_json(kind: Any, given: Any) -> Any:
    """Given a type that an operation returns, and its JSON, return the value: what `to_json` of the same gave.

    Keys of a newer version are passed over. Raise ValueError, naming the place, where something that must be there is not.
    """
    return _read(kind, given, "result")


def _read(kind: Any, given: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return given
    if origin in (Union, UnionType):
        return None if given is None else _read(next(each for each in get_args(kind) if each is not NoneType), given, where)
    if origin is Page:
        _require(given, Mapping, where)
        item = get_args(kind)[0]
        found = _require(given.get("items"), list, f"{where}.items")
        items = tuple(_read(item, each, f"{where}.items[{number}]") for number, each in enumerate(found))
        return Page(items, given.get("next_cursor"), str(given.get("schema")))
    if origin is tuple:
        _require(given, list, where)
        return tuple(_read(get_args(kind)[0], item, f"{where}[{number}]") for number, item in enumerate(given))
    if isinstance(origin, type):
        return _require(given, Mapping, where)
    if issubclass(kind, View) or is_typeddict(kind):
        return _read_fields(kind, given, where)
    if kind is datetime:
        return parse_instant(_require(given, str, where))
    return _require(given, (int, float) if kind is float else kind, where)


def _read_fields(kind: Any, given: Any, where: str) -> Any:
    from dataclasses import MISSING, fields

    _require(given, Mapping, where)
    optional = {field.name for field in fields(kind) if field.default is not MISSING} if issubclass(kind, View) else set()
    named = {
        name: _read(hint, given.get(key_of(name)), f"{where}.{key_of(name)}")
        for name, hint in hints_of(kind).items()
        if key_of(name) in given or name not in optional
    }
    return kind(**named)


def _require(given: Any, kind: Any, where: str) -> Any:
    if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
        raise ValueError(f"{where} cannot be {type(given).__name__}")
    return given


@cache
def hints_of(kind: Any) -> Mapping[str, Any]:
    """Return the types of a view's fields by name."""
    return {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}
