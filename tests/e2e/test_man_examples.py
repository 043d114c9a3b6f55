"""Every line under EXAMPLES of the manual pages is executed, in order, on a store with a past, and ends as its page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import wait_for
from tests.support.story import FakeClock
from tests.support.terminal import Terminal
from tools import manpages
from wfctl import SupervisorService, init_store, open_store
from wfctl.cli.app import run

PROJECT = Path(__file__).parents[2]
SETTINGS = {"supervisor": {"drain_grace_s": 0.0}, "runs": {"min_free": "0"}}
PAGES = {page.words: page for page in manpages.pages()}
GENERATED = [words for words in PAGES if words not in manpages.BY_HAND]
ASKS = """[ -e "$WFCTL_RESUME" ] || { echo '{"message": "publish it?"}' > "$WFCTL_INTERRUPT"; exit 75; }"""
FILES = {
    "report.py": "print('a report')\n",
    "schema.json": '{"type": "object"}\n',
    "crontab.txt": "30 2 * * * /bin/true\n",
    "nightly.toml": 'format = 1\ndeployment = "dump"\n[trigger]\nkind = "cron"\nexpression = "15 4 * * *"\n',
    "pipeline.toml": 'format = 1\n[[steps]]\nname = "one"\ncommand = ["/bin/true"]\n',
}


def _make(root: Path) -> None:
    """Make a store with a past: runs 1 (completed), 2 (waits for input) and 3 (failed), and a night that was missed."""
    clock = FakeClock(datetime(2026, 11, 26, 23, 50, tzinfo=UTC))
    with init_store(root):
        pass
    with open_store(root, clock=clock) as store, SupervisorService(store, SETTINGS) as service:
        store.create_deployment(deployment_id="dump", command=["/bin/true"])
        report: dict[str, Any] = {"command": ["/bin/echo", "a report"], "timeout": "5m"}
        store.create_deployment(deployment_id="report", **report)
        store.update_deployment(deployment_id="report", expected_revision=1, description="Sales of the day")
        store.update_deployment(deployment_id="report", expected_revision=2, retries=2)
        store.create_deployment(deployment_id="old-report", command=["/bin/true"])
        store.create_deployment(deployment_id="broken", command=["/nonexistent/program"])
        store.create_deployment(deployment_id="publish", command=["/bin/sh", "-c", ASKS])
        store.create_deployment(deployment_id="fails", command=["/bin/false"])
        trigger = {"kind": "cron", "expression": "0 2 * * *", "timezone": "Europe/Paris"}
        store.create_schedule(schedule_id="nightly", deployment_id="dump", trigger=trigger)
        store.update_schedule(schedule_id="nightly", expected_revision=1, notes="For the finance team")
        trigger["expression"] = "30 2 * * *"
        store.update_schedule(schedule_id="nightly", expected_revision=2, trigger=trigger)
        hourly = {"kind": "cron", "expression": "0 * * * *"}
        store.create_schedule(schedule_id="hourly-report", deployment_id="report", trigger=hourly, paused=True)
        for schedule_id, deployment_id, minute in (("releases", "publish", 40), ("checks", "fails", 50)):
            at = {"kind": "oneshot", "at": f"2026-11-27T01:{minute}:00Z"}
            store.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=at)
        for number, minute, status in ((1, 30, "completed"), (2, 40, "interrupted"), (3, 50, "failed")):
            clock.set(datetime(2026, 11, 27, 1, minute, tzinfo=UTC))

            def has_ended(run_id: str = f"run-{number:06}", status: str = status) -> bool:
                service.step()
                return store.inspect_run(run_id=run_id).status == status

            wait_for(has_ended, what=f"run {number} {status}")
        store.resume_schedule(schedule_id="hourly-report")
        clock.set(datetime(2026, 11, 28, 2, 30, tzinfo=UTC))  # past the lateness of the night
        service.step()


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("past") / "store"
    _make(root)
    return root


class Reader:
    """Somebody who types the lines of a page, in a folder with the files that they name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.root = folder / "store"
        tools = folder / "bin"
        for directory in (folder / "home", folder / "tmp", tools):
            directory.mkdir()
        self._program(tools / "wfctl", f'exec {shlex.quote(sys.executable)} -m wfctl "$@"')
        self._program(tools / "crontab", "cat crontab.txt")
        for name, text in FILES.items():
            (folder / name).write_text(text)
        for name in [name for name in os.environ if name.startswith(("WFCTL_", "XDG_"))]:
            monkeypatch.delenv(name)
        environ = {
            "WFCTL_STORE": str(self.root), "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": str(PROJECT), "PATH": f"{tools}:{os.environ['PATH']}", "LANG": "C.UTF-8",
        }  # fmt: skip
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - as long as the test
        monkeypatch.setattr(sys, "argv", [str(tools / "wfctl")])

    @staticmethod
    def _program(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def store(self, kind: str, past: Path) -> None:
        """Put the store there on which the lines are to work."""
        if kind == "past":
            shutil.copytree(past, self.root, ignore=shutil.ignore_patterns("*.sock"))
        elif kind == "empty":
            self.type("wfctl init -q", [0])

    def type(self, line: str, expected: list[int], how: str = "") -> None:
        """Run a line to its end. In this process where it is plain: that is what keeps the test quick."""
        line = line.replace("\\\n", " ")
        words = shlex.split(line)
        is_plain = words[0] == "wfctl" and not re.search(r"[|<>$~\n]", line)
        if how == "interrupt":
            status = self._interrupted(words)
        elif how == "terminal":
            status = self._answered(words)
        elif is_plain and words[1] not in ("demo", "run"):
            status = run(words[1:])
        else:
            shell = ["bash", "-euo", "pipefail", "-c", line]
            status = subprocess.run(shell, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode
        assert status in expected, line

    def _answered(self, words: list[str]) -> int:
        with Terminal(words, dict(os.environ)) as terminal:
            terminal.wait_for("[y/N]")
            terminal.type("y\n")
            return terminal.end().status

    def _interrupted(self, words: list[str]) -> int:
        seen = self.folder / "seen"
        first = b"ready:" if "supervise" in words else b"\n"
        with seen.open("wb") as out, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
            wait_for(lambda: first in seen.read_bytes() or process.poll() is not None, what="its first words")
            process.send_signal(signal.SIGINT)
            return process.wait(20)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


@pytest.mark.parametrize("words", GENERATED)
def test_every_example_of_a_command_ends_as_its_page_says(words: str, reader: Reader, past: Path) -> None:
    page = PAGES[words]
    reader.store(page.extra.get("begin", "past"), past)
    for line in page.extra.get("setup", []):
        reader.type(line, [0])
    with ExitStack() as stack:
        if any(example.get("how") == "supervisor" for example in page.examples()):
            service = stack.enter_context(SupervisorService(stack.enter_context(open_store(reader.root)), SETTINGS))
            service.start()
        for example in page.examples():
            reader.type(example["line"], example.get("statuses", [example.get("status", 0)]), example.get("how", ""))


# Pages that are written by hand -------------------------------------------------------------------------------------------

_TYPED = {r"\-": "-", r"\(aq": "'", r"\(dq": '"', r"\e": "\\"}


def lines_of(name: str) -> list[str]:
    """Return the lines under EXAMPLES of a page as somebody would type them."""
    section = (manpages.MAN / name).read_text("utf-8").partition(".Sh EXAMPLES\n")[2].partition("\n.Sh ")[0]
    blocks = "\n".join(re.findall(r"^\.Bd -literal.*\n((?:(?!\.Ed).*\n)+)\.Ed", section, re.MULTILINE))
    typed = re.sub(r"\\(?:-|e|\(..)", lambda found: _TYPED[found[0]], blocks)
    return [line for line in typed.replace("\\\n", " ").splitlines() if line]


@pytest.mark.parametrize(("name", "begin"), [("wfctl.1", "none"), ("wfctl-supervise.8", "past")])
def test_every_example_of_a_page_by_hand_succeeds(name: str, begin: str, reader: Reader, past: Path) -> None:
    reader.store(begin, past)
    lines = lines_of(name)
    assert len(lines) > 2
    for line in lines:
        endless = re.fullmatch(r"wfctl supervise( --max\S+ \d+)?", line)
        reader.type(line, [69] if line == "wfctl status" else [0], "interrupt" if endless else "")


@pytest.mark.parametrize("words", GENERATED)
def test_every_command_has_an_example_and_lists_the_statuses_of_its_examples(words: str) -> None:
    page = PAGES[words]
    assert page.examples()
    ends = {status for example in page.examples() for status in example.get("statuses", [example.get("status", 0)])}
    assert ends - {130} <= set(manpages.exit_statuses(page))
