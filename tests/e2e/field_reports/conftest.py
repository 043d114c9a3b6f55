"""What every field report needs: somebody who watches the jobs, and the check with which it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import ledger_check as checks
from tests.support.place import Place
from tests.support.witness import Witness
from wfctl.operations.store import Store


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """Watches the jobs whose commands it made."""
    with Witness(tmp_path / "side") as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A new store with real processes around it."""
    with Place(tmp_path) as found:
        yield found


@pytest.fixture
def ledger_check() -> Callable[[Store, Witness | Path | None], None]:
    """The check at the end of every case."""
    return checks.ledger_check
