#!/usr/bin/env python3
"""What a command costs, beside a hello world of click in the same interpreter: help, completion, and lists in a pipe.

python benchmarks/startup.py [--runs 30] [--schedules 1000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import history
import many

HELLO = """import sys
import click

@click.group()
def main() -> None: ...

@main.command()
def hello() -> None:
    click.echo("hello")

if __name__ == "__main__":
    sys.exit(main())
"""
WFCTL = """import sys
from wfctl.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
"""
HISTORY = 2_000  #: occurrences
TRIGGERS = 100  #: different ones, of the schedules in turn
HELLO_WORLD = "hello world of click"
#: what is run: its row in the table of bounds, and how many times as long as the hello world it may take, where there is one;
#: the name of the script and its words
CASES: dict[str, tuple[int | None, float | None, list[str]]] = {
    HELLO_WORLD: (None, None, ["hello", "hello"]),
    "--version": (11, 1.15, ["wfctl", "--version"]),
    "schedule add --help": (11, 1.15, ["wfctl", "schedule", "add", "--help"]),
    "completion of an id": (11, 1.3, ["wfctl"]),
    "schedules, in a pipe": (11, 1.6, ["wfctl", "schedules"]),
    "occurrences, in a pipe": (9, 1.6, ["wfctl", "occurrences"]),
    "runs, in a pipe": (None, None, ["wfctl", "runs"]),
    "status, nobody there": (None, None, ["wfctl", "status"]),
    "schedule show": (None, None, ["wfctl", "schedule", "show", many.name_of(1)]),
    "run show": (None, None, ["wfctl", "run", "show", "run-000001"]),
}
COMPLETION = {"_WFCTL_COMPLETE": "bash_complete", "COMP_WORDS": "wfctl schedule show report-00001", "COMP_CWORD": "3"}


def main() -> int:
    """Measure, print, and return the exit status: 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-startup-") as directory:
        result = measure(Path(directory), options.runs, options.schedules)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{options.runs} runs of each in turn; processor time (user and system) of the process, in milliseconds")
    print(f"{'':<26}{'median':>8}{'least':>8}{'ratio':>9}{'of least':>10}")
    for name, found in result["commands"].items():
        times = f"{found['median']:>8.1f}{found['least']:>8.1f}"
        print(f"{name:<26}{times}{found['ratio']:>8.2f}x{found['ratio_of_least']:>9.2f}x")
    bounded = {name: found for name, found in result["commands"].items() if found["bound"] is not None}
    for name, found in bounded.items():
        verdict = "met" if found["ratio"] <= found["bound"] else "missed"
        print(f"row {found['row']}: {name} ratio {found['ratio']:.2f}, bound {found['bound']:g}: {verdict}")
    return 0 if all(found["ratio"] <= found["bound"] for found in bounded.values()) else 1


def measure(directory: Path, runs: int, schedules: int) -> dict[str, Any]:
    """Make a store and run all commands on it; return their figures."""
    from wfctl import open_store

    root = directory / "store"
    many.make(root, schedules, many.far_triggers(min(TRIGGERS, schedules)))
    with open_store(root) as store:
        history.fill(store, HISTORY)
    commands: dict[str, Any] = beside_hello(directory, {name: words for name, (_, _, words) in CASES.items()}, runs)
    for name, (row, bound, _) in CASES.items():
        commands[name] |= {"row": row, "bound": bound}
    return {"runs": runs, "schedules": schedules, "python": sys.version.split()[0], "commands": commands}


def beside_hello(directory: Path, cases: dict[str, list[str]], runs: int) -> dict[str, dict[str, Any]]:
    """Run commands on the store of a directory and the hello world in turn, in another order each time; return the figures."""
    for name, text in (("hello", HELLO), ("wfctl", WFCTL)):
        (directory / name).write_text(text)
    words = {HELLO_WORLD: ["hello", "hello"], **cases}
    times: dict[str, list[float]] = {name: [] for name in words}
    names = list(words)
    for number in range(runs + 1):
        for name in names:
            spent = run_once(directory, words[name], name)
            if number:  # the first of each writes the compiled modules, as an installation does
                times[name].append(spent)
        random.shuffle(names)
    hello = times[HELLO_WORLD]
    return {
        name: {
            "median": statistics.median(spent),
            "least": min(spent),
            "ratio": statistics.median(one / other for one, other in zip(spent, hello, strict=True)),
            "ratio_of_least": min(spent) / min(hello),
        }
        for name, spent in times.items()
    }


def run_once(directory: Path, words: list[str], name: str) -> float:
    """Run a command with all its streams at /dev/null, and return the milliseconds of processor time that it took."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "WFCTL", "COLUMNS"))}
    environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    environ |= {"WFCTL_STORE": str(directory / "store"), **(COMPLETION if name.startswith("completion") else {})}
    argv = [sys.executable, str(directory / words[0]), *words[1:]]
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawn(sys.executable, argv, environ, file_actions=null)
    _, _, usage = os.wait4(pid, 0)
    return 1000 * (usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
