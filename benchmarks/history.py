"""A history for a store, written by the ledger's own code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wfctl import Store

BATCH = 20_000
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def fill(store: Store, rows: int) -> None:
    """Give the store a schedule with that many settled occurrences, in the proportions of a busy one."""
    from wfctl.core.model import Settlement, Status
    from wfctl.store.ledger import definitions, occurrences

    store.create_deployment(deployment_id="nothing", command=["/bin/true"])
    trigger = {"kind": "cron", "expression": "* * * * *"}
    store.create_schedule(schedule_id="each-minute", deployment_id="nothing", trigger=trigger)
    overlap = {"code": "overlap", "runs": ["run-000001"], "limit": 1}
    ledger = store.context.ledger
    row = definitions.find(ledger.connection, "schedule", "each-minute")
    assert row is not None
    for start in range(0, rows, BATCH):
        numbers = range(start, min(start + BATCH, rows))
        settled = [
            Settlement(instant=BEGIN + i * MINUTE, status=Status.COMPLETED, run=i + 1, lateness=timedelta(milliseconds=3))
            if i % 4
            else Settlement(instant=BEGIN + i * MINUTE, status=Status.SKIPPED_OVERLAP, reason=overlap, lateness=timedelta())
            for i in numbers
        ]
        with ledger.transaction() as connection:
            first = occurrences.reserve_places(connection, len(settled))
            places = range(first, first + len(settled))
            occurrences.append(connection, row.number, settled, revision=1, recorded_at=BEGIN, places=places)
