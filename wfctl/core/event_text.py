"""What an event says to a person: one sentence, and the next command to type (contract 7.8)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from wfctl.core.health_events import Word
from wfctl.core.reasons import phrase

Event = Mapping[str, Any]
_LONGEST = 1000  #: characters of what a definition, a run or its reason brings into the sentence


def event_message(event: Event) -> str:
    """Given an event without its message, return it: what happened, to what, and what to type next."""
    said, command = _SAY[Word(event["event"])](event)
    return f"{said}. See: wfctl --store {shlex.quote(str(event['store']))} {command}"


def _failed(event: Event) -> tuple[str, str]:
    often = "failed" if event["failures"] == 1 else f"failed {event['failures']} times in a row since {_second(event['since'])}"
    why = _short(phrase(event["reason"]))
    if event["run_id"] is None:
        not_started = f"{event['schedule_id']} {often}: {event['instant']} was not started{_colon(why)}"
        return not_started, f"occurrence explain {event['schedule_id']}@{event['instant']}"
    return f"{event['schedule_id']} {often}: {event['run_id']}, due {event['instant']}{_colon(why)}", _logs(event)


def _recovered(event: Event) -> tuple[str, str]:
    times = "1 failure" if event["failures"] == 1 else f"{event['failures']} failures"
    return (
        f"{event['schedule_id']} works again: {event['run_id']} completed, after {times} since {_second(event['since'])}",
        f"run show {event['run_id']}",
    )


def _waiting(event: Event) -> tuple[str, str]:
    asked = _short(str(((event["interrupt"] or {}).get("message")) or ""))
    return f"{event['schedule_id']} waits for input: {event['run_id']}{_colon(asked)}", f"run show {event['run_id']}"


def _overdue(event: Event) -> tuple[str, str]:
    return (
        f"{event['schedule_id']} is overdue: {event['run_id']}, due {event['instant']}, has used four fifths of its max_run",
        f"run show {event['run_id']}",
    )


def _missed(event: Event) -> tuple[str, str]:
    why = _short(phrase(event["reason"]))
    return (
        f"{event['schedule_id']} did not run at {event['instant']}{_colon(why)}",
        f"occurrence explain {event['schedule_id']}@{event['instant']}",
    )


def _blocked(event: Event) -> tuple[str, str]:
    reason = event["reason"] or {}
    why = _short(str(reason.get("message") or reason.get("code") or ""))
    return f"{event['schedule_id']} is blocked and starts nothing{_colon(why)}", f"schedule show {event['schedule_id']}"


def _unblocked(event: Event) -> tuple[str, str]:
    return (
        f"{event['schedule_id']} is not blocked any more, as it was since {_second(event['since'])}",
        f"schedule show {event['schedule_id']}",
    )


_SAY: Mapping[Word, Callable[[Event], tuple[str, str]]] = {
    Word.FAILED: _failed,
    Word.FAILING: _failed,
    Word.RECOVERED: _recovered,
    Word.WAITING: _waiting,
    Word.OVERDUE: _overdue,
    Word.MISSED: _missed,
    Word.BLOCKED: _blocked,
    Word.UNBLOCKED: _unblocked,
}


def _logs(event: Event) -> str:
    return f"run logs {event['run_id']}"


def _second(instant: str) -> str:
    """An instant to the second: what is told to a person needs no more."""
    return f"{instant[:19]}Z"


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def _short(text: str) -> str:
    """On one line, and not endless; what nothing prints is left out."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(line.split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
