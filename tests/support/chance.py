"""How often chance is asked: some times in every run of the suite, many more by hand (`WFCTL_TEST_MORE=10`)."""

from __future__ import annotations

import os

_MORE = int(os.environ.get("WFCTL_TEST_MORE", "1"))


def times(usual: int) -> int:
    """Return how many rounds, seeds or examples are tried of a test that tries so many as a rule."""
    return usual * _MORE
