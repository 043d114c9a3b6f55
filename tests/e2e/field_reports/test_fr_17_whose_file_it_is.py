"""FR-17: owners and modes: nothing is ignored without a word, and nothing untrusted is executed (contract 2.7, 2.9)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.place import Place
from tests.support.processes import clean_environment, wait_for
from tests.support.witness import Witness

STRANGER = 12345


def _world_writable(path: Path) -> None:
    path.chmod(0o666)


def _group_writable(path: Path) -> None:
    path.chmod(0o660)


def _a_strangers(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


def _trusted(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, 0, 0)
    path.chmod(0o600)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
WAYS = [
    pytest.param(_world_writable, "write", id="mode 0666"),
    pytest.param(_group_writable, "write", id="mode 0660"),
    pytest.param(_a_strangers, "belongs", id="another owner", marks=needs_root),
]


@pytest.mark.parametrize(("distort", "named"), WAYS)
@pytest.mark.parametrize("when", ["at start", "later"])
def test_fr_17_a_definition_that_others_may_write_is_not_executed(
    place: Place,
    witness: Witness,
    ledger_check: Callable[..., None],
    tmp_path: Path,
    distort: Callable[[Path], None],
    named: str,
    when: str,
) -> None:
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    for name in ("one", "two"):
        place.every_second(name, "quick", overlap="parallel", max_active_runs=50)
    path = place.root / "schedules" / "two.toml"
    if when == "at start":
        distort(path)
    supervisor = place.supervisor()
    if when == "later":
        wait_for(lambda: witness.runs("two"), what="a run of it while it was trusted")
        distort(path)
    wait_for(lambda: "schedule two is blocked" in supervisor.text(), what="a line in the log")
    active = "admitted,running"
    wait_for(lambda: not place.store.list_runs(schedule_id="two", status=active).items, what="what was admitted before")
    before = len(witness.runs("two"))
    others = len(witness.runs("one"))
    wait_for(lambda: len(witness.runs("one")) > others + 2, what="the other one")
    assert len(witness.runs("two")) == before == (0 if when == "at start" else before)
    blocked = command("status", "-o", "json").json["blocked"]
    assert [each["id"] for each in blocked] == ["two"]
    diagnostic = blocked[0]["diagnostic"]
    assert diagnostic["code"] == "not-trusted" and diagnostic["file"] == str(path)
    assert named in diagnostic["message"], diagnostic
    doctor = command("doctor")
    assert doctor.status == 1 and "schedule two" in doctor.out
    _trusted(path)
    wait_for(lambda: len(witness.runs("two")) > before, what="the mended one")
    assert supervisor.stop() == 0
    assert "Traceback" not in supervisor.text()
    ledger_check(place.store, witness)


def test_fr_17_a_store_that_others_may_write_is_refused(place: Place, tmp_path: Path) -> None:
    place.root.chmod(0o777)
    for words in (("supervise",), ("schedules",), ("doctor",)):
        done = Wfctl(place.root, tmp_path)(*words)
        assert done.status == (1 if words == ("doctor",) else 77), done
        assert f"chmod 700 {place.root}" in done.err + done.out
        assert "Traceback" not in done.err
    place.root.chmod(0o700)


# What root may read and write whatever its mode is tried without that right ---------------------------------------------------


def _unprivileged() -> list[str] | None:
    """Return what runs a command without the right to pass over modes; None where there is no way."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    rights = "-dac_override,-dac_read_search,-fowner"
    command = [str(setpriv), f"--inh-caps={rights}", f"--bounding-set={rights}", "--"]
    works = setpriv is not None and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else None


def _try(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    prefix = _unprivileged()
    if prefix is None:
        pytest.skip("no way to give up the right to pass over modes: setpriv (util-linux) is missing")
    command = [*prefix, sys.executable, "-m", "wfctl", "--store", str(root), *words]
    if subprocess.run([*prefix, sys.executable, "-c", "import click"], capture_output=True, check=False).returncode != 0:
        pytest.skip("without that right the interpreter itself cannot be read")
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60, check=False)


@pytest.mark.parametrize(
    ("name", "mode", "named"),
    [
        pytest.param("ledger.db", 0o400, "ledger.db", id="a ledger that is read-only"),
        pytest.param("ledger.db", 0o000, "ledger.db", id="a ledger that cannot be read"),
        pytest.param("scheduler.lock", 0o000, "cannot open the lock", id="a lock that cannot be read"),
    ],
)
def test_fr_17_a_start_that_is_refused_says_by_which_file(place: Place, name: str, mode: int, named: str) -> None:
    place.job("true")
    place.store.close()
    path = place.root / name
    path.touch(0o600)
    content = path.read_bytes()
    path.chmod(mode)
    done = _try(place.root, "supervise")
    assert done.returncode == 74, done
    assert named in done.stderr and "Traceback" not in done.stderr
    path.chmod(0o600)
    assert path.read_bytes() == content


def test_fr_17_a_definition_that_cannot_be_read_blocks_its_schedule(place: Place) -> None:
    place.job("true")
    for name in ("one", "two"):
        place.once(name)
    path = place.root / "schedules" / "two.toml"
    path.chmod(0o000)
    done = _try(place.root, "supervise", "--until-idle")
    path.chmod(0o600)
    assert done.returncode == 0, done
    assert "schedule two is blocked" in done.stderr and str(path) in str(
        place.store.context.ledger.connection.execute("SELECT diagnostic FROM definitions WHERE id = 'two'").fetchone()
    )
    assert "Traceback" not in done.stderr
    assert place.statuses("one") == ["completed"]
