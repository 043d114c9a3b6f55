"""From a marked execution to the request a keeper carries out: directory, environment, program (contract 3.8, 3.9, 6.4)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wfctl.core.model import DeploymentDefinition
from wfctl.errors import Blocked, WfctlError
from wfctl.keeper.protocol import LaunchRequest
from wfctl.operations import preflight
from wfctl.operations.context import Context
from wfctl.operations.describe import bound_input
from wfctl.operations.spares import Spares
from wfctl.store import rundir
from wfctl.store.ledger import definitions
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import RunRow


@dataclass(slots=True)
class Unlaunchable(Exception):
    """The system refuses what must be there before the launch: `what` it is, and the error number."""

    errno: int
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all executions of one step have in common, as long as nothing on the machine changes."""

    deployment: DeploymentDefinition
    environment: dict[str, str]
    program: str | None  #: None: to be looked for in each run's own directory


class Requests:
    """Makes launch requests, and the directories they need; what the runs of one batch share is worked out once.

    For one batch: programs and environment files may be others by the next. `base` is `preflight.base_environment()`.
    """

    def __init__(self, context: Context, base: Mapping[str, str], store_id: str, spares: Spares | None = None) -> None:
        self._context = context
        self._base = base
        self._store_id = store_id
        self._spares = spares
        self._root = str(context.layout.root)
        self._shared: dict[tuple[int, int, int], _Shared] = {}
        self._names: dict[int, str] = {}

    def of(self, run: RunRow, k: int, step: int) -> LaunchRequest:
        """Given a marked execution, make its directory and return its launch request.

        It may be repeated as long as nothing was launched. Raise Unlaunchable, and Blocked or UnreadableRow where what it was
        admitted with cannot be read: nothing is made up for it (7.4).
        """
        directory = f"{self._root}/runs/{run.id}"
        is_first = k == 1 and run.started_at is None and run.resume is None
        deployment, _ = self._context.deployment(run.deployment, run.deployment_revision)
        spare = self._filled(run) if is_first and _can_be_spare(deployment) else None
        if spare is None:
            self._make_directories(run, k, deployment)
        try:
            return self._request(run, k, step, directory, spare)
        except Unlaunchable:
            self.take_back(spare)
            raise

    def ahead(self, run: RunRow) -> LaunchRequest | None:
        """Make all ready for the first execution of a run that may be admitted in a moment; None where that cannot be."""
        deployment, _ = self._context.deployment(run.deployment, run.deployment_revision)
        spare = self._filled(run) if _can_be_spare(deployment) else None
        if spare is None:
            return None
        try:
            request = self._request(run, 1, 0, f"{self._root}/runs/{run.id}", spare)
        except Unlaunchable:
            self.take_back(spare)
            return None
        request.line  # noqa: B018 - worked out now
        return request

    def take_back(self, spare: str | None) -> None:
        """Take back a spare that is not needed after all."""
        if self._spares is not None and spare is not None:
            self._spares.take_back(spare)

    def _filled(self, run: RunRow) -> str | None:
        return None if self._spares is None else self._spares.fill(*self._contents(run))

    def _contents(self, run: RunRow) -> tuple[bytes, bytes]:
        return rundir.identity_bytes(self._identity(run)), rundir.input_bytes(bound_input(self._context, run))

    def _make_directories(self, run: RunRow, k: int, deployment: DeploymentDefinition) -> None:
        try:
            if run.started_at is None:  # also where an earlier mark was proved never to have been launched
                bound = bound_input(self._context, run)
                rundir.prepare_run(self._context.layout, self._identity(run), bound, deployment.files)
            rundir.prepare_execution(self._context.layout.run(run.id), k, resume=_resume_of(run))
        except Blocked:
            raise
        except WfctlError as error:
            raise Unlaunchable(error.data.get("errno") or errno.EIO, "directory", error.message) from error

    def _request(self, run: RunRow, k: int, step: int, directory: str, spare: str | None) -> LaunchRequest:
        shared = self._shared_by(run, step)
        deployment = shared.deployment
        execution = preflight.Execution(
            run_id=run.id,
            k=k,
            attempt=run.attempt,
            step=deployment.steps[step].name,
            schedule_id=None if run.schedule is None else self._name(run.schedule),
            instant=run.instant,
            revision=run.revision,
            is_resumed=run.resume is not None,
            traceparent=preflight.traceparent_of(self._store_id, run.id, k),
        )
        cwd = deployment.working_directory or f"{directory}/work"
        environment = shared.environment | preflight.own_variables(self._root, directory, execution)
        return LaunchRequest(
            run=run.id,
            k=k,
            program=shared.program or _program(deployment, step, environment, cwd),
            argv=deployment.steps[step].command,
            environment=environment,
            cwd=cwd,
            umask=deployment.umask,
            stdout=f"{directory}/stdout.log",
            stderr=f"{directory}/stderr.log",
            directory=f"{directory}/{k}",
            spare=spare,
            wanted=deployment.slurm,
        )

    def _shared_by(self, run: RunRow, step: int) -> _Shared:
        key = (run.deployment, run.deployment_revision, step)
        shared = self._shared.get(key)
        if shared is None:
            deployment, _ = self._context.deployment(run.deployment, run.deployment_revision)
            variables, problems = preflight.read_environment_files(deployment.environment_files)
            if problems:
                raise Unlaunchable(errno.EACCES, "environment", problems[0].message)
            environment = {**self._base, **deployment.environment, **variables}
            name = deployment.steps[step].command[0]
            is_own = "/" in name and not name.startswith("/") and deployment.working_directory is None
            place = deployment.working_directory or "/"
            if deployment.slurm is not None:
                program: str | None = name  # it is the node that looks for it
            else:
                program = None if is_own else _program(deployment, step, environment, place)
            shared = self._shared[key] = _Shared(deployment, environment, program)
        return shared

    def _name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            found = definitions.name_of(self._context.ledger.connection, number)
            if found is None:
                raise UnreadableRow.of("definitions", str(number), "it is not there")
            name = self._names[number] = found
        return name

    def _identity(self, run: RunRow) -> rundir.RunIdentity:
        return rundir.RunIdentity(
            run_id=run.id,
            deployment_id=self._name(run.deployment),
            deployment_revision=run.deployment_revision,
            schedule_id=None if run.schedule is None else self._name(run.schedule),
            instant=run.instant,
            revision=run.revision,
        )


def _can_be_spare(deployment: DeploymentDefinition) -> bool:
    """Tell whether a run's directory can be one that was made ahead, for the keeper to rename."""
    return not deployment.files and deployment.slurm is None


def _program(deployment: DeploymentDefinition, step: int, environment: Mapping[str, str], directory: str) -> str:
    """Return the program's path. One that is gone since preflight is left to the system to refuse, with its reason."""
    name = deployment.steps[step].command[0]
    found = preflight.find_program(name, environment, Path(directory))
    if found is not None:
        return str(found)
    if "/" in name:
        return os.path.join(directory, name)  # noqa: PTH118 - as the system would, without normalising
    raise Unlaunchable(errno.ENOENT, "program", f"{name} is in no directory of the run's PATH")


def _resume_of(run: RunRow) -> object:
    return None if run.resume is None else json.loads(run.resume)
