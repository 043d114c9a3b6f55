"""A stage with a real keeper process, and jobs that are small programs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import Ended, Keeper, LaunchRequest, Origin, Report, Started
from wfctl.keeper.records import ExitRecord, read_record, record_path
from wfctl.linux import process_stat

UNTIL_TOLD = 'while [ ! -e "$1" ]; do sleep 0.02; done; exit "$(cat "$1")"'


class RealStage:
    """A directory as a store is, its keeper, and what was launched; everything is gone at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pids: set[int] = set()
        self._keepers: set[int] = set()
        self._drivers: list[KeeperClient] = []

    def driver(self) -> KeeperClient:
        keeper = KeeperClient.start(self.root, Origin.SUPERVISOR)
        self._keepers.add(keeper.hello.pid)
        self._drivers.append(keeper)
        return keeper

    def hang_up(self, keeper: Keeper) -> None:
        keeper.close()

    def request(self, run: str, k: int) -> LaunchRequest:
        return self.job(["/bin/sh", "-c", UNTIL_TOLD, "job", str(self._told(run, k))], run=run, k=k)

    def missing(self, run: str, k: int) -> LaunchRequest:
        return self.job(["/nowhere/to/be/found"], run=run, k=k)

    def finish(self, run: str, k: int, exit_status: int) -> None:
        part = self._told(run, k).with_suffix(".part")
        part.write_text(str(exit_status))
        part.rename(self._told(run, k))

    def job(
        self,
        argv: Sequence[str],
        *,
        run: str = "run-000001",
        k: int = 1,
        environment: Mapping[str, str] | None = None,
        **changes: object,
    ) -> LaunchRequest:
        """Return a launch of that command, in a run directory of its own."""
        directory = self.root / "runs" / run
        (directory / str(k)).mkdir(parents=True, exist_ok=True)
        (directory / "work").mkdir(exist_ok=True)
        marks = {"PATH": "/usr/bin:/bin", "WFCTL_STORE": str(self.root), "WFCTL_RUN_ID": run, "WFCTL_EXECUTION": str(k)}
        fields: dict[str, object] = {
            "run": run,
            "k": k,
            "program": argv[0] if argv else "",
            "argv": list(argv),
            "environment": marks if environment is None else environment,
            "cwd": str(directory / "work"),
            "umask": 0o22,
            "stdout": str(directory / "stdout.log"),
            "stderr": str(directory / "stderr.log"),
            "directory": str(directory / str(k)),
        }
        return LaunchRequest(**{**fields, **changes})  # type: ignore[arg-type]

    def python(self, code: str, *arguments: str, **options: object) -> LaunchRequest:
        return self.job([sys.executable, "-I", "-S", "-c", code, *arguments], **options)  # type: ignore[arg-type]

    def start(self, keeper: Keeper, request: LaunchRequest) -> Started:
        """Launch it and return its start."""
        keeper.launch([request])
        started = self.until(keeper, 1)[0]
        assert isinstance(started, Started), started
        return started

    def run(self, keeper: Keeper, request: LaunchRequest) -> Ended:
        """Launch it and return its end."""
        keeper.launch([request])
        _, ended = self.until(keeper, 2)
        assert isinstance(ended, Ended), ended
        return ended

    def until(self, keeper: Keeper, count: int) -> list[Report]:
        from tests.keeper.contract import reports_until

        reports = reports_until(keeper, count)
        self._pids.update(report.pid for report in reports if isinstance(report, Started))
        return reports

    def output(self, run: str = "run-000001") -> str:
        return (self.root / "runs" / run / "stdout.log").read_text("utf-8", "surrogateescape")

    def record(self, run: str = "run-000001", k: int = 1) -> ExitRecord | None:
        return read_record(record_path(self.root / "runs" / run / str(k)))

    def clean_up(self) -> None:
        for keeper in self._drivers:
            keeper.close()
        last = KeeperClient.connect(self.root)
        if last is not None:
            self._pids.update(held.started.pid for held in last.list() if held.started)
            last.close()
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in self._keepers:
            if is_alive(pid):
                wait_for(lambda pid=pid: not is_alive(pid) or _ask(pid), "the keeper to end")  # type: ignore[misc]

    def _told(self, run: str, k: int) -> Path:
        return self.root / f"told.{run}.{k}"


def _ask(pid: int) -> bool:
    """Ask it to end, which it does as soon as nothing runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.02)
    return False


def is_alive(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is not None and stat.is_alive


@pytest.fixture
def real_stage(tmp_path: Path) -> Iterator[RealStage]:
    stage = RealStage(tmp_path)
    yield stage
    stage.clean_up()


@pytest.fixture
def keeper(real_stage: RealStage) -> KeeperClient:
    return real_stage.driver()
