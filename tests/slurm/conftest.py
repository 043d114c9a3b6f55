"""What every test of the cluster's executor begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import slurm_cluster
from tests.support.slurm_cluster import SlurmCluster
from tests.support.slurm_stage import Stage
from wfctl.slurm import executor, tasks, watcher


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    """A real cluster of two nodes, for all tests of this process that want one."""
    if (why := slurm_cluster.missing()) is not None:
        pytest.skip(why)
    with SlurmCluster(cpus=16, message_timeout_s=2) as made:
        yield made


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(tasks, "SILENCE_S", 0.5)
    monkeypatch.setattr(tasks, "_GONE_S", 1.0)
    monkeypatch.setattr(watcher, "_LATE_S", 0.3)
    monkeypatch.setattr(watcher, "_UNTOLD_S", 0.3)
    script = tmp_path / "job.py"  # it looks into its letter box more often
    script.write_text(executor.SCRIPT.read_text("utf-8").replace("LOOK_S = 3.0", "LOOK_S = 0.3"), "utf-8")
    monkeypatch.setattr(executor, "SCRIPT", script)
    made = Stage(tmp_path)
    yield made
    made.close()
