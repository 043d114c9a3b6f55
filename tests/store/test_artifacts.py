"""Pinned files: kept by content, checked, placed as read-only copies (contract 3.8)."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from wfctl.errors import IoError
from wfctl.store.artifacts import (
    artifact_problem,
    place_files,
    read_artifact,
    read_for_pinning,
    store_artifact,
    unused_artifacts,
)
from wfctl.store.disk import Disk
from wfctl.store.layout import Layout, RunPaths

CONTENT = b"print('hello')\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.artifacts.mkdir()
    return layout


@pytest.fixture
def run(layout: Layout) -> RunPaths:
    run = layout.run("run-000001")
    run.files.mkdir(parents=True)
    run.work.mkdir()
    return run


def test_a_content_is_kept_once_under_its_digest(layout: Layout) -> None:
    name = store_artifact(layout, Disk(), CONTENT)
    path = layout.artifacts / hashlib.sha256(CONTENT).hexdigest()
    before = path.stat()
    assert name == f"sha256:{path.name}"
    assert stat.S_IMODE(before.st_mode) == 0o600
    assert store_artifact(layout, Disk(), CONTENT) == name
    assert path.stat().st_ino == before.st_ino
    assert artifact_problem(layout, name) is None
    assert read_artifact(layout, name) == CONTENT


def test_a_content_that_is_gone_or_was_changed_is_a_problem_and_can_be_pinned_again(layout: Layout) -> None:
    name = store_artifact(layout, Disk(), CONTENT)
    path = layout.artifact(name[7:])
    path.write_bytes(CONTENT.replace(b"hello", b"jello"))
    assert "was changed" in str(artifact_problem(layout, name))
    with pytest.raises(IoError, match="was changed"):
        read_artifact(layout, name)
    assert store_artifact(layout, Disk(), CONTENT) == name
    assert artifact_problem(layout, name) is None
    path.unlink()
    assert "not in the store" in str(artifact_problem(layout, name))
    path.symlink_to("/etc/passwd")
    assert "no regular file" in str(artifact_problem(layout, name))


def test_files_are_placed_as_copies_that_cannot_be_written_and_linked_into_the_work_directory(
    layout: Layout, run: RunPaths
) -> None:
    name = store_artifact(layout, Disk(), CONTENT)
    place_files(layout, run, {"report.py": name})
    placed = run.files / "report.py"
    assert stat.S_IMODE(placed.stat().st_mode) & 0o222 == 0
    assert placed.stat().st_nlink == 1
    assert (run.work / "report.py").readlink() == Path("../files/report.py")
    assert (run.work / "report.py").read_bytes() == CONTENT
    place_files(layout, run, {"report.py": name})  # as after a crash before the launch
    assert placed.read_bytes() == CONTENT


def test_a_changed_content_is_never_placed(layout: Layout, run: RunPaths) -> None:
    name = store_artifact(layout, Disk(), CONTENT)
    layout.artifact(name[7:]).write_bytes(b"evil")
    with pytest.raises(IoError):
        place_files(layout, run, {"report.py": name})
    assert list(run.files.iterdir()) == []


def test_what_nothing_names_can_be_found(layout: Layout) -> None:
    kept, lost = (store_artifact(layout, Disk(), content) for content in (b"a", b"b"))
    assert unused_artifacts(layout, {kept}) == [lost[7:]]


def test_only_regular_files_are_pinned(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    assert read_for_pinning(tmp_path / "f") == CONTENT
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "nothing", "."):
        with pytest.raises(IoError, match="cannot pin"):
            read_for_pinning(tmp_path / name)
