"""Run states and events as one total table, and which states hold which slot (contract 5.3, 5.4, 6.6)."""

from __future__ import annotations

from enum import StrEnum

from wfctl.core.model import FINISHED, Status


class RunEvent(StrEnum):
    """What can happen to a run. The last five are ends of a run or of an attempt."""

    STARTED = "started"  #: the keeper reported a process of it
    RESUMED = "resumed"  #: input was given to an interrupted run
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


_ENDS: dict[RunEvent, Status | None] = {
    RunEvent.INTERRUPTED: Status.INTERRUPTED,
    RunEvent.COMPLETED: Status.COMPLETED,
    RunEvent.FAILED: Status.FAILED,
    RunEvent.EXHAUSTED: Status.EXHAUSTED,
    RunEvent.CANCELLED: Status.CANCELLED,
}

#: The state after the event; None where the event comes too late or too early and changes nothing. No cell is empty.
TRANSITIONS: dict[Status, dict[RunEvent, Status | None]] = {
    Status.ADMITTED: {RunEvent.STARTED: Status.RUNNING, RunEvent.RESUMED: None, **_ENDS},
    Status.RUNNING: {RunEvent.STARTED: Status.RUNNING, RunEvent.RESUMED: None, **_ENDS},
    Status.INTERRUPTED: {
        RunEvent.STARTED: None,
        RunEvent.RESUMED: Status.RUNNING,
        RunEvent.INTERRUPTED: None,
        RunEvent.COMPLETED: None,
        RunEvent.FAILED: Status.FAILED,  # its records contradict each other (7.3)
        RunEvent.EXHAUSTED: None,
        RunEvent.CANCELLED: Status.CANCELLED,
    },
    **{state: dict.fromkeys(RunEvent) for state in sorted(FINISHED)},
}


def after(state: Status, event: RunEvent) -> Status | None:
    """Given a run's state and an event, return the state after it, or None when the event changes nothing.

    Raise ValueError for a status that no run has.
    """
    if state not in TRANSITIONS:
        raise ValueError(f"{state!r} is no state of a run")
    return TRANSITIONS[state][event]


def states_between(before: tuple[Status, int], now: tuple[Status, int], *, has_started: bool) -> tuple[tuple[Status, int], ...]:
    """Given status and attempt of a run at two moments, return every status that it had since, the last one included.

    `has_started`: a process of it was ever reported. The way is never in doubt: a run begins as admitted, each attempt but the
    last ended as interrupted, and the next one began as running (6.6, 6.13).
    """
    status, attempt = before
    last, last_attempt = now
    passed: list[tuple[Status, int]] = []
    if status is Status.ADMITTED and last is not Status.ADMITTED and has_started:
        passed.append((Status.RUNNING, attempt))
    while attempt < last_attempt:
        if (passed[-1][0] if passed else status) is not Status.INTERRUPTED:
            passed.append((Status.INTERRUPTED, attempt))
        attempt += 1
        passed.append((Status.RUNNING, attempt))
    if last is not (passed[-1][0] if passed else status):
        passed.append((last, last_attempt))
    return tuple(passed)
