"""Durable writes: whole or not at all, for the owner alone, through no link (contract 2.2, 2.9)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from wfctl.errors import IoError
from wfctl.store.disk import Disk, create_file, is_temporary


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Disk().make_directory(tmp_path / "d")
        Disk().write_file(tmp_path / "d/f", b"x")
        create_file(tmp_path / "d/g", b"y")
        Disk().write_file(tmp_path / "d/h", b"z", 0o400)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("d", "d/f", "d/g", "d/h")}
    assert modes == {"d": 0o700, "d/f": 0o600, "d/g": 0o600, "d/h": 0o400}  # contract 2.9


def test_a_crash_at_any_point_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    seen = set()
    for budget in itertools.count():
        path = tmp_path / str(budget) / "f"
        path.parent.mkdir()
        path.write_bytes(b"old")
        disk = CrashingDisk(budget)
        with contextlib.suppress(SimulatedCrash):
            disk.write_file(path, b"new")
            break
        seen.add(path.read_bytes())
        assert all(is_temporary(name.name) for name in path.parent.iterdir() if name != path)
    assert disk.seen == ["create", "write", "sync", "rename", "sync-directory"]  # contract 2.2
    assert seen == {b"old", b"new"}


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "f").symlink_to("victim")
    Disk().write_file(tmp_path / "f", b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert not (tmp_path / "f").is_symlink()
    (tmp_path / "g").symlink_to("victim")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "g", b"x")


def test_a_refusal_of_the_system_names_the_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(IoError, match="cannot write") as caught:
        Disk().write_file(tmp_path / "f", b"x")
    assert caught.value.data == {"errno": errno.EISDIR, "path": str(tmp_path / "f")}
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_removing_and_making_say_whether_there_was_something_to_do(tmp_path: Path) -> None:
    disk = Disk()
    assert disk.make_directory(tmp_path / "d") is True
    assert disk.make_directory(tmp_path / "d") is False
    disk.write_file(tmp_path / "f", b"")
    assert [disk.remove_file(tmp_path / "f"), disk.remove_file(tmp_path / "f")] == [True, False]
    (tmp_path / "link").symlink_to("d")
    with pytest.raises(IoError):
        disk.make_directory(tmp_path / "link")


def test_the_longest_id_still_fits_a_temporary_name(tmp_path: Path) -> None:
    Disk().write_file(tmp_path / ("a" * 128 + ".toml"), b"x")
    Disk().write_file(tmp_path / ("b" * 255), b"x")
