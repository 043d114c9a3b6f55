"""A scheduler whose clock, keeper and disk belong to the test, and which may die at any durable write."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.fake_keeper import FakeKeeper
from wfctl.keeper.protocol import Keeper
from wfctl.operations.store import Store, open_store
from wfctl.operations.views import OccurrenceView, RunView
from wfctl.store.disk import Disk
from wfctl.supervisor.service import SupervisorService

START = datetime(2027, 3, 1, 9, 0, 30, tzinfo=UTC)
SETTINGS = {"supervisor": {"drain_grace_s": 0.0}, "runs": {"min_free": "0"}}


class FakeClock:
    """Moves only when told; durations follow the wall clock unless it is set."""

    def __init__(self, at: datetime = START) -> None:
        self._now = at
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, span: timedelta) -> None:
        """Let time pass."""
        self._now += span
        self._monotonic += span.total_seconds()

    def set(self, at: datetime) -> None:
        """Step the wall clock; no time passes."""
        self._now = at


class FakeService(SupervisorService):
    """The real supervisor over a fake keeper, which outlives it as the real one does."""

    fake: FakeKeeper

    def _find_keeper(self) -> Keeper:
        return self.fake.reconnect() if not self.fake.world.is_dead else FakeKeeper(now=self.fake.world.now)

    def abandon(self) -> None:
        """Let the process be gone: descriptors are closed, nothing is written."""
        for name in ("_server", "driver", "_waiter"):
            with contextlib.suppress(AttributeError):
                getattr(self, name).close()
        with contextlib.suppress(AttributeError):
            self._context.ledger.close()
        self._lock.release()


class World:
    """One store seen by one supervisor process after another."""

    def __init__(self, root: Path, *, clock: FakeClock | None = None) -> None:
        self.root = root
        self.clock = clock or FakeClock()
        self.keeper = FakeKeeper(now=self.clock.now)
        self.disk = Disk()
        self._service: FakeService | None = None
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store as an operator's command has it open."""
        if self._store is None:
            self._store = open_store(self.root, clock=self.clock, disk=self.disk)
        return self._store

    def step(self) -> datetime | None:
        """Let the supervisor, started where it is gone, do one round."""
        if self._service is None:
            self._service = FakeService(self.store, SETTINGS)
            self._service.fake = self.keeper
        return self._service.step()

    def stop(self) -> None:
        """Let the supervisor drain and release the store, in good order."""
        if self._service is not None:
            self._service.stop()
            self._service = None

    def die(self) -> None:
        """Let all processes of wfctl be gone but the keeper."""
        if self._service is not None:
            self._service.abandon()
        if self._store is not None:
            self._store.context.ledger.close()
        self._service = self._store = None

    def end(self, **how: Any) -> None:
        """Let every execution at work end."""
        for run, k in list(self.keeper.world.running):
            self.keeper.end(run, k, **how)

    def occurrences(self, schedule_id: str) -> list[OccurrenceView]:
        """Return the whole recorded history of a schedule, without its candidate."""
        rows: list[OccurrenceView] = []
        cursor = None
        while True:
            page = self.store.list_schedule_occurrences(schedule_id=schedule_id, limit=100, cursor=cursor)
            rows += [row for row in page.items if row.status != "pending"]
            cursor = page.next_cursor
            if cursor is None:
                return rows

    def runs(self) -> list[RunView]:
        """Return all runs."""
        rows: list[RunView] = []
        cursor = None
        while True:
            page = self.store.list_runs(limit=100, cursor=cursor)
            rows += page.items
            cursor = page.next_cursor
            if cursor is None:
                return rows
