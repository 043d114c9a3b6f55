"""How an execution on a cluster ended: the job's own record and Slurm's word, held against each other. Pure.

The record is what the program did; Slurm's word says what was done to it. Where both speak, the record stands unless somebody
outside ended the program: then that is the reason, and how the program took it is told with it. Nothing that ended so is tried
again: its effects may have happened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from wfctl.core.instants import from_micros
from wfctl.keeper.protocol import Ended, NotLaunched, Refused, RefusedAt, report_from
from wfctl.slurm.commands import JobLine
from wfctl.slurm.folder import Claim, End
from wfctl.value import Value

Outcome = Ended | Refused | NotLaunched

CODES = {
    "TIMEOUT": "time-limit",
    "DEADLINE": "time-limit",
    "OUT_OF_MEMORY": "out-of-memory",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node-failed",
    "BOOT_FAIL": "node-failed",
    "CANCELLED": "cancelled-outside",
    "REVOKED": "cancelled-outside",
}  #: Slurm's state -> the code of the reason


class Evidence(Value):
    """All that is known of an execution that seems to be over."""

    run: str
    k: int
    now: datetime
    line: JobLine | None  #: Slurm's word; None: the controller does not know the job
    end: End | None
    claim: Claim | None  #: None only where there is an end
    is_asked: bool = False  #: a stop was asked for
    is_dead: bool = False  #: nobody has answered on the node, long enough
    said: str = ""  #: what Slurm and the job's script printed
    accounted: tuple[str, str] | None = None  #: state and exit code, of the accounting


def outcome_of(found: Evidence) -> Outcome | None:
    """Given the evidence, return how the execution ended; None while its program may yet be at work."""
    if found.end is not None:
        return _by_record(found, found.end)
    if found.claim is None or found.claim.is_ours:
        return _never_begun(found)
    return _without_record(found, found.claim) if found.is_dead else None


def word_of(found: Evidence) -> dict[str, Any]:
    """Return Slurm's own word, as it is kept beside the exit record."""
    line, claim = found.line, found.claim
    word: dict[str, Any] = {"run": found.run, "k": found.k, "job": None, "node": None, "state": None}
    if claim is not None and not claim.is_ours:
        word |= {"job": claim.job, "node": claim.node}
    if line is not None:
        word |= {"job": line.job, "state": line.state, "exit": _exit(line.wait_status), "reason": line.reason or None}
        word["node"] = line.nodes or word["node"]
        word["restarts"] = line.restarts
    if found.accounted is not None:
        word["accounted"] = list(found.accounted)
        word["state"] = word["state"] or found.accounted[0].partition(" ")[0]
    return word


def _by_record(found: Evidence, end: End) -> Outcome:
    if isinstance(end.outcome, Refused):
        return replace(end.outcome, message=_on(end.node))
    code = _code(found)
    if code is None and found.line is not None and found.line.restarts and end.heard:
        code = "cancelled-outside"  # somebody had its job put back into the queue
    was_from_outside = code == "out-of-memory" or (bool(end.heard) and not end.was_stopped)
    if code is None and end.was_given_up:
        code = "outcome-unknown"
    if code is None or not (was_from_outside or end.was_given_up):
        return end.outcome
    return replace(end.outcome, cause=_cause(found, code, end.outcome))


def _never_begun(found: Evidence) -> Outcome:
    """No job of it came to run the program, and none ever will."""
    line, code = found.line, _code(found)
    if code == "cancelled-outside" and line is not None and line.nodes:
        code = None  # a node that cannot launch a job cancels it itself, and looks no different from somebody who does
    if found.is_asked or (line is None and code is None):
        return NotLaunched(run=found.run, k=found.k, at=found.now)
    if code is not None:
        cause = {**_cause(found, code, None), "effects": "its program was not started"}
        return Refused(run=found.run, k=found.k, errno=0, what=RefusedAt.NODE, at=found.now, cause=cause)
    assert line is not None, "what the controller does not know has no code but by its accounts"
    words = f"job {line.job} ended on {line.nodes or 'its node'} before it reached the program: Slurm says {line.state}"
    words += f", exit {_exit(line.wait_status)}"
    words += f", {line.reason}" if line.reason else ""
    words += f"; {found.said.splitlines()[-1]}" if found.said else ""
    return Refused(run=found.run, k=found.k, errno=0, what=RefusedAt.NODE, at=found.now, message=words)


def _without_record(found: Evidence, claim: Claim) -> Ended:
    """Its program was begun, and no record says how it ended."""
    code = _code(found) or "outcome-unknown"
    status = None if found.line is None else found.line.wait_status
    signal = os.WTERMSIG(status) if status and os.WIFSIGNALED(status) else None
    started = found.now if claim.at_us is None else min(from_micros(claim.at_us), found.now)
    ended = Ended(
        run=found.run,
        k=found.k,
        pid=0,
        started_at=started,
        ended_at=found.now,
        exit_status=None,
        signal=signal,
        cpu_us=0,
        max_rss_bytes=0,
        left_behind=0,
    )
    return replace(ended, cause=_cause(found, code, ended))


def _code(found: Evidence) -> str | None:
    if found.line is not None and found.line.is_over:
        return CODES.get(found.line.state)
    if found.accounted is not None:
        return CODES.get(found.accounted[0].partition(" ")[0])
    return None


def _cause(found: Evidence, code: str, ended: Ended | None) -> dict[str, Any]:
    """Return the data of a reason: its code, where it ran, what Slurm says, and how the program took it."""
    word = word_of(found)
    cause: dict[str, Any] = {"code": code, "job": word["job"], "node": word["node"], "state": word["state"]}
    if word.get("reason"):
        cause["slurm_reason"] = word["reason"]
    if found.accounted is not None and " by " in found.accounted[0]:
        cause["uid"] = found.accounted[0].rpartition(" by ")[2]
    if found.line is None:
        cause["forgotten"] = True
    if ended is not None:
        cause |= {name: value for name in ("exit_status", "signal") if (value := getattr(ended, name)) is not None}
    return cause


def _exit(wait_status: int) -> str:
    """Return a wait status as Slurm writes it: `exit:signal`."""
    return f"{wait_status >> 8 & 0xFF}:{wait_status & 0x7F}"


def _on(node: str | None) -> str | None:
    return None if node is None else f"on node {node}"


def told(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as it is written down."""
    message: Mapping[str, Any] = outcome.to_message()
    more = {name: getattr(outcome, name, None) for name in ("message", "cause")}
    return {**message, **{name: value for name, value in more.items() if value is not None}}


def outcome_from(table: Any) -> Outcome | None:
    """Given what `told` has made, return the outcome; None for anything else."""
    try:
        if table["op"] == "not-launched":
            return NotLaunched(run=table["run"], k=table["k"], at=from_micros(table["at"]))
        outcome = report_from(table)
    except (KeyError, TypeError, ValueError):
        return None
    if not isinstance(outcome, (Ended, Refused)):
        return None
    cause = table.get("cause")
    outcome = replace(outcome, cause=cause if isinstance(cause, dict) else None)
    return replace(outcome, message=table.get("message")) if isinstance(outcome, Refused) else outcome
