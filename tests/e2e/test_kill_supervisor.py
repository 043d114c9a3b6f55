"""SIGKILL of the supervisor at random moments: nothing twice, nothing lost, no limit exceeded, by the jobs' own word."""

from __future__ import annotations

import itertools
import os
import random
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.jobs import most_at_once, read_side, recording_job
from tests.support.processes import Supervisor, wait_for, wfctl
from wfctl import open_store

POLICIES = {
    "skip": {"overlap": "skip"},
    "queue": {"overlap": "queue"},
    "pair": {"overlap": "parallel", "max_active_runs": 2},
    "latest": {"overlap": "skip", "misfire": "latest"},
    "brisk": {"overlap": "skip"},
}
LIMITS = {"skip": 1, "queue": 1, "pair": 2, "latest": 1, "brisk": 1}


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [
        pytest.param(int(os.environ.get("WFCTL_TEST_KILLS", "10")), 1, id="some-kills"),
        pytest.param(300, 2, id="300-kills", marks=pytest.mark.kills),
    ],
)
def test_6_2_a_killed_supervisor_loses_nothing_and_repeats_nothing(tmp_path: Path, rounds: int, seed: int) -> None:
    """Contract 5.15, 6.1, 6.2, 6.9, 7.1."""
    store, side = tmp_path / "store", tmp_path / "side"
    wfctl(store, "init")
    with open_store(store) as api:
        for name, lasts in (("short", 0.1), ("long", 1.4)):
            api.create_deployment(deployment_id=name, command=recording_job(side, lasts))
        for name, policy in POLICIES.items():
            api.create_schedule(
                schedule_id=name,
                deployment_id="short" if name == "brisk" else "long",
                trigger={"kind": "interval", "every": "1s"},
                **policy,  # type: ignore[arg-type]
            )
    chance = random.Random(seed)
    for _ in range(rounds):
        with Supervisor(store, "--max-concurrent-runs", "8") as supervisor:
            supervisor.wait_ready()
            moment = time.monotonic() + chance.uniform(0.0, 0.9)
            wait_for(lambda until=moment: time.monotonic() >= until, what="the moment of the kill")  # type: ignore[misc]
            supervisor.kill()
    with Supervisor(store, "--max-concurrent-runs", "8", "--drain-grace-s", "20") as supervisor:
        supervisor.wait_ready()
        with open_store(store) as api:
            for name in POLICIES:
                api.pause_schedule(schedule_id=name)
            wait_for(lambda: not api.list_runs(status="admitted,running").items, timeout_s=30, what="the end of all runs")
        assert supervisor.stop() == 0
    check_laws(store, side)


def check_laws(store: Path, side: Path) -> None:
    """Hold the ledger against what the jobs wrote down themselves."""
    stretches = read_side(side)
    starts = [(stretch.schedule, stretch.occurrence) for stretch in stretches]
    assert len(starts) == len(set(starts)), "an occurrence ran twice"
    with open_store(store) as api:
        for name, limit in LIMITS.items():
            mine = [stretch for stretch in stretches if stretch.schedule == name]
            assert most_at_once(mine) <= limit, f"{name} exceeded its overlap limit"
            rows, cursor = [], None
            while True:
                page = api.list_schedule_occurrences(schedule_id=name, limit=100, cursor=cursor)
                rows += page.items
                cursor = page.next_cursor
                if cursor is None:
                    break
            instants = [row.instant for row in rows]
            assert instants == sorted(set(instants)), f"{name}: rows out of order or repeated"
            for earlier, later in itertools.pairwise(rows):
                first = later.span.first if later.span else later.instant
                assert first - earlier.instant == timedelta(seconds=1), f"{name}: a hole before {later.instant}"
            audit = api.audit_schedule(schedule_id=name)
            assert audit.is_balanced and audit.instants, f"{name}: {audit.problems}"
            by_run = {row.run_id: row for row in rows if row.run_id}
            for stretch in mine:
                row = by_run.get(stretch.run)
                assert row is not None, f"{stretch.run} ran and is not recorded"
                assert datetime.fromisoformat(stretch.occurrence) == row.instant
                assert row.status == "completed" or stretch.end is None, (
                    f"{stretch.run} ended, yet is {row.status}: {row.reason}"
                )
            ran = {stretch.run for stretch in mine}
            for run, row in by_run.items():
                assert run in ran or row.status == "failed", f"{run} is {row.status} and never ran"
