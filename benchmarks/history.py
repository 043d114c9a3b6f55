"""A history for a store, written by the ledger's own code."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wfctl import Store

BATCH = 20_000
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def fill(store: Store, rows: int) -> None:
    """Give the store a schedule with that many settled occurrences, in the proportions of a busy one; three of four ran."""
    from wfctl.core.model import Settlement, Status
    from wfctl.store.ledger import definitions, occurrences, runs

    store.create_deployment(deployment_id="nothing", command=["/bin/true"])
    trigger = {"kind": "cron", "expression": "* * * * *"}
    store.create_schedule(schedule_id="each-minute", deployment_id="nothing", trigger=trigger)
    overlap = {"code": "overlap", "runs": ["run-000001"], "limit": 1}
    ledger = store.context.ledger
    row = definitions.find(ledger.connection, "schedule", "each-minute")
    deployment = definitions.find(ledger.connection, "deployment", "nothing")
    assert row is not None
    assert deployment is not None
    for start in range(0, rows, BATCH):
        instants = [BEGIN + i * MINUTE for i in range(start, min(start + BATCH, rows))]
        with ledger.transaction() as connection:
            run = runs.next_number(connection)
            admitted = [instant for number, instant in enumerate(instants) if number % 4]
            numbers = {instant: run + number for number, instant in enumerate(admitted)}
            settled = [
                Settlement(instant=instant, status=Status.COMPLETED, run=numbers[instant], lateness=timedelta(milliseconds=3))
                if instant in numbers
                else Settlement(instant=instant, status=Status.SKIPPED_OVERLAP, reason=overlap, lateness=timedelta())
                for instant in instants
            ]
            first = occurrences.reserve_places(connection, len(settled))
            places = range(first, first + len(settled))
            occurrences.append(connection, row.number, settled, revision=1, recorded_at=BEGIN, places=places)
            _run(connection, row.number, deployment.number, numbers)


def _run(connection: sqlite3.Connection, schedule: int, deployment: int, numbers: Mapping[datetime, int]) -> None:
    """Enter runs that have completed, each with its one execution."""
    from wfctl.core.instants import to_micros
    from wfctl.core.model import Status
    from wfctl.core.steps import Ended
    from wfctl.store.ledger import runs
    from wfctl.store.ledger.numbers import ENDED_NUMBER, STATUS_NUMBER

    given = {"schedule": schedule, "revision": 1, "deployment": deployment, "deployment_revision": 1}
    more = {"max_run": None, "max_steps": None, "input": None}
    new = [
        runs.NewRun(number=number, instant=instant, admitted_at=instant, **given, **more) for instant, number in numbers.items()
    ]
    runs.insert(connection, new)
    connection.executemany(
        "UPDATE runs SET status = ?, started_at = admitted_at, ended_at = admitted_at + 1000000 WHERE number = ?",
        [(STATUS_NUMBER[Status.COMPLETED], number) for number in numbers.values()],
    )
    connection.executemany(
        "INSERT INTO executions (run, k, step, attempt, how, started_at, ended_at, exit_status, cpu, max_rss)"
        " VALUES (?, 1, 0, 1, ?, ?, ?, 0, 1000, 1048576)",
        [
            (number, ENDED_NUMBER[Ended.EXITED], to_micros(instant), to_micros(instant) + 1_000_000)
            for instant, number in numbers.items()
        ],
    )
