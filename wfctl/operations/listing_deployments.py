"""Listing deployments, by id: all of them, or page by page. Nothing is parsed: a list shows what was saved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from wfctl.core.json_text import loads
from wfctl.operations.context import Context
from wfctl.operations.listing_schedules import by_id
from wfctl.operations.shown import DeploymentView, Page
from wfctl.store.ledger import definitions, listed

DEPLOYMENTS = "wfctl/deployments.v1"


def list_deployments(context: Context, *, include_deleted: bool, limit: Any, cursor: Any) -> Page[DeploymentView]:
    """Return deployments by id: all of them, or with a limit a page and where it goes on. Raise InvalidArgument, BadCursor."""

    def rows(connection: sqlite3.Connection, after: str) -> Iterator[DeploymentView]:
        users = listed.users_of_deployments(connection) if limit is None and cursor is None else None
        for row in listed.deployments(connection, after=after):
            if include_deleted or not row[2]:
                named_by = _users_of(connection, row[0]) if users is None else users.get(row[0], ())
                yield _quick_view(row, tuple(named_by)) or _described(context, connection, row[0], tuple(named_by))

    found, following = by_id(context, rows, {"list": DEPLOYMENTS, "deleted": include_deleted}, limit=limit, cursor=cursor)
    return Page(tuple(found), following, DEPLOYMENTS)


def _users_of(connection: sqlite3.Connection, number: int) -> list[str]:
    from wfctl.store.ledger.schedules import of_deployment

    return [name for _, name in of_deployment(connection, number)]


def _quick_view(row: listed.ListedDeployment, named_by: tuple[str, ...]) -> DeploymentView | None:
    """Return a deployment whose rows are sound and have nothing special to say; None for any other."""
    _, name, _, revision, text, digest = row
    try:
        definition = None if text is None else loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(definition, dict):
        return None
    return DeploymentView(
        id=name,
        state="active",
        diagnostic=None,
        revision=revision,
        definition=definition,
        digest=f"sha256:{digest}",
        schedules=named_by,
    )


def _described(context: Context, connection: sqlite3.Connection, number: int, named_by: tuple[str, ...]) -> DeploymentView:
    from wfctl.operations.describe_definitions import listed_deployment

    return listed_deployment(context, connection, definitions.get(connection, number), named_by)
