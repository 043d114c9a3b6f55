"""A file system of a few megabytes and a few dozen files, which is soon full (for FR-15)."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.image import end_users_of


def why_not(folder: Path) -> str | None:
    """Return why no small tmpfs can be mounted here, or None where it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    try:
        with small_tmpfs(folder):
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"no tmpfs can be mounted here: {error}"


@contextlib.contextmanager
def small_tmpfs(root: Path, size: str = "8m", inodes: int = 64) -> Iterator[Path]:
    """Mount an empty tmpfs at that directory, which is made; take it away at the end, with whoever uses it."""
    root.mkdir(exist_ok=True)
    options = f"size={size},nr_inodes={inodes},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], check=True, capture_output=True)
    try:
        yield root
    finally:
        end_users_of(root / "store")
        subprocess.run(["umount", "-l", str(root)], check=False, capture_output=True)


def fill_bytes(root: Path) -> Path:
    """Write one file until nothing more goes in; return it."""
    path = root / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for block in (65536, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * block)
    return path


def fill_inodes(root: Path) -> list[Path]:
    """Make empty files until no more can be made; return them."""
    made: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            path = root / f"ballast-{len(made)}"
            path.touch(exist_ok=False)
            made.append(path)
    return made
