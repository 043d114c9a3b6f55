"""A line in the log when something becomes blocked, and when it no more is (contract 2.9, 7.4)."""

from __future__ import annotations

import logging
from typing import Any

from wfctl.operations.context import Context
from wfctl.store.ledger import definitions

LOG = logging.getLogger("wfctl.supervisor")


class BlockedLog:
    """Remembers what was blocked at the last look."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}
        self._seen: tuple[int, int] | None = None

    def look(self, context: Context) -> None:
        """Say what changed; where nothing was written since the last look, nothing did."""
        connection = context.ledger.connection
        seen = (context.ledger.commits, int(connection.execute("PRAGMA data_version").fetchone()[0]))
        if seen == self._seen:
            return
        self._seen = seen
        found: dict[str, str] = {}
        fields: dict[str, dict[str, Any]] = {}
        for row in definitions.blocked(connection):
            name, diagnostic = f"{row.kind} {row.id}", row.diagnostic or {}
            found[name] = str(diagnostic.get("message") or diagnostic.get("code"))
            fields[name] = {"action": "blocked", "subject": name, row.kind: row.id, "code": diagnostic.get("code")}
        for name, message in found.items():
            if self._messages.get(name) != message:
                LOG.error("%s is blocked: %s", name, message, extra=fields[name])
        for name in self._messages.keys() - found.keys():
            LOG.info("%s is not blocked any more", name, extra=_unblocked(name))
        self._messages = found


def _unblocked(name: str) -> dict[str, Any]:
    kind, _, own = name.partition(" ")
    return {"action": "unblocked", "subject": name, kind: own}
