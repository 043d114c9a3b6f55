"""What a backup says of itself: its first member (contract 11)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wfctl.core.instants import format_instant, parse_instant

MANIFEST = "manifest.json"
KIND = "wfctl-backup"
FORMAT = 1  #: of the backup; a newer one is refused
_COUNTS = ("schedules", "deployments", "occurrences", "runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Of which store a backup is, when it was taken, and by what its ledger is known."""

    store_id: str
    path: str
    host: str
    version: str  #: of the wfctl that took it
    ledger_format: int
    taken_at: datetime
    ledger_bytes: int
    ledger_sha256: str
    schedules: int
    deployments: int
    occurrences: int
    runs: int

    def to_bytes(self) -> bytes:
        """Return it as the JSON that stands in a backup."""
        plain = {
            "kind": KIND,
            "format": FORMAT,
            "wfctl": self.version,
            "taken_at": format_instant(self.taken_at),
            "store": {"id": self.store_id, "path": self.path, "host": self.host},
            "ledger": {"format": self.ledger_format, "bytes": self.ledger_bytes, "sha256": self.ledger_sha256},
            "counts": {name: getattr(self, name) for name in _COUNTS},
        }
        return json.dumps(plain, indent=2).encode() + b"\n"

    @property
    def mark(self) -> dict[str, Any]:
        """What tells this backup from others."""
        return {
            "store_id": self.store_id,
            "taken_at": format_instant(self.taken_at),
            "ledger_sha256": self.ledger_sha256,
        }


class NewerBackup(Exception):
    """A backup in a format that this version does not know."""


def read_manifest(data: bytes) -> Manifest:
    """Given the content of a first member, return what it says. Raise ValueError, KeyError for none, NewerBackup."""
    plain = json.loads(data)
    if not isinstance(plain, dict) or plain.get("kind") != KIND or not isinstance(plain.get("format"), int):
        raise ValueError("its first member is no manifest")
    if plain["format"] > FORMAT:
        raise NewerBackup(f"it has format {plain['format']}, this wfctl knows {FORMAT}: use a newer wfctl")
    try:
        store, ledger, counts = plain["store"], plain["ledger"], plain["counts"]
        return Manifest(
            store_id=str(store["id"]),
            path=str(store["path"]),
            host=str(store["host"]),
            version=str(plain["wfctl"]),
            ledger_format=int(ledger["format"]),
            taken_at=parse_instant(plain["taken_at"]),
            ledger_bytes=int(ledger["bytes"]),
            ledger_sha256=str(ledger["sha256"]),
            **{name: int(counts[name]) for name in _COUNTS},
        )
    except TypeError as error:
        raise ValueError("its manifest lacks something") from error
