#!/usr/bin/env python3
"""So many one-shots are due at one instant: how late does each start, and what does it cost, beside bare loops and others?

python benchmarks/launch.py [--n 1,100,1000] [--repeats 3] [--apscheduler PYTHON] [--systemd] [--cron PATH] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import limits
import sides
import watched
from limits import Group, Programs
from live import share
from sides import JOURNALED, WFCTL, Account, Side, Work

#: of the table of bounds: last start to the C loop's, processor time to the C loop's, one job to the C loop's, its milliseconds
LAST, PROCESSOR, ONE, ONE_MS = 1.5, 1.6, 4.0, 20.0
BEFORE_S = 0.15  #: of the instant: the window in which processor time counts begins there
READY_BEFORE_S = 1.0  #: of the first loop: who is not ready by then is tried again with more time
PATIENCE_S = 60.0
QUIET_S = 8.0  #: with nothing more started for so long, nothing more will be
AFTER_S = 0.3  #: how long others are left to reap what they started
TRIES = 3


def main() -> int:
    """Measure, print, and return the exit status: 1 where a bound is missed."""
    options = parse_options()
    peers = peers_of(options)
    results = []
    for count in options.n:
        repeats = options.repeats_of_one if count == 1 else options.repeats
        results.append(measure(count, repeats, peers=peers, directory=options.directory))
        show(results[-1])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    verdicts = [verdict for result in results for verdict in verdicts_of(result)]
    print("\n".join(line for line, _ in verdicts))
    return 0 if all(is_met for _, is_met in verdicts) else 1


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=lambda text: [int(n) for n in text.split(",")], default=[1, 100, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--repeats-of-one", type=int, default=7, help="where one job is due")
    parser.add_argument("--directory", type=Path, help="where stores are made: on a disk, not a tmpfs (default: $TMPDIR)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    add_peer_options(parser)
    return parser.parse_args()


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """Let other schedulers be named that join in."""
    parser.add_argument("--apscheduler", metavar="PYTHON", help="an interpreter that has APScheduler 3")
    parser.add_argument("--cron", metavar="PATH", help="Debian's cron, installed or unpacked (wants root)")
    parser.add_argument("--systemd", action="store_true", help="timers of a systemd of its own (wants root)")


def peers_of(options: argparse.Namespace) -> Peers:
    """Return those that were named."""
    return Peers(options.apscheduler, options.cron, options.systemd)


@dataclass(frozen=True, slots=True)
class Peers:
    """Which other schedulers join in."""

    apscheduler: str | None = None
    cron: str | None = None
    systemd: bool = False

    def sides(self, programs: Programs) -> list[Side]:
        """Return them. Raise SystemExit for one that cannot be."""
        found = [sides.apscheduler(self.apscheduler)] if self.apscheduler else []
        found += [sides.systemd()] if self.systemd else []
        found += [sides.cron(self.cron, programs.laterclock)] if self.cron else []
        return found


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one side. Lateness in milliseconds after the instant; processor seconds from shortly before it on."""

    due: int
    got: int  #: different jobs that ran
    twice: int  #: runs of a job that had run already
    first: float
    median: float
    p99: float
    last: float
    cpu_started: float  #: until all had started
    cpu_settled: float  #: until all were reaped and, by wfctl, recorded as ended
    cpu_ahead: float  #: from when it was ready until the window begins
    account: Account | None

    @property
    def lost(self) -> int:
        """What was due and neither ran nor was recorded as skipped."""
        if self.account is None:
            return self.due - self.got
        return self.due - min(self.got, self.account.started) - self.account.skipped


@dataclass(frozen=True, slots=True)
class Round:
    """One side at work, and the C loop seconds before it and seconds after it, while the machine was the same."""

    own: Figures
    before: Figures
    after: Figures

    def ratio(self, key: str) -> float:
        """Return what it is to the mean of the loops."""
        loops = getattr(self.before, key) + getattr(self.after, key)
        return float(2 * getattr(self.own, key) / loops) if loops else float("nan")


def measure(count: int, repeats: int, *, peers: Peers | None = None, directory: Path | None = None) -> dict[str, Any]:
    """Have so many jobs started by each side, in another order each time; return medians, and their ratios to the C loop."""
    with tempfile.TemporaryDirectory(prefix="wfctl-launch-", dir=directory) as made:
        place = Path(made)
        programs = limits.compile_all(place)
        all_sides = [*sides.limits(), sides.wfctl(), *(peers or Peers()).sides(programs)]
        rounds: dict[str, list[Round]] = {side.name: [] for side in all_sides}
        for number in range(repeats):
            for turn, side in enumerate(random.sample(all_sides, len(all_sides))):
                rounds[side.name].append(run(side, Work(place / f"{number}-{turn}", programs, count, 0)))
        about = limits.machine(place)
    loops = [figures for found in rounds.values() for each in found for figures in (each.before, each.after)]
    summaries = {name: {**_medians([each.own for each in found]), **_ratios(found)} for name, found in rounds.items()}
    return {
        "n": count,
        "repeats": repeats,
        "machine": about,
        "sides": {JOURNALED: {**_medians(loops), **dict.fromkeys(RATIOS, 1.0)}, **summaries},
        "rounds": {name: [asdict(each) for each in found] for name, found in rounds.items()},
    }


#: by its name: of which figure it is
RATIOS = {"last_ratio": "last", "cpu_started_ratio": "cpu_started", "cpu_settled_ratio": "cpu_settled"}


def _medians(own: Sequence[Figures]) -> dict[str, float]:
    keys = ("first", "median", "p99", "last", "cpu_started", "cpu_settled", "cpu_ahead")
    summary: dict[str, float] = {key: statistics.median(getattr(figures, key) for figures in own) for key in keys}
    summary |= {key: sum(getattr(figures, key) for figures in own) for key in ("lost", "twice")}
    return {**summary, "skipped": sum(figures.account.skipped for figures in own if figures.account)}


def _ratios(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the medians of the ratios; of one job the ratios of the medians, since one sync may take ten times another's."""
    if rounds[0].own.due > 1:
        return {name: statistics.median(each.ratio(key) for each in rounds) for name, key in RATIOS.items()}
    own = _medians([each.own for each in rounds])
    loops = _medians([figures for each in rounds for figures in (each.before, each.after)])
    return {name: own[key] / loops[key] if loops[key] else float("nan") for name, key in RATIOS.items()}


# One round ----------------------------------------------------------------------------------------------------------------


class TooLate(Exception):
    """A side was not ready in time before the instant."""


def run(side: Side, work: Work) -> Round:
    """Have one side start the jobs, and the C loop before and after; with more time ahead where it was not ready."""
    for attempt in range(1, TRIES + 1):
        lead_s = side.lead_s(work.count) * 2 ** (attempt - 1) + gap_s(work.count)
        directory = work.directory.with_name(f"{work.directory.name}-{attempt}")
        directory.mkdir()
        os.sync()  # what was written before is no part of this round
        time.sleep(random.random())
        due_s = int(time.time() + lead_s) + 1
        try:
            return _run_once(side, replace(work, directory=directory, due_s=due_s))
        except TooLate:
            continue
    raise SystemExit(f"{side.name} was not ready before {work.count} jobs were due, {TRIES} times")


def gap_s(count: int) -> int:
    """Return how long before the instant the C loop has its own."""
    return 2 + count // 400


def _run_once(side: Side, work: Work) -> Round:
    with started(side, work) as watch:
        watch.until_ready(gap_s(work.count) + READY_BEFORE_S)
        before = loop_at(work, "before", work.due_s - gap_s(work.count))
        if time.time() > work.due_s - 2 * BEFORE_S:
            raise TooLate
        own = watch.through()
    return Round(own, before, loop_at(work, "after", int(time.time()) + 2))


def loop_at(work: Work, name: str, due_s: int) -> Figures:
    """Have the C loop start as many jobs at another instant."""
    own = replace(work, directory=work.directory / name, due_s=due_s)
    own.directory.mkdir()
    with started(sides.journaled(), own) as watch:
        return watch.through()


@contextlib.contextmanager
def started(side: Side, work: Work) -> Iterator[Watch]:
    """Have one side run meanwhile, in a group of its own."""
    argv = side.command(work)
    group = Group()
    with (work.directory / "log").open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **side.more},
            start_new_session=True,
            preexec_fn=group.enter,
        )
    watch = Watch(side, work, process, group)
    try:
        yield watch
    finally:
        watch.end()
        group.close()


class Watch:
    """Looks at one side at work, from outside."""

    def __init__(self, side: Side, work: Work, process: subprocess.Popen[bytes], group: Group) -> None:
        self._side, self._work, self._process, self._group = side, work, process, group
        self._log = work.directory / "log"
        self._ready_s = 0.0  #: processor time, then

    def until_ready(self, before_s: float) -> None:
        """Wait until it says that it is. Raise TooLate where the instant is nearer than that by then."""
        while self._side.says not in self._log.read_bytes():
            if self._process.poll() is not None:
                raise SystemExit(f"{self._side.name} ended:\n{self._log.read_text(errors='replace')[-2000:]}")
            if time.time() > self._work.due_s - before_s:
                break
            time.sleep(0.02)
        if time.time() > self._work.due_s - before_s:
            raise TooLate
        self._ready_s = self._processor_s()

    def through(self) -> Figures:
        """Watch the instant come and go."""
        time.sleep(max(0.0, self._work.due_s - BEFORE_S - time.time()))
        before = self._processor_s()
        self._until_started()
        begun = self._processor_s()
        self._until_settled()
        settled = self._settled_s if self._side.ends else self._processor_s()
        late, got, twice = lateness_of(self._work)
        return Figures(
            due=self._work.count,
            got=got,
            twice=twice,
            first=late[0],
            median=share(late, 0.5),
            p99=share(late, 0.99),
            last=late[-1],
            cpu_started=begun - before,
            cpu_settled=settled - before,
            cpu_ahead=before - self._ready_s,
            account=None if self._side.account is None else self._side.account(self._work),
        )

    def _until_started(self) -> None:
        """Wait until all have started, or until nothing more will."""
        line = len("1796068288648045587 000000\n")
        size, changed = 0, max(time.time(), self._work.due_s)
        deadline = self._work.due_s + PATIENCE_S
        while size < self._work.count * line:
            time.sleep(0.002)
            with contextlib.suppress(OSError):
                if (now := self._work.stamps.stat().st_size) != size:
                    size, changed = now, time.time()
            if time.time() > min(deadline, changed + QUIET_S):
                return

    def _until_settled(self) -> None:
        """Wait until it has done all that there is to do about the jobs."""
        if self._side.ends:
            self._wait_for_end()
        elif self._side.is_settled is None:
            time.sleep(AFTER_S)
        else:
            deadline = time.time() + PATIENCE_S
            while not self._side.is_settled(self._work) and time.time() < deadline:
                time.sleep(0.02)

    def _wait_for_end(self) -> None:
        """Wait for its end, and take what it and all its reaped children used."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode != 0:
            raise SystemExit(f"{self._side.name} failed:\n{self._log.read_text(errors='replace')[-2000:]}")
        self._used_s = usage.ru_utime + usage.ru_stime

    @property
    def _settled_s(self) -> float:
        return self._group.processor_s() if self._group.is_exact else self._used_s

    def _processor_s(self) -> float:
        if self._group.is_exact:
            return self._group.processor_s()
        return self._group.processor_s([self._process.pid, *self._keepers()])

    def _keepers(self) -> list[int]:
        if self._side.name != WFCTL:
            return []
        return watched.processes("wfctl/keeper", str(sides.store_of(self._work.directory)))

    def end(self) -> None:
        """End it, and all that it started."""
        if self._process.poll() is None and self._side.name == WFCTL:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        for pid in [*self._group.pids(), self._process.pid] if self._side.name != WFCTL else []:
            if self._process.poll() is None or pid != self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()


def lateness_of(work: Work) -> tuple[list[float], int, int]:
    """Return how late each job was, in milliseconds and ascending, how many different ones ran, and how many ran once more."""
    began: dict[str, int] = {}
    lines = work.stamps.read_text().splitlines() if work.stamps.exists() else []
    for line in lines:
        at, number = line.split(" ")
        began[number] = min(int(at), began.get(number, int(at)))
    late = sorted((at - work.due_s * 10**9) / 1e6 for at in began.values())
    return late or [float("nan")], len(began), len(lines) - len(began)


# What comes of it ---------------------------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """Print the table of one number of jobs."""
    print(
        f"\n{result['n']} jobs, {result['repeats']} rounds; medians; milliseconds after the instant, processor seconds of all"
    )
    head = (
        "first",
        "median",
        "p99",
        "last",
        "last/limit",
        "lost",
        "CPU start",
        "CPU all",
        "all/limit",
        "CPU ahead",
    )
    print(f"{'':<28}" + "".join(f"{word:>11}" for word in head))
    for name, found in result["sides"].items():
        late = "".join(f"{found[key]:>11.2f}" for key in ("first", "median", "p99", "last"))
        spent = f"{found['cpu_started']:>11.3f}{found['cpu_settled']:>11.3f}{found['cpu_settled_ratio']:>10.2f}x"
        print(
            f"{name:<28}{late}{found['last_ratio']:>10.2f}x{found['lost']:>11.0f}{spent}{found['cpu_ahead']:>11.3f}", flush=True
        )


def verdicts_of(result: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return a line for each bound that this number of jobs has, and whether it is met."""
    own = result["sides"][WFCTL]
    if result["n"] == 1:
        return [_line(3, "ratio", own["last_ratio"], ONE), _line(3, "milliseconds", own["last"], ONE_MS)]
    if result["n"] < 1000:
        return []
    verdicts = [_line(1, "ratio", own["last_ratio"], LAST), _line(1, "lost", own["lost"], 0)]
    for name, found in result["sides"].items():
        if name in (sides.APSCHEDULER, sides.SYSTEMD, sides.CRON):
            verdicts.append(_line(1, f"ratio to {name}", own["last"] / found["last"], 1.0))
    return [*verdicts, _line(2, "ratio", own["cpu_settled_ratio"], PROCESSOR)]


def _line(row: int, what: str, value: float, bound: float) -> tuple[str, bool]:
    is_met = value <= bound
    return f"row {row}: {what} {value:.2f}, bound {bound:g}: {'met' if is_met else 'missed'}", is_met


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
