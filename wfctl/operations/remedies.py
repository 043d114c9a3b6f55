"""The explicit remedies for records that contradict each other: one a code, for what is named by the operator (contract 7.4).

A remedy makes the records agree, in the direction in which nothing is admitted twice and no slot is freed over a process that
lives; what then follows is the next driver's to settle, as after any crash. Afterwards the schedule is looked at as a whole
again, and only if everything of it agrees is it unblocked.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from wfctl.core.contradictions import SAFE, Code, Contradiction, name_of_run
from wfctl.core.instants import to_micros
from wfctl.core.model import FINISHED, RUN_STATUSES, SLURM, Json, Settlement, Status
from wfctl.core.steps import Ended
from wfctl.errors import InUse, WrongState
from wfctl.linux import is_same_process
from wfctl.operations import clusters, consistency, reconcile, upkeep
from wfctl.operations.context import Context
from wfctl.operations.saving import save_revision
from wfctl.store import definitions as files
from wfctl.store import rundir
from wfctl.store.ledger import definitions, evidence, executions, mending, occurrences, runs, schedules
from wfctl.store.ledger.connection import RESTORE
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.numbers import ENDED_NUMBER, STATUS_NUMBER
from wfctl.store.locks import is_held

AMBIGUOUS: dict[str, Json] = {"code": "ambiguous"}


def remedy(context: Context, found: Contradiction) -> str:
    """Make the records of one contradiction agree, in one transaction; return what was done.

    Raise InUse while a process of the run lives, WrongState where only a backup helps, and what the disk raises.
    """
    with context.ledger.transaction() as connection:
        return _REMEDIES[found.code](context, connection, found)


def unblock(context: Context, number: int) -> bool:
    """Look at a blocked definition as a whole; where all of it agrees again, let it go on. Return whether it does."""
    with context.ledger.reading() as connection:
        row = definitions.get(connection, number)
        if not definitions.is_contradicted(row.diagnostic) or row.deleted_at is not None:
            return False
        if row.kind == "schedule":
            mine = [number]
            found = consistency.look_at(context, connection, number, newest=None)
        else:
            mine = [name for name, _ in schedules.of_deployment(connection, number)]
            found = consistency.look_at_deployment(context, connection, number)
        if any(number in (each.schedule, each.deployment) and not each.is_history for each in found):
            return False
    with context.ledger.transaction() as connection:
        definitions.set_diagnostic(connection, number, None)
        for name in mine:
            state = schedules.find(connection, name)
            if state is not None and state.diagnostic is None:
                definition, _ = context.schedule(name, state.revision)
                upkeep.refresh_wake(connection, name, definition, attention=context.now())
    reconcile.one(context, row.kind, row.id)  # what its file says was left alone meanwhile
    return True


def beyond(found: Contradiction, error: Exception) -> str:
    """Return what to say where other records keep a remedy from being carried out."""
    return f"{found.message}: its remedy needs other records that cannot be read ({error}); {RESTORE}"


def is_safe(found: Contradiction) -> bool:
    """Tell whether its remedy admits nothing that would not have been, and frees no slot."""
    return found.code in SAFE


# Runs and occurrences ---------------------------------------------------------------------------------------------------


def _run_number(found: Contradiction) -> int:
    if found.run is None:
        raise WrongState(f"{found.message}: no run is named; {RESTORE}")
    return found.run


def _take_status(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    """One of the two has a status: the run's goes first; an unsettled execution says that the run is not over."""
    number = found.run
    if number is None:
        return _settle_row(connection, found)
    run = evidence.run(connection, number)
    if run is None:
        return _enter_run(context, connection, found)
    row = evidence.occurrence_at(connection, run.schedule or 0, run.instant)
    status = run.status or (row.status if row is not None and row.status in RUN_STATUSES else None)
    is_open = bool(evidence.unsettled(connection, number))
    if is_open and (status is None or status in FINISHED):
        status = Status.RUNNING
    reason = None
    if status is None:
        _refuse_living(context, connection, number)
        status, reason = Status.FAILED, AMBIGUOUS
    _set_status(connection, number, status, reason, context.now())
    if run.schedule is not None and run.instant is not None and row is not None:
        occurrences.give_to_run(connection, run.schedule, run.instant, number, status)
    return f"{name_of_run(number)} is {status.value}"


def _settle_row(connection: sqlite3.Connection, found: Contradiction) -> str:
    """A row of the history for which no run was admitted: its own reason says what it was."""
    assert found.schedule is not None
    for row in evidence.occurrences_of(connection, found.schedule):
        if row.instant is None or not any(label.endswith(_label(row.instant)) for label in found.rows):
            continue
        text = connection.execute(
            "SELECT reason FROM occurrences WHERE schedule = ? AND place = ?", (row.schedule, row.place)
        ).fetchone()[0]
        reason = _object(text)
        status = _STATUS_OF_REASON.get(str((reason or {}).get("code")), Status.SKIPPED_MISFIRE)
        connection.execute(
            "UPDATE occurrences SET status = ?, reason = ? WHERE schedule = ? AND place = ?",
            (STATUS_NUMBER[status], json.dumps(reason or AMBIGUOUS), row.schedule, row.place),
        )
        return f"{found.rows[0]} is {status.value}"
    raise WrongState(f"{found.message}: its row cannot be found again; {RESTORE}")


_STATUS_OF_REASON = {
    "overlap": Status.SKIPPED_OVERLAP,
    "newer": Status.COALESCED,
    "preflight": Status.PREFLIGHT_REJECTED,
    "preflight-timeout": Status.PREFLIGHT_REJECTED,
}


def _label(instant: datetime) -> str:
    from wfctl.core.instants import format_instant

    return f"@{format_instant(instant)}"


def _object(text: Any) -> dict[str, Json] | None:
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _set_status(
    connection: sqlite3.Connection, number: int, status: Status, reason: Mapping[str, Json] | None, now: datetime
) -> None:
    connection.execute(
        "UPDATE runs SET status = ?, reason = coalesce(?, CASE WHEN ? THEN reason END), ended_at = CASE WHEN ? THEN"
        " coalesce(ended_at, ?) END WHERE number = ?",
        (
            STATUS_NUMBER[status],
            None if reason is None else json.dumps(reason, separators=(",", ":")),
            status in FINISHED or status is Status.INTERRUPTED,
            status in FINISHED,
            to_micros(now),
            number,
        ),
    )


def _enter_occurrence(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    number = _run_number(found)
    run = runs.find(connection, number)
    assert run is not None
    if run.schedule is None or run.instant is None:
        raise WrongState(f"{found.message}; {RESTORE}")
    there = evidence.occurrence_at(connection, run.schedule, run.instant)
    if there is not None and there.run is not None and there.run != number:
        raise WrongState(f"{found.message}: both say that the instant is theirs; {RESTORE}")
    if there is None:
        row = Settlement(instant=run.instant, status=run.status, run=number)
        place = occurrences.reserve_places(connection, 1)
        occurrences.append(
            connection, run.schedule, [row], revision=run.revision or 0, recorded_at=context.now(), places=[place]
        )
    else:
        occurrences.give_to_run(connection, run.schedule, run.instant, number, run.status)
    return f"the occurrence of {run.id} is entered, {run.status.value}"


def _enter_run(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    """The run's row is lost: what its directory and its schedule say of it is entered, and never that it may run again."""
    assert found.schedule is not None
    row = next(
        (each for each in evidence.occurrences_of(connection, found.schedule)
         if each.instant is not None and any(label.endswith(_label(each.instant)) for label in found.rows)),
        None,
    )  # fmt: skip
    state = schedules.find(connection, found.schedule)
    if row is None or row.instant is None or state is None:
        raise WrongState(f"{found.message}: its row cannot be found again; {RESTORE}")
    there = evidence.run_at(connection, found.schedule, row.instant)
    if there is not None and there.status is not None:
        occurrences.give_to_run(connection, found.schedule, row.instant, there.number, there.status)
        return f"{found.rows[0]} names {name_of_run(there.number)}"
    is_free = row.run is not None and evidence.run(connection, row.run) is None
    number = row.run if is_free and row.run is not None else runs.reserve_number(connection)
    deployment, deployment_revision = state.deployment, state.deployment_revision
    try:
        identity = rundir.read_identity(context.layout.run(name_of_run(number)))
    except ValueError:
        identity = None
    named = None if identity is None else definitions.find(connection, "deployment", identity.deployment_id)
    if identity is not None and named is not None:
        deployment, deployment_revision = named.number, identity.deployment_revision
    revision = connection.execute(
        "SELECT revision FROM occurrences WHERE schedule = ? AND place = ?", (row.schedule, row.place)
    ).fetchone()[0]
    new = runs.NewRun(
        number=number,
        schedule=found.schedule,
        instant=row.instant,
        revision=revision if isinstance(revision, int) else state.revision,
        deployment=deployment,
        deployment_revision=deployment_revision,
        admitted_at=context.now(),
        max_run=None,
        max_steps=None,
        input=None,
    )
    runs.insert(connection, [new])
    is_open = bool(evidence.unsettled(connection, number))
    status = Status.RUNNING if is_open else Status.FAILED
    _set_status(connection, number, status, None if is_open else AMBIGUOUS, context.now())
    occurrences.give_to_run(connection, found.schedule, row.instant, number, status)
    return f"{name_of_run(number)} is entered anew, {status.value}"


# Executions -------------------------------------------------------------------------------------------------------------


def _refuse_living(context: Context, connection: sqlite3.Connection, number: int, keep: int | None = None) -> None:
    """Raise InUse while a process of a run's unsettled executions lives, or a command drives it."""
    name = name_of_run(number)
    lock = context.layout.run(name).driver_lock
    if lock.exists() and is_held(lock):
        raise InUse(f"{name} is driven by a command; try again when that has ended", {"run_id": name})
    found = connection.execute(f"SELECT k, {executions.MARK} FROM executions WHERE run = ? AND how IS NULL", (number,))
    for k, text, shared in found:
        mark = executions.note_if_readable(text, shared)
        if k != keep and mark.get("keeper") == SLURM and clusters.may_live(context, name, k):
            raise InUse(
                f"execution {name}/{k} may be at work on the cluster: wait for its end, or end it, and try again",
                {"run_id": name, "k": k},
            )
        pid, start, boot = mark.get("pid"), mark.get("start_time"), mark.get("boot")
        if k == keep or not (isinstance(pid, int) and isinstance(start, int) and isinstance(boot, str)):
            continue
        if is_same_process(pid, start, boot):
            raise InUse(
                f"execution {name}/{k} lives, as process {pid}: wait for its end, or end it, and try again",
                {"run_id": name, "k": k, "pid": pid},
            )


def _settle_executions(context: Context, connection: sqlite3.Connection, number: int, *, but: int | None = None) -> None:
    connection.execute(
        "UPDATE executions SET how = ?, ended_at = ?, mark = NULL, origin = NULL WHERE run = ? AND how IS NULL AND k IS NOT ?",
        (ENDED_NUMBER[Ended.UNKNOWN], to_micros(context.now()), number, but),
    )


def _keep_newest(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    number = _run_number(found)
    newest = max(k for each in evidence.unsettled(connection, number) for k in each.ks)
    _refuse_living(context, connection, number, newest)
    _settle_executions(context, connection, number, but=newest)
    return f"all unsettled executions of {name_of_run(number)} but {newest} are settled as outcome unknown"


def _settle_all(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    number = _run_number(found)
    _refuse_living(context, connection, number)
    _settle_executions(context, connection, number)
    return f"the unsettled executions of {name_of_run(number)} are settled as outcome unknown"


def _end_run(context: Context, connection: sqlite3.Connection, number: int) -> str:
    """A run that cannot go on, since what it was admitted with is lost."""
    _refuse_living(context, connection, number)
    _settle_executions(context, connection, number)
    connection.execute("UPDATE runs SET stop = NULL, interrupt = NULL, output = NULL WHERE number = ?", (number,))
    _set_status(connection, number, Status.FAILED, AMBIGUOUS, context.now())
    run = evidence.run(connection, number)
    if run is not None and run.schedule is not None and run.instant is not None:
        occurrences.give_to_run(connection, run.schedule, run.instant, number, Status.FAILED)
        schedules.slot_freed(connection, run.schedule, context.now())
    return f"{name_of_run(number)} is failed (ambiguous)"


# Definitions ------------------------------------------------------------------------------------------------------------


def _take_file(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    if found.run is not None:
        return _end_run(context, connection, found.run)
    if found.is_history:
        raise WrongState(f"{found.message}: nothing is decided by it any more; a backup has it as it was")
    number = found.schedule if found.deployment is None else found.deployment
    assert number is not None
    row = definitions.get(connection, number)
    content = _file_of(context, row)
    digest = files.digest(content)
    made, limit = _drafted(context, connection, row, content)
    if digest == row.digest and mending.restore_revision(
        connection, row.number, row.revision, digest=digest, content=content.decode(), plain=made, max_run=limit
    ):
        return f"revision {row.revision} of {row.kind} {row.id} has the content of its file, whose digest is the one recorded"
    newest = connection.execute(
        "SELECT max(revision) FROM revisions WHERE definition = ? AND typeof(revision) = 'integer'", (number,)
    ).fetchone()[0]
    row = replace(row, revision=max(row.revision, newest or 0))
    save_revision(context, connection, row, plain=made, content=content, max_run_us=limit, is_on_disk=True)
    definitions.set_diagnostic(connection, number, row.diagnostic)  # until all of it was looked at again
    return f"the file of {row.kind} {row.id} is revision {row.revision + 1}"


def _file_of(context: Context, row: DefinitionRow) -> bytes:
    state = files.read_definition_file(context.layout, row.kind, row.id)
    if state.content is None:
        why = "is gone" if state.problem is None else state.problem.message
        raise WrongState(f"{context.layout.definition(row.kind, row.id)} cannot be taken, it {why}; put it back, or {RESTORE}")
    return state.content


def _drafted(
    context: Context, connection: sqlite3.Connection, row: DefinitionRow, content: bytes
) -> tuple[Mapping[str, Json], int | None]:
    from wfctl.operations import deployments
    from wfctl.operations import schedules as operations

    subject = f"{row.kind} {row.id}"
    plain = files.parse_toml(content, subject)
    if row.kind == "deployment":
        return deployments.draft(row.id, plain, content=content).plain, None
    old = files.schedule_from_toml(content, subject)  # as its own predecessor: a finished one-shot may be taken too
    made = operations.draft(context, connection, plain, subject=subject, after=context.now(), content=content, old=old)
    return made.plain, made.max_run_us


def _point_at_named(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    assert found.schedule is not None
    row = definitions.get(connection, found.schedule)
    definition, _ = context.schedule(row.number, row.revision)
    deployment = definitions.find(connection, "deployment", definition.deployment)
    if deployment is None or deployment.deleted_at is not None:
        raise WrongState(f"deployment {definition.deployment} is not there; make it, or {RESTORE}")
    schedules.set_deployment(connection, row.number, deployment.number)
    return f"schedule {row.id} is entered with deployment {definition.deployment}"


def _enter_state(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    """The state is lost: what was due until now may have run already, so none of it does."""
    assert found.schedule is not None
    row = definitions.get(connection, found.schedule)
    definition, _ = context.schedule(row.number, row.revision)
    deployment = definitions.find(connection, "deployment", definition.deployment)
    if deployment is None:
        raise WrongState(f"deployment {definition.deployment} is not there; make it, or {RESTORE}")
    last = evidence.last_instant(connection, row.number)
    now = context.now()
    begins = now if last is None else max(now, last)
    schedules.insert(
        connection,
        row.number,
        deployment=deployment.number,
        now=begins,
        anchor=now.replace(microsecond=0),
        next_instant=None,
    )
    return f"the state of schedule {row.id} is entered anew, its calendar consumed up to now"


# States -----------------------------------------------------------------------------------------------------------------


def _move_watermark(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    assert found.schedule is not None
    row = schedules.find(connection, found.schedule)
    assert row is not None
    last = evidence.last_instant(connection, row.number)
    held = None if row.candidate is None else row.candidate.instant
    to = max(at for at in (last, held, row.created_at) if at is not None)
    if found.code is Code.WATERMARK_AHEAD:
        connection.execute(
            "UPDATE schedules SET effective_from = min(effective_from, ?) WHERE number = ?", (to_micros(to), row.number)
        )
    schedules.advance(connection, row.number, watermark=to, last_admission=None)
    return f"schedule {row.id} is consumed up to its last recorded instant"


def _be_paused(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    assert found.schedule is not None
    row = schedules.find(connection, found.schedule)
    assert row is not None
    since = evidence.open_pause(connection, row.number) or row.paused_at or context.now()
    schedules.pause(connection, row.number, at=since, reason="as its records were remedied", actor=context.actor)
    return f"schedule {row.id} is paused"


def _drop_candidate(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    assert found.schedule is not None
    schedules.hold(connection, found.schedule, None)
    return f"the candidate of schedule {definitions.get(connection, found.schedule).id} is dropped"


def _clear_unreadable(context: Context, connection: sqlite3.Connection, found: Contradiction) -> str:
    """What nothing is decided by may be lost, and what another record tells is taken from there; all else takes a backup."""
    row = found.rows[0]
    if row.startswith("revision "):
        return _take_file(context, connection, found)
    if row.startswith("run ") and found.run is not None:
        return _clear_run(context, connection, found.run)
    if row.startswith("execution ") and found.run is not None:
        mending.mend_executions(connection, found.run)
        _refuse_living(context, connection, found.run)
        mending.settle_unknown_ends(connection, found.run)
        is_mended = not evidence.unreadable_executions(connection, found.run)
    elif row.startswith("occurrence ") and found.schedule is not None:
        mending.mend_occurrences(connection, found.schedule, now=context.now())
        is_mended = all(each.problem is None or each.is_status_unknown
                        for each in evidence.occurrences_of(connection, found.schedule))  # fmt: skip
    else:
        number = found.schedule if found.deployment is None else found.deployment
        assert number is not None
        mending.mend_definition(connection, number, now=context.now())
        if found.schedule is not None:
            mending.mend_schedule(connection, number)
        state = schedules.find(connection, number)
        is_mended = number not in {each for each, *_ in evidence.unreadable_definitions(connection)} and (
            found.schedule is None or (state is not None and state.is_readable)
        )
    if not is_mended:
        raise WrongState(f"{found.message}; {RESTORE}")
    return f"what could not be read of {row} is cleared, or taken from other records"


def _clear_run(context: Context, connection: sqlite3.Connection, number: int) -> str:
    if mending.mend_run(connection, number):
        return f"what could not be read of {name_of_run(number)} is cleared"
    run = evidence.run(connection, number)
    if run is None or (run.problem is not None and not run.is_status_unknown):
        raise WrongState(f"{name_of_run(number)}: {run.problem if run else 'it is not there'}; {RESTORE}")
    return _end_run(context, connection, number)


_REMEDIES: Mapping[Code, Callable[[Context, sqlite3.Connection, Contradiction], str]] = {
    Code.UNREADABLE: _clear_unreadable,
    Code.UNKNOWN_STATUS: _take_status,
    Code.STATUS_DIFFERS: _take_status,
    Code.RUN_WITHOUT_OCCURRENCE: _enter_occurrence,
    Code.OCCURRENCE_WITHOUT_RUN: _enter_run,
    Code.TWO_UNSETTLED: _keep_newest,
    Code.UNSETTLED_OF_FINISHED: _settle_all,
    Code.EXECUTION_WITHOUT_RUN: _settle_all,
    Code.REVISION_MISSING: _take_file,
    Code.REVISION_DIGEST: _take_file,
    Code.WATERMARK_BEHIND: _move_watermark,
    Code.WATERMARK_AHEAD: _move_watermark,
    Code.CANDIDATE_SETTLED: _drop_candidate,
    Code.CANDIDATE_AHEAD: _drop_candidate,
    Code.STATE_MISSING: _enter_state,
    Code.OTHER_DEPLOYMENT: _point_at_named,
    Code.PAUSE_DIFFERS: _be_paused,
}
