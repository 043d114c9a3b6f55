"""A real supervisor tells a real command that a schedule's health changed (contract 7.8)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for

TELL = """#!/bin/sh
cat >"$0.$$" && cat "$0.$$" >>"$0.events" && rm "$0.$$"
"""


@pytest.fixture
def wfctl(tmp_path: Path) -> Wfctl:
    command = Wfctl(tmp_path / "store", tmp_path)
    command.ok("init")
    return command


@pytest.fixture
def tell(tmp_path: Path) -> Path:
    """A command that keeps what it is told, one event a line."""
    script = tmp_path / "tell"
    script.write_text(TELL)
    script.chmod(0o755)
    return script


def events(tell: Path) -> list[dict[str, Any]]:
    """What was told so far."""
    kept = Path(f"{tell}.events")
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def words(tell: Path) -> list[str]:
    return [event["event"] for event in events(tell)]


def backup_of(wfctl: Wfctl, tell: Path, broken: Path) -> None:
    """A backup each second that fails while a file is there, and a command that is told."""
    job = f'echo "no space left" >&2; test ! -e {broken}'
    wfctl.ok("deployment", "add", "copy", "--", "/bin/sh", "-c", job)
    (wfctl.root / "wfctl.toml").write_text(f'[notify]\ncommand = ["{tell}"]\n')
    wfctl.ok("schedule", "add", "backup", "--deployment", "copy", "--every", "1s")


def test_7_8_be_told_when_the_backup_breaks_once(wfctl: Wfctl, tell: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    backup_of(wfctl, tell, broken)
    with wfctl.supervisor():
        wait_for(lambda: wfctl.ok("runs", "--status", "completed", "-o", "name").out, "a run that works")
        broken.touch()
        wait_for(lambda: len(wfctl.ok("runs", "--status", "failed", "-o", "name").out.split()) >= 3, "three that fail")
        broken.unlink()
        wait_for(lambda: words(tell) == ["failed", "recovered"], "it is told twice")
    failed, recovered = events(tell)
    assert failed["schema"] == "wfctl/event.v1" and failed["schedule_id"] == "backup"
    assert failed["stderr_tail"].endswith("no space left\n") and failed["reason"]["exit_status"] == 1
    assert recovered["failures"] >= 3
    command = failed["message"].partition("See: wfctl ")[2].split()
    assert wfctl.ok(*command).out == "no space left\n", "the command that it names works"


def test_7_8_what_could_not_be_told_survives_a_kill_and_is_told_by_the_next(wfctl: Wfctl, tell: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    backup_of(wfctl, tell, broken)
    tell.chmod(0o644)  # it cannot be executed
    with wfctl.supervisor() as process:
        wait_for(lambda: wfctl("status", "-o", "json").json["problems"], "status shows that nobody could be told")
        problems = wfctl("status", "-o", "json").json["problems"]
        assert [problem["code"] for problem in problems] == ["notify"] and str(tell) in problems[0]["message"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
    tell.chmod(0o755)
    with wfctl.supervisor():
        wait_for(lambda: words(tell), "it is told after all")
        wait_for(lambda: not wfctl("status", "-o", "json").json["problems"], "and status is content")
    assert words(tell) == ["failed"]


def test_7_8_a_command_that_hangs_delays_nothing_and_is_no_child_of_the_supervisor(
    wfctl: Wfctl, tell: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    backup_of(wfctl, tell, broken)
    tell.write_text('#!/bin/sh\ncat >/dev/null; echo $PPID >"$0.parent"; exec sleep 60\n')
    with wfctl.supervisor() as process:
        parent = Path(f"{tell}.parent")
        wait_for(lambda: parent.exists() and parent.read_text().strip(), "it hangs")
        before = len(wfctl.ok("runs", "-o", "name", "--all").out.split())
        wait_for(lambda: len(wfctl.ok("runs", "-o", "name", "--all").out.split()) >= before + 2, "runs go on")
        assert int(parent.read_text()) != process.pid
        keeper = Path(f"/proc/{int(parent.read_text())}/comm").read_text().strip()
        assert keeper == "wfctl-keeper"
