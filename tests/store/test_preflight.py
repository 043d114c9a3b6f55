"""What a run needs before it is admitted, and its exact environment (contract 3.9, 5.9, 6.4)."""

from __future__ import annotations

import os
import pwd
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from wfctl.core.definition import deployment_from_plain
from wfctl.operations.preflight import (
    PATH,
    Execution,
    base_environment,
    check_preflight,
    environment_of,
    find_program,
    parse_environment_file,
    read_environment_files,
    traceparent_of,
)
from wfctl.store.artifacts import store_artifact
from wfctl.store.disk import Disk
from wfctl.store.layout import Layout

BASE = base_environment({})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "store")
    layout.artifacts.mkdir(parents=True)
    return layout


def make(path: Path, content: str = "", mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def problems_of(layout: Layout, plain: dict[str, Any], bound: dict[str, Any] | None = None) -> dict[str, str]:
    reason = check_preflight(deployment_from_plain(plain), layout, bound or {}, BASE)
    if reason is None:
        return {}
    assert reason["code"] == "preflight"
    return {problem["path"]: problem["message"] for problem in reason["problems"]}


def test_a_deployment_that_has_all_it_needs_passes(layout: Layout, tmp_path: Path) -> None:
    plain = {
        "command": ["sh", "-c", "true"],
        "working_directory": str(tmp_path),
        "environment_files": [str(make(tmp_path / "e", "A=1\n"))],
        "files": {"report.py": store_artifact(layout, Disk(), b"x")},
        "input_schema": {"required": ["region"]},
    }
    assert problems_of(layout, plain, {"region": "eu"}) == {}


def test_everything_that_is_missing_is_named_at_once(layout: Layout, tmp_path: Path) -> None:
    plain = {
        "command": ["no-such-program"],
        "working_directory": str(tmp_path / "nowhere"),
        "environment_files": [str(tmp_path / "no.env")],
        "files": {"report.py": "sha256:" + "0" * 64},
        "input_schema": {"required": ["region"]},
    }
    found = problems_of(layout, plain)  # contract 5.9
    assert set(found) == {"command", "working_directory", "environment_files[0]", 'files."report.py"', "input"}
    assert PATH in found["command"]


def test_the_program_is_the_first_step_of_a_pipeline(layout: Layout) -> None:
    steps = [{"name": "a", "command": ["no-such-program"]}, {"name": "b", "command": ["made-by-the-first"]}]
    assert set(problems_of(layout, {"steps": steps})) == {"steps[0].command"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("{tmp}/good", None, id="a whole path"),
        pytest.param("{tmp}/plain", "chmod +x", id="a file that cannot be executed"),
        pytest.param("{tmp}", "is not there", id="a directory"),
        pytest.param("{tmp}/nothing", "is not there", id="nothing"),
        pytest.param("./pinned.sh", None, id="a pinned file"),
        pytest.param("./other.sh", "pin it", id="a file that nobody puts into the run's directory"),
        pytest.param("pinned.sh", "PATH", id="a bare name is never taken from the working directory"),
    ],
)
def test_where_a_program_is_found(layout: Layout, tmp_path: Path, name: str, hint: str | None) -> None:
    make(tmp_path / "good", "#!/bin/sh\n", 0o700)
    make(tmp_path / "plain")
    plain = {"command": [name.format(tmp=tmp_path)], "files": {"pinned.sh": store_artifact(layout, Disk(), b"x")}}
    found = problems_of(layout, plain)
    assert set(found) == ({"command"} if hint else set())
    assert (hint or "") in found.get("command", "")


def test_a_relative_program_is_taken_from_the_working_directory(layout: Layout, tmp_path: Path) -> None:
    make(tmp_path / "good", "#!/bin/sh\n", 0o700)
    assert problems_of(layout, {"command": ["./good"], "working_directory": str(tmp_path)}) == {}
    assert find_program("./good", BASE, tmp_path) == tmp_path / "good"


def test_the_path_is_the_runs_own(layout: Layout, tmp_path: Path) -> None:
    make(tmp_path / "good", "#!/bin/sh\n", 0o700)
    assert problems_of(layout, {"command": ["good"], "environment": {"PATH": f"relative::{tmp_path}"}}) == {}
    environment_file = make(tmp_path / "e", f"PATH={tmp_path}\n")
    assert problems_of(layout, {"command": ["good"], "environment_files": [str(environment_file)]}) == {}
    assert "command" in problems_of(layout, {"command": ["sh"], "environment": {"PATH": ""}})


# Environment files (3.9)


def test_an_environment_file_is_taken_as_it_stands() -> None:
    content = b"# a remark\n\nA=1\nB='x $A' # not a remark\r\nC=\nD=a=b\nA=2\n  # indented\nE=\xff"
    assert parse_environment_file(content) == {"A": "2", "B": "'x $A' # not a remark", "C": "", "D": "a=b", "E": "\udcff"}


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        pytest.param(b"A=1\nsecret\n", "line 2 is not KEY=VALUE", id="no ="),
        pytest.param(b"export A=secret\n", "line 1 begins with export", id="a line for a shell"),
        pytest.param(b"A =secret\n", "line 1 has blanks", id="a blank before ="),
        pytest.param(b"=secret\n", "line 1", id="no name"),
        pytest.param(b"WFCTL_RUN_ID=secret\n", "WFCTL_", id="a variable of ours"),
        pytest.param(b"A=\0secret\n", "NUL", id="NUL"),
    ],
)
def test_a_bad_line_is_named_without_its_value(content: bytes, hint: str) -> None:
    with pytest.raises(ValueError, match=hint) as caught:
        parse_environment_file(content)
    assert "secret" not in str(caught.value)


def test_only_files_that_nobody_else_may_write_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    make(tmp_path / "shared", "A=1\n", 0o620)
    make(tmp_path / "large", "A=" + "x" * 65_535)
    make(tmp_path / "good", "A=1\nB=1\n", 0o644)
    (tmp_path / "link").symlink_to("good")
    make(tmp_path / "later", "B=2\n")
    names = ["fifo", "shared", "large", "good", "link", "later", "nothing"]
    variables, problems = read_environment_files(tuple(str(tmp_path / name) for name in names))
    assert variables == {"A": "1", "B": "2"}
    assert [problem.path for problem in problems] == [f"environment_files[{index}]" for index in (0, 1, 2, 6)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    make(tmp_path / "e", "A=1\n")
    os.chown(tmp_path / "e", 4321, 0)
    assert "belongs to" in read_environment_files((str(tmp_path / "e"),))[1][0].message


# The environment (6.4)


def test_the_base_is_nothing_but_what_the_contract_lists() -> None:
    entry = pwd.getpwuid(os.geteuid())
    expected = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }
    assert base_environment({"SECRET": "x", "PATH": "/evil", "HOME": "/evil", "LANG": "", "TZ": ""}) == expected
    assert base_environment({"LANG": "hu_HU.UTF-8", "TZ": "UTC"}) == expected | {"LANG": "hu_HU.UTF-8", "TZ": "UTC"}


def test_the_environment_of_an_execution_is_exact() -> None:
    definition = deployment_from_plain({"command": ["x"], "environment": {"A": "definition", "LANG": "C", "B": "definition"}})
    execution = Execution(
        run_id="run-000007",
        k=3,
        attempt=2,
        step="extract",
        schedule_id="hourly-report",
        instant=datetime(2026, 3, 1, 9, tzinfo=UTC),
        revision=4,
        is_resumed=True,
        traceparent="00-1-2-01",
    )
    environment = environment_of(definition, Layout(Path("/s")), execution, BASE, {"A": "file"})
    run = "/s/runs/run-000007"
    assert environment == BASE | {
        "LANG": "C",
        "A": "file",
        "B": "definition",
        "TRACEPARENT": "00-1-2-01",
        "WFCTL_RUN_ID": "run-000007",
        "WFCTL_SCHEDULE_ID": "hourly-report",
        "WFCTL_OCCURRENCE": "2026-03-01T09:00:00Z",
        "WFCTL_REVISION": "4",
        "WFCTL_ATTEMPT": "2",
        "WFCTL_STEP": "extract",
        "WFCTL_EXECUTION": "3",
        "WFCTL_STORE": "/s",
        "WFCTL_INPUT": f"{run}/input.json",
        "WFCTL_FILES": f"{run}/files",
        "WFCTL_OUTPUT": f"{run}/3/output",
        "WFCTL_CHECKPOINT": f"{run}/3/checkpoint",
        "WFCTL_INTERRUPT": f"{run}/3/interrupt",
        "WFCTL_RESUME": f"{run}/3/resume.json",
    }


def test_a_manual_run_has_an_empty_schedule_and_occurrence() -> None:
    definition = deployment_from_plain({"command": ["x"]})
    environment = environment_of(
        definition, Layout(Path("/s")), Execution(run_id="run-000001", k=1, attempt=1, step="main"), BASE, {}
    )
    assert [environment[f"WFCTL_{name}"] for name in ("SCHEDULE_ID", "OCCURRENCE", "REVISION")] == ["", "", ""]
    assert not {"WFCTL_RESUME", "TRACEPARENT"} & set(environment)


def test_a_run_is_one_trace_and_an_execution_one_span() -> None:
    first, second, other = (
        traceparent_of("store", *what) for what in (("run-000001", 1), ("run-000001", 2), ("run-000002", 1))
    )
    assert first.split("-")[1] == second.split("-")[1] != other.split("-")[1]
    assert first.split("-")[2] != second.split("-")[2]
    assert [len(part) for part in first.split("-")] == [2, 32, 16, 2]


def test_placed_files_can_be_executed(layout: Layout) -> None:
    from wfctl.store.rundir import RunIdentity, prepare_run

    layout.runs.mkdir()
    files = {"run.sh": store_artifact(layout, Disk(), b"#!/bin/sh\n")}
    run = prepare_run(layout, RunIdentity(run_id="run-000001", deployment_id="d", deployment_revision=1), {}, files)
    assert find_program("./run.sh", BASE, run.work) == run.work / "run.sh"
    assert stat.S_IMODE((run.files / "run.sh").stat().st_mode) == 0o500
