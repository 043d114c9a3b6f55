"""How long runs are expected to take: from their history, from a file, or all alike."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from wfctl.core.duration import parse_duration
from wfctl.core.model import Status
from wfctl.core.simulation import Course
from wfctl.errors import InvalidArgument
from wfctl.store.ledger import past

NEWEST = 200  #: finished runs of a schedule that are looked at
ASSUMED = timedelta(minutes=1)  #: for a schedule without any
_QUANTILE = re.compile(r"p(\d{1,2}|100)", re.ASCII)
_WORDS = "history, sample, a quantile such as p95, a duration such as 5m, or a file"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a duration is chosen: the quantile of the history, one of it drawn at random, or a fixed one."""

    quantile: int | None = 50
    fixed: timedelta | None = None
    by_schedule: Mapping[str, timedelta] = field(default_factory=dict)

    @property
    def is_drawn(self) -> bool:
        return self.quantile is None and self.fixed is None


def rule_of(given: Any) -> Rule:
    """Given `history` (the median), `sample`, `pNN`, a duration, or a table of durations by schedule, return the rule.

    Raise InvalidArgument for anything else.
    """
    if isinstance(given, Mapping):
        return Rule(by_schedule={str(name): _duration(value, f"durations.{name}") for name, value in given.items()})
    if given in (None, "history"):
        return Rule()
    if given == "sample":
        return Rule(quantile=None)
    match = _QUANTILE.fullmatch(given) if isinstance(given, str) else None
    if match is not None:
        return Rule(quantile=int(match[1]))
    return Rule(fixed=_duration(given, "durations"))


def _duration(value: Any, name: str) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 10**9:
        return timedelta(seconds=value)
    try:
        return parse_duration(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{name}: {value!r} is neither of {_WORDS}", {"argument": name}) from error


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of one schedule's runs, and where that comes from."""

    lasts: timedelta
    origin: str  #: history, given, or assumed
    known: tuple[timedelta, ...] = ()  #: what its newest runs took


class Estimates:
    """What each schedule's runs take. The same seed draws the same."""

    def __init__(self, connection: sqlite3.Connection, rule: Rule, seed: int, limits: Mapping[str, timedelta | None]) -> None:
        self._connection = connection
        self._rule = rule
        self._limits = limits  #: where a run is ended, by schedule
        self._seed = seed
        self._found: dict[str, Estimate] = {}

    def of(self, schedule_id: str, number: int | None) -> Estimate:
        """Return the estimate for a schedule; `number` is its own in the ledger, None where it is not there."""
        if schedule_id not in self._found:
            self._found[schedule_id] = self._estimate(schedule_id, number)
        return self._found[schedule_id]

    def course(self, schedule_id: str, instant: datetime) -> Course:
        """Return how the run of an instant is expected to go; ended where its limit is."""
        estimate = self._found[schedule_id]
        lasts = estimate.lasts
        if self._rule.is_drawn and estimate.known:
            lasts = random.Random(f"{self._seed} {schedule_id} {instant.timestamp()}").choice(estimate.known)
        limit = self._limits.get(schedule_id)
        if limit is not None and lasts > limit:
            return Course.of(limit, Status.FAILED)
        return Course.of(lasts)

    def _estimate(self, schedule_id: str, number: int | None) -> Estimate:
        given = self._rule.by_schedule.get(schedule_id) or self._rule.fixed
        if given is not None:
            return Estimate(given, "given")
        found = past.newest_lengths(self._connection, number, NEWEST) if number is not None else []
        lengths = sorted(timedelta(microseconds=length) for length, _ in found)
        if not lengths:
            return Estimate(ASSUMED, "assumed")
        return Estimate(
            quantile(lengths, 50 if self._rule.quantile is None else self._rule.quantile), "history", tuple(lengths)
        )


def quantile(lengths: list[timedelta], percent: int) -> timedelta:
    """Given lengths in ascending order, return the smallest that at least `percent` of them do not exceed (nearest rank)."""
    rank = max(1, -(-len(lengths) * percent // 100))
    return lengths[rank - 1]
