"""Ids of schedules and deployments (contract 2.8)."""

from __future__ import annotations

import re

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)


def is_valid_id(text: str) -> bool:
    """Return whether `text` may name a schedule or a deployment (contract 2.8)."""
    return _ID.fullmatch(text) is not None and ".." not in text
