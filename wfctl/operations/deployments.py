"""Deployments: create, read, update, delete (contract 3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wfctl.core.definition import check_id, deployment_from_plain, deployment_to_plain
from wfctl.core.instants import to_micros
from wfctl.core.model import DeploymentDefinition
from wfctl.core.near import near_data
from wfctl.core.plain import suggestion
from wfctl.errors import Deleted, InUse, InvalidArgument, InvalidDefinition, Problem
from wfctl.operations import reconcile, upkeep
from wfctl.operations.context import Context, DryRun
from wfctl.operations.inputs import compile_schema
from wfctl.operations.memo import remembered
from wfctl.operations.saving import as_written, finish_write_quietly, save_revision
from wfctl.operations.schedules import never_valid, not_found, refuse_blocked, refuse_stale, refuse_used
from wfctl.store.artifacts import artifact_problem
from wfctl.store.definitions import deployment_from_toml, to_toml
from wfctl.store.ledger import definitions, schedules
from wfctl.store.ledger.definitions import DefinitionRow

_STEP_FIELDS = ("command", "retries", "retry_delay", "timeout")
FIELDS = (
    "description", "working_directory", "environment", "environment_files", "kill_grace", "umask", "executor", "slurm",
    "files", "input_schema", "steps", *_STEP_FIELDS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """A definition that is valid in itself, ready to be saved."""

    definition: DeploymentDefinition
    plain: Mapping[str, Any]
    content: bytes


def require(connection: sqlite3.Connection, deployment_id: str) -> DefinitionRow:
    """Return the row of a deployment, deleted or not. Raise NotFound, with near ids, for one that never was."""
    row = definitions.find(connection, "deployment", deployment_id)
    if row is None:
        raise not_found(connection, "deployment", deployment_id)
    return row


def require_live(connection: sqlite3.Connection, deployment_id: str) -> DefinitionRow:
    """Return the row of a deployment that is there. Raise NotFound, Deleted, or InvalidDefinition if it never was valid."""
    row = require(connection, deployment_id)
    if row.deleted_at is not None:
        raise Deleted(f"deployment {deployment_id} was deleted, and its id is retired", {"id": deployment_id})
    if row.revision == 0:
        raise never_valid(row)
    return row


def plain_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Given API arguments, return the plain form they describe, absent ones left out."""
    unknown = [key for key in fields if key not in FIELDS]
    if unknown:
        data = {"argument": unknown[0], **near_data(unknown[0], FIELDS)}
        raise InvalidArgument(f"unknown argument {unknown[0]!r}{suggestion(unknown[0], FIELDS)}", data)
    return {key: value for key, value in fields.items() if value is not None}


def draft(deployment_id: str, plain: Mapping[str, Any], *, content: bytes | None = None) -> Draft:
    """Given a plain form, return the definition, checked; `content` is the text of a file that says it already.

    Raise InvalidDefinition, with every problem.
    """
    subject = f"deployment {deployment_id}"
    if content is not None:
        return _composed(plain, subject, content)
    return remembered(subject, plain, lambda: _composed(plain, subject, None))


def _composed(plain: Mapping[str, Any], subject: str, content: bytes | None) -> Draft:
    definition = deployment_from_plain(plain, subject=subject)
    if definition.input_schema is not None:
        compile_schema(definition.input_schema)
    words = as_written(deployment_to_plain(definition), plain)
    return Draft(definition, words, to_toml(words, subject) if content is None else content)


def create(context: Context, deployment_id: str, fields: Mapping[str, Any], *, dry_run: bool = False) -> int:
    """Create a deployment and return its number. Raise InvalidDefinition; Exists for an id that is or was in use."""
    check_id(deployment_id, "deployment id")
    plain = plain_of(fields)
    reconcile.one(context, "deployment", deployment_id)
    with context.changing() as connection:
        refuse_used(connection, "deployment", deployment_id)
        made = draft(deployment_id, plain)
        _check_files(context, deployment_id, made.definition)
        context.end_trial(deployment_from_toml, made.content)
        number = definitions.insert(connection, "deployment", deployment_id, created_at=to_micros(context.now()))
        apply(context, connection, definitions.get(connection, number), made, is_on_disk=False)
        if dry_run:
            raise DryRun(_described(context, connection, number))
    finish_write_quietly(context, "deployment", deployment_id)
    return number


def _check_files(context: Context, deployment_id: str, definition: DeploymentDefinition) -> None:
    """A definition may only name contents that are in artifacts/ (3.8)."""
    problems = [
        Problem(f"files.{name}", problem)
        for name, digest in definition.files.items()
        if (problem := artifact_problem(context.layout, digest))
    ]
    if problems:
        raise InvalidDefinition.of(f"deployment {deployment_id}", problems)


def apply(context: Context, connection: sqlite3.Connection, row: DefinitionRow, made: Draft, *, is_on_disk: bool) -> None:
    """Within a transaction, make a checked definition the current revision; schedules that name it are looked at again."""
    if is_on_disk:
        _check_files(context, row.id, made.definition)
    save_revision(context, connection, row, plain=made.plain, content=made.content, max_run_us=None, is_on_disk=is_on_disk)
    if row.diagnostic is None:
        return
    for number, _ in schedules.of_deployment(connection, row.number):
        state = schedules.find(connection, number)
        if state is not None and state.diagnostic is None:
            definition, _ = context.schedule(number, state.revision)
            upkeep.refresh_wake(connection, number, definition, attention=context.now())


def update(
    context: Context,
    deployment_id: str,
    expected_revision: int,
    fields: Mapping[str, Any],
    unset: Sequence[str],
    *,
    dry_run: bool = False,
) -> int:
    """Patch the given fields, for runs admitted from now on (3.2, 3.3), and return the deployment's number.

    Raise NotFound, Deleted, RevisionConflict when the revision is not the one expected, InvalidDefinition.
    """
    patch = plain_of(fields)
    reconcile.one(context, "deployment", deployment_id)
    with context.changing() as connection:
        row = require_live(connection, deployment_id)
        refuse_blocked(row)
        refuse_stale("deployment", deployment_id, expected_revision, row.revision)
        _, saved = context.deployment(row.number, row.revision)
        made = draft(deployment_id, _patched(saved.plain, patch, unset))
        _check_files(context, deployment_id, made.definition)
        context.end_trial(deployment_from_toml, made.content)
        apply(context, connection, row, made, is_on_disk=False)
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    finish_write_quietly(context, "deployment", deployment_id)
    return row.number


def _patched(current: Mapping[str, Any], patch: Mapping[str, Any], unset: Sequence[str]) -> dict[str, Any]:
    """Return the plain form after a patch; giving `command` leaves `steps` behind, and the other way round."""
    base = dict(current)
    if "steps" in patch:
        base = {key: value for key, value in base.items() if key not in _STEP_FIELDS}
    elif "command" in patch:
        base.pop("steps", None)
    plain = {**base, **patch}
    for name in unset:
        if name not in FIELDS:
            data = {"argument": name, **near_data(name, FIELDS)}
            raise InvalidArgument(f"cannot unset {name!r}{suggestion(name, FIELDS)}", data)
        if name in patch:
            raise InvalidArgument(f"{name} is both set and unset", {"argument": name})
        plain.pop(name, None)
    return plain


def delete(context: Context, deployment_id: str, *, dry_run: bool = False) -> int:
    """Retire a deployment and its id. Idempotent. Raise NotFound, InUse while an undeleted schedule names it (3.5)."""
    reconcile.one(context, "deployment", deployment_id)
    with context.ledger.transaction() as connection:
        row = require(connection, deployment_id)
        if row.deleted_at is None:
            users = [name for _, name in schedules.of_deployment(connection, row.number)]
            if users:
                raise InUse(
                    f"deployment {deployment_id} is named by {', '.join(users)}; delete or change those schedules first",
                    {"id": deployment_id, "schedules": users},
                )
            definitions.mark_deleted(connection, row.number, at=to_micros(context.now()))
        if dry_run:
            raise DryRun(_described(context, connection, row.number))
    reconcile.clear_deleted(context, "deployment", deployment_id)
    return row.number


def _described(context: Context, connection: sqlite3.Connection, number: int) -> Any:
    from wfctl.operations.describe_definitions import deployment_view

    return deployment_view(context, connection, definitions.get(connection, number))
