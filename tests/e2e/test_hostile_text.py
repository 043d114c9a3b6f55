"""What users and runs wrote is shown as text, at every door, in a terminal and in a pipe (contract 8.5, 8.6)."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.processes import Supervisor, wait_for
from wfctl import init_store, open_store
from wfctl.core.instants import format_instant
from wfctl.errors import WfctlError

MARKUP = "[/] [bold]b[/bold] [link=https://evil.example]here[/link] :smile:"
ESCAPES = "\x1b[31mRED\x1b[2J\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x1b\\\x1bc"
C1 = "\x9b31m\x9d8;;x\x9c\x85\x90q\x9c"
BIDI = "\u202egnp.exe\u2066\u2069\u200f\u061c"
LINES = "one\r\ntwo\rthree\n\u2028four\u2029\x0b\x0cfive\ttab"
REST = "\x07\x08\x7f\ufeff\ufff9"
HOSTILE = f"{MARKUP} {ESCAPES} {C1} {BIDI} {LINES} {REST} end"
FORMULA = '=HYPERLINK("https://evil.example";"x")'
#: what a pipe or a terminal may act on: all control characters but the newline, marks of direction, separators, surrogates
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")
OUTPUT = HOSTILE.encode() + b"\x00\xff\xfe\x80 lone \xed\xa0\x80 no newline at the end"

LOOKS = [
    ["schedules"],
    ["schedule", "show", "s"],
    ["schedule", "show", "broken"],
    ["schedule", "revisions", "s"],
    ["schedule", "next", "s"],
    ["deployments"],
    ["deployment", "show", "d"],
    ["deployment", "check", "d"],
    ["occurrences"],
    ["occurrences", "rejected"],
    ["occurrence", "audit", "s"],
    ["runs"],
    ["run", "show", "run-000001"],
    ["run", "show", "run-000002"],
    ["run", "show", "run-000003"],
    ["status"],
    ["reload"],
    ["store", "info"],
    ["store", "verify"],
    ["doctor"],
]
#: command lines that are refused, hostile words and all
REFUSED = [
    ["schedule", "show", HOSTILE],
    ["schedule", "add", HOSTILE, "--deployment", "d", "--every", "1m"],
    ["schedule", "add", "x", "--deployment", HOSTILE, "--every", HOSTILE],
    ["schedule", "add", "x", "--deployment", "d", "--cron", HOSTILE],
    ["schedule", "add", "x", "--deployment", "d", "--cron", "* * * * *", "--timezone", HOSTILE],
    ["schedule", "add", "x", "--deployment", "d", "--at", HOSTILE],
    ["schedule", "set", "s", f"{HOSTILE}=1"],
    ["schedule", "set", "s", f"overlap={HOSTILE}"],
    ["deployment", "add", "x", "--env", HOSTILE.replace("=", ":"), "--", "/bin/true"],
    ["deployment", "add", "x", "-f", HOSTILE],
    ["deployment", "add", "x", "-f", "-"],
    ["occurrences", "--cursor", HOSTILE],
    ["occurrences", "--status", HOSTILE],
    ["occurrence", "show", f"s@{HOSTILE}"],
    ["run", "show", HOSTILE],
    ["run", "start", HOSTILE],
    ["schedules", "--columns", HOSTILE],
    ["help", HOSTILE],
    [HOSTILE],
    ["schedules", f"--{HOSTILE}"],
    ["cron", "explain", HOSTILE],
    ["--store", f"/nowhere/{HOSTILE}", "schedules"],
]


@dataclass(frozen=True)
class Hall:
    """A store full of hostile words, with its supervisor, and its command."""

    wfctl: Wfctl
    supervisor: Supervisor
    occurrence: str


def fill(root: Path) -> None:
    """Write hostile words wherever anybody may write words."""
    at = format_instant(datetime.now(UTC) + timedelta(seconds=1))
    with open_store(root) as api:
        script = 'cat "$0"; cat "$0" >&2; printf %s "$1" >"$WFCTL_OUTPUT"'
        noise = root.parent / "noise"
        noise.write_bytes(OUTPUT)
        api.create_deployment(
            deployment_id="d",
            steps=[
                {"name": "first", "command": ["/bin/sh", "-c", script, str(noise), json.dumps({HOSTILE: HOSTILE}), HOSTILE]}
            ],
            description=HOSTILE,
            environment={f"X{HOSTILE.replace('=', '')}": HOSTILE},
        )
        asks = 'printf %s "$0" >"$WFCTL_INTERRUPT"; exit 75'
        api.create_deployment(deployment_id="asks", command=["/bin/sh", "-c", asks, json.dumps({"message": HOSTILE})])
        api.create_deployment(deployment_id="sleeps", command=["/bin/sleep", "60"], description=FORMULA)
        api.create_schedule(
            schedule_id="s",
            deployment_id="d",
            trigger={"kind": "oneshot", "at": at},
            notes=HOSTILE,
            input={HOSTILE: [HOSTILE]},
            reason=HOSTILE,
        )
        api.create_schedule(
            schedule_id="formula", deployment_id="sleeps", trigger={"kind": "cron", "expression": "0 0 1 1 *"}, notes=FORMULA
        )
        api.pause_schedule(schedule_id="formula", reason=HOSTILE)
        gone = root.parent / f"gone {HOSTILE.replace('/', '|')}"
        gone.mkdir()
        api.create_deployment(deployment_id="rejected", command=["/bin/true"], working_directory=str(gone))
        api.create_schedule(schedule_id="rejected", deployment_id="rejected", trigger={"kind": "oneshot", "at": at})
        gone.rmdir()
        api.create_schedule(schedule_id="broken", deployment_id="d", trigger={"kind": "cron", "expression": "0 0 1 1 *"})
    broken = root / "schedules" / "broken.toml"
    broken.write_text(broken.read_text() + f"{json.dumps(HOSTILE)} = {json.dumps(HOSTILE)}\n", encoding="utf-8")
    for stray in (f"stray {HOSTILE.replace('/', '|')[:80]}.toml", "lone \udce9\udcff.toml"):
        path = root / "schedules" / stray
        path.write_text("no = 'definition'\n")
        path.chmod(0o600)


@contextmanager
def opened(folder: Path, log_format: str) -> Iterator[Hall]:
    """Give a store in which everything hostile has happened."""
    (folder / "home").mkdir()
    command = Wfctl(folder / "store", folder / "home")
    init_store(folder / "store").close()
    fill(folder / "store")
    with Supervisor(folder / "store", "--log-format", log_format) as supervisor:
        wait_for(lambda: b"ready:" in supervisor.log.read_bytes(), what="the supervisor being ready")
        with open_store(folder / "store") as api:
            wait_for(lambda: api.list_runs(status="completed").items, what="the hostile run")
            api.start_run(deployment_id="asks")
            stopped = api.start_run(deployment_id="sleeps")
            wait_for(lambda: api.list_runs(status="interrupted").items, what="the hostile question")
            wait_for(lambda: api.inspect_run(run_id=stopped.run_id).status == "running", what="the run to be cancelled")
            api.cancel_run(run_id=stopped.run_id, reason=HOSTILE)
            wait_for(lambda: api.list_runs(status="cancelled").items, what="the hostile reason")
            instant = format_instant(api.list_schedule_occurrences(schedule_id="s").items[0].instant)
        yield Hall(command, supervisor, f"s@{instant}")
        supervisor.stop()


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    with opened(tmp_path_factory.mktemp("hostile"), "text") as made:
        yield made


def check_inert(text: str, who: object) -> None:
    """Nothing in it acts on a terminal, and no line of it was begun by somebody else."""
    found = ACTS.search(text)
    assert found is None, f"{who}: {found.group()!r} in {text[max(0, found.start() - 80) : found.end() + 80]!r}"
    for line in text.split("\n"):
        assert not line.startswith(("two", "three", "four", "five")), f"{who}: a line was forged: {line!r}"


def looks(hall: Hall) -> list[list[str]]:
    return [*LOOKS, ["occurrence", "show", hall.occurrence]]


@pytest.mark.parametrize("how", ["plain", "json", "jsonl", "csv", "name"])
def test_8_6_nothing_acts_in_a_pipe(hall: Hall, how: str) -> None:
    for words in looks(hall):
        done = hall.wfctl.bytes(*words, "-o", how)
        who = (words, how, done.stderr)
        assert done.returncode in (0, 1), who
        out, err = done.stdout.decode(), done.stderr.decode()
        check_inert(out, who)
        check_inert(err, who)
        assert "Traceback" not in err
        if how == "json":
            json.loads(out)
        if how == "jsonl":
            assert all(isinstance(json.loads(line), dict) for line in out.splitlines()), who
        if how == "csv":
            rows = list(csv.reader(io.StringIO(out)))
            assert len({len(row) for row in rows}) <= 1, who
            assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))], who


def test_8_6_nothing_acts_at_a_terminal(hall: Hall) -> None:
    for words in looks(hall):
        seen = hall.wfctl.at_terminal(*words, columns=250, NO_COLOR="1")
        assert seen.status in (0, 1), seen
        check_inert(seen.text, words)
    for words in (["schedules"], ["schedule", "show", "s"], ["run", "show", "run-000001"], ["deployment", "show", "d"]):
        coloured = hall.wfctl.at_terminal(*words, columns=250).text
        ours = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        check_inert(ours, words)
        assert "\x1b[31mRED" not in coloured
    shown = hall.wfctl.at_terminal("schedule", "show", "s", columns=250, NO_COLOR="1").text
    assert "[link=https://evil.example]here[/link] :smile:" in shown, "markup is text"
    assert r"\x1b]52;c;ZXZpbA==\x07" in shown, "and what is left out is shown"


def test_8_6_json_gives_back_what_was_written(hall: Hall) -> None:
    assert hall.wfctl.ok("schedule", "show", "s", "-o", "json").json["definition"]["notes"] == HOSTILE
    assert hall.wfctl.ok("schedule", "show", "s", "-o", "json").json["definition"]["input"] == {HOSTILE: [HOSTILE]}
    run = hall.wfctl.ok("run", "show", "run-000001", "-o", "json").json
    assert run["output"] == {HOSTILE: HOSTILE}
    assert hall.wfctl.ok("run", "show", "run-000002", "-o", "json").json["interrupt"]["message"] == HOSTILE
    assert hall.wfctl.ok("run", "show", "run-000003", "-o", "json").json["reason"]["note"] == HOSTILE


def test_8_6_logs_are_escaped_on_a_terminal_and_byte_for_byte_in_a_pipe(hall: Hall) -> None:
    for stream in ("out", "err"):
        done = hall.wfctl.bytes("run", "logs", "run-000001", "--stream", stream)
        assert (done.returncode, done.stdout, done.stderr) == (0, OUTPUT, b"")
    seen = hall.wfctl.at_terminal("run", "logs", "run-000001", NO_COLOR="1")
    assert not ACTS.search(seen.text.replace("\t", "")), seen.text
    assert r"\x1b]8;;https://evil.example\x07link" in seen.text
    assert r"\x00\xff\xfe\x80" in seen.text
    raw = hall.wfctl.at_terminal("run", "logs", "run-000001", "--raw", NO_COLOR="1")
    assert "\x1b]52;c;ZXZpbA==\x07" in raw.text


def test_8_6_errors_and_refusals_are_inert(hall: Hall) -> None:
    stdin = f"format = 1\n{json.dumps(HOSTILE)} = 1\ncommand = [{json.dumps(HOSTILE)}]\n"
    for words in REFUSED:
        done = hall.wfctl.bytes(*words, stdin=stdin.encode())
        assert done.returncode not in (0, 70), (words, done)
        check_inert(done.stderr.decode(), words)
        check_inert(done.stdout.decode(), words)
        as_json = hall.wfctl.bytes("-o", "json", *words, stdin=stdin.encode())
        check_inert(as_json.stderr.decode(), words)
        if words[:2] == ["schedules", "--columns"]:  # JSON has all keys, whatever columns are asked for
            continue
        error = json.loads(as_json.stderr)
        assert error.get("error", error)["code"], words
    for words in REFUSED[:4]:
        seen = hall.wfctl.at_terminal(*words, NO_COLOR="1")
        check_inert(seen.text, words)


def test_8_6_words_that_are_no_text_are_refused_or_shown(hall: Hall) -> None:
    """Bytes that are no UTF-8, and lone surrogates by the Python API."""
    for words in (["schedule", "show", b"caf\xe9\xff"], ["schedule", "set", "s", b"notes=caf\xe9\xff"]):
        done = hall.wfctl.bytes(*[os.fsdecode(word) for word in words])
        assert done.returncode in (0, 2, 65, 66), done
        check_inert(done.stderr.decode(), words)
        assert b"Traceback" not in done.stderr
    with open_store(hall.wfctl.root) as api, pytest.raises(WfctlError) as refused:
        api.update_schedule(schedule_id="formula", expected_revision=1, notes="lone \ud800")
    assert refused.value.code in ("invalid-definition", "invalid-argument")


@pytest.mark.parametrize("log_format", ["text", "json", "journal"])
def test_8_6_the_log_of_the_supervisor_is_inert(tmp_path: Path, log_format: str) -> None:
    """Whatever it complains about, in each of its formats, is one line of its own."""
    with opened(tmp_path, log_format) as hall:
        pass
    text = hall.supervisor.log.read_bytes().decode()
    check_inert(text, "the log")
    lines = text.splitlines()
    assert any("broken" in line for line in lines), "it says what is wrong with the broken file"
    if text.startswith("{"):
        assert all(json.loads(line)["message"] for line in lines)
    elif text.startswith("<"):
        assert all(re.match(r"<[2-7]>", line) for line in lines)
    else:
        assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
