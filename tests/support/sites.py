"""Places where runs are executed, for stories that must go alike on each: this machine, and a cluster (contract 3.0)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.processes import Supervisor, clean_environment, wfctl
from tests.support.slurm_cluster import SlurmCluster
from wfctl import init_store, open_store
from wfctl.operations.store import Store
from wfctl.operations.views import RunView
from wfctl.store.layout import Layout


class Site:
    """A store whose runs are executed in one place, and a folder that they see."""

    def __init__(self, root: Path, cluster: SlurmCluster | None, *, poll_interval_s: float = 0.2, is_new: bool = True) -> None:
        """`is_new`: False for one that another process made, to be looked at."""
        self.root = root / "store"
        self.side = root / "side"
        self.shared = root / "shared"
        self.cluster = cluster
        self.executor = "local" if cluster is None else "slurm"
        self.environment = clean_environment() | ({} if cluster is None else cluster.environment)
        if not is_new:
            return
        for path in (self.side, self.shared):
            path.mkdir(parents=True)
        init_store(self.root).close()
        settings = '[runs]\nmin_free = "0"\n'
        if cluster is not None:
            settings += f'[executors.slurm]\nshared = "{self.shared}"\npoll_interval_s = {poll_interval_s}\n'
            settings += f'conf = "{cluster.conf}"\n'
        Layout(self.root).settings.write_text(settings)

    def open(self) -> Store:
        """Open the store as a program does."""
        return open_store(self.root)

    def deployment(self, api: Store, name: str, script: str, *, slurm: dict[str, Any] | None = None, **fields: Any) -> None:
        """Make a deployment of a shell script; `$SIDE` is the folder that runs see."""
        more = {"slurm": slurm} if slurm is not None and self.cluster is not None else {}
        steps = fields.pop("steps", None)
        what = {"steps": steps} if steps else {"command": ["/bin/sh", "-c", script]}
        environment = {"SIDE": str(self.side)}
        api.create_deployment(deployment_id=name, executor=self.executor, environment=environment, **what, **more, **fields)

    def supervisor(self, *arguments: str) -> Supervisor:
        """Start the supervisor in a process of its own."""
        return Supervisor(self.root, *arguments, environment=self.environment).wait_ready()

    def command(self, *arguments: str, check: bool = True) -> str:
        """Run a command of wfctl on the store."""
        return wfctl(self.root, *arguments, check=check).stdout

    def run(self, run_id: str) -> RunView:
        """Return how a run is."""
        with self.open() as api:
            return api.inspect_run(run_id=run_id)

    def runs(self, **filters: Any) -> list[RunView]:
        """Return runs, oldest first; all of them, page by page."""
        found: list[RunView] = []
        with self.open() as api:
            page = api.list_runs(limit=100, **filters)
            found += page.items
            while page.next_cursor is not None:
                page = api.list_runs(limit=100, cursor=page.next_cursor, **filters)
                found += page.items
        return found

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that runs wrote."""
        path = self.side / name
        return path.read_text().splitlines() if path.exists() else []
