#!/usr/bin/env python3
"""How long does a supervisor of very many schedules take to be ready: unchanged, with a new tz database, with new files?

python benchmarks/starting.py [--schedules 100000] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import many
import watched

ROW, BOUND = 6, 8.0
DIFFERENT = 300
#: What is measured, each with the bare work that it stands beside.
STARTS = {"unchanged": "scandir and stat", "calendars renewed": "scandir and stat", "files never seen": "read and tomllib"}


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = measure(options.schedules, options.repeats)
    print(f"{options.schedules} schedules, {DIFFERENT} different triggers; medians of {options.repeats}")
    print(f"{'from exec to ready':<22}{'CPU s':>8}{'wall s':>8}{'times, CPU':>12}{'times, wall':>12}  beside")
    for name, found in result["starts"].items():
        print(
            f"{name:<22}{found['cpu_s']:>8.2f}{found['wall_s']:>8.2f}{found['cpu_ratio']:>12.2f}{found['wall_ratio']:>12.2f}"
            f"  {STARTS[name]}; at most {found['silent_s']:.1f} s without a word to systemd"
        )
    for kind in ("cpu", "wall"):
        ratio = result["starts"]["unchanged"][f"{kind}_ratio"]
        print(f"row {ROW}: {kind} ratio {ratio:.2f}, bound {BOUND:g}: {'met' if ratio <= BOUND else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    return 0


def measure(schedules: int = 100_000, repeats: int = 3) -> dict[str, Any]:
    """Return what the starts take, and the ratios to the bare work that was done just before and just after each."""
    with tempfile.TemporaryDirectory(prefix="wfctl-starting-") as directory:
        known, fresh = Path(directory) / "known", Path(directory) / "fresh"
        triggers = many.far_triggers(DIFFERENT)
        many.make(known, schedules, triggers)
        many.make(fresh, 1)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in STARTS}
        for _ in range(repeats):
            found["unchanged"].append(_start(known, bare_pass))
            _forget_stamps(known)
            found["calendars renewed"].append(_start(known, bare_pass))
        clean = Path(directory) / "clean.db"
        for place in range(repeats):
            if place == 0:
                shutil.copy(fresh / "ledger.db", clean)
                _give_files(known, fresh)
            else:
                shutil.copy(clean, fresh / "ledger.db")
            found["files never seen"].append(_start(fresh, bare_parse))
    return {
        "schedules": schedules,
        "repeats": repeats,
        "starts": {
            name: {key: statistics.median(each[key] for each in starts) for key in starts[0]} for name, starts in found.items()
        },
    }


def _start(root: Path, bare: Callable[[Path], None]) -> dict[str, float]:
    before = _timed(bare, root)
    with watched.supervised(root) as supervisor:
        wall_s, cpu_s, silent_s = supervisor.wall_s, supervisor.cpu_s, supervisor.longest_wait_s
    after = _timed(bare, root)
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "silent_s": silent_s,
        "wall_ratio": 2 * wall_s / (before[0] + after[0]),
        "cpu_ratio": 2 * cpu_s / (before[1] + after[1]),
    }


def _timed(work: Callable[[Path], None], root: Path) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(root / "schedules")
    return time.perf_counter() - wall, time.process_time() - cpu


def bare_pass(directory: Path) -> None:
    """Learn of each file what tells whether it changed."""
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            found[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)


def bare_parse(directory: Path) -> None:
    """Read each file and parse it as TOML."""
    with os.scandir(directory) as entries:
        for entry in entries:
            with open(entry.path, "rb") as file:
                tomllib.load(file)


def _forget_stamps(root: Path) -> None:
    """Let the ledger say that its calendars were worked out by another croniter."""
    with contextlib.closing(sqlite3.connect(root / "ledger.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = 'croniter of yore' WHERE key = 'calendar'")


def _give_files(source: Path, target: Path) -> None:
    """Put the schedules of one store into another, as if they had been written by hand there."""
    for entry in os.scandir(source / "schedules"):
        if entry.name != f"{many.name_of(0)}.toml":
            shutil.copy(entry.path, target / "schedules" / entry.name)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
