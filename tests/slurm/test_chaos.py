"""Supervisor, controller and node killed at random while schedules fire: nothing twice, no overlap beyond its limit.

What is held against the ledger is what the programs wrote on the shared folder: each beats until it ends, however it ends, so
that one which was killed is known to have lived until its last beat (contract 6.2, 6.8 to 6.11, 7.1).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.support import slurm_cluster
from tests.support.processes import wait_for
from tests.support.sites import Site
from tests.support.slurm_cluster import SlurmCluster
from wfctl.operations.views import RunView

LIMITS = {"skip": 1, "queue": 1, "pair": 2, "latest": 1}
POLICIES = {
    "skip": {"overlap": "skip"},
    "queue": {"overlap": "queue"},
    "pair": {"overlap": "parallel", "max_active_runs": 2},
    "latest": {"overlap": "skip", "misfire": "latest"},
}
_BEAT = """
import os, sys, time
path = os.path.join(sys.argv[1], os.environ["WFCTL_RUN_ID"] + "." + os.environ["WFCTL_EXECUTION"])
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(fd, f"start {os.environ['WFCTL_SCHEDULE_ID']} {os.environ['WFCTL_OCCURRENCE']} {time.monotonic()}\\n".encode())
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    time.sleep(0.05)
    os.write(fd, f"beat {time.monotonic()}\\n".encode())
"""


@pytest.mark.kills
@pytest.mark.parametrize("seed", [int(seed) for seed in os.environ.get("WFCTL_TEST_CHAOS", "1").split(",")])
def test_what_is_killed_at_random_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    if (why := slurm_cluster.missing()) is not None:
        pytest.skip(why)
    chance = random.Random(seed)
    with SlurmCluster(cpus=6) as cluster:
        site = Site(tmp_path, cluster)
        beats = site.side / "beats"
        beats.mkdir()
        with site.open() as api:
            api.create_deployment(deployment_id="d", command=["/usr/bin/python3", "-IS", "-c", _BEAT, str(beats), "2.0"],
                                  executor="slurm", kill_grace="1s")  # fmt: skip
            for name, policy in POLICIES.items():
                api.create_schedule(schedule_id=name, deployment_id="d", trigger={"kind": "interval", "every": "1s"}, **policy)
        killed = _rage(site, cluster, chance, seconds=float(os.environ.get("WFCTL_TEST_CHAOS_S", "60")))
        with site.supervisor("--drain-grace-s", "5") as supervisor:
            with site.open() as api:
                for name in POLICIES:
                    api.pause_schedule(schedule_id=name)
            try:
                wait_for(lambda: _calm(site, cluster), timeout_s=240, what="the end of all runs")
            except AssertionError:
                print(cluster.command("squeue", "--states=all", "--format=%i|%j|%T|%r|%N", check=False), supervisor.text())
                raise
            finally:
                print(f"seed {seed}: killed {dict(killed)}; {len(site.runs())} runs: {_ends(site)}")
            assert supervisor.stop() == 0
        check(site, beats)


def _rage(site: Site, cluster: SlurmCluster, chance: random.Random, *, seconds: float) -> Counter[str]:
    """Kill one thing after another, and bring it back a little later; return how often each was killed."""
    killed: Counter[str] = Counter()
    deck: list[str] = []
    until = time.monotonic() + seconds
    supervisor = site.supervisor()
    try:
        while time.monotonic() < until:
            _pause(chance.uniform(0.5, 5.0))
            if not deck:
                deck = ["supervisor", "supervisor", "controller", "node"]
                chance.shuffle(deck)
            what = deck.pop()
            killed[what] += 1
            if what == "supervisor":
                supervisor.kill()
                supervisor = site.supervisor()
            elif what == "controller":
                cluster.controller_kill(is_saved=chance.random() < 0.5)
                _pause(chance.uniform(0.2, 6.0))
                cluster.controller_up()
            else:
                node = chance.randint(1, cluster.nodes)
                cluster.node_kill(node)
                _pause(chance.uniform(0.2, 12.0))
                cluster.node_up(node)
    finally:
        supervisor.kill()
    return killed


def _pause(seconds: float) -> None:
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, what="a moment", timeout_s=seconds + 5)


def _calm(site: Site, cluster: SlurmCluster) -> bool:
    cluster.wait_idle(60.0)  # Slurm drains a node where it finds a job that it has lost
    return not site.runs(status="admitted,running")


def _ends(site: Site) -> dict[str, int]:
    """Return how many runs ended how."""
    counts = Counter(" ".join(filter(None, (run.status, (run.reason or {}).get("code")))) for run in site.runs())
    return dict(counts.most_common())


def check(site: Site, beats: Path) -> None:
    """Hold what the programs wrote against what was promised, and against the ledger."""
    stretches: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
    for path in beats.iterdir():
        lines = path.read_text().splitlines()
        assert [line for line in lines if line.startswith("start")] == lines[:1], f"{path.name} was launched twice"
        _, schedule, occurrence, at = lines[0].split()
        stretches[schedule].append((float(at), float(lines[-1].split()[-1]), occurrence, path.name))
    total = 0
    for schedule, found in stretches.items():
        total += len(found)
        occurrences = [each[2] for each in found]
        assert len(occurrences) == len(set(occurrences)), f"an occurrence of {schedule} ran twice"
        for begin, _, _, name in found:
            others = [each[3] for each in found if each[0] <= begin < each[1]]
            assert len(others) <= LIMITS[schedule], f"{name} of {schedule} ran beside {others}"
    runs = {run.run_id: run for run in site.runs()}
    assert total > 5, Counter((run.status, (run.reason or {}).get("code")) for run in runs.values())
    ran = {path.name for path in beats.iterdir()}
    told = {f"{name}.{each.k}": each for name, run in runs.items() for each in run.trace}
    for name in ran:
        assert name in told and told[name].started_at is not None, f"{name} ran, and the ledger says it did not"
    lasted = {each[3]: each[1] - each[0] for found in stretches.values() for each in found}
    for name, run in runs.items():
        if run.status == "completed":
            last = f"{name}.{run.trace[-1].k}"
            assert lasted.get(last, 0.0) > 1.8, f"{last} is completed, and its program did not run to its end"


def test_the_check_sees_an_overlap(tmp_path: Path) -> None:
    class Nothing:
        def runs(self) -> list[RunView]:
            return []

    for n in range(6):
        (tmp_path / f"run-00000{n}.1").write_text(f"start skip t{n} {n * 10}\nbeat {n * 10 + 9}\n")
    (tmp_path / "run-000006.1").write_text("start skip t6 58\nbeat 66\n")
    with pytest.raises(AssertionError, match="ran beside"):
        check(Nothing(), tmp_path)  # type: ignore[arg-type]
