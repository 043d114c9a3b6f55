"""One store, one clock and one fake keeper a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.story import World
from wfctl.operations.store import init_store


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A new store at 2027-03-01T09:00:30Z."""
    init_store(tmp_path / "store").close()
    found = World(tmp_path / "store")
    yield found
    found.die()
