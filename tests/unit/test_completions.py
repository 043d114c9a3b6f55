"""The completion scripts that are shipped are those the command tree gives (style guide 8), and they complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from tools.generate import SHELLS
from wfctl.cli.app import root
from wfctl.cli.completion import script

PROJECT = Path(__file__).parents[2]


def test_each_shell_has_its_script() -> None:
    assert sorted(path.name for path in (PROJECT / "completions").iterdir()) == sorted(SHELLS.values())
    for shell, name in SHELLS.items():  # that they are fresh is for test_project.py to say
        assert script(shell).strip() == (PROJECT / "completions" / name).read_text("utf-8").strip()


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


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param(["schedule", "add", "x", "--misfire", ""], ["skip", "latest"], id="policies"),
        pytest.param(["schedule", "add", "x", "--max-run", "a"], ["auto"], id="words beside durations"),
        pytest.param(["schedules", "--state", "paused,"],
                     ["paused,active", "paused,blocked", "paused,finished", "paused,deleted"],
                     id="the next word of a list, none twice"),
        pytest.param(["occurrences", "--status", "failed,c"], ["failed,coalesced", "failed,completed", "failed,cancelled"],
                     id="statuses"),
        pytest.param(["occurrence", "wait", "n@", "--for", "r"], ["running"], id="one status"),
        pytest.param(["store", "verify", "--fix", "two"], ["two-unsettled"], id="contradictions"),
        pytest.param(["rpc", "call", "workflow.runs.s"], ["workflow.runs.start"], id="methods"),
        pytest.param(["help", "revision-c"], ["revision-conflict"], id="words of help"),
    ],
)  # fmt: skip
def test_words_that_are_known_are_offered(words: list[str], offered: list[str]) -> None:
    complete = BashComplete(root, {}, "wfctl", "_WFCTL_COMPLETE")
    assert [item.value for item in complete.get_completions(words[:-1], words[-1])] == offered


def test_an_option_and_its_value_in_one_word_are_three_to_bash() -> None:
    assert completed("wfctl", "schedule", "show", "n", "--output", "=", "na") == ["name"]
    assert completed("wfctl", "schedule", "show", "n", "--output", "=") == ["table", "plain", "json", "jsonl", "csv", "name"]


def test_a_store_that_is_not_there_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    assert completed("wfctl", "schedule", "show", "", environ={"WFCTL_STORE": str(tmp_path / "none")}) == [""]
