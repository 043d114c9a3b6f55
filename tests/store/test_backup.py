"""The file of a backup, what goes into it, and what is refused on its way back (contract 2.4, 2.8, 2.9, 11)."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.story import World
from wfctl.clock import as_clock
from wfctl.core.model import run_name
from wfctl.errors import CannotCreate, DamagedStore, InUse, StoreLocked, WfctlError
from wfctl.operations.backup import write_backup
from wfctl.operations.restore import restore
from wfctl.operations.store import init_store, open_store
from wfctl.operations.views import BackupView, RestoreView
from wfctl.store.archive import ArchiveWriter, members_of
from wfctl.store.disk import Disk
from wfctl.store.ledger.schema import FORMAT
from wfctl.store.locks import FileLock

HUGE = 3_000_000_000_000  #: bytes that a log seems to have; nothing may read them


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A store with a schedule each minute, whose runs end at once, and two occurrences."""
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.keeper.world.script = lambda request: 0
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    world.store.create_schedule(schedule_id="a", deployment_id="d", trigger={"kind": "cron", "expression": "* * * * *"})
    world.step()
    minutes(world, 2)
    yield world
    world.die()


def minutes(world: World, count: int) -> None:
    for _ in range(count):
        world.clock.advance(timedelta(minutes=1))
        world.step()
        world.step()


def back_up(world: World, path: Path, *, is_compressed: bool = False) -> BackupView:
    with path.open("wb") as target:
        return write_backup(world.store.context, target, path.parent, name=str(path), is_compressed=is_compressed)


def put_back(world: World, path: Path, root: Path | None = None, *, dry_run: bool = False) -> RestoreView:
    with path.open("rb") as source:
        found = restore(
            root or world.root, source, path.name, disk=Disk(), clock=as_clock(world.clock),
            agree=lambda view: True, dry_run=dry_run,
        )  # fmt: skip
    assert found is not None
    return found


def names_in(path: Path) -> list[str]:
    with path.open("rb") as source:
        return [member.name for member in members_of(source, path.name)]


# The file -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
def test_what_was_written_comes_back_and_gnu_tar_reads_it_too(tmp_path: Path, is_compressed: bool) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(b"head" * 2000)
        file.seek(HUGE)
        file.write(b"tail")
    path = tmp_path / "backup"
    with path.open("wb") as target:
        writer = ArchiveWriter(target, is_compressed=is_compressed, is_synced=True)
        writer.add_bytes("one", b"1" * 100_000)
        writer.add_directory("runs/run-000001")
        descriptor = os.open(log, os.O_RDONLY)
        writer.add_file("runs/run-000001/stdout.log", descriptor)
        os.close(descriptor)
        writer.add_bytes("odd \udcff\n\u00e9", b"")
        writer.finish()
    assert path.stat().st_size < 300_000, "the hole was written out"
    found = {}
    with path.open("rb") as source:
        for member in members_of(source, "backup"):
            found[member.name] = (member.size, list(member.blocks()) if member.kind == "file" else [])
    assert set(found) == {"one", "runs/run-000001", "runs/run-000001/stdout.log", "odd \udcff\n\u00e9"}
    size, blocks = found["runs/run-000001/stdout.log"]
    assert size == HUGE + 4
    assert blocks[0][1].startswith(b"headhead")
    assert blocks[-1] == (HUGE, b"tail")
    if shutil.which("tar") is None:
        pytest.skip("no tar here to read it with")
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", str(path), "-C", str(tmp_path / "out")], check=True, capture_output=True)
    status = (tmp_path / "out/runs/run-000001/stdout.log").stat()
    assert (status.st_size, status.st_blocks < 1000) == (HUGE + 4, True)


def test_a_file_that_was_cut_off_or_changed_anywhere_is_refused(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    whole = (tmp_path / "backup").read_bytes()
    end = whole.rindex(b"end.json")
    for at in range(0, end, max(1, end // 60)):
        flipped = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        for data in (whole[:at], flipped):
            if _is_padding(whole, at) and data is flipped:
                continue
            with pytest.raises(DamagedStore, match=r"no backup of a store, or is damaged or cut off .*nothing was changed"):
                list(members_of(io.BytesIO(data), "backup"))


def _is_padding(whole: bytes, at: int) -> bool:
    """Tell whether a byte fills a block after a content, or a field of a header that nobody reads."""
    return whole[at] == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\x1f", b"\x1f\x8b", b"PK" * 4000, bytes(20480), gzip.compress(b"hello")],
    ids=["empty", "one byte", "two bytes", "zip", "zeros", "gzip of no tar"],
)
def test_what_is_no_tar_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedStore):
        list(members_of(io.BytesIO(data), "backup"))


# What goes into it --------------------------------------------------------------------------------------------------------


def test_it_holds_the_state_of_one_moment(world: World, tmp_path: Path) -> None:
    view = back_up(world, tmp_path / "backup")
    assert (view.schedules, view.deployments, view.occurrences, view.runs, view.notes) == (1, 1, 2, 2, ())
    names = names_in(tmp_path / "backup")
    assert names[:2] == ["manifest.json", "ledger.db"]
    assert {"schedules/a.toml", "deployments/d.toml", "runs/run-000001", "runs/run-000002/run.json"} <= set(names)
    assert not (tmp_path / "ledger.db").exists(), "the copy of the ledger is left behind"
    with tarfile.open(tmp_path / "backup") as tar:
        file = tar.extractfile("manifest.json")
        assert file is not None
        manifest = json.load(file)
    assert manifest["kind"] == "wfctl-backup"
    assert manifest["store"]["id"] == view.store_id
    assert manifest["counts"]["runs"] == 2


def test_nothing_is_followed_and_only_a_job_s_links_are_kept(world: World, tmp_path: Path) -> None:
    """Contract 2.9."""
    run = world.root / "runs" / "run-000001"
    os.mkfifo(run / "work" / "pipe")
    (run / "work" / "link").symlink_to("/etc/passwd")
    (run / "work" / "up").symlink_to("..", target_is_directory=True)
    (run / "stdout.log").symlink_to("/etc/passwd")
    (world.root / "schedules" / "pipe.toml").unlink(missing_ok=True)
    os.mkfifo(world.root / "schedules" / "pipe.toml")
    (world.root / "wfctl.toml").symlink_to("/etc/passwd")
    view = back_up(world, tmp_path / "backup")
    names = names_in(tmp_path / "backup")
    assert "runs/run-000001/work/link" in names
    assert not {"runs/run-000001/work/pipe", "runs/run-000001/stdout.log", "wfctl.toml", "schedules/pipe.toml"} & set(names)
    assert not any(name.startswith("runs/run-000001/work/up/") for name in names)
    assert any("runs/run-000001/work/pipe" in note for note in view.notes)
    assert any("wfctl.toml" in note for note in view.notes)
    put_back(world, tmp_path / "backup", tmp_path / "new")
    assert str((tmp_path / "new/runs/run-000001/work/link").readlink()) == "/etc/passwd"


def test_a_released_middle_of_a_log_stays_released(world: World, tmp_path: Path) -> None:
    with (world.root / "runs/run-000002/stdout.log").open("wb") as log:
        log.write(b"begin\n")
        log.seek(HUGE)
        log.write(b"end\n")
    back_up(world, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_size < 1_000_000
    put_back(world, tmp_path / "backup", tmp_path / "new")
    status = (tmp_path / "new/runs/run-000002/stdout.log").stat()
    assert status.st_size == HUGE + 4
    assert status.st_blocks < 1000


def test_runs_that_the_copy_does_not_know_are_left_out(world: World, tmp_path: Path) -> None:
    (world.root / "runs" / "run-000009").mkdir()
    back_up(world, tmp_path / "backup")
    assert "runs/run-000009" not in names_in(tmp_path / "backup")


def test_a_run_that_is_let_go_meanwhile_is_none(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wfctl.store.ledger import copies

    def numbers(connection: object) -> Iterator[int]:
        yield 1
        shutil.rmtree(world.root / "runs" / "run-000002")
        yield 2

    monkeypatch.setattr(copies, "run_numbers", numbers)
    back_up(world, tmp_path / "backup")
    names = names_in(tmp_path / "backup")
    assert "runs/run-000001" in names
    assert "runs/run-000002" not in names


@pytest.mark.parametrize("size", [100, 900_000], ids=["it shrank", "it grew"])
def test_a_file_that_changes_its_size_meanwhile_does_no_harm(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    from wfctl.store import archive

    log = world.root / "runs/run-000001/stdout.log"
    log.write_bytes(b"x" * 300_000)
    read = archive._Reader.read

    def change(self: archive._Reader, asked: int) -> bytes:
        if os.fstat(self._descriptor).st_ino == log.stat().st_ino:
            os.truncate(log, size)
        return read(self, asked)

    monkeypatch.setattr(archive._Reader, "read", change)
    back_up(world, tmp_path / "backup")
    put_back(world, tmp_path / "backup", tmp_path / "new")
    assert (tmp_path / "new/runs/run-000001/stdout.log").stat().st_size == 300_000


def test_2_5_a_backup_of_an_older_format_is_taken_and_migrated(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wfctl.operations import staging
    from wfctl.store.ledger import connection

    back_up(world, tmp_path / "backup")
    for module in (staging, connection):
        monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    monkeypatch.setattr(connection, "MIGRATIONS", {FORMAT: "ALTER TABLE counters ADD COLUMN more INTEGER;"})
    put_back(world, tmp_path / "backup", tmp_path / "new")
    with open_store(tmp_path / "new", clock=world.clock) as store:
        assert store.context.ledger.connection.execute("PRAGMA user_version").fetchone() == (FORMAT + 1,)
        assert store.verify_store().ok
    assert (tmp_path / "new" / f"ledger.db.format-{FORMAT}.backup").exists()


Change = Callable[[World], object]


def _edit(world: World) -> None:
    world.store.update_schedule(schedule_id="a", expected_revision=1, notes="since")


def _hand_edit_seen(world: World) -> None:
    _hand_edit(world)
    world.store.get_schedule(schedule_id="a")


def _hand_edit(world: World) -> None:
    path = world.root / "schedules" / "a.toml"
    Disk().write_file(path, b'notes = "by hand"\n' + path.read_bytes())


def _add(world: World) -> None:
    world.store.create_schedule(schedule_id="b", deployment_id="d", trigger={"kind": "cron", "expression": "0 0 * * *"})


def _break(world: World) -> None:
    Disk().write_file(world.root / "schedules" / "a.toml", b"not TOML [")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        pytest.param(_edit, {"a": "as it was"}, id="saved since"),
        pytest.param(_hand_edit_seen, {"a": "as it was"}, id="edited by hand and seen since"),
        pytest.param(_hand_edit, {"a": "by hand"}, id="edited by hand and seen by nobody"),
        pytest.param(_break, {"a": "not TOML ["}, id="broken by hand"),
        pytest.param(_add, {"a": "as it was"}, id="another one made since"),
        pytest.param(lambda world: world.store.delete_schedule(schedule_id="a"), {"a": "as it was"}, id="deleted since"),
        pytest.param(lambda world: (world.root / "schedules/a.toml").unlink(), {}, id="taken away by hand"),
    ],
)
def test_2_4_definitions_fit_the_copy_of_the_ledger(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, wanted: dict[str, str]
) -> None:
    """What is done after the ledger was copied and before the files are read."""
    from wfctl.operations import backup

    as_it_was = (world.root / "schedules" / "a.toml").read_text()
    taken = backup._add_settings
    monkeypatch.setattr(backup, "_add_settings", lambda task: (change(world), taken(task)))
    back_up(world, tmp_path / "backup")
    put_back(world, tmp_path / "backup", tmp_path / "new")
    found = {path.stem: path.read_text() for path in (tmp_path / "new" / "schedules").iterdir()}
    assert set(found) == set(wanted)
    for name, text in wanted.items():
        assert found[name] == as_it_was if text == "as it was" else text in found[name]
    with open_store(tmp_path / "new", clock=world.clock) as store:
        store.verify_store()
        assert store.get_schedule(schedule_id="a").revision == (2 if wanted.get("a") == "by hand" else 1)


def test_a_damaged_ledger_makes_no_backup(world: World, tmp_path: Path) -> None:
    world.stop()
    ledger = world.root / "ledger.db"
    store = world.store
    store.context.ledger.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(ledger.read_bytes())
    for page in range(4, len(data) // 4096 - 1):
        data[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    with ledger.open("r+b") as file:
        file.write(data)
    with pytest.raises(DamagedStore):
        back_up(world, tmp_path / "backup")
    assert not (tmp_path / "ledger.db").exists()


# What is refused ----------------------------------------------------------------------------------------------------------


def forge(world: World, path: Path, change: Callable[[ArchiveWriter], None]) -> None:
    """Write a sound backup, with something more in it, and a digest that fits."""
    back_up(world, path.with_suffix(".whole"))
    with path.open("wb") as target, path.with_suffix(".whole").open("rb") as source:
        writer = ArchiveWriter(target, is_compressed=False)
        for member in members_of(source, "whole"):
            if member.kind == "file":
                writer.add_bytes(member.name, b"".join(data for _, data in member.blocks()), mode=member.mode)
            elif member.kind == "directory":
                writer.add_directory(member.name, member.mode)
        change(writer)
        writer.finish()


def in_run(writer: ArchiveWriter) -> ArchiveWriter:
    """Go on in the directory of another run."""
    for name in ("runs/run-000009", "runs/run-000009/work"):
        writer.add_directory(name)
    return writer


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda writer: writer.add_bytes("../evil", b""), id="above"),
        pytest.param(lambda writer: writer.add_bytes("/etc/evil", b""), id="absolute"),
        pytest.param(lambda writer: writer.add_bytes("runs/../../evil", b""), id="above, in the middle"),
        pytest.param(lambda writer: writer.add_bytes("scheduler.lock", b""), id="a name that no backup has"),
        pytest.param(lambda writer: writer.add_bytes("schedules/../x.toml", b""), id="a definition above"),
        pytest.param(lambda writer: writer.add_bytes("schedules/A B.toml", b""), id="no id"),
        pytest.param(lambda writer: writer.add_bytes("schedules/big.toml", bytes(300_000)), id="too large a definition"),
        pytest.param(lambda writer: writer.add_bytes("artifacts/x", b""), id="no digest"),
        pytest.param(lambda writer: writer.add_link("schedules/x.toml", "/etc/passwd"), id="a linked definition"),
        pytest.param(lambda writer: writer.add_link("runs/run-000009", "/etc"), id="a linked run"),
        pytest.param(lambda writer: in_run(writer).add_link("runs/run-000009/1", "/etc"), id="a linked execution"),
        pytest.param(lambda writer: writer.add_bytes("runs/run-000009", b""), id="a run that is a file"),
        pytest.param(lambda writer: writer.add_bytes("runs/run-000009/x", b""), id="below no directory"),
        pytest.param(
            lambda writer: [
                in_run(writer).add_link("runs/run-000009/work/x", "/var/tmp"),
                writer.add_bytes("runs/run-000009/work/x/evil", b""),
            ],
            id="through a link",
        ),
        pytest.param(lambda writer: [in_run(writer).add_bytes("runs/run-000009/work/x", b"") for _ in "ab"], id="a run twice"),
        pytest.param(lambda writer: [writer.add_bytes("wfctl.toml", b""), writer.add_bytes("wfctl.toml", b"")], id="twice"),
    ],
)
def test_members_that_no_backup_has_are_refused_and_nothing_is_made(
    world: World, tmp_path: Path, change: Callable[[ArchiveWriter], None]
) -> None:
    forge(world, tmp_path / "forged", change)
    with pytest.raises(DamagedStore, match="nothing was changed"):
        put_back(world, tmp_path / "forged", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not Path("/var/tmp/evil").exists()
    with pytest.raises(DamagedStore):
        put_back(world, tmp_path / "forged", tmp_path / "new", dry_run=True)


def test_a_device_or_a_hard_link_is_refused(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "whole")
    for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.LNKTYPE):
        with tarfile.open(tmp_path / "whole") as old, tarfile.open(tmp_path / "forged", "w") as new:
            for info in old.getmembers():
                new.addfile(info, old.extractfile(info) if info.isreg() else None)
                if info.name == "ledger.db":
                    odd = tarfile.TarInfo("runs/run-000001/odd")
                    odd.type, odd.linkname = kind, "ledger.db"
                    new.addfile(odd)
        with pytest.raises(DamagedStore, match="neither a file"):
            put_back(world, tmp_path / "forged", tmp_path / "new")


def test_a_newer_format_is_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wfctl.operations import manifest

    monkeypatch.setattr(manifest, "FORMAT", 9)
    back_up(world, tmp_path / "backup")
    monkeypatch.setattr(manifest, "FORMAT", 1)
    with pytest.raises(DamagedStore, match="use a newer wfctl"):
        put_back(world, tmp_path / "backup", tmp_path / "new")


def test_a_directory_with_something_else_in_it_is_refused(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / "letters").touch()
    with pytest.raises(CannotCreate, match="'letters'"):
        put_back(world, tmp_path / "backup", tmp_path / "new")


def test_a_store_in_use_is_refused_and_the_holder_named(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    for dry_run in (False, True):
        with pytest.raises(StoreLocked, match=f"pid {os.getpid()} on "):
            put_back(world, tmp_path / "backup", dry_run=dry_run)
    world.stop()
    driver = FileLock(world.root / "runs" / "run-000002" / "driver")
    assert driver.acquire()
    for dry_run in (False, True):
        with pytest.raises(InUse, match="run-000002 is driven by a command"):
            put_back(world, tmp_path / "backup", dry_run=dry_run)
    driver.release()
    assert not list(world.root.glob("before-restore-*"))
    put_back(world, tmp_path / "backup")


def test_whoever_has_the_ledger_open_is_named(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with the store open would go on writing into what was put aside."""
    from wfctl.operations import inuse

    back_up(world, tmp_path / "backup")
    world.stop()
    monkeypatch.setattr(inuse, "_COMMAND_ENDS_S", 0.0)
    with subprocess.Popen(["sleep", "60"], stdin=(world.root / "ledger.db").open("rb")) as process:
        with pytest.raises(InUse, match=rf"pid {process.pid} \(sleep 60\)"):
            put_back(world, tmp_path / "backup")
        process.kill()


# Back -----------------------------------------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    _add(world)
    minutes(world, 1)
    world.stop()
    before = _tree(world.root)
    view = put_back(world, tmp_path / "backup", dry_run=True)
    assert view.is_dry_run
    assert any("made since, and put aside: schedule b" in note for note in view.notes)
    assert any("1 run is newer" in note for note in view.notes)
    assert {name: size for name, size in _tree(world.root).items() if "-shm" not in name} == {
        name: size for name, size in before.items() if "-shm" not in name
    }
    put_back(world, tmp_path / "backup", tmp_path / "new", dry_run=True)
    assert not (tmp_path / "new").exists()


def _tree(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_size for path in root.rglob("*")}


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
def test_into_a_new_place_it_is_the_same_store(world: World, tmp_path: Path, is_compressed: bool) -> None:
    (world.root / "wfctl.toml").write_text("[supervisor]\nmax_concurrent_runs = 7\n")
    back_up(world, tmp_path / "backup", is_compressed=is_compressed)
    view = put_back(world, tmp_path / "backup", tmp_path / "deep" / "new")
    new = tmp_path / "deep" / "new"
    assert view.kept is None
    assert view.run_directories == 2
    assert new.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in new.iterdir()} == {
        "ledger.db", "schedules", "deployments", "artifacts", "runs", "wfctl.toml", "scheduler.lock",
    }  # fmt: skip
    assert (new / "wfctl.toml").read_text() == (world.root / "wfctl.toml").read_text()
    with open_store(new, clock=world.clock) as store:
        assert store.verify_store(deep=True).ok
        assert [run.run_id for run in store.list_runs()] == ["run-000001", "run-000002"]
        assert store.store_info().store_id == world.store.store_info().store_id


def test_2_8_yesterday_s_backup_over_today_s_store(world: World, tmp_path: Path) -> None:
    """Nothing runs twice, ids go on, and what is replaced is kept."""
    back_up(world, tmp_path / "backup")
    minutes(world, 3)
    _add(world)
    world.store.update_schedule(schedule_id="a", expected_revision=1, notes="since")
    launched = [(each.run, each.k) for each in world.keeper.world.launches]
    assert len(launched) == 5
    shutil.rmtree(world.root / "runs" / "run-000005")  # let go meanwhile: only the newer ledger knows its id
    world.stop()
    world.die()
    view = put_back(world, tmp_path / "backup")
    assert view.kept is not None
    assert {path.name for path in Path(view.kept).iterdir()} >= {"ledger.db", "schedules", "deployments"}
    assert (Path(view.kept) / "schedules" / "b.toml").exists()
    world.die()
    assert [schedule.id for schedule in world.store.list_schedules()] == ["a"]
    noted = world.store.verify_store()
    assert noted.ok
    assert any("run-000003 is not known to the ledger" in note for note in noted.notes)
    assert any("before-restore-" in note for note in noted.notes)
    world.step()
    runs = {run.run_id: run for run in world.runs()}
    assert {name: run.reason and run.reason["code"] for name, run in runs.items() if run.reason} == {
        "run-000003": "ledger-restored",
        "run-000004": "ledger-restored",
    }
    minutes(world, 2)
    new = [each.run for each in world.keeper.world.launches[5:]]
    assert new and min(new) >= "run-000006", "an id was used again"
    instants = [each.environment["WFCTL_OCCURRENCE"] for each in world.keeper.world.launches]
    assert len(instants) - len(set(instants)) <= 1  # of run-000005 nothing is left anywhere
    assert world.store.get_schedule(schedule_id="a").revision == 1
    assert world.store.audit_schedule(schedule_id="a").is_balanced
    assert any("ledger-restored" in note for note in world.store.verify_store(deep=True).notes)


def test_2_8_a_run_that_went_further_than_the_backup_knows_does_nothing_twice(world: World, tmp_path: Path) -> None:
    steps = [{"name": name, "command": ["/bin/true"]} for name in ("first", "second")]
    world.keeper.world.script = None
    world.store.create_deployment(deployment_id="two", steps=steps)
    world.store.create_schedule(schedule_id="t", deployment_id="two", trigger={"kind": "cron", "expression": "* * * * *"})
    world.store.pause_schedule(schedule_id="a")
    minutes(world, 1)
    run = run_name(3)
    assert (run, 1) in world.keeper.world.running
    back_up(world, tmp_path / "backup")
    for _ in range(2):
        world.end()
        world.step()
        world.step()
    assert world.store.inspect_run(run_id=run).status == "completed"
    world.stop()
    world.die()
    put_back(world, tmp_path / "backup")
    assert any(f"{run} went on to execution 2" in note for note in world.store.verify_store().notes)
    world.step()
    view = world.store.inspect_run(run_id=run)
    assert (view.status, view.reason) == ("failed", {"code": "ledger-restored"})
    steps_done = [(each.run, each.environment["WFCTL_STEP"]) for each in world.keeper.world.launches]
    assert len(steps_done) == len(set(steps_done)), "a step was done twice"
    assert world.store.verify_store(deep=True).ok
    assert world.store.audit_schedule(schedule_id="t").is_balanced


def test_of_another_store_nothing_is_mixed(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    with init_store(tmp_path / "other") as other:
        other.create_deployment(deployment_id="mine", command=["/bin/true"])
        (tmp_path / "other" / "runs" / "run-000001").mkdir()
    view = put_back(world, tmp_path / "backup", tmp_path / "other")
    assert any("another store" in note for note in view.notes)
    assert view.kept is not None
    assert (Path(view.kept) / "runs" / "run-000001").is_dir()
    with open_store(tmp_path / "other", clock=world.clock) as store:
        assert [each.id for each in store.list_deployments()] == ["d"]
        assert store.verify_store().ok


def test_7_5_over_a_damaged_ledger(world: World, tmp_path: Path) -> None:
    back_up(world, tmp_path / "backup")
    world.stop()
    world.die()
    (world.root / "ledger.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(WfctlError):
        open_store(world.root)
    view = put_back(world, tmp_path / "backup")
    assert any("cannot be read" in note for note in view.notes)
    assert (Path(view.kept or "") / "ledger.db").read_bytes().startswith(b"garbage")
    assert world.store.verify_store().ok


def test_a_damaged_pinned_file_is_mended(world: World, tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text("print(1)\n")
    name = world.store.pin_file(tmp_path / "report.py")
    world.store.update_deployment(deployment_id="d", expected_revision=1, files={"report.py": name})
    back_up(world, tmp_path / "backup")
    world.stop()
    path = world.root / "artifacts" / name.removeprefix("sha256:")
    path.write_text("something else\n")
    put_back(world, tmp_path / "backup")
    assert path.read_text() == "print(1)\n"
