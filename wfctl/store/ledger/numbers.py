"""The small numbers that stand for statuses and ends in the tables of the ledger. They are part of its format."""

from __future__ import annotations

from wfctl.core.model import Status
from wfctl.core.steps import Ended

#: Frequent final statuses are below RARE, so that the partial indexes for the others stay small.
RARE = 10
STATUS_NUMBER: dict[Status, int] = {
    Status.COMPLETED: 1,
    Status.SKIPPED_OVERLAP: 2,
    Status.SKIPPED_MISFIRE: 3,
    Status.COALESCED: 4,
    Status.PREFLIGHT_REJECTED: 10,
    Status.ADMITTED: 11,
    Status.RUNNING: 12,
    Status.INTERRUPTED: 13,
    Status.FAILED: 14,
    Status.EXHAUSTED: 15,
    Status.CANCELLED: 16,
}
STATUS_OF: dict[int, Status] = {number: status for status, number in STATUS_NUMBER.items()}

ENDED_NUMBER: dict[Ended, int] = {how: number for number, how in enumerate(Ended, start=1)}
ENDED_OF: dict[int, Ended] = {number: how for how, number in ENDED_NUMBER.items()}
