"""`wfctl status --watch`: a live board that leaves the terminal as it found it; JSON lines in a pipe (contract 8.5, 11.7)."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.doors import command_line
from tests.support.terminal import Terminal
from tests.support.waiting import wait_for
from wfctl import Store, init_store

ENTERED, LEFT = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_DRAWN = re.compile(r"\x1b\[(\d+);1H\x1b\[2K((?:[^\x1b]|\x1b\[[0-9;]*m)*)|(\x1b\[2J)")


@pytest.fixture
def store(bare: Wfctl) -> Iterator[Store]:
    with init_store(bare.root) as made:
        made.create_deployment(deployment_id="quick", command=["/bin/true"])
        made.create_deployment(deployment_id="long", command=["/bin/sleep", "60"])
        yield made


def screen(text: str) -> list[str]:
    """Given all that was written, return what is on the screen, without colours."""
    lines = [""] * 200
    for row, line, is_cleared in _DRAWN.findall(text):
        if is_cleared:
            lines = [""] * 200
        else:
            lines[int(row) - 1] = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
    return lines


def shows(*words: str) -> Callable[[str], bool]:
    """Return whether a line of the screen has all of these words."""
    return lambda text: any(all(word in line for word in words) for line in screen(text))


def board(wfctl: Wfctl, *words: str, columns: int = 80, **environ: str) -> Terminal:
    return wfctl.terminal("status", "--watch=200ms", *words, columns=columns, **environ)


# At a terminal ------------------------------------------------------------------------------------------------------------


def test_the_board_shows_what_there_is_and_what_changes_and_q_gives_the_terminal_back(bare: Wfctl, store: Store) -> None:
    store.create_schedule(schedule_id="later", deployment_id="quick", trigger={"kind": "cron", "expression": "0 3 1 1 *"})
    with bare.supervisor(), board(bare) as terminal:
        before = terminal.modes()
        text = terminal.wait_for(shows("ready", "pid"))
        assert text.startswith(ENTERED)
        assert terminal.modes() != before, "keys come one by one"
        assert shows("slots", "0/4", "1 schedule: 1 active")(text)
        assert shows("in ", "later")(text)
        run = store.start_run(deployment_id="long").run_id
        terminal.wait_for(shows(run, "long (by hand)", "since"))
        terminal.wait_for(shows("running", "long", run))
        store.cancel_run(run_id=run)
        terminal.wait_for(shows("cancelled", run))
        terminal.wait_for(shows("nothing runs"))
        store.pause_schedule(schedule_id="later")
        terminal.wait_for(shows("paused", "later"))
        terminal.wait_for(shows("1 schedule: 1 paused"))
        terminal.type("q")
        seen = terminal.end()
        assert terminal.modes() == before, "exactly as they were"
    assert seen.status == 0
    assert seen.text.endswith(LEFT)
    assert seen.text.count(ENTERED) == seen.text.count(LEFT) == 1


def test_nothing_is_written_while_nothing_changes(bare: Wfctl, store: Store) -> None:
    with board(bare) as terminal:
        terminal.wait_for(shows("no supervisor runs"))
        drawn = len(terminal.text)
        store.create_schedule(schedule_id="later", deployment_id="quick", trigger={"kind": "cron", "expression": "0 3 1 1 *"})
        text = terminal.wait_for(shows("in ", "later"))
        assert "nothing runs" not in text[drawn:], "only what differs is written"
        drawn = len(text)
        terminal.resize(80, 23)  # what is written after it is the next thing written at all
        text = terminal.wait_for(lambda text: "\x1b[2J" in text[drawn:])
        between = text[drawn : text.index("\x1b[2J", drawn)]
        assert len(_DRAWN.findall(between)) <= 1, "at most the minute of the clock"
        terminal.type("q")
        assert terminal.end().status == 0


def test_another_size_is_taken_up_at_once(bare: Wfctl, store: Store) -> None:
    with bare.terminal("status", "--watch=1h") as terminal:
        terminal.wait_for(shows("every 1h"))
        drawn = len(terminal.text)
        terminal.resize(30, 10)
        text = terminal.wait_for(lambda text: shows("q quits")(text[drawn:]) or shows("every 1h")(text[drawn:]))
        lines = screen(text[drawn:])
        assert max(len(line) for line in lines) <= 30
        assert any("every 1h" in line for line in lines[:10]) and not any(lines[10:])
        terminal.type("q")
        assert terminal.end().status == 0


def test_p_lets_it_stand_still(bare: Wfctl, store: Store) -> None:
    with board(bare) as terminal:
        terminal.wait_for(shows("p pauses"))
        terminal.type("p")
        terminal.wait_for(shows("the board is paused"))
        store.create_schedule(schedule_id="later", deployment_id="quick", trigger={"kind": "interval", "every": "1h"})
        terminal.type("\x1b[A")  # no key of ours
        terminal.resize(80, 22)
        text = terminal.wait_for(lambda text: text.count("\x1b[2J") > 2)
        assert "later" not in text
        terminal.type("p")
        terminal.wait_for(shows("in ", "later"))
        terminal.type("Q")
        assert terminal.end().status == 0


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),  # contract 11.6
        pytest.param(signal.SIGTERM, -signal.SIGTERM, id="SIGTERM"),
        pytest.param(signal.SIGHUP, -signal.SIGHUP, id="SIGHUP"),
    ],
)
def test_a_signal_ends_it_and_the_terminal_is_given_back(bare: Wfctl, store: Store, number: int, status: int) -> None:
    with board(bare) as terminal:
        before = terminal.modes()
        terminal.wait_for(shows("no supervisor runs"))
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(number)
        seen = terminal.end()
        assert terminal.modes() == before
    assert seen.status == status
    assert seen.text.endswith(LEFT)
    assert "Traceback" not in seen.text


def test_a_failure_is_told_on_the_terminal_as_it_was(bare: Wfctl) -> None:
    program = "from wfctl.cli.screen import Screen\nwith Screen() as it: it.draw(['here', 'it is']); it.size / 0"
    with Terminal([sys.executable, "-c", program], bare.environ) as terminal:
        before = terminal.modes()
        seen = terminal.end()
        assert terminal.modes() == before
    assert screen(seen.text)[:2] == ["here", "it is"]
    said = seen.text.partition(LEFT)[2]
    assert "Traceback" in said and "Traceback" not in seen.text.removesuffix(said)


def test_while_it_is_stopped_the_terminal_is_the_shells(bare: Wfctl, store: Store) -> None:
    """Ctrl-Z and `fg`, with a shell that controls jobs."""
    line = " ".join([*bare.argv("status", "--watch=200ms"), "; echo status $?; fg; echo status $?"])
    shell = ["/bin/bash", "--norc", "-c", f"set -m; {line}"]
    if not Path(shell[0]).exists():
        pytest.skip("no bash here, which controls jobs")
    with Terminal(shell, bare.environ) as terminal:
        before = terminal.modes()
        terminal.wait_for(shows("no supervisor runs"))
        terminal.type("\x1a")
        text = terminal.wait_for(lambda text: text.count(ENTERED) == 2)
        resumed = text.partition(LEFT)[2]
        assert "status 148" in resumed.partition(ENTERED)[0], "as SIGTSTP stops any command"
        terminal.wait_for(lambda text: shows("no supervisor runs")(text.rpartition(ENTERED)[2]))
        assert terminal.modes() != before
        terminal.type("q")
        seen = terminal.end()
        assert terminal.modes() == before
    assert "status 0" in seen.text.rpartition(LEFT)[2]


def test_it_goes_on_while_the_supervisor_does_not(bare: Wfctl, store: Store) -> None:
    with board(bare) as terminal:
        terminal.wait_for(shows("wfctl", "no supervisor runs; waiting for one"))
        with bare.supervisor():
            terminal.wait_for(shows("ready", "pid"))
        drawn = len(terminal.wait_for(shows("no supervisor runs")))
        with bare.supervisor():
            terminal.wait_for(lambda text: "pid" in text[drawn:])
        terminal.type("q")
        assert terminal.end().status == 0


def test_a_terminal_of_few_means_is_drawn_on_with_what_it_has(bare: Wfctl, store: Store) -> None:
    plain = {"LANG": "C", "LC_ALL": "C", "NO_COLOR": "1"}
    with bare.supervisor(), board(bare, **plain) as terminal:
        text = terminal.wait_for(shows("slots [....] 0/4"))
        terminal.type("q")
        seen = terminal.end()
    assert text.isascii()
    assert not re.search(r"\x1b\[[1-9][0-9;]*m", seen.text), "no colour"
    dumb = bare.at_terminal("status", "--watch", TERM="dumb")
    assert dumb.status == 2 and "use -o jsonl" in dumb.text and "\x1b" not in dumb.text


# In a pipe ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def following(bare: Wfctl) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        bare.argv("status", "--watch=100ms"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=bare.environ,
    )
    yield process
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_in_a_pipe_each_change_is_a_line(bare: Wfctl, store: Store, following: subprocess.Popen[str]) -> None:
    assert following.stdout is not None and following.stderr is not None

    def until(condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for line in following.stdout or ():
            seen.append(json.loads(line))
            if condition(seen[-1]):
                return seen[-1]
        raise AssertionError(seen)

    seen: list[dict[str, Any]] = []
    absent = until(lambda document: document["state"] == "absent")
    with bare.supervisor():
        ready = until(lambda document: document["state"] == "ready")
        store.create_schedule(schedule_id="later", deployment_id="quick", trigger={"kind": "cron", "expression": "0 3 1 1 *"})
        until(lambda document: document["next_schedule_id"] == "later")
    again = until(lambda document: document["state"] == "absent")
    assert set(absent) == set(ready) == set(again)
    assert (absent["schema"], absent["pid"], again["schedules"]["active"]) == ("wfctl/status.v1", None, 1)
    assert all(one != other for one, other in itertools.pairwise(seen)), "only changes"
    following.send_signal(signal.SIGINT)
    assert following.wait(20) == 130
    assert following.stderr.read().strip() == ""  # but for the newline that follows a ^C


def test_it_ends_quietly_once_nobody_reads_it(bare: Wfctl, store: Store) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(bare.argv("status", "--watch"), stdout=write, stderr=subprocess.PIPE, env=bare.environ)
    os.close(write)
    assert os.read(read, 100).startswith(b"{")
    os.close(read)  # nothing changes any more, and still it notices
    assert process.wait(20) == 141
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--watch", "-o", "json"], "use -o jsonl", id="one document"),
        pytest.param(["--watch", "-o", "csv"], "use -o jsonl", id="csv"),
        pytest.param(["--watch", "-o", "table"], "needs a terminal", id="a board in a pipe"),
        pytest.param(["--watch=soon"], "is not a duration", id="no duration"),
        pytest.param(["--watch=2"], "did you mean 2s", id="no unit"),
        pytest.param(["--watch=1ms"], "is not between 100ms and 1h", id="too often"),
        pytest.param(["--watch=2h"], "is not between 100ms and 1h", id="too rarely"),
    ],
)
def test_what_cannot_be_watched_is_refused(bare: Wfctl, store: Store, words: list[str], says: str) -> None:
    said = command_line("--store", str(bare.root), "status", *words)
    assert (said.status, said.out) == (2, "")
    assert says in said.err


def test_no_store_is_no_board(bare: Wfctl) -> None:
    seen = bare.at_terminal("status", "--watch")
    assert seen.status == 66 and ENTERED not in seen.text and "make one with `wfctl" in seen.text
    wait_for(lambda: not bare.root.exists(), "nothing was made")
