#!/usr/bin/env python3
"""What a supervisor and its keeper cost while nothing is due, beside a bare loop with a heap of the same instants.

python benchmarks/idle.py [--schedules 10000,100000] [--seconds 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import many
import watched

#: by number of schedules: the row of the table of bounds, processor seconds a minute, MiB resident, keeper included
BOUNDS = {10_000: (4, 0.04, 60.0), 100_000: (5, 0.1, 150.0)}
DIFFERENT = 300
HEAP = """
import heapq, select, sys, time
with open(sys.argv[1]) as lines:
    heap = [(int(line) / 1e6, number) for number, line in enumerate(lines)]
heapq.heapify(heap)
waiting = select.epoll()
print("ready", flush=True)
while True:
    waiting.poll(min(heap[0][0] - time.time(), 86400))
"""


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", default="10000,100000")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = [measure(int(count), options.seconds) for count in options.schedules.split(",")]
    print(f"{'':<28}{'schedules':>10}{'CPU s/min':>12}{'wake-ups/min':>14}{'MiB':>8}")
    for each in found:
        for name in ("supervisor", "keeper", "bare loop"):
            cpu_s, wakes, mib = (each[f"{name.replace(' ', '_')}_{what}"] for what in ("cpu_s", "wakes", "mib"))
            print(f"{name:<28}{each['schedules']:>10}{cpu_s:>12.4f}{wakes:>14.1f}{mib:>8.1f}")
        print(f"{'both to the bare loop':<28}{'':>10}{'':>12}{'':>14}{each['mib_ratio']:>8.2f}")
    for each in found:
        if each["schedules"] in BOUNDS:
            row, cpu_s, mib = BOUNDS[each["schedules"]]
            print(f"row {row}: CPU s a minute {each['cpu_s']:.4f}, bound {cpu_s}: {_met(each['cpu_s'] <= cpu_s)}")
            print(f"row {row}: MiB resident {each['mib']:.1f}, bound {mib:g}: {_met(each['mib'] <= mib)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def measure(schedules: int, seconds: float = 60.0) -> dict[str, Any]:
    """Return what a supervisor of that many schedules, its keeper and the bare loop use while nothing is due."""
    with tempfile.TemporaryDirectory(prefix="wfctl-idle-") as directory:
        root = Path(directory) / "store"
        many.make(root, schedules, many.far_triggers(DIFFERENT))
        instants = Path(directory) / "instants"
        with contextlib.closing(sqlite3.connect(root / "ledger.db")) as connection:
            found = connection.execute("SELECT next_instant FROM schedules WHERE next_instant IS NOT NULL")
            instants.write_text("".join(f"{instant}\n" for (instant,) in found))
        with watched.supervised(root) as supervisor, bare_loop(instants) as loop:
            keeper = supervisor.keeper
            assert keeper is not None, "a supervisor has a keeper"
            watched.settle(supervisor.pid, keeper)
            return _result(schedules, seconds, {"supervisor": supervisor.pid, "keeper": keeper, "bare_loop": loop})


def _result(schedules: int, seconds: float, pids: dict[str, int]) -> dict[str, Any]:
    before = {name: (watched.processor_s(pid), watched.switches(pid)) for name, pid in pids.items()}
    begun = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - begun) / 60
    result: dict[str, Any] = {"schedules": schedules, "seconds": seconds}
    for name, pid in pids.items():
        result[f"{name}_cpu_s"] = (watched.processor_s(pid) - before[name][0]) / minutes
        result[f"{name}_wakes"] = (watched.switches(pid) - before[name][1]) / minutes
        result[f"{name}_mib"] = watched.resident_mib(pid)
    result["cpu_s"] = result["supervisor_cpu_s"] + result["keeper_cpu_s"]
    result["mib"] = result["supervisor_mib"] + result["keeper_mib"]
    result["mib_ratio"] = result["mib"] / result["bare_loop_mib"]
    return result


@contextlib.contextmanager
def bare_loop(instants: Path) -> Iterator[int]:
    """Have a loop wait for the first of many instants meanwhile; give its pid."""
    argv = [sys.executable, "-I", "-c", HEAP, str(instants)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
