#!/usr/bin/env python3
"""Very many schedules of each minute were down for a year: how soon does the supervisor admit what is due now, and what after?

python benchmarks/missed.py [--schedules 1000] [--days 365] [--different] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import live
import many
import watched

BOUND_S = 5.0
SECOND = "each-second"
POLICIES = ({}, {"overlap": "queue"}, {"misfire": "latest"}, {"misfire": "latest", "overlap": "queue"}, {"lateness": "10m"})
SPARE = 8  #: slots beyond one for each schedule
PATIENCE_S = 300.0
AFTER_S = 5.0  #: watched on after all is settled


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--different", action="store_true", help="give each schedule an expression of its own, for each minute")
    parser.add_argument("--directory", type=Path, help="where the store is made (default: the folder for temporary files)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-missed-", dir=options.directory) as directory:
        result = measure(Path(directory), schedules=options.schedules, days=options.days, different=options.different)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        print(f"{name.replace('_', ' '):<56}{value:>12.3f}")
    verdict = "met" if result["first_on_time_admission_s"] < BOUND_S else "missed"
    print(f"row 14: first on-time admission after {result['first_on_time_admission_s']:.2f} s, bound {BOUND_S:g} s: {verdict}")
    return 0 if verdict == "met" else 1


def measure(directory: Path, *, schedules: int = 1000, days: int = 365, different: bool = False) -> dict[str, float]:
    """Return how soon after its start a supervisor admitted what was due on time, and how late what came due meanwhile."""
    root = directory / "store"
    job, stamps = live.stamping(directory)
    make_store(root, schedules, days, job, different)
    with watched.supervised(root, "--max-concurrent-runs", str(schedules + SPARE)) as supervisor:
        ready = time.time()
        started = ready - supervisor.wall_s
        settled = wait_until_settled(root, ready)
        used = watched.processor_s(supervisor.pid)
        time.sleep(AFTER_S)
        ended = time.time()
        time.sleep(1)
    found = live.read_stamps(stamps)
    if not found:
        raise SystemExit("nothing was admitted")
    beside = [each.lateness_ms for each in found if each.schedule_id == SECOND and ready <= each.due_ns / 1e9 < settled]
    after = [each.lateness_ms for each in found if each.schedule_id == SECOND and settled <= each.due_ns / 1e9 < ended]
    connection = sqlite3.connect(root / "ledger.db")
    rows, spans = connection.execute("SELECT count(*), count(span_first) FROM occurrences").fetchone()
    connection.close()
    return {
        "schedules": schedules,
        "missed_instants_each": days * 1440,
        "ready_s": supervisor.wall_s,
        "first_on_time_admission_s": min(each.began_ns for each in found) / 1e9 - started,
        "all_settled_s": settled - started,
        "processor_s_until_then": used,
        "each_second_meanwhile_lateness_most_ms": max(beside, default=0.0),
        "each_second_meanwhile_runs": len(beside),
        "each_second_afterwards_lateness_most_ms": max(after, default=0.0),
        "each_second_afterwards_runs": len(after),
        "rows": rows,
        "span_rows": spans,
    }


def wait_until_settled(root: Path, ready: float) -> float:
    """Wait until no schedule stands before the supervisor's start; return when that was."""
    connection = sqlite3.connect(root / "ledger.db")
    try:
        while time.time() < ready + PATIENCE_S:
            left = connection.execute("SELECT count(*) FROM schedules WHERE next_instant < ?", (int(ready * 1e6),)).fetchone()[
                0
            ]
            if not left:
                break
            time.sleep(0.1)
    finally:
        connection.close()
    return time.time()


def make_store(root: Path, schedules: int, days: int, job: list[str], different: bool) -> None:
    """Make schedules of each minute in a store that was left so many days ago, and one of each second that is new."""
    from wfctl import init_store, open_store
    from wfctl.core.trigger import stamps
    from wfctl.store.ledger import definitions, sessions

    init_store(root).close()
    texts = expressions(schedules) if different else ["* * * * *"] * schedules
    with open_store(root, clock=LongAgo(days)) as store:
        store.create_deployment(deployment_id="stamp", command=job)
        for number, text in enumerate(texts):
            trigger = {"kind": "cron", "expression": text}
            more: dict[str, Any] = POLICIES[number % len(POLICIES)]
            store.create_schedule(schedule_id=many.name_of(number), deployment_id="stamp", trigger=trigger, **more)
        with store.context.ledger.transaction() as connection:
            definitions.set_calendar_stamps(connection, " ".join(stamps()))
            session = sessions.begin(connection, pid=1, host="localhost", at=store.context.now())
            sessions.end(connection, session, store.context.now())
    with open_store(root) as store:
        store.create_schedule(schedule_id=SECOND, deployment_id="stamp", trigger={"kind": "interval", "every": "1s"})


class LongAgo:
    """The clock of a store that was left so many days ago."""

    def __init__(self, days: int) -> None:
        self._days = timedelta(days=days)

    def now(self) -> datetime:
        """Return the time as it was then."""
        return datetime.now(UTC) - self._days


def expressions(count: int) -> list[str]:
    """Return so many ways to write each minute."""
    return [
        "* * * * *",
        *(f"0-{i % 58 + 1},{i % 58 + 1}-59 0-{i // 58 % 22 + 1},{i // 58 % 22 + 1}-23 * * *" for i in range(1, count)),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
