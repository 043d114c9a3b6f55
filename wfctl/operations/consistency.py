"""Do the records of a schedule agree? Where they do not, exactly that schedule is blocked, and says which rows (contract 7.4).

At start-up only what is cheap is looked at: what is unfinished or unsettled, each schedule's own state, the newest rows; and of
those only what SQLite cannot clear by itself. Before an admission the same is asked of that one schedule. `wfctl store verify`
looks at everything. Nothing is repaired here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wfctl.core.contradictions import (
    MAY_STAND_AHEAD,
    Code,
    Contradiction,
    OccurrenceFacts,
    RunFacts,
    StateFacts,
    diagnostic_of,
    judge_executions,
    judge_occurrence,
    judge_run,
    judge_state,
    name_of_run,
)
from wfctl.core.definition import deployment_from_plain, schedule_from_plain
from wfctl.core.model import FINISHED, Json
from wfctl.errors import Blocked, InvalidDefinition
from wfctl.operations.context import Context
from wfctl.store import definitions as files
from wfctl.store.ledger import definitions, evidence, schedules, sessions, suspects
from wfctl.store.ledger.evidence import Snapshot
from wfctl.store.ledger.rows import UnreadableRow, savepoint
from wfctl.store.ledger.schedules import ScheduleRow

LOG = logging.getLogger("wfctl.consistency")
_ROWS_AT_START = 2000  #: of the history, over all schedules
_AT_ONCE = 500  #: definitions named in one query
_ROWS_OF_ONE = 100


class Found:
    """Contradictions, each once, in the order in which they were found."""

    def __init__(self) -> None:
        self._by_rows: dict[tuple[Code, tuple[str, ...]], Contradiction] = {}

    def add(self, found: Iterable[Contradiction]) -> None:
        """Take in what was found."""
        for each in found:
            self._by_rows.setdefault((each.code, each.rows), each)

    def all(self) -> list[Contradiction]:
        """Return everything found."""
        return list(self._by_rows.values())


# Looking ----------------------------------------------------------------------------------------------------------------


def look(context: Context, connection: sqlite3.Connection) -> list[Contradiction]:
    """Return the contradictions of the whole ledger."""
    found = Found()
    names = evidence.schedule_names(connection)
    for number, kind, name, problem in evidence.unreadable_definitions(connection):
        found.add([_unreadable(kind, number, f"{kind} {name}", problem)])
    for state in schedules.list_all(connection):
        found.add(_of_state(context, connection, state, is_thorough=True))
    found.add(_missing_state(connection))
    for number, name in names.items():
        found.add(_of_history(connection, number, name, None))
    for snapshot in evidence.snapshots(connection):
        found.add(_of_snapshot(snapshot))
        found.add(_of_deployment(context, connection, snapshot))
    _look_at_what_goes_on(connection, found)
    found.add(_of_what_is_over(connection))
    return found.all()


def _look_for_start(context: Context, connection: sqlite3.Connection) -> list[Contradiction]:
    """Return the contradictions among what is cheap to look at: of the rest, SQLite says that nothing is wrong."""
    found = Found()
    for part in _parts(suspects.unreadable_definitions(connection)):
        for number, kind, name, problem in evidence.unreadable_definitions(connection, part):
            found.add([_unreadable(kind, number, f"{kind} {name}", problem)])
    latest = max(sessions.clock(connection), context.now()) + MAY_STAND_AHEAD
    for state in schedules.find_many(connection, suspects.states(connection, latest)):
        found.add(_of_state(context, connection, state, is_thorough=False))
    found.add(_missing_state(connection))
    for schedule, place in suspects.occurrences(connection, _ROWS_AT_START):
        row = evidence.occurrence_in(connection, schedule, place)
        if row is not None:
            found.add(_of_occurrence(connection, evidence.schedule_name(connection, schedule), row))
    for number in suspects.runs(connection, _ROWS_AT_START):
        run = evidence.run(connection, number)
        if run is not None:
            found.add(_of_scheduled(connection, run))
    for part in _parts(suspects.changed_revisions(connection)):
        for snapshot in evidence.snapshots(connection, part):
            found.add(_of_snapshot(snapshot))
    _look_at_what_goes_on(connection, found)
    return found.all()


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[first : first + _AT_ONCE] for first in range(0, len(numbers), _AT_ONCE))


def _of_what_is_over(connection: sqlite3.Connection) -> Iterator[Contradiction]:
    """What was started by hand, and executions of runs that are over: nothing is decided by them any more."""
    for run in evidence.runs_of(connection, None):
        yield from judge_run("?", run, None)
    for number, k, problem in evidence.unreadable_executions(connection, None):
        run_facts = evidence.run(connection, number) if isinstance(number, int) else None
        row = f"execution {name_of_run(number)}/{k}"
        yield Contradiction(
            code=Code.UNREADABLE,
            rows=(row,),
            message=f"{row}: {problem}",
            schedule=None if run_facts is None else run_facts.schedule,
            run=number if isinstance(number, int) else None,
            is_history=run_facts is not None and run_facts.status in FINISHED,
        )


def _look_at_what_goes_on(connection: sqlite3.Connection, found: Found) -> None:
    for row in evidence.doubtful_occurrences(connection):
        found.add(_of_occurrence(connection, evidence.schedule_name(connection, row.schedule), row))
    for run in evidence.doubtful_runs(connection):
        found.add(_of_scheduled(connection, run))
        found.add(_of_run(connection, run.number))
    for each in evidence.unsettled(connection):
        found.add(_of_unsettled(connection, each))


def _of_scheduled(connection: sqlite3.Connection, run: RunFacts) -> list[Contradiction]:
    row = evidence.occurrence_at(connection, run.schedule or 0, run.instant)
    return judge_run(evidence.schedule_name(connection, run.schedule), run, row)


def look_at(
    context: Context, connection: sqlite3.Connection, number: int, *, newest: int | None = _ROWS_OF_ONE
) -> list[Contradiction]:
    """Return the contradictions of one schedule, and of the deployment that it names."""
    found = Found()
    row = definitions.get(connection, number)
    state = schedules.find(connection, number)
    if state is not None:
        found.add(_of_state(context, connection, state, is_thorough=True))
    found.add(each for each in _missing_state(connection) if each.schedule == number)
    for _, kind, name, problem in evidence.unreadable_definitions(connection, [number]):
        found.add([_unreadable(kind, number, f"{kind} {name}", problem)])
    found.add(_of_history(connection, number, row.id, newest))
    for snapshot in evidence.snapshots(connection, [number, *([state.deployment] if state is not None else [])]):
        found.add(_of_snapshot(snapshot))
        found.add(_of_deployment(context, connection, snapshot))
    for facts in evidence.doubtful_occurrences(connection):
        if facts.schedule == number:
            found.add(_of_occurrence(connection, row.id, facts))
    for run in evidence.doubtful_runs(connection):
        if run.schedule == number:
            found.add(_of_scheduled(connection, run))
            found.add(_of_run(connection, run.number))
    for each_run in evidence.unsettled(connection):
        found.add(each for each in _of_unsettled(connection, each_run) if each.schedule == number)
    return found.all()


def look_at_deployment(context: Context, connection: sqlite3.Connection, number: int) -> list[Contradiction]:
    """Return the contradictions of one deployment's own records."""
    found = Found()
    for _, kind, name, problem in evidence.unreadable_definitions(connection, [number]):
        found.add([_unreadable(kind, number, f"{kind} {name}", problem)])
    for snapshot in evidence.snapshots(connection, [number]):
        found.add(_of_snapshot(snapshot))
        found.add(_of_deployment(context, connection, snapshot))
    return found.all()


def _of_deployment(context: Context, connection: sqlite3.Connection, snapshot: Snapshot) -> list[Contradiction]:
    try:
        if snapshot.kind == "deployment":
            context.deployment(snapshot.number, snapshot.revision)
    except UnreadableRow as error:
        return _of_revision(connection, snapshot.number, snapshot.kind, snapshot.id, snapshot.revision, error)
    return []


def look_at_history(connection: sqlite3.Connection) -> list[Contradiction]:
    """Return the saved revisions, old ones too, whose content is not that of their digest, or whose parsed form is another."""
    found = Found()
    for snapshot, plain in evidence.all_revisions(connection):
        bad = list(_of_snapshot(snapshot))
        found.add(replace(each, is_history=True) for each in bad)
        if not bad and not _is_parsed_so(snapshot, plain):
            row = f"revision {snapshot.revision} of {snapshot.kind} {snapshot.id}"
            message = f"{row} is shown otherwise than its content says"
            found.add([Contradiction(code=Code.REVISION_DIGEST, rows=(row,), message=message, is_history=True)])
    return found.all()


def _is_parsed_so(snapshot: Snapshot, plain: Any) -> bool:
    try:
        if snapshot.kind == "schedule":
            return schedule_from_plain(json.loads(plain)) == files.schedule_from_toml(snapshot.content.encode())
        return deployment_from_plain(json.loads(plain)) == files.deployment_from_toml(snapshot.content.encode())
    except (ValueError, TypeError, InvalidDefinition):
        return False


def look_at_run(connection: sqlite3.Connection, number: int) -> list[Contradiction]:
    """Return the contradictions of one run, scheduled or by hand."""
    found = Found()
    run = evidence.run(connection, number)
    if run is not None:
        found.add(_of_scheduled(connection, run))
        found.add(_of_run(connection, number))
    for each in evidence.unsettled(connection, number):
        found.add(_of_unsettled(connection, each))
    return found.all()


# One record beside another ------------------------------------------------------------------------------------------------


def _of_state(context: Context, connection: sqlite3.Connection, row: ScheduleRow, *, is_thorough: bool) -> list[Contradiction]:
    if not row.is_readable:
        return [_unreadable("schedule", row.number, f"schedule {row.id}", str((row.diagnostic or {}).get("message")))]
    if row.deleted_at is not None:
        return []
    held = None if row.candidate is None else row.candidate.instant
    named = None
    found: list[Contradiction] = []
    if is_thorough:
        try:
            named = context.schedule(row.number, row.revision)[0].deployment
        except UnreadableRow as error:
            found = _of_revision(connection, row.number, "schedule", row.id, row.revision, error)
    facts = StateFacts(
        schedule=row.number,
        watermark=row.watermark,
        floor=row.floor,
        candidate=held,
        clock=max(sessions.clock(connection), context.now()),
        beyond=evidence.instants_beyond(connection, row.number, row.watermark, row.passing_until),
        is_candidate_recorded=evidence.occurrence_at(connection, row.number, held) is not None,
        named_deployment=named,
        deployment=row.deployment_id,
        paused_at=row.paused_at,
        pause=evidence.open_pause(connection, row.number),
    )
    return found + judge_state(row.id, facts)


def _of_revision(
    connection: sqlite3.Connection, number: int, kind: str, name: str, revision: int, error: UnreadableRow
) -> list[Contradiction]:
    """What is wrong with a current revision that cannot be used, where it is not its digest."""
    if any(True for snapshot in evidence.snapshots(connection, [number]) for _ in _of_snapshot(snapshot)):
        return []
    return [_unreadable(kind, number, f"revision {revision} of {kind} {name}", str(error.data["problem"]))]


def _missing_state(connection: sqlite3.Connection) -> Iterator[Contradiction]:
    for number, name in evidence.without_state(connection):
        message = f"schedule {name} was valid once, and its state is not there"
        yield Contradiction(code=Code.STATE_MISSING, rows=(f"schedule {name}",), message=message, schedule=number)
    for number, name in evidence.without_deployment(connection):
        message = f"schedule {name} is entered with a deployment that is not there"
        yield Contradiction(code=Code.OTHER_DEPLOYMENT, rows=(f"schedule {name}",), message=message, schedule=number)


def _of_history(connection: sqlite3.Connection, number: int, name: str, newest: int | None) -> Iterator[Contradiction]:
    for row in evidence.occurrences_of(connection, number, newest=newest):
        yield from _of_occurrence(connection, name, row)
    for run in evidence.runs_of(connection, number, newest=newest):
        yield from judge_run(name, run, evidence.occurrence_at(connection, number, run.instant))


def _of_occurrence(connection: sqlite3.Connection, name: str, row: OccurrenceFacts) -> list[Contradiction]:
    run = evidence.run(connection, row.run) if row.run is not None else evidence.run_at(connection, row.schedule, row.instant)
    return judge_occurrence(name, row, run)


def _of_run(connection: sqlite3.Connection, number: int) -> Iterator[Contradiction]:
    """What an unfinished run needs to go on: its snapshots, and executions that can be read."""
    run = evidence.run(connection, number)
    schedule = None if run is None else run.schedule
    for snapshot in evidence.pinned(connection, number):
        for each in _of_snapshot(snapshot):
            rows = (f"run {name_of_run(number)}", *each.rows)
            yield Contradiction(code=each.code, rows=rows, message=each.message, schedule=schedule, run=number)
    for run_number, k, problem in evidence.unreadable_executions(connection, number):
        row = f"execution {name_of_run(run_number)}/{k}"
        yield Contradiction(code=Code.UNREADABLE, rows=(row,), message=f"{row}: {problem}", schedule=schedule, run=number)


def _of_unsettled(connection: sqlite3.Connection, each: evidence.Unsettled) -> list[Contradiction]:
    run = evidence.run(connection, each.run)
    if run is None:
        rows = tuple(f"execution {name_of_run(each.run)}/{k}" for k in each.ks)
        message = f"{name_of_run(each.run)} has an unsettled execution, and is not there itself"
        return [Contradiction(code=Code.EXECUTION_WITHOUT_RUN, rows=rows, message=message, run=each.run)]
    return judge_executions(each.run, run.schedule, run.status, each.ks)


def _of_snapshot(snapshot: Snapshot) -> Iterator[Contradiction]:
    row = f"revision {snapshot.revision} of {snapshot.kind} {snapshot.id}"
    code, problem = Code.REVISION_DIGEST, None
    if snapshot.recorded is None and snapshot.content is None:
        code, problem = Code.REVISION_MISSING, "is not there"
    elif not isinstance(snapshot.content, str) or files.digest(snapshot.content.encode()) != snapshot.recorded:
        problem = "has a content that is not that of its digest"
    elif snapshot.wanted is not None and snapshot.wanted != snapshot.recorded:
        problem = "has another digest than its definition"
    if problem is not None:
        is_schedule = snapshot.kind == "schedule"
        yield Contradiction(
            code=code,
            rows=(row,),
            message=f"{row} {problem}",
            schedule=snapshot.number if is_schedule else None,
            deployment=None if is_schedule else snapshot.number,
        )


def _unreadable(kind: str, number: int, row: str, problem: str) -> Contradiction:
    is_schedule = kind == "schedule"
    return Contradiction(
        code=Code.UNREADABLE,
        rows=(row,),
        message=f"{row}: {problem}",
        schedule=number if is_schedule else None,
        deployment=None if is_schedule else number,
    )


# Blocking ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look found, and whom it blocked that was not blocked so."""

    found: tuple[Contradiction, ...]
    blocked: tuple[int, ...]


def look_at_start(context: Context) -> Looked:
    """Before anything is recovered or admitted: find what contradicts, and block what it is about. Raise DamagedStore."""
    with context.ledger.reading() as connection:
        evidence.check_counters(connection)
        behind = evidence.counters_behind(connection)
        found = _look_for_start(context, connection)
    if behind:
        with context.ledger.transaction() as connection:
            evidence.raise_counters(connection)
        LOG.error("%s: raised, so that nothing is used twice", "; ".join(behind), extra={"action": "counters_raised"})
    return Looked(tuple(found), tuple(block(context, found)))


def block(context: Context, found: Sequence[Contradiction]) -> list[int]:
    """Block the schedules, and the deployments of schedules, that contradictions are about; return who was not blocked so."""
    by_number: dict[int, list[Contradiction]] = {}
    for each in found:
        number = each.deployment if each.schedule is None else each.schedule
        if number is not None and not each.is_history:
            by_number.setdefault(number, []).append(each)
    with context.ledger.transaction() as connection:
        return [number for number, about in by_number.items() if _block_one(connection, number, diagnostic_of(about))]


def _block_one(connection: sqlite3.Connection, number: int, diagnostic: dict[str, Json]) -> bool:
    stored = connection.execute("SELECT diagnostic, deleted_at FROM definitions WHERE number = ?", (number,)).fetchone()
    if stored is None or stored[1] is not None:
        return False
    with contextlib.suppress(UnreadableRow):
        if definitions.get(connection, number).diagnostic == diagnostic and stored[0] is not None:
            return False
    definitions.set_diagnostic(connection, number, diagnostic)
    for name in [number, *(each for each, _ in schedules.of_deployment(connection, number))]:
        schedules.set_wake(connection, name, next_instant=None, wake_at=None)
    return True


def doubt(context: Context, connection: sqlite3.Connection, number: int, error: UnreadableRow | None = None) -> dict[str, Json]:
    """Return the diagnostic of a schedule whose records were found not to agree."""
    found = [each for each in look_at(context, connection, number) if not each.is_history]
    if found:
        return diagnostic_of(found)
    if error is not None:
        return definitions.contradiction_of(error)
    name = definitions.get(connection, number).id
    message = f"what is unfinished of schedule {name} is not the same in its runs and its history"
    return diagnostic_of([Contradiction(code=Code.STATUS_DIFFERS, rows=(f"schedule {name}",), message=message)])


# Runs that a driver leaves alone ------------------------------------------------------------------------------------------

_DOUBTS = (Blocked, LookupError, ValueError, TypeError, AttributeError, AssertionError)


class Doubts:
    """The runs that a driver leaves alone: their records contradict each other, so nothing is settled by them (7.4)."""

    def __init__(self, context: Context, on_note: Callable[[int], None] = lambda number: None) -> None:
        self.runs: dict[int, str] = {}
        self._on_note = on_note
        self._context = context
        self._new: set[int] = set()
        self._version = 0

    def look(self, only: int | None = None) -> None:
        """Before a recovery: find the runs whose executions cannot all be what they say; all of them, or one."""
        with self._context.ledger.reading() as connection:
            for each in evidence.unsettled(connection, only):
                for found in _of_unsettled(connection, each):
                    self.note(each.run, found.message)
            for run in evidence.doubtful_runs(connection) if only is None else [evidence.run(connection, only)]:
                if run is None:
                    continue
                problem = run.problem or next(
                    (problem for _, _, problem in evidence.unreadable_executions(connection, run.number)), None
                )
                if problem is not None:
                    self.note(run.number, problem)

    @contextlib.contextmanager
    def about(self, number: int | None) -> Iterator[None]:
        """Do something with a run: what its records do not allow is taken back, and the run left alone from then on."""
        try:
            with savepoint(self._context.ledger.connection):
                yield
        except _DOUBTS as error:
            if number is None:
                raise
            said = error.message if isinstance(error, Blocked) else f"{type(error).__name__}: {error}"
            self.note(number, said)

    def note(self, number: int, problem: str) -> None:
        """Leave a run alone from now on."""
        if number in self.runs:
            return
        self.runs[number] = problem
        self._new.add(number)
        self._on_note(number)
        LOG.error(
            "%s is left alone, its records cannot be trusted: %s",
            name_of_run(number),
            problem,
            extra={"action": "run_doubted", "run": name_of_run(number)},
        )

    def refuse(self, number: int) -> None:
        """Raise Blocked for a run that is left alone."""
        if number in self.runs:
            name = name_of_run(number)
            raise Blocked(f"{name} is left alone: {self.runs[number]}; see `wfctl store verify {name}`", {"run_id": name})

    def block(self) -> None:
        """Outside of a transaction: block the schedules of the runs that are newly left alone."""
        new, self._new = self._new, set()
        for number in sorted(new):
            with self._context.ledger.transaction() as connection:
                schedule = _schedule_of(connection, number)
                if schedule is not None:
                    found = [each for each in look_at_run(connection, number) if each.schedule is not None]
                    row = f"run {name_of_run(number)}"
                    generic = Contradiction(code=Code.UNREADABLE, rows=(row,), message=f"{row}: {self.runs[number]}")
                    if not definitions.is_contradicted(definitions.get(connection, schedule).diagnostic):
                        _block_one(connection, schedule, diagnostic_of(found or [generic]))

    def regained(self) -> set[int]:
        """Return the runs whose records were remedied meanwhile; they are left alone no more."""
        if not self.runs:
            return set()
        connection = self._context.ledger.connection
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version == self._version:
            return set()
        self._version = version
        back = set()
        for number in self.runs:
            schedule = _schedule_of(connection, number)
            is_blocked = schedule is not None and definitions.is_contradicted(definitions.get(connection, schedule).diagnostic)
            if not is_blocked and not look_at_run(connection, number):
                back.add(number)
        for number in back:
            del self.runs[number]
        return back


def _schedule_of(connection: sqlite3.Connection, number: int) -> int | None:
    found: Any = connection.execute("SELECT schedule FROM runs WHERE number = ?", (number,)).fetchone()
    if found is None:
        found = connection.execute("SELECT schedule FROM occurrences WHERE run = ? LIMIT 1", (number,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], int) else None
