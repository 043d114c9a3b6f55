"""Jobs that keep their own record, so that a test need not believe the ledger."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
import os, sys, time
side, lasts = sys.argv[1], float(sys.argv[2])
def note(what):
    line = f"{what} {os.environ['WFCTL_SCHEDULE_ID']} {os.environ['WFCTL_OCCURRENCE']} {os.environ['WFCTL_RUN_ID']} " \\
           f"{os.environ['WFCTL_EXECUTION']} {time.monotonic_ns()}\\n"
    fd = os.open(side, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode()); os.close(fd)
note("start")
until = time.monotonic() + lasts
while time.monotonic() < until:
    time.sleep(max(0.0, min(0.05, until - time.monotonic())))
note("end")
"""


def recording_job(side: Path, lasts_s: float) -> list[str]:
    """Return a command that appends `start` and `end` with its occurrence to the side file, and takes so long."""
    return [sys.executable, "-S", "-c", _SCRIPT, str(side), str(lasts_s)]


@dataclass(frozen=True)
class Stretch:
    """One process of a job, by its own word. Times are monotonic nanoseconds; `end` is None while it lives."""

    schedule: str
    occurrence: str
    run: str
    k: int
    start: int
    end: int | None


def read_side(side: Path) -> list[Stretch]:
    """Return what the jobs wrote, in the order of their starts."""
    starts: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
    ends: dict[tuple[str, str, str, int], int] = {}
    for line in side.read_text().splitlines() if side.exists() else []:
        what, schedule, occurrence, run, k, at = line.split(" ")
        key = (schedule, occurrence, run, int(k))
        if what == "start":
            starts[key].append(int(at))
        else:
            ends[key] = int(at)
    found = [Stretch(*key, start, ends.get(key)) for key, times in starts.items() for start in times]
    return sorted(found, key=lambda stretch: stretch.start)


def most_at_once(stretches: list[Stretch]) -> int:
    """Return how many of these ran at the same time, at most."""
    moments = [(stretch.start, 1) for stretch in stretches] + [
        (stretch.end, -1) for stretch in stretches if stretch.end is not None
    ]
    running = most = 0
    for _, step in sorted(moments, key=lambda moment: (moment[0], moment[1])):
        running += step
        most = max(most, running)
    return most
