"""A reason as one short phrase for a table (contract 5.10). Nothing is parsed from words: only the reason's data is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from wfctl.core.duration import format_duration

Reason = Mapping[str, Any]


def phrase(reason: Reason | None) -> str:
    """Given a reason, return it as a phrase; empty for None. What it holds of users' text is not escaped yet."""
    if not reason:
        return ""
    code = str(reason.get("code", ""))
    made = PHRASES.get(code)
    said = made(reason) if made else code
    message = reason.get("message")
    return f"{said}: {message}" if message and str(message) not in said else said


def _overlap(reason: Reason) -> str:
    runs = [str(run) for run in reason.get("runs") or ()]
    limit = reason.get("limit")
    if not runs:
        return "overlap: no room"
    shown = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    return f"overlap: {shown} held {'the slot' if limit in (None, 1) else f'all {limit} slots'}"


def _capacity(reason: Reason) -> str:
    limit, whose = reason.get("limit"), f" of {reason['executor']}" if reason.get("executor") else ""
    return f"capacity: all {limit} execution slots{whose} were taken" if limit else "capacity: no execution slot was free"


def _missed(reason: Reason) -> str:
    allowed = reason.get("allowed_s")
    return "missed" + (f": later than the {format_duration(timedelta(seconds=allowed))} allowed" if allowed is not None else "")


def _deadline(reason: Reason) -> str:
    change = f"; change it with {reason['change_with']}" if reason.get("change_with") else ""
    return _limit("max_run used up")(reason) + change


def _step(reason: Reason) -> str:
    return f" in step {reason['step']}" if reason.get("step") not in (None, "main") else ""


def _signal(reason: Reason) -> str:
    number = reason.get("signal")
    return f"ended by {signal_name(number)}{_step(reason)}" if number else f"ended by a signal{_step(reason)}"


def signal_name(number: Any) -> str:
    """Return `SIGKILL` for 9."""
    import signal as signals

    try:
        return signals.Signals(int(number)).name
    except (ValueError, TypeError):
        return f"signal {number}"


def _by_actor(verb: str) -> Callable[[Reason], str]:
    def made(reason: Reason) -> str:
        who = f" by {reason['actor']}" if reason.get("actor") else ""
        why = reason.get("reason") or reason.get("note") or reason.get("why")
        return f"{verb}{who}" + (f": {why}" if why else "")

    return made


def _limit(words: str) -> Callable[[Reason], str]:
    def made(reason: Reason) -> str:
        limit = reason.get("limit_s", reason.get("limit"))
        shown = format_duration(timedelta(seconds=limit)) if isinstance(limit, int | float) else str(limit or "")
        return f"{words}{_step(reason)}" + (f" ({shown})" if shown else "")

    return made


def _preflight(reason: Reason) -> str:
    problems = [problem for problem in reason.get("problems") or () if isinstance(problem, Mapping)]
    said = [f"{problem.get('path')}: {problem.get('message')}".removeprefix(": ") for problem in problems]
    return f"preflight: {said[0]}" + (f" (and {len(said) - 1} more)" if len(said) > 1 else "") if said else "preflight"


def _outside(words: str) -> Callable[[Reason], str]:
    """What a cluster did to a run: where, and which job it was there."""

    def made(reason: Reason) -> str:
        where = f" on {reason['node']}" if reason.get("node") else ""
        job = f" (Slurm job {reason['job']})" if reason.get("job") else ""
        return f"{words}{_step(reason)}{where}{job}"

    return made


def _cancelled_outside(reason: Reason) -> str:
    who = f" by uid {reason['uid']}" if reason.get("uid") else ""
    return _outside(f"its job was cancelled{who}, not by wfctl")(reason)


def _outcome_unknown(reason: Reason) -> str:
    said = "it ended, but nobody saw how"
    if reason.get("forgotten"):
        return _outside(f"{said}: Slurm does not know its job any more")(reason)
    return f"{said}: Slurm says {reason['state']}" if reason.get("state") else said


def _launch_failed(reason: Reason) -> str:
    import os

    number, what = reason.get("errno"), reason.get("what")
    said = os.strerror(number) if isinstance(number, int) and number > 0 else ""
    return f"could not be launched{_step(reason)}" + "".join(f": {part}" for part in (what, said) if part)


PHRASES: dict[str, Callable[[Reason], str]] = {
    "overlap": _overlap,
    "capacity": _capacity,
    "missed": _missed,
    "outlived": lambda reason: f"outlived: {reason.get('by')} was missed after it",
    "newer": lambda reason: f"replaced by {reason.get('by')}",
    "edited": _by_actor("the schedule was edited"),
    "paused": _by_actor("paused"),
    "deleted": _by_actor("deleted"),
    "clock": lambda reason: f"the clock went back from {reason.get('from')} to {reason.get('to')}",
    "preflight": _preflight,
    "preflight-timeout": lambda _: "preflight did not answer in time",
    "exit": lambda reason: f"exit {reason.get('exit_status')}{_step(reason)}",
    "signal": _signal,
    "timeout": _limit("step timeout"),
    "deadline": _deadline,
    "cancelled": _by_actor("cancelled"),
    "drained": lambda _: "stopped by a drain",
    "shutdown": lambda _: "stopped by a shutdown",
    "abandoned": lambda _: "abandoned: external effects may have happened",
    "outcome-unknown": _outcome_unknown,
    "not-started": lambda _: "was not started in time",
    "launch-failed": _launch_failed,
    "output-invalid": lambda reason: f"its output is not valid: {reason.get('problem')}",
    "max-steps": _limit("max_steps used up"),
    "ledger-restored": lambda _: "found after an older ledger was put back",
    "ambiguous": lambda _: "its records contradict each other",
    "time-limit": _outside("used up its time limit"),
    "out-of-memory": _outside("ran out of memory"),
    "preempted": _outside("preempted"),
    "node-failed": _outside("its node failed"),
    "cancelled-outside": _cancelled_outside,
}
