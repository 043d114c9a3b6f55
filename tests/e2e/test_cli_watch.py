"""`--watch`, `run wait` and `occurrence wait`: in pipes, at a terminal, with a supervisor and without."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.doors import Said, command_line
from tests.support.waiting import wait_for
from wfctl import init_store
from wfctl.core.instants import format_instant


class Following:
    """A command in pipes that goes on; its lines as they come."""

    def __init__(self, wfctl: Wfctl, *words: str) -> None:
        self.process = subprocess.Popen(
            wfctl.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=wfctl.environ
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stdout:
                self.lines.append(line)

    def items(self) -> list[dict[str, Any]]:
        """The lines as JSON."""
        return [json.loads(line) for line in list(self.lines)]

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until it holds, or the command has ended without."""
        wait_for(lambda: condition() or self.process.poll() is not None, what)
        assert condition(), (self.lines, self.process.poll())

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send it a signal; return its exit status and what it said on stderr, but for the newline that follows a ^C."""
        self.process.send_signal(number)
        status, said = self.done()
        return status, said.strip()

    def done(self) -> tuple[int, str]:
        status = self.process.wait(20)
        self._reader.join(20)
        assert self.process.stderr is not None
        return status, self.process.stderr.read()


class Store:
    """A store with jobs in it, and the command line on it: of its own process, or in this one, which is quicker."""

    def __init__(self, commands: Wfctl, tmp_path: Path) -> None:
        self.commands = commands
        self.api = init_store(commands.root)
        asks = 'echo \'{"message": "sure?"}\' > "$WFCTL_INTERRUPT"; exit 75'
        waits = f"while [ ! -e {tmp_path}/stop ]; do sleep 0.05; done"
        for name, script in (
            ("quick", "exit 0"),
            ("fail", "exit 1"),
            ("asks", f'[ -n "$WFCTL_RESUME" ] || {{ {asks}; }}'),
            ("goes-on", waits),
        ):
            self.api.create_deployment(deployment_id=name, command=["/bin/sh", "-c", script])

    def __call__(self, *words: str) -> Said:
        """Run a command in this process."""
        return command_line("--store", str(self.commands.root), *words)

    def run(self, deployment_id: str) -> str:
        """Start a run that this command drives, let it end, and return its id."""
        self(*("run", "start", deployment_id, "-q"))
        return self.api.list_runs(limit=100).items[-1].run_id

    def schedule(self, schedule_id: str, deployment_id: str, **trigger: str) -> None:
        self.api.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=trigger)


@pytest.fixture
def store(bare: Wfctl, tmp_path: Path) -> Iterator[Store]:
    """A store with a quick job, one that fails, one that asks, and one that goes on until it is told to end."""
    made = Store(bare, tmp_path)
    yield made
    (tmp_path / "stop").touch()
    made.api.close()


@pytest.fixture
def follow(bare: Wfctl) -> Iterator[Callable[..., Following]]:
    """Starts commands that go on; they are ended with the test."""
    started: list[Following] = []

    def start(*words: str) -> Following:
        started.append(Following(bare, *words))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(OSError):
            each.process.kill()
        each.process.wait()
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()


# --watch ------------------------------------------------------------------------------------------------------------------


def test_occurrences_are_watched_before_during_and_after_a_supervisor(store: Store, follow: Callable[..., Following]) -> None:
    store.schedule("tick", "quick", kind="interval", every="1s")
    watching = follow("occurrences", "tick", "--watch", "-o", "jsonl")

    def completed() -> list[str]:
        return [item["instant"] for item in watching.items() if item["status"] == "completed"]

    with store.commands.supervisor():
        watching.until(completed, "a completed occurrence")
    before = len(completed())
    with store.commands.supervisor():
        watching.until(lambda: len(completed()) > before, "one of the next supervisor")
    assert watching.end() == (130, "")  # contract 11.7
    first = [item["status"] for item in watching.items() if item["instant"] == completed()[0]]
    assert first == ["admitted", "running", "completed"]
    item = watching.items()[0]
    keys = {"schedule_id", "instant", "status", "run_id", "revision", "lateness_s", "reason", "span", "recorded_at"}
    assert set(item) == keys  # the items of a list (8.7)
    assert len(completed()) == len(set(completed())), "each change once"


def test_a_watch_begins_with_the_newest_rows_and_adds_what_changes(
    store: Store, follow: Callable[..., Following], tmp_path: Path
) -> None:
    for _ in range(3):
        store.run("quick")
    watching = follow("runs", "--watch", "--limit", "2")
    watching.until(lambda: len(watching.lines) == 3, "the header and two rows")
    going = follow("run", "start", "goes-on", "-q")  # without a supervisor: the command drives it (9.3)
    watching.until(lambda: len(watching.lines) == 5, "two changes more")
    (tmp_path / "stop").touch()
    assert going.done()[0] == 0
    watching.until(lambda: len(watching.lines) == 6, "its end")
    told = [line.split()[:3] for line in watching.lines[1:]]
    assert told == [
        ["run-000002", "completed", "manual"],
        ["run-000003", "completed", "manual"],
        ["run-000004", "admitted", "manual"],
        ["run-000004", "running", "manual"],
        ["run-000004", "completed", "manual"],
    ]
    assert len({line.index("manual") for line in watching.lines[1:]}) == 1, "the columns stand still"
    assert watching.end(signal.SIGINT) == (130, "")


def test_at_a_terminal_rows_fit_it_and_ctrl_c_ends_in_peace(store: Store) -> None:
    store.schedule("often", "fail", kind="interval", every="1s")
    with store.commands.supervisor(), store.commands.terminal("occurrences", "--watch", columns=80, NO_COLOR="1") as terminal:
        terminal.wait_for("failed")
        terminal.type("\x03")
        seen = terminal.end()
    assert seen.status == 130
    assert "Traceback" not in seen.text
    rows = [line.replace("^C", "") for line in seen.lines]
    assert rows[0].split()[:2] == ["SCHEDULE", "INSTANT"]
    assert all(len(line) <= 80 for line in rows), rows
    assert "WHY" in rows[0], "what is not in the list itself gives way first"
    assert any("exit 1" in line for line in rows)


def test_a_watch_ends_quietly_once_nobody_reads_it(store: Store) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        store.commands.argv("runs", "--watch"), stdout=write, stderr=subprocess.PIPE, env=store.commands.environ
    )
    os.close(write)
    assert os.read(read, 100).startswith(b"RUN")
    os.close(read)  # nothing changes any more, and still it notices
    assert process.wait(20) == 141
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["-o", "json"], "use -o jsonl with --watch", id="one document"),
        pytest.param(["-o", "csv"], "use -o jsonl with --watch", id="csv"),
        pytest.param(["--all"], "--all and --watch exclude each other", id="all pages"),
        pytest.param(["--cursor", "x"], "--cursor and --watch exclude each other", id="a cursor"),
        pytest.param(["--until", "1h"], "--until and --watch exclude each other", id="an end"),
        pytest.param(["--status", "nonsense"], "unknown status 'nonsense'", id="no such status"),
        pytest.param(["--limit", "0"], "limit", id="no rows"),
    ],
)
@pytest.mark.parametrize("what", ["occurrences", "runs"])
def test_what_cannot_be_watched_is_refused(store: Store, what: str, words: list[str], says: str) -> None:
    said = store(what, "--watch", *words)
    assert (said.status, said.out) == (2, "")
    assert says in said.err


# run wait -----------------------------------------------------------------------------------------------------------------


def test_runs_are_waited_for(store: Store, follow: Callable[..., Following], tmp_path: Path) -> None:
    good, bad = store.run("quick"), store.run("fail")
    going = store.api.start_run(deployment_id="goes-on").run_id
    done = store("run", "wait", good)
    assert (done.status, done.err) == (0, "") and done.out.startswith(f"{good} completed")
    failed = store("run", "wait", bad, good)
    assert failed.status == 1
    assert failed.out.splitlines()[0].startswith(f"{bad} failed") and "exit 1" in failed.out
    assert store("run", "wait", "--any", good, going).out.split()[:2] == [good, "completed"]
    late = store("run", "wait", going, "--timeout", "200ms")
    assert (late.status, late.out) == (75, "") and f"{going} is still " in late.err
    assert store("run", "wait", "run-000009").status == 66
    assert store("run", "wait", going, "--timeout", "5").status == 2
    waiting = follow("run", "wait", good, going)
    waiting.until(lambda: waiting.lines, "what is over already")
    (tmp_path / "stop").touch()
    assert waiting.done() == (0, "")
    assert [line.split()[:2] for line in waiting.lines] == [[good, "completed"], [going, "completed"]]
    document = json.loads(store("run", "wait", going, "-o", "json").out)
    assert (document["schema"], document["status"]) == ("wfctl/run.v1", "completed")
    several = json.loads(store("run", "wait", good, going, "-o", "json").out)
    assert [item["run_id"] for item in several["items"]] == [good, going]


def test_a_run_that_waits_for_input_is_said_once_and_waited_on(store: Store, follow: Callable[..., Following]) -> None:
    asks = store.run("asks")
    waiting = follow("run", "wait", asks)
    assert waiting.process.stderr is not None
    said = waiting.process.stderr.readline()
    assert f"{asks} interrupted" in said and "sure?" in said and f"wfctl run resume {asks}" in said
    assert store("run", "resume", asks, "-q").status == 0
    assert waiting.done() == (0, "")
    assert waiting.lines[0].startswith(f"{asks} completed")


def test_ctrl_c_ends_a_wait_and_not_the_run(store: Store) -> None:
    going = store.api.start_run(deployment_id="goes-on").run_id
    with store.commands.terminal("run", "wait", going) as terminal:
        wait_for(lambda: _has_opened_store(terminal.process.pid), "the command at work")
        terminal.type("\x03")
        seen = terminal.end()
    assert (seen.status, seen.text.replace("^C", "").strip()) == (130, "")
    assert store.api.inspect_run(run_id=going).status in ("admitted", "running")


def _has_opened_store(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any("ledger.db" in str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir())
    return False


# occurrence wait ----------------------------------------------------------------------------------------------------------


def test_an_occurrence_to_come_is_waited_for(store: Store, follow: Callable[..., Following]) -> None:
    at = format_instant(datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6))
    store.schedule("good", "quick", kind="oneshot", at=at)
    store.schedule("bad", "fail", kind="oneshot", at=at)
    good, bad = follow("occurrence", "wait", f"good@{at}"), follow("occurrence", "wait", f"bad@{at}", "--timeout", "1m")
    assert good.process.stderr is not None
    assert "no supervisor runs on this store" in good.process.stderr.readline()
    with store.commands.supervisor():
        assert good.done() == (0, "")
        assert bad.done()[0] == 1
    assert good.lines[0].split()[:2] == [f"good@{at}", "completed"]
    assert "failed" in bad.lines[0] and "exit 1" in bad.lines[0]
    assert store("occurrence", "wait", f"bad@{at}", "--for", "failed").status == 0
    assert store("occurrence", "wait", f"bad@{at}", "--for", "running").status == 0, "a state that it has passed"
    document = store("occurrence", "wait", f"bad@{at}", "-o", "json")
    shown = json.loads(document.out)
    assert (document.status, shown["schema"], shown["status"]) == (1, "wfctl/occurrence.v1", "failed")


def test_what_never_comes_and_what_does_not_come_in_time(store: Store) -> None:
    store.schedule("hourly", "quick", kind="cron", expression="0 * * * *")
    never = store("occurrence", "wait", "hourly@2099-01-01T00:30:00Z")
    assert (never.status, never.out) == (66, "")
    assert "it is no instant of hourly, the next one to come is" in never.err
    late = store("occurrence", "wait", "hourly@2099-01-01T00:00:00Z", "--timeout", "100ms")
    assert late.status == 75 and "is not recorded yet" in late.err
    assert store("occurrence", "wait", "hourly@2099-01-01T00:00:00Z", "--for", "done").status == 2
    assert store("occurrence", "wait", "hurly@2099-01-01T00:00:00Z").status == 66
    store.api.delete_schedule(schedule_id="hourly")
    gone = store("occurrence", "wait", "hourly@2099-01-01T00:00:00Z")
    assert gone.status == 66 and "hourly was deleted" in gone.err
