"""A stage with an executor over a made-up Slurm, for one test."""

from __future__ import annotations

import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.fake_slurm import FakeSlurm
from tests.support.waiting import wait_for
from wfctl.core.model import SlurmNeeds
from wfctl.keeper.protocol import Ended, LaunchRequest, NotLaunched, Refused, Report, Started
from wfctl.settings import SlurmSettings
from wfctl.slurm.executor import SlurmExecutor

STORE = "5f3c0b9e-0000-4000-8000-1234567890ab"


class Stage:
    """Directories as a store and its cluster have them, and one executor after another."""

    def __init__(self, root: Path) -> None:
        self.runs, self.shared = root / "store/runs", root / "shared"
        self.runs.mkdir(parents=True)
        self.shared.mkdir()
        self.fake = FakeSlurm(root / "slurm")
        self.executors: list[SlurmExecutor] = []
        self._unread: list[Report] = []

    def executor(self, **settings: Any) -> SlurmExecutor:
        """Return a new executor, which takes over from the one before."""
        given = SlurmSettings(**{"shared": self.shared, "bin": self.fake.bin, "poll_interval_s": 0.1, **settings})
        made = SlurmExecutor(given, store_id=STORE, runs=self.runs, environ={}, threads=3)
        self.executors.append(made)
        self._unread = []
        return made

    def request(self, run: str = "run-000001", k: int = 1, *argv: str, needs: SlurmNeeds | None = None) -> LaunchRequest:
        """Return a launch, its run's directory made as a driver makes it."""
        own = self.runs / run
        for name in (str(k), "work", "files"):
            (own / name).mkdir(parents=True, exist_ok=True)
        (own / "input.json").write_text("{}\n")
        names = ("output", "checkpoint", "interrupt")
        environment = {f"WFCTL_{name.upper()}": str(own / str(k) / name) for name in names}
        return LaunchRequest(
            run=run, k=k, program="/bin/true", argv=argv or ["/bin/true"],
            environment={"PATH": "/usr/bin:/bin", "WFCTL_INPUT": str(own / "input.json"), "MINE": "1", **environment},
            cwd=str(own / "work"), umask=0o022, stdout=str(own / "stdout.log"), stderr=str(own / "stderr.log"),
            directory=str(own / str(k)), wanted=needs or SlurmNeeds(),
        )  # fmt: skip

    def until(self, executor: SlurmExecutor, count: int = 1) -> list[Report]:
        """Return the next `count` reports; small jobs are run meanwhile."""

        def enough() -> bool:
            self.fake.run_probes()
            select.select([executor], [], [], 0.02)
            self._unread += executor.poll()
            return len(self._unread) >= count

        wait_for(enough, f"{count} reports")
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def over(self, executor: SlurmExecutor) -> Ended | Refused | NotLaunched:
        """Return how the next execution ended."""
        while True:
            report = self.until(executor)[0]
            if not isinstance(report, Started):
                return report

    def submitted(self, name: str = "run-000001-1") -> dict[str, Any]:
        """Return a job once it was submitted; small jobs are run meanwhile."""

        def there() -> dict[str, Any] | None:
            self.fake.run_probes()
            return next((job for job in self.fake.jobs() if job["name"].endswith(name)), None)

        return wait_for(there, f"the job {name}") or {}

    def quiet(self, executor: SlurmExecutor, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, with nothing reported meanwhile."""
        found = wait_for(condition, what)
        assert executor.poll() == []
        return found

    def close(self) -> None:
        for executor in self.executors:
            executor.close()
