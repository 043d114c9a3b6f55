"""What every test of the cluster's executor begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurm_stage import Stage
from wfctl.slurm import tasks, watcher


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(tasks, "SILENCE_S", 0.5)
    monkeypatch.setattr(tasks, "_GONE_S", 1.0)
    monkeypatch.setattr(watcher, "_LATE_S", 0.3)
    made = Stage(tmp_path)
    yield made
    made.close()
