"""The two ways of starting a process of a run do the same (contract 6.4)."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from wfctl.keeper import starting
from wfctl.keeper.protocol import LaunchRequest
from wfctl.keeper.starting import DirectoryRefused, SpawnStarter, Starter, VforkStarter, best_starter

LOOK = "cat /proc/self/status; umask; pwd; readlink /proc/self/fd/0; env; ps -o sid=,pid= -p $$; echo wrong >&2"
BOTH = pytest.mark.parametrize("kind", [VforkStarter, SpawnStarter])
CLEAN = pytest.mark.skipif(
    starting._is_a_hidden_signal_ignored(), reason="who started the tests left signals ignored that nobody can set"
)


@pytest.fixture(autouse=True)
def stay_here() -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109
    yield
    os.chdir(before)


def unlimited(is_job: bool) -> None:
    """The limits stay as they are."""


def job(
    program: str, argv: Sequence[str], environment: Mapping[str, str] | None = None, *, cwd: str = "/", umask: int = 0o077
) -> LaunchRequest:
    return LaunchRequest(
        run="run-000001",
        k=1,
        program=program,
        argv=argv,
        environment=environment or {},
        cwd=cwd,
        umask=umask,
        stdout="",
        stderr="",
        directory="",
    )


def run(starter: Starter, place: Path, script: str, *, umask: int = 0o027, stdin: int | None = None) -> tuple[int, str, str]:
    out, err = (os.open(place / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in ("out", "err"))
    try:
        with starter.batch():
            request = job("/bin/sh", ["sh", "-c", script], {"A": "ä\udcff b"}, cwd=str(place), umask=umask)
            pid = starter.start(request, (stdin, out, err))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code, *(os.pread(each, 1 << 20, 0).decode("utf-8", "surrogateescape") for each in (out, err))
    finally:
        os.close(out)
        os.close(err)


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """A batch leaves a keeper's umask behind, and who tests here is no keeper."""
    before = os.umask(0o077)
    os.umask(before)
    yield
    os.umask(before)


@CLEAN
@BOTH
def test_6_4_what_a_process_begins_with(kind: type[VforkStarter | SpawnStarter], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        code, said, wrong = run(kind(unlimited), tmp_path, LOOK)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    assert {int(status[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}
    assert {"0027", str(tmp_path), "/dev/null", "A=ä\udcff b"} <= set(said.splitlines())
    session, pid = said.splitlines()[-1].split()
    assert session == pid
    assert (code, wrong) == (0, "wrong\n")


@BOTH
def test_a_file_can_be_its_standard_input(kind: type[VforkStarter | SpawnStarter], tmp_path: Path) -> None:
    (tmp_path / "in").write_text("given")
    descriptor = os.open(tmp_path / "in", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert run(kind(unlimited), tmp_path, "cat", stdin=descriptor)[1] == "given"
    finally:
        os.close(descriptor)


@BOTH
def test_what_cannot_be_started_is_told_and_leaves_no_child(kind: type[VforkStarter | SpawnStarter], tmp_path: Path) -> None:
    starter = kind(unlimited)
    streams = (None, 1, 2)
    plain = tmp_path / "plain"
    plain.write_text("#!/nowhere\n")
    for program, kind_of_error in [("/nowhere", FileNotFoundError), (str(plain), PermissionError), ("/", PermissionError)]:
        with starter.batch(), pytest.raises(OSError) as told:
            starter.start(job(program, ["x"]), streams)
        assert OSError(told.value.errno, "").__class__ is kind_of_error
        assert not isinstance(told.value, DirectoryRefused)
    with starter.batch(), pytest.raises(DirectoryRefused) as refused:
        starter.start(job("/bin/true", ["x"], cwd=str(tmp_path / "gone")), streams)
    assert refused.value.errno == 2
    wrong: list[tuple[str, list[str], dict[str, str]]] = [
        ("/bin/true", [], {}),
        ("/bin/true", ["a\0b"], {}),
        ("/bin/\0true", ["x"], {}),
        ("/bin/true", ["x"], {"A=B": ""}),
        ("/bin/true", ["x"], {"": ""}),
        ("/bin/true", ["x"], {"A": "\0"}),
    ]
    for program, argv, environment in wrong:
        with starter.batch(), pytest.raises(ValueError):
            starter.start(job(program, argv, environment), streams)


def test_a_word_that_comes_late_is_not_taken_for_another_process(tmp_path: Path) -> None:
    starter = VforkStarter(unlimited)
    os.write(starter._writer, b"OSError:2:")  # as if a fork without vfork had told of its end only now
    assert run(starter, tmp_path, "sleep 2; exit 3")[0] == 3


@CLEAN
def test_the_cheaper_way_is_taken_here() -> None:
    assert isinstance(best_starter(unlimited), VforkStarter)


def test_it_is_not_where_a_program_would_find_a_hidden_signal_ignored() -> None:
    code = (
        "import ctypes, os, sys\n"
        "from wfctl.keeper import starting\n"
        "from wfctl.linux import Spawner\n"
        "print(type(starting.best_starter(lambda is_job: None)).__name__)\n"
    )
    ignoring = (
        "import os, sys\n"
        "pid = os.posix_spawn(sys.executable, [sys.executable, '-c', sys.argv[1]], dict(os.environ))\n"
        "os.waitpid(pid, 0)\n"
    )
    said = subprocess.run([sys.executable, "-c", ignoring, code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said in ("SpawnStarter\n", "VforkStarter\n")  # as this machine's libc has it
    status = "print([l for l in open('/proc/self/status') if l.startswith('SigIgn')][0])"
    ignored = subprocess.run(
        [sys.executable, "-c", ignoring, status], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert (said == "SpawnStarter\n") == bool(int(ignored.split()[1], 16) & 0b11 << 31)


@pytest.mark.parametrize("how", ["other arguments", "none there", "no error told", "told too late"])
def test_where_the_interpreter_has_another_function_the_other_way_is_taken(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def other(*arguments: object) -> int:
        if how == "other arguments":
            raise TypeError
        return int(subprocess.Popen(["true"]).pid)

    if how == "none there":
        monkeypatch.setitem(sys.modules, "_posixsubprocess", None)
    else:
        import _posixsubprocess

        monkeypatch.setattr(_posixsubprocess, "fork_exec", other)
    assert isinstance(starting.best_starter(unlimited), SpawnStarter)


@CLEAN
def test_a_child_keeps_no_signal_that_python_ignores(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        said = run(VforkStarter(unlimited), tmp_path, "cat /proc/self/status")[1]
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert "SigIgn:\t0000000000000000" in said


@BOTH
def test_streams_may_have_numbers_beyond_the_limit_of_the_job(kind: type[VforkStarter | SpawnStarter], tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    asked: list[bool] = []

    def limits(is_job: bool) -> None:
        asked.append(is_job)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64 if is_job else before[0], before[1]))

    (tmp_path / "out").touch()
    low = os.open(tmp_path / "out", os.O_RDWR | os.O_CLOEXEC)
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 200)
    try:
        starter = kind(limits)
        asked.clear()
        with starter.batch():
            pid = starter.start(job("/bin/sh", ["sh", "-c", "ulimit -n"]), (None, high, high))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert os.pread(low, 100, 0) == b"64\n"
        assert asked == [True, False] and resource.getrlimit(resource.RLIMIT_NOFILE) == before
    finally:
        os.close(low)
        os.close(high)
