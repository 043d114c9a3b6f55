"""A Slurm without daemons: the commands are one small script over a file, and the test is controller and nodes.

`FakeSlurm.run` does what a node does, with the real job script, so that only Slurm itself is made up.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct")
_SCRIPT = Path(__file__).with_name("fake_slurm_commands.py")


class FakeSlurm:
    """What the controller knows, and the strings a test pulls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        for name in COMMANDS:
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {_SCRIPT} {root} {name} "$@"\n')
            script.chmod(0o755)
        self._write({"next": 1, "jobs": [], "modes": {}, "asked": []})

    # -- what a test does ------------------------------------------------------------------------------------------------

    def mode(self, **modes: str | None) -> None:
        """Have a command behave so: `down` (nobody answers), `late` (it is done, but nobody answers), or words: refused."""
        with self.state() as state:
            state["modes"] |= modes

    def down(self) -> None:
        """Let the controller be away."""
        self.mode(sbatch="down", squeue="down", scancel="down", sinfo="down")

    def up(self) -> None:
        """Let it be back."""
        self.mode(sbatch=None, squeue=None, scancel=None, sinfo=None)

    def jobs(self, *, probes: bool = False) -> list[dict[str, Any]]:
        """Return every job ever submitted, oldest first."""
        with self.state() as state:
            return [job for job in state["jobs"] if probes or "-probe-" not in job["name"]]

    def job(self, name: str) -> dict[str, Any]:
        """Return the newest job whose name ends so."""
        return next(job for job in reversed(self.jobs(probes=True)) if job["name"].endswith(name))

    def asked(self, command: str) -> list[list[str]]:
        """Return the arguments of each call of a command."""
        with self.state() as state:
            return [words[1:] for words in state["asked"] if words[0] == command]

    def change(self, name: str, **fields: Any) -> None:
        """Change what the controller says of a job."""
        with self.state() as state:
            for job in state["jobs"]:
                if job["name"].endswith(name):
                    job.update(fields)

    def forget(self, name: str) -> None:
        """Let the controller know nothing of a job any more."""
        with self.state() as state:
            state["jobs"] = [job for job in state["jobs"] if not job["name"].endswith(name)]

    def start(self, name: str, node: str = "n1") -> subprocess.Popen[bytes]:
        """Let a job begin on a node; return its script's process, the leader of its group."""
        job = self.job(name)
        self.change(name, state="RUNNING", nodes=node, started=int(time.time()))
        environment = {"SLURM_JOB_ID": job["job"], "SLURMD_NODENAME": node, "SLURM_EXPORT_ENV": "NONE", "PATH": "/usr/bin:/bin"}
        with Path(job["output"]).open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-IS", *job["command"]],
                env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self.change(name, pid=process.pid)
        return process

    def run(self, name: str, node: str = "n1") -> int:
        """Let a job begin and end; return the exit status of its script."""
        process = self.start(name, node)
        code = process.wait(30)
        self.end(name, "COMPLETED" if code == 0 else "FAILED", code << 8)
        return code

    def end(self, name: str, state: str, code: int = 0, reason: str = "None") -> None:
        """Let the controller take a job for ended."""
        self.change(name, state=state, code=code, reason=reason)

    def run_probes(self) -> None:
        """Let every small job that waits do its look."""
        for job in self.jobs(probes=True):
            if "-probe-" in job["name"] and job["state"] == "PENDING":
                self.run(job["name"])

    # -- the file --------------------------------------------------------------------------------------------------------

    @contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """Give what is known, to be looked at or changed."""
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = json.loads((self.root / "state.json").read_text())
            yield found
            self._write(found)

    def _write(self, state: dict[str, Any]) -> None:
        part = self.root / ".state.part"
        part.write_text(json.dumps(state))
        part.rename(self.root / "state.json")
