"""The table of bounds, and who meets them: what `benchmarks/gate` goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

SLACK = 1.25  #: by default: how much further than its bound a ratio of wall times may be


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One thing that a row of the table asks for."""

    row: int
    key: str  #: its name within the row
    what: str
    limit: float
    is_least: bool = False  #: at least so much; otherwise at most
    is_strict: bool = False  #: of processor time, size or count, which a busy machine does not change: no slack
    is_optional: bool = False  #: asked for only where it was measured
    unit: str = ""  #: nothing: a ratio


class Word(StrEnum):
    """How it went."""

    MET = "met"
    WITHIN_SLACK = "within slack"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one bound came to."""

    bound: Bound
    value: float | None
    word: Word
    reason: str = ""  #: why it was not measured

    @property
    def passes(self) -> bool:
        """Whether the gate lets it through."""
        return self.word in (Word.MET, Word.WITHIN_SLACK)


BOUNDS = (
    Bound(row=1, key="last", what="1,000 due at once: last start to the C loop's, one fdatasync", limit=1.5),
    Bound(
        row=1,
        key="lost",
        what="1,000 due at once: due, not started, not recorded as skipped",
        limit=0,
        is_strict=True,
        unit="jobs",
    ),
    Bound(row=1, key="twice", what="1,000 due at once: started once more", limit=0, is_strict=True, unit="jobs"),
    Bound(row=1, key="apscheduler", what="last start to that of APScheduler in memory", limit=1.0, is_optional=True),
    Bound(row=1, key="systemd", what="last start to that of systemd timers", limit=1.0, is_optional=True),
    Bound(row=1, key="cron", what="last start to that of Debian cron", limit=1.0, is_optional=True),
    Bound(row=2, key="cpu", what="processor time of all processes for those to the C loop's", limit=1.6, is_strict=True),
    Bound(row=3, key="ratio", what="one job: lateness to the C loop's", limit=4.0),
    Bound(row=3, key="ms", what="one job: lateness", limit=20.0, unit="ms"),
    Bound(row=4, key="cpu", what="10,000 idle: processor time of a minute", limit=0.04, is_strict=True, unit="s"),
    Bound(row=4, key="mib", what="10,000 idle: resident", limit=60.0, is_strict=True, unit="MiB"),
    Bound(row=5, key="cpu", what="100,000 idle: processor time of a minute", limit=0.1, is_strict=True, unit="s"),
    Bound(row=5, key="mib", what="100,000 idle: resident", limit=150.0, is_strict=True, unit="MiB"),
    Bound(row=6, key="cpu", what="start with 100,000: processor time to a bare stat pass", limit=8.0, is_strict=True),
    Bound(row=6, key="wall", what="start with 100,000: until READY to a bare stat pass", limit=8.0),
    Bound(row=7, key="operation", what="an edit by a command taken up", limit=20.0, unit="ms"),
    Bound(row=7, key="hand", what="a hand edit taken up, after its second", limit=20.0, unit="ms"),
    Bound(row=8, key="decisions", what="decisions a second to croniter alone", limit=0.5, is_least=True, is_strict=True),
    Bound(row=8, key="memory", what="memory in the last six hours to that in hours 7 to 12", limit=1.1, is_strict=True),
    Bound(row=9, key="warm", what="a page at the end to one at the start, warm", limit=1.3),
    Bound(row=9, key="cold", what="a page at the end to one at the start, cold", limit=1.3),
    Bound(row=9, key="command", what="`occurrences` in a pipe to a hello world", limit=1.6, is_strict=True),
    Bound(row=10, key="size", what="size of the ledger to bare integer tables", limit=1.5, is_strict=True),
    Bound(row=10, key="admission", what="latest admission during `store gc`", limit=50.0, unit="ms"),
    Bound(row=11, key="version", what="`--version` to a hello world", limit=1.15, is_strict=True),
    Bound(row=11, key="help", what="`schedule add --help` to a hello world", limit=1.15, is_strict=True),
    Bound(row=11, key="completion", what="completion of an id to a hello world", limit=1.3, is_strict=True),
    Bound(row=11, key="schedules", what="`schedules` in a pipe to a hello world", limit=1.6, is_strict=True),
    Bound(row=12, key="plain", what="launches a second to the C loop's", limit=0.75, is_least=True),
    Bound(row=12, key="ballast", what="the same with 1 GiB in the supervisor", limit=0.75, is_least=True),
    Bound(row=13, key="ratio", what="an end noticed, 1,000 live, to a bare epoll loop", limit=2.0),
    Bound(row=14, key="first", what="a year of missed minutes: first on-time admission", limit=5.0, unit="s"),
    Bound(row=15, key="p99", what="100 short runs a second: lateness, 99 %", limit=100.0, unit="ms"),
    Bound(row=15, key="growth", what="100 short runs a second: what grew", limit=0, is_strict=True, unit="kinds"),
    Bound(row=15, key="lost", what="100 short runs a second: lost", limit=0, is_strict=True, unit="runs"),
)
ROWS = tuple(dict.fromkeys(bound.row for bound in BOUNDS))

Values = Mapping[tuple[int, str], float]


def judge(bound: Bound, value: float, slack: float) -> Verdict:
    """Given what was measured, say whether it meets a bound; `slack` is a factor of 1 or more, for wall times alone."""
    if value != value:  # not a number: a side of the ratio did nothing
        return Verdict(bound, None, Word.NOT_MEASURED, "nothing came of it")
    if _meets(bound, value, bound.limit):
        return Verdict(bound, value, Word.MET)
    widened = bound.limit / slack if bound.is_least else bound.limit * slack
    if not bound.is_strict and _meets(bound, value, widened):
        return Verdict(bound, value, Word.WITHIN_SLACK)
    return Verdict(bound, value, Word.MISSED)


def _meets(bound: Bound, value: float, limit: float) -> bool:
    return value >= limit if bound.is_least else value <= limit


def verdicts_of(rows: Iterable[int], values: Values, reasons: Mapping[int, str], slack: float = SLACK) -> list[Verdict]:
    """Return a verdict for each bound of these rows, in the order of the table.

    `values`: what was measured, by row and key; `reasons`: by row, why there is nothing. Raise ValueError for a row or key
    that the table does not have, and for a slack below 1.
    """
    wanted = set(rows)
    unknown = (wanted - set(ROWS)) | (set(values) - {(bound.row, bound.key) for bound in BOUNDS})
    if unknown or slack < 1:
        raise ValueError(f"not in the table of bounds: {sorted(map(str, unknown))}" if unknown else f"slack {slack} is below 1")
    found = []
    for bound in BOUNDS:
        value = values.get((bound.row, bound.key))
        if bound.row not in wanted or (value is None and bound.is_optional):
            continue
        if value is None:
            found.append(Verdict(bound, None, Word.NOT_MEASURED, reasons.get(bound.row, "nothing was measured")))
        else:
            found.append(judge(bound, value, slack))
    return found
