"""Directories made ahead: a run finds what it finds in one that was made for it, and a crash leaves no ghost (6.3, 6.4)."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from wfctl.keeper import records
from wfctl.keeper.records import RECORD_NAME, RECORD_SIZE, reserve, take_spare
from wfctl.operations.spares import Spares
from wfctl.store.layout import Layout
from wfctl.store.rundir import RunIdentity, identity_bytes, input_bytes, list_run_directories, prepare_execution, prepare_run
from wfctl.supervisor.stocking import MOST, Stocking

IDENTITY = RunIdentity(run_id="run-000001", deployment_id="d", deployment_revision=1)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "runs").mkdir()
    return Layout(tmp_path)


def _shape(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return what lies below a directory: mode, and content of files."""
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_spare_becomes_what_a_run_of_its_own_would_have(layout: Layout, umask: int) -> None:
    spares = Spares(layout)
    before = os.umask(umask)
    try:
        spares.make()
        filled = spares.fill(identity_bytes(IDENTITY), input_bytes({"region": "eu"}))
    finally:
        os.umask(before)
    run = layout.run("run-000001")
    assert filled is not None
    take_spare(filled, str(run.execution(1).root))
    given = _shape(run.root)
    assert given[f"1/{RECORD_NAME}"] == (0o600, bytes(RECORD_SIZE))
    shutil.rmtree(run.root)
    made = prepare_run(layout, IDENTITY, {"region": "eu"}, {})
    prepare_execution(made, 1)
    reserve(run.execution(1).root)
    own = _shape(run.root)
    logs = {name: given.pop(name) for name in ("stdout.log", "stderr.log")}  # a launch makes them
    assert logs == {"stdout.log": (0o600, b""), "stderr.log": (0o600, b"")}
    assert given == own


def test_the_next_supervisor_uses_what_is_whole_and_takes_the_rest_away(layout: Layout) -> None:
    first = Spares(layout)
    first.make()
    first.make()
    (layout.runs / ".unready.000003").mkdir()
    spares = Spares(layout)
    assert len(spares) == 2
    assert not (layout.runs / ".unready.000003").exists()
    spares.make()
    assert len({entry.name for entry in layout.runs.iterdir()}) == 3, "no name is used twice"


def test_a_crash_before_the_run_is_known_leaves_a_spare_and_no_ghost(layout: Layout) -> None:
    spares = Spares(layout)
    spares.make()
    assert spares.fill(identity_bytes(IDENTITY), input_bytes({"old": True})) is not None
    assert list_run_directories(layout) == []
    again = Spares(layout)
    other = RunIdentity(run_id="run-000002", deployment_id="d", deployment_revision=1)
    filled = again.fill(identity_bytes(other), input_bytes({}))
    run = layout.run("run-000002")
    assert filled is not None
    take_spare(filled, str(run.execution(1).root))
    assert run.identity.read_bytes() == identity_bytes(other)
    assert run.input.read_bytes() == b"{}\n"


@pytest.mark.parametrize("lost", ["run.json", "input.json"])
def test_a_spare_that_is_not_as_it_was_made_is_passed_over(layout: Layout, lost: str) -> None:
    spares = Spares(layout)
    spares.make()
    spares.make()
    (layout.runs / ".spare.000001" / lost).unlink()
    filled = spares.fill(b"{}", b"{}")
    assert filled == f"{layout.runs}/.spare.000002"
    assert not (layout.runs / ".spare.000001").exists()
    assert spares.fill(b"{}", b"{}") is None


@pytest.mark.parametrize("can_rename_anew", [True, False])
def test_a_spare_never_takes_the_place_of_a_run(layout: Layout, can_rename_anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_rename_anew:
        monkeypatch.setattr(records, "rename_anew", _unknown)
    spares = Spares(layout)
    spares.make()
    run = prepare_run(layout, IDENTITY, {"mine": 1}, {})
    filled = spares.fill(b"{}", b"{}")
    assert filled is not None
    with pytest.raises(FileExistsError):
        take_spare(filled, str(run.execution(1).root))
    assert run.input.read_bytes() == input_bytes({"mine": 1})


def _unknown(source: str, target: str) -> None:
    raise OSError(errno.EINVAL, "a file system that knows no such renaming")


def test_a_file_system_without_such_a_renaming_takes_a_spare_too(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "rename_anew", _unknown)
    spares = Spares(layout)
    spares.make()
    filled = spares.fill(b"{}", b"{}")
    assert filled is not None
    take_spare(filled, str(layout.run("run-000001").execution(1).root))
    assert layout.run("run-000001").input.read_bytes() == b"{}"
    with pytest.raises(FileNotFoundError):
        take_spare(filled, str(layout.run("run-000002").execution(1).root))


def test_what_was_filled_before_is_not_longer_than_what_is_now(layout: Layout) -> None:
    spares = Spares(layout)
    spares.make()
    first = spares.fill(b"a long identity", b"a long input")
    assert first is not None
    spares.take_back(first)
    assert spares.fill(b"id", b"{}") == first
    assert [Path(first, name).read_bytes() for name in ("run.json", "input.json")] == [b"id", b"{}"]


def test_the_stock_is_filled_to_what_is_wanted_and_no_further(layout: Layout) -> None:
    spares = Spares(layout)
    stocking = Stocking(spares)
    stocking.want(5)
    wait_for(lambda: len(spares) == 5, "five spares")
    stocking.want(2)
    stocking.close()
    assert len(list(layout.runs.iterdir())) == 5
    assert MOST == 2000


def test_a_machine_that_refuses_is_asked_once(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    spares = Spares(layout)
    asked: list[int] = []

    def refuse() -> None:
        asked.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spares, "make", refuse)
    stocking = Stocking(spares)
    for _ in range(3):
        stocking.want(5)
        assert stocking._thread is not None
        stocking._thread.join()
    stocking.close()
    assert asked == [1]


@pytest.mark.parametrize(
    ("free", "total", "blocks", "room"),
    [
        (20_000, 100_000, 1 << 20, True),
        (9_000, 20_000, 1 << 20, False),
        (20_000, 1_000_000, 1 << 20, False),
        (0, 0, 1 << 20, True),
        (20_000, 100_000, 1000, False),
    ],
)
def test_nothing_is_made_ahead_where_room_is_scarce(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, free: int, total: int, blocks: int, room: bool
) -> None:  # contract 7.7
    spares = Spares(layout)
    status = os.statvfs_result((4096, 4096, 1 << 30, blocks, blocks, total, free, free, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert spares.has_plenty_of_room() is room
    stocking = Stocking(spares)
    stocking.want(1)
    stocking.close()
    assert len(spares) == int(room)
