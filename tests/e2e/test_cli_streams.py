"""stdout is the answer, stderr the talk: pipes, terminals, colours, locales, prompts, ends (contract 8.5, 8.6, 11.6, 11.7)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for

LONG = "x" * 100


@pytest.fixture
def filled(wfctl: Wfctl) -> Wfctl:
    """A store with two schedules of long ids and notes."""
    wfctl.ok("deployment", "add", "dump", "--description", "żółw", "--", "/bin/true")
    for name in ("nightly-export-of-everything", "hourly"):
        wfctl.ok("schedule", "add", name, "--deployment", "dump", "--cron", "0 0 1 1 *", "--notes", f"notes [red]{LONG}")
    return wfctl


def test_a_pipe_gets_plain_columns_that_are_never_cut(filled: Wfctl) -> None:
    for environ in ({}, {"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1"}, {"COLUMNS": "40"}, {"TERM": "dumb"}):
        out = filled.ok("schedules", **environ).out
        assert "\x1b" not in out
        assert "…" not in out
        assert f"notes [red]{LONG}" in out
        header, *rows = out.splitlines()
        assert header.split()[:2] == ["ID", "STATE"]
        assert [row.split()[0] for row in rows] == ["hourly", "nightly-export-of-everything"]
        assert len({row.index("active") for row in rows} | {header.index("STATE")}) == 1, "columns are aligned"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_gets_a_table_that_fits(filled: Wfctl, columns: int) -> None:
    seen = filled.at_terminal("schedules", columns=columns, NO_COLOR="1")
    assert seen.status == 0
    table = [line for line in seen.lines if not line.startswith(("(", "2 schedules"))]
    assert max(len(line) for line in table) <= columns
    assert any(line.startswith("nightly-export-of-everything  ") for line in table), "an id is never cut"
    if columns == 80:
        assert "columns hidden: " in seen.text
        assert "--columns" in seen.text
        assert "NOTES" not in seen.text
    else:
        assert "hidden" not in seen.text
        assert "notes [red]xxx" in seen.text, "markup is text"
        assert "…" in seen.text
    for line in table:
        if "2027-01-01" in line:
            assert "2027-01-01T00:00:00Z" in line, "an instant is never cut"


def test_colour_only_repeats_what_a_word_says(filled: Wfctl) -> None:
    coloured = filled.at_terminal("schedules", columns=200).text
    assert "\x1b[32m" in coloured
    assert "● active" in coloured
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        bare = filled.at_terminal("schedules", columns=200, **environ).text
        assert "\x1b" not in bare
        assert "active" in bare
    assert "\x1b" not in filled.at_terminal("schedules", "--color", "never", columns=200).text
    assert "\x1b[32m" in filled.at_terminal("schedules", "--color", "always", columns=200, NO_COLOR="1").text
    assert "\x1b" not in filled.at_terminal("schedule", "show", "hourly", NO_COLOR="1").text


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"LANG": "C"}, id="the C locale"),
        pytest.param({"LANG": "C", "LC_ALL": "C"}, id="LC_ALL=C"),
        pytest.param({"PYTHONIOENCODING": "ascii"}, id="a stream of ASCII"),
        pytest.param({"LANG": "en_US.ISO-8859-1", "PYTHONIOENCODING": "latin-1"}, id="Latin-1"),
    ],
)
def test_a_terminal_without_unicode_gets_ascii_boxes_and_no_crash(filled: Wfctl, environ: dict[str, str]) -> None:
    for words in (["schedules"], ["deployments"], ["schedule", "show", "hourly"], ["deployment", "show", "dump"], ["--help"]):
        seen = filled.at_terminal(*words, columns=120, NO_COLOR="1", **environ)
        assert seen.status == 0, seen
        assert not set("─●\u2013·…▶") & set(seen.text), words
        done = filled(*words, **environ)
        assert done.status == 0, done
    assert "----" in filled.at_terminal("schedules", **environ).text
    assert "\u2500" not in filled.at_terminal("schedules", "--ascii").text
    assert filled.ok("deployment", "show", "dump", "-o", "json", **environ).json["definition"]["description"] == "żółw"


def test_talk_goes_to_stderr(filled: Wfctl) -> None:
    seen = filled.at_terminal("schedules", columns=80, own_stderr=False)
    assert "hidden" not in seen.text
    assert json.loads(filled.at_terminal("schedules", "-o", "json", own_stderr=False).text)["schema"] == "wfctl/schedules.v1"


def test_errors_are_one_message_and_an_exit_status(filled: Wfctl) -> None:
    done = filled("schedule", "show", "hourlx")
    assert (done.status, done.out) == (66, "")
    assert done.err.startswith("wfctl: no schedule 'hourlx'")
    assert "did you mean hourly?" in done.err
    assert done.err.count("did you mean") == 1
    program = filled("schedule", "show", "hourlx", "-o", "json")
    error = json.loads(program.err)
    assert (program.status, program.out, error["code"], error["data"]["near"]) == (66, "", "not-found", ["hourly"])
    assert set(error) == {"code", "message", "data"}  # contract 9.1
    for words in (
        ["schedle", "show"],
        ["schedule", "shw"],
        ["schedules", "--colmns", "x"],
        ["schedules", "-q", "-v"],
        ["schedule", "show"],
    ):
        usage = filled(*words)
        assert (usage.status, usage.out) == (2, "")
        assert usage.err.startswith("wfctl: ")
        if "-q" not in words:
            assert "\n  fix: wfctl " in usage.err
            assert usage.err.endswith("\n  code: invalid-argument (wfctl help invalid-argument)\n")
    assert "did you mean schedule or schedules?" in filled("schedle").err
    assert json.loads(filled("schedules", "--nope", "-o", "json").err)["code"] == "invalid-argument"
    forged = filled("schedule", "show", "x\nwfctl: all is well\x1b[2J")
    assert "\x1b" not in forged.err
    assert not any(line.startswith("wfctl: all") for line in forged.err.splitlines())


def test_a_bug_leaves_a_report_and_no_traceback(filled: Wfctl, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import wfctl.cli.version as v\ndef fail(*a): raise RuntimeError('never \\x1b[31m seen')\nv._sqlite_version = fail\n"
    )
    environ = {"PYTHONPATH": f"{broken}:{filled.environ['PYTHONPATH']}", "TMPDIR": str(tmp_path)}
    done = filled("version", **environ)
    assert (done.status, done.out) == (70, "")
    assert done.err.startswith("wfctl: a bug of wfctl: RuntimeError: never \\x1b[31m seen; the details are in ")
    report = Path(done.err.rsplit(" ", 1)[1].strip())
    assert report.is_relative_to(Path(filled.environ["HOME"]) / ".local/state/wfctl/reports")
    assert report.stat().st_mode & 0o777 == 0o600
    assert "Traceback" in report.read_text()
    home = filled("version", XDG_STATE_HOME="/dev/null/nowhere", HOME="", **environ)
    assert (home.status, f"the details are in {tmp_path}/wfctl-bug-" in home.err) == (70, True), "else where temporary files go"


def test_a_closed_pipe_ends_quietly(filled: Wfctl) -> None:
    for words in (["schedules"], ["--help"], ["completion", "bash"], ["schedules", "-o", "json"], ["help", "states"]):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(filled.argv(*words), stdout=writer, stderr=subprocess.PIPE, env=filled.environ, check=False)
        os.close(writer)
        assert process.stderr == b"", words  # contract 11.7
        assert process.returncode in (0, 141, -signal.SIGPIPE)


def test_an_answer_that_cannot_be_written_is_an_error(filled: Wfctl) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(filled.argv("schedules"), stdout=full, stderr=subprocess.PIPE, env=filled.environ, check=False)
    assert done.returncode == 74
    assert done.stderr.startswith(b"wfctl: cannot write the answer: No space left")


def test_closed_descriptors_do_no_harm(filled: Wfctl) -> None:
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        command = f'exec "$0" -m wfctl schedules {closed}'
        done = subprocess.run(
            ["/bin/sh", "-c", command, filled.argv()[0]], env=filled.environ, capture_output=True, check=False
        )
        assert done.returncode == 0, (closed, done)
        assert b"Traceback" not in done.stderr


def test_questions_are_asked_at_a_terminal_alone(filled: Wfctl) -> None:
    refused = filled("schedule", "delete", "hourly", stdin="y\n")
    assert refused.status == 2
    assert "add --yes" in refused.err
    assert filled.at_terminal("schedule", "delete", "hourly", "--no-input").status == 2
    with filled.terminal("schedule", "delete", "hourly") as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("n\n")
        seen = terminal.end()
    assert seen.status == 1
    assert "nothing was changed" in seen.text
    with filled.terminal("schedule", "delete", "hourly") as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("\x04")
        assert terminal.end().status == 1
    with filled.terminal("schedule", "delete", "hourly") as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("\x03")
        seen = terminal.end()
    assert seen.status == 130  # contract 11.6
    assert "Traceback" not in seen.text
    assert filled.ok("schedule", "show", "hourly", "-o", "json").json["state"] == "active"
    with filled.terminal("schedule", "delete", "hourly") as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.end().status == 0
    assert filled.ok("schedule", "show", "hourly", "-o", "json").json["state"] == "deleted"


def test_ctrl_c_is_130_without_a_traceback(filled: Wfctl) -> None:
    with filled.terminal("deployment", "add", "x", "-f", "-") as terminal:
        wait_for(lambda: terminal.process.poll() is None and _reads_stdin(terminal.process.pid), "it waits for stdin")
        terminal.type("\x03")
        seen = terminal.end()
    assert seen.status == 130
    assert "Traceback" not in seen.text


def _reads_stdin(pid: int) -> bool:
    try:
        return "tty_read" in Path(f"/proc/{pid}/wchan").read_text() or Path(f"/proc/{pid}/syscall").read_text().startswith(
            "0 0x0 "
        )
    except OSError:
        return False


def test_completion_scripts(filled: Wfctl) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = filled.ok("completion", shell).out
        assert "_WFCTL_COMPLETE" in script


def test_versions(filled: Wfctl) -> None:
    from wfctl import __version__

    assert filled.ok("--version").out == f"wfctl {__version__}\n"
    found = filled.ok("version", "-o", "json").json
    assert found["wfctl"] == __version__
    assert found["croniter"].startswith("7.")
    assert found["tz_database"]


def test_help_is_there_for_codes_topics_and_commands(filled: Wfctl) -> None:
    assert "exit status 81" in filled.ok("help", "exists").out
    assert "skipped-overlap" in filled.ok("help", "states").out
    assert "--max-active-runs" in filled.ok("help", "schedule", "add").out
    assert filled("help", "exsts").status == 66
    assert filled("--help").out == filled("help").out
