"""Finding what is named: its row, or an error that says what was perhaps meant."""

from __future__ import annotations

import sqlite3

from wfctl.errors import NotFound
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions
from wfctl.store.ledger.definitions import DefinitionRow

_COMPARED, _LONGEST_ID = 200, 128


def require(connection: sqlite3.Connection, kind: Kind, name: str) -> DefinitionRow:
    """Return a definition's row, deleted or not. Raise NotFound, with near ids, for one that never was."""
    row = definitions.find(connection, kind, name)
    if row is None:
        raise not_found(connection, kind, name)
    return row


def not_found(connection: sqlite3.Connection, kind: Kind, name: str) -> NotFound:
    """Return the error for an unknown id, with what was perhaps meant."""
    from wfctl.core.near import did_you_mean, near

    known = definitions.live_ids(connection, kind)
    if len(known) > _COMPARED:  # of very many only those that could be it at first sight: to compare them all takes long
        known = [each for each in known if each[:2] == name[:2] and abs(len(each) - len(name)) < 2][:_COMPARED]
    meant = near(name, known) if len(name) <= _LONGEST_ID else []
    hint = did_you_mean(meant) or f"; `wfctl {kind}s` lists what there is"
    shown = name if len(name) <= _LONGEST_ID else f"{name[:_LONGEST_ID]}..."
    return NotFound(f"no {kind} {shown!r}{hint}", {"kind": kind, "id": shown, "near": meant})
