"""Testing a cluster: commands, controller, partition, and the shared folder as a node sees it (contract 3.0, 5.9)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wfctl.core.model import SlurmNeeds
from wfctl.settings import SlurmSettings
from wfctl.value import Value

if TYPE_CHECKING:
    from wfctl.slurm.commands import Slurm

NODE_PATIENCE_S = 20.0  #: how long a small job may wait in the queue before nothing can be said


class ClusterCheck(Value):
    """One thing that was looked at, and what to do where it is not so."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None


def check_cluster(slurm: SlurmSettings, store_id: str, home: Path, needs: SlurmNeeds) -> Iterator[ClusterCheck]:
    """Look at everything that a run with these needs stands on; the last is a small job. Nothing is raised.

    `home`: where the runs of the store lie. What cannot be looked at, because something before it is not there, is left out.
    """
    from wfctl.slurm.commands import Slurm, Unreachable

    commands = Slurm(slurm.bin, os.environ, conf=slurm.conf)
    where = "wfctl config show"
    try:
        yield ClusterCheck(name="slurm", ok=True, detail=f"{commands.version()}, in {slurm.bin}")
    except Unreachable as error:
        yield ClusterCheck(name="slurm", ok=False, detail=str(error), fix=where)
        return
    try:
        partitions = {each.name: each for each in commands.partitions()}
    except Unreachable as error:
        yield ClusterCheck(name="controller", ok=False, detail=f"does not answer: {error}", fix="scontrol ping")
        return
    listed = ", ".join(sorted(partitions)) or "none"
    yield ClusterCheck(name="controller", ok=True, detail=f"answers; partitions: {listed}")
    name = needs.partition or next((each.name for each in partitions.values() if each.is_default), None)
    partition = None if name is None else partitions.get(name)
    if partition is None:
        what = "there is no default partition; name one" if name is None else f"{name} is not there: it can be {listed}"
        yield ClusterCheck(name="partition", ok=False, detail=what, fix="sinfo")
        return
    state = "up" if partition.is_up else "not up: jobs wait in it"
    nodes = f"{partition.nodes} node{'' if partition.nodes == 1 else 's'}"
    default = "" if needs.partition else ", the default"
    yield ClusterCheck(name="partition", ok=partition.is_up, detail=f"{name}{default}, {state}, {nodes}", fix="sinfo")
    yield _check_folder(slurm, store_id, home, needs, commands)


def _check_folder(slurm: SlurmSettings, store_id: str, home: Path, needs: SlurmNeeds, commands: Slurm) -> ClusterCheck:
    from wfctl.slurm.commands import Unreachable
    from wfctl.slurm.executor import put_script
    from wfctl.slurm.folder import Folder, FolderProblem
    from wfctl.slurm.probing import Probes

    folder, name = Folder(slurm.shared, store_id, home), "shared folder"
    try:
        folder.prepare()
        probes = Probes(commands, folder, store_id, lambda: put_script(folder, slurm.python), slurm.python)
        verdict = probes.now(needs, NODE_PATIENCE_S)
    except FolderProblem as error:
        return ClusterCheck(name=name, ok=False, detail=str(error), fix=f"ls -ld {shlex.quote(str(slurm.shared))}")
    except OSError as error:
        said = f"{error.filename or slurm.shared}: {error.strerror}"
        return ClusterCheck(name=name, ok=False, detail=said, fix=f"ls -ld {shlex.quote(str(slurm.shared))}")
    except Unreachable as error:
        return ClusterCheck(name=name, ok=False, detail=f"no node can be asked: {error}", fix="scontrol ping")
    fix = "squeue --me" if verdict.is_seen is None else f"srun ls -ld {shlex.quote(str(slurm.shared))}"
    return ClusterCheck(name=name, ok=verdict.is_seen is True, detail=f"{slurm.shared}: {verdict.words}", fix=fix)
