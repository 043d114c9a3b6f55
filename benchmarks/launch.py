#!/usr/bin/env python3
"""N one-shots due at one instant: how late does each start, beside a plain posix_spawn loop?

python benchmarks/launch.py [--n 1,100,1000] [--repeats 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

JOB = ["/bin/date", "+%s%N"]
Figures = dict[str, float]


def main() -> int:
    """Measure, print, and return the exit status."""
    options = parse_options()
    results = [measure(n, options.repeats) for n in options.n]
    if options.json:
        print(json.dumps({"job": JOB, "repeats": options.repeats, "results": results}, indent=2))
        return 0
    print(f"{'N':>6}  {'':<16}{'first':>10}{'median':>10}{'last':>10}   milliseconds after the due instant")
    for result in results:
        for side in ("loop", "wfctl"):
            figures = result[side]
            print(f"{result['n']:>6}  {side:<16}{figures['first']:>10.2f}{figures['median']:>10.2f}{figures['last']:>10.2f}")
        ratios = result["ratio"]
        print(f"{'':>6}  {'wfctl / loop':<16}{'':>10}{ratios['median']:>9.2f}x{ratios['last']:>9.2f}x\n")
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=lambda text: [int(n) for n in text.split(",")], default=[1, 100, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(n: int, repeats: int) -> dict[str, object]:
    """Run both sides in turn and return the median figures of each, in milliseconds, and their ratios."""
    rounds: dict[str, list[Figures]] = {"loop": [], "wfctl": []}
    sides: dict[str, Callable[[int, Path], list[float]]] = {"loop": spawn_loop, "wfctl": supervised}
    for _ in range(repeats):
        for side, run in sides.items():
            with tempfile.TemporaryDirectory(prefix="wfctl-launch-") as directory:
                rounds[side].append(figures_of(run(n, Path(directory))))
    middle = {side: {key: statistics.median(each[key] for each in found) for key in found[0]} for side, found in rounds.items()}
    ratio = {key: middle["wfctl"][key] / middle["loop"][key] for key in ("median", "last")}
    return {"n": n, **middle, "ratio": ratio}


def figures_of(lateness: list[float]) -> Figures:
    """Given each job's lateness in milliseconds, return what is compared."""
    return {"first": min(lateness), "median": statistics.median(lateness), "last": max(lateness)}


def lateness_of(outputs: list[Path], due_ns: int) -> list[float]:
    """Given the files that the jobs wrote, return how late each started, in milliseconds."""
    return [(int(output.read_text()) - due_ns) / 1e6 for output in outputs]


def spawn_loop(n: int, directory: Path) -> list[float]:
    """Spawn the jobs one after the other as soon as the instant has come; nothing is recorded."""
    outputs = [directory / f"{i}.out" for i in range(n)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    due_ns = (time.time_ns() // 10**9 + 2) * 10**9
    time.sleep((due_ns - time.time_ns()) / 1e9)
    children = [
        os.posix_spawn(JOB[0], JOB, os.environ, setsid=True, file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600)])
        for output in outputs
    ]
    for child in children:
        os.waitpid(child, 0)
    return lateness_of(outputs, due_ns)


def supervised(n: int, directory: Path) -> list[float]:
    """Make a store with n one-shots at one instant and run `wfctl supervise` over it."""
    from wfctl import init_store

    root = directory / "store"
    due = int(time.time()) + 5 + n // 10
    at = datetime.fromtimestamp(due, UTC).isoformat()
    with init_store(root) as store:
        store.create_deployment(deployment_id="stamp", command=JOB)
        for i in range(n):
            store.create_schedule(schedule_id=f"stamp-{i}", deployment_id="stamp", trigger={"kind": "oneshot", "at": at})
    if time.time() > due - 2:
        raise SystemExit(f"making {n} schedules took so long that their instant is too near")
    command = [sys.executable, "-m", "wfctl", "--store", str(root), "supervise", "--until-idle"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    with open(directory / "log", "wb") as log:
        subprocess.run([*command, "--max-concurrent-runs", str(n)], check=True, stderr=log, env=environment)
    outputs = sorted(root.glob("runs/*/stdout.log"))
    if len(outputs) != n:
        raise SystemExit(f"{len(outputs)} of {n} jobs ran:\n{(directory / 'log').read_text()[-2000:]}")
    return lateness_of(outputs, due * 10**9)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
