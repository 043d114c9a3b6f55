"""What a run does next: the next step, a retry, or its end (contract 6.2, 6.5, 6.7, 6.10, 6.11)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from wfctl.core.lifecycle import RunEvent
from wfctl.core.model import Json, Reason, Step
from wfctl.value import Value

INTERRUPT_EXIT = 75  #: with a JSON object in `$WFCTL_INTERRUPT`, the run waits for input (6.5)
LONGEST_RETRY_DELAY = timedelta(minutes=10)


class Ended(StrEnum):
    """How one execution ended, as far as anybody can know."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    REFUSED = "refused"  #: the system refused the launch
    NOT_LAUNCHED = "not-launched"  #: a keeper proved that it never was launched (6.10)
    UNKNOWN = "unknown"  #: it ran, and nobody who could tell how it ended lives
    ABANDONED = "abandoned"  #: nobody lives to answer for it and it left no exit record (7.1)
    ENDED_OUTSIDE = "ended-outside"  #: what runs it for us ended it, for a reason of its own: a limit, a lost node, a person


class ExecutionEnd(Value):
    """One settled execution of a run, with what its files said."""

    k: int
    step: int  #: index of its step
    attempt: int
    how: Ended
    ended_at: datetime
    exit_status: int | None = None
    signal: int | None = None
    errno: int | None = None
    what: str | None = None  #: what the system refused: program, cwd, output, record, fork, submission, node
    message: str | None = None  #: why, in the words of who refused it
    cause: Reason | None = None  #: what ended it from outside, or what is known where nobody saw its end
    stop: Reason | None = None  #: a recorded stop of this execution alone, such as its timeout
    interrupt: Mapping[str, Json] | None = None  #: the object it left in `$WFCTL_INTERRUPT`, if it is one
    output_problem: str | None = None  #: why what it left in `$WFCTL_OUTPUT` cannot be taken


class Mark(Value, kw_only=False):
    """Mark another execution, of step `step`, not before `not_before` (None: now)."""

    step: int
    not_before: datetime | None = None


class Conclude(Value, kw_only=False):
    """The run, or this attempt of it, is over: `event` is completed, failed, exhausted, cancelled or interrupted."""

    event: RunEvent
    reason: Reason | None = None
    interrupt: Mapping[str, Json] | None = None


_STOP_ENDS = {"cancelled": RunEvent.CANCELLED}  #: every other recorded stop ends the run as failed


def decide_next(
    steps: Sequence[Step],
    executions: Sequence[ExecutionEnd],
    *,
    attempt: int,
    resumed_step: int = 0,
    max_steps: int | None,
    stop: Reason | None = None,
) -> Mark | Conclude:
    """Given a run with no living execution, return what follows.

    Shape: `executions` are all settled ones, ascending by k; `attempt` is the current one, `resumed_step` the index of the
    step it begins with; `stop` is the stop recorded for the run, which decides its end whatever the exit status (6.11).
    Raise ValueError when executions are out of order.
    Source: contract 6.5, 6.7, 6.10, 6.11; the retry delay doubles each time, up to ten minutes (3).
    """
    if any(later.k <= earlier.k for earlier, later in itertools.pairwise(executions)):
        raise ValueError("executions must ascend by k")
    if stop is not None:
        return Conclude(_STOP_ENDS.get(str(stop["code"]), RunEvent.FAILED), stop)
    launched = sum(1 for execution in executions if execution.how is not Ended.NOT_LAUNCHED)
    following = _what_follows(steps, executions, attempt=attempt, resumed_step=resumed_step)
    if isinstance(following, Mark) and max_steps is not None and launched >= max_steps:
        return Conclude(RunEvent.EXHAUSTED, {"code": "max-steps", "limit": max_steps, "step": steps[following.step].name})
    return following


def is_done_by_first(steps: Sequence[Step]) -> bool:
    """Tell whether a run is completed once its first execution exited with 0 and wrote nothing, as `decide_next` has it."""
    return len(steps) == 1


def _what_follows(
    steps: Sequence[Step], executions: Sequence[ExecutionEnd], *, attempt: int, resumed_step: int
) -> Mark | Conclude:
    of_attempt = [execution for execution in executions if execution.attempt == attempt]
    if not of_attempt:
        return Mark(resumed_step)
    last = of_attempt[-1]
    if last.how is Ended.NOT_LAUNCHED:
        return Mark(last.step)
    if is_interrupt(last):
        return Conclude(RunEvent.INTERRUPTED, interrupt=last.interrupt)
    reason = failure_of(last, steps[last.step].name)
    if reason is None:
        return Mark(last.step + 1) if last.step + 1 < len(steps) else Conclude(RunEvent.COMPLETED)
    failures = sum(1 for execution in of_attempt if execution.step == last.step and execution.how is not Ended.NOT_LAUNCHED)
    is_known = last.how not in (Ended.UNKNOWN, Ended.ABANDONED, Ended.ENDED_OUTSIDE)  # effects may have happened
    if is_known and failures <= steps[last.step].retries:
        return Mark(last.step, last.ended_at + retry_delay(steps[last.step], failures))
    return Conclude(RunEvent.FAILED, reason)


def retry_delay(step: Step, failures: int) -> timedelta:
    """Given a step and how often it failed (1 or more), return how long to wait before it runs again."""
    if not step.retry_delay:
        return timedelta(0)
    # Doubling stops mattering long before the exponent gets large, so cut it there rather than overflow.
    return min(step.retry_delay * (1 << min(failures - 1, 30)), LONGEST_RETRY_DELAY)


def is_interrupt(execution: ExecutionEnd) -> bool:
    """Tell whether this execution asks for input: exit 75 with a JSON object, not stopped by anybody."""
    asks = execution.how is Ended.EXITED and execution.exit_status == INTERRUPT_EXIT
    return asks and execution.interrupt is not None and execution.stop is None


def failure_of(execution: ExecutionEnd, step: str) -> Reason | None:
    """Given a settled execution, return why its step failed, or None when it succeeded."""
    where = {"step": step, "k": execution.k}
    if execution.stop is not None:
        return {**execution.stop, **where}
    if execution.how is Ended.ABANDONED:
        return {"code": "abandoned", **where, "effects": "external effects may already have happened"}
    if execution.how is Ended.UNKNOWN:
        known = execution.cause or {}
        return {"code": "outcome-unknown", **known, **where, "effects": "it ran to its end, but nobody saw how it ended"}
    if execution.how is Ended.ENDED_OUTSIDE:
        effects = {"effects": "what it did until then is done"}
        return {**effects, **(execution.cause or {"code": "outcome-unknown"}), **where}
    if execution.how is Ended.REFUSED:
        refused = {"code": "launch-failed", **where, "errno": execution.errno, "what": execution.what}
        return refused if execution.message is None else {**refused, "message": execution.message}
    if execution.how is Ended.SIGNALLED:
        return {"code": "signal", **where, "signal": execution.signal}
    if execution.exit_status != 0:
        return {"code": "exit", **where, "exit_status": execution.exit_status}
    if execution.output_problem:
        return {"code": "output-invalid", **where, "problem": execution.output_problem}
    return None
