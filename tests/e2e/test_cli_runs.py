"""Runs from the command line: started by hand, followed, looked at, cancelled (contract 6.12, 6.14, 8.4, 8.6)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for

BYTES = b"caf\xc3\xa9 \xff\x1b[31mred\x1b[0m\r\n\x00\xe2\x80\xaeend"


@pytest.fixture
def jobs(wfctl: Wfctl, tmp_path: Path) -> Wfctl:
    """A store with jobs that talk, fail, wait and loop."""
    raw = tmp_path / "raw"
    raw.write_bytes(BYTES)
    wfctl.ok("deployment", "add", "talk", "--", "/bin/sh", "-c", "echo to stdout; echo to stderr >&2")
    wfctl.ok("deployment", "add", "raw", "--", "/bin/cat", str(raw))
    wfctl.ok("deployment", "add", "fail", "--", "/bin/sh", "-c", "echo before; exit 3")
    wfctl.ok("deployment", "add", "kill", "--", "/bin/sh", "-c", "kill -9 $$")
    stop = tmp_path / "stop"
    loop = f"echo begun; i=0; while [ ! -e {stop} ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo ended"
    wfctl.ok("deployment", "add", "loop", "--kill-grace", "2s", "--", "/bin/sh", "-c", loop)
    return wfctl


def test_a_run_started_by_hand_is_followed_and_its_outcome_passed_on(jobs: Wfctl) -> None:
    done = jobs.ok("run", "start", "talk")
    assert done.out == "to stdout\n"
    assert "to stderr\n" in done.err
    assert "run-000001 started" in done.err
    assert "run-000001 completed" in done.err
    failed = jobs("run", "start", "fail", "-q")
    assert (failed.status, failed.out, failed.err) == (1, "before\n", "")  # contract 11.6
    document = jobs("run", "start", "fail", "-o", "json")
    assert (document.status, document.json["status"], document.json["exit_status"]) == (1, "failed", 3)
    killed = jobs("run", "start", "kill")
    assert killed.status == 1
    assert "ended by SIGKILL" in killed.err
    view = jobs.ok("run", "show", "run-000002", "-o", "json").json
    keys = [
        "run_id",
        "kind",
        "schedule_id",
        "instant",
        "revision",
        "deployment_id",
        "deployment_revision",
        "status",
        "attempt",
        "started_at",
        "ended_at",
        "exit_status",
        "signal",
        "reason",
        "max_run_s",
        "overdue",
        "input",
        "output",
        "checkpoint",
        "interrupt",
        "trace",
    ]
    assert set(keys) <= set(view)  # contract 8.7
    assert (view["schema"], view["kind"], view["status"], view["exit_status"]) == ("wfctl/run.v1", "manual", "failed", 3)
    assert view["reason"]["code"] == "exit"
    shown = jobs.ok("run", "show", "run-000002").out
    assert re.search(r"run-000002 +failed +manual", shown)
    assert "exit 3" in shown


def test_a_run_that_cannot_start_is_an_error_and_no_run(jobs: Wfctl) -> None:
    jobs.ok("deployment", "add", "absent", "--", "/no/such/program")
    done = jobs("run", "start", "absent")
    assert done.status == 65  # contract 6.12
    assert "/no/such/program" in done.err
    assert jobs("run", "start", "absent", "--dry-run").status == 65
    assert jobs.ok("run", "start", "talk", "--dry-run").out == ""
    assert jobs("run", "start", "tlak").status == 66
    assert jobs.ok("runs", "-o", "name").out == ""


def test_input_reaches_the_run(jobs: Wfctl, tmp_path: Path) -> None:
    jobs.ok("deployment", "add", "echo", "--", "/bin/sh", "-c", 'cat "$WFCTL_INPUT"; echo \'{"rows": 3}\' > "$WFCTL_OUTPUT"')
    done = jobs.ok("run", "start", "echo", "--input", "region=ż", "--input-json", '{"n": 1, "region": "us"}')
    assert json.loads(done.out) == {"region": "ż", "n": 1}
    view = jobs.ok("run", "show", "run-000001", "-o", "json").json
    assert (view["input"], view["output"]) == ({"region": "ż", "n": 1}, {"rows": 3})
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["region"], "properties": {"n": {"type": "integer"}}}')
    jobs.ok("deployment", "add", "strict", "--input-schema", str(schema), "--", "/bin/true")
    refused = jobs("run", "start", "strict", "--input", "n=x")
    assert refused.status == 65
    assert "region" in refused.err
    assert jobs("deployment", "check", "strict", "--input", "n=x").status == 1


def test_what_a_run_wrote_is_exact_in_a_pipe_and_escaped_at_a_terminal(jobs: Wfctl) -> None:
    done = jobs.bytes("run", "start", "raw", "-q")
    assert done.stdout == BYTES  # contract 8.6
    assert jobs.bytes("run", "logs", "run-000001").stdout == BYTES
    assert jobs.bytes("run", "logs", "run-000001", PYTHONIOENCODING="ascii").stdout == BYTES
    for words in (["run", "logs", "run-000001"], ["run", "start", "raw"]):
        seen = jobs.at_terminal(*words, NO_COLOR="1")
        assert "café \\xff\\x1b[31mred\\x1b[0m\n\\x00\\u202eend\n" in seen.text
        assert "\x1b[31m" not in seen.text
    assert "\x1b[31m" in jobs.at_terminal("run", "logs", "--raw", "run-000001").text


def test_logs_by_stream_and_by_lines(jobs: Wfctl) -> None:
    jobs("run", "start", "talk")
    assert jobs.ok("run", "logs", "run-000001").out == "to stdout\nto stderr\n"
    assert jobs.ok("run", "logs", "run-000001", "--stream", "err").out == "to stderr\n"
    assert jobs.ok("run", "logs", "run-000001", "--stream", "out", "-n", "0").out == ""
    many = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo line $i; done"
    jobs.ok("deployment", "add", "many", "--", "/bin/sh", "-c", many)
    jobs.ok("run", "start", "many")
    assert jobs.ok("run", "logs", "run-000002", "-n", "2").out == "line 499\nline 500\n"
    assert jobs("run", "logs", "run-000009").status == 66


def test_a_detached_run_is_followed_by_its_logs(jobs: Wfctl, tmp_path: Path) -> None:
    assert jobs.ok("run", "start", "loop", "--detach").out == "run-000001\n"
    with jobs.terminal("run", "logs", "-f", "run-000001") as terminal:
        terminal.wait_for("line 3")
        (tmp_path / "stop").touch()
        seen = terminal.end()
    assert seen.status == 0
    assert "ended\nrun-000001 completed\n" in seen.text


def test_ctrl_c_stops_the_following_and_not_the_run(jobs: Wfctl, tmp_path: Path) -> None:
    with jobs.terminal("run", "start", "loop") as terminal:
        terminal.wait_for("line 2")
        terminal.type("\x03")
        seen = terminal.end()
    assert seen.status == 130  # contract 11.7
    assert "run-000001 goes on in the background" in seen.text
    assert "Traceback" not in seen.text
    assert jobs.ok("run", "show", "run-000001", "-o", "json").json["status"] == "running"
    (tmp_path / "stop").touch()
    wait_for(
        lambda: jobs.ok("run", "show", "run-000001", "-o", "json").json["status"] == "completed",
        "the background process drives it on",
    )


def test_a_run_is_cancelled(jobs: Wfctl) -> None:
    jobs.ok("run", "start", "loop", "--detach")
    refused = jobs("run", "cancel", "run-000001")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert "would be cancelled" in jobs.ok("run", "cancel", "run-000001", "--dry-run").out
    jobs.ok("run", "cancel", "run-000001", "--yes", "--reason", "enough")

    def view() -> dict[str, object]:
        found: dict[str, object] = jobs.ok("run", "show", "run-000001", "-o", "json").json
        return found

    ended = wait_for(lambda: view()["status"] == "cancelled" and view(), "the run is cancelled")
    assert isinstance(ended, dict)
    assert ended["reason"]["code"] == "cancelled"
    assert "enough" in jobs.ok("run", "show", "run-000001").out
    assert jobs("run", "cancel", "run-000001", "--yes").status == 75
    assert jobs("run", "cancel", "run-000007", "--yes").status == 66


def test_runs_come_in_pages(jobs: Wfctl) -> None:
    for _ in range(5):
        jobs.ok("run", "start", "talk", "-q")
    first = jobs.ok("runs", "--limit", "2", "-o", "json")
    assert [item["run_id"] for item in first.json["items"]] == ["run-000001", "run-000002"]
    command = first.err.split("next page: wfctl ", 1)[1].split()
    second = jobs.ok(*command).json
    assert [item["run_id"] for item in second["items"]] == ["run-000003", "run-000004"]
    assert first.json["next_cursor"] in command
    assert jobs.ok("runs", "--all", "--limit", "1", "-o", "name").out.split() == [f"run-00000{n}" for n in range(1, 6)]
    whole = jobs.ok("runs", "--all", "--limit", "2", "-o", "json").json
    assert (len(whole["items"]), whole["next_cursor"]) == (5, None)
    for limit in ("0", "101", "-1"):
        assert jobs("runs", "--limit", limit).status == 2  # contract 8.1
    assert jobs("runs", "--limit", "2", "--status", "failed", "--cursor", first.json["next_cursor"]).status == 65
    assert jobs("runs", "--cursor", "garbled").status == 65
    assert jobs("runs", "--status", "complted").status == 2
    assert jobs.ok("runs", "--status", "failed", "-o", "name").out == ""
    assert len(jobs.ok("runs", "--since", "1h", "-o", "name").out.split()) == 5
    assert jobs.ok("runs", "--until", "1h", "-o", "name").out == ""
    assert jobs("runs", "--since", "2026-01-01T00:00:00").status == 2


@pytest.mark.skipif(sys.platform != "linux", reason="sparse files")
def test_what_is_gone_from_a_log_is_said(jobs: Wfctl) -> None:
    jobs.ok("run", "start", "talk", "-q")
    log = jobs.root / "runs" / "run-000001" / "stdout.log"
    with log.open("r+b") as file:
        file.seek(8 * 1024 * 1024)
        file.write(b"tail\n")
    done = jobs.bytes("run", "logs", "run-000001", "--stream", "out")
    if b"are gone" not in done.stderr:
        pytest.skip("this file system does not tell of gaps")
    assert b"MiB of this log are gone" in done.stderr  # contract 6.15
    assert done.stdout.startswith(b"to stdout\n")
    assert done.stdout.endswith(b"tail\n")
    assert len(done.stdout) < 100_000
