"""Giving input to an interrupted run (contract 6.13): what is checked, and what one transaction then changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from wfctl.core import lifecycle
from wfctl.core.definition import LARGEST_INPUT
from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import Status
from wfctl.core.plain import json_bytes
from wfctl.errors import InvalidArgument, InvalidDefinition, Problem, Saturated, WrongState
from wfctl.operations.inputs import check_input
from wfctl.store.ledger import executions, runs
from wfctl.store.ledger.runs import RunRow


def check_resume(run: RunRow, given: Any) -> str:
    """Return the JSON of the input that a run is resumed with.

    Raise WrongState unless it waits for input, InvalidArgument for an input that is no object, InvalidDefinition, with every
    problem, for one that the job's schema does not accept or that is too large.
    """
    if run.status is not Status.INTERRUPTED:
        raise WrongState(
            f"{run.id} does not wait for input: it is {run.status.value}", {"run_id": run.id, "status": run.status.value}
        )
    bound = {} if given is None else given
    if not isinstance(bound, Mapping):
        raise InvalidArgument(f"input must be an object of names and values, not {type(bound).__name__}", {"argument": "input"})
    schema = (run.interrupt or {}).get("schema")
    problems = check_input(schema, bound) if isinstance(schema, (Mapping, bool)) else []
    text = json_bytes(dict(bound))
    if len(text) > LARGEST_INPUT:
        problems.append(Problem("input", f"is {len(text)} bytes of JSON; at most {LARGEST_INPUT} are taken"))
    if problems:
        raise InvalidDefinition.of(f"{run.id}: the input for its resume", problems)
    return text.decode()


def record_resume(
    connection: sqlite3.Connection, run: RunRow, text: str, *, slots: int | None, used: int | None = None
) -> RunRow:
    """Within a transaction, begin a new attempt at the step that was interrupted; return the run as it then is.

    `slots`: how many scheduled runs may execute at once; None for a run that needs no slot. `used`: how many of them are taken
    (None: those of all scheduled runs). Raise Saturated, with nothing changed, when all are; WrongState when somebody else was
    first.
    """
    if slots is not None and run.schedule is not None and (runs.slots_used(connection) if used is None else used) >= slots:
        raise Saturated(
            f"all {slots} execution slots are taken; resume {run.id} when one is free (`wfctl runs --status running`)",
            {"run_id": run.id, "limit": slots},
        )
    status = lifecycle.after(run.status, RunEvent.RESUMED)
    last = executions.of_run(connection, run.number)[-1]
    changes = {
        "attempt": run.attempt + 1,
        "resumed_step": last.step,
        "resume": text,
        "interrupt": None,
        "reason": None,
        "attempt_at": None,
        "is_overdue": 0,
    }
    if status is None or not runs.change_status(connection, run, status, **changes):
        raise WrongState(f"{run.id} does not wait for input any more", {"run_id": run.id})
    found = runs.find(connection, run.number)
    assert found is not None
    return found
