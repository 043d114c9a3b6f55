"""Driving the real supervisor, keeper and jobs by a clock that the test moves (contract 9.4).

`Drive` steps a supervisor of this process; `Driven` one of its own process, which can be killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.processes import clean_environment, wait_for
from tests.support.story import FakeClock
from wfctl import SupervisorService, init_store, open_store
from wfctl.core.instants import parse_instant
from wfctl.operations.store import Store
from wfctl.operations.views import OccurrenceView

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SETTINGS = {"supervisor": {"drain_grace_s": 0.0}, "runs": {"min_free": "0"}}


def moment(text: str) -> datetime:
    """`2027-10-30T12:00` in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Drive:
    """A new store and one supervisor after another on it, at a clock of its own. A context manager."""

    def __init__(self, root: Path, at: datetime, settings: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self.clock = FakeClock(at)
        init_store(root).close()
        self.settings = {table: {**SETTINGS.get(table, {}), **(settings or {}).get(table, {})} for table in SETTINGS}
        self.store: Store = open_store(root, clock=self.clock)
        self.service = SupervisorService(self.store, self.settings)

    # -- making ----------------------------------------------------------------------------------------------------------

    def deployment(self, command: list[str], deployment_id: str = "d", **fields: Any) -> None:
        """Make a deployment."""
        self.store.create_deployment(deployment_id=deployment_id, command=command, **fields)

    def cron(self, schedule_id: str, expression: str = "* * * * *", timezone: str = "UTC", **fields: Any) -> None:
        """Make a schedule, by default each minute, of the deployment `d`."""
        trigger = {"kind": "cron", "expression": expression, "timezone": timezone}
        self.store.create_schedule(schedule_id=schedule_id, trigger=trigger, **{"deployment_id": "d", **fields})

    # -- time ------------------------------------------------------------------------------------------------------------

    def step(self) -> datetime | None:
        """Do one round; return the next wake-up."""
        return self.service.step()

    def jump(self, to: datetime) -> None:
        """Set the wall clock and do one round."""
        self.clock.set(to)
        self.step()

    def to(self, until: datetime, every: timedelta = MINUTE, *, settle: bool = True) -> None:
        """Let time pass, a step at each full `every`; with `settle` what runs ends before the next one."""
        while self.clock.now() < until:
            now = self.clock.now()
            into = (now - datetime.min.replace(tzinfo=UTC)) % every
            self.clock.advance(min(now - into + every, until) - now)
            self.step()
            if settle:
                self.settle()

    def settle(self) -> None:
        """Step until no run is at work; the clock stands still."""
        wait_for(lambda: not self.working() or (self.step() and False), what="the end of all runs")

    def restart(self) -> None:
        """Stop the supervisor cleanly and let the next one do a round."""
        self.service.stop()
        self.service = SupervisorService(self.store, self.settings)
        self.step()

    # -- looking ---------------------------------------------------------------------------------------------------------

    def working(self) -> list[str]:
        """Return the runs that are admitted or running."""
        return [run.run_id for run in self.store.list_runs(status="admitted,running", limit=100).items]

    def rows(self, schedule_id: str) -> list[OccurrenceView]:
        """Return the history of a schedule without its candidate."""
        return rows_of(self.store, schedule_id)

    def admitted(self, schedule_id: str) -> list[datetime]:
        """Return the instants that became runs, in the order of recording."""
        return [row.instant for row in self.rows(schedule_id) if row.run_id is not None]

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for run_id in self.working() if error is not None else []:
            self.store.cancel_run(run_id=run_id, grace="0s")
        self.service.stop()
        self.store.close()


class Driven:
    """A supervisor in a process of its own that does a round when told to, at the time that it is told."""

    def __init__(self, root: Path, clock: FakeClock, **supervisor: Any) -> None:
        self.root = root
        self.clock = clock
        self._settings = {**SETTINGS, "supervisor": {**SETTINGS["supervisor"], **supervisor}}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The pid of the supervisor, which is started where none runs."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.drive", str(self.root), json.dumps(self._settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=clean_environment(),
            )
        return self._process.pid

    def step(self) -> datetime | None:
        """Have it do one round; return the next wake-up."""
        assert self.pid and self._process and self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{json.dumps([self.clock.now().isoformat(), self.clock.monotonic()])}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the supervisor ended: {self._process.wait(10)}"
        wake = json.loads(answer)
        return None if wake is None else parse_instant(wake)

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def rows_of(store: Store, schedule_id: str) -> list[OccurrenceView]:
    """Return the whole history of a schedule without its candidate."""
    from tests.support.ledger_check import all_occurrences

    return [row for row in all_occurrences(store, schedule_id) if row.status != "pending"]


class _ToldClock:
    def __init__(self) -> None:
        self.at = datetime.now(UTC)
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds


def _obey(root: str, settings: str) -> None:
    clock = _ToldClock()
    store = open_store(root, clock=clock)
    service = SupervisorService(store, json.loads(settings))
    for line in sys.stdin:
        at, clock.seconds = json.loads(line)
        clock.at = datetime.fromisoformat(at)
        wake = service.step()
        print(json.dumps(None if wake is None else wake.isoformat()), flush=True)


if __name__ == "__main__":
    _obey(*sys.argv[1:])
