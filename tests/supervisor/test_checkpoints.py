"""The ledger's log is moved into its file beside the loop, never within a commit that an admission waits for (contract 6.3)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.waiting import wait_for
from wfctl.store.ledger import Ledger, checkpoints
from wfctl.supervisor.checkpoints import Checkpoints


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    Ledger.create(tmp_path / "ledger.db")
    found = Ledger(tmp_path / "ledger.db")
    yield found
    found.close()


def write(ledger: Ledger, rows: int) -> None:
    """Write so many rows, of a page each or nearly, in one transaction."""
    with ledger.transaction() as connection:
        connection.executemany("INSERT INTO meta VALUES (hex(randomblob(8)), ?)", [("x" * 3500,)] * rows)


def has_moved(ledger: Ledger, rows: int) -> bool:
    """Tell whether so many rows of those have come to the file itself."""
    return ledger.path.stat().st_size > rows * 3500


class Timed(Checkpoints):
    """Looks, and looks again when it is due; `context` has the clock."""

    def look(self, *, is_quiet: bool) -> None:
        super().look(is_quiet=is_quiet)
        at = self.next_at()
        if at is not None:
            assert not self._worker.is_busy, "a burst needs the processor first"
            self._context.clock.set_monotonic(at)  # type: ignore[attr-defined]
            super().look(is_quiet=is_quiet)


class Clock:
    def __init__(self) -> None:
        self._at = 1000.0

    def monotonic(self) -> float:
        return self._at

    def set_monotonic(self, at: float) -> None:
        self._at = at


def checkpoints_of(ledger: Ledger) -> Any:
    return Timed(SimpleNamespace(ledger=ledger, clock=Clock()))  # type: ignore[arg-type]


def test_no_commit_moves_the_log_and_a_quiet_moment_does(ledger: Ledger) -> None:
    found = checkpoints_of(ledger)
    found.look(is_quiet=True)
    write(ledger, 1500)  # more pages than a commit leaves by itself
    assert not has_moved(ledger, 500)
    found.look(is_quiet=False)
    assert not found._worker.is_busy, "something is about to come due"
    found.look(is_quiet=True)
    wait_for(lambda: has_moved(ledger, 1500), "the log is moved")
    found.close()


def test_few_rows_are_left_and_very_many_are_moved_at_any_time(ledger: Ledger) -> None:
    found = checkpoints_of(ledger)
    found.look(is_quiet=True)
    write(ledger, 900)
    found.look(is_quiet=True)
    assert not found._worker.is_busy
    write(ledger, 3200)
    found.look(is_quiet=False)
    wait_for(lambda: has_moved(ledger, 4100), "the log is moved")
    found.close()


def test_2_10_a_ledger_opened_anew_is_looked_after_likewise(ledger: Ledger, tmp_path: Path) -> None:
    holder = SimpleNamespace(ledger=ledger, clock=Clock())
    found = Timed(holder)  # type: ignore[arg-type]
    found.look(is_quiet=True)
    write(ledger, 900)
    holder.ledger = fresh = Ledger(tmp_path / "ledger.db")
    found.look(is_quiet=True)
    write(fresh, 1500)
    assert not has_moved(ledger, 500)
    found.look(is_quiet=True)
    wait_for(lambda: has_moved(fresh, 2400), "the log is moved")
    found.close()
    fresh.close()


def test_a_log_that_cannot_be_moved_stays_without_ado(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(connection: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("wfctl.store.ledger.checkpoints.move", full)
    found = checkpoints_of(ledger)
    found.look(is_quiet=True)
    write(ledger, 1500)
    with caplog.at_level(logging.DEBUG):
        found.look(is_quiet=True)
        wait_for(lambda: not found._worker.is_busy, "it was tried")
    assert [(each.levelname, each.exc_info) for each in caplog.records] == [("DEBUG", None)]
    found.close()


@pytest.mark.parametrize(("schedules", "kib"), [(0, 2048), (100, 2064), (6000, 3048), (100_000, 16384)])
def test_what_is_held_of_the_ledger_goes_by_the_schedules_not_by_the_history(schedules: int, kib: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE schedules (number INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO schedules VALUES (?)", ((number,) for number in range(schedules)))
    checkpoints.hold_more(connection)
    assert connection.execute("PRAGMA cache_size").fetchone()[0] == -kib
    connection.close()
