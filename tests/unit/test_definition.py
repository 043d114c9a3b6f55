"""Definitions are read strictly, with every problem at once, and come back as they were (contract 2.8, 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wfctl.core.definition import (
    check_id,
    deployment_from_plain,
    deployment_to_plain,
    is_valid_id,
    schedule_from_plain,
    schedule_to_plain,
)
from wfctl.core.model import IntervalTrigger, Misfire, Notify, OneshotTrigger, Overlap, Step
from wfctl.errors import InvalidDefinition

EVERY = {"kind": "interval", "every": "10m"}
SCHEDULE: dict[str, Any] = {"deployment": "report.default", "trigger": EVERY}
DEPLOYMENT: dict[str, Any] = {"command": ["/bin/echo", "hello"]}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def problems_of(read: Any, plain: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(InvalidDefinition) as caught:
        read(plain, **options)
    return {problem.path: problem.message for problem in caught.value.problems}


# Ids (2.8)


@pytest.mark.parametrize("text", ["a", "0", "report.default", "a-b_c.d", "a" * 128])
def test_good_ids(text: str) -> None:
    assert is_valid_id(text)
    check_id(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("Nightly Report", "nightly-report", id="capitals and blanks"),
        pytest.param("a..b", "a.b", id="two dots"),
        pytest.param("../etc/passwd", "etc-passwd", id="a path"),
        pytest.param("-a", '"a"', id="begins with a dash"),
        pytest.param("a" * 129, "at most 128", id="129 characters"),
        pytest.param("a\n", '"a"', id="a newline at the end"),
        pytest.param("", "an id is", id="empty"),
        pytest.param("\u0660", "an id is", id="a digit that is not ASCII"),
    ],
)
def test_bad_ids_say_what_to_write(text: str, hint: str) -> None:
    assert not is_valid_id(text)
    with pytest.raises(InvalidDefinition) as caught:
        check_id(text, "schedule")
    assert hint in caught.value.message


# Schedules


def test_the_defaults_are_those_of_the_contract() -> None:
    definition = schedule_from_plain(SCHEDULE)  # contract 3.0
    assert (definition.overlap, definition.misfire, definition.lateness) == (Overlap.SKIP, Misfire.SKIP, timedelta(seconds=60))
    assert (definition.max_run, definition.max_steps, definition.max_active_runs, definition.limit) == ("auto", None, None, 1)
    assert definition.trigger == IntervalTrigger(timedelta(minutes=10))


def test_a_full_schedule_comes_back_as_it_was() -> None:
    plain = {
        "format": 1,
        "deployment": "report.default",
        "notes": "For the finance team\nfrom Monday",
        "overlap": "parallel",
        "max_active_runs": 2,
        "misfire": "latest",
        "lateness": "5m",
        "max_run": "1h30m",
        "max_steps": 100,
        "notify": {"command": ["/usr/bin/mail", "me"], "after": 3},
        "trigger": {"kind": "oneshot", "at": "2026-12-01T08:00:00Z"},
        "input": {"region": "eu", "sizes": [1, 2.5, True], "deep": {"a b": {}}},
    }
    definition = schedule_from_plain(plain)
    assert definition.trigger == OneshotTrigger(datetime(2026, 12, 1, 8, tzinfo=UTC))
    assert definition.notify == Notify(command=("/usr/bin/mail", "me"), after=3)
    assert schedule_to_plain(definition) == plain
    assert list(schedule_to_plain(definition)) == list(plain)


def test_null_reads_as_absent_and_every_field_is_written() -> None:
    definition = schedule_from_plain(SCHEDULE)
    plain = schedule_to_plain(definition)
    assert {key for key, value in plain.items() if value is None} == {"notes", "max_active_runs", "max_steps", "notify"}
    assert schedule_from_plain(plain) == definition
    assert schedule_from_plain(SCHEDULE | dict.fromkeys(("overlap", "misfire", "lateness", "max_run", "input"))) == definition


@pytest.mark.parametrize(
    ("change", "path", "hint"),
    [
        pytest.param({"overlap": "paralel"}, "overlap", "parallel", id="a word that is nearly one"),
        pytest.param({"overlap": "parallel"}, "max_active_runs", "required", id="parallel without its limit"),
        pytest.param({"max_active_runs": 2}, "max_active_runs", "leave it out", id="a limit without parallel"),
        pytest.param({"overlap": "parallel", "max_active_runs": 0}, "max_active_runs", "from 1", id="a limit of 0"),
        pytest.param(
            {"overlap": "parallel", "max_active_runs": True}, "max_active_runs", "whole number", id="true is no number"
        ),
        pytest.param({"misfire": "catch-up"}, "misfire", "skip, latest", id="an unknown misfire policy"),
        pytest.param({"lateness": "1h30"}, "lateness", "1h30m", id="a duration without its unit"),
        pytest.param({"lateness": 60}, "lateness", "duration", id="a number for a duration"),
        pytest.param({"max_run": "0s"}, "max_run", "longer than zero", id="a limit of no time"),
        pytest.param({"max_steps": 0}, "max_steps", "from 1", id="no steps at all"),
        pytest.param({"overlapp": "skip"}, "overlapp", '"overlap"', id="an unknown key"),
        pytest.param({"a.b c": 1}, '"a.b c"', "not a known key", id="an unknown key is quoted in a path"),
        pytest.param({"deployment": "A"}, "deployment", "lower-case", id="a deployment that is no id"),
        pytest.param({"deployment": None}, "deployment", "missing", id="no deployment"),
        pytest.param({"trigger": None}, "trigger", "missing", id="no trigger"),
        pytest.param({"trigger": "hourly"}, "trigger", "table", id="a trigger that is text"),
        pytest.param({"trigger": {"kind": "cron", "expression": "x"}}, "trigger.expression", "fields", id="a bad expression"),
        pytest.param({"input": ["a"]}, "input", "table", id="an input that is a list"),
        pytest.param({"input": {"a": None}}, "input.a", "leave the key out", id="null in an input"),
        pytest.param({"input": {"a": [float("nan")]}}, "input.a[0]", "JSON", id="NaN in an input"),
        pytest.param({"input": {"a": datetime(2026, 1, 1)}}, "input.a", '"2026-01-01T00:00:00"', id="a TOML time in an input"),
        pytest.param({"input": {"a": "\ud800"}}, "input.a", "Unicode", id="half a character in an input"),
        pytest.param({"input": {"a": "x" * 65_536}}, "input", "at most 65536", id="an input of more than 64 KiB"),
        pytest.param({"input": {"a": 10**5000}}, "input.a", "64 bits", id="a number too large to be written"),
        pytest.param({"trigger": {"kind": 10**5000}}, "trigger.kind", "64 bits", id="a kind too large to be written"),
        pytest.param({"max_steps": 10**5000}, "max_steps", "64 bits", id="a limit too large to be written"),
        pytest.param({"format": 10**5000}, "format", "64 bits", id="a format too large to be written"),
        pytest.param(
            {"trigger": {"kind": "oneshot", "at": datetime(2026, 1, 1)}},
            "trigger.at",
            "offset",
            id="a TOML time without an offset",
        ),
        pytest.param({"notify": {"command": "mail me"}}, "notify.command", '["mail", "me"]', id="a notify command as text"),
        pytest.param({"notify": {"command": ["x"], "afer": 1}}, "notify.afer", '"after"', id="an unknown key of notify"),
        pytest.param({"notes": "a\0b"}, "notes", "NUL", id="NUL in a text"),
        pytest.param({"format": 2}, "format", "format 1", id="a later format"),
        pytest.param({"format": True}, "format", "format 1", id="true is no format"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named_with_its_path(change: dict[str, Any], path: str, hint: str) -> None:
    found = problems_of(schedule_from_plain, SCHEDULE | change)
    assert list(found) == [path]
    assert hint in found[path]


def test_all_problems_are_reported_together() -> None:
    plain = {"format": 3, "deployment": "", "overlap": "x", "lateness": "x", "trigger": {"kind": "x"}, "input": 1, "zzz": 1}
    found = problems_of(schedule_from_plain, plain, subject="schedules/x.toml")  # contract 3.6
    assert {"format", "deployment", "overlap", "lateness", "trigger.kind", "input", "zzz"} == set(found)


def test_a_file_must_name_its_format_and_the_api_need_not() -> None:
    schedule_from_plain(SCHEDULE)
    assert "format = 1" in problems_of(schedule_from_plain, SCHEDULE, format_required=True)["format"]


def test_allow_is_read_as_parallel() -> None:
    assert schedule_from_plain(SCHEDULE | {"overlap": "allow", "max_active_runs": 2}).overlap is Overlap.PARALLEL  # contract 3


def test_deep_nesting_is_refused_before_anything_recurses_too_far() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    [message] = problems_of(schedule_from_plain, SCHEDULE | {"input": {"a": deep}}).values()
    assert "deeper" in message


def test_the_input_is_a_copy() -> None:
    bound = {"a": [1]}
    definition = schedule_from_plain(SCHEDULE | {"input": bound})
    bound["a"].append(2)
    assert definition.input == {"a": [1]}


# Deployments


def test_one_command_is_one_step() -> None:
    definition = deployment_from_plain(DEPLOYMENT | {"retries": 2, "timeout": "5m"})
    assert definition.is_one_command
    assert definition.steps == (Step(name="main", command=("/bin/echo", "hello"), retries=2, timeout=timedelta(minutes=5)),)
    assert (definition.kill_grace, definition.umask, definition.executor) == (
        timedelta(seconds=10),
        0o022,
        "local",
    )  # contract 3.0


def test_a_full_deployment_comes_back_as_it_was() -> None:
    plain = {
        "format": 1,
        "description": "Hourly sales report",
        "working_directory": "/srv/report",
        "environment": {"LANG": "C.UTF-8"},
        "environment_files": ["/etc/wfctl/report.env"],
        "kill_grace": "30s",
        "umask": "077",
        "executor": "local",
        "files": {"report.py": DIGEST},
        "input_schema": {"type": "object", "properties": {"region": {"enum": ["eu", "us"]}}},
        "steps": [
            {"name": "extract", "command": ["python3", "report.py"], "retries": 0, "retry_delay": "10s", "timeout": "none"},
            {"name": "load", "command": ["load"], "retries": 3, "retry_delay": "1m", "timeout": "1h"},
        ],
    }
    definition = deployment_from_plain(plain)
    assert definition.umask == 0o077
    assert deployment_to_plain(definition) == plain


def test_the_one_command_form_comes_back_as_it_was() -> None:
    definition = deployment_from_plain(DEPLOYMENT)
    assert deployment_from_plain(deployment_to_plain(definition)) == definition
    assert "steps" not in deployment_to_plain(definition)


@pytest.mark.parametrize(
    ("change", "path", "hint"),
    [
        pytest.param({"command": None}, "command", "missing", id="nothing to run"),
        pytest.param({"command": "echo hello"}, "command", '["echo", "hello"]', id="a command as text"),
        pytest.param({"command": "a | b"}, "command", '["/bin/sh", "-c", "a | b"]', id="a command that needs a shell"),
        pytest.param({"command": []}, "command", "no program", id="an empty command"),
        pytest.param({"command": ["", "x"]}, "command", "no program", id="an empty program"),
        pytest.param({"command": ["x", 5]}, "command[1]", "text", id="an argument that is a number"),
        pytest.param({"command": ["x", "a\0b"]}, "command[1]", "NUL", id="NUL in an argument"),
        pytest.param({"command": ["x"] * 1001}, "command", "at most 1000", id="1,001 arguments"),
        pytest.param({"command": ["x", "y" * 131_070]}, "command", "at most 131072", id="a byte more than 128 KiB"),
        pytest.param({"steps": []}, "command", "either at the top", id="command and steps"),
        pytest.param({"retries": -1}, "retries", "from 0", id="fewer than no retries"),
        pytest.param({"timeout": "0s"}, "timeout", "longer than zero", id="no time at all"),
        pytest.param({"umask": 22}, "umask", '"022"', id="a number for the umask"),
        pytest.param({"umask": "0888"}, "umask", "octal", id="an umask that is not octal"),
        pytest.param({"executor": "nomad"}, "executor", "local", id="an executor of the future"),
        pytest.param({"working_directory": "srv"}, "working_directory", "beginning with /", id="a relative directory"),
        pytest.param(
            {"environment_files": ["a.env"]}, "environment_files[0]", "beginning with /", id="a relative environment file"
        ),
        pytest.param({"environment": {"WFCTL_X": "1"}}, "environment.WFCTL_X", "WFCTL_", id="a variable of ours"),  # 3.9
        pytest.param({"environment": {"A=B": "1"}}, 'environment."A=B"', "no name", id="= in a name"),
        pytest.param({"environment": {"": "1"}}, 'environment.""', "no name", id="an empty name"),
        pytest.param({"environment": {"A": 1}}, "environment.A", "text", id="a number in the environment"),
        pytest.param({"environment": {"A": "a\0"}}, "environment.A", "NUL", id="NUL in a variable"),
        pytest.param({"environment": ["A=1"]}, "environment", "table", id="a list for the environment"),
        pytest.param({"files": {"../x": DIGEST}}, 'files."../x"', "plain file name", id="a file outside"),
        pytest.param({"files": {"..": DIGEST}}, 'files.".."', "plain file name", id="the directory above"),
        pytest.param({"files": {"x": "sha256:12"}}, "files.x", "64", id="a digest that is cut"),
        pytest.param({"input_schema": [1]}, "input_schema", "JSON Schema", id="a schema that is a list"),
        pytest.param({"input_schema": {"a": "x" * 65_536}}, "input_schema", "at most 65536", id="a schema of more than 64 KiB"),
        pytest.param({"comand": ["x"]}, "comand", '"command"', id="an unknown key"),
    ],
)
def test_what_is_wrong_with_a_deployment_is_named_with_its_path(change: dict[str, Any], path: str, hint: str) -> None:
    found = problems_of(deployment_from_plain, DEPLOYMENT | change)
    assert path in found
    assert hint in found[path]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["x"] * 1000, id="1,000 arguments"),
        pytest.param(["x", "y" * 131_069], id="128 KiB, the kernel's NULs included"),
    ],
)
def test_the_largest_commands(command: list[str]) -> None:
    assert deployment_from_plain({"command": command}).steps[0].command == tuple(command)  # contract 3.6


def test_steps_are_named_once_and_their_problems_are_numbered() -> None:
    steps = [
        {"name": "a", "command": ["x"]},
        {"name": "a", "command": []},
        {"command": ["y"], "retrys": 1},
        "z",
        {"name": "a b"},
    ]
    found = problems_of(deployment_from_plain, {"steps": steps})
    assert {"steps[1].name", "steps[1].command", "steps[2].retrys", "steps[3]", "steps[4].name", "steps[4].command"} <= set(
        found
    )
    assert deployment_from_plain({"steps": steps[2:3] and [{"command": ["y"]}]}).steps[0].name == "step-1"


def test_a_hundred_steps_and_no_more() -> None:
    assert len(deployment_from_plain({"steps": [{"command": ["x"]}] * 100}).steps) == 100  # contract 3.6
    assert "at most 100" in problems_of(deployment_from_plain, {"steps": [{"command": ["x"]}] * 101})["steps"]


# Whatever comes in, either a definition or a list of problems comes out

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.datetimes(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [*schedule_to_plain(schedule_from_plain(SCHEDULE)), *deployment_to_plain(deployment_from_plain(DEPLOYMENT)), "x"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4), st.booleans())
def test_anything_is_read_or_refused_and_what_is_read_comes_back(change: dict[str, Any], is_schedule: bool) -> None:
    read, write = (schedule_from_plain, schedule_to_plain) if is_schedule else (deployment_from_plain, deployment_to_plain)
    base = SCHEDULE if is_schedule else DEPLOYMENT
    try:
        definition = read(base | change)  # type: ignore[operator]
    except InvalidDefinition as error:
        assert error.problems
    else:
        assert read(write(definition)) == definition  # type: ignore[operator]
