"""A store with real processes around it, and an end at which none of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.processes import Supervisor, wait_for
from wfctl import init_store
from wfctl.core.instants import format_instant
from wfctl.errors import WfctlError
from wfctl.keeper.client import KeeperClient
from wfctl.linux import process_stat
from wfctl.operations.views import RunView

FINAL = ("completed", "failed", "exhausted", "cancelled")


def is_alive(pid: int) -> bool:
    """Tell whether that process is there and no zombie."""
    stat = process_stat(pid)
    return stat is not None and stat.is_alive


class Place:
    """A new store under a test's own folder. A context manager, which ends every process that it knows of."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.store = init_store(self.root)
        self._supervisors: list[Supervisor] = []

    # -- making ----------------------------------------------------------------------------------------------------------

    def job(self, script: str, deployment_id: str = "d", **fields: Any) -> None:
        """Make a deployment of a shell script; `$NOTES` is a folder for what it wants to tell the test."""
        fields.setdefault("environment", {"NOTES": str(self.notes)})
        self.store.create_deployment(deployment_id=deployment_id, command=["/bin/sh", "-c", script], **fields)

    def once(self, schedule_id: str = "s", deployment_id: str = "d", *, in_s: float = 0.2, **fields: Any) -> datetime:
        """Make a schedule that comes due once, so many seconds from now; return its instant."""
        at = datetime.now(UTC) + timedelta(seconds=in_s)
        trigger = {"kind": "oneshot", "at": format_instant(at)}
        self.store.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=trigger, **fields)
        return at

    def every_second(self, schedule_id: str = "s", deployment_id: str = "d", **fields: Any) -> None:
        """Make a schedule that comes due each second."""
        trigger = {"kind": "interval", "every": "1s"}
        self.store.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=trigger, **fields)

    def settings(self, text: str) -> None:
        """Write the settings of the store."""
        path = self.root / "wfctl.toml"
        path.write_text(text)
        path.chmod(0o600)

    def supervisor(self, *arguments: str, environment: dict[str, str] | None = None) -> Supervisor:
        """Return a supervisor process of this store that is ready."""
        supervisor = Supervisor(self.root, *arguments, environment=environment)
        self._supervisors.append(supervisor)
        return supervisor.wait_ready()

    # -- looking ---------------------------------------------------------------------------------------------------------

    def run(self, index: int = 0) -> RunView:
        """Return the run with that index, once it is there."""
        return wait_for(lambda: self.store.list_runs(limit=100).items[index:], what=f"run {index}")[0]  # type: ignore[no-any-return]

    def until(self, run_id: str, *statuses: str, timeout_s: float = 20.0) -> RunView:
        """Return a run once it has one of these statuses."""
        seen: list[RunView] = []

        def is_there() -> bool:
            seen[:] = [each for each in self.store.list_runs(limit=100).items if each.run_id == run_id]
            return bool(seen) and seen[0].status in statuses

        wait_for(is_there, timeout_s=timeout_s, what=f"{run_id} being {' or '.join(statuses)}, not {seen}")
        return seen[0]

    def note(self, name: str, timeout_s: float = 20.0) -> str:
        """Return what a job wrote to a note, once it did."""
        path = self.notes / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), timeout_s=timeout_s, what=f"the note {name}")
        return path.read_text().strip()

    def pid(self, name: str) -> int:
        """Return the pid that a job wrote to a note, once it did."""
        return int(self.note(name))

    def keeper(self, directory: Path | None = None) -> int:
        """Return the pid of the keeper that lives there."""
        client = KeeperClient.connect(directory or self.root)
        assert client is not None
        with client:
            return client.hello.pid

    def statuses(self, schedule_id: str = "s") -> list[str]:
        """Return the statuses of a schedule's occurrences."""
        return [row.status for row in self.store.list_schedule_occurrences(schedule_id=schedule_id, limit=100).items]

    # -- ending ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for supervisor in self._supervisors:
            if supervisor.process.poll() is None:
                supervisor.kill()
        for path in self.notes.glob("*pid"):
            with contextlib.suppress(ValueError, OSError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        with contextlib.suppress(WfctlError):
            for run in self.store.list_runs(status="admitted,running,interrupted", limit=100).items:
                with contextlib.suppress(WfctlError):
                    self.store.cancel_run(run_id=run.run_id, grace="0s")
        self.store.close()


def kill(pid: int) -> None:
    """SIGKILL a process and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), what=f"the end of {pid}")


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of a condition that must come within two seconds, the bound of the field reports."""
    return wait_for(condition, timeout_s=4.0, what=what)
