"""The power is cut while schedules are made, edited and deleted and runs are admitted: acknowledged ⊆ found ⊆ attempted.

The store lies on a file system of its own, which is shut down at a random moment; everything that used it is killed, and a new
supervisor runs on what a disk would hold. Jobs and the writer keep their record elsewhere.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.image import Image, why_not
from tests.support.jobs import read_side, recording_job
from tests.support.processes import Supervisor, clean_environment, wait_for, wfctl
from wfctl import Store, open_store

ROUNDS = int(os.environ.get("WFCTL_TEST_POWER_CUTS", "5"))
SEED = int(os.environ.get("WFCTL_TEST_SEED", "7"))
TICKING = {"steady": {"overlap": "skip"}, "queued": {"overlap": "queue"}, "two": {"overlap": "parallel", "max_active_runs": 2}}

WRITER = """
import os, sys
import wfctl
root, record, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def tell(*words):
    os.write(file, (" ".join(words) + "\\n").encode())
yearly = {"kind": "cron", "expression": "0 0 1 1 *"}
seen = set()
with wfctl.open_store(root) as store:
    revision = store.get_schedule(schedule_id="edited").revision
    n = first
    while True:
        name = f"made-{n:05d}"
        tell("try", "create", name)
        store.create_schedule(schedule_id=name, deployment_id="short", trigger=yearly, notes=name)
        tell("did", "create", name)
        tell("try", "update", f"{n:05d}")
        revision = store.update_schedule(schedule_id="edited", expected_revision=revision, notes=f"{n:05d}").revision
        tell("did", "update", f"{n:05d}")
        if n % 3 == 0:
            tell("try", "delete", name)
            store.delete_schedule(schedule_id=name)
            tell("did", "delete", name)
        if n % 5 == 0:
            tell("try", "pause", name)
            if n % 3:
                store.pause_schedule(schedule_id=name)
                tell("did", "pause", name)
        for run in store.list_runs(status="completed", limit=100).items:
            if run.run_id not in seen:
                seen.add(run.run_id)
                tell("did", "complete", run.run_id)
        n += 1
"""


def test_2_4_6_1_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    """Contract 2.2, 2.4, 2.5, 5.15, 6.1, 6.2, 6.9, 7.1."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"POWER CUTS ARE NOT TESTED: {reason}")
    side, record = tmp_path / "side", tmp_path / "record"
    chance = random.Random(SEED)
    doubtful: list[tuple[int, int]] = []  # what the writer said while the file system was being shut down
    windows: list[tuple[int, int]] = []  # when that was
    with Image() as image:
        wfctl(image.root, "init")
        with open_store(image.root) as api:
            api.create_deployment(deployment_id="short", command=recording_job(side, 0.3))
            yearly = {"kind": "cron", "expression": "0 0 1 1 *"}
            api.create_schedule(schedule_id="edited", deployment_id="short", trigger=yearly, notes="00000")
            for name, policy in TICKING.items():
                api.create_schedule(
                    schedule_id=name,
                    deployment_id="short",
                    trigger={"kind": "interval", "every": "1s"},
                    **policy,  # type: ignore[arg-type]
                )
        for number in range(ROUNDS):
            with Supervisor(image.root, "--max-concurrent-runs", "4") as supervisor:
                supervisor.wait_ready()
                writer = subprocess.Popen(
                    [sys.executable, "-c", WRITER, str(image.root), str(record), str(number * 10_000 + 1)],
                    env=clean_environment(),
                    stderr=subprocess.DEVNULL,
                )
                try:
                    before = record.stat().st_size if record.exists() else 0
                    wait_for(lambda size=before: record.exists() and record.stat().st_size > size, what="a write")  # type: ignore[misc]
                    moment = time.monotonic() + chance.uniform(0.0, 1.5)
                    wait_for(lambda until=moment: time.monotonic() >= until, what="the moment of the cut")  # type: ignore[misc]
                    before, cut_at = record.stat().st_size, time.monotonic_ns()
                    image.cut()
                finally:
                    writer.kill()
                    writer.wait()
                supervisor.kill()
            image.restore()
            doubtful.append((before, record.stat().st_size))
            windows.append((cut_at, time.monotonic_ns()))
            judge(image.root, record, side, doubtful, windows, f"seed {SEED}, round {number}")
        with Supervisor(image.root, "--drain-grace-s", "20") as supervisor:
            supervisor.wait_ready()
            with open_store(image.root) as api:
                for name in TICKING:
                    api.pause_schedule(schedule_id=name)
                wait_for(lambda: not api.list_runs(status="admitted,running").items, what="the end of all runs")
            assert supervisor.stop() == 0
        judge(image.root, record, side, doubtful, windows, f"seed {SEED}, at the end")
        with open_store(image.root) as api:
            for name in TICKING:
                audit = api.audit_schedule(schedule_id=name)
                assert audit.is_balanced, audit.problems


def judge(
    root: Path, record: Path, side: Path, doubtful: Sequence[tuple[int, int]], windows: Sequence[tuple[int, int]], when: str
) -> None:
    """Hold what a command finds against the records of the writer and of the jobs.

    Acknowledged is what was said before the cut began: while ext4 is being shut down, a sync of an aborted journal may still
    report success, which no disk that loses its power does.
    """
    told: dict[str, dict[str, set[str]]] = {"try": defaultdict(set), "did": defaultdict(set)}
    at = 0
    for line in record.read_text().splitlines(keepends=True):
        word, what, name = line.split()
        if word == "try" or not any(first <= at < last for first, last in doubtful):
            told[word][what].add(name)
        at += len(line)
    attempted, acknowledged = told["try"], told["did"]
    with open_store(root) as api:
        found = {view.id: view for view in api.list_schedules(include_deleted=True).items}
        made = {name for name in found if name.startswith("made-")}
        assert acknowledged["create"] <= made <= attempted["create"], when
        deleted = {name for name in made if found[name].state == "deleted"}
        assert acknowledged["delete"] <= deleted <= attempted["delete"], when
        paused = {name for name in made if found[name].state == "paused"}
        assert acknowledged["pause"] <= paused <= attempted["pause"], when
        assert not [view.diagnostic for view in found.values() if view.diagnostic], when
        notes = found["edited"].definition["notes"]
        assert max(acknowledged["update"], default="00000") <= notes <= max(attempted["update"], default="00000"), when
        on_disk = tomllib.loads((root / "schedules" / "edited.toml").read_text())
        assert on_disk["notes"] == notes, f"{when}: file and ledger differ once a command has looked"
        files = {path.stem for path in (root / "schedules").glob("made-*.toml")}
        assert files == made - deleted, when
        judge_runs(api, acknowledged["complete"], side, windows, when)


def judge_runs(api: Store, completed: set[str], side: Path, windows: Sequence[tuple[int, int]], when: str) -> None:
    """What ran was recorded before it ran, for the instant that it was told; what was shown as completed still is."""
    stretches = read_side(side)
    executions = [(stretch.run, stretch.k) for stretch in stretches]
    assert len(set(executions)) == len(executions), f"{when}: an execution was launched twice"
    occurrences = [(stretch.schedule, stretch.occurrence) for stretch in stretches]
    assert len(set(occurrences)) == len(occurrences), f"{when}: an occurrence ran twice"
    for stretch in stretches:
        if any(first <= stretch.start < last for first, last in windows):
            continue  # its admission may have been synced to a journal that was being aborted
        run = api.inspect_run(run_id=stretch.run)
        assert (run.schedule_id, run.instant) == (stretch.schedule, datetime.fromisoformat(stretch.occurrence)), when
    for run_id in completed:
        assert api.inspect_run(run_id=run_id).status == "completed", f"{when}: {run_id} was shown as completed"
