#!/usr/bin/env python3
"""The keeper's launch path alone: so many jobs asked of a real keeper at once, beside a C vfork loop of the same program.

python benchmarks/launch_path.py [--jobs 300] [--rounds 9] [--ballast-mib 1024] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limits
from limits import Programs, tree_processor_s

if TYPE_CHECKING:
    from wfctl.keeper.client import KeeperClient
    from wfctl.keeper.protocol import Ended, LaunchRequest

BOUND = 0.75  #: launches a second to those of the C loop, at least
PROGRAM = "/bin/true"
PATIENCE_S = 60.0
PAGE = 4096
KEYS = ("started", "reaped", "told", "cpu_us")


def main() -> int:
    """Measure, print, and return the exit status: 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ballast-mib", type=int, default=1024, help="that the asking process holds the second time")
    parser.add_argument("--directory", type=Path, help="where the runs' directories are made (default: $TMPDIR)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    result = measure(options.jobs, options.rounds, options.ballast_mib, directory=options.directory)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{options.jobs} x {PROGRAM}, {options.rounds} rounds, medians: how many a second were, and processor time of one")
    print(f"{'':<22}" + "".join(f"{word:>12}" for word in ("started", "reaped", "told", "CPU us")))
    for name, found in result["by_ballast"].items():
        for side in ("loop", "keeper"):
            figures = "".join(f"{found[side][key]:>12.0f}" for key in KEYS)
            print(f"{f'{side}, {name} MiB':<22}{figures}")
        print(f"{'  keeper to loop':<22}" + "".join(f"{found[f'{key}_ratio']:>12.2f}" for key in KEYS))
    is_met = True
    for name, found in result["by_ballast"].items():
        ratio = found["reaped_ratio"]
        is_met &= ratio >= BOUND
        verdict = "met" if ratio >= BOUND else "missed"
        print(f"row 12: ratio with {name} MiB in the asking process {ratio:.2f}, bound {BOUND:g}: {verdict}")
    return 0 if is_met else 1


def measure(jobs: int = 300, rounds: int = 9, ballast_mib: int = 1024, *, directory: Path | None = None) -> dict[str, Any]:
    """Return launches a second of a keeper and of the C loop, and their ratios, without and with ballast in this process."""
    with tempfile.TemporaryDirectory(prefix="wfctl-launch-path-", dir=directory) as made:
        place = Path(made)
        programs = limits.compile_all(place)
        by_ballast = {}
        for mib in dict.fromkeys((0, ballast_mib)):
            ballast = bytearray(mib << 20)
            for offset in range(0, len(ballast), PAGE):
                ballast[offset] = 1  # so that it is there, and not only promised
            by_ballast[str(mib)] = _rounds(place / f"ballast-{mib}", programs, jobs, rounds)
            del ballast
        return {"jobs": jobs, "rounds": rounds, "machine": limits.machine(place), "by_ballast": by_ballast}


def _rounds(root: Path, programs: Programs, jobs: int, rounds: int) -> dict[str, Any]:
    from wfctl.keeper.client import KeeperClient
    from wfctl.keeper.protocol import Origin

    found: dict[str, list[dict[str, float]]] = {"loop": [], "keeper": []}
    runs = Runs(root, lambda _: [PROGRAM])
    with KeeperClient.start(root, Origin.SUPERVISOR) as keeper:
        for _ in range(rounds):
            requests = runs.make(jobs)
            turns = ["loop", "keeper"]
            random.shuffle(turns)
            for turn in turns:
                figures = by_loop(programs, jobs, root, runs.environment) if turn == "loop" else by_keeper(keeper, requests)
                found[turn].append(figures)
    sides = {side: {key: statistics.median(each[key] for each in own) for key in own[0]} for side, own in found.items()}
    pairs = list(zip(found["keeper"], found["loop"], strict=True))
    ratio = {key: statistics.median(one[key] / other[key] for one, other in pairs) for key in pairs[0][0]}
    return {**sides, **{f"{key}_ratio": value for key, value in ratio.items()}}


class Runs:
    """Directories of runs, made ahead as a supervisor makes its spare ones, and what is to be launched there."""

    def __init__(self, root: Path, words: Callable[[int], list[str]]) -> None:
        """Given a store's root, which is made, and the words of a batch's first, second and further job."""
        from wfctl.operations import preflight
        from wfctl.operations.spares import Spares
        from wfctl.store.layout import Layout

        (root / "runs").mkdir(parents=True, mode=0o700)
        root.chmod(0o700)
        self._root = root
        self._spares = Spares(Layout(root))
        self._number = 0
        self._words = words
        self.environment = preflight.base_environment(os.environ)

    def make(self, count: int) -> list[LaunchRequest]:
        """Make so many, with their requests ready to be sent."""
        for _ in range(count):
            self._spares.make()
        requests = [self._request(self._words(number)) for number in range(count)]
        for request in requests:
            _ = request.line  # a supervisor has it worked out ahead, too
        return requests

    def _request(self, words: list[str]) -> LaunchRequest:
        from wfctl.core.model import run_name
        from wfctl.keeper.protocol import LaunchRequest
        from wfctl.operations import preflight

        self._number += 1
        run = run_name(self._number)
        directory = f"{self._root}/runs/{run}"
        spare = self._spares.fill(b"{}", b"{}")
        if spare is None:
            raise SystemExit(f"{directory} cannot be made")
        execution = preflight.Execution(run_id=run, k=1, attempt=1, step="job", schedule_id="benchmark", revision=1)
        own = preflight.own_variables(str(self._root), directory, execution)
        return LaunchRequest(
            run=run,
            k=1,
            program=words[0],
            argv=words,
            environment={**self.environment, **own},
            cwd=f"{directory}/work",
            umask=0o077,
            stdout=f"{directory}/stdout.log",
            stderr=f"{directory}/stderr.log",
            directory=f"{directory}/1",
            spare=spare,
        )


def by_keeper(keeper: KeeperClient, requests: Sequence[LaunchRequest]) -> dict[str, float]:
    """Ask for all launches at once; return how many a second were started, reaped, and told of with durable records."""
    from wfctl.keeper.protocol import Ended, Refused

    ended: list[Ended] = []
    pid = keeper.hello.pid
    poller = select.poll()
    deadline = time.monotonic() + PATIENCE_S
    keeper.prepare(requests)  # as a supervisor does shortly before the instant
    keeper.list()  # it has read them by now
    spent = tree_processor_s(pid)
    begun = time.time()
    keeper.launch(requests)
    while len(ended) < len(requests):
        poller.register(keeper.fileno(), select.POLLIN | (select.POLLOUT if keeper.wants_write else 0))
        poller.poll(1000)
        reports = keeper.poll()
        refused = [report for report in reports if isinstance(report, Refused)]
        if refused or keeper.closed or time.monotonic() > deadline:
            raise SystemExit(f"the keeper did not launch: {refused[:1] or 'it went away'}")
        ended += [report for report in reports if isinstance(report, Ended)]
    told = time.time()
    if any(report.exit_status != 0 or not report.recorded for report in ended):
        raise SystemExit(f"{PROGRAM} failed, or an end was not recorded")
    until = {
        "started": max(report.started_at for report in ended).timestamp(),
        "reaped": max(report.ended_at for report in ended).timestamp(),
        "told": told,
    }
    rates = {name: len(requests) / (at - begun) for name, at in until.items()}
    return {**rates, "cpu_us": 1e6 * (tree_processor_s(pid) - spent) / len(requests)}


def by_loop(programs: Programs, jobs: int, directory: Path, environment: dict[str, str]) -> dict[str, float]:
    """Have the C loop start as many; return how many a second were started and were reaped, which is all it has to tell."""
    command = [str(programs.spawnloop), "0", str(jobs), "-", str(directory / "output"), PROGRAM]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    started, reaped = (jobs / (int(word) / 1e9) for word in done.stdout.split())
    return {"started": started, "reaped": reaped, "told": reaped, "cpu_us": 1e6 * spent / jobs}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
