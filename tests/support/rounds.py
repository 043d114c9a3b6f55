"""Rounds of one store, played without a supervisor: many schedules of all kinds, and runs that end when the test says so."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.story import FakeClock
from wfctl.core.admission import PASSED, Verdict
from wfctl.core.model import Status
from wfctl.operations.context import Context
from wfctl.operations.rounds import Question, RoundPlan, Subject
from wfctl.operations.store import Store, init_store, open_store
from wfctl.store.ledger import occurrences, runs, schedules

TABLES = ("schedules", "occurrences", "runs", "executions", "counters", "health", "sessions", "pauses", "clock_events")
REJECTED = Verdict({"code": "preflight", "problems": []})


class Rounds:
    """One store at one time, and the plan of its rounds."""

    def __init__(self, root: Path, clock: FakeClock, *, slots: int = 4) -> None:
        self.root = root
        self.clock = clock
        self.store: Store = open_store(root, clock=clock)
        self.plan = RoundPlan(slots=slots, session=None)

    @classmethod
    def new(cls, root: Path, *, slots: int = 4) -> Rounds:
        """Make a store, with the deployment `d`."""
        init_store(root).close()
        made = cls(root, FakeClock(), slots=slots)
        made.store.create_deployment(deployment_id="d", command=["/bin/true"])
        return made

    @property
    def context(self) -> Context:
        """The store as a supervisor has it open."""
        return self.store.context

    def copy(self, root: Path) -> Rounds:
        """Return a copy of it as it stands, at the same time."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns("ledger.db*"), dirs_exist_ok=True)
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            (root / name).unlink(missing_ok=True)
        target = sqlite3.connect(root / "ledger.db")
        self.context.ledger.connection.backup(target)
        target.close()
        clock = FakeClock(self.clock.now())
        return Rounds(root, clock, slots=self.plan.slots)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def unfinished(self) -> list[int]:
        """Return the numbers of the runs that are not finished."""
        return [run.number for run in runs.unfinished(self.context.ledger.connection)]

    def finish(self, *numbers: int, status: Status = Status.COMPLETED) -> None:
        """Let runs end."""
        with self.context.ledger.transaction() as connection:
            for number in numbers:
                run = runs.find(connection, number)
                assert run is not None
                assert runs.change_status(connection, run, status, ended_at=self.clock.now())
                connection.execute("UPDATE executions SET how = 1, mark = NULL WHERE run = ?", (number,))
                if run.schedule is not None and run.instant is not None:
                    occurrences.set_status(connection, run.schedule, run.instant, status)
                    schedules.slot_freed(connection, run.schedule, self.clock.now())

    def next_wake(self) -> datetime | None:
        """Return when something comes due."""
        return schedules.next_wake(self.context.ledger.connection)


def preflight(asked: Sequence[Question]) -> Mapping[Subject, Verdict]:
    """Answer by the name of the schedule: `…-rejected` is, and `…-unanswered` waits for its answer for ever."""
    words = {"rejected": REJECTED, "unanswered": None}
    answers = {question.subject: words.get(question.row.id.rpartition("-")[2], PASSED) for question in asked}
    return {subject: verdict for subject, verdict in answers.items() if verdict is not None}


def rows_of(root: Path) -> dict[str, list[Any]]:
    """Return everything that rounds write, by table."""
    connection = sqlite3.connect(root / "ledger.db")
    try:
        found = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}
        found["notices"] = connection.execute("SELECT schedule, word, event, coalesced FROM notices ORDER BY number").fetchall()
        found["blocked"] = connection.execute("SELECT number, diagnostic FROM definitions ORDER BY number").fetchall()
        return found
    finally:
        connection.close()


def add_some(rounds: Rounds, chance: random.Random, count: int) -> None:
    """Make schedules of all kinds and policies."""
    now = rounds.clock.now()
    for number in range(count):
        trigger = chance.choice(
            [
                {"kind": "cron", "expression": chance.choice(["* * * * *", "*/2 * * * *", "1-59/3 * * * *"])},
                {"kind": "interval", "every": chance.choice(["1m", "30s", "20s", "1500ms", "90s"])},
                {"kind": "oneshot", "at": (now + timedelta(seconds=chance.choice([30, 90, 150.25]))).isoformat()},
            ]
        )
        overlap = chance.choice(["skip", "queue", "parallel"])
        ends = chance.choice(["", "", "", "", "-rejected", "-unanswered"])
        rounds.store.create_schedule(
            schedule_id=f"s{chance.randrange(1000):03d}-{number}{ends}",
            deployment_id="d",
            trigger=trigger,
            overlap=overlap,
            misfire=chance.choice(["skip", "latest"]),
            lateness=chance.choice(["60s", "60s", "20ms", "1s", "5m"]),
            **({"max_active_runs": chance.choice([1, 2, 3])} if overlap == "parallel" else {}),
        )
