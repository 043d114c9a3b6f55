#!/usr/bin/env python3
"""Among very many schedules, one is edited: how soon does the running supervisor go by the edit?

python benchmarks/edits.py [--schedules 100000] [--edits 20] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import many

if TYPE_CHECKING:
    from wfctl import Store

PATIENCE_S = 600.0
ALONE_S = 1.0  #: a file is taken up once it has been left alone for so long
AHEAD = timedelta(milliseconds=6)  #: of an edit's one-shot, which is due by the time that it is committed


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-edits-") as directory:
        result = measure(Path(directory) / "store", options.schedules, options.edits)
    if options.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{options.schedules} schedules, {options.edits} edits of each kind; milliseconds")
    print(f"{'':<52}{'median':>8}{'most':>8}")
    for name, found in result["ms"].items():
        print(f"{name.replace('_', ' '):<52}{found['median']:>8.1f}{found['most']:>8.1f}")
    return 0


def measure(root: Path, schedules: int, edits: int) -> dict[str, Any]:
    """Edit schedules of a running supervisor, and return when it went by the edits."""
    many.make(root, schedules)
    with supervised(root) as pid:
        begun = processor_ms(pid)
        changes = [by_operation(root, many.name_of(number)) for number in range(edits)]
        spent = (processor_ms(pid) - begun) / edits
        by_hand = [edit_by_hand(root, many.name_of(edits + number)) for number in range(edits)]
    ms = {
        "an operation: from its commit to its admission": [each for each, _ in changes],
        "an operation: from its commit to its process": [each for _, each in changes],
        "a hand edit: from its second alone to its revision": by_hand,
        "processor time of the supervisor for an edit and its run": [spent],
    }
    return {
        "schedules": schedules,
        "edits": edits,
        "ms": {name: {"median": statistics.median(found), "most": max(found)} for name, found in ms.items()},
    }


@contextlib.contextmanager
def supervised(root: Path) -> Iterator[int]:
    """Have a supervisor run on the store meanwhile; give its pid once it is ready."""
    argv = [sys.executable, "-m", "wfctl", "--store", str(root), "supervise", "--max-concurrent-runs", "8"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    log = root.with_name("supervisor.log")
    with log.open("wb") as output, subprocess.Popen(argv, env=environ, stderr=output) as process:
        try:
            wait_for(lambda: "ready:" in log.read_text())
            yield process.pid
        finally:
            process.terminate()


def by_operation(root: Path, name: str) -> tuple[float, float]:
    """Give a schedule a one-shot that is due at once; return when it was admitted and its process began, from the commit on."""
    from wfctl.operations.store import open_store
    from wfctl.rpc.door import ControlDoor
    from wfctl.store.disk import Disk

    committed: list[float] = []

    class Watched(Disk):
        def point(self, name: str) -> None:
            if name == "committed":
                committed.append(time.time())
            elif name == "create":  # of the file: what was committed before is the edit
                del committed[:-1]

    with open_store(root, door=ControlDoor, disk=Watched()) as store:
        revision = store.get_schedule(schedule_id=name).revision or 0
        while True:  # the first one loads the calendar, which takes longer than the one-shot is ahead
            at = datetime.now(UTC) + AHEAD
            trigger = {"kind": "oneshot", "at": at.isoformat()}
            committed.clear()
            if _is_taken(store, name, revision, trigger):
                break
        edited = committed[0]
        (found,) = wait_for(lambda: [row for row in store.list_schedule_occurrences(schedule_id=name, limit=100) if row.run_id])
        run = wait_for(lambda: (view := store.inspect_run(run_id=found.run_id or "")).started_at and view)
    return 1000 * (found.recorded_at.timestamp() - edited), 1000 * (run.started_at.timestamp() - edited)


def _is_taken(store: Store, name: str, revision: int, trigger: dict[str, str]) -> bool:
    from wfctl import InvalidDefinition

    try:
        store.update_schedule(schedule_id=name, expected_revision=revision, trigger=trigger)
    except InvalidDefinition:  # it was late already
        return False
    return True


def edit_by_hand(root: Path, name: str) -> float:
    """Change a schedule's notes in its file; return when that was recorded, from when the file was alone long enough."""
    path = root / "schedules" / f"{name}.toml"
    new = path.with_name(".edit.tmp")
    new.write_text(path.read_text().replace("finance team", "whole house"))
    new.chmod(0o600)
    new.replace(path)
    changed = path.stat().st_ctime
    connection = sqlite3.connect(f"file:{root}/ledger.db?mode=ro", uri=True)
    sql = (
        "SELECT r.recorded_at FROM revisions r JOIN definitions d ON d.number = r.definition WHERE d.id = ? AND r.revision = 2"
    )
    recorded = wait_for(lambda: (connection.execute(sql, (name,)).fetchone() or (None,))[0])
    connection.close()
    return 1000 * (recorded / 1e6 - changed - ALONE_S)


def processor_ms(pid: int) -> float:
    """Return the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return what a condition gives once it gives something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit("nothing happened in time")
        time.sleep(0.005)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
