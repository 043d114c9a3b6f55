"""What Linux gives beyond the standard library: each helper against the kernel itself."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from wfctl import linux


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def _readable(source: int, within_s: float) -> bool:
    return bool(select.select([source], [], [], within_s)[0])


# Who a process is


def test_a_living_process_is_itself_and_no_other(child: subprocess.Popen[bytes]) -> None:  # contract 7.1
    start = linux.process_start_time(child.pid)
    assert start is not None
    assert linux.is_same_process(child.pid, start, linux.boot_id())
    assert not linux.is_same_process(child.pid, start + 1, linux.boot_id())
    assert not linux.is_same_process(child.pid, start, "another boot")


def test_a_dead_process_is_nobody_even_unreaped(child: subprocess.Popen[bytes]) -> None:
    start = linux.process_start_time(child.pid)
    assert start is not None
    pidfd = linux.pidfd_open(child.pid)
    assert pidfd is not None
    child.kill()
    assert _readable(pidfd, 10)
    os.close(pidfd)
    assert linux.process_start_time(child.pid) == start  # a zombie
    assert not linux.is_same_process(child.pid, start, linux.boot_id())
    child.wait()
    assert linux.process_stat(child.pid) is None
    assert linux.pidfd_open(child.pid) is None


def test_a_name_with_blanks_and_brackets_does_not_confuse_it(tmp_path: Path) -> None:
    program = tmp_path / ") R 1 1 (x y"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        stat = linux.process_stat(process.pid)
        process.kill()
    assert stat is not None
    assert (stat.parent, stat.group) == (os.getpid(), os.getpgid(0))


def test_signals_reach_only_the_process_that_was_meant(child: subprocess.Popen[bytes]) -> None:
    start, boot = linux.process_start_time(child.pid), linux.boot_id()
    assert start is not None
    assert not linux.signal_process(child.pid, start + 1, boot, signal.SIGKILL)
    assert not linux.signal_group(child.pid, start, "another boot", signal.SIGKILL)
    assert child.poll() is None
    assert linux.signal_process(child.pid, start, boot, signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM
    assert not linux.signal_process(child.pid, start, boot, signal.SIGTERM)


def test_a_group_is_signalled_as_a_whole(tmp_path: Path) -> None:
    script = "sleep 600 & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        start = linux.process_start_time(process.pid)
        assert start is not None
        assert linux.signal_group(process.pid, start, linux.boot_id(), signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
        assert process.stdout.read() == b""  # the inner one held the pipe
    stat = linux.process_stat(inner)
    assert stat is None or not stat.is_alive


def test_living_pids_has_us_and_our_child(child: subprocess.Popen[bytes]) -> None:
    assert {os.getpid(), child.pid} <= set(linux.living_pids())
    children = linux.own_children()
    assert children is None or child.pid in children


def test_a_subreaper_is_the_parent_of_orphans() -> None:
    code = (
        "import os, subprocess, time\n"
        "from wfctl import linux\n"
        "assert linux.set_subreaper()\n"
        "linux.set_process_name('renamed')\n"
        "assert open('/proc/self/comm').read() == 'renamed\\n'\n"
        "pid = int(subprocess.run(['/bin/sh', '-c', 'sleep 600 >/dev/null 2>&1 & echo $!'], capture_output=True).stdout)\n"
        "stat = linux.process_stat(pid)\n"
        "os.kill(pid, 9)\n"
        "assert stat.parent == os.getpid()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


# Launching


def test_what_it_spawns_has_every_signal_at_its_default(tmp_path: Path) -> None:  # contract 6.4
    spawner = linux.Spawner()
    path = tmp_path / "out"
    output = os.open(path, os.O_WRONLY | os.O_CREAT)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        spawner.redirect(output, output)
        pid = spawner.spawn("/bin/cat", ["cat", "/proc/self/status"], {})
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGUSR1, before)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    status = dict(line.split(":\t", 1) for line in path.read_text().splitlines())
    assert {int(status[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}


def test_what_cannot_be_spawned_is_told() -> None:
    spawner = linux.Spawner()
    spawner.redirect(1, 2)
    with pytest.raises(FileNotFoundError):
        spawner.spawn("/nowhere", ["x"], {})
    refused: list[tuple[str, list[str], dict[str, str]]] = [
        ("/bin/true", [], {}),
        ("/bin/true", ["a\0b"], {}),
        ("/bin/\0true", ["x"], {}),
        ("/bin/true", ["x"], {"A=B": ""}),
        ("/bin/true", ["x"], {"": ""}),
        ("/bin/true", ["x"], {"A": "\0"}),
    ]
    for program, argv, environment in refused:
        with pytest.raises(ValueError):
            spawner.spawn(program, argv, environment)


# Waiting


def test_a_wall_timer_expires_at_its_instant() -> None:
    timer = linux.WallTimer()
    timer.set(datetime.now(UTC) + timedelta(milliseconds=50))
    assert timer.read() is None
    assert _readable(timer.fileno(), 10)
    assert timer.read() == "expired"
    assert timer.read() is None
    timer.close()


@pytest.mark.parametrize("instant", [datetime(1969, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)])
def test_an_instant_that_passed_expires_at_once(instant: datetime) -> None:
    timer = linux.WallTimer()
    timer.set(instant)
    assert _readable(timer.fileno(), 10)
    assert timer.read() == "expired"
    timer.close()


def test_a_wall_timer_without_an_instant_waits_for_a_clock_step_only() -> None:
    timer = linux.WallTimer()
    timer.set(datetime(2001, 1, 1, tzinfo=UTC))
    timer.set(None)
    assert not _readable(timer.fileno(), 0.05)
    assert timer.read() is None
    timer.close()
    timer.close()


def test_a_watch_names_what_changed(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    watch = linux.DirectoryWatch([one, two])
    assert watch.read() == set()
    (one / "a.toml").write_text("x")
    (two / "temporary").write_text("x")
    (two / "temporary").rename(two / "b.toml")
    assert _readable(watch.fileno(), 10)
    changed = watch.read()
    assert {(one, "a.toml"), (two, "b.toml")} <= changed
    (one / "a.toml").unlink()
    assert _readable(watch.fileno(), 10)
    assert watch.read() == {(one, "a.toml")}
    one.rmdir()
    assert _readable(watch.fileno(), 10)
    assert (one, "") in watch.read()
    watch.close()


def test_a_watch_of_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        linux.DirectoryWatch([tmp_path, tmp_path / "missing"])
    assert caught.value.errno == errno.ENOENT
    (tmp_path / "plain").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        linux.DirectoryWatch([tmp_path / "plain"])


# Files


def test_a_hole_gives_blocks_back_and_keeps_the_size(tmp_path: Path) -> None:  # contract 6.15
    path = tmp_path / "big"
    path.write_bytes(b"x" * (1 << 20))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    before = os.fstat(descriptor).st_blocks
    try:
        linux.punch_hole(descriptor, 64 << 10, 512 << 10)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
        pytest.skip("this file system has no holes")
    finally:
        after = os.fstat(descriptor)
        os.close(descriptor)
    assert after.st_size == 1 << 20
    assert after.st_blocks < before
    content = path.read_bytes()
    assert content[: 64 << 10].strip(b"x") == b""
    assert content[64 << 10 : 576 << 10].strip(b"\0") == b""
    assert content[576 << 10 :].strip(b"x") == b""


def test_a_failed_call_says_which_and_why() -> None:
    with pytest.raises(OSError, match="fallocate") as caught:
        linux.punch_hole(-1, 0, 4096)
    assert caught.value.errno == errno.EBADF
