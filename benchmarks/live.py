"""Jobs that say when they began, and what processes use: parts of several benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_STAMP = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    const char *due = getenv("WFCTL_OCCURRENCE"), *of = getenv("WFCTL_SCHEDULE_ID");
    char line[256];
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%lld %s %s\n", t.tv_sec * 1000000000LL + t.tv_nsec, due ? due : "-", of ? of : "-");
    return fd >= 0 && write(fd, line, n) == n ? 0 : 1;
}
"""


@dataclass(frozen=True, slots=True)
class Stamp:
    """One run as its job saw it."""

    schedule_id: str
    due_ns: int
    began_ns: int

    @property
    def lateness_ms(self) -> float:
        """How late its first instruction was."""
        return (self.began_ns - self.due_ns) / 1e6


def stamping(directory: Path) -> tuple[list[str], Path]:
    """Return a job that adds a line to a file as soon as it runs, and the file: a small static program, else a shell."""
    stamps = directory / "stamps"
    compiler = shutil.which("cc")
    if compiler is None:
        return ["/bin/sh", "-c", f'echo "$(date +%s%N) $WFCTL_OCCURRENCE $WFCTL_SCHEDULE_ID" >> {stamps}'], stamps
    source = directory / "stamp.c"
    source.write_text(_STAMP)
    subprocess.run([compiler, "-O2", "-static", "-o", str(directory / "stamp"), str(source)], check=True)
    return [str(directory / "stamp"), str(stamps)], stamps


def read_stamps(stamps: Path, *, since: float = 0.0, until: float = float("inf")) -> list[Stamp]:
    """Return what the jobs wrote, of those that were due within [since, until), in seconds since the epoch; by instant."""
    found = []
    for line in stamps.read_text().splitlines() if stamps.exists() else []:
        began, due, schedule = line.split(" ")
        due_ns = round(datetime.fromisoformat(due).timestamp() * 1e6) * 1000
        if since <= due_ns / 1e9 < until:
            found.append(Stamp(schedule, due_ns, int(began)))
    return sorted(found, key=lambda each: each.due_ns)


def share(values: Sequence[float], part: float) -> float:
    """Return the value that so much of them (0 to 1) does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Use:
    """What a process uses."""

    cpu_s: float
    rss_mb: float
    descriptors: int
    threads: int


def use_of(pid: int) -> Use:
    """Return what a process uses now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Use(
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=int(fields[17]),
    )
