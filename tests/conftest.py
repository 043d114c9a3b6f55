"""Where the tests put their files: in memory where there is room, since thousands of commits are synced.

The processes of a run also share the work of compiling the test modules, which would take each of them several seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  #: bytes that must be free there
_made = pytest.StashKey[list[str]]()
_bytecode = pytest.StashKey[str | None]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder below which every `tmp_path` lies; `--basetemp DIR` goes over it, and keeps what failed."""
    config.stash[_made] = []
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # in the background of a shell; what is started would inherit it
            signal.signal(number, usual)
    worker = getattr(config, "workerinput", None)
    if worker is not None and worker.get("bytecode"):
        sys.pycache_prefix, sys.dont_write_bytecode = worker["bytecode"], False
    if worker is None and config.option.basetemp is None and _is_fit():
        config.option.basetemp = _folder(config, _MEMORY)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back, and end what was started for all tests."""
    forks.close_all()
    for folder in config.stash[_made]:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Compile the test modules once, before the processes that share a run begin."""
    stash = node.config.stash
    if _bytecode not in stash:
        stash[_bytecode] = _compiled(node.config)
    node.workerinput["bytecode"] = stash[_bytecode]


def _compiled(config: pytest.Config) -> str | None:
    """Compile all test modules unless that was done; return the folder of the bytecode where none may lie beside the code."""
    here = Path(__file__).parent
    if config.args != config.getini("testpaths"):
        return None
    folder = _folder(config, _MEMORY if _is_fit() else None) if sys.dont_write_bytecode else None
    if folder is not None or not any(here.rglob("*-pytest-*.pyc")):
        paths, share = sorted(here.rglob("test_*.py")), os.cpu_count() or 1
        for pid in [_compile(paths[number::share], folder) for number in range(share)]:
            os.waitpid(pid, 0)
    return folder


def _compile(paths: Sequence[Path], folder: str | None) -> int:
    """Import modules in a process of their own, which compiles them as pytest wants them; return its pid."""
    pid = os.fork()
    if pid == 0:
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
        for path in paths:
            sys.path.insert(0, str(path.parent))
            with contextlib.suppress(BaseException):  # its collection says what is wrong
                importlib.import_module(path.stem)
        os._exit(0)
    return pid


def _folder(config: pytest.Config, parent: Path | None) -> str:
    """Make a folder that is gone at the end of the run."""
    made = tempfile.mkdtemp(prefix="wfctl-pytest-", dir=parent)
    config.stash[_made].append(made)
    return made


def _is_fit() -> bool:
    """Tell whether programs may be started there, and there is room."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _ROOM and os.access(_MEMORY, os.W_OK)
