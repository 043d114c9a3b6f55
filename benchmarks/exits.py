#!/usr/bin/env python3
"""With very many runs alive, one after the other ends: how soon has the keeper noticed, beside a bare pidfd and epoll loop?

python benchmarks/exits.py [--live 1000] [--ends 200] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import mmap
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limits
from launch_path import Runs
from limits import Programs
from live import share

if TYPE_CHECKING:
    from wfctl.keeper.client import KeeperClient
    from wfctl.keeper.protocol import LaunchRequest, Report

BOUND = 2.0  #: median of the keeper to that of the loop
STEP_NS = 20_000_000  #: between two ends of the same side
PATIENCE_S = 120.0
WORD = 8  #: bytes of a job's last word
SIDES = ("loop", "python", "keeper")


def main() -> int:
    """Measure, print, and return the exit status: 1 where the bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--ends", type=int, default=200, help="of them that end, one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the runs' directories are made (default: $TMPDIR)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    result = measure(options.live, options.ends, options.rounds, directory=options.directory)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{options.live} live, {options.ends} of them end one by one; medians of {options.rounds} rounds, microseconds")
    print(f"{'':<52}{'median':>9}{'p99':>9}{'most':>9}{'to the loop':>13}")
    for name, found in result["sides"].items():
        times = f"{found['median']:>9.0f}{found['p99']:>9.0f}{found['most']:>9.0f}"
        print(f"{NAMES[name]:<52}{times}{found['ratio']:>12.2f}x")
    print(f"row 13: ratio {result['ratio']:.2f}, bound {BOUND:g}: {'met' if result['ratio'] <= BOUND else 'missed'}")
    return 0 if result["ratio"] <= BOUND else 1


NAMES = {
    "loop": "C: reaped by a bare pidfd and epoll loop",
    "python": "the same loop in Python",
    "keeper": "keeper: reaped",
    "told": "keeper: recorded, synced, and the driver told",
}


def measure(live: int = 1000, ends: int = 200, rounds: int = 3, *, directory: Path | None = None) -> dict[str, Any]:
    """Return how long after a job's last word it was reaped by each side, in microseconds, and the ratio of the medians."""
    with tempfile.TemporaryDirectory(prefix="wfctl-exits-", dir=directory) as made:
        place = Path(made)
        programs = limits.compile_all(place)
        found = [_round(place / f"{number}", programs, live, min(ends, live)) for number in range(rounds)]
        about = limits.machine(place)
    sides = {name: {key: statistics.median(each[name][key] for each in found) for key in found[0][name]} for name in found[0]}
    for name, figures in sides.items():
        figures["ratio"] = statistics.median(each[name]["median"] / each["loop"]["median"] for each in found)
    return {"live": live, "ends": ends, "rounds": rounds, "machine": about, "sides": sides, "ratio": sides["keeper"]["ratio"]}


def _round(place: Path, programs: Programs, live: int, ends: int) -> dict[str, dict[str, float]]:
    """Have both loops and a keeper hold that many, and let one of each end in turn."""
    place.mkdir()
    files = {side: place / f"{side}.words" for side in SIDES}
    for path in files.values():
        path.write_bytes(bytes(-(-live * WORD // mmap.PAGESIZE) * mmap.PAGESIZE))
    begin_ns = time.time_ns() + 10**9 * (4 + live // 60)
    begins = {side: begin_ns + STEP_NS * number // len(SIDES) for number, side in enumerate(SIDES)}

    def words(side: str) -> list[str]:
        return [*map(str, (live, ends, begins[side], STEP_NS)), str(files[side]), str(programs.lastword)]

    def job(number: int) -> list[str]:
        due = begins["keeper"] + number * STEP_NS if number < ends else 0
        return [str(programs.lastword), str(files["keeper"]), str(number), str(due)]

    script = str(Path(__file__).with_name("peers") / "python_exits.py")
    with (
        _watching([str(programs.exitloop), *words("loop")]) as loop,
        _watching([sys.executable, "-I", script, *words("python")]) as python,
        _holding(place / "store", live, job) as (keeper, requests),
    ):
        if time.time_ns() > begin_ns - 10**9:
            raise SystemExit(f"making {live} processes took so long that the first was to end already")
        reaped, told = _ends_of(keeper, requests[:ends])
        noticed = {"loop": _read(loop), "python": _read(python), "keeper": reaped, "told": told}
    said = {side: struct.unpack(f"={live}q", path.read_bytes()[: live * WORD]) for side, path in files.items()}
    said["told"] = said["keeper"]
    latencies = {side: [(at - said[side][number]) / 1000 for number, at in found.items()] for side, found in noticed.items()}
    return {side: _figures(latency) for side, latency in latencies.items()}


def _figures(latency: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(latency), "p99": share(latency, 0.99), "most": max(latency)}


@contextmanager
def _watching(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Have a loop hold its processes meanwhile; give it once it watches them all."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{command[0]} failed")
        yield process


def _read(process: subprocess.Popen[str]) -> dict[int, int]:
    """Return when a loop had reaped each job, by number, in nanoseconds since the epoch."""
    assert process.stdout is not None
    return {int(number): int(at) for number, at in (line.split() for line in process.stdout)}


@contextmanager
def _holding(root: Path, count: int, job: Callable[[int], list[str]]) -> Iterator[tuple[KeeperClient, list[LaunchRequest]]]:
    """Have a keeper hold so many runs meanwhile; give it once all have started."""
    from wfctl.keeper.client import KeeperClient
    from wfctl.keeper.protocol import Ended, Holding, Origin, Started

    requests = Runs(root, job).make(count)
    with KeeperClient.start(root, Origin.SUPERVISOR) as keeper:
        keeper.launch(requests)
        left = count
        for report in _reports(keeper):
            if not isinstance(report, Started):
                raise SystemExit(f"a run did not stay: {report}")
            left -= 1
            if not left:
                break
        try:
            yield keeper, requests
        finally:
            for request in requests:
                keeper.stop(request.run, request.k, timedelta(0))
            held = {standing.run for standing in keeper.list() if standing.state is Holding.RUNNING}
            for report in _reports(keeper) if held else ():
                held -= {report.run} if isinstance(report, Ended) else set()
                if not held:
                    break


def _ends_of(keeper: KeeperClient, requests: Sequence[LaunchRequest]) -> tuple[dict[int, int], dict[int, int]]:
    """Wait for the ends of these; return by number when each was reaped, and when this process was told, in nanoseconds."""
    from wfctl.core.instants import to_micros
    from wfctl.keeper.protocol import Ended

    numbers = {request.run: number for number, request in enumerate(requests)}
    reaped: dict[int, int] = {}
    told: dict[int, int] = {}
    for report in _reports(keeper):
        now = time.time_ns()
        if not isinstance(report, Ended) or not report.recorded:
            raise SystemExit(f"not an end on record: {report}")
        number = numbers[report.run]
        told[number], reaped[number] = now, to_micros(report.ended_at) * 1000
        if len(told) == len(requests):
            break
    return reaped, told


def _reports(keeper: KeeperClient) -> Iterator[Report]:
    """Give what a keeper reports, as soon as it does."""
    poller = select.poll()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        poller.register(keeper.fileno(), select.POLLIN | (select.POLLOUT if keeper.wants_write else 0))
        poller.poll(1000)
        yield from keeper.poll()
        if keeper.closed or time.monotonic() > deadline:
            raise SystemExit("the keeper went away, or said nothing more")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
