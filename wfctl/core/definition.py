"""Definitions: plain tables, as TOML and JSON say them, to frozen values and back (contract 3).

The plain form holds every field, None where it is unset, durations and instants as text; null reads as absent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Literal

from wfctl.core.duration import format_duration
from wfctl.core.ids import is_valid_id as is_valid_id
from wfctl.core.model import (
    EXECUTORS,
    LOCAL,
    ONE_COMMAND_STEP,
    SLURM,
    DeploymentDefinition,
    Json,
    MaxRun,
    Misfire,
    Notify,
    Overlap,
    ScheduleDefinition,
    Step,
    Trigger,
)
from wfctl.core.plain import Table, copy_json, join_path, name_of, raise_problems
from wfctl.core.slurm_needs import read_slurm, slurm_to_plain
from wfctl.errors import InvalidDefinition, Problem

FORMAT = 1  #: of definition files
LARGEST_INPUT = 64 * 1024  #: bytes of JSON
LARGEST_SCHEMA = 64 * 1024  #: bytes of JSON
LARGEST_COMMAND = 128 * 1024  #: bytes, a NUL after each argument included, as the kernel counts
MOST_ARGUMENTS = 1000
MOST_STEPS = 100

_STEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_UMASK = re.compile(r"0?[0-7]{3}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_STEP_FIELDS = ("command", "retries", "retry_delay", "timeout")


# Ids ----------------------------------------------------------------------------------------------------------------------


def check_id(text: str, what: str = "id") -> None:
    """Given an id and what it names, raise InvalidDefinition, saying what to write, when contract 2.8 does not allow it."""
    if not isinstance(text, str) or not is_valid_id(text):
        raise InvalidDefinition.of(f"{what} {text!r}", [Problem("", _id_problem(text))])


def _id_problem(text: Any) -> str:
    rule = (
        'an id is lower-case letters, digits, ".", "_" and "-", begins with a letter or digit, has no ".." '
        "and at most 128 characters"
    )
    if not isinstance(text, str):
        return rule
    proposal = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:128]
    proposal = re.sub(r"\.{2,}", ".", proposal)
    return f'{rule}; for example "{proposal}"' if is_valid_id(proposal) else rule


# Schedules ----------------------------------------------------------------------------------------------------------------


def schedule_from_plain(
    plain: Mapping[str, Any], *, subject: str = "schedule", format_required: bool = False
) -> ScheduleDefinition:
    """Given the plain form of a schedule, return its value.

    `subject` begins the message of an error; `format_required` is for files. Raise InvalidDefinition that lists every
    problem with its key path. Source: contract 3 and 3.6.
    """
    table = Table(plain)
    _read_format(table, format_required)
    deployment = table.text("deployment")
    if deployment is None and not table.has("deployment"):
        table.problem("deployment", "is missing; name the deployment to start")
    elif deployment is not None and not is_valid_id(deployment):
        table.problem("deployment", f"{deployment!r} is no id: {_id_problem(deployment)}")
    notes = table.text("notes")
    overlap, limit = _read_overlap(table)
    misfire = Misfire(table.choice("misfire", list(Misfire)) or "skip")
    lateness = table.duration("lateness")
    max_run = table.duration_or("max_run", ("auto", "none"))
    max_steps = table.integer("max_steps", 1)
    notify = _read_notify(table)
    trigger = _read_trigger(table)
    bound = _read_input(table)
    table.close()
    raise_problems(subject, table.problems)
    if deployment is None or trigger is None:
        raise AssertionError("an absent deployment or trigger is a problem")
    return ScheduleDefinition(
        deployment=deployment,
        trigger=trigger,
        input=bound,
        notes=notes,
        overlap=overlap,
        max_active_runs=limit,
        misfire=misfire,
        lateness=timedelta(seconds=60) if lateness is None else lateness,
        max_run=_as_max_run(max_run),
        max_steps=max_steps,
        notify=notify,
    )


def schedule_to_plain(definition: ScheduleDefinition) -> dict[str, Json]:
    """Return the plain form of a schedule, with every field."""
    from wfctl.core.trigger import trigger_to_plain

    max_run = definition.max_run
    return {
        "format": FORMAT,
        "deployment": definition.deployment,
        "notes": definition.notes,
        "overlap": str(definition.overlap),
        "max_active_runs": definition.max_active_runs,
        "misfire": str(definition.misfire),
        "lateness": format_duration(definition.lateness),
        "max_run": format_duration(max_run) if isinstance(max_run, timedelta) else max_run,
        "max_steps": definition.max_steps,
        "notify": notify_to_plain(definition.notify),
        "trigger": trigger_to_plain(definition.trigger),
        "input": dict(definition.input),
    }


def notify_from_plain(plain: Any, path: str, problems: list[Problem]) -> Notify | None:
    """Given the plain form of a `notify` table, return its value, or None with what is wrong added to `problems`."""
    table = Table(plain, path, problems)
    before = len(problems)
    command = _read_command(table)
    after = table.integer("after", 1)
    table.close()
    return Notify(command=command, after=after or 1) if len(problems) == before else None


def notify_to_plain(notify: Notify | None) -> dict[str, Json] | None:
    """Return the plain form of a `notify` table; None for none."""
    return None if notify is None else {"command": list(notify.command), "after": notify.after}


def _as_max_run(value: timedelta | str | None) -> MaxRun:
    if isinstance(value, timedelta):
        return value
    word: Literal["auto", "none"] = "none" if value == "none" else "auto"
    return word


def _read_format(table: Table, required: bool) -> None:
    value = table.raw("format")
    if value is None:
        if required:
            table.problem("format", "is missing; begin the file with format = 1")
    elif value != FORMAT or not isinstance(value, int) or isinstance(value, bool):
        table.problem("format", f"is {name_of(value)}; this wfctl reads format {FORMAT}")


def _read_overlap(table: Table) -> tuple[Overlap, int | None]:
    word = table.raw("overlap")
    overlap = Overlap.PARALLEL if word == "allow" else Overlap(table.choice("overlap", list(Overlap)) or "skip")
    is_known = word is None or word in ("allow", *Overlap)
    limit = table.integer("max_active_runs", 1)
    if overlap is Overlap.PARALLEL and not table.has("max_active_runs"):
        table.problem("max_active_runs", 'is required with overlap = "parallel"; write how many runs may be active at once')
    elif overlap is not Overlap.PARALLEL and is_known and table.has("max_active_runs"):
        table.problem("max_active_runs", f'goes only with overlap = "parallel", not with "{overlap}"; leave it out')
    return overlap, limit


def _read_notify(table: Table) -> Notify | None:
    plain = table.raw("notify")
    return None if plain is None else notify_from_plain(plain, join_path(table.path, "notify"), table.problems)


def _read_trigger(table: Table) -> Trigger | None:
    from wfctl.core.trigger import parse_trigger

    plain = table.raw("trigger")
    if plain is None:
        table.problem("trigger", 'is missing; write a table with kind = "cron", "interval" or "oneshot"')
        return None
    if not isinstance(plain, Mapping):
        table.problem("trigger", 'must be a table with kind = "cron", "interval" or "oneshot"')
        return None
    before = len(table.problems)
    at = plain.get("at")  # TOML has instants of its own; one without an offset is refused as text is
    safe = copy_json(
        {**plain, "at": at.isoformat()} if isinstance(at, datetime) else plain, "trigger", table.problems, nulls=True
    )
    if len(table.problems) > before:
        return None
    try:
        return parse_trigger(safe)
    except InvalidDefinition as error:
        table.problems.extend(error.problems or [Problem("trigger", error.message)])
        return None


def _read_input(table: Table) -> Mapping[str, Json]:
    if table.has("input") and not isinstance(table.raw("input"), Mapping):
        table.problem("input", "must be a table of names and values")
        return {}
    found: Mapping[str, Json] | None = table.json("input", LARGEST_INPUT)
    return found or {}


# Deployments --------------------------------------------------------------------------------------------------------------


def deployment_from_plain(
    plain: Mapping[str, Any], *, subject: str = "deployment", format_required: bool = False
) -> DeploymentDefinition:
    """Given the plain form of a deployment, return its value.

    `subject` begins the message of an error; `format_required` is for files. Raise InvalidDefinition that lists every
    problem with its key path. Whether `input_schema` compiles is for operations/inputs.py. Source: contract 3, 3.6 to 3.9.
    """
    table = Table(plain)
    _read_format(table, format_required)
    description = table.text("description")
    working_directory = table.text("working_directory")
    if working_directory is not None:
        _check_absolute(table, "working_directory", working_directory)
    environment = _read_environment(table)
    environment_files = table.texts("environment_files") or ()
    for index, name in enumerate(environment_files):
        _check_absolute(table, f"environment_files[{index}]", name)
    kill_grace = table.duration("kill_grace")
    umask = _read_umask(table)
    executor = table.choice("executor", EXECUTORS) or LOCAL
    slurm = read_slurm(table, executor)
    files = _read_files(table)
    schema = _read_schema(table)
    steps, is_one_command = _read_steps(table)
    table.close()
    raise_problems(subject, table.problems)
    return DeploymentDefinition(
        steps=steps,
        is_one_command=is_one_command,
        description=description,
        working_directory=working_directory,
        environment=environment,
        environment_files=environment_files,
        kill_grace=timedelta(seconds=10) if kill_grace is None else kill_grace,
        umask=umask,
        executor=executor,
        slurm=slurm,
        files=files,
        input_schema=schema,
    )


def deployment_to_plain(definition: DeploymentDefinition) -> dict[str, Json]:
    """Return the plain form of a deployment, with every field: of one command, or `steps`; for a cluster `slurm` too."""
    plain: dict[str, Json] = {
        "format": FORMAT,
        "description": definition.description,
        "working_directory": definition.working_directory,
        "environment": dict(definition.environment),
        "environment_files": list(definition.environment_files),
        "kill_grace": format_duration(definition.kill_grace),
        "umask": f"{definition.umask:03o}",
        "executor": definition.executor,
    }
    if definition.executor == SLURM:
        plain["slurm"] = slurm_to_plain(definition.slurm)
    if definition.is_one_command:
        plain |= _step_to_plain(definition.steps[0])
    plain |= {"files": dict(definition.files), "input_schema": definition.input_schema}
    if not definition.is_one_command:
        plain["steps"] = [{"name": step.name, **_step_to_plain(step)} for step in definition.steps]
    return plain


def _step_to_plain(step: Step) -> dict[str, Json]:
    return {
        "command": list(step.command),
        "retries": step.retries,
        "retry_delay": format_duration(step.retry_delay),
        "timeout": "none" if step.timeout is None else format_duration(step.timeout),
    }


def _check_absolute(table: Table, key: str, path: str) -> None:
    if not path.startswith("/"):
        table.problem(key, f"{path!r} is not absolute; write the whole path, beginning with /")


def _read_environment(table: Table) -> dict[str, str]:
    environment = table.text_table("environment")
    for name in environment:
        wrong = environment_name_problem(name)
        if wrong:
            table.problem(join_path("environment", name), wrong)
    return environment


def environment_name_problem(name: str) -> str | None:
    """Return what keeps a deployment from setting a variable of that name, or None (contract 3.9)."""
    if not name or "=" in name or "\0" in name:
        return f"{name!r} is no name of a variable: it must not be empty or have = or NUL in it"
    if name.startswith("WFCTL_"):
        return f"{name} is set by wfctl itself; choose a name that does not begin with WFCTL_"
    return None


def _read_umask(table: Table) -> int:
    value = table.raw("umask")
    if value is None:
        return 0o022
    if isinstance(value, str) and _UMASK.fullmatch(value):
        return int(value, 8)
    digits = f"{value:03d}" if isinstance(value, int) and 0 <= value <= 777 else ""
    shown = digits if _UMASK.fullmatch(digits) else "022"
    table.problem("umask", f'must be three octal digits, as text: write "{shown}"')
    return 0


def _read_files(table: Table) -> dict[str, str]:
    files = table.text_table("files")
    for name, digest in files.items():
        wrong = file_name_problem(name)
        if wrong:
            table.problem(join_path("files", name), wrong)
        if not _DIGEST.fullmatch(digest):
            table.problem(
                join_path("files", name),
                "must be sha256: and 64 lower-case hex digits; `wfctl deployment set --file PATH` stores a file and writes it",
            )
    return files


def file_name_problem(name: str) -> str | None:
    """Return what keeps a pinned file from having that name in the run's directory, or None (contract 3.8)."""
    if not name or name in (".", "..") or "/" in name or PurePosixPath(name).name != name:
        return f"{name!r} is no plain file name; write it without directories"
    if len(name.encode()) > 255 or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return f"{name!r} is no file name: it is longer than 255 bytes or has control characters"
    return None


def _read_schema(table: Table) -> Mapping[str, Json] | bool | None:
    schema: Mapping[str, Json] | bool | None = table.json("input_schema", LARGEST_SCHEMA)
    if schema is None or isinstance(schema, (Mapping, bool)):
        return schema
    table.problem("input_schema", "must be a table: a JSON Schema of draft 2020-12")
    return None


def _read_steps(table: Table) -> tuple[tuple[Step, ...], bool]:
    has_top = [key for key in _STEP_FIELDS if table.has(key)]
    plain = table.raw("steps")
    if plain is None:
        return (_read_step(table, ONE_COMMAND_STEP),), True
    for key in _STEP_FIELDS:
        table.raw(key)
    for key in has_top:
        table.problem(key, "goes either at the top or into [[steps]], not both; move it into a step")
    if not isinstance(plain, (list, tuple)) or not plain:
        table.problem("steps", 'must be a list of tables, each with a "name" and a "command"')
        return (), False
    if len(plain) > MOST_STEPS:
        table.problem("steps", f"has {len(plain)} steps; at most {MOST_STEPS} are taken")
        return (), False
    return _read_step_list(table, plain), False


def _read_step_list(table: Table, plain: list[Any] | tuple[Any, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    names: set[str] = set()
    for index, item in enumerate(plain):
        below = Table(item, join_path(table.path, "steps") + f"[{index}]", table.problems)
        name = below.text("name") or f"step-{index + 1}"
        if not _STEP_NAME.fullmatch(name):
            below.problem("name", f'{name!r} is no name of a step: write letters, digits, ".", "_" and "-", such as "extract"')
        elif name in names:
            below.problem("name", f'"{name}" is the name of an earlier step; give each its own')
        names.add(name)
        steps.append(_read_step(below, name))
        below.close()
    return tuple(steps)


def _read_step(table: Table, name: str) -> Step:
    command = _read_command(table)
    retries = table.integer("retries", 0)
    retry_delay = table.duration("retry_delay")
    timeout = table.duration_or("timeout", ("none",))
    return Step(
        name=name,
        command=command,
        retries=retries or 0,
        retry_delay=timedelta(seconds=10) if retry_delay is None else retry_delay,
        timeout=timeout if isinstance(timeout, timedelta) else None,
    )


def _read_command(table: Table) -> tuple[str, ...]:
    value = table.raw("command")
    if value is None:
        table.problem("command", 'is missing; write the program and its arguments as a list, such as ["/bin/echo", "hello"]')
        return ()
    if isinstance(value, str):
        table.problem("command", f"must be a list of arguments: write {_as_list(value)}")
        return ()
    command = table.texts("command")
    if command is None:
        return ()
    if not command or not command[0]:
        table.problem("command", "names no program; its first argument is the program")
    if len(command) > MOST_ARGUMENTS:
        table.problem("command", f"has {len(command)} arguments; at most {MOST_ARGUMENTS} are taken")
    size = sum(len(argument.encode()) + 1 for argument in command)
    if size > LARGEST_COMMAND:
        table.problem("command", f"is {size} bytes; at most {LARGEST_COMMAND} are taken")
    return command


def _as_list(text: str) -> str:
    import json

    shell = json.dumps(["/bin/sh", "-c", text], ensure_ascii=False)
    if set(text) & set("|&;<>()$`*?[]#~=%!{}\n"):
        return shell
    try:
        words = shlex.split(text)
    except ValueError:
        return shell
    return json.dumps(words, ensure_ascii=False) if words else '["/bin/echo", "hello"]'
