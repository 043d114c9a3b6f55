"""What an execution gets, and how it is told that it gets nothing (contract 6.4, 6.9, 6.10)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.keeper.conftest import RealStage
from tests.support.waiting import wait_for
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import Holding, LaunchRequest, Refused, RefusedAt
from wfctl.keeper.records import RECORD_NAME, RECORD_SIZE
from wfctl.linux import process_stat

REPORT_OF_ITSELF = r"""
import json, os, resource, signal
def status(name):
    return [line.split()[1] for line in open("/proc/self/status") if line.startswith(name + ":")][0]
print(json.dumps({
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)),
    "stdin": os.readlink("/proc/self/fd/0"), "stdout": os.readlink("/proc/self/fd/1"), "stderr": os.readlink("/proc/self/fd/2"),
    "blocked": status("SigBlk"), "ignored": status("SigIgn"), "umask": status("Umask"),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0], "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "sid": os.getsid(0), "pgid": os.getpgid(0), "pid": os.getpid(), "ppid": os.getppid(), "cwd": os.getcwd(),
    "oom": open("/proc/self/oom_score_adj").read().strip(), "environment": dict(os.environ),
}))
"""


def test_it_has_its_own_session_and_nothing_of_the_keeper(real_stage: RealStage, keeper: KeeperClient) -> None:
    # A program that touches no signal itself: `sh` would be no witness, Python ignores PIPE and XFSZ.
    request = real_stage.python(REPORT_OF_ITSELF, environment={"LC_ALL": "C.UTF-8", "ONLY": "this"})
    ended = real_stage.run(keeper, request)
    assert ended.exit_status == 0
    seen = json.loads(real_stage.output())
    assert seen["fds"] == [0, 1, 2]
    assert seen["stdin"] == "/dev/null"
    assert (seen["stdout"], seen["stderr"]) == (request.stdout, request.stderr)
    assert seen["sid"] == seen["pgid"] == seen["pid"] == ended.pid
    assert seen["ppid"] == keeper.hello.pid
    assert seen["cwd"] == request.cwd
    assert (seen["umask"], seen["core"], seen["oom"]) == ("0022", 0, "0")
    assert seen["environment"] == {"LC_ALL": "C.UTF-8", "ONLY": "this"}


def test_signals_are_at_their_defaults(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.run(keeper, real_stage.job(["/bin/cat", "/proc/self/status"]))
    status = dict(line.split(":\t", 1) for line in real_stage.output().splitlines() if ":\t" in line)
    assert {int(status[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}


def test_its_limit_of_open_files_is_the_one_the_keeper_was_started_with(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    stage = RealStage(tmp_path)
    try:
        keeper = stage.driver()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    stage.run(keeper, stage.python(REPORT_OF_ITSELF))
    assert json.loads(stage.output())["files"] == [512, hard]
    stage.clean_up()


def test_more_runs_than_a_job_may_have_files(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    stage = RealStage(tmp_path)
    try:
        keeper = stage.driver()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    keeper.launch([stage.job(["/bin/sleep", "600"], run=f"run-{n:06d}") for n in range(1, 61)])
    stage.until(keeper, 60)
    assert stage.run(keeper, stage.job(["/bin/echo", "hello"], run="run-000061")).exit_status == 0
    assert stage.output("run-000061") == "hello\n"
    stage.clean_up()


@pytest.mark.parametrize("umask", [0o22, 0o77, 0, 0o777], ids=oct)
def test_its_umask_is_the_one_asked_for(real_stage: RealStage, keeper: KeeperClient, umask: int) -> None:
    real_stage.run(keeper, real_stage.python(REPORT_OF_ITSELF, umask=umask))
    assert json.loads(real_stage.output())["umask"] == f"{umask:04o}"
    assert stat.S_IMODE((real_stage.root / "runs/run-000001/stdout.log").stat().st_mode) == 0o600


def test_its_oom_score_is_zero_whatever_the_keepers(tmp_path: Path) -> None:
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()
    stage = RealStage(tmp_path)
    try:
        own.write_text("300")
        keeper = stage.driver()
        own.write_text(before)
    except PermissionError:
        pytest.skip("the score cannot be changed back here")
    stage.run(keeper, stage.job(["/bin/sh", "-c", "sleep 0.1; cat /proc/self/oom_score_adj"]))
    assert stage.output() == "0\n"
    stage.clean_up()


def test_arguments_and_environment_arrive_byte_for_byte(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 3.1
    odd = [b"", b"a b", b"\xff\xfe", "é".encode(), b"line\nbreak", b"$HOME *", b"\x01"]
    argv = ["name of its own", *(os.fsdecode(one) for one in odd)]
    request = real_stage.job(argv, program="/bin/cat", environment={"ODD": os.fsdecode(b"\xff=\n"), "EMPTY": ""})
    keeper.launch([real_stage.job(["name of its own", "-c", "cat /proc/$$/cmdline; cat /proc/$$/environ"], program="/bin/sh",
                                  environment=request.environment, k=2)])  # fmt: skip
    real_stage.until(keeper, 2)
    raw = (real_stage.root / "runs/run-000001/stdout.log").read_bytes()
    assert raw.startswith(b"name of its own\0-c\0")
    assert b"ODD=\xff=\n\0" in raw
    assert b"EMPTY=\0" in raw
    script = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
    real_stage.run(keeper, real_stage.python(script, *argv[1:], run="run-000002"))
    assert real_stage.output("run-000002") == f"{odd}\n"


def test_output_is_appended_and_both_streams_may_be_one_file(real_stage: RealStage, keeper: KeeperClient) -> None:
    both = str(real_stage.root / "both.log")
    for k in (1, 2):
        job = real_stage.job(["/bin/sh", "-c", "echo out; echo err >&2"], k=k, stdout=both, stderr=both)
        real_stage.run(keeper, job)
    assert Path(both).read_text() == "out\nerr\n" * 2


@pytest.mark.parametrize("status", [0, 1, 75, 255])
def test_exit_status(real_stage: RealStage, keeper: KeeperClient, status: int) -> None:
    ended = real_stage.run(keeper, real_stage.job(["/bin/sh", "-c", f"exit {status}"]))
    assert (ended.exit_status, ended.signal, ended.recorded) == (status, None, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE, signal.SIGRTMIN], ids=str)
def test_death_by_signal(real_stage: RealStage, keeper: KeeperClient, number: int) -> None:
    ended = real_stage.run(keeper, real_stage.job(["/bin/sh", "-c", f"kill -{int(number)} $$"]))
    assert (ended.exit_status, ended.signal) == (None, number)


def test_what_it_used_is_told(real_stage: RealStage, keeper: KeeperClient) -> None:
    code = "import time\nx = bytearray(64 << 20)\nwhile time.process_time() < 0.2: pass"
    ended = real_stage.run(keeper, real_stage.python(code))
    assert 200_000 <= ended.cpu_us < 10_000_000
    assert 64 << 20 <= ended.max_rss_bytes < 1 << 30
    assert (ended.ended_at - ended.started_at).total_seconds() >= 0.2


def test_a_process_is_told_by_its_start_time(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 7.1
    started = real_stage.start(keeper, real_stage.request("run-000001", 1))
    seen = process_stat(started.pid)
    assert seen is not None
    assert seen.start_time == started.start_time


def _not_executable(stage: RealStage) -> str:
    path = stage.root / "plain"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)
    return str(path)


def _no_format(stage: RealStage) -> str:
    path = stage.root / "nonsense"
    path.write_bytes(b"no program\n")
    path.chmod(0o755)
    return str(path)


def _no_interpreter(stage: RealStage) -> str:
    path = stage.root / "script"
    path.write_text("#!/nowhere/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("program", "number"),
    [
        pytest.param(lambda _: "/nowhere", errno.ENOENT, id="missing"),
        pytest.param(_not_executable, errno.EACCES, id="not executable"),
        pytest.param(_no_format, errno.ENOEXEC, id="neither binary nor script"),
        pytest.param(_no_interpreter, errno.ENOENT, id="interpreter missing"),
        pytest.param(lambda _: "/tmp", errno.EACCES, id="a directory"),
        pytest.param(lambda _: "/bin/t\0rue", errno.EINVAL, id="a NUL in its name"),
    ],
)
def test_a_program_that_cannot_be_run(real_stage: RealStage, keeper: KeeperClient, program: object, number: int) -> None:
    path = program(real_stage)  # type: ignore[operator]
    _assert_refused(real_stage, keeper, real_stage.job([path]), number, RefusedAt.PROGRAM)


@pytest.mark.parametrize(
    ("cwd", "number"),
    [
        pytest.param("/nowhere", errno.ENOENT, id="missing"),
        pytest.param("/bin/sh", errno.ENOTDIR, id="no directory"),
    ],
)
def test_a_working_directory_that_is_none(real_stage: RealStage, keeper: KeeperClient, cwd: str, number: int) -> None:
    _assert_refused(real_stage, keeper, real_stage.job(["/bin/true"], cwd=cwd), number, RefusedAt.CWD)


def test_an_empty_command(real_stage: RealStage, keeper: KeeperClient) -> None:
    _assert_refused(real_stage, keeper, real_stage.job([], program="/bin/true"), errno.EINVAL, RefusedAt.PROGRAM)


def test_arguments_beyond_what_the_system_takes(real_stage: RealStage, keeper: KeeperClient) -> None:
    job = real_stage.job(["/bin/true", *["x" * 100_000] * 30])
    _assert_refused(real_stage, keeper, job, errno.E2BIG, RefusedAt.PROGRAM)


@pytest.mark.parametrize("kind", ["link", "fifo", "device", "directory"])
def test_an_output_that_is_no_regular_file_is_refused_and_never_waited_for(
    real_stage: RealStage, keeper: KeeperClient, kind: str
) -> None:  # contract 2.9
    job = real_stage.job(["/bin/true"])
    path = Path(job.stdout)
    if kind == "link":
        path.symlink_to(real_stage.root / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        job = real_stage.job(["/bin/true"], stdout="/dev/full")
    refused = _assert_refused(real_stage, keeper, job, None, RefusedAt.OUTPUT)
    assert refused.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EINVAL}
    assert not (real_stage.root / "elsewhere").exists()


def test_without_its_directory_there_is_no_record_and_no_launch(real_stage: RealStage, keeper: KeeperClient) -> None:
    keeper.launch([real_stage.job(["/bin/true"], directory=str(real_stage.root / "gone"))])
    (refused,) = real_stage.until(keeper, 1)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.errno, refused.recorded) == (RefusedAt.RECORD, errno.ENOENT, False)


def test_a_launch_that_some_earlier_keeper_did_is_refused(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.2
    job = real_stage.job(["/bin/echo", "never"])
    Path(job.directory, "exit").write_bytes(b"")
    keeper.launch([job])
    (refused,) = real_stage.until(keeper, 1)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.errno, refused.recorded) == (RefusedAt.RECORD, errno.EEXIST, False)
    assert not Path(job.stdout).exists()


def test_a_refused_launch_leaves_the_next_one_alone(real_stage: RealStage, keeper: KeeperClient) -> None:
    jobs = [
        real_stage.job(["/nowhere"], run="run-000001"),
        real_stage.job(["/bin/pwd"], run="run-000002"),
        real_stage.job(["/bin/true"], run="run-000003", cwd="/nowhere"),
        real_stage.job(["/bin/pwd"], run="run-000004"),
    ]
    keeper.launch(jobs)
    real_stage.until(keeper, 6)
    assert real_stage.output("run-000002") == f"{jobs[1].cwd}\n"
    assert real_stage.output("run-000004") == f"{jobs[3].cwd}\n"


def test_no_descriptor_is_lost(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.run(keeper, real_stage.job(["/bin/true"]))
    before = _descriptors(keeper.hello.pid)
    keeper.launch([real_stage.job(["/bin/true"], k=k) for k in range(2, 40)])
    keeper.launch([real_stage.job(["/nowhere"], k=k) for k in range(40, 60)])
    keeper.launch([real_stage.job(["/bin/true"], k=k, cwd="/nowhere") for k in range(60, 80)])
    real_stage.until(keeper, 38 * 2 + 40)
    assert _descriptors(keeper.hello.pid) == before


def test_a_thousand_at_once(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.3
    keeper.launch([real_stage.job(["/bin/true"], run=f"run-{n:06d}") for n in range(1, 1001)])
    reports = real_stage.until(keeper, 2000)
    assert len({report.run for report in reports}) == 1000
    assert keeper.list() == []


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _assert_refused(stage: RealStage, keeper: KeeperClient, job: object, number: int | None, what: RefusedAt) -> Refused:
    keeper.launch([job])  # type: ignore[list-item]
    (refused,) = stage.until(keeper, 1)
    assert isinstance(refused, Refused)
    assert refused.what is what
    assert number is None or refused.errno == number
    record = stage.record()
    assert record is not None
    assert record.outcome == refused
    assert keeper.list() == []
    return refused


assert sys.platform == "linux"


def test_a_launch_may_name_a_file_as_its_standard_input(real_stage: RealStage, keeper: KeeperClient, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("what is told\n")  # contract 7.8: a notification reads its event there
    ended = real_stage.run(keeper, real_stage.job(["/bin/cat"], stdin=str(given)))
    assert ended.exit_status == 0 and real_stage.output() == "what is told\n"


@pytest.mark.parametrize("kind", ["missing", "fifo", "link"])
def test_what_is_no_regular_file_is_no_standard_input(real_stage: RealStage, keeper: KeeperClient, kind: str) -> None:
    given = real_stage.root / "given"
    if kind == "fifo":
        os.mkfifo(given)
    elif kind == "link":
        given.symlink_to("/etc/passwd")
    keeper.launch([real_stage.job(["/bin/cat"], stdin=str(given))])
    (refused,) = real_stage.until(keeper, 1)
    assert isinstance(refused, Refused) and refused.what is RefusedAt.INPUT
    record = real_stage.record()
    assert record is not None and record.outcome == refused


def _spare(stage: RealStage, job: LaunchRequest) -> LaunchRequest:
    """Return the launch with its run's directory under a spare's name, as a supervisor has it made ahead."""
    root = Path(job.directory).parent
    spare = root.with_name(".spare.000001")
    (root / "1" / RECORD_NAME).write_bytes(bytes(RECORD_SIZE))
    for name in ("stdout.log", "stderr.log"):
        (root / name).touch()
    root.rename(spare)
    return replace(job, spare=str(spare))


def test_a_directory_made_ahead_is_taken_by_the_launch(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.3
    ended = real_stage.run(keeper, _spare(real_stage, real_stage.job(["/bin/sh", "-c", "pwd; sleep 0.1"])))
    assert ended.exit_status == 0 and not ended.speaks
    assert real_stage.output() == f"{real_stage.root}/runs/run-000001/work\n"
    record = real_stage.record()
    assert record is not None and record.outcome == replace(ended, speaks=True)
    assert not (real_stage.root / "runs" / ".spare.000001").exists()


def test_6_10_where_the_run_has_a_directory_it_was_launched_before(real_stage: RealStage, keeper: KeeperClient) -> None:
    request = _spare(real_stage, real_stage.job(["/bin/true"]))
    (real_stage.root / "runs" / "run-000001").mkdir()
    keeper.launch([request])
    (refused,) = real_stage.until(keeper, 1)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.errno, refused.recorded) == (RefusedAt.RECORD, errno.EEXIST, False)


def test_a_spare_that_was_taken_away_is_told(real_stage: RealStage, keeper: KeeperClient) -> None:
    request = _spare(real_stage, real_stage.job(["/bin/true"]))
    shutil.rmtree(real_stage.root / "runs" / ".spare.000001")
    keeper.launch([request])
    (refused,) = real_stage.until(keeper, 1)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.errno, refused.recorded) == (RefusedAt.RECORD, errno.ENOENT, False)


@pytest.mark.parametrize("name", ["output", "interrupt", "checkpoint"])
def test_an_end_tells_whether_there_is_more_to_read(real_stage: RealStage, keeper: KeeperClient, name: str) -> None:
    ended = real_stage.run(keeper, real_stage.job(["/bin/sh", "-c", f"sleep 0.1; echo > ../1/{name}"]))
    assert ended.speaks


def test_6_3_what_was_prepared_is_launched_when_it_is_said_and_not_before(real_stage: RealStage, keeper: KeeperClient) -> None:
    requests = [real_stage.job(["/bin/sh", "-c", "echo $WFCTL_RUN_ID"], run=f"run-00000{n}") for n in range(1, 5)]
    keeper.prepare(requests)
    assert keeper.list() == []  # it has read them by now
    assert not (real_stage.root / "runs" / "run-000001" / "stdout.log").exists()
    other = replace(requests[1], argv=["/bin/sh", "-c", "echo another"])
    keeper.launch([requests[2], other, requests[0]])
    wait_for(lambda: all(real_stage.record(f"run-00000{n}") for n in (1, 2, 3)), "three ends")
    assert [real_stage.output(f"run-00000{n}") for n in (1, 2, 3)] == ["run-000001\n", "another\n", "run-000003\n"]
    assert keeper.forbid("run-000004", 1).state is Holding.FORBIDDEN


def test_what_is_no_longer_prepared_is_launched_as_it_is_asked_for(real_stage: RealStage, keeper: KeeperClient) -> None:
    first, second = (real_stage.job(["/bin/sleep", "0.1"], run=f"run-00000{n}") for n in (1, 2))
    keeper.prepare([first, second])
    keeper.prepare([second])
    assert real_stage.run(keeper, first).exit_status == real_stage.run(keeper, second).exit_status == 0


def test_who_says_go_for_what_nobody_prepared_is_hung_up_on(real_stage: RealStage, keeper: KeeperClient) -> None:
    request = real_stage.job(["/bin/true"])
    keeper.prepare([request])
    keeper._send({"op": "unprepare"})
    keeper.launch([request])
    wait_for(lambda: keeper.poll() == [] and keeper.closed, "the keeper to hang up")
    again = real_stage.driver()
    assert again.forbid(request.run, 1).state is Holding.FORBIDDEN


def test_6_10_what_is_forbidden_is_not_launched_though_it_was_prepared(real_stage: RealStage, keeper: KeeperClient) -> None:
    request = real_stage.job(["/bin/true"])
    keeper.prepare([request])
    assert keeper.forbid(request.run, 1).state is Holding.FORBIDDEN
    keeper.launch([request])
    assert keeper.list() == [] and real_stage.record() is None
