#!/usr/bin/env python3
"""So many short runs a second, for long: how late is each, and does anything grow?

python benchmarks/sustained.py [--seconds 600] [--rate 100] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import live
import watched

LATE_BOUND_MS, GROWTH_BOUND = 100.0, 1.1
WARM_S = 5.0  #: after READY, not counted
EDGE_S = 60.0  #: what is called the first and the last minute; a fifth of a short run


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=100, help="runs a second")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-sustained-") as directory:
        result = measure(Path(directory), seconds=options.seconds, rate=options.rate)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        print(f"{name.replace('_', ' '):<44}{value:>12.2f}")
    late = "met" if result["late_p99_ms"] < LATE_BOUND_MS and not result["lost"] else "missed"
    grows = "met" if result["memory_last_to_first"] <= GROWTH_BOUND else "missed"
    print(f"row 15: lateness p99 {result['late_p99_ms']:.1f} ms, bound {LATE_BOUND_MS:g} ms: {late}")
    print(f"row 15: memory ratio {result['memory_last_to_first']:.2f}, bound {GROWTH_BOUND}: {grows}")
    return 0 if late == grows == "met" else 1


def measure(directory: Path, *, seconds: float = 600.0, rate: int = 100) -> dict[str, float]:
    """Return lateness in milliseconds, what was lost, and how memory, descriptors and unsettled runs went."""
    root = directory / "store"
    job, stamps = live.stamping(directory)
    make_store(root, rate, job)
    with watched.supervised(root, "--max-concurrent-runs", str(4 * rate)) as supervisor:
        time.sleep(WARM_S)
        pids = [pid for pid in (supervisor.pid, supervisor.keeper) if pid is not None]
        began = time.time()
        uses: list[tuple[float, list[live.Use]]] = []
        while time.time() < began + seconds:
            uses.append((time.time(), [live.use_of(pid) for pid in pids]))
            time.sleep(1.0)
        ended = time.time()
        time.sleep(2.0)
        with closing(sqlite3.connect(root / "ledger.db")) as connection:
            unsettled = connection.execute("SELECT count(*) FROM executions WHERE how IS NULL").fetchone()[0]
            recorded, admitted = connection.execute(
                "SELECT count(*), count(run) FROM occurrences WHERE instant >= ? AND instant < ?",
                (int(began * 1e6), int(ended * 1e6)),
            ).fetchone()
    found = live.read_stamps(stamps, since=began, until=ended)
    late = [each.lateness_ms for each in found]
    edge = min(EDGE_S, seconds / 5)
    first = [use for at, use in uses if at < began + edge]
    last = [use for at, use in uses if at >= ended - edge]
    return {
        "seconds": ended - began,
        "runs": len(found),
        "skipped": recorded - admitted,
        "lost": admitted - len(found),
        "runs_a_second": len(found) / (ended - began),
        "late_median_ms": live.share(late, 0.5),
        "late_p99_ms": live.share(late, 0.99),
        "late_most_ms": max(late, default=0.0),
        "memory_last_to_first": _total(last, "rss_mb") / _total(first, "rss_mb"),
        "descriptors_more": _total(last, "descriptors") - _total(first, "descriptors"),
        "threads_more": _total(last, "threads") - _total(first, "threads"),
        "unsettled_at_the_end": unsettled,
        "processor_s_a_run": (_total([uses[-1][1]], "cpu_s") - _total([uses[0][1]], "cpu_s")) / max(1, len(found)),
    }


def _total(uses: list[list[live.Use]], name: str) -> float:
    """Return the middle of what all processes together used."""
    sums = sorted(sum(getattr(each, name) for each in use) for use in uses)
    return float(sums[len(sums) // 2])


def make_store(root: Path, rate: int, job: list[str]) -> None:
    """Make so many schedules of each second, their instants spread over it."""
    from wfctl import init_store

    with init_store(root) as store:
        store.create_deployment(deployment_id="stamp", command=job)
        begin = time.time()
        for number in range(rate):
            time.sleep(max(0.0, begin + number / rate - time.time()))  # an interval begins when it is made
            trigger: dict[str, Any] = {"kind": "interval", "every": "1s"}
            store.create_schedule(schedule_id=f"each-{number:04d}", deployment_id="stamp", trigger=trigger)


if __name__ == "__main__":
    sys.exit(main())
