"""`doctor` and `deployment check` test the cluster: each thing that a run stands on, and what to do about it (3.0, 5.9)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fake_slurm import FakeSlurm
from tests.support.slurm_stage import STORE, Stage
from wfctl import init_store, open_store
from wfctl.core.model import SlurmNeeds
from wfctl.operations import cluster_checks
from wfctl.operations.cluster_checks import ClusterCheck, check_cluster
from wfctl.operations.doctor import examine
from wfctl.settings import SlurmSettings
from wfctl.store.layout import Layout


@contextmanager
def nodes(fake: FakeSlurm) -> Iterator[None]:
    """Let every small job do its look meanwhile."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.02):
            fake.run_probes()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def checks(stage: Stage, needs: SlurmNeeds | None = None, **settings: object) -> dict[str, ClusterCheck]:
    given = SlurmSettings(**{"shared": stage.shared, "bin": stage.fake.bin, **settings})
    return {each.name: each for each in check_cluster(given, STORE, stage.runs, needs or SlurmNeeds())}


def test_all_is_well(stage: Stage) -> None:
    with nodes(stage.fake):
        found = checks(stage)
    assert list(found) == ["slurm", "controller", "partition", "shared folder"]
    assert all(each.ok for each in found.values()), found
    assert found["controller"].detail == "answers; partitions: all, slow"
    assert found["partition"].detail == "all, the default, up, 2 nodes"
    assert "node n1 sees it" in found["shared folder"].detail
    assert not [path for path in (stage.shared / STORE).iterdir() if path.name.startswith("probe-")], "nothing is left there"


def test_commands_that_are_not_there(stage: Stage) -> None:
    found = checks(stage, bin=stage.shared)
    assert list(found) == ["slurm"]
    assert "sbatch cannot be run: No such file" in found["slurm"].detail


def test_a_controller_that_is_away(stage: Stage) -> None:
    stage.fake.mode(sinfo="down")
    found = checks(stage)
    assert (found["controller"].ok, found["controller"].fix) == (False, "scontrol ping")
    assert "does not answer" in found["controller"].detail


@pytest.mark.parametrize(
    ("partition", "said"),
    [("nope", "nope is not there: it can be all, slow"), ("slow", "slow, not up: jobs wait in it, 1 node")],
)
def test_a_partition_that_takes_nothing(stage: Stage, partition: str, said: str) -> None:
    with nodes(stage.fake):
        found = checks(stage, SlurmNeeds(partition=partition))
    assert (found["partition"].ok, found["partition"].detail) == (False, said)


def test_a_folder_that_others_may_change(stage: Stage) -> None:
    stage.shared.chmod(0o777)
    found = checks(stage)["shared folder"]
    assert not found.ok
    assert f"chmod go-w {stage.shared}" in found.detail


def test_a_folder_that_no_node_sees(stage: Stage) -> None:
    done = threading.Event()

    def lose() -> None:
        while not done.wait(0.02):
            stage.fake.change("", state="FAILED", code=1 << 8, nodes="n2")

    thread = threading.Thread(target=lose)
    thread.start()
    found = checks(stage)["shared folder"]
    done.set()
    thread.join()
    assert not found.ok
    assert f"node n2 does not see {stage.shared}" in found.detail
    assert found.fix == f"srun ls -ld {stage.shared}"


def test_a_queue_that_is_full_says_nothing_for_now_and_nothing_is_left_in_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_checks, "NODE_PATIENCE_S", 0.1)
    found = checks(stage)["shared folder"]
    assert not found.ok
    assert "not known yet: the small job that looks waits in Slurm's queue (PENDING, Priority)" in found.detail
    assert {job["state"] for job in stage.fake.jobs(probes=True)} == {"CANCELLED"}


def test_doctor_and_deployment_check_say_it(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "other"
    init_store(root).close()
    Layout(root).settings.write_text(f'[executors.slurm]\nshared = "{stage.shared}"\nbin = "{stage.fake.bin}"\n')
    with open_store(root) as store:
        store.create_deployment(deployment_id="d", command=["/bin/true"], executor="slurm", slurm={"partition": "slow"})
        with nodes(stage.fake):
            rows = {each.name: each for each in store.check_deployment(deployment_id="d")}
            told = {each.name: each for each in examine(root, open_store, {"PATH": "/usr/bin:/bin"}).checks}
    for found in (rows, told):
        assert found["controller"].ok
        assert found["shared folder"].ok
        assert (found["partition"].ok, found["partition"].detail) == (False, "slow, not up: jobs wait in it, 1 node")
    assert told["partition"].fix == "sinfo"  # type: ignore[union-attr]
    assert rows["executor"].detail == "slurm"
