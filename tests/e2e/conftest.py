"""A store for each test, and the command line on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Wfctl


@pytest.fixture
def bare(tmp_path: Path) -> Wfctl:
    """wfctl where there is no store yet."""
    home = tmp_path / "home"
    home.mkdir()
    return Wfctl(tmp_path / "store", home)


@pytest.fixture
def wfctl(bare: Wfctl) -> Wfctl:
    """wfctl on a new store."""
    bare.ok("init", "-q")
    return bare
