"""With the supervisor: what it admits, how it is, and the demo (contract 8.1, 8.2, 11.4, 11.5)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for


def test_without_a_supervisor_its_commands_say_so(wfctl: Wfctl) -> None:
    for words in (["status"], ["reload"]):
        done = wfctl(*words)
        assert (done.status, done.out) == (69, "")
        assert "wfctl supervise" in done.err


def test_occurrences_are_admitted_listed_and_shown(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "quick", "--", "/bin/true")
    wfctl.ok("deployment", "add", "slow", "--kill-grace", "1s", "--", "/bin/sleep", "60")
    with wfctl.supervisor():
        status = wfctl("status")
        assert status.status == 0
        assert "supervisor: ready (pid " in status.out
        wfctl.ok("schedule", "add", "tick", "--deployment", "quick", "--every", "1s")
        wfctl.ok("schedule", "add", "wait", "--deployment", "slow", "--every", "1s", "--overlap", "queue")

        def names(*words: str) -> list[str]:
            return wfctl.ok("occurrences", *words, "-o", "name").out.split()

        wait_for(lambda: len(names("tick", "--status", "completed")) >= 3, "three completed occurrences")
        wait_for(lambda: names("wait", "--status", "pending"), "a held candidate")
        document = wfctl.ok("occurrences", "tick", "--limit", "1", "-o", "json")
        occurrence = document.json["items"][0]
        keys = ["schedule_id", "instant", "status", "run_id", "revision", "lateness_s", "reason", "span", "recorded_at"]
        assert set(keys) <= set(occurrence)  # contract 8.7
        command = document.err.split("next page: wfctl ", 1)[1].split()
        assert wfctl.ok(*command).json["items"][0]["instant"] > occurrence["instant"]
        first = wfctl.ok("occurrences", "tick", "wait", "--limit", "2", "-o", "json").json["items"]
        assert first[0]["status"] == "pending", "a held candidate stands on top (8.1)"
        name = f"tick@{occurrence['instant']}"
        shown = wfctl.ok("occurrence", "show", name)
        assert "completed" in shown.out
        assert occurrence["run_id"] in shown.out
        assert wfctl.ok("occurrence", "show", name, "-o", "name").out == f"{name}\n"
        assert wfctl("occurrence", "show", "tick@2020-01-01T00:00:00Z").status == 66
        assert wfctl("occurrence", "show", "tick").status == 2
        assert wfctl.ok("reload").out.startswith("reloaded")
        assert "held" in wfctl.ok("schedule", "show", "wait").out
        assert "run-" in wfctl.ok("schedule", "show", "wait", "-o", "json").json["active_runs"][0]
        plain = wfctl.ok("occurrences", "--limit", "100").out.splitlines()
        assert plain[0].split()[:2] == ["SCHEDULE", "INSTANT"]
        everything = names("--all")
        assert len(everything) == len(set(everything))
        started = wfctl.ok("run", "start", "quick")
        assert "completed" in started.err
        with wfctl.terminal("run", "start", "slow") as terminal:
            terminal.wait_for("started")
            terminal.type("\x03")
            seen = terminal.end()
        assert seen.status == 130
        assert "goes on under the supervisor" in seen.text
        lock = wfctl("supervise")
        assert lock.status == 75  # contract 2.6
        assert "pid" in lock.err
        wfctl.ok("schedule", "pause", "tick", "wait", "-y")
        for run in wfctl.ok("runs", "--status", "running", "--deployment", "slow", "-o", "name").out.split():
            wfctl.ok("run", "cancel", run, "--yes")
        wait_for(lambda: not wfctl.ok("runs", "--status", "admitted,running", "-o", "name").out, "nothing runs")
    assert wfctl("status").status == 69


def test_limits_and_cursors_of_occurrences(wfctl: Wfctl) -> None:
    for limit in ("0", "101", "-1"):
        assert wfctl("occurrences", "--limit", limit).status == 2  # contract 8.1
    assert wfctl("occurrences", "--cursor", "c1.nonsense").status == 65  # contract 8.2
    assert wfctl("occurrences", "nope").status == 66
    assert wfctl("occurrences", "--status", "skiped-overlap").status == 2
    assert wfctl.ok("occurrences", "-o", "json").json == {"schema": "wfctl/occurrences.v1", "items": [], "next_cursor": None}
    assert wfctl.ok("occurrences", "-o", "jsonl").out == ""


def test_a_supervisor_until_idle_ends_when_its_one_shot_is_done(wfctl: Wfctl) -> None:
    from datetime import UTC, datetime, timedelta

    wfctl.ok("deployment", "add", "quick", "--", "/bin/true")
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    wfctl.ok("schedule", "add", "once", "--deployment", "quick", "--at", soon)
    wfctl.ok("supervise", "--until-idle")
    assert [item["status"] for item in wfctl.ok("occurrences", "-o", "json").json["items"]] == ["completed"]
    assert wfctl.ok("schedule", "show", "once", "-o", "json").json["state"] == "finished"
    assert "no instants to come" in wfctl.ok("schedule", "show", "once").out


def test_bad_settings_are_refused_with_78(wfctl: Wfctl) -> None:
    assert wfctl("supervise", "--max-concurrent-runs", "0").status == 78
    assert wfctl("supervise", "--log-format", "xml").status == 2


def test_the_demo_shows_and_checks_itself(bare: Wfctl, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    done = bare.ok("demo", TMPDIR=str(temporary))
    last = done.out.splitlines()[-1]
    assert last.startswith("demo: ")
    assert last.endswith(" \u2013 as expected")
    assert "skipped-overlap" in done.out
    assert "run-000001" in done.out
    assert "supervisor pid" in done.err
    assert list(temporary.iterdir()) == [], "nothing is left"
    assert not bare.root.exists(), "the store of others is let be"


def test_the_demo_keeps_its_store_when_asked(bare: Wfctl, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    document = bare.ok("demo", "--keep", str(kept), "-o", "json").json
    assert document["as_expected"] is True
    assert document["problems"] == []
    listed = bare.ok("--store", str(kept / "store"), "occurrences", "--all", "-o", "name").out.split()
    assert len(listed) == len(document["occurrences"])
    assert bare("demo", "--keep", str(kept)).status == 73


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_cleans_up_when_it_is_ended(bare: Wfctl, tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    process = subprocess.Popen(
        bare.argv("demo"),
        env={**bare.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = ""
    while "skipping@" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    supervisor = int(seen.split("supervisor pid ")[1].split()[0])
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 128 + number  # contract 11.6
    assert "Traceback" not in rest
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(supervisor, 0)
