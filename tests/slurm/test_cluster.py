"""A real cluster, and what goes wrong on one: nothing runs twice, no limit is exceeded, and each end has its own reason.

Contract 6.2, 6.9 to 6.11, 7.1, 2.8. The nodes are daemons of this machine, so the programs of a killed one live on.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import most_at_once, read_side, recording_job
from tests.support.processes import wait_for
from tests.support.sites import Site
from tests.support.slurm_cluster import SlurmCluster
from wfctl.operations.views import RunView

_OVER = ("completed", "failed", "cancelled", "exhausted")


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    cluster.wait_idle()
    yield Site(tmp_path, cluster)
    cluster.command("scancel", "--user=root", check=False)


def started(site: Site, deployment: str) -> str:
    """Start a run by hand, and return its id once its program is at work."""
    with site.open() as api:
        run_id = api.start_run(deployment_id=deployment).run_id
    wait_for(lambda: site.run(run_id).status == "running", what="the program", timeout_s=40)
    return run_id


def ended(site: Site, run_id: str, within_s: float = 60) -> RunView:
    wait_for(lambda: site.run(run_id).status in _OVER, what=f"the end of {run_id}", timeout_s=within_s)
    return site.run(run_id)


def job_of(site: Site, run_id: str) -> str:
    """Return the name of a run's first job."""
    with site.open() as api:
        return f"wfctl-{api.context.ledger.store_id}-{run_id}-1"


def problems(site: Site) -> dict[str, str]:
    with site.open() as api:
        return {each["code"]: each["message"] for each in api.server_status().problems}


def test_6_2_killed_supervisors_lose_nothing_and_repeat_nothing(site: Site) -> None:
    side = site.side / "jobs"
    limits = {"skip": 1, "queue": 1, "pair": 2}
    with site.open() as api:
        api.create_deployment(deployment_id="d", command=recording_job(side, 1.2), executor="slurm")
        policies = {"skip": {}, "queue": {"overlap": "queue"}, "pair": {"overlap": "parallel", "max_active_runs": 2}}
        for name, policy in policies.items():
            api.create_schedule(schedule_id=name, deployment_id="d", trigger={"kind": "interval", "every": "1s"}, **policy)
    chance = random.Random(1)
    for _ in range(int(os.environ.get("WFCTL_TEST_KILLS", "3"))):
        with site.supervisor() as supervisor:
            until = time.monotonic() + chance.uniform(0.3, 2.0)
            wait_for(lambda until=until: time.monotonic() >= until, what="the moment of the kill")  # type: ignore[misc]
            supervisor.kill()
    with site.supervisor("--drain-grace-s", "20") as supervisor:
        with site.open() as api:
            for name in limits:
                api.pause_schedule(schedule_id=name)
        wait_for(lambda: not site.runs(status="admitted,running"), what="the end of all runs", timeout_s=60)
        assert supervisor.stop() == 0
    stretches = read_side(side)
    starts = [(each.schedule, each.occurrence) for each in stretches]
    assert len(starts) > 3
    assert len(starts) == len(set(starts)), "an occurrence ran twice"
    for name, limit in limits.items():
        assert most_at_once([each for each in stretches if each.schedule == name]) <= limit
    told = {run.run_id: run.status for run in site.runs()}
    assert set(told.values()) <= {"completed", "failed"}
    assert {each.run for each in stretches} <= set(told)
    assert not [run for run in site.runs(status="failed") if run.reason and run.reason["code"] == "abandoned"]


def test_7_1_a_new_supervisor_adopts_what_is_at_work_and_finds_what_ended(site: Site) -> None:
    with site.open() as api:
        site.deployment(api, "short", "sleep 1; exit 4")
        site.deployment(api, "long", 'until [ -e "$SIDE/go" ]; do sleep 0.1; done')
    supervisor = site.supervisor()
    short, long = started(site, "short"), started(site, "long")
    supervisor.kill()
    wait_for(lambda: "FAILED" in (site.cluster.jobs() if site.cluster else {}).values(), what="the end meanwhile")
    with site.supervisor() as second:
        assert ended(site, short).exit_status == 4
        assert site.run(long).status == "running"
        (site.side / "go").touch()
        assert ended(site, long).status == "completed"
        assert [each.k for each in site.run(long).trace] == [1]
        second.stop()


def test_controller_away_runs_go_on_and_the_rest_is_admitted(cluster: SlurmCluster, site: Site) -> None:
    with site.open() as api:
        site.deployment(api, "long", 'until [ -e "$SIDE/go" ]; do sleep 0.1; done')
        site.deployment(api, "often", "true")
        api.create_deployment(deployment_id="here", command=["/bin/true"])
        for name in ("often", "here"):
            api.create_schedule(
                schedule_id=name, deployment_id=name, trigger={"kind": "interval", "every": "1s"}, lateness="1s"
            )
    with site.supervisor() as supervisor:
        long = started(site, "long")
        wait_for(lambda: site.runs(schedule_id="often", status="completed"), what="runs on the cluster", timeout_s=40)
        cluster.controller_down()
        try:
            wait_for(lambda: "slurm" in problems(site), what="the problem", timeout_s=40)
            assert "does not answer" in problems(site)["slurm"]
            count, here = len(site.runs(schedule_id="often")), len(site.runs(schedule_id="here"))
            wait_for(lambda: len(site.runs(schedule_id="here")) > here + 1, what="runs of this machine")
            assert len(site.runs(schedule_id="often")) == count
            assert site.run(long).status == "running"
        finally:
            cluster.controller_up()
        wait_for(lambda: "slurm" not in problems(site), what="its return", timeout_s=40)
        (site.side / "go").touch()
        assert (ended(site, long).status, site.run(long).reason) == ("completed", None)
        wait_for(lambda: len(site.runs(schedule_id="often")) > count, what="more runs on the cluster", timeout_s=40)
        with site.open() as api:
            api.pause_schedule(schedule_id="often")
        wait_for(lambda: not site.runs(status="admitted,running", schedule_id="often"), what="quiet", timeout_s=60)
        supervisor.stop()
    with site.open() as api:
        rows = list(api.list_schedule_occurrences(schedule_id="often", limit=100, status="skipped-misfire").items)
    assert {row.reason["code"] for row in rows if row.reason} <= {
        "missed",
        "capacity",
        "paused",
    }  # what was due as it was paused


def test_what_somebody_cancels_on_the_cluster_is_told_so(cluster: SlurmCluster, site: Site) -> None:
    with site.open() as api:
        site.deployment(api, "d", "sleep 60", retries=1)
    with site.supervisor() as supervisor:
        run_id = started(site, "d")
        cluster.command("scancel", f"--name={job_of(site, run_id)}")
        run = ended(site, run_id)
        assert (run.status, run.reason["code"]) == ("failed", "cancelled-outside")  # type: ignore[index]
        assert len(run.trace) == 1
        assert "not by wfctl" in site.command("run", "show", run_id)
        supervisor.stop()


def test_what_must_make_room_is_told_so(cluster: SlurmCluster, site: Site) -> None:
    with site.open() as api:
        site.deployment(api, "d", "sleep 60", slurm={"options": ["--exclusive", "--nodelist=n1"]})
    with site.supervisor() as supervisor:
        run_id = started(site, "d")
        urgent = ("--partition=urgent", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=true")
        cluster.command("sbatch", *urgent, "--job-name=urgent")
        run = ended(site, run_id)
        assert (run.status, run.reason["code"]) == ("failed", "preempted")  # type: ignore[index]
        supervisor.stop()


def test_2_8_a_run_that_only_the_shared_folder_knows_is_entered_and_never_repeated(site: Site, tmp_path: Path) -> None:
    """The older ledger is put back, and the store's own directories of later runs are lost with the machine."""
    with site.open() as api:
        site.deployment(api, "d", 'echo "$WFCTL_OCCURRENCE" >> "$SIDE/ran"')
        api.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1s"}, misfire="latest")
    with site.supervisor() as supervisor:
        wait_for(lambda: len(site.runs(status="completed")) >= 1, what="a run", timeout_s=40)
        supervisor.stop()
    old = tmp_path / "old"
    shutil.copytree(site.root, old, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    known = {run.run_id for run in site.runs()}
    with site.supervisor() as supervisor:
        wait_for(lambda: len(site.runs(status="completed")) >= len(known) + 2, what="more runs", timeout_s=40)
        supervisor.stop()
    later = [run for run in site.runs() if run.run_id not in known]
    site.root.rename(tmp_path / "lost")
    old.rename(site.root)
    with site.supervisor() as supervisor:
        found = {run.run_id: run for run in site.runs()}
        for run in later:
            assert found[run.run_id].reason["code"] == "ledger-restored"  # type: ignore[index]
            assert found[run.run_id].instant == run.instant
        wait_for(lambda: len(site.runs(status="completed")) > len(known), what="a new run", timeout_s=40)
        supervisor.stop()
    ran = site.lines("ran")
    assert len(ran) == len(set(ran)), "an occurrence ran twice"


def test_a_lost_node_is_told_and_its_program_is_over_before_that(cluster: SlurmCluster, site: Site) -> None:
    with site.open() as api:
        site.deployment(api, "d", 'while :; do date +%s.%N > "$SIDE/beat"; sleep 0.1; done', retries=3)
    with site.supervisor() as supervisor:
        run_id = started(site, "d")
        node = int(cluster.command("squeue", "--noheader", f"--name={job_of(site, run_id)}", "--format=%N").strip()[1:])
        cluster.node_kill(node)
        cluster.give_up(node)
        try:
            run = ended(site, run_id, 90)
            beat = (site.side / "beat").read_text()
        finally:
            cluster.node_up(node)
        assert (run.status, run.reason["code"], run.reason["node"]) == ("failed", "node-failed", f"n{node}")  # type: ignore[index]
        assert len(run.trace) == 1, "it was tried again"
        later = time.monotonic() + 1
        wait_for(lambda: time.monotonic() > later, what="a second")
        assert (site.side / "beat").read_text() == beat, "its program lives"
        supervisor.stop()


@pytest.mark.kills
def test_a_time_limit_of_the_cluster_is_told_so(site: Site) -> None:
    """Slurm counts in minutes, so this takes more than one."""
    with site.open() as api:
        site.deployment(api, "d", "sleep 300", slurm={"time_limit": "1m"})
    with site.supervisor() as supervisor:
        run = ended(site, started(site, "d"), 180)
        assert (run.status, run.reason["code"], run.reason["state"]) == ("failed", "time-limit", "TIMEOUT")  # type: ignore[index]
        supervisor.stop()
