"""The ledger: everything the system decided, in one SQLite file. One module per table group."""

from __future__ import annotations

from wfctl.store.ledger.connection import Ledger

__all__ = ["Ledger"]
