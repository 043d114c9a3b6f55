"""Good manners at any terminal and in any pipe: encodings, widths, closed ends, one stdin, Ctrl-C (contract 8.5, 8.6, 11.7)."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for
from wfctl.cli import app
from wfctl.cli.base import Group
from wfctl.cli.help_codes import words as codes
from wfctl.cli.help_texts import ADVICE, TOPICS, WARNINGS
from wfctl.cli.text import cells

ODD = "żółw 日本 👩 \u202e"
GLYPHS = "─│●○◌▶▷‖⊘⊗✓✗·\u2013…→▕▏█"


@pytest.fixture
def filled(wfctl: Wfctl) -> Wfctl:
    """A store with something in every list, and letters of everywhere in it."""
    wfctl.ok("deployment", "add", "dump", "--description", ODD, "--", "/bin/sh", "-c", f"echo '{ODD}'")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "dump", "--cron", "30 2 * * *", "--notes", ODD)
    wfctl.ok("schedule", "add", "hourly", "--deployment", "dump", "--every", "1h")
    wfctl.ok("schedule", "pause", "hourly", "--reason", ODD)
    wfctl("run", "start", "dump", "-q")
    return wfctl


def leaves(group: Group = app.root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in group.entries:
        found = group.get_command(click.Context(group), name)
        if isinstance(found, Group):
            yield from leaves(found, (*path, name))
        else:
            yield (*path, name)


LOOKS = [
    ["schedules"],
    ["schedules", "--columns", "id,notes,next_instant,left,candidate,effective_from"],
    ["deployments"],
    ["runs"],
    ["occurrences"],
    ["schedule", "show", "nightly"],
    ["schedule", "show", "hourly"],
    ["schedule", "next", "nightly", "--dst"],
    ["schedule", "revisions", "nightly"],
    ["schedule", "lint"],
    ["schedule", "set", "nightly", "overlap=queue", "--dry-run"],
    ["deployment", "show", "dump"],
    ["deployment", "check", "dump"],
    ["run", "show", "run-000001"],
    ["run", "logs", "run-000001"],
    ["occurrence", "audit", "nightly"],
    ["occurrence", "explain", "nightly@2031-03-01T02:30:00Z"],
    ["cron", "explain", "30 2 13 * 5", "--timezone", "Europe/Paris"],
    ["cron", "next", "30 2 * * *", "--timezone", "Europe/Paris", "--dst"],
    ["simulate", "--until", "2d"],
    ["timeline"],
    ["load"],
    ["store", "info"],
    ["store", "verify"],
    ["config", "show"],
    ["doctor"],
    ["version"],
    ["status"],
    ["schedule", "show", ODD],
    ["schedule", "set", "nightly", f"overlap={ODD}"],
    ["help", ODD],
]


class Ascii(io.TextIOWrapper):
    """A stream of ASCII, perhaps at a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict", newline="\n")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("ascii", "backslashreplace")


@pytest.mark.parametrize("is_terminal", [False, True], ids=["in a pipe", "at a terminal"])
def test_in_the_c_locale_every_command_and_help_speaks_ascii(
    filled: Wfctl, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setenv("WFCTL_STORE", str(filled.root))
    monkeypatch.setenv("HOME", filled.environ["HOME"])
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    helps = [[*path, "--help"] for path in leaves()]
    topics = [["help", word] for word in (*TOPICS, *WARNINGS, *ADVICE, *codes())]
    for line in [*LOOKS, *helps, *topics]:
        out, err = Ascii(is_terminal), Ascii(is_terminal)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        status = app.run(line)
        text = out.text + err.text
        assert status in (0, 1, 2, 65, 66, 69), (line, text)
        assert "Traceback" not in text
        assert line[:2] == ["run", "logs"] or "\\xc5" not in text, "bytes are for logs alone"
        assert not any(f"\\u{ord(glyph):04x}" in text for glyph in GLYPHS if glyph not in ODD), (line, text)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lists_fit_the_terminal_and_say_what_is_hidden(filled: Wfctl, columns: int) -> None:
    for line in (["schedules"], ["deployments"]):
        seen = filled.at_terminal(*line, "--color", "never", columns=columns, own_stderr=False)
        assert seen.status == 0, seen
        assert seen.text.strip(), line
        header = seen.lines[0]
        assert "hidden" not in seen.text, "that is talk, for stderr"
        if columns >= 80:
            assert max(cells(row) for row in seen.lines) <= columns, (line, seen.text)
        assert "UTC" in header or not any("T02:30:00Z" in row for row in seen.lines), "the header names the zone"
    hint = filled.at_terminal("schedules", columns=columns).text
    assert ("columns hidden: " in hint) == (columns < 200)


def test_times_from_now_stand_beside_instants_and_never_alone(filled: Wfctl) -> None:
    header = filled.ok("schedules").out.splitlines()[0].split("  ")
    titles = [title.strip() for title in header if title.strip()]
    assert titles.index("LEFT") == titles.index("NEXT (UTC)") + 1
    shown = filled.ok("schedules", "--columns", "candidate,effective_from,next_instant").out.splitlines()[0]
    assert shown.count("(UTC)") == 3


def test_two_dashes_in_one_line_are_wrong_usage(wfctl: Wfctl) -> None:
    text = 'format = 1\ndeployment = "dump"\n[trigger]\nkind = "interval"\nevery = "1h"\n'
    done = wfctl("schedule", "add", "x", "-f", "-", "--input-json", "@-", stdin=text)
    assert (done.status, done.out) == (2, "")
    assert "read stdin, which can be read once" in done.err
    assert wfctl.ok("schedules", "-q").out == ""


def test_closed_descriptors_are_empty_ones_and_never_a_file_of_the_store(wfctl: Wfctl) -> None:
    def closed(ends: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        line = f'exec "$@" {ends}'
        argv = ["/bin/sh", "-c", line, "sh", *wfctl.argv(*words)]
        return subprocess.run(argv, env=wfctl.environ, capture_output=True, check=False, timeout=60)

    refused = closed("0<&-", "deployment", "add", "x", "-f", "-")
    assert refused.returncode == 65, refused
    assert b"Traceback" not in refused.stderr
    asked = closed("0<&-", "deployment", "delete", "x")
    assert asked.returncode in (2, 66)
    assert b"Traceback" not in asked.stderr
    for ends in ("2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"):
        assert closed(ends, "deployment", "add", f"d{len(ends)}", "-vv", "--", "/bin/true").returncode == 0
        assert closed(ends, "schedule", "show", "nobody").returncode == 66, "what cannot be said changes nothing"
    assert wfctl.ok("store", "verify").status == 0
    assert len(wfctl.ok("deployments", "-q").out.split()) == 3


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(filled: Wfctl) -> None:
    for words in ("schedules", "help states", "schedule --help", "completion bash", "rpc schema"):
        line = f'"$0" -m wfctl {words} | head -n 1'
        done = subprocess.run(
            ["/bin/bash", "-c", line, filled.argv()[0]], env=filled.environ, capture_output=True, check=False, timeout=60
        )
        assert done.stderr == b"", (words, done)


def test_nothing_to_read_is_no_answer(filled: Wfctl) -> None:
    with open("/dev/null", "rb") as null:
        argv = filled.argv("schedule", "delete", "nightly")
        done = subprocess.run(argv, stdin=null, capture_output=True, env=filled.environ, check=False)
    assert done.returncode == 2
    assert b"\n  fix: wfctl schedule delete nightly --yes\n" in done.stderr
    assert filled.ok("schedule", "show", "nightly", "-o", "json").json["state"] == "active"


def test_ctrl_c_ends_the_line_once(filled: Wfctl, tmp_path: Path) -> None:
    with filled.terminal("schedule", "delete", "nightly") as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("\x03")
        seen = terminal.end()
    assert seen.status == 130
    assert seen.text.endswith("^C\n") and not seen.text.endswith("\n\n")
    process = subprocess.Popen(
        filled.argv("occurrence", "wait", "nightly@2099-01-01T02:30:00Z"),
        env=filled.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: process.poll() is not None or _catches_int(process.pid), "it waits")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, (out, err)
    assert b"Traceback" not in err


def _catches_int(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = next(row for row in status.splitlines() if row.startswith("SigCgt"))
        return bool(int(caught.split()[1], 16) & 1 << (signal.SIGINT - 1)) and "store" in str(
            [Path(f"/proc/{pid}/fd/{each.name}").resolve() for each in Path(f"/proc/{pid}/fd").iterdir()]
        )
    except (OSError, StopIteration):
        return False


def test_q_and_v_exclude_each_other_wherever_they_stand(wfctl: Wfctl) -> None:
    for line in (["-q", "schedules", "-v"], ["schedules", "-qv"], ["-v", "-q", "schedules"]):
        done = wfctl(*line)
        assert (done.status, done.out) == (2, "")
        assert "-q and -v exclude each other" in done.err
