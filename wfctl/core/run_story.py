"""What a run went through, as lines of an explanation: started, tried again, waiting, ended and why (contract 5.10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wfctl.core.duration import brief
from wfctl.core.explanation import ExecutionStory, Line, RunStory
from wfctl.core.instants import format_instant, moment
from wfctl.core.model import FINISHED, UNFINISHED, Status
from wfctl.core.reasons import phrase, signal_name

_LISTED = 8  #: executions at the beginning, and at the end, that get a line each

#: What follows from the end of a run, beside the phrase that says what it was. Every code that a run can end with is here.
MEANING = {
    "exit": "a step ended with an exit status other than 0, and no retry was left",
    "signal": "a process of it was ended by a signal that nothing of wfctl sent, and no retry was left",
    "timeout": "a step took longer than its timeout, was stopped, and no retry was left",
    "deadline": "it executed for as long as max_run allows, and was stopped",
    "cancelled": "somebody ended it; what it did until then is done",
    "drained": "it was resumed, and ended when the supervisor was stopped",
    "shutdown": 'the supervisor was stopped, and the setting on_shutdown = "stop" ends the runs with it',
    "abandoned": "nobody lives to answer for its process, and there is no record of an end: its effects may have happened, and "
    "it is not tried again",
    "outcome-unknown": "it was seen at work, and nobody saw how it ended: its effects may have happened, and it is not tried "
    "again",
    "not-started": "its process is proved never to have been launched, and when that was known it was too late to start it",
    "launch-failed": "the system refused to start its process",
    "output-invalid": "what it left as its output is not valid JSON, so the step failed",
    "max-steps": "it had used the executions that max_steps allows, and stopped with its checkpoint",
    "ledger-restored": "an older ledger was put back, and its directory was found: only that and its logs say what it did",
    "ambiguous": "its records contradict each other, so nothing is decided by them",
    "time-limit": "the cluster ended it at the time limit of its job: what it did until then is done, and it is not tried "
    "again",
    "out-of-memory": "it used more memory than its job has on the cluster: its effects may have happened, and it is not tried "
    "again",
    "preempted": "the cluster took its place for another job: its effects may have happened, and it is not tried again",
    "node-failed": "the node of the cluster that it was on failed: its effects may have happened, and it is not tried again",
    "cancelled-outside": "somebody cancelled its job on the cluster, not through wfctl: what it did until then is done, and it "
    "is not tried again",
}
_NOBODY_KNOWS = frozenset({"abandoned", "outcome-unknown", "ledger-restored", "ambiguous"})


def has_run(run: RunStory) -> bool | None:
    """Tell whether a run ran, or will; None where nobody knows."""
    if run.status is None:
        return None
    if run.started_at is not None or run.status in UNFINISHED:
        return True
    return None if (run.reason or {}).get("code") in _NOBODY_KNOWS else False


def verdict(run: RunStory, now: datetime) -> str:
    """Return what is to be said of the run in one clause."""
    if run.status is None:
        return f"its run is {run.id}, whose record cannot be read: {run.problem}"
    if run.status is Status.ADMITTED:
        return f"it was admitted, and its process is not reported yet{_queued(run)}"
    if run.status is Status.RUNNING:
        late = "; it is overdue" if run.is_overdue else ""
        return f"it runs now{_for(run.started_at, now, ', for ')}{late}"
    if run.status is Status.INTERRUPTED:
        since = run.waits_at(now)
        return f"it ran, and waits for input{_for(since, now, ', for ')}{_message(run)}"
    said = phrase(run.reason)
    if run.started_at is None:
        return f"it was admitted, and {_never(run)}" + (f": {said}" if said else "")
    if run.status is Status.COMPLETED:
        return f"it ran, and completed{_for(run.started_at, run.ended_at, ' after ')}"
    took = _for(run.started_at, run.ended_at, " after ")
    verb = {Status.EXHAUSTED: "stopped", Status.CANCELLED: "was cancelled"}.get(run.status, "failed")
    return f"it ran, and {verb}{took}" + (f": {said}" if said else "")


def _queued(run: RunStory) -> str:
    """What a cluster says of a run whose job has not begun."""
    place = run.place or {}
    if not place.get("job"):
        return "" if run.place is None else f": it is to be submitted to {place.get('executor')}"
    reason = f" ({place['reason']})" if place.get("reason") else ""
    return f": {place.get('executor')} job {place['job']} is {place.get('state') or 'submitted'}{reason}"


def _never(run: RunStory) -> str:
    known = has_run(run) is False
    return "never started" if known else "nobody knows whether it started"


def story(run: RunStory, now: datetime, beside: datetime) -> Iterator[Line]:
    """Give the lines of a run after its admission, each at its time. `beside`: the instant beside which times are read."""
    if run.status is None:
        text = f"the record of {run.id} cannot be read: {run.problem}"
        yield Line(None, "run", text, "wfctl store verify", {"run_id": run.id})
        return
    source = run.id
    if run.started_at is not None:
        yield Line(run.started_at, "started", f"{run.id} started", source, {"run_id": run.id})
    yield from _executions(run)
    if run.status in FINISHED:
        yield from _end(run)
    else:
        yield from _now(run, now, beside)


def _executions(run: RunStory) -> Iterator[Line]:
    if len(run.executions) < 2:
        return
    left_out = run.executions[_LISTED:-_LISTED]
    for each in run.executions:
        if each in left_out:
            if each is left_out[0]:
                yield Line(each.started_at, "executions", f"{len(left_out)} executions more", run.id, {"count": len(left_out)})
            continue
        before = next((other for other in run.executions if other.k == each.k - 1), None)
        if before is not None and before.attempt < each.attempt:
            text = f"resumed with input: attempt {each.attempt}, step {each.step} again"
            yield Line(each.started_at, "resumed", text, run.id, {"attempt": each.attempt, "k": each.k})
        if each.ended_at is not None:
            yield Line(each.ended_at, "execution", _ended(run, each), run.id, {"k": each.k, "step": each.step})


def _ended(run: RunStory, each: ExecutionStory) -> str:
    following = next((other for other in run.executions if other.k > each.k), None)
    if each.exit_status == 75 and (
        following.attempt > each.attempt if following is not None else run.status is Status.INTERRUPTED
    ):
        how = "asked for input"
    elif each.reason is not None and each.reason.get("code") not in ("exit", "signal"):
        how = phrase(each.reason)
    elif each.signal:
        how = f"ended by {signal_name(each.signal)}"
    else:
        how = "done" if each.exit_status == 0 else f"exit {each.exit_status}"
    again = following is not None and following.step == each.step and following.attempt == each.attempt
    return f"execution {each.k}, step {each.step}: {how}" + ("; tried again" if again else "")


def _end(run: RunStory) -> Iterator[Line]:
    assert run.status is not None
    code = str((run.reason or {}).get("code", ""))
    took = _for(run.started_at, run.ended_at, " after ")
    said = phrase(run.reason)
    text = f"{run.id} {run.status.value}{took}" + (f": {said}" if said else "")
    data = {"run_id": run.id, "status": run.status.value, "reason": dict(run.reason or {})}
    yield Line(run.ended_at, "ended", text, run.id, data)
    if code in MEANING and (code != "exit" or len(run.executions) > 1):  # else it says no more than the line before
        yield Line(run.ended_at, "meaning", MEANING[code], f"reason {code}", {"code": code})


def _now(run: RunStory, now: datetime, beside: datetime) -> Iterator[Line]:
    since = run.waits_at(now)
    if run.status is Status.INTERRUPTED:
        text = f"{run.id} waits for input{_for(since, now, ' for ')}, and keeps its overlap slot{_message(run)}"
        yield Line(since or run.started_at, "waiting", text, run.id, {"run_id": run.id, "interrupt": dict(run.interrupt or {})})
        return
    if run.status is Status.RUNNING:
        limit = "" if run.max_run is None else f"; an attempt may execute for {brief(run.max_run)}"
        late = "; it is overdue, four fifths of that are used" if run.is_overdue else ""
        text = f"{run.id} runs{_for(run.started_at, now, ' since ', beside)}{limit}{late}"
        yield Line(now, "running", text, run.id, {"run_id": run.id})
    else:
        yield Line(now, "admitted", f"{run.id} is admitted, and no process of it is reported yet", run.id, {"run_id": run.id})


def _message(run: RunStory) -> str:
    message = (run.interrupt or {}).get("message")
    return f": {message}" if message else ""


def _for(since: datetime | None, until: datetime | None, word: str, beside: datetime | None = None) -> str:
    if since is None or until is None:
        return ""
    if beside is not None:
        return f"{word}{moment(since, beside)}"
    return f"{word}{brief(max(until - since, until - until))}"


def was_doing(run: RunStory, at: datetime, beside: datetime) -> str:
    """Return what a run was doing at a moment: `run-000118 was running (since 06:20:00Z)`."""
    if run.status is None:
        return f"{run.id} held a slot" + (f" (its record cannot be read: {run.problem})" if run.problem else "")
    since = run.waits_at(at)
    if since is not None:
        return f"{run.id} waited for input (since {moment(since, beside)})"
    if run.started_at is None or run.started_at > at:
        return f"{run.id} was admitted (at {moment(run.admitted_at, beside)})" if run.admitted_at else f"{run.id} was admitted"
    return f"{run.id} was running (since {moment(run.started_at, beside)})"


def what_came_of(run: RunStory, instant: datetime, now: datetime) -> Line | None:
    """Return the line that says when a run that was in the way ended, or that it still is there."""
    if run.status is None:
        return None
    of = None if run.instant is None else format_instant(run.instant)
    data = {"run_id": run.id, "status": run.status.value, "instant": of}
    if run.ended_at is not None:
        said = phrase(run.reason)
        after = f", {brief(run.ended_at - instant)} after this instant" if run.ended_at > instant else ""
        text = f"{run.id} {run.status.value}{after}" + (f": {said}" if said else "")
        return Line(run.ended_at, "freed", text, run.id, data)
    since = run.waits_at(now)
    if since is not None:
        text = f"{run.id} waits for input still, for {brief(now - since)}{_message(run)}"
        return Line(now, "in-the-way", text, run.id, data)
    begun = run.started_at or run.admitted_at
    late = "; it is overdue" if run.is_overdue else ""
    return Line(now, "in-the-way", f"{run.id} is {run.status.value} still{_for(begun, now, ', for ')}{late}", run.id, data)
