"""Where the tests put their files: in memory where there is room, since thousands of commits are synced."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  #: bytes that must be free there
_made = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder below which every `tmp_path` lies; `--basetemp DIR` goes over it, and keeps what failed."""
    if config.option.basetemp is None and "PYTEST_XDIST_WORKER" not in os.environ and _is_fit():
        config.stash[_made] = config.option.basetemp = tempfile.mkdtemp(prefix="wfctl-pytest-", dir=_MEMORY)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back."""
    if _made in config.stash:
        shutil.rmtree(config.stash[_made], ignore_errors=True)


def _is_fit() -> bool:
    """Tell whether programs may be started there, and there is room."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _ROOM and os.access(_MEMORY, os.W_OK)
