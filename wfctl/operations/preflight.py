"""What a run needs before it is admitted, and the exact environment it gets (contract 3.9, 5.9, 6.4)."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from wfctl.core.definition import environment_name_problem
from wfctl.core.instants import format_instant
from wfctl.core.model import DeploymentDefinition, Json
from wfctl.core.plain import join_path
from wfctl.errors import Problem
from wfctl.operations.inputs import check_input
from wfctl.store.artifacts import artifact_problem
from wfctl.store.layout import Layout

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LARGEST_ENVIRONMENT_FILE = 64 * 1024  #: bytes
_PASSED_ON = ("TZ",)  #: of the supervisor's own environment, where set


def check_preflight(
    definition: DeploymentDefinition, layout: Layout, bound: Mapping[str, Json], base: Mapping[str, str]
) -> dict[str, Json] | None:
    """Given a deployment, a bound input and `base_environment()`, return None, or the reason why no run can start.

    It reads files, so it can take long where a mount is dead; the caller bounds it. The reason lists every problem.
    """
    problems = list(preflight_problems(definition, layout, bound, base))
    return {"code": "preflight", "problems": [problem.to_json() for problem in problems]} if problems else None


def preflight_problems(
    definition: DeploymentDefinition, layout: Layout, bound: Mapping[str, Json], base: Mapping[str, str]
) -> list[Problem]:
    """Return everything that contract 5.9 asks for and that is not there, in the order of the definition's fields.

    Program and working directory of a run for a cluster are those of its node, which tells when it is launched.
    """
    problems = []
    is_here = definition.slurm is None
    if definition.working_directory is not None and is_here:
        wrong = _directory_problem(definition.working_directory)
        if wrong:
            problems.append(Problem("working_directory", wrong))
    variables, wrong_files = read_environment_files(definition.environment_files)
    problems += wrong_files
    for name, artifact in definition.files.items():
        wrong = artifact_problem(layout, artifact)
        if wrong:
            problems.append(Problem(join_path("files", name), wrong))
    wrong = _first_program_problem(definition, {**base, **definition.environment, **variables}) if is_here else None
    if wrong:
        problems.append(Problem("command" if definition.is_one_command else "steps[0].command", wrong))
    return problems + check_input(definition.input_schema, bound)


# Programs -----------------------------------------------------------------------------------------------------------------


def find_program(name: str, environment: Mapping[str, str], directory: Path) -> Path | None:
    """Given the first argument of a command, return the absolute path of the program to execute, or None.

    A name with a slash is taken from `directory`, the working directory; any other is sought in the absolute directories of
    the environment's PATH.
    """
    if "/" in name:
        path = directory / name
        return path if _is_program(path) else None
    for place in environment.get("PATH", PATH).split(":"):
        if place.startswith("/") and _is_program(path := Path(place, name)):
            return path
    return None


def _is_program(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False


def _first_program_problem(definition: DeploymentDefinition, environment: Mapping[str, str]) -> str | None:
    name = definition.steps[0].command[0]
    if "/" not in name:
        if find_program(name, environment, Path("/")):
            return None
        return (
            f"the program {name!r} is in no directory of the run's PATH ({environment.get('PATH', PATH)}); write its whole path"
        )
    if name.startswith("/") or definition.working_directory is not None:
        path = Path(definition.working_directory or "/", name)
        if _is_program(path):
            return None
        return f"the program {path} {'cannot be executed; run `chmod +x` on it' if path.is_file() else 'is not there'}"
    if os.path.normpath(name) in definition.files:  # it will be linked into the run's own directory, executable
        return None
    return f"the program {name!r} will not be in the run's own directory; pin it as a file, or write its whole path"


def _directory_problem(path: str) -> str | None:
    try:
        status = Path(path).stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is no directory"
    return None if os.access(path, os.X_OK) else f"{path} may not be entered by the store's owner"


# Environment --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an execution is told of itself."""

    run_id: str
    k: int
    attempt: int
    step: str
    schedule_id: str | None = None  #: None for a manual run
    instant: datetime | None = None
    revision: int | None = None
    is_resumed: bool = False
    traceparent: str | None = None


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Given the driver's own environment, return what every execution has before anything of its deployment (contract 6.4)."""
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
        home, user = entry.pw_dir, entry.pw_name
    except KeyError:  # an id without a name, as in containers
        home, user = "/", str(uid)
    base = {
        "PATH": PATH,
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "LANG": environ.get("LANG") or "C.UTF-8",
    }
    return base | {name: environ[name] for name in _PASSED_ON if environ.get(name)}


def environment_of(
    definition: DeploymentDefinition,
    layout: Layout,
    execution: Execution,
    base: Mapping[str, str],
    from_files: Mapping[str, str],
) -> dict[str, str]:
    """Return exactly the variables of one execution (contract 6.4).

    The deployment's `environment` overrides the base, its environment files override both, as in systemd; what wfctl says
    of the run comes last.
    """
    run = layout.run(execution.run_id)
    return {**base, **definition.environment, **from_files, **own_variables(str(layout.root), str(run.root), execution)}


def own_variables(store: str, run: str, execution: Execution) -> dict[str, str]:
    """Given the paths of the store and of the run, return what wfctl itself says to an execution (contract 6.4)."""
    own = f"{run}/{execution.k}"
    variables = {} if execution.traceparent is None else {"TRACEPARENT": execution.traceparent}
    variables |= {
        "WFCTL_RUN_ID": execution.run_id,
        "WFCTL_SCHEDULE_ID": execution.schedule_id or "",
        "WFCTL_OCCURRENCE": "" if execution.instant is None else format_instant(execution.instant),
        "WFCTL_REVISION": "" if execution.revision is None else str(execution.revision),
        "WFCTL_ATTEMPT": str(execution.attempt),
        "WFCTL_STEP": execution.step,
        "WFCTL_EXECUTION": str(execution.k),
        "WFCTL_STORE": store,
        "WFCTL_INPUT": f"{run}/input.json",
        "WFCTL_FILES": f"{run}/files",
        "WFCTL_OUTPUT": f"{own}/output",
        "WFCTL_CHECKPOINT": f"{own}/checkpoint",
        "WFCTL_INTERRUPT": f"{own}/interrupt",
    }
    if execution.is_resumed:
        variables["WFCTL_RESUME"] = f"{own}/resume.json"
    return variables


def traceparent_of(store_id: str, run_id: str, k: int) -> str:
    """Return the W3C trace context of an execution: one trace a run, one span an execution, the same whenever it is asked."""
    trace = hashlib.sha256(f"{store_id}/{run_id}".encode()).hexdigest()[:32]
    span = hashlib.sha256(f"{store_id}/{run_id}/{k}".encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01"


def read_environment_files(paths: tuple[str, ...]) -> tuple[dict[str, str], list[Problem]]:
    """Given a deployment's environment files, return their variables, later ones winning, and what is wrong with them.

    No value is ever part of a problem (contract 3.9).
    """
    variables: dict[str, str] = {}
    problems: list[Problem] = []
    for index, path in enumerate(paths):
        try:
            variables |= parse_environment_file(_read_trusted(path))
        except OSError as error:
            problems.append(Problem(f"environment_files[{index}]", f"{path} cannot be read: {error.strerror}"))
        except ValueError as error:
            problems.append(Problem(f"environment_files[{index}]", f"{path}: {error}"))
    return variables, problems


def parse_environment_file(content: bytes) -> dict[str, str]:
    """Given KEY=VALUE lines, return the variables as they stand: nothing is expanded, quotes are part of the value.

    Empty lines and lines that begin with # are skipped. Raise ValueError, naming the line and never its value.
    """
    if b"\0" in content:
        raise ValueError("has a NUL character; it must be text")
    variables = {}
    for number, line in enumerate(os.fsdecode(content).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"line {number} is not KEY=VALUE")
        if name.lstrip().startswith("export "):
            raise ValueError(f"line {number} begins with export; write KEY=VALUE alone")
        if name != name.strip():
            raise ValueError(f"line {number} has blanks around its name; write KEY=VALUE")
        wrong = environment_name_problem(name)
        if wrong:
            raise ValueError(f"line {number}: {wrong}")
        variables[name] = value
    return variables


def _read_trusted(path: str) -> bytes:
    """Read a file that only root and we may write. Raise OSError, or ValueError where it cannot be trusted."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hang the check
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no regular file")
        if status.st_uid not in (0, os.geteuid()):
            raise ValueError(f"belongs to uid {status.st_uid}; it must belong to root or to the store's owner")
        if status.st_mode & 0o022:
            raise ValueError(f"others may write it (mode {stat.S_IMODE(status.st_mode):04o}); run `chmod go-w` on it")
        content = file.read(LARGEST_ENVIRONMENT_FILE + 1)
    if len(content) > LARGEST_ENVIRONMENT_FILE:
        raise ValueError(f"is larger than {LARGEST_ENVIRONMENT_FILE} bytes")
    return content
