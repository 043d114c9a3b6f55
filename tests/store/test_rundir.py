"""A run's directory: what is put there, what is believed of what the job leaves, and its logs (contract 6.4, 6.5, 6.15)."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from wfctl.errors import IoError
from wfctl.store.artifacts import store_artifact
from wfctl.store.disk import Disk
from wfctl.store.layout import Layout, RunPaths
from wfctl.store.logs import lost_bytes, read_log, tail_start
from wfctl.store.rundir import (
    Checkpoint,
    RunIdentity,
    checkpoint_digest,
    last_checkpoint,
    list_run_directories,
    prepare_execution,
    prepare_run,
    read_checkpoint,
    read_identity,
    read_interrupt,
    read_output,
    remove_run,
    write_checkpoint,
)

IDENTITY = RunIdentity(
    run_id="run-000001",
    deployment_id="report.default",
    deployment_revision=3,
    schedule_id="hourly-report",
    instant=datetime(2026, 3, 1, 9, tzinfo=UTC),
    revision=2,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.runs.mkdir()
    layout.artifacts.mkdir()
    return layout


@pytest.fixture
def run(layout: Layout) -> RunPaths:
    run = prepare_run(layout, IDENTITY, {}, {})
    prepare_execution(run, 1)
    return run


def test_a_run_is_prepared_for_its_owner_alone_and_may_be_prepared_again(layout: Layout) -> None:
    name = store_artifact(layout, Disk(), b"x")
    before = os.umask(0)
    try:
        for _ in range(2):
            run = prepare_run(layout, IDENTITY, {"region": "e\u0301u"}, {"report.py": name})
            prepare_execution(run, 1)
    finally:
        os.umask(before)
    assert json.loads(run.input.read_bytes()) == {"region": "e\u0301u"}
    assert {path.name for path in run.root.iterdir()} == {"run.json", "input.json", "work", "files", "1"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (run.root, run.work, run.files, run.execution(1).root)} == {0o700}
    assert stat.S_IMODE(run.input.stat().st_mode) == 0o600  # contract 2.9
    assert list(run.execution(1).root.iterdir()) == []  # OUTPUT, CHECKPOINT and INTERRUPT are absent at the start (6.4)


@pytest.mark.parametrize("identity", [IDENTITY, RunIdentity(run_id="run-000001", deployment_id="d", deployment_revision=1)])
def test_a_run_directory_names_its_occurrence(layout: Layout, identity: RunIdentity) -> None:
    run = prepare_run(layout, identity, {}, {})
    assert read_identity(run) == identity  # contract 2.8
    (run.root / "run.json").write_text("{}")
    with pytest.raises(ValueError, match=r"run\.json"):
        read_identity(run)
    (run.root / "run.json").unlink()
    assert read_identity(run) is None


def test_a_later_execution_gets_a_copy_of_the_last_checkpoint_kept(run: RunPaths) -> None:
    run.execution(1).checkpoint.write_bytes(b"page 7")
    prepare_execution(run, 2, resume={"answer": "yes"})
    assert run.execution(2).checkpoint.read_bytes() == b"page 7"  # contract 6.4
    assert json.loads(run.execution(2).resume.read_bytes()) == {"answer": "yes"}
    run.execution(2).checkpoint.unlink()
    prepare_execution(run, 3)
    assert run.execution(3).checkpoint.read_bytes() == b"page 7"
    run.execution(3).checkpoint.write_bytes(b"page 8")
    assert run.execution(1).checkpoint.read_bytes() == b"page 7"
    assert last_checkpoint(run, 3) == 3
    assert checkpoint_digest(run, 3) == hashlib.sha256(b"page 8").hexdigest()


@pytest.mark.parametrize(
    ("content", "value", "problem"),
    [
        pytest.param(None, None, None, id="nothing was written"),
        pytest.param(b'{"rows": 5}\n', {"rows": 5}, None, id="an object"),
        pytest.param(b"null", None, None, id="null is an output"),
        pytest.param(b'"' + b"x" * (1024 * 1024 - 2) + b'"', "x" * (1024 * 1024 - 2), None, id="1 MiB"),
        pytest.param(b'"' + b"x" * (1024 * 1024 - 1) + b'"', None, "larger than 1048576", id="a byte more"),
        pytest.param(b"", None, "not valid JSON", id="an empty file"),
        pytest.param(b'{"a": 1', None, "not valid JSON", id="cut off"),
        pytest.param(b'{"a": 1, "a": 2}', None, "'a' is there twice", id="a key that is there twice"),
        pytest.param(b"[NaN]", None, "NaN", id="NaN"),
        pytest.param(b"[1e999]", None, "too large", id="a number that is no number any more"),
        pytest.param(b'"\xff"', None, "UTF-8", id="not UTF-8"),
        pytest.param(b'"\\ud800"', None, "surrogate", id="half a character"),
        pytest.param(b"[" * 100_000, None, "nested", id="nested without end"),
        pytest.param(b"[" * 49 + b"]" * 49, None, "nested", id="49 levels"),
        pytest.param(b"9" * 5000, None, "not valid JSON", id="a number that would take long to read"),
    ],
)
def test_the_output_is_strict_json(run: RunPaths, content: bytes | None, value: Any, problem: str | None) -> None:
    if content is not None:
        run.execution(1).output.write_bytes(content)
    found = read_output(run, 1)  # contract 6.5
    assert found.is_there is (content is not None)
    assert found.value == value
    assert (problem or "") in (found.problem or "")
    assert (found.problem is None) is (problem is None)


def test_48_levels_are_taken(run: RunPaths) -> None:
    run.execution(1).output.write_bytes(b"[" * 48 + b"]" * 48)
    assert read_output(run, 1).problem is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(os.mkfifo, id="a fifo does not hang"),
        pytest.param(lambda path: path.symlink_to("/etc/hostname"), id="a link is not followed"),
        pytest.param(lambda path: path.symlink_to("nowhere"), id="a link to nowhere"),
        pytest.param(lambda path: path.mkdir(), id="a directory"),
    ],
)
def test_what_a_job_made_of_its_files_is_never_trusted(run: RunPaths, make: Any) -> None:
    paths = run.execution(1)
    for path in (paths.output, paths.interrupt, paths.checkpoint):
        make(path)
    assert read_output(run, 1).problem == "is no regular file"
    assert read_interrupt(run, 1).problem == "is no regular file"
    assert checkpoint_digest(run, 1) is None
    prepare_execution(run, 2)
    assert not run.execution(2).checkpoint.exists()
    remove_run(run)
    assert not run.root.exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b'{"message": "approve?", "schema": {"type": "object"}}', None, id="an object"),
        pytest.param(b'["approve?"]', "no JSON object", id="a list"),
        pytest.param(b"approve?", "not valid JSON", id="text"),
    ],
)
def test_an_interrupt_is_a_json_object(run: RunPaths, content: bytes, problem: str | None) -> None:
    run.execution(1).interrupt.write_bytes(content)
    found = read_interrupt(run, 1)
    assert (problem or "") in (found.problem or "")
    assert isinstance(found.value, dict) is (problem is None)


def test_the_checkpoint_record_round_trips_and_a_torn_one_is_an_error(run: RunPaths) -> None:
    assert read_checkpoint(run) is None
    checkpoint = Checkpoint(attempt=1, k=2, steps_done=1, digest=None)
    write_checkpoint(run, Disk(), checkpoint)
    assert read_checkpoint(run) == checkpoint
    for text in ('{"attempt": 1', '{"attempt": 1}', '{"attempt": "1", "k": 2, "steps_done": 1, "digest": null}', "[]"):
        run.checkpoint.write_text(text)
        with pytest.raises(ValueError, match=r"checkpoint\.json"):
            read_checkpoint(run)


def test_runs_are_listed_by_number_and_removed_whole(layout: Layout, run: RunPaths) -> None:
    for name in ("run-1000000", "run-000002", "lost+found"):
        (layout.runs / name).mkdir()
    assert list_run_directories(layout) == ["run-000001", "run-000002", "run-1000000"]
    (run.work / "locked").mkdir()
    (run.work / "locked/f").touch()
    (run.work / "locked").chmod(0)
    remove_run(run)
    remove_run(run)
    assert list_run_directories(layout) == ["run-000002", "run-1000000"]


def test_a_run_that_cannot_be_prepared_says_why(layout: Layout) -> None:
    layout.runs.rmdir()
    with pytest.raises(IoError, match="cannot prepare"):
        prepare_run(layout, IDENTITY, {}, {})


# Logs


def test_a_log_is_read_in_chunks_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    assert list(read_log(path)) == []
    assert (tail_start(path, 5), lost_bytes(path)) == (0, 0)
    content = os.urandom(200_000)
    path.write_bytes(content)
    assert b"".join(chunk.data or b"" for chunk in read_log(path)) == content
    assert b"".join(chunk.data or b"" for chunk in read_log(path, 5, 100_000)) == content[5:100_000]
    assert max(chunk.size for chunk in read_log(path)) <= 64 * 1024


@pytest.mark.parametrize(
    ("content", "lines", "tail"),
    [
        pytest.param(b"a\nb\nc\n", 2, b"b\nc\n", id="whole lines"),
        pytest.param(b"a\nb\nc", 2, b"b\nc", id="a last line without its end"),
        pytest.param(b"a\nb\n", 9, b"a\nb\n", id="more lines than there are"),
        pytest.param(b"a\nb\n", 0, b"", id="no lines"),
        pytest.param(b"", 3, b"", id="an empty log"),
        pytest.param(
            b"x" * 100_000 + b"\n" + b"y" * 100_000 + b"\n", 1, b"y" * 100_000 + b"\n", id="a line longer than a block"
        ),
    ],
)
def test_the_tail_of_a_log(tmp_path: Path, content: bytes, lines: int, tail: bytes) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(content)
    assert content[tail_start(path, lines) :] == tail


def test_what_was_released_from_the_middle_shows_as_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    with path.open("wb") as file:
        file.write(b"head\n" + b"h" * (64 * 1024 - 5))
        file.seek(1024 * 1024)  # what a punched hole looks like
        file.write(b"tail\n")
        os.fsync(file.fileno())
    if not lost_bytes(path):
        pytest.skip("this file system does not tell holes")
    chunks = list(read_log(path))
    assert [(chunk.offset, chunk.size) for chunk in chunks if chunk.data is None] == [(64 * 1024, 1024 * 1024 - 64 * 1024)]
    assert lost_bytes(path) == 1024 * 1024 - 64 * 1024  # contract 6.15
    assert chunks[-1].data == b"tail\n"
    assert tail_start(path, 10) == 1024 * 1024


def test_a_log_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdout.log")
    with pytest.raises(IoError, match="no regular file"):
        list(read_log(tmp_path / "stdout.log"))
