"""`wfctl store backup` and `restore`: beside a supervisor, at a terminal, in pipes, and as root (contract 2.7, 2.8, 11)."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support import small
from tests.support.commands import Wfctl
from tests.support.place import Place
from tests.support.processes import Supervisor, wait_for
from tests.support.processes import wfctl as command
from wfctl import open_store
from wfctl.operations.store import Store


@pytest.fixture
def kept(wfctl: Wfctl) -> Wfctl:
    """A store with a deployment and a schedule."""
    wfctl.ok("deployment", "add", "d", "--", "/bin/true")
    wfctl.ok("schedule", "add", "a", "--deployment", "d", "--every", "1h")
    return wfctl


# The life of a backup -----------------------------------------------------------------------------------------------------


def test_taken_beside_a_supervisor_put_back_and_started(tmp_path: Path) -> None:
    """The whole of it with real processes: nothing is late, nothing runs twice, ids go on, and the balance holds."""
    backup, side = tmp_path / "backup.tgz", tmp_path / "side"
    with Place(tmp_path) as place:
        place.job(f'echo "$WFCTL_OCCURRENCE" >> {side}')
        place.every_second("s")
        supervisor = place.supervisor()
        place.until(place.run(1).run_id, "completed")
        begun = datetime.now(UTC)
        for _ in range(3):
            done = command(place.root, "store", "backup", str(backup), "--yes")
        ended = datetime.now(UTC)
        assert "backup of " in done.stdout
        assert backup.stat().st_mode & 0o777 == 0o600
        refused = command(place.root, "store", "restore", str(backup), "--yes", check=False)
        assert refused.returncode == 75
        assert f"pid {supervisor.process.pid} on " in refused.stderr
        known = len(place.store.list_runs(limit=100).items)
        wait_for(lambda: len(place.store.list_runs(limit=100).items) >= known + 3, what="more runs than the backup knows")
        assert supervisor.stop() == 0
        rows = place.store.list_schedule_occurrences(schedule_id="s", limit=100).items
        meanwhile, otherwise = [0.0], [0.25]  # the machine itself may be slow
        for row in rows:
            (meanwhile if begun <= row.instant <= ended else otherwise).append(row.lateness_s or 0.0)
        assert max(meanwhile) <= 2 * max(otherwise), "a backup held an admission up"
        last = max(run.run_id for run in place.store.list_runs(limit=100).items)
        place.store.close()
        done = command(place.root, "store", "restore", str(backup), "--yes")
        assert "ledger-restored" in done.stdout
        assert "supervise" in done.stderr
        verified = command(place.root, "store", "verify")
        assert "is not known to the ledger" in verified.stdout
        place.store = open_store(place.root)
        place.supervisor()
        wait_for(lambda: _runs_after(place.store, last), what="runs with new ids")
        assert command(place.root, "occurrence", "audit", "s").returncode == 0
        assert command(place.root, "store", "verify", "--deep").returncode == 0
        occurrences = side.read_text().split()
        assert len(occurrences) == len(set(occurrences)), "an occurrence ran twice"


def _runs_after(store: Store, last: str) -> list[str]:
    found = store.list_runs(since=datetime.now(UTC) - timedelta(minutes=5), limit=100).items
    return [run.run_id for run in found if run.run_id > last and run.status == "completed"]


def test_a_run_that_goes_on_without_its_supervisor_is_in_the_way(tmp_path: Path) -> None:
    """Contract 6.9: the keeper lives, and its run with it."""
    with Place(tmp_path) as place:
        place.job("exec sleep 60")
        place.once("s")
        supervisor = place.supervisor("--drain-grace-s", "0")
        run = place.run().run_id
        place.until(run, "running")
        command(place.root, "store", "backup", str(tmp_path / "backup"))
        supervisor.stop()
        place.store.close()
        for words in (["--yes"], ["--dry-run"]):
            refused = command(place.root, "store", "restore", str(tmp_path / "backup"), *words, check=False)
            assert refused.returncode == 75
            assert f"{run} still runs" in refused.stderr
        command(place.root, "run", "cancel", run, "--grace", "0s", "--yes")
        done = command(place.root, "store", "restore", str(tmp_path / "backup"), "--yes")
        assert "restored" in done.stdout
        place.store = open_store(place.root)
        place.supervisor()
        assert place.until(run, "failed", "cancelled").status in ("failed", "cancelled")


# What is typed, what is seen ----------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_replaced_unasked(kept: Wfctl, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("mine")
    done = kept("store", "backup", str(path))
    assert done.status == 73
    assert "--yes" in done.err
    assert path.read_text() == "mine"
    kept.ok("store", "backup", str(path), "--yes")
    view = kept.ok("store", "restore", str(path), "--dry-run", "-o", "json").json
    assert (view["schema"], view["is_dry_run"], view["schedules"]) == ("wfctl/restore.v1", True, 1)
    assert kept("store", "backup", str(tmp_path)).status == 73
    assert kept("store", "backup", str(tmp_path / "no" / "dir")).status == 73
    assert kept("store", "backup", "/dev/null", "--yes").status == 73
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")], "something is left beside it"


def test_11_7_it_asks_before_a_store_is_replaced(kept: Wfctl, tmp_path: Path) -> None:
    kept.ok("store", "backup", str(tmp_path / "backup"))
    kept.ok("schedule", "add", "b", "--deployment", "d", "--every", "1h")
    assert kept("store", "restore", str(tmp_path / "backup")).status == 2, "no terminal to ask at"
    for answer, status, schedules in (("n", 1, "a b"), ("y", 0, "a")):
        with kept.terminal("store", "restore", str(tmp_path / "backup")) as terminal:
            terminal.wait_for("[y/N]")
            terminal.type(f"{answer}\n")
            seen = terminal.end()
        assert seen.status == status, seen.text
        assert "put aside: schedule b" in seen.text
        assert kept.ok("schedules", "-o", "name").out.split() == schedules.split()
    assert not (kept.root / ".restore.tmp").exists()
    note = kept.ok("store", "verify").out
    assert "before-restore-" in note


def test_through_pipes(kept: Wfctl, tmp_path: Path) -> None:
    done = kept.bytes("store", "backup", "-", "--gzip")
    assert done.returncode == 0
    assert b"1 schedule, 1 deployment" in done.stderr
    back = kept.bytes("store", "restore", "-", "--into", str(tmp_path / "new"), stdin=done.stdout)
    assert back.returncode == 0, back.stderr
    assert kept.ok("--store", str(tmp_path / "new"), "schedules", "-o", "name").out == "a\n"
    cut = kept.bytes("store", "restore", "-", "--into", str(tmp_path / "other"), stdin=done.stdout[:-200])
    assert cut.returncode == 65
    assert b"nothing was changed" in cut.stderr
    assert not (tmp_path / "other").exists()
    seen = kept.at_terminal("store", "backup", "-")
    assert seen.status == 2
    assert "not for a terminal" in seen.text
    ended = subprocess.run(
        f"{sys.executable} -m wfctl store backup - | head -c 600 >/dev/null",
        shell=True, env=kept.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr


def test_without_a_store_or_a_file(bare: Wfctl, tmp_path: Path) -> None:
    assert bare("store", "backup", str(tmp_path / "backup")).status == 66
    assert not (tmp_path / "backup").exists()
    assert bare("store", "restore", str(tmp_path / "nothing")).status == 66
    (tmp_path / "foreign").write_bytes(b"something else")
    done = bare("store", "restore", str(tmp_path / "foreign"))
    assert done.status == 65
    assert "foreign is no backup" in done.err
    assert not bare.root.exists()


def test_a_store_that_was_half_restored_is_refused_by_everybody(kept: Wfctl) -> None:
    (kept.root / "restoring").write_text("{}")
    for words in (["schedules"], ["status"], ["supervise"], ["init", "--if-absent"], ["store", "verify"]):
        done = kept(*words)
        assert done.status == 65, words
        assert "wfctl store restore FILE" in done.err
    assert "restore" in kept("doctor").out


def test_sigterm_leaves_nothing_behind(kept: Wfctl, tmp_path: Path) -> None:
    with (kept.root / "artifacts" / ("0" * 64)).open("wb") as big:
        for _ in range(60):
            big.write(os.urandom(1 << 20))
    place = tmp_path / "out"
    place.mkdir()
    process = subprocess.Popen(
        kept.argv("store", "backup", str(place / "backup.tgz")), env=kept.environ, stderr=subprocess.PIPE
    )
    wait_for(lambda: any(path.stat().st_size > 1000 for path in place.glob(".backup.tgz.*.tmp")), what="a part of it")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b"Traceback" not in err
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_leaves_everything_as_it_was(kept: Wfctl, tmp_path: Path) -> None:
    why = small.why_not(tmp_path / "probe")
    if why is not None:
        pytest.skip(why)
    (kept.root / "artifacts" / ("0" * 64)).write_bytes(os.urandom(12 << 20))
    kept.ok("store", "backup", str(tmp_path / "backup"))
    with small.small_tmpfs(tmp_path / "full") as full:
        done = kept("store", "backup", str(full / "backup"))
        assert done.status == 74
        assert "No space left" in done.err
        assert list(full.iterdir()) == []
        done = kept("store", "restore", str(tmp_path / "backup"), "--into", str(full / "store"))
        assert done.status == 74
        assert "nothing was changed" in done.err
        assert list(full.iterdir()) == []


# As root ------------------------------------------------------------------------------------------------------------------

OTHER = "nobody"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that another user may reach: pytest's own is closed to others."""
    found = Path(tempfile.mkdtemp(prefix="wfctl-test-", dir="/var/tmp"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def _other_can_run_python() -> bool:
    words = ["runuser", "-u", OTHER, "--", sys.executable, "-c", "import tempfile"]
    return shutil.which("runuser") is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not _other_can_run_python(), reason="the other user cannot read this interpreter")
def test_2_7_root_keeps_the_backup_and_the_owner_reads_the_store(place: Path) -> None:
    store, uid = place / "store", pwd.getpwnam(OTHER).pw_uid
    command(store, "init")
    for path in (store, *store.rglob("*")):
        os.chown(path, uid, -1)
    (place / "root").mkdir(mode=0o700)
    done = command(store, "store", "backup", str(place / "root" / "backup.tgz"))
    assert "backup of " in done.stdout
    assert (place / "root" / "backup.tgz").stat().st_uid == 0
    command(store, "store", "restore", str(place / "root" / "backup.tgz"), "--yes")
    assert {path.owner() for path in store.rglob("*")} == {OTHER}
    with Supervisor(store) as supervisor:
        supervisor.wait_ready()
        assert supervisor.stop() == 0
