#!/usr/bin/env python3
"""A hundred thousand schedules of mixed expressions over a day: decisions a second, beside croniter's next instants alone.

python benchmarks/decisions.py [--schedules 100000] [--hours 24] [--different] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfctl.operations.context import Context

LEAST, GROWTH = 0.5, 1.1  #: the bounds of row 8
BEGIN = datetime(2027, 3, 1, tzinfo=UTC)  #: a Monday, and the first of a month
ZONES = ("UTC", "Europe/Budapest", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
HOURS = (*range(24), *range(8), 0, 0, 1, 2, 2, 3, 6)  #: nights are busier
ENDLESS = 20  #: of so many schedules one has a first run that never ends, and what comes due after it is skipped
ASKED = 100  #: how often croniter is asked after each round
KEPT = 2000  #: croniter objects held at a time


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--different", action="store_true", help="spread times and zones evenly")
    parser.add_argument("--directory", type=Path, help="where the store is made (default: the folder for temporary files)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-decisions-", dir=options.directory) as directory:
        result = measure(
            Path(directory), schedules=options.schedules, hours=options.hours, different=options.different, show=show_hour
        )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        if isinstance(value, float | int):
            print(f"{name.replace('_', ' '):<56}{value:>14,.3f}")
    passed = [
        verdict("decisions", result["decisions_ratio"], LEAST, result["decisions_ratio"] >= LEAST),
        verdict("memory", result["memory_ratio"], GROWTH, result["memory_ratio"] <= GROWTH),
    ]
    return 0 if all(passed) else 1


def verdict(what: str, ratio: float, bound: float, is_met: bool) -> bool:
    """Print how it went, and return whether the bound is met."""
    print(f"row 8: {what}: ratio {ratio:.2f}, bound {bound}: {'met' if is_met else 'missed'}")
    return is_met


def show_hour(hour: int, figures: dict[str, float]) -> None:
    """Print how an hour went."""
    print(
        f"hour {hour:>3}: {figures['decisions']:>9,.0f} decisions, {figures['decision_us']:6.1f} us each,"
        f" the log {figures['log_us']:5.1f} us, croniter {figures['croniter_us']:6.1f} us, {figures['mib']:7.1f} MiB",
        file=sys.stderr,
        flush=True,
    )


# What there is to decide ------------------------------------------------------------------------------------------------


def expressions(count: int, *, different: bool = False) -> list[tuple[str, str]]:
    """Return so many expressions, each with its zone, of the kinds that stand in crontabs.

    `different`: times are spread evenly, and zones over all kinds, so that few are alike and few are due together.
    """
    chance = random.Random(8)
    kinds = [
        (36, "{m} {h} * * *"), (18, "{m} {h} * * 1-5"), (10, "{m} {h} * * {w}"), (10, "{m} {h} {d} * *"),
        (1, "{m} {h} {d} */3 *"), (10, "{m} * * * *"), (6, "{m} */2 * * *"), (3, "{m},{n} 8-18 * * mon-fri"),
        (3, "*/15 * * * *"), (2, "{m}-59/20 * * * *"), (0.9, "*/5 * * * *"), (0.1, "* * * * *"),
    ]  # fmt: skip
    chosen = chance.choices([form for _, form in kinds], [share for share, _ in kinds], k=count)
    found = []
    for form in chosen:
        m, h = minute(chance, different), chance.randrange(24) if different else chance.choice(HOURS)
        d, w = 1 + chance.randrange(28), chance.randrange(7)
        zone = chance.choice(ZONES) if different or "{h}" in form else ZONES[0]
        found.append((form.format(m=m % 20 if "-59" in form else m, n=(m + 17) % 60, h=h, d=d, w=w), zone))
    return found


def minute(chance: random.Random, different: bool) -> int:
    """Return a minute as people choose them: mostly a whole or a half hour, else a quarter, a multiple of five, any."""
    if different:
        return chance.randrange(60)
    share = chance.random()
    if share < 0.65:
        return chance.choices((0, 30, 15, 45), (38, 12, 8, 7))[0]
    return 5 * chance.randrange(12) if share < 0.8 else chance.randrange(60)


def make(context: Context, mixed: Sequence[tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """Enter a schedule for each expression, as creating them would, each with a text of its own; return them by number."""
    from wfctl.core.definition import schedule_to_plain
    from wfctl.core.model import CronTrigger, ScheduleDefinition
    from wfctl.core.trigger import calendar_of
    from wfctl.store.definitions import digest, to_toml
    from wfctl.store.ledger import definitions, schedules
    from wfctl.store.ledger.definitions import RevisionRow, Signature

    limit, triggers = timedelta(hours=1), {each: CronTrigger(*each) for each in mixed}
    plains = {
        each: schedule_to_plain(ScheduleDefinition(deployment="job", trigger=trigger, notes="@", max_run=limit))
        for each, trigger in triggers.items()
    }
    texts = {each: to_toml(plain).decode() for each, plain in plains.items()}
    new: list[tuple[str, RevisionRow, Signature | None]] = []
    for i, each in enumerate(mixed):
        content = texts[each].replace("@", f"number {i}")
        row = RevisionRow(
            revision=1,
            recorded_at=0,
            actor="benchmark",
            croniter="",
            tz_database="",
            digest=digest(content.encode()),
            content=content,
            plain={**plains[each], "notes": f"number {i}"},
            max_run=limit // timedelta(microseconds=1),
        )
        new.append((f"job-{i:06d}", row, None))
    first = {each: calendar_of(trigger).next_after(BEGIN) for each, trigger in triggers.items()}
    with context.ledger.transaction() as connection:
        job = definitions.find(connection, "deployment", "job")
        assert job is not None
        numbers = definitions.add_all(connection, "schedule", new)
        for number, each in zip(numbers, mixed, strict=True):
            schedules.insert(connection, number, deployment=job.number, now=BEGIN, anchor=BEGIN, next_instant=first[each])
    return dict(zip(numbers, mixed, strict=True))


def make_beside(root: Path, mixed: Sequence[tuple[str, str]]) -> None:
    """Make the store in another process, so that this one has the memory of a supervisor that has just been started on it."""
    from wfctl import init_store, open_store

    child = os.fork()
    if child == 0:
        status = 1
        try:
            init_store(root).close()
            with open_store(root, clock=VirtualClock()) as store:
                store.create_deployment(deployment_id="job", command=["/bin/true"])
                make(store.context, mixed)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the store could not be made")


# The day ------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Spent:
    """Processor seconds, and for how much."""

    seconds: float = 0.0
    count: int = 0

    def add(self, seconds: float, count: int) -> None:
        """Take in more of it."""
        self.seconds += seconds
        self.count += count

    def since(self, before: Spent) -> Spent:
        """Return what came since then."""
        return Spent(self.seconds - before.seconds, self.count - before.count)

    @property
    def us(self) -> float:
        """Microseconds each."""
        return self.seconds / self.count * 1e6 if self.count else 0.0


class VirtualClock:
    """The time of the simulated day."""

    def __init__(self) -> None:
        self.at = BEGIN

    def now(self) -> datetime:
        """Return it."""
        return self.at

    def monotonic(self) -> float:
        """Return it in seconds."""
        return (self.at - BEGIN).total_seconds()


class Alone:
    """croniter, asked for the next instant and nothing else."""

    def __init__(self) -> None:
        self.spent = Spent()
        self._made: dict[tuple[str, str], Any] = {}

    def ask(self, asked: Sequence[tuple[str, str]], after: datetime) -> None:
        """Ask for one instant of each of these; the objects are made beforehand, and not counted."""
        from zoneinfo import ZoneInfo

        from croniter import croniter

        for expression, zone in asked:
            if (expression, zone) not in self._made:
                self._made[expression, zone] = croniter(expression, after.astimezone(ZoneInfo(zone)))
        made = [self._made[each] for each in asked]
        begin = time.process_time()
        for each in made:
            each.get_next(datetime)
        self.spent.add(time.process_time() - begin, len(made))
        while len(self._made) > KEPT:
            del self._made[next(iter(self._made))]


@dataclass(slots=True)
class Day:
    """One ledger, and the rounds and the ends of runs on it."""

    context: Context
    clock: VirtualClock
    expressions: Sequence[tuple[str, str]]
    first: int  #: the number of the first schedule
    rounds: Spent = field(default_factory=Spent)
    ends: Spent = field(default_factory=Spent)
    log: Spent = field(default_factory=Spent)
    alone: Alone = field(default_factory=Alone)
    chance: random.Random = field(default_factory=lambda: random.Random(24))
    begun: list[int] = field(default_factory=list)  #: runs that end before the next round

    def get_to_know(self) -> None:
        """Have every definition read once, as a supervisor has that was there on the days before."""
        from wfctl.store.ledger import admissions

        connection = self.context.ledger.connection
        row = admissions.due(connection, BEGIN + timedelta(hours=1))[0]
        for i in range(len(self.expressions)):
            self.context.known.rules(self.context, row._replace(number=self.first + i))

    def minute(self) -> int:
        """Let the next minute come; return how many decisions were recorded."""
        from wfctl.core.admission import PASSED
        from wfctl.operations.rounds import RoundPlan, settle_round
        from wfctl.store.ledger import occurrences

        self.clock.at += timedelta(minutes=1)
        self._end()
        plan = RoundPlan(slots=len(self.expressions), session=None, mark_note=lambda: NOTE)
        before = occurrences.last_place(self.context.ledger.connection)
        begin = time.process_time()
        new = settle_round(self.context, plan, lambda asked: {each.subject: PASSED for each in asked}, self.clock.at)
        seconds = time.process_time() - begin
        decided = occurrences.last_place(self.context.ledger.connection) - before
        self.rounds.add(seconds, decided)
        self.begun = [run.number for run in new if run.schedule is not None and run.schedule % ENDLESS]
        self._move_log(decided)
        self.alone.ask(self._sample(before + 1, before + decided), self.clock.at)
        return decided

    def _end(self) -> None:
        """Let the runs of the last minute have ended, by what the driver writes for many plain ends at once."""
        from wfctl.store.ledger import plain_ends

        begin = time.process_time()
        if self.begun:
            with self.context.ledger.transaction() as connection:
                ends = [
                    plain_ends.PlainEnd(each, each.admitted_at, self.clock.at, 1000, 1 << 20, 0)
                    for each in plain_ends.unended(connection, self.begun)
                ]
                assert len(ends) == len(self.begun)
                plain_ends.settle(connection, ends)
        self.ends.add(time.process_time() - begin, len(self.begun))

    def _move_log(self, decided: int) -> None:
        """Have the write-ahead log moved into the ledger's file, which a supervisor has done by a thread beside its loop."""
        from wfctl.store.ledger import checkpoints

        begin = time.process_time()
        checkpoints.move(self.context.ledger.connection)
        self.log.add(time.process_time() - begin, decided)

    def _sample(self, first: int, last: int) -> list[tuple[str, str]]:
        """Return the expressions of some of the decisions that were recorded at these places."""
        connection = self.context.ledger.connection
        places = self.chance.sample(range(first, last + 1), min(ASKED, last + 1 - first))
        numbers = [
            connection.execute("SELECT schedule FROM occurrences WHERE place = ?", (place,)).fetchone()[0] for place in places
        ]
        return [self.expressions[number - self.first] for number in numbers]


NOTE = {"boot": "00000000-0000-0000-0000-000000000000", "since_ns": 10**15, "keeper": 4_000_000}


def resident_mib() -> float:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def measure(
    directory: Path,
    *,
    schedules: int = 100_000,
    hours: int = 24,
    different: bool = False,
    show: Callable[[int, dict[str, float]], None] = lambda hour, figures: None,
) -> dict[str, Any]:
    """Play the day; return decisions a second to croniter's next instants a second, and how memory grew."""
    from wfctl import open_store
    from wfctl.cli.supervise import _NEW_OBJECTS
    from wfctl.store.ledger import checkpoints
    from wfctl.supervisor.pauses import Pauses

    mixed = expressions(schedules, different=different)
    make_beside(directory / "store", mixed)
    gc.set_threshold(_NEW_OBJECTS)  # as in a process that is a supervisor
    pauses, clock = Pauses(), VirtualClock()
    by_hour: list[dict[str, float]] = []
    with open_store(directory / "store", clock=clock) as store:
        connection = store.context.ledger.connection
        day = Day(store.context, clock, mixed, connection.execute("SELECT min(number) FROM schedules").fetchone()[0])
        day.get_to_know()
        checkpoints.leave(connection)
        checkpoints.hold_more(connection)
        pauses.begin()
        for hour in range(1, hours + 1):
            rounds, log, alone = replace(day.rounds), replace(day.log), replace(day.alone.spent)
            decided = sum(day.minute() for _ in range(60))
            figures = {
                "decisions": float(decided),
                "decision_us": day.rounds.since(rounds).us,
                "log_us": day.log.since(log).us,
                "croniter_us": day.alone.spent.since(alone).us,
                "mib": resident_mib(),
            }
            by_hour.append(figures)
            show(hour, figures)
            pauses.look(math.inf)
        recorded = connection.execute("SELECT count(*) FROM occurrences").fetchone()[0]
    assert recorded == day.rounds.count, "a decision that was not recorded"
    ratios = sorted(each["croniter_us"] / each["decision_us"] for each in by_hour)
    memory = [each["mib"] for each in by_hour]
    return {
        "schedules": schedules,
        "expressions_that_differ": len(set(mixed)),
        "hours": hours,
        "decisions": day.rounds.count,
        "runs_ended": day.ends.count,
        "decision_us": day.rounds.us,
        "log_us": day.log.us,
        "run_end_us": day.ends.us,
        "croniter_next_us": day.alone.spent.us,
        "decisions_ratio": day.alone.spent.us / day.rounds.us,
        "decisions_ratio_median_hour": ratios[len(ratios) // 2],
        "decisions_and_log_ratio": day.alone.spent.us / (day.rounds.us + day.log.us),
        "mib_first_hour": memory[0],
        "mib_second_quarter": max(memory[hours // 4 : hours // 2] or memory),
        "mib_last_quarter": max(memory[-hours // 4 :]),
        "memory_ratio": max(memory[-hours // 4 :]) / max(memory[hours // 4 : hours // 2] or memory),
        "by_hour": by_hour,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
