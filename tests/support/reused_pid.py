"""A job's pid is given to a stranger while no supervisor lives: the first process of a pid namespace, as `-m` module.

    unshare --pid --fork --mount-proc python -m tests.support.reused_pid FOLDER

It makes the store FOLDER/store, and prints as JSON what the next supervisor did. Only root may choose pids.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.place import Place, is_alive, kill
from tests.support.processes import wait_for
from tests.support.witness import Witness

_NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")
_STRANGER = 'for s in HUP INT TERM USR1; do trap "echo $s >>$0" $s; done; while :; do sleep 0.05; done'


def _stranger_with(pid: int, heard: Path) -> subprocess.Popen[bytes]:
    """Return a process with that pid, which writes down each signal that it gets."""
    for _ in range(50):
        _NEXT_PID.write_text(str(pid - 1))
        stranger = subprocess.Popen(["/bin/sh", "-c", _STRANGER, str(heard)], start_new_session=True)
        if stranger.pid == pid:
            return stranger
        stranger.kill()
        stranger.wait()
    raise AssertionError(f"pid {pid} was not to be had")


def _reap() -> None:
    """Wait for everything that became this process's child: a pid is only free when no group or session has it either."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def play(folder: Path) -> dict[str, object]:
    """Round 3 of FR-05."""
    heard = folder / "heard"
    with Place(folder) as place, Witness(folder / "side") as witness:
        place.store.create_deployment(deployment_id="d", command=witness.command("trap '' TERM; while :; do sleep 0.05; done"))
        place.every_second("solo", overlap="skip")
        first = place.supervisor()
        pid = wait_for(lambda: witness.alive("solo"), what="the job")[0].pid
        place.until("run-000001", "running")
        keeper = place.keeper()
        first.kill()
        kill(keeper)
        place.store.pause_schedule(schedule_id="solo")
        os.killpg(pid, 9)
        _reap()
        stranger = _stranger_with(pid, heard)
        second = place.supervisor()
        run = place.until("run-000001", "failed")
        log = second.text()
        second.stop()
        survived = is_alive(stranger.pid)
        stranger.kill()
        stranger.wait()
        return {
            "reason": dict(run.reason or {}),
            "adopted": "adopted" in log,
            "survived": survived,
            "heard": heard.read_text() if heard.exists() else "",
        }


if __name__ == "__main__":
    print(json.dumps(play(Path(sys.argv[1]))))
