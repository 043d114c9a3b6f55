"""`cron explain`, `cron next`, `schedule next --dst` and `schedule lint`, in this process (contract 4.1, 4.6, 11)."""

from __future__ import annotations

import json
import re
import sqlite3
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_drift import HOUR, at, tzif
from wfctl.cli.app import run
from wfctl.core.trigger import clear_caches
from wfctl.operations.store import init_store, open_store


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Line:
    """The command line in this process, in a pipe, on a store that may not be there."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        self._capsys.readouterr()
        status = run(list(words))
        seen = self._capsys.readouterr()
        assert "Traceback" not in seen.err
        return Done(status, seen.out, seen.err)

    def ok(self, *words: str) -> Done:
        done = self(*words)
        assert done.status == 0, done
        return done


@pytest.fixture
def line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    root = tmp_path / "store"
    monkeypatch.setenv("WFCTL_STORE", str(root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Line(root, capsys)


@pytest.fixture
def stored(line: Line) -> Line:
    with init_store(line.root) as store:
        store.create_deployment(
            deployment_id="d", command=["/bin/true"], input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
        )
    return line


def add(line: Line, name: str, expression: str, timezone: str = "UTC", **fields: Any) -> None:
    with open_store(line.root) as store:
        trigger = {"kind": "cron", "expression": expression, "timezone": timezone}
        store.create_schedule(schedule_id=name, deployment_id="d", trigger=trigger, **fields)


# explain ----------------------------------------------------------------------------------------------------------------


def test_explain_says_it_in_english_with_the_zone(line: Line) -> None:
    done = line.ok("cron", "explain", "0 0 13 * 5", "--timezone", "America/New_York")
    first, fields, rhythm, blank, header, *rows = done.out.splitlines()
    assert first == "00:00 on day 13 of the month OR on Friday, America/New_York"
    assert fields == "  minute 0 | hour 0 | day 13 | every month | Friday"
    assert re.fullmatch(r"  5\.\d fires a month on average \| shortest gap 1d \| longest 7d", rhythm)
    assert (blank, header.split()[:2]) == ("", ["next", "5"])
    assert len([row for row in rows if re.search(r"E[SD]T  20\d\d-\d\d-\d\dT0[45]:00:00Z", row)]) == 5
    assert rows[5].startswith("warning day-fields-or: ")
    assert "wfctl help day-fields-or" in done.err
    assert not line.root.exists(), "no store is needed, and none is made"


def test_without_a_zone_it_is_utc_and_says_so(line: Line) -> None:
    done = line.ok("cron", "explain", "@daily")
    assert done.out.startswith("00:00 every day, UTC\n")
    assert "always 1d apart" in done.out
    assert "no --timezone was given: it is read in UTC" in done.err
    assert line.ok("cron", "explain", "@daily", "--timezone", "UTC").err == ""


def test_explain_for_programs(line: Line) -> None:
    found = line.ok("cron", "explain", "0 0 13 * fri-mon", "--from", "2026-06-01T00:00:00Z", "-o", "json").json
    assert found["schema"] == "wfctl/cron-explain.v1"
    assert found["expression"] == "0 0 13 * fri-mon"
    assert found["expanded"] == "0 0 13 * sun,mon,fri,sat"
    assert found["fields"]["weekday"] == {"text": "fri-mon", "reading": "Friday to Monday", "values": [0, 1, 5, 6]}
    assert found["either_day"] is True
    assert (found["shortest_gap_s"], found["longest_gap_s"]) == (86400.0, 345600.0)
    assert (found["fires"], found["days"]) == (214, 365)
    assert [item["instant"] for item in found["next"]][:2] == ["2026-06-05T00:00:00Z", "2026-06-06T00:00:00Z"]
    assert [item["code"] for item in found["warnings"]] == ["wrapped-range", "day-fields-or"]
    assert line.ok("cron", "explain", "@weekly", "-q").out == "0 0 * * 0\n"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 0 29 2 *", "0.25 fires a year on average | always 1461d apart"),
        ("0 0 1 1 *", "1 fire a year on average | always 365d apart"),
        ("* * * * *", "43,829 fires a month on average | always 1m apart"),
        ("*/7 * * * *", "6,574 fires a month on average | shortest gap 4m | longest 7m"),
    ],
)
def test_how_often_it_fires(line: Line, expression: str, said: str) -> None:
    assert f"  {said}\n" in line.ok("cron", "explain", expression, "--from", "2026-01-01T00:00:00Z").out


@pytest.mark.parametrize(
    ("expression", "caret", "said"),
    [
        ("75 2 * * *", "\n  75 2 * * *\n  ^^\n", "minute 75 is outside 0-59"),
        ("0 5-5 * * *", "\n  0 5-5 * * *\n    ^^^\n", "write '5'"),
        ("*/0 * * * *", "\n  */0 * * * *\n  ^^^\n", "write 1 or more"),
        ("0 0 0 * * *", "\n  0 0 0 * * *\n            ^\n", "has 6 fields, not five"),
        ("@reboot", "\n  @reboot\n  ^^^^^^^\n", "systemd unit"),
        ("0 0 * * lun", "\n  0 0 * * lun\n          ^^^\n", "one of sun, mon"),
        ("\u00e9 * * * *", "\n  \u00e9 * * * *\n  ^\n", "plain ASCII"),
        ("0\x1b[31m * * * *", "\n  0?[31m * * * *\n   ^\n", "plain ASCII"),
        ("0 0 * * " + "1," * 95 + "9", "...", "day of week 9 is outside 0-7"),
        ("1" * 300, "...\n", "the limit is 256"),
        ("", "", "the expression is empty"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "next"])
def test_what_is_wrong_is_shown_where_it_stands(line: Line, command: str, expression: str, caret: str, said: str) -> None:
    done = line("cron", command, expression)
    assert (done.status, done.out) == (65, "")
    assert done.err.startswith("wfctl: the expression cannot be read: ")
    assert caret in done.err
    assert said in done.err
    assert "\x1b" not in done.err
    assert all(len(row) <= 80 for row in done.err.splitlines()[1:])


def test_everything_wrong_is_told_at_once_and_to_programs_too(line: Line) -> None:  # contract 3.6, 9.1
    done = line("cron", "explain", "75 2 * * 9", "--timezone", "Europe/Pari", "-o", "json")
    problems = json.loads(done.err)["data"]["problems"]
    assert [(each["path"], each["start"], each["end"]) for each in problems] == [
        ("trigger.expression", 0, 2),
        ("trigger.expression", 9, 10),
        ("trigger.timezone", None, None),
    ]
    assert line("cron", "explain", "0 0 31 2 *").status == 65
    assert line("cron", "explain", "0 0 * * *", "--timezone", "Mars").status == 65


def test_an_expression_without_quotes_is_told_apart(line: Line) -> None:
    done = line("cron", "explain", "0", "0", "README.md", "*", "5")
    assert done.status == 2
    assert "put it in quotes" in done.err


# next -------------------------------------------------------------------------------------------------------------------


def test_dst_marks_what_clock_changes_move_and_repeat(stored: Line) -> None:
    words = ["--timezone", "Europe/Paris", "--from", "2026-12-01T00:00:00Z", "-n", "2", "--dst", "-o", "json"]
    items = stored.ok("cron", "next", "30 2 * * *", *words).json["items"]
    assert [(item["instant"], item["note"]) for item in items] == [
        ("2026-12-01T01:30:00Z", None),
        ("2026-12-02T01:30:00Z", None),
        ("2027-03-28T01:00:00Z", "gap"),
        ("2027-10-31T00:30:00Z", "fold-first"),
        ("2027-10-31T01:30:00Z", "fold-second"),
    ]
    assert len(stored.ok("cron", "next", "30 2 * * *", *words[:-3], "-o", "json").json["items"]) == 2
    add(stored, "nightly", "30 2 * * *", "Europe/Paris")
    add(stored, "noon", "0 12 * * *")
    listed = stored.ok(
        "schedule", "next", "nightly", "noon", "-n", "3", "--dst", "--from", "2026-12-01T00:00:00Z", "-o", "json"
    )
    assert [(item["schedule_id"], item["note"]) for item in listed.json["items"]] == [
        ("nightly", None),
        ("noon", None),
        ("nightly", None),
        ("nightly", "gap"),
        ("nightly", "fold-first"),
        ("nightly", "fold-second"),
    ]
    assert "moved out of a clock change" in stored.ok("schedule", "next", "nightly", "--dst").out


# lint -------------------------------------------------------------------------------------------------------------------


def test_lint_looks_at_all_schedules_or_at_some(stored: Line) -> None:
    assert stored.ok("schedule", "lint").err == "0 schedules: nothing found\n"
    add(stored, "clean", "0 12 * * *")
    add(stored, "both", "0 0 13 * 5")
    add(stored, "uneven", "*/7 * * * *")
    done = stored("schedule", "lint")
    assert done.status == 1
    assert [row.split(": ")[:2] for row in done.out.splitlines() if not row.startswith(" ")] == [
        ["both", "warning day-fields-or"],
        ["uneven", "note uneven-step"],
    ]
    assert done.err == "3 schedules: 1 warning, 1 note; more about one: wfctl help day-fields-or\n"
    assert stored("schedule", "lint", "clean", "uneven").status == 0, "notes do not count"
    assert stored("schedule", "lint", "uneven", "--strict").status == 1, "unless asked to"
    found = stored("schedule", "lint", "-o", "json").json
    assert found["schema"] == "wfctl/findings.v1"
    assert set(found["items"][0]) == {"schedule_id", "code", "severity", "message", "hint"}
    assert stored("schedule", "lint", "-q").out.splitlines() == ["both day-fields-or", "uneven uneven-step"]
    assert stored("schedule", "lint", "nobody").status == 66


def test_lint_sees_what_became_of_a_schedule(stored: Line) -> None:
    add(stored, "counted", "0 12 * * *", input={"n": 1})
    add(stored, "broken", "0 12 * * *")
    with open_store(stored.root) as store:
        store.update_deployment(
            deployment_id="d",
            expected_revision=1,
            input_schema={"type": "object", "properties": {"n": {"type": "string"}}},
        )
    file = stored.root / "schedules" / "broken.toml"
    file.write_text(file.read_text().replace("0 12", "0 75"))
    done = stored("schedule", "lint")
    assert done.status == 1
    assert "broken: warning blocked-schedule: it is blocked" in done.out
    assert "counted: warning input-refused: " in done.out


GOOD = 'format = 1\ndeployment = "x"\n[trigger]\nkind = "cron"\nexpression = "0 0 31 * *"\n'


def test_lint_of_a_file_needs_no_store(line: Line, tmp_path: Path) -> None:
    file = tmp_path / "monthly.toml"
    file.write_text(GOOD)
    done = line("schedule", "lint", "-f", str(file))
    assert (done.status, done.out.split(":")[0]) == (1, "monthly")
    assert "never-in-some-months" in done.out
    assert not line.root.exists()
    file.write_text(GOOD.replace("0 0 31", "75 0 31") + 'timezone = "Pari"\n')
    refused = line("schedule", "lint", "-f", str(file))
    assert refused.status == 65
    assert "line 5: trigger.expression" in refused.err and "trigger.timezone" in refused.err, "all problems at once"
    file.write_text(GOOD.replace("31 *", "31 2"))
    assert line("schedule", "lint", "-f", str(file)).status == 65, "it never fires"
    assert line("schedule", "lint", "-f", str(tmp_path / "none.toml")).status == 66
    assert line("schedule", "lint", "x", "-f", str(file)).status == 2
    assert line("schedule", "lint", "--drift", "-f", str(file)).status == 2


def test_lint_of_a_file_beside_a_store_looks_at_its_deployment(stored: Line, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(GOOD.replace("0 0 31", "0 0 1"))
    assert "no-deployment" in stored("schedule", "lint", "-f", str(file)).out
    file.write_text(GOOD.replace("0 0 31", "0 0 1").replace('"x"', '"d"') + '[input]\nn = "one"\n')
    assert "input-refused" in stored("schedule", "lint", "-f", str(file)).out
    file.write_text(GOOD.replace("0 0 31", "0 0 1").replace('"x"', '"d"'))
    assert stored.ok("schedule", "lint", "-f", str(file)).err == "the file: nothing found\n"


# Drift ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_database(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "zoneinfo"
    (folder / "Europe").mkdir(parents=True)
    (folder / "tzdata.zi").write_text("# version 2031z\n")
    before = zoneinfo.TZPATH
    yield folder
    zoneinfo.reset_tzpath(before)
    clear_caches()


def test_drift_tells_what_another_tz_database_moves(stored: Line, other_database: Path) -> None:  # contract 3.2
    add(stored, "noon", "0 12 * * *", "Europe/Paris")
    add(stored, "often", "*/5 * * * *", "Europe/Paris")
    done = stored.ok("schedule", "lint", "--drift")
    assert done.out == "", "by the versions it was saved with nothing moves"
    assert "compared with today's: croniter 7." in done.err
    (other_database / "Europe" / "Paris").write_bytes(tzif([(at("2020-01-01T00:00"), 3 * HOUR, "X")], (HOUR, "CET")))
    zoneinfo.reset_tzpath([str(other_database)])
    clear_caches()
    done = stored("schedule", "lint", "--drift")
    assert done.status == 1
    noon, often = (row for row in done.out.splitlines() if not row.startswith(" "))
    assert noon.startswith("noon: warning calendar-drift: the clock of Europe/Paris is not the one of revision 1")
    assert "with tz 2031z" in noon and str(other_database) in noon
    assert re.search(r"\d+ instants of the coming year move, the first: \S+:00Z -> \S+T09:00:00Z", noon)
    assert often.startswith("often: note stamps-differ: ")
    assert "no instant of the coming year moves" in often
    assert stored("schedule", "lint").status == 0, "only when asked for"


def test_drift_of_a_revision_that_keeps_no_record(stored: Line) -> None:  # of a store that was made before
    add(stored, "old", "0 12 * * *", "Europe/Paris")
    add(stored, "damaged", "0 12 * * *", "Europe/Paris")
    connection = sqlite3.connect(stored.root / "ledger.db")
    number = "(SELECT number FROM definitions WHERE kind = 1 AND id = '{}')"
    with connection:
        old, damaged = number.format("old"), number.format("damaged")
        connection.execute(f"UPDATE revisions SET tz_database = '1999a' WHERE definition = {old}")
        connection.execute(f"DELETE FROM foreseen WHERE definition = {old}")
        connection.execute(f"UPDATE foreseen SET calendar = 5 WHERE definition = {damaged}")
    connection.close()
    done = stored.ok("schedule", "lint", "--drift")
    damaged, old = (row for row in done.out.splitlines() if not row.startswith(" "))
    assert damaged.startswith("damaged: note not-recorded: ") and damaged.endswith("they are the same")
    assert old.startswith("old: note not-recorded: ") and "tz 1999a" in old
    assert stored("schedule", "lint", "--drift", "--strict").status == 1
    with open_store(stored.root) as store:
        store.update_schedule(schedule_id="old", expected_revision=1, notes="saved anew")
    assert stored.ok("schedule", "lint", "old", "--drift", "--strict").out == ""
