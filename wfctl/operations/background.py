"""The process that drives one run where no supervisor lives: `python -m wfctl.operations.background STORE NUMBER LOCK`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(root: str, number: str, lock: str) -> int:
    """Take the run over with the lock that was inherited as descriptor `lock`, let the starter go on, drive it to its end."""
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        return 0 if os.read(ready, 1) == b"+" else 1
    os.close(ready)
    os.setsid()
    if os.fork():
        os._exit(0)
    _drive(Path(root), int(number), int(lock), told)
    return 0


def _drive(root: Path, number: int, lock: int, told: int) -> None:
    from wfctl.operations.runs import LocalDriver
    from wfctl.operations.store import open_store

    with open_store(root) as store:
        local = LocalDriver.take_over(store.context, number, inherited=lock)
        os.write(told, b"+")
        os.close(told)
        with open(os.devnull, "r+b") as nothing:
            for descriptor in (0, 1, 2):
                os.dup2(nothing.fileno(), descriptor)
        try:
            while not local.is_over:
                local.step(60.0)
        finally:
            local.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
