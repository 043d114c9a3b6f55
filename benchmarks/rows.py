"""Which benchmark measures which rows of the table of bounds, and at which size."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import launch
import sides

HERE = Path(__file__).parent
Found = dict[tuple[int, str], float]  #: by row and key
Measured = tuple[Found, Any]  #: what the bounds are about, and all that the benchmark gave


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured, and how large."""

    rows: frozenset[int]
    is_quick: bool = False
    peers: launch.Peers | None = None

    def size(self, full: int, quick: int) -> int:
        """Return the one that was asked for."""
        return quick if self.is_quick else full


def of_launch(module: ModuleType, asked: Asked) -> Measured:
    """Many at once, and one."""
    found: Found = {}
    results = []
    if asked.rows & {1, 2}:
        result = module.measure(asked.size(1000, 200), asked.size(3, 1), peers=asked.peers)
        own = result["sides"][sides.WFCTL]
        found |= {(1, key): own[name] for key, name in (("last", "last_ratio"), ("lost", "lost"), ("twice", "twice"))}
        found[2, "cpu"] = own["cpu_settled_ratio"]
        names = {"apscheduler": sides.APSCHEDULER, "systemd": sides.SYSTEMD, "cron": sides.CRON}
        found |= {
            (1, key): own["last"] / result["sides"][name]["last"] for key, name in names.items() if name in result["sides"]
        }
        results.append(result)
    if 3 in asked.rows:
        result = module.measure(1, asked.size(7, 3))
        own = result["sides"][sides.WFCTL]
        found |= {(3, "ratio"): own["last_ratio"], (3, "ms"): own["last"]}
        results.append(result)
    return found, results


def of_idle(module: ModuleType, asked: Asked) -> Measured:
    """Nothing due, with many schedules and with very many."""
    found: Found = {}
    results = []
    for row, schedules in ((4, asked.size(10_000, 1000)), (5, asked.size(100_000, 10_000))):
        if row in asked.rows:
            result = module.measure(schedules, float(asked.size(60, 15)))
            found |= {(row, "cpu"): result["cpu_s"], (row, "mib"): result["mib"]}
            results.append(result)
    return found, results


def of_starting(module: ModuleType, asked: Asked) -> Measured:
    """A start with nothing changed."""
    result = module.measure(asked.size(100_000, 5000), asked.size(3, 1))
    unchanged = result["starts"]["unchanged"]
    return {(6, "cpu"): unchanged["cpu_ratio"], (6, "wall"): unchanged["wall_ratio"]}, result


def of_edits(module: ModuleType, asked: Asked) -> Measured:
    """One of very many is edited."""
    with tempfile.TemporaryDirectory(prefix="wfctl-edits-") as directory:
        result = module.measure(Path(directory) / "store", asked.size(100_000, 5000), asked.size(20, 5))
    times = result["ms"]
    operation = times["an operation: from its commit to its admission"]["median"]
    by_hand = times["a hand edit: from its second alone to its revision"]["median"]
    return {(7, "operation"): operation, (7, "hand"): by_hand}, result


def of_decisions(module: ModuleType, asked: Asked) -> Measured:
    """A day of very many schedules."""
    with tempfile.TemporaryDirectory(prefix="wfctl-decisions-") as directory:
        result = module.measure(Path(directory), schedules=asked.size(100_000, 3000), hours=asked.size(24, 4))
    return {(8, "decisions"): result["decisions_ratio"], (8, "memory"): result["memory_ratio"]}, result


def of_paging(module: ModuleType, asked: Asked) -> Measured:
    """Both ends of a long history."""
    with tempfile.TemporaryDirectory(prefix="wfctl-paging-") as directory:
        result = module.measure(Path(directory), asked.size(10_000_000, 200_000), 1000, asked.size(30, 10))
    names = {
        "warm": "all_last_to_first",
        "cold": "all_last_to_first_cold",
        "command": "whole_command_to_hello_world",
    }
    return {(9, key): result["ratio"][name] for key, name in names.items()}, result


def of_ledger(module: ModuleType, asked: Asked) -> Measured:
    """The size of a history, and half of it let go."""
    with tempfile.TemporaryDirectory(prefix="wfctl-ledger-") as directory:
        more = {"schedules": 100, "directories": 500} if asked.is_quick else {}
        result = module.measure(Path(directory), rows=asked.size(1_000_000, 20_000), **more)
    return {(10, "size"): result["size"]["ratio"], (10, "admission"): result["gc"]["beside_gc"]["most"]}, result


def of_startup(module: ModuleType, asked: Asked) -> Measured:
    """Whole commands."""
    with tempfile.TemporaryDirectory(prefix="wfctl-startup-") as directory:
        result = module.measure(Path(directory), asked.size(30, 8), 1000)
    names = {
        "version": "--version",
        "help": "schedule add --help",
        "completion": "completion of an id",
        "schedules": "schedules, in a pipe",
    }
    return {(11, key): result["commands"][name]["ratio"] for key, name in names.items()}, result


def of_launch_path(module: ModuleType, asked: Asked) -> Measured:
    """The keeper alone."""
    result = module.measure(300, asked.size(9, 3), 1024)
    plain, ballast = (result["by_ballast"][mib]["reaped_ratio"] for mib in ("0", "1024"))
    return {(12, "plain"): plain, (12, "ballast"): ballast}, result


def of_exits(module: ModuleType, asked: Asked) -> Measured:
    """Ends among many live runs."""
    result = module.measure(asked.size(1000, 100), asked.size(200, 50), asked.size(3, 1))
    return {(13, "ratio"): result["ratio"]}, result


def of_missed(module: ModuleType, asked: Asked) -> Measured:
    """A year of minutes was missed."""
    with tempfile.TemporaryDirectory(prefix="wfctl-missed-") as directory:
        result = module.measure(Path(directory), schedules=asked.size(1000, 50))
    return {(14, "first"): result["first_on_time_admission_s"]}, result


def of_sustained(module: ModuleType, asked: Asked) -> Measured:
    """A hundred runs a second."""
    with tempfile.TemporaryDirectory(prefix="wfctl-sustained-") as directory:
        result = module.measure(Path(directory), seconds=float(asked.size(600, 20)))
    lost = result["expected"] - result["started"] - result["skipped"]
    return {(15, "p99"): result["late_p99_ms"], (15, "growth"): float(len(result["grown"])), (15, "lost"): lost}, result


Adapter = Callable[[ModuleType, Asked], Measured]
#: by the name of the benchmark: its rows, and how it is asked
BENCHMARKS: dict[str, tuple[frozenset[int], Adapter]] = {
    "launch": (frozenset({1, 2, 3}), of_launch),
    "idle": (frozenset({4, 5}), of_idle),
    "starting": (frozenset({6}), of_starting),
    "edits": (frozenset({7}), of_edits),
    "decisions": (frozenset({8}), of_decisions),
    "paging": (frozenset({9}), of_paging),
    "ledger": (frozenset({10}), of_ledger),
    "startup": (frozenset({11}), of_startup),
    "launch_path": (frozenset({12}), of_launch_path),
    "exits": (frozenset({13}), of_exits),
    "missed": (frozenset({14}), of_missed),
    "sustained": (frozenset({15}), of_sustained),
}


def measure(name: str, asked: Asked) -> Measured:
    """Run one benchmark for those of its rows that are asked for. Raise LookupError where its file is not there."""
    if not (HERE / f"{name}.py").exists():
        raise LookupError(f"benchmarks/{name}.py is not there")
    return BENCHMARKS[name][1](importlib.import_module(name), asked)
