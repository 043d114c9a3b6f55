"""Root works in another user's store as that user (2.7)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Supervisor, wait_for, wfctl

OTHER = "nobody"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that another user may reach: pytest's own is closed to others."""
    found = Path(tempfile.mkdtemp(prefix="wfctl-test-", dir="/var/tmp"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def _other_can_run_python() -> bool:
    """Tell whether the other user may read this interpreter: one that root installed for itself alone is closed to others."""
    command = ["runuser", "-u", OTHER, "--", sys.executable, "-c", "import tempfile"]
    return shutil.which("runuser") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_2_7_root_refuses_an_owner_who_cannot_read_the_program(place: Path) -> None:
    if _other_can_run_python():
        pytest.skip("every user can read this interpreter")
    wfctl(place / "store", "init")
    os.chown(place / "store", pwd.getpwnam(OTHER).pw_uid, -1)
    refused = wfctl(place / "store", "schedules", check=False)
    assert refused.returncode == 77
    assert "install wfctl where that user can read it" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not _other_can_run_python(), reason="the other user cannot read this interpreter")
def test_2_7_root_takes_the_owners_uid_before_it_opens_anything(place: Path) -> None:
    store, uid = place / "store", pwd.getpwnam(OTHER).pw_uid
    wfctl(store, "init")
    for path in (store, *store.iterdir()):
        os.chown(path, uid, -1)
    wfctl(store, "deployment", "add", "who", "--", "/usr/bin/id", "-u")
    wfctl(store, "schedule", "add", "often", "--deployment", "who", "--every", "1s")
    assert {path.owner() for path in (store / "schedules").iterdir()} == {OTHER}
    with Supervisor(store) as supervisor:
        supervisor.wait_ready()
        done = wait_for(lambda: wfctl(store, "runs", "--status", "completed", "-o", "name").stdout, what="a run")
        assert supervisor.stop() == 0
    assert wfctl(store, "run", "logs", done.split()[0]).stdout == f"{uid}\n"
    assert {path.owner() for path in store.rglob("*")} == {OTHER}
