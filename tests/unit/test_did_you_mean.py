"""Whatever is mistyped: what was meant is named, and the line is written anew, ready to be run (contract 3.6, 9.1, 10)."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.doors import command_line
from tests.support.schedules import add
from tests.support.story import World
from wfctl import init_store
from wfctl.core.instants import format_instant
from wfctl.core.near import near
from wfctl.errors import MissingExtra, NotFound
from wfctl.settings import settings_from_plain

EVERY = {"kind": "interval", "every": "10m"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two deployments, two schedules and a run."""
    path = tmp_path_factory.mktemp("near") / "store"
    with init_store(path) as store:
        store.create_deployment(deployment_id="dump", command=["/bin/true"])
        store.create_deployment(
            deployment_id="report",
            command=["/bin/true"],
            input_schema={"type": "object", "properties": {"region": {"enum": ["eu", "us"]}}},
        )
        store.create_schedule(
            schedule_id="nightly", deployment_id="dump", trigger={"kind": "cron", "expression": "30 2 * * *", "timezone": "UTC"}
        )
        store.create_schedule(schedule_id="often", deployment_id="dump", trigger=EVERY)
        store.start_run(deployment_id="dump")
    return path


ADD = ["schedule", "add", "new", "--deployment", "dump"]
CRON = [*ADD, "--cron", "30 2 * * *"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        pytest.param(["shedule", "show", "nightly"], ["schedule", "show", "nightly"], id="a group, told apart by its command"),
        pytest.param(["shedules"], ["schedules"], id="a command"),
        pytest.param(["schedule", "shw", "nightly"], ["schedule", "show", "nightly"], id="a command of a group"),
        pytest.param(
            ["schedule", "import", "cronta", "x"], ["schedule", "import", "crontab", "x"], id="a command two groups down"
        ),
        pytest.param([*CRON, "--overlapp", "queue"], [*CRON, "--overlap", "queue"], id="an option"),
        pytest.param([*CRON, "--overlapp=queue"], [*CRON, "--overlap=queue"], id="an option with its value"),
        pytest.param(["schedules", "--colums", "id"], ["schedules", "--columns", "id"], id="a common option"),
        pytest.param(["schedules", "-o", "jsn"], ["schedules", "-o", "json"], id="a format"),
        pytest.param(["schedules", "-ojsn"], ["schedules", "-ojson"], id="a format that clings to its option"),
        pytest.param(["schedules", "--output=jsn"], ["schedules", "--output=json"], id="a format behind an equals sign"),
        pytest.param(["schedules", "--color", "alway"], ["schedules", "--color", "always"], id="when to colour"),
        pytest.param(["schedules", "--columns", "id,stat"], ["schedules", "--columns", "id,state"], id="a column"),
        pytest.param(["schedules", "--state", "paused,activ"], ["schedules", "--state", "paused,active"], id="a state"),
        pytest.param(["schedules", "--sort", "nxt"], ["schedules", "--sort", "next"], id="an order"),
        pytest.param(["occurrences", "--status", "complete"], ["occurrences", "--status", "completed"], id="a status"),
        pytest.param(["runs", "--status", "faild"], ["runs", "--status", "failed"], id="a status of a run"),
        pytest.param(["schedule", "show", "nigthly"], ["schedule", "show", "nightly"], id="a schedule"),
        pytest.param(["occurrences", "often", "nightli"], ["occurrences", "often", "nightly"], id="a schedule of several"),
        pytest.param(["runs", "--schedule", "oftn"], ["runs", "--schedule", "often"], id="a schedule to filter by"),
        pytest.param(["run", "start", "dmup"], ["run", "start", "dump"], id="a deployment"),
        pytest.param(["run", "show", "run-1"], ["run", "show", "run-000001"], id="a run by its number"),
        pytest.param(["run", "logs", "1"], ["run", "logs", "run-000001"], id="a run by its number alone"),
        pytest.param(
            ["schedule", "add", "new", "--deployment", "dumb", "--every", "5m"],
            ["schedule", "add", "new", "--deployment", "dump", "--every", "5m"],
            id="the deployment of a schedule",
        ),
        pytest.param([*CRON, "--timezone", "Europe/Pariss"], [*CRON, "--timezone", "Europe/Paris"], id="a zone"),
        pytest.param([*CRON, "--timezone=new york"], [*CRON, "--timezone=America/New_York"], id="a place"),
        pytest.param(["load", "--timezone", "Pariss"], ["load", "--timezone", "Europe/Paris"], id="a zone to show times in"),
        pytest.param([*CRON, "--overlap", "que"], [*CRON, "--overlap", "queue"], id="a policy"),
        pytest.param([*CRON, "--misfire", "last"], [*CRON, "--misfire", "latest"], id="another policy"),
        pytest.param([*CRON, "--lateness", "1h30"], [*CRON, "--lateness", "1h30m"], id="a duration (contract 3.10)"),
        pytest.param([*ADD, "--every", "5 minutos"], None, id="a duration of which nothing can be made"),
        pytest.param([*ADD, "--every", "90"], [*ADD, "--every", "1m30s"], id="a bare number"),
        pytest.param(
            ["run", "wait", "run-000001", "--timeout", "1h30"],
            ["run", "wait", "run-000001", "--timeout", "1h30m"],
            id="a duration to wait",
        ),
        pytest.param(["occurrences", "--since", "2h30"], ["occurrences", "--since", "2h30m"], id="how long ago"),
        pytest.param([*ADD, "--cron", "@hourl"], [*ADD, "--cron", "@hourly"], id="a word for an expression"),
        pytest.param(["cron", "explain", "@dayly"], ["cron", "explain", "@daily"], id="that word alone"),
        pytest.param(
            ["schedule", "set", "nightly", "overlp=queue"], ["schedule", "set", "nightly", "overlap=queue"], id="a key"
        ),
        pytest.param(
            ["schedule", "set", "nightly", "overlap=que"],
            ["schedule", "set", "nightly", "overlap=queue"],
            id="the value of a key",
        ),
        pytest.param(
            ["schedule", "set", "nightly", "trigger.timezon=UTC"],
            ["schedule", "set", "nightly", "trigger.timezone=UTC"],
            id="a key in a table",
        ),
        pytest.param(
            ["schedule", "set", "nightly", "trigger.timezone=Europe/Pariss", "overlp=skip"],
            ["schedule", "set", "nightly", "trigger.timezone=Europe/Pariss", "overlap=skip"],
            id="the first of two things that are found at different times",
        ),
        pytest.param(
            ["schedule", "set", "nightly", "--unset", "note"],
            ["schedule", "set", "nightly", "--unset", "notes"],
            id="a key to clear",
        ),
        pytest.param(
            ["deployment", "set", "dump", "descripton=x"],
            ["deployment", "set", "dump", "description=x"],
            id="a key of a deployment",
        ),
        pytest.param(
            ["deployment", "set", "dump", "--unset", "umsk"],
            ["deployment", "set", "dump", "--unset", "umask"],
            id="a key of a deployment to clear",
        ),
        pytest.param(["help", "revision-conflit"], ["help", "revision-conflict"], id="an error code"),
        pytest.param(["help", "skiped-misfire"], ["help", "skipped-misfire"], id="a status to explain"),
        pytest.param(["help", "outlivd"], ["help", "outlived"], id="a reason"),
        pytest.param(["help", "enviroment"], ["help", "environment"], id="a topic"),
        pytest.param(["rpc", "call", "workflow.schedules.lst"], ["rpc", "call", "workflow.schedules.list"], id="a method"),
        pytest.param(
            ["rpc", "call", "workflow.schedules.get", '{"schedule": "often"}'],
            ["rpc", "call", "workflow.schedules.get", '{"schedule_id": "often"}'],
            id="a parameter",
        ),
        pytest.param(
            ["store", "verify", "--fix", "run-without-ocurrence"],
            ["store", "verify", "--fix", "run-without-occurrence"],
            id="a contradiction",
        ),
    ],
)
def test_the_line_is_written_anew_with_what_was_meant(root: Path, words: list[str], meant: list[str] | None) -> None:
    said = command_line("--store", str(root), *words)
    assert said.status != 0
    fixes = [line for line in said.err.splitlines() if line.startswith("  fix: ")]
    assert len(fixes) == 1, said.err
    if meant is None:
        assert "--help" in fixes[0]
        return
    assert shlex.split(fixes[0].removeprefix("  fix: ")) == ["wfctl", "--store", str(root), *meant]
    assert "did you mean" in said.err
    assert "^" in said.err, "and it is shown where it stood"


def test_of_two_that_are_equally_near_both_are_written(root: Path) -> None:
    said = command_line("--store", str(root), "occurrences", "--status", "skiped")
    assert [line[7:].rsplit(" ", 1)[1] for line in said.err.splitlines() if line.startswith(("  fix: ", "  or:  "))] == [
        "skipped-misfire",
        "skipped-overlap",
    ]


def test_instants_beside_one_that_is_none_are_named(root: Path) -> None:
    said = command_line("--store", str(root), "occurrence", "explain", "nightly@2031-03-01T02:31:00Z")
    assert "did you mean nightly@2031-03-01T02:30:00Z or nightly@2031-03-02T02:30:00Z?" in said.err
    assert "\n  fix: wfctl --store " in said.err


def test_occurrences_beside_one_that_is_not_recorded_are_named(tmp_path: Path) -> None:
    with init_store(tmp_path / "store") as store:
        store.create_deployment(deployment_id="job", command=["/bin/true"])
    world = World(tmp_path / "store")
    add(world.store, "tick")
    for _ in range(3):
        world.clock.advance(timedelta(minutes=1))
        world.step()
    recorded = [row.instant for row in world.store.list_schedule_occurrences(schedule_id="tick").items]
    with pytest.raises(NotFound, match="the nearest are") as caught:
        world.store.get_occurrence(schedule_id="tick", instant=recorded[0] + timedelta(seconds=20))
    assert caught.value.data["near"] == [f"tick@{format_instant(each)}" for each in recorded[:2]]
    world.die()


def test_the_same_suggestions_travel_as_data(root: Path) -> None:  # contract 9.1
    def data(*words: str) -> dict[str, object]:
        said = command_line("--store", str(root), "-o", "json", *words)
        found: dict[str, object] = json.loads(said.err)["data"]
        return found

    assert data("schedule", "show", "nigthly")["near"] == ["nightly"]
    assert data("run", "show", "run-1")["near"] == ["run-000001"]
    assert data("occurrences", "--status", "complete")["near"] == ["completed"]
    problems = data(*CRON, "--overlap", "que", "--timezone", "Europe/Pariss")["problems"]
    assert isinstance(problems, list)
    assert [(each["path"], each["near"]) for each in problems] == [
        ("overlap", ["queue"]),
        ("trigger.timezone", ["Europe/Paris"]),
    ]
    assert data("shedules")["near"] == ["schedules", "schedule"]


def test_settings_name_what_was_meant() -> None:  # contract 10
    with pytest.raises(MissingExtra, match='did you mean "max_concurrent_runs"'):
        settings_from_plain({"supervisor": {"max_concurent_runs": 4}})
    with pytest.raises(MissingExtra, match='did you mean "supervisor"'):
        settings_from_plain({"supervisr": {}})


def test_keys_of_a_file_name_what_was_meant_with_their_line(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(
        'format = 1\ndeployment = "dump"\noverlp = "skip"\n[trigger]\nkind = "cron"\n'
        'expression = "30 25 * * *"\ntimezone = "Europe/Pariss"\n'
    )
    said = command_line("--store", str(root), "schedule", "add", "new", "-f", str(file))
    rows = said.err.splitlines()
    assert rows[0] == "wfctl: schedule new: 3 problems"
    for number, text, marked in (
        (3, 'overlp = "skip"', "overlp"),
        (6, 'expression = "30 25 * * *"', '"30 25 * * *"'),
        (7, 'timezone = "Europe/Pariss"', '"Europe/Pariss"'),
    ):
        row = next(index for index, each in enumerate(rows) if each.endswith(f"{file.name}:{number}: {text}"))
        assert rows[row][rows[row + 1].index("^") : len(rows[row + 1])] == marked
    assert rows[-2].endswith(f" +3 {file}")  # the editor at the first of them


def test_nothing_is_named_that_is_not_like_it(root: Path) -> None:
    said = command_line("--store", str(root), "schedule", "show", "qqq")
    assert "did you mean" not in said.err
    assert said.err.splitlines()[-2] == f"  fix: wfctl --store {root} schedules"


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("x" * 1000, ["x" * 1000], []),
        ("", ["a"], []),
        (None, ["a"], []),
        (5, ["5"], []),
        ("EU", ["eu", "us"], ["eu"]),
        ("--quiet", ["--quiet"], ["--quiet"]),
        ("timeout", ["--input", "--detach"], []),
        ("skipped", ["skipped-overlap", "skipped-misfire", "failed"], ["skipped-overlap", "skipped-misfire"]),
    ],
)
def test_near(word: object, known: list[str], found: list[str]) -> None:
    assert near(word, known) == found
