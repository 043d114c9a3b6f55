"""The completion scripts that are shipped, loaded in the real shells: names, options, words and live ids."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

PROJECT = Path(__file__).parents[2]
SCRIPTS = PROJECT / "completions"
#: a line, and what a shell is to offer for its last word, in this order where the shell keeps it
CASES = {
    "wfctl sched": ["schedule", "schedules"],
    "wfctl schedule re": ["resume", "revisions"],
    "wfctl schedule add --max-": ["--max-active-runs", "--max-run", "--max-steps"],
    "wfctl schedule add x --overlap ": ["skip", "queue", "parallel"],
    "wfctl schedule add x --overlap=q": ["--overlap=queue"],
    "wfctl schedule add x --timezone Europe/Buda": ["Europe/Budapest"],
    "wfctl run show run-000001 -o js": ["json", "jsonl"],
    "wfctl schedule show n": ["nightly", "noon.report"],
    "wfctl schedule pause nightly noon.": ["noon.report"],
    "wfctl deployment show report.": ["report.daily", "report.default"],
    "wfctl schedule add x --deployment rep": ["report.daily", "report.default"],
    "wfctl occurrence show noon": ["noon.report"],
    "wfctl runs --status ski": ["skipped-overlap", "skipped-misfire"],
    "wfctl run logs run-": ["run-000002", "run-000001"],
    "wfctl --store other schedule show ": ["elsewhere"],
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Make a store of which only file names are there, and `wfctl` on the path."""
    for name in ("schedules/nightly", "schedules/noon.report", "deployments/report.default", "deployments/report.daily"):
        path = tmp_path / "store" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not read [")
    for number in (1, 2):
        (tmp_path / f"store/runs/run-{number:06}").mkdir(parents=True)
    (tmp_path / "other/schedules").mkdir(parents=True)
    (tmp_path / "other/schedules/elsewhere.toml").touch()
    program = tmp_path / "bin/wfctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wfctl "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8", "TERM": "dumb",
        "PYTHONPATH": str(PROJECT), "WFCTL_STORE": str(tmp_path / "store"), "PS1": "> ",
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def offered_while_typing(shell: list[str], load: str, environ: dict[str, str]) -> None:
    """Type each line at a shell that has loaded its script, ask for completion, and wait until everything offered is there."""
    with Terminal(shell, environ, columns=200) as terminal:
        terminal.type(f"{load}; echo re''ady\n")
        terminal.wait_for("ready\n")
        for line, words in CASES.items():
            begin = len(terminal.text)
            terminal.type(f"{line}\t")

            def is_there(text: str, begin: int = begin, words: list[str] = words) -> bool:
                shown = text[begin:].replace("\x07", "")
                return set(words) <= set(shown.split()) if len(words) > 1 else f"{words[0]} " in shown

            terminal.wait_for(is_there)
            terminal.type("\x15")  # leaves the line empty


@needs("bash")
def test_bash_completes(environ: dict[str, str], folder: Path) -> None:
    script = shlex.quote(str(SCRIPTS / "wfctl.bash"))
    load = f"source {script}; bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'"
    offered_while_typing(["bash", "--norc", "--noprofile", "-i"], load, environ)


@needs("zsh")
def test_zsh_completes(environ: dict[str, str], folder: Path) -> None:
    load = f"fpath=({shlex.quote(str(SCRIPTS))} $fpath); autoload -U compinit; compinit -u -D; unsetopt list_ambiguous"
    offered_while_typing(["zsh", "-f", "-i"], load, environ)


@needs("fish")
def test_fish_completes(environ: dict[str, str], folder: Path) -> None:
    for line, words in CASES.items():
        asked = f"source {shlex.quote(str(SCRIPTS / 'wfctl.fish'))}; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", asked], env=environ, capture_output=True, text=True, timeout=60, check=True
        )
        assert [row.split("\t")[0] for row in done.stdout.splitlines()] == words, line
