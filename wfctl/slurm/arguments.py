"""What `sbatch` is given: what the deployment asks for, and what wfctl's promises rest on (contract 6.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from wfctl.core.model import SlurmNeeds
from wfctl.core.slurm_needs import minutes_of
from wfctl.slurm.folder import SAID

_NAME = re.compile(r"(?P<run>run-\d{6,18})-(?P<k>[1-9]\d{0,8})", re.ASCII)


def prefix_of(store_id: str) -> str:
    """Return what the names of all jobs of a store begin with."""
    return f"wfctl-{store_id}-"


def name_of(store_id: str, run: str, k: int) -> str:
    """Return the name of an execution's job: the same whenever it is asked for, and of no other."""
    return f"{prefix_of(store_id)}{run}-{k}"


def execution_of(name: str, prefix: str) -> tuple[str, int] | None:
    """Given the name of a job of this store, return its execution; None for one that is not of a run."""
    match = _NAME.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return None if match is None else (match["run"], int(match["k"]))


def of_job(needs: SlurmNeeds, name: str, place: Path, script: Path, run: str, k: int) -> list[str]:
    """Return the arguments for an execution's job; `place` is its directory on the shared folder.

    The promises stand last, so that nothing said before them takes their place.
    """
    more = {
        "cpus-per-task": needs.cpus,
        "mem": needs.memory,
        "time": None if needs.time_limit is None else minutes_of(needs.time_limit),
        "nodes": needs.nodes,
    }
    asked = [*needs.options, *target_of(needs), *(f"--{key}={value}" for key, value in more.items() if value is not None)]
    return [*asked, *_promises(name, place.parent, place / SAID), str(script), str(place), run, str(k)]


def of_probe(needs: SlurmNeeds, name: str, path: Path, script: Path) -> list[str]:
    """Return the arguments for the small job that says whether a node sees a file of the shared folder."""
    asked = [*needs.options, *target_of(needs), "--time=1"]
    return [*asked, *_promises(name, path.parent, path.with_name(f"{path.name}.log")), str(script), "--probe", str(path)]


def target_of(needs: SlurmNeeds) -> list[str]:
    """Return the options that say where a job goes."""
    pairs = {"partition": needs.partition, "account": needs.account}
    return [f"--{key}={value}" for key, value in pairs.items() if value is not None]


def _promises(name: str, directory: Path, said: Path) -> Sequence[str]:
    return (
        f"--job-name={name}",
        "--no-requeue",
        "--export=NONE",
        "--input=/dev/null",
        f"--output={said}",
        "--open-mode=append",
        f"--chdir={directory}",
    )
