"""The completion scripts that are shipped are those the command tree gives (style guide 8), and they complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wfctl.cli.completion import script

PROJECT = Path(__file__).parents[2]
FILES = {"bash": "wfctl.bash", "zsh": "_wfctl", "fish": "wfctl.fish"}


@pytest.mark.parametrize("shell", sorted(FILES))
def test_the_shipped_script_equals_a_fresh_generation(shell: str) -> None:
    shipped = (PROJECT / "completions" / FILES[shell]).read_text("utf-8")
    assert shipped == script(shell).strip() + "\n", "generate completions/ anew, with the command that README.md names"


def test_no_other_script_is_shipped() -> None:
    assert sorted(path.name for path in (PROJECT / "completions").iterdir()) == sorted(FILES.values())


def completed(*words: str, environ: dict[str, str] | None = None) -> list[str]:
    """Return what bash is offered for the last of these words."""
    asked = {"_WFCTL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    answer = subprocess.run(
        [sys.executable, "-m", "wfctl"],
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(environ or {}), **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in answer.stdout.splitlines()]


def test_commands_are_completed() -> None:
    assert completed("wfctl", "sched") == ["schedule", "schedules"]


def test_ids_are_completed_from_file_names(tmp_path: Path) -> None:
    (tmp_path / "schedules").mkdir()
    for name in ("nightly", "noon", "weekly"):
        (tmp_path / "schedules" / f"{name}.toml").touch()
    offered = completed("wfctl", "schedule", "show", "n", environ={"WFCTL_STORE": str(tmp_path)})
    assert offered == ["nightly", "noon"]
