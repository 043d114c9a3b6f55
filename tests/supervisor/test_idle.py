"""An idle supervisor sleeps: no timed wake-up more often than once a minute, systemd's watchdog aside (contract 5.14)."""

from __future__ import annotations

import json
import selectors
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.schedules import add
from tests.support.story import SETTINGS, START, FakeService, World
from wfctl.clock import SystemClock
from wfctl.operations.store import init_store
from wfctl.supervisor import notify, run, service, waiting
from wfctl.supervisor.notify import Notifier

SPAN = timedelta(minutes=10)
YEARLY = {"kind": "cron", "expression": "0 3 1 1 *"}
START_S = 5.0  #: what a start leaves to be done takes a moment
SOON = 1000  #: waits that end at once, after which the loop is held to be spinning


class IdleClock(SystemClock):
    """Taken for the machine's clock; it moves while the loop sleeps, and when told."""

    def __init__(self) -> None:
        self.moment = 1000.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.moment - 1000.0)

    def monotonic(self) -> float:
        return self.moment

    def advance(self, span: timedelta) -> None:
        """Let time pass."""
        self.moment += span.total_seconds()

    def set(self, at: datetime) -> None:
        """Not of this clock."""
        raise NotImplementedError


class Sleeper:
    """What the loop sleeps with: it hears what really happens, else lets the fake time pass, and remembers when it woke."""

    def __init__(self, clock: IdleClock, until: datetime, stop: Callable[[], None]) -> None:
        self.woken: list[float] = []  #: by nothing but time, in seconds since the first sleep
        self._clock = clock
        self._until = until
        self._stop = stop
        self._begun: float | None = None
        self._soon = 0

    def select(self, real: selectors.BaseSelector, timer: _Timer, limit: float) -> list[Any]:
        """Sleep as long as is asked for, at most until the end."""
        ready = real.select(0)
        if ready:
            return ready
        now = self._clock.now()
        self._begun = self._clock.moment if self._begun is None else self._begun
        span = limit if timer.at is None else min(limit, max(0.0, (timer.at - now).total_seconds()))
        self._soon = self._soon + 1 if span < 0.001 else 0
        assert self._soon < SOON, "the loop spins"
        left = (self._until - now).total_seconds()
        self._clock.moment += min(span, left) + 1e-6
        if span >= left:
            self._stop()
        else:
            self.woken.append(self._clock.moment - self._begun)
        return []


class _Timer:
    """Stands for the kernel's timer of the wall clock."""

    at: datetime | None = None

    def set(self, at: datetime | None) -> None:
        self.at = at

    def read(self) -> str:
        raise AssertionError("it is never ready")

    def close(self) -> None:
        """Nothing to close."""


class _Selector:
    def __init__(self, real: selectors.BaseSelector, timer: _Timer, sleeper: Sleeper) -> None:
        self._real, self._timer, self._sleeper = real, timer, sleeper

    def select(self, limit: float) -> list[Any]:
        return self._sleeper.select(self._real, self._timer, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Idle:
    """A world whose supervisor will sleep through ten minutes in no time."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        init_store(root).close()
        self.clock = IdleClock()
        self.world = World(root, clock=self.clock)  # type: ignore[arg-type]
        self.world.keeper.world.script = lambda request: 0 if request.run.startswith("notice-") else None
        self._monkeypatch = monkeypatch

    def woken(self, settings: dict[str, Any] | None = None, **environ: str) -> list[float]:
        """Return when the loop woke within ten minutes by nothing but time. It tells a systemd how it is."""
        self.world.stop()
        supervisor = FakeService(self.world.store, {**SETTINGS, **(settings or {})})
        supervisor.fake = self.world.keeper
        sleeper = Sleeper(self.clock, self.clock.now() + SPAN, supervisor.ask_to_stop)
        self._monkeypatch.setattr(service, "Waiter", _waiter_with(sleeper))
        self._monkeypatch.setattr(notify.time, "monotonic", self.clock.monotonic)
        supervisor.open()
        try:
            run._tell(supervisor, run._Signals(supervisor), Notifier({"NOTIFY_SOCKET": "@nobody-listens-here", **environ}))
            supervisor.run()
        finally:
            supervisor.close()
        return sleeper.woken


def _waiter_with(sleeper: Sleeper) -> type[waiting.Waiter]:
    class SleepingWaiter(waiting.Waiter):
        def __init__(self, clock: Any, watched: Any) -> None:
            super().__init__(clock, watched)
            if self._timer is not None:
                self.selector.unregister(self._timer.fileno())
                self._timer.close()
            self._timer = _Timer()  # type: ignore[assignment]
            self._watch = self._watch or _Timer()  # type: ignore[assignment]
            assert self.is_told
            self.selector = _Selector(self.selector, self._timer, sleeper)  # type: ignore[assignment, arg-type]

    return SleepingWaiter


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    """A store with ten schedules that come due in ten months."""
    made = Idle(tmp_path / "store", monkeypatch)
    made.world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    for number in range(10):
        add(made.world.store, f"far-{number}", YEARLY)
    yield made
    made.world.die()


def _nothing(idle: Idle) -> None:
    """As it was made."""


def _with_history(idle: Idle) -> None:
    add(idle.world.store, "often")
    for _ in range(20):
        idle.clock.advance(timedelta(minutes=1))
        idle.world.step()
        idle.world.end()
        idle.world.step()
    idle.world.store.delete_schedule(schedule_id="often")


def _with_a_question(idle: Idle) -> None:
    idle.world.step()
    run_id = idle.world.store.start_run(deployment_id="d").run_id
    idle.world.step()
    (running,) = idle.world.keeper.running
    request = idle.world.keeper.world.requests[running]
    Path(request.environment["WFCTL_INTERRUPT"]).write_text(json.dumps({"message": "go on?"}))
    idle.world.end(exit_status=75)
    idle.world.step()
    assert idle.world.store.inspect_run(run_id=run_id).status == "interrupted"


def _blocked_and_paused(idle: Idle) -> None:
    (idle.world.root / "schedules" / "far-1.toml").write_text("half of a")
    idle.world.store.pause_schedule(schedule_id="far-2")
    assert idle.world.store.get_schedule(schedule_id="far-1").state == "blocked"


def _with_a_foreign_file(idle: Idle) -> None:
    (idle.world.root / "schedules" / "notes.txt").write_text("mine")


STORIES: list[tuple[Callable[[Idle], None], dict[str, Any]]] = [
    (_nothing, {}),
    (_with_history, {"history": {"keep_days": 1, "keep_runs": 5}}),
    (_with_a_question, {}),
    (_blocked_and_paused, {"notify": {"command": ["/bin/true"]}}),
    (_with_a_foreign_file, {}),
]


@pytest.mark.parametrize(("story", "settings"), STORIES, ids=[story.__name__.strip("_") for story, _ in STORIES])
def test_5_14_nothing_wakes_an_idle_loop_more_often_than_once_a_minute(
    idle: Idle, story: Callable[[Idle], None], settings: dict[str, Any]
) -> None:
    story(idle)
    woken = idle.woken(settings)
    late = [at for at in woken if at > START_S]
    assert all(later - earlier >= 59.9 for earlier, later in pairwise(late)), woken
    assert len(woken) < 10, woken


def test_5_14_an_instant_on_the_way_wakes_it_for_itself_alone(idle: Idle) -> None:
    idle.world.keeper.world.script = lambda request: 0
    trigger = {"kind": "oneshot", "at": (idle.clock.now() + SPAN / 2).isoformat()}
    add(idle.world.store, "soon", trigger)
    woken = [at for at in idle.woken() if at > START_S]
    assert len([at for at in woken if abs(at - SPAN.total_seconds() / 2) > 5]) == 0 and len(woken) < 10, woken
    assert [row.status for row in idle.world.occurrences("soon")] == ["completed"]


def test_7_8_what_nobody_could_be_told_wakes_it_for_its_retries_alone(idle: Idle) -> None:
    _blocked_and_paused(idle)
    idle.world.keeper.world.script = lambda request: 1
    retried = [round(at) for at in idle.woken({"notify": {"command": ["/bin/true"]}}) if at > START_S]
    assert retried == [10, 11, 70, 71], "each try, and a second later what systemd is told of it"


def test_5_14_systemds_watchdog_is_the_exception(idle: Idle) -> None:
    beats = idle.woken(WATCHDOG_USEC="60000000")
    assert len(beats) > 10 and all(later - earlier <= 31 for earlier, later in pairwise(beats)), beats
