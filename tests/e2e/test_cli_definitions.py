"""Deployments and schedules from the command line: adding, changing, refusing, previewing (contract 2.1, 3, 4.6, 11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Wfctl

ESCAPES = "\x1b[31mred\x1b[0m [bold]b[/] \u202e =1"


def test_a_missing_store_is_named_with_what_to_do_and_nothing_is_made(bare: Wfctl) -> None:
    for words in (["schedules"], ["run", "start", "x"], ["deployment", "add", "x", "--", "true"], ["status"]):
        done = bare(*words)
        assert done.status == 66, done  # contract 2.1, 11.6
        assert done.out == ""
        assert done.err.startswith("wfctl: ")
        assert "init" in done.err
    assert not bare.root.exists()


def test_init_makes_a_private_store_once(bare: Wfctl) -> None:
    done = bare.ok("init")
    assert done.out == f"created store {bare.root}\n"
    assert "wfctl deployment add" in done.err
    assert bare.root.stat().st_mode & 0o777 == 0o700
    assert bare("init").status == 73
    again = bare.ok("init", "--if-absent", "-o", "json")
    assert again.json == {"schema": "wfctl/store.v1", "path": str(bare.root), "created": False}


def test_the_store_may_be_named_before_and_after_the_command_word(bare: Wfctl, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    bare.ok("--store", other, "init")
    assert bare.ok("deployments", "--store", other, "-o", "json").json["items"] == []
    assert bare.ok("--store", other, "-o", "name", "deployments").out == ""
    assert bare.ok("--store", "/nonexistent", "deployments", "--store", other, "-q").out == "", "the later one holds"


def test_a_deployment_goes_through_its_life(wfctl: Wfctl, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text("print('hello')\n")
    added = wfctl.ok(
        *("deployment", "add", "report", "--timeout", "10m", "--retries", "2", "--env", "LANG=C.UTF-8", "--cwd", str(tmp_path)),
        *("--file", str(script), "--description", "raport-ż", "-o", "json", "--", "python3", "report.py", "--all"),
    ).json
    assert added["schema"] == "wfctl/deployment.v1"
    definition = added["definition"]
    assert definition["command"] == ["python3", "report.py", "--all"], "options after -- belong to the command"
    assert (definition["timeout"], definition["retries"], definition["working_directory"]) == ("10m", 2, str(tmp_path))
    assert definition["environment"] == {"LANG": "C.UTF-8"}
    assert definition["files"]["report.py"].startswith("sha256:")

    changed = wfctl.ok(
        "deployment", "set", "report", "timeout=20m", "environment.TZ=UTC", "--unset", "description", "-o", "json"
    ).json
    assert changed["revision"] == 2
    assert changed["definition"]["environment"] == {"LANG": "C.UTF-8", "TZ": "UTC"}
    assert changed["definition"]["description"] is None

    checked = wfctl.ok("deployment", "check", "report")
    assert all(line.startswith("ok ") for line in checked.out.splitlines())
    wfctl.ok("deployment", "set", "report", 'command=["/no/such/program"]')
    bad = wfctl("deployment", "check", "report", "-o", "json")
    assert bad.status == 1
    assert [item["ok"] for item in bad.json["items"] if item["name"] == "command"] == [False]

    refused = wfctl("deployment", "delete", "report")
    assert refused.status == 2
    assert "--yes" in refused.err
    wfctl.ok("deployment", "delete", "report", "--yes")
    assert wfctl("deployment", "add", "report", "--", "true").status == 81


def test_a_pipeline_comes_from_a_file_or_from_stdin(wfctl: Wfctl, tmp_path: Path) -> None:
    text = 'format = 1\n[[steps]]\nname = "a"\ncommand = ["true"]\n[[steps]]\nname = "b"\ncommand = ["false"]\nretries = 1\n'
    wfctl.ok("deployment", "add", "one", "-f", "-", stdin=text)
    file = tmp_path / "two.toml"
    file.write_text(text)
    wfctl.ok("deployment", "add", "two", "-f", str(file))
    steps = [wfctl.ok("deployment", "show", name, "-o", "json").json["definition"]["steps"] for name in ("one", "two")]
    assert steps[0] == steps[1]
    assert [step["name"] for step in steps[0]] == ["a", "b"]
    wfctl.ok("deployment", "set", "one", "steps.b.retries=3")
    assert wfctl.ok("deployment", "show", "one", "-o", "json").json["definition"]["steps"][1]["retries"] == 3

    file.write_text('format = 1\ncomand = ["true"]\numask = 8\n')
    refused = wfctl("deployment", "add", "three", "-f", str(file))
    assert refused.status == 65
    assert "line 2: comand" in refused.err  # contract 3.6: all problems, with the key path and a suggestion
    assert "line 3: umask" in refused.err
    assert wfctl("deployment", "add", "three", "-f", str(tmp_path / "absent.toml")).status == 66
    assert wfctl("deployment", "add", "three", "-f", str(file), "--", "true").status == 2
    assert wfctl("deployment", "add", "three").status == 2


def test_adding_a_schedule_shows_its_reading_and_the_next_five_instants(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    done = wfctl.ok(
        *("schedule", "add", "nightly", "--deployment", "dump", "--cron", "30 2 13 * 5", "--timezone", "Europe/Paris"),
        *("--misfire", "latest", "--input", "region=eu", "--input", "n=3", "--input", "list=[1]"),
    )
    assert "nightly  revision 1  active" in done.out  # contract 4.6
    assert "02:30 on day 13 of the month OR on Friday, Europe/Paris" in done.out
    assert done.out.count("CE") == 5
    assert done.out.count("T0") + done.out.count("T1") >= 5
    assert "warning day-fields-or" in done.out
    view = wfctl.ok("schedule", "show", "nightly", "-o", "json").json
    assert view["definition"]["input"] == {"region": "eu", "n": 3, "list": [1]}
    assert wfctl.ok("schedule", "add", "each", "--deployment", "dump", "--every", "1h", "-q").out == "each\n"
    program = wfctl.ok("schedule", "add", "other", "--deployment", "dump", "--cron", "0 0 13 * 5", "-o", "json")
    assert program.json["id"] == "other"
    assert "warning day-fields-or" in program.err, "beside JSON a warning is talk"


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        pytest.param(["--deployment", "dump"], 2, "say when to run", id="no trigger"),
        pytest.param(["--every", "1h"], 2, "say what to run", id="no deployment"),
        pytest.param(["--deployment", "dump", "--every", "1h", "--at", "x"], 2, "one of", id="two triggers"),
        pytest.param(
            ["--deployment", "dump", "--every", "1h", "--timezone", "UTC"], 2, "--timezone goes with --cron", id="zone"
        ),
        pytest.param(["--deployment", "dump", "--every", "1h30"], 65, "1h30m", id="a bare number, with a suggestion"),
        pytest.param(["--deployment", "dump", "--cron", "@reboot"], 65, "trigger.expression", id="@reboot"),
        pytest.param(["--deployment", "dump", "--at", "2026-01-01T00:00:00"], 65, "offset", id="a naive time"),
        pytest.param(["--deployment", "dump", "--at", "2020-01-01T00:00:00Z"], 65, "not later than now", id="the past"),
        pytest.param(["--deployment", "dmup", "--every", "1h"], 66, "did you mean dump", id="no such deployment"),
        pytest.param(["--deployment", "dump", "--every", "1h", "--overlap", "parallel"], 65, "max_active_runs", id="parallel"),
        pytest.param(["--deployment", "dump", "--cron", "0 0 30 2 *"], 65, "never fires", id="it never fires"),
    ],
)
def test_schedules_that_are_refused(wfctl: Wfctl, options: list[str], status: int, says: str) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    done = wfctl("schedule", "add", "x", *options)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("wfctl: ")
    assert says in done.err
    assert wfctl.ok("schedules", "-o", "json").json["items"] == []


def test_ids_that_are_no_ids_are_refused(wfctl: Wfctl) -> None:
    for name in ("X", "../x", "-x", ".x", "a..b", "a/b", "a" * 129, "ä", "a\nb"):
        assert wfctl("deployment", "add", "--", name, "true").status == 65, name  # contract 2.8


def test_a_dry_run_shows_everything_and_changes_nothing(wfctl: Wfctl, tmp_path: Path) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    file = tmp_path / "f.py"
    file.write_text("x")

    def written() -> list[tuple[str, bytes]]:
        files = [path for path in wfctl.root.rglob("*") if path.is_file() and not path.name.startswith("ledger.db")]
        return sorted((str(path), path.read_bytes()) for path in files)

    before = written()
    for words in (
        ["deployment", "add", "new", "--file", str(file), "--dry-run", "--", "true"],
        ["deployment", "set", "dump", "timeout=5s", "--dry-run"],
        ["deployment", "delete", "dump", "--dry-run"],
        ["schedule", "add", "nightly", "--deployment", "dump", "--cron", "0 1 * * *", "--dry-run"],
    ):
        done = wfctl.ok(*words)
        assert "dry run: nothing was changed" in done.err
    wfctl.ok("schedule", "add", "real", "--deployment", "dump", "--every", "1h")
    for words in (["set", "real", "notes=x"], ["pause", "real"], ["resume", "real"], ["delete", "real"]):
        assert "dry run" in wfctl.ok("schedule", *words, "--dry-run").err
    assert wfctl("schedule", "add", "x", "--deployment", "dump", "--every", "nope", "--dry-run").status == 65
    view = wfctl.ok("schedule", "show", "real", "-o", "json").json
    assert (view["revision"], view["state"]) == (1, "active")
    (wfctl.root / "schedules" / "real.toml").unlink()
    assert written() == before


def test_setting_fields_carries_the_revision_that_was_read(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    wfctl.ok("schedule", "add", "d", "--deployment", "dump", "--cron", "0 1 * * *", "--input", "region=eu", "--notes", "a")
    done = wfctl.ok("schedule", "set", "d", "trigger.expression=0 2 * * *", "input.region=us", "--unset", "notes", "-o", "json")
    assert done.json["revision"] == 2
    assert done.json["definition"]["trigger"] == {"kind": "cron", "expression": "0 2 * * *", "timezone": "UTC"}
    assert done.json["definition"]["input"] == {"region": "us"}
    assert done.json["definition"]["notes"] is None
    stale = wfctl("schedule", "set", "d", "notes=b", "--expected-revision", "1")  # contract 3.2
    assert stale.status == 80
    assert "revision 2" in stale.err
    assert "revision 1" in stale.err
    other = wfctl.ok("schedule", "set", "d", "trigger.every=10m", "-o", "json").json
    assert other["definition"]["trigger"] == {"kind": "interval", "every": "10m"}, "another kind leaves nothing of the old one"
    assert wfctl("schedule", "set", "d", "overlp=queue").status == 2
    assert wfctl("schedule", "set", "d").status == 2
    revisions = wfctl.ok("schedule", "revisions", "d", "-o", "json").json
    assert [item["revision"] for item in revisions["items"]] == [1, 2, 3]
    assert 'trigger.expression: "0 1 * * *" -> "0 2 * * *"' in wfctl.ok("schedule", "revisions", "d").out


def test_pause_resume_and_delete(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    for name in ("a", "b"):
        wfctl.ok("schedule", "add", name, "--deployment", "dump", "--cron", "0 1 * * *")
    assert wfctl.ok("schedule", "pause", "a", "--reason", ESCAPES).out.startswith("paused a since ")
    shown = wfctl.ok("schedule", "show", "a").out
    assert "paused" in shown
    assert "\x1b" not in shown
    assert r"\x1b[31mred\x1b[0m [bold]b[/] \u202e =1" in shown
    resumed = wfctl.ok("schedule", "resume", "a").out
    assert resumed.count("UTC") >= 5  # contract 4.6
    many = wfctl("schedule", "pause", "a", "b")
    assert many.status == 2, "changing many at once is asked for (11.7)"
    assert "--yes" in many.err
    assert [view["state"] for view in wfctl.ok("schedule", "pause", "a", "b", "-y", "-o", "json").json["items"]] == [
        "paused",
        "paused",
    ]
    mixed = wfctl("schedule", "resume", "a", "nope", "b", "-y", "-q")
    assert (mixed.status, mixed.out) == (66, "a\nb\n")
    assert "nope" in mixed.err
    assert wfctl("schedule", "delete", "a").status == 2
    wfctl.ok("schedule", "delete", "a", "--yes")
    assert wfctl.ok("schedules", "-o", "name").out == "b\n"
    assert wfctl.ok("schedules", "--include-deleted", "-o", "name").out == "a\nb\n"
    assert wfctl.ok("schedules", "--state", "deleted", "-o", "name").out == "a\n"
    assert wfctl("schedule", "set", "a", "notes=x").status == 66


def test_coming_instants(wfctl: Wfctl) -> None:
    words = ["-n", "4", "--from", "2027-10-30T12:00Z"]
    done = wfctl.ok("cron", "next", "30 2 * * *", "--timezone", "Europe/Berlin", *words, "-o", "json")
    instants = [item["instant"] for item in done.json["items"]]
    assert instants == ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z", "2027-11-02T01:30:00Z"]
    assert [item["note"] for item in done.json["items"]] == ["fold-first", "fold-second", None, None]
    assert "warning dst-twice" in done.err
    plain = wfctl.ok("cron", "next", "30 2 * * *", "--timezone", "Europe/Berlin", *words).out
    assert "Sun 2027-10-31 02:30 CEST" in plain
    assert "first pass of a repeated hour" in plain
    wfctl.ok("deployment", "add", "dump", "--", "true")
    wfctl.ok("schedule", "add", "daily", "--deployment", "dump", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    wfctl.ok("schedule", "add", "hourly", "--deployment", "dump", "--cron", "0 * * * *")
    merged = wfctl.ok("schedule", "next", "daily", "hourly", *words, "-o", "name").out.splitlines()
    assert merged == [f"hourly@2027-10-30T{hour}:00:00Z" for hour in (13, 14, 15, 16)]
    assert [item["instant"] for item in wfctl.ok("schedule", "next", "daily", *words, "-o", "json").json["items"]] == instants
    assert wfctl("cron", "next", "0 0 30 2 *").status == 65
    assert wfctl("cron", "next", "* * * * *", "-n", "0").status == 2
    assert wfctl("cron", "next", "* * * * *", "--from", "2027-10-30T12:00").status == 2
    for zone in ("Mars/Base", "localtime"):
        assert wfctl("cron", "next", "* * * * *", "--timezone", zone).status == 65


def test_text_of_users_comes_out_as_text_everywhere(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "dump", "--description", ESCAPES, "--", "printf", "%s|", "100%", "a b", "$HOME", "ż😀", "")
    wfctl.ok("schedule", "add", "x", "--deployment", "dump", "--every", "1h", "--notes", "=cmd|' /C calc'!A0\x1b]0;t\x07")
    for words in (["deployments"], ["deployment", "show", "dump"], ["schedules"], ["schedule", "show", "x"]):
        for output in ("plain", "table", "csv", "json", "jsonl"):
            for environ in ({}, {"FORCE_COLOR": "1"}, {"LANG": "C", "PYTHONIOENCODING": "ascii"}):
                done = wfctl.ok(*words, "-o", output, **environ)
                seen = done.out.replace("\x1b[0m", "")
                for code in ("1", "2", "31", "32", "33", "36"):
                    seen = seen.replace(f"\x1b[{code}m", "") if "FORCE_COLOR" in environ and output == "table" else seen
                assert "\x1b" not in seen, (words, output, environ)
                assert "\x07" not in seen
                assert "\u202e" not in seen
    cell = wfctl.ok("schedules", "--columns", "notes", "-o", "csv", "--no-header").out
    assert cell.lstrip('"').startswith("'=cmd")  # contract 8.6
    view = wfctl.ok("schedule", "show", "x", "-o", "json").json
    assert view["definition"]["notes"] == "=cmd|' /C calc'!A0\x1b]0;t\x07", "JSON is exact"
    command = wfctl.ok("deployment", "show", "dump", "-o", "json", PYTHONIOENCODING="ascii").json["definition"]["command"]
    assert command == ["printf", "%s|", "100%", "a b", "$HOME", "ż😀", ""]


def test_lists_have_one_shape(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "dump", "--", "true")
    for number in range(3):
        wfctl.ok("schedule", "add", f"s{number}", "--deployment", "dump", "--every", "1h")
    document = wfctl.ok("schedules", "-o", "json").json
    assert list(document) == ["schema", "items", "next_cursor"]  # contract 8.7
    assert (document["schema"], document["next_cursor"]) == ("wfctl/schedules.v1", None)
    keys = ["id", "state", "diagnostic", "revision", "effective_from", "next_instant", "candidate", "active_runs", "definition"]
    assert set(keys) <= set(document["items"][0])
    lines = wfctl.ok("schedules", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == document["items"]
    assert wfctl.ok("schedules", "-o", "name").out == "s0\ns1\ns2\n"
    assert wfctl.ok("schedules", "-o", "csv").out.splitlines()[0].startswith("id,state,trigger")
    assert wfctl.ok("schedules", "--columns", "revision,id", "--no-header").out == "1  s0\n1  s1\n1  s2\n"
    wrong = wfctl("schedules", "--columns", "nope")
    assert wrong.status == 2
    assert "the columns are id, state" in wrong.err
