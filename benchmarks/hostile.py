#!/usr/bin/env python3
"""Three schedules fire every second: how late are they while the control socket is abused, beside a time without abuse?

python benchmarks/hostile.py [--seconds 60] [--schedules 2000] [--each 1] [--json]
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
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

EVERY = ("every-1", "every-2", "every-3")


def main() -> int:
    """Measure, print, and return the exit status: 1 where an instant was lost, an answer was a bug, or something leaked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of abuse; as long without it, 60 s at most")
    parser.add_argument("--schedules", type=int, default=2000, help="that lie beside those that fire")
    parser.add_argument("--each", type=int, default=1, help="peers of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-hostile-") as directory:
        found = measure(Path(directory), options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0 if found["is_alive"] and not (found["lost"] or found["internal_errors"] or found["tracebacks"]) else 1


def measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a supervisor in peace, then under attack, then in peace again; return what became of its instants."""
    from tests.support.hostile import Attack, Peer, resources_of, settle

    root = directory / "store"
    make_store(root, options.schedules)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, *json.loads(os.environ.get("HOSTILE_SUPERVISE", '["-m", "wfctl"]')), "--store", str(root)]
    with open(directory / "log", "wb") as log:
        supervisor = subprocess.Popen([*command, "supervise"], stdout=log, stderr=log, env=environment)
    try:
        while b"ready:" not in (directory / "log").read_bytes():
            time.sleep(0.05)
        for name in EVERY:
            with Peer(root) as peer:
                trigger = {"kind": "interval", "every": "1s"}
                peer.ask("schedules.create", schedule_id=name, deployment_id="nothing", trigger=trigger, lateness="60s")
        begin = datetime.now(UTC)
        time.sleep(min(60.0, options.seconds))
        before = resources_of(supervisor.pid)
        attacked_from = datetime.now(UTC)
        attack = Attack(root)
        threads = attack.start(options.each)
        peak = 0
        ends_at = time.monotonic() + options.seconds
        while time.monotonic() < ends_at and supervisor.poll() is None:
            peak = max(peak, resources_of(supervisor.pid)["rss_kib"])
            time.sleep(0.5)
        attacked_until = datetime.now(UTC)
        attack.stop.set()
        for thread in threads:
            thread.join(40.0)
        is_alive = supervisor.poll() is None
        after = settle(supervisor.pid, before) if is_alive else {}
        time.sleep(2.0)
    finally:
        supervisor.terminate()
        supervisor.wait(60)
    text = (directory / "log").read_text("utf-8", "replace")
    peace, lost_1 = lateness(root, begin, attacked_from)
    attacked, lost_2 = lateness(root, attacked_from, attacked_until)
    return {
        "seconds": options.seconds,
        "is_alive": is_alive,
        "answers": attack.answers,
        "internal_errors": attack.internal[:5],
        "tracebacks": text.count("Traceback"),
        "lost": lost_1 + lost_2,
        "ms": {"peace": figures(peace), "attack": figures(attacked)},
        "resources": {"before": before, "after": after, "peak_rss_kib": peak},
    }


def make_store(root: Path, schedules: int) -> None:
    """Make a store with many schedules beside, and a history of a hundred thousand occurrences."""
    from benchmarks.paging import fill
    from wfctl import init_store

    with init_store(root) as store:
        fill(store, 100_000)
        for number in range(schedules):
            trigger = {"kind": "cron", "expression": "0 5 1 1 *"}
            store.create_schedule(schedule_id=f"beside-{number:05}", deployment_id="nothing", trigger=trigger)
        store.pause_schedule(schedule_id="each-minute")


def lateness(root: Path, begin: datetime, end: datetime) -> tuple[list[float], int]:
    """Return how late each instant in that time was considered, in milliseconds, and how many are missing."""
    from wfctl import open_store

    first, last = begin + timedelta(seconds=2), end - timedelta(seconds=1)
    with open_store(root) as store:
        found: list[float] = []
        seen: set[tuple[str, datetime]] = set()
        cursor = None
        while True:
            page = store.list_schedule_occurrences(schedule_id=list(EVERY), since=first, until=last, limit=100, cursor=cursor)
            found += [1000 * (each.lateness_s or 0.0) for each in page.items if each.span is None]
            seen |= {(each.schedule_id, each.instant) for each in page.items if each.span is None}
            cursor = page.next_cursor
            if cursor is None:
                break
    wanted = int((last - first).total_seconds()) * len(EVERY)
    return found, max(0, wanted - len(seen))


def figures(found: Sequence[float]) -> dict[str, float]:
    """Return the middle, the last hundredth and the worst of them."""
    if len(found) < 2:
        return {"n": len(found)}
    cut = statistics.quantiles(found, n=100, method="inclusive")
    return {"n": len(found), "p50": cut[49], "p99": cut[98], "max": max(found)}


def show(found: dict[str, Any]) -> None:
    """Print it as a table."""
    print(f"{'lateness, ms':<16}{'n':>8}{'p50':>10}{'p99':>10}{'max':>10}")
    for side, numbers in found["ms"].items():
        print(f"{side:<16}" + "".join(f"{numbers.get(key, 0):>{8 if key == 'n' else 10}.{0 if key == 'n' else 1}f}"
                                      for key in ("n", "p50", "p99", "max")))  # fmt: skip
    peace, attack = found["ms"]["peace"], found["ms"]["attack"]
    if peace.get("p50") and attack.get("p50"):
        print(f"{'attack / peace':<24}" + "".join(f"{attack[key] / peace[key]:>9.1f}x" for key in ("p50", "p99", "max")))
    print(f"lost instants {found['lost']}, bugs {len(found['internal_errors'])}, tracebacks {found['tracebacks']}, "
          f"alive {found['is_alive']}")  # fmt: skip
    for when, held in found["resources"].items():
        print(f"{when:<16}{held}")
    print(f"answers         {found['answers']}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
