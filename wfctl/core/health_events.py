"""A schedule's health: what happened to it, what it is then, and which change of it is told (contract 7.8).

Health has four sides, each well or in trouble: do its scheduled runs work (`failing`), do they come in time (`missed`), do they
end in time (`overdue`), can its records be trusted (`blocked`). A trouble is told once, however long it lasts and however often
it shows; so is its end, for the two sides where that is news. Every row below is the whole rule:

| happening | side | what it does | told |
| --- | --- | --- | --- |
| failed: a run ended `failed` or `exhausted`, or an instant `preflight-rejected` | failing | begins or counts on | *after* |
| completed: a run ended `completed` | failing | ends | `recovered`, where the failure was told |
| in-time: and it was never overdue | overdue | ends | - |
| stopped: a run was `cancelled`, or ended by the supervisor's own end (`drained`, `shutdown`) | - | - | - |
| waiting: a run waits for input | - | - | `waiting`, each time: each needs an answer |
| overdue: a run used up four fifths of its limit | overdue | begins | `overdue`, once |
| missed: an instant was `skipped-misfire` (reasons `missed`, `outlived`, `capacity`) | missed | begins | `missed`, once |
| on-time: a run was admitted within the lateness allowance | missed | ends | - |
| blocked: its definition, its deployment's, or its records cannot be trusted | blocked | begins | `blocked`, once |
| unblocked | blocked | ends | `unblocked`, where the block was told |

*after*: once, when so many have failed in a row (`after`, by default 1): `failed` where that is the first, else `failing`.

Runs are scheduled ones alone. A schedule that never worked is told at its first failure too, and one that fails each night is
told once. What a person did (pause, edit, cancel, stop, a run by hand) is no change of health, nor is an overlap that was
skipped as its policy says; what `misfire = "latest"` caught up with was not missed. Where nobody is to be told, trouble is
noted all the same, and told at the next happening once somebody is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from wfctl.core.model import Json, Reason, Status


class Happening(StrEnum):
    """What may change a schedule's health."""

    COMPLETED = "completed"
    IN_TIME = "in-time"
    FAILED = "failed"
    STOPPED = "stopped"
    WAITING = "waiting"
    OVERDUE = "overdue"
    MISSED = "missed"
    ON_TIME = "on-time"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"


class Word(StrEnum):
    """What is told: the `event` of `wfctl/event.v1`. Words are only added."""

    FAILED = "failed"
    FAILING = "failing"
    RECOVERED = "recovered"
    WAITING = "waiting"
    OVERDUE = "overdue"
    MISSED = "missed"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"


class Side(StrEnum):
    """What of a schedule is well or in trouble."""

    FAILING = "failing"
    MISSED = "missed"
    OVERDUE = "overdue"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One side that is not well."""

    since: datetime  #: when it began
    count: int  #: how often it has shown, in a row
    is_told: bool


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a schedule's health; a side that is None is well, or nothing is known of it."""

    failing: Trouble | None = None
    missed: Trouble | None = None
    overdue: Trouble | None = None
    blocked: Trouble | None = None

    @property
    def is_well(self) -> bool:
        """Tell whether nothing is known to be wrong."""
        return self == WELL

    def side(self, side: Side) -> Trouble | None:
        """Return one side."""
        found: Trouble | None = getattr(self, side.value)
        return found


WELL = Health()


@dataclass(frozen=True, slots=True)
class Telling:
    """One thing to tell: the word, since when it is so, and how often it showed in a row."""

    word: Word
    since: datetime
    count: int


@dataclass(frozen=True, slots=True)
class _Rule:
    side: Side | None
    begins: bool
    word: Word | None


RULES: Mapping[Happening, _Rule] = {
    Happening.COMPLETED: _Rule(Side.FAILING, False, Word.RECOVERED),
    Happening.IN_TIME: _Rule(Side.OVERDUE, False, None),
    Happening.FAILED: _Rule(Side.FAILING, True, Word.FAILED),
    Happening.STOPPED: _Rule(None, False, None),
    Happening.WAITING: _Rule(None, False, Word.WAITING),
    Happening.OVERDUE: _Rule(Side.OVERDUE, True, Word.OVERDUE),
    Happening.MISSED: _Rule(Side.MISSED, True, Word.MISSED),
    Happening.ON_TIME: _Rule(Side.MISSED, False, None),
    Happening.BLOCKED: _Rule(Side.BLOCKED, True, Word.BLOCKED),
    Happening.UNBLOCKED: _Rule(Side.BLOCKED, False, Word.UNBLOCKED),
}


def decide_telling(health: Health, happening: Happening, *, at: datetime, after: int | None) -> tuple[Health, Telling | None]:
    """Given a schedule's health and what happened at `at`, return its health from then on, and what is told, if anything.

    `after`: how many failures in a row are told of; None: nobody is to be told. Raise ValueError for an `after` below 1.
    Source: contract 7.8, the table above.
    """
    if after is not None and after < 1:
        raise ValueError(f"after must be 1 or more, not {after}")
    rule = RULES[happening]
    if rule.side is None:
        return health, Telling(rule.word, at, 1) if rule.word is not None and after is not None else None
    trouble = health.side(rule.side)
    if not rule.begins:
        ended = replace(health, **{rule.side.value: None})
        if trouble is None or rule.word is None or not trouble.is_told or after is None:
            return ended, None
        return ended, Telling(rule.word, trouble.since, trouble.count)
    count = 1 if trouble is None else trouble.count + 1
    since = at if trouble is None else trouble.since
    was_told = trouble is not None and trouble.is_told
    needed = None if after is None else after if rule.side is Side.FAILING else 1
    is_news = needed is not None and not was_told and count >= needed
    begun = replace(health, **{rule.side.value: Trouble(since, count, was_told or is_news)})
    assert rule.word is not None
    word = Word.FAILING if rule.word is Word.FAILED and count > 1 else rule.word
    return begun, Telling(word, since, count) if is_news else None


_BY_THE_END = frozenset({"drained", "shutdown"})  #: reasons of a run that the supervisor's own end stopped
_OF_STATUS = {
    Status.FAILED: Happening.FAILED,
    Status.EXHAUSTED: Happening.FAILED,
    Status.PREFLIGHT_REJECTED: Happening.FAILED,
    Status.COMPLETED: Happening.COMPLETED,
    Status.CANCELLED: Happening.STOPPED,
    Status.INTERRUPTED: Happening.WAITING,
    Status.SKIPPED_MISFIRE: Happening.MISSED,
}
_BY_A_PERSON = frozenset({"edited", "paused", "deleted", "clock"})


def happening_of(status: Status, reason: Reason | None) -> Happening | None:
    """Given where an occurrence or a scheduled run has come to, and why, return what that is for the health of its schedule.

    None: nothing, as for one that was coalesced, skipped for overlap, or is under way.
    """
    code = (reason or {}).get("code")
    if status is Status.FAILED and code in _BY_THE_END:
        return Happening.STOPPED
    if status is Status.SKIPPED_MISFIRE and code in _BY_A_PERSON:
        return None
    return _OF_STATUS.get(status)


# As the ledger keeps it -------------------------------------------------------------------------------------------------


def health_to_plain(health: Health) -> dict[str, Json]:
    """Return a health as JSON can say it: by side, since when in microseconds, how often, and whether it was told."""
    from wfctl.core.instants import to_micros

    troubles = {side.value: health.side(side) for side in Side}
    return {name: [to_micros(each.since), each.count, each.is_told] for name, each in troubles.items() if each is not None}


def health_from_plain(plain: Json) -> Health:
    """Return the health that `health_to_plain` made this of; what cannot be read counts as well: at worst it is told again."""
    from wfctl.core.instants import from_micros

    troubles = {}
    for side in Side:
        found = plain.get(side.value) if isinstance(plain, dict) else None
        if isinstance(found, list) and len(found) == 3 and type(found[0]) is int and type(found[1]) is int:
            try:
                troubles[side.value] = Trouble(from_micros(found[0]), found[1], bool(found[2]))
            except (ValueError, OverflowError):
                continue
    return Health(**troubles)
