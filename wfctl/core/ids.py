"""Ids of schedules, deployments and runs (contract 2.8)."""

from __future__ import annotations

_FIRST = "abcdefghijklmnopqrstuvwxyz0123456789"
_LETTERS = f"{_FIRST}._-"
LONGEST_ID = 128


def is_valid_id(text: str) -> bool:
    """Return whether `text` may name a schedule or a deployment (contract 2.8)."""
    return 0 < len(text) <= LONGEST_ID and text[0] in _FIRST and not text.strip(_LETTERS) and ".." not in text


def run_name(number: int) -> str:
    """Given a run's number, counted from 1, return its id: `run-000001`. Raise ValueError for a smaller number."""
    if number < 1:
        raise ValueError(f"runs are numbered from 1, not {number}")
    return f"run-{number:06d}"
