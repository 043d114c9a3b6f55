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
from wfctl.store import rundir
from wfctl.store.ledger import definitions
from wfctl.store.ledger.runs import RunRow


@dataclass(slots=True)
class Unlaunchable(Exception):
    """The system refuses what must be there before the launch: `what` it is, and the error number."""

    errno: int
    what: str
    message: str


def request_for(context: Context, run: RunRow, k: int, step: int, base: Mapping[str, str], store_id: str) -> LaunchRequest:
    """Given a marked execution, make its directory and return its launch request.

    `base` is `preflight.base_environment()`. It may be repeated as long as nothing was launched. Raise Unlaunchable.
    """
    deployment, _ = context.deployment(run.deployment, run.deployment_revision)
    paths = context.layout.run(run.id)
    try:
        if run.started_at is None:  # also where an earlier mark was proved never to have been launched
            rundir.prepare_run(context.layout, _identity(context, run), bound_input(context, run), deployment.files)
        rundir.prepare_execution(paths, k, resume=_resume_of(run))
    except Blocked:
        raise  # what it was admitted with cannot be read: nothing is made up for it (7.4)
    except WfctlError as error:
        raise Unlaunchable(error.data.get("errno") or errno.EIO, "directory", error.message) from error
    variables, problems = preflight.read_environment_files(deployment.environment_files)
    if problems:
        raise Unlaunchable(errno.EACCES, "environment", problems[0].message)
    execution = preflight.Execution(
        run_id=run.id,
        k=k,
        attempt=run.attempt,
        step=deployment.steps[step].name,
        schedule_id=None if run.schedule is None else definitions.get(context.ledger.connection, run.schedule).id,
        instant=run.instant,
        revision=run.revision,
        is_resumed=run.resume is not None,
        traceparent=preflight.traceparent_of(store_id, run.id, k),
    )
    environment = preflight.environment_of(deployment, context.layout, execution, base, variables)
    directory = paths.work if deployment.working_directory is None else deployment.working_directory
    return LaunchRequest(
        run=run.id,
        k=k,
        program=_program(deployment, step, environment, str(directory)),
        argv=deployment.steps[step].command,
        environment=environment,
        cwd=str(directory),
        umask=deployment.umask,
        stdout=str(paths.stdout),
        stderr=str(paths.stderr),
        directory=str(paths.execution(k).root),
    )


def _program(deployment: DeploymentDefinition, step: int, environment: Mapping[str, str], directory: str) -> str:
    """Return the program's path. One that is gone since preflight is left to the system to refuse, with its reason."""
    name = deployment.steps[step].command[0]
    found = preflight.find_program(name, environment, Path(directory))
    if found is not None:
        return str(found)
    if "/" in name:
        return os.path.join(directory, name)  # noqa: PTH118 - as the system would, without normalising
    raise Unlaunchable(errno.ENOENT, "program", f"{name} is in no directory of the run's PATH")


def _identity(context: Context, run: RunRow) -> rundir.RunIdentity:
    connection = context.ledger.connection
    return rundir.RunIdentity(
        run_id=run.id,
        deployment_id=definitions.get(connection, run.deployment).id,
        deployment_revision=run.deployment_revision,
        schedule_id=None if run.schedule is None else definitions.get(connection, run.schedule).id,
        instant=run.instant,
        revision=run.revision,
    )


def _resume_of(run: RunRow) -> object:
    return None if run.resume is None else json.loads(run.resume)
