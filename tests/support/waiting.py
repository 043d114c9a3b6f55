"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], what: str, within_s: float = 20.0) -> _T:
    """Return the first true value of the condition. Fail the test when it stays false."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s:g} s in vain: {what}")
        time.sleep(0.005)
