"""A store in whose history everything happened that a schedule can go through: for pictures, and for whoever looks at them.

`python -m tests.support.rich_history DIR` makes it in a new directory, by a clock that ends at the present.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.story import SETTINGS, FakeClock, FakeService, World
from wfctl.operations.store import init_store

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LENGTH = 14 * HOUR  #: of the history
SLOTS = 8
_AWAY = (200, 340)  #: minutes of it in which no supervisor is there


class History:
    """Lives a store through fourteen hours, minute by minute; `now` is where they end."""

    def __init__(self, root: Path, now: datetime) -> None:
        init_store(root).close()
        self.now = now
        self.world = World(root, clock=FakeClock(now - LENGTH))
        self.ends: dict[tuple[str, int], tuple[datetime, dict[str, Any]]] = {}
        self.count: dict[str, int] = {}

    # -- making ----------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the deployments and the schedules."""
        store = self.world.store
        for name in ("report", "etl", "dump", "billing", "mail", "probe", "keys", "broken"):
            store.create_deployment(deployment_id=name, command=["/bin/true"])
        store.create_deployment(deployment_id="flaky", command=["/bin/true"], retries=3, retry_delay="1m")

        def cron(name: str, expression: str, deployment: str, **fields: Any) -> None:
            trigger = {"kind": "cron", "expression": expression}
            store.create_schedule(schedule_id=name, deployment_id=deployment, trigger=trigger, **fields)

        cron("hourly-report", "0 * * * *", "report", overlap="queue", max_run="80m")
        cron("etl-orders", "*/20 * * * *", "etl")
        cron("import-mail", "5,25,45 * * * *", "mail", overlap="parallel", max_active_runs=3)
        cron("nightly-dump", "30 * * * *", "dump", misfire="latest")
        cron("billing.close", "15 */3 * * *", "billing")
        cron("heartbeat", "* * * * *", "probe")
        cron("checks-config", "50 * * * *", "broken")
        cron("flaky-sync", "10 */3 * * *", "flaky", max_steps=2)
        store.create_schedule(
            schedule_id="rotate-keys", deployment_id="keys", trigger={"kind": "interval", "every": "4h"}, misfire="latest"
        )
        cron("approve-release", "30 9 * * *", "billing")
        cron("weekly-vacuum", "15 1 * * 0", "dump")
        cron("old-export", "40 * * * *", "dump")
        cron("vacuum", "5 3 * * *", "dump")

    def live(self) -> None:
        """Let everything happen."""
        world = self.world
        self.make()
        acts = self._acts()
        while world.clock.now() < self.now:
            world.clock.advance(min(MINUTE, self.now - world.clock.now()))
            minute = (LENGTH - (self.now - world.clock.now())) // MINUTE
            for at in [at for at in acts if at <= minute]:
                acts.pop(at)()
            self.end_what_is_over()
            if _AWAY[0] <= minute < _AWAY[1]:
                world.stop()
                continue
            self.world.keeper.world.stalls = world.clock.now() == self.now  # what is admitted now is not reported to run
            self.step()
            self.begin()
        (world.root / "schedules" / "vacuum.toml").write_text("deployment = 5\n")

    def step(self) -> None:
        """Let the supervisor do a round."""
        if self.world._service is None:
            settings = {**SETTINGS, "supervisor": {"drain_grace_s": 0.0, "max_concurrent_runs": SLOTS}}
            self.world._service = FakeService(self.world.store, settings)
            self.world._service.fake = self.world.keeper
        self.world.step()

    def _acts(self) -> dict[int, Callable[[], object]]:
        store = self.world.store
        return {
            430: lambda: store.pause_schedule(schedule_id="etl-orders", reason="migration <b>of</b> the orders"),
            470: lambda: store.start_run(deployment_id="report"),
            520: lambda: store.pause_schedule(schedule_id="old-export", reason="not needed"),
            550: lambda: store.resume_schedule(schedule_id="etl-orders"),
            560: lambda: self._deploy(["/nowhere/at/all"], 1),
            640: lambda: self._deploy(["/bin/true"], 2),
            660: lambda: self._cancel("billing.close"),
            690: lambda: store.delete_schedule(schedule_id="old-export"),
        }

    def _deploy(self, command: list[str], revision: int) -> None:
        self.world.store.update_deployment(deployment_id="broken", expected_revision=revision, command=command)

    def _cancel(self, schedule_id: str) -> None:
        for run in self.world.store.list_runs(schedule_id=schedule_id, status="running,interrupted", limit=100):
            self.world.store.cancel_run(run_id=run.run_id, reason="not now")

    # -- running ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Say of each run that began how it goes."""
        for run, k in self.world.keeper.world.running:
            if (run, k) in self.ends:
                continue
            view = self.world.store.inspect_run(run_id=run)
            name = view.schedule_id or "manual"
            number = self.count[name] = self.count.get(name, 0) + 1
            lasts, how = _COURSES.get(name, _QUICK)(number)
            self.ends[(run, k)] = (self.world.clock.now() + lasts, how)

    def end_what_is_over(self) -> None:
        for run, k in list(self.world.keeper.world.running):
            over, how = self.ends.get((run, k), (self.now + HOUR, {}))
            if over > self.world.clock.now():
                continue
            how = dict(how)
            asks = how.pop("asks", None)
            if asks:
                request = self.world.keeper.world.requests[(run, k)]
                Path(request.directory, "interrupt").write_text(json.dumps({"message": asks}))
            self.world.keeper.end(run, k, **how)


_OK: dict[str, Any] = {"exit_status": 0}
_Course = Callable[[int], tuple[timedelta, dict[str, Any]]]


def _QUICK(number: int) -> tuple[timedelta, dict[str, Any]]:  # noqa: N802 - one course among the others
    return timedelta(seconds=40), _OK


_COURSES: dict[str, _Course] = {
    "hourly-report": lambda n: (75 * MINUTE, _OK) if n in (6, 11) else (8 * MINUTE, {"exit_status": 2} if n == 3 else _OK),
    "etl-orders": lambda n: ((33 if n % 3 == 0 else 11) * MINUTE, {"exit_status": 1} if n % 7 == 4 else _OK),
    "import-mail": lambda n: ((55 if n % 2 else 18) * MINUTE, {"signal": 9} if n == 8 else _OK),
    "nightly-dump": lambda n: (22 * MINUTE, _OK),
    "billing.close": lambda n: (12 * MINUTE, {"exit_status": 75, "asks": "approve the totals?"} if n % 2 == 0 else _OK),
    "approve-release": lambda n: (10 * MINUTE, {"exit_status": 75, "asks": "release 4.2?"}),
    "rotate-keys": lambda n: (105 * MINUTE, _OK),
    "flaky-sync": lambda n: (3 * MINUTE, {"exit_status": 1} if n in (2, 3) else _OK),
}


def main(root: str, now: str | None = None) -> None:
    """Make the store."""
    at = datetime.now(UTC).replace(microsecond=0) if now is None else datetime.fromisoformat(now)
    history = History(Path(root), at)
    history.live()
    history.world.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
