#!/usr/bin/env python3
"""A hundred short runs a second for ten minutes, each end recorded and synced: how late are they, and does anything grow?

python benchmarks/sustained.py [--seconds 600] [--schedules 100] [--every 1] [--directory DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import limits
import live
import watched

LATE_BOUND_MS = 100.0
GROWN_MB, GROWN_SHARE = 8.0, 1.1  #: memory that more than this and this much larger at the end has grown
GROWN_FEW = 3  #: descriptors and threads
BACKLOG_S = 2.0  #: of runs: so much of what comes due may be unsettled at the end
SAMPLES = 60


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--schedules", type=int, default=100, help="interval schedules, all of one grid")
    parser.add_argument("--every", type=int, default=1, metavar="SECONDS")
    parser.add_argument("--directory", type=Path, help="where the store is made (default: the folder for temporary files)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-sustained-", dir=options.directory) as directory:
        result = measure(Path(directory), seconds=options.seconds, schedules=options.schedules, every=options.every)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return show(result)


def measure(directory: Path, *, seconds: float = 600.0, schedules: int = 100, every: int = 1) -> dict[str, Any]:
    """Return how late runs started, in milliseconds, and what the supervisor and its keeper used at first and at last.

    Half a second after each instant a bare C loop spawns as many: what a busy machine does to that, it does to the others.
    """
    root = directory / "store"
    job, stamps = live.stamping(directory)
    make_store(root, job, schedules, every)
    samples: list[dict[str, Any]] = []
    with watched.supervised(root, "--max-concurrent-runs", str(20 * schedules)) as supervisor:
        keeper = supervisor.keeper
        assert keeper is not None
        pids = {"supervisor": supervisor.pid, "keeper": keeper}
        time.sleep(2)
        begin = int(time.time()) + 1.0
        connection = sqlite3.connect(f"file:{root / 'ledger.db'}?mode=ro", uri=True)
        with loop_beside(directory, begin, int(seconds // every), schedules, every) as beside:
            for number in range(SAMPLES + 1):
                time.sleep(max(0.0, begin + 0.9 + number * seconds / SAMPLES - time.time()))
                samples.append(sample(connection, pids))
            end = begin + seconds
        connection.close()
        time.sleep(1)
    found = live.read_stamps(stamps, since=begin, until=end)
    lateness = [each.lateness_ms for each in found]
    expected = int(seconds // every * schedules)
    first, last = samples[len(samples) // 10], samples[-1]
    with sqlite3.connect(root / "ledger.db") as ledger:
        skipped = ledger.execute(
            "SELECT count(*) FROM occurrences WHERE run IS NULL AND instant >= ? AND instant < ?", (begin * 1e6, end * 1e6)
        ).fetchone()[0]
    ledger.close()
    runs = max(1, last["runs"] - samples[0]["runs"])
    return {
        "seconds": seconds,
        "schedules": schedules,
        "every_s": every,
        "expected": expected,
        "started": len(found),
        "skipped": skipped,
        "late_p99_ms": live.share(lateness, 0.99),
        "memory_last_to_first": memory(last) / memory(first),
        "memory_mb": [round(memory(each), 1) for each in samples],
        "lateness_ms": figures(lateness),
        "limit_ms": figures(beside),
        "lateness_p99_by_part_ms": by_part(found, begin, seconds),
        "unsettled": {"most": max(each["unsettled"] for each in samples), "last": last["unsettled"]},
        "first": {name: dataclasses.asdict(first[name]) for name in pids},
        "last": {name: dataclasses.asdict(last[name]) for name in pids},
        "cpu_ms_a_run": {name: (last[name].cpu_s - samples[0][name].cpu_s) / runs * 1000 for name in pids},
        "grown": grown(first, last, schedules / every),
    }


def make_store(root: Path, job: list[str], schedules: int, every: int) -> None:
    """Make schedules of one grid."""
    from wfctl import init_store, open_store

    init_store(root).close()
    with open_store(root) as store:
        store.create_deployment(deployment_id="stamp", command=job)
        for number in range(schedules):
            trigger = {"kind": "interval", "every": f"{every}s"}
            store.create_schedule(schedule_id=f"stamp-{number:04d}", deployment_id="stamp", trigger=trigger)


@contextlib.contextmanager
def loop_beside(directory: Path, begin: float, times: int, count: int, every: int) -> Iterator[list[float]]:
    """Meanwhile, have a C loop start as many programs, half a second apart; give how late each was, at the end."""
    found: list[float] = []
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        yield found
        return
    (programs := directory / "programs").mkdir()
    made = limits.compile_all(programs)
    is_over = threading.Event()

    def spawn() -> None:
        for number in range(times):
            due, output = int((begin + number * every + 0.5) * 1e9), directory / f"limit.{number}"
            if is_over.wait(max(0.0, due / 1e9 - 0.2 - time.time())):
                return
            command = [made.spawnloop, str(due), str(count), directory / "journal", directory / "said", made.stamp, output, "%"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found.extend((int(line.split()[0]) - due) / 1e6 for line in output.read_text().splitlines())
            output.unlink()

    thread = threading.Thread(target=spawn)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def figures(lateness: list[float]) -> dict[str, float]:
    """Return what is told of many lateness."""
    return {"median": live.share(lateness, 0.5), "p99": live.share(lateness, 0.99), "most": max(lateness, default=0.0)}


def memory(moment: dict[str, Any]) -> float:
    """Return what the supervisor and its keeper have resident."""
    return float(moment["supervisor"].rss_mb + moment["keeper"].rss_mb)


def sample(connection: sqlite3.Connection, pids: dict[str, int]) -> dict[str, Any]:
    """Return what each process uses, how many runs there are, and how many of them are not settled."""
    runs, unsettled = connection.execute(
        "SELECT (SELECT run FROM counters), (SELECT count(*) FROM executions WHERE how IS NULL)"
    ).fetchone()
    return {"runs": runs, "unsettled": unsettled, **{name: live.use_of(pid) for name, pid in pids.items()}}


def by_part(found: list[live.Stamp], begin: float, seconds: float, parts: int = 6) -> list[float]:
    """Return the 99th percentile of each part of the time."""
    cuts = [begin + seconds * number / parts for number in range(parts + 1)]
    return [
        live.share([each.lateness_ms for each in found if low <= each.due_ns / 1e9 < high], 0.99)
        for low, high in itertools.pairwise(cuts)
    ]


def grown(first: dict[str, Any], last: dict[str, Any], a_second: float) -> list[str]:
    """Return what grew between an early moment and the last one."""
    found = []
    for name in ("supervisor", "keeper"):
        before, after = first[name], last[name]
        if after.rss_mb > max(before.rss_mb * GROWN_SHARE, before.rss_mb + GROWN_MB):
            found.append(f"memory of the {name}")
        for what in ("descriptors", "threads"):
            if getattr(after, what) > getattr(before, what) + GROWN_FEW:
                found.append(f"{what} of the {name}")
    if last["unsettled"] > max(first["unsettled"], BACKLOG_S * a_second):
        found.append("runs that are not settled")
    return found


def show(result: dict[str, Any]) -> int:
    """Print what was found, and return the exit status."""
    print(f"{result['schedules']} runs each {result['every_s']} s for {result['seconds']:g} s")
    print(f"started {result['started']} of {result['expected']}, skipped {result['skipped']}")
    print(f"{'lateness, milliseconds':<26}{'median':>10}{'p99':>10}{'most':>10}")
    for name, key in (("wfctl", "lateness_ms"), ("a bare C loop", "limit_ms")):
        late = result[key]
        print(f"{name:<26}{late['median']:>10.1f}{late['p99']:>10.1f}{late['most']:>10.1f}")
    late = result["lateness_ms"]
    print(f"p99 by sixths of the time: {', '.join(f'{each:.1f}' for each in result['lateness_p99_by_part_ms'])}")
    print(f"unsettled executions: {result['unsettled']['most']} at most, {result['unsettled']['last']} at last")
    heads = "".join(f"{what:>14}{'at last':>10}" for what in ("MB at first", "descriptors", "threads"))
    print(f"{'':<14}{'cpu ms a run':>14}{heads}")
    for name in ("supervisor", "keeper"):
        first, last = result["first"][name], result["last"][name]
        print(
            f"{name:<14}{result['cpu_ms_a_run'][name]:>14.2f}{first['rss_mb']:>14.1f}{last['rss_mb']:>10.1f}"
            f"{first['descriptors']:>14}{last['descriptors']:>10}{first['threads']:>14}{last['threads']:>10}"
        )
    is_late = late["p99"] > LATE_BOUND_MS
    lost = result["expected"] - result["started"] - result["skipped"]
    print(f"row 15 lateness: p99 {late['p99']:.1f} ms, bound {LATE_BOUND_MS:g}: {'missed' if is_late else 'met'}")
    print(f"row 15 growth: {', '.join(result['grown']) or 'none'}: {'missed' if result['grown'] else 'met'}")
    print(f"row 15 lost: {lost}, bound 0: {'missed' if lost > 0 else 'met'}")
    return int(is_late or bool(result["grown"]) or lost > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
