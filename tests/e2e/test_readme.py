"""README.md tried as a newcomer tries it: its sessions show what one sees, and each command that it names is there."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from tests.support.transcript import Shell, blocks, differs
from wfctl.cli.app import root as command_tree
from wfctl.cli.base import COMMON_OPTIONS
from wfctl.cli.help import text_of

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text("utf-8")
ATTEMPTS = 3  #: a session whose jobs take seconds may come out otherwise on a machine that stands still for one


def played(folder: Path) -> str | None:
    """Run all sessions in order in a new place; return what differs from what is shown, or None."""
    home, bin_ = folder / "home", folder / "bin"
    for each in (folder, home, bin_):
        each.mkdir()
    (folder / "config").symlink_to(PROJECT / "config")
    for name, words in (("wfctl", "-m wfctl "), ("python3", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (bin_ / name).chmod(0o755)
    environ = {
        "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100",
        "PYTHONPATH": str(PROJECT), "TERM": "dumb",
    }  # fmt: skip
    with Shell(folder, environ, {"/tmp/try": str(folder / "try"), "/home/ann": str(folder)}) as shell:
        for step in (step for block in blocks(README) for step in block):
            seen = shell.run(step)
            wrong = differs(step.shown, seen)
            if wrong is not None:
                return f"README.md, line {step.line}: $ {step.command}\n{wrong}\n\nall that was seen:\n" + "\n".join(seen)
    return None


def test_the_sessions_show_what_one_sees(tmp_path: Path) -> None:
    assert len(blocks(README)) >= 5
    wrong = None
    for attempt in range(ATTEMPTS):
        wrong = played(tmp_path / str(attempt))
        if wrong is None:
            return
    pytest.fail(str(wrong))


# What it names ------------------------------------------------------------------------------------------------------------


def named() -> list[str]:
    """The command lines that the prose, the tables and the blocks without a prompt give."""
    inline = re.findall(r"`((?:sudo )?wfctl [a-z][^`]*)`", README)
    blocks_ = re.findall(r"^```(?:\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks_ for line in block.replace("\\\n", " ").splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if re.match(r"(?:\$ )?(?:sudo )?wfctl [a-z]", line)]
    return sorted({it.removeprefix("sudo ") for it in [*inline, *typed]})


@pytest.mark.parametrize("line", named())
def test_every_command_it_names_is_there_with_its_options(line: str) -> None:
    words = shlex.split(re.split(r"\s[|>&]|\s#", line)[0])[1:]
    if words[0] == "help":
        assert text_of(words[1:])
        return
    command: click.Command = command_tree
    context = click.Context(command_tree, info_name="wfctl")
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]!r} in {line!r}"
        command, words = found, words[1:]
    known = {name for param in [*command.params, *COMMON_OPTIONS] for name in param.opts}
    own = words[: words.index("--")] if "--" in words else words
    unknown = [word for word in own if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in known]
    assert unknown == []


def test_there_is_an_answer_for_each_of_the_usual_questions() -> None:
    section = README.partition("\n## Answers\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= 10
    assert all(re.search(r"`(?:sudo )?wfctl |Ctrl-C", row) for row in rows)
