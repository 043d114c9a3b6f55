"""Stopping a group, and what an execution leaves behind (contract 6.8, 6.9, 6.11)."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import timedelta
from pathlib import Path

from tests.keeper.conftest import RealStage, is_alive
from tests.support.waiting import wait_for
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import Ended, Holding

SHORT, LONG = timedelta(milliseconds=200), timedelta(seconds=60)
NEVER_MIND = "import signal, time; signal.signal(15, signal.SIG_IGN); open({!r}, 'w').close(); time.sleep(600)"


def _pid_in(path: Path) -> int:
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), f"a pid in {path.name}"))


def _ended(stage: RealStage, keeper: KeeperClient) -> Ended:
    (ended,) = stage.until(keeper, 1)
    assert isinstance(ended, Ended)
    return ended


def test_term_goes_to_the_whole_group(real_stage: RealStage, keeper: KeeperClient) -> None:
    child = real_stage.root / "child"
    real_stage.start(keeper, real_stage.job(["/bin/sh", "-c", f"sleep 600 & echo $! > {child}; wait"]))
    pid = _pid_in(child)
    keeper.stop("run-000001", 1, LONG)
    assert _ended(real_stage, keeper).signal == signal.SIGTERM
    assert not is_alive(pid)


def test_what_ignores_term_is_killed_after_the_grace(real_stage: RealStage, keeper: KeeperClient) -> None:
    ready = real_stage.root / "ready"
    real_stage.start(keeper, real_stage.python(NEVER_MIND.format(str(ready))))
    wait_for(ready.exists, "the job")
    keeper.stop("run-000001", 1, SHORT)
    ended = _ended(real_stage, keeper)
    assert ended.signal == signal.SIGKILL
    assert ended.left_behind == 0


def test_the_end_waits_for_a_child_that_ignores_term(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.8
    child, ready = real_stage.root / "child", real_stage.root / "ready"
    script = f"trap 'exit 7' TERM; (trap '' TERM; touch {ready}; while :; do sleep 0.05; done) & echo $! > {child}; wait"
    real_stage.start(keeper, real_stage.job(["/bin/sh", "-c", script]))
    pid = _pid_in(child)
    wait_for(ready.exists, "the child")
    keeper.stop("run-000001", 1, timedelta(seconds=1.5))
    main = wait_for(
        lambda: [held for held in keeper.list() if held.started and not is_alive(held.started.pid)], "its process to end"
    )
    assert main[0].state is Holding.RUNNING  # its group lives, so its slot is not free
    assert is_alive(pid)
    ended = _ended(real_stage, keeper)
    assert ended.exit_status == 7
    assert not is_alive(pid)
    assert real_stage.record().outcome == ended  # type: ignore[union-attr]


def test_the_grace_can_be_shortened_and_not_lengthened(real_stage: RealStage, keeper: KeeperClient) -> None:
    ready = real_stage.root / "ready"
    real_stage.start(keeper, real_stage.python(NEVER_MIND.format(str(ready))))
    wait_for(ready.exists, "the job")
    keeper.stop("run-000001", 1, LONG)
    keeper.stop("run-000001", 1, SHORT)
    keeper.stop("run-000001", 1, LONG)
    assert _ended(real_stage, keeper).signal == signal.SIGKILL


def test_a_suspended_group_can_be_stopped(real_stage: RealStage, keeper: KeeperClient) -> None:
    started = real_stage.start(keeper, real_stage.job(["/bin/sh", "-c", "trap 'exit 3' TERM; kill -STOP $$; sleep 600"]))
    wait_for(lambda: _state(started.pid) == "T", "the job to suspend itself")
    keeper.stop("run-000001", 1, LONG)
    assert _ended(real_stage, keeper).exit_status == 3


def test_a_stop_outlives_its_driver(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.11
    ready = real_stage.root / "ready"
    started = real_stage.start(keeper, real_stage.python(NEVER_MIND.format(str(ready))))
    wait_for(ready.exists, "the job")
    keeper.stop("run-000001", 1, SHORT)
    keeper.close()
    wait_for(lambda: not is_alive(started.pid), "the KILL")
    wait_for(real_stage.record, "the record")


def test_what_stays_is_counted_and_left_alone(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.9
    pids = [real_stage.root / name for name in ("grouped", "escaped")]
    escape = f"setsid sh -c 'echo $$ > {pids[1]}; exec sleep 600' & until [ -s {pids[1]} ]; do :; done"
    script = f"sleep 600 & echo $! > {pids[0]}; {escape}"
    ended = real_stage.run(keeper, real_stage.job(["/bin/sh", "-c", script]))
    left = [_pid_in(path) for path in pids]
    try:
        assert (ended.exit_status, ended.left_behind) == (0, 2)
        assert all(is_alive(pid) for pid in left)
        assert real_stage.run(keeper, real_stage.job(["/bin/true"], run="run-000002")).left_behind == 0
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), "the keeper to reap them")


def test_a_daemon_of_another_run_is_not_counted(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.start(keeper, real_stage.request("run-000009", 1))
    assert real_stage.run(keeper, real_stage.job(["/bin/true"])).left_behind == 0


def test_one_that_left_the_group_is_not_stopped_but_counted(real_stage: RealStage, keeper: KeeperClient) -> None:
    escaped = real_stage.root / "escaped"
    script = f"setsid sh -c 'echo $$ > {escaped}; exec sleep 600' & wait"
    real_stage.start(keeper, real_stage.job(["/bin/sh", "-c", script]))
    pid = _pid_in(escaped)
    keeper.stop("run-000001", 1, LONG)
    try:
        assert _ended(real_stage, keeper).left_behind == 1
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_zombie_that_nobody_reaps_does_not_hold_a_stop(real_stage: RealStage, keeper: KeeperClient) -> None:
    # One process leaves the group after it forked a child into it, and never reaps that child.
    parent = real_stage.root / "parent"
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    child = os.fork()\n"
        "    if child == 0: time.sleep(600)\n"
        "    os.setpgid(0, 0)\n"
        f"    open({str(parent)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    real_stage.start(keeper, real_stage.python(code))
    pid = _pid_in(parent)
    keeper.stop("run-000001", 1, LONG)
    try:
        assert _ended(real_stage, keeper).left_behind == 1
    finally:
        os.kill(pid, signal.SIGKILL)


def test_orphans_are_reaped(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.start(keeper, real_stage.request("run-000009", 1))
    real_stage.run(keeper, real_stage.job(["/bin/sh", "-c", "(sleep 0.1 &) ; (sleep 0.2 &)"]))

    wait_for(lambda: set(_children(keeper.hello.pid)) <= {"sh"}, "both to be reaped")


def _children(pid: int) -> list[str]:
    """Return the names of its children, zombies included."""
    names = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
            if rest.split()[1] == str(pid):
                names.append(name)
    return names


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
