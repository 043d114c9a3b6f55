"""The keeper as a process: who starts it, who reaches it, what it survives, when it ends (contract 6.9, 6.10, 9.2)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.keeper.conftest import RealStage, is_alive
from tests.support.waiting import wait_for
from wfctl.errors import IoError
from wfctl.keeper.client import KeeperClient
from wfctl.keeper.protocol import LOCK_NAME, MAX_FRAME, PROTOCOL, SOCKET_NAME, Holding, Origin, Started
from wfctl.linux import boot_id, process_stat


def test_nobody_is_there_at_first(tmp_path: Path) -> None:
    assert KeeperClient.connect(tmp_path) is None


def test_hello_says_who_it_is(real_stage: RealStage, keeper: KeeperClient) -> None:
    hello = keeper.hello
    assert (hello.protocol, hello.origin, hello.boot_id) == (PROTOCOL, Origin.SUPERVISOR, boot_id())
    assert is_alive(hello.pid)


def test_it_has_nothing_of_its_starter(real_stage: RealStage, keeper: KeeperClient) -> None:
    pid = keeper.hello.pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert {str(Path(f"/proc/{pid}/fd/{n}").readlink()) for n in range(3)} == {"/dev/null"}
    assert os.getsid(pid) not in (os.getsid(0), os.getpgid(0))
    assert {name for name in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if name} == set()
    assert not {name for name in _open_files(os.getpid()) & _open_files(pid) if name.startswith(("pipe:", "socket:"))}


def test_socket_and_lock_are_private(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 2.9, 9.2
    for name in (SOCKET_NAME, LOCK_NAME):
        assert stat.S_IMODE((real_stage.root / name).stat().st_mode) == 0o600


def test_no_path_is_too_long(tmp_path: Path) -> None:  # contract 9.2
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    stage = RealStage(deep)
    assert stage.run(stage.driver(), stage.job(["/bin/true"])).exit_status == 0
    stage.clean_up()


def test_of_many_starters_all_get_the_same(real_stage: RealStage) -> None:
    with ThreadPoolExecutor(4) as pool:
        keepers = list(pool.map(lambda _: real_stage.driver(), range(4)))
    assert len({keeper.hello.pid for keeper in keepers}) == 1


def test_the_module_starts_one_and_leaves_a_living_one_alone(real_stage: RealStage) -> None:
    command = [sys.executable, "-m", "wfctl.keeper", str(real_stage.root), "--origin", "supervisor"]
    for _ in range(2):
        subprocess.run(command, check=True, timeout=30)
    keeper = real_stage.driver()
    assert keeper.hello.origin is Origin.SUPERVISOR


def test_wrong_arguments_and_places_are_told() -> None:
    command = [sys.executable, "-m", "wfctl.keeper"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    gone = subprocess.run([*command, "/nowhere", "--origin", "command"], capture_output=True, check=False, text=True)
    assert gone.returncode == 74
    assert "/nowhere" in gone.stderr
    with pytest.raises(IoError, match="nowhere"):
        KeeperClient.start(Path("/nowhere"), Origin.COMMAND)


def test_it_loads_little_and_all_of_it_before_it_serves() -> None:
    code = "import sys, wfctl.keeper.__main__; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"click", "rich", "sqlite3", "asyncio", "croniter", "portalocker"} & {name.split(".")[0] for name in loaded}
    assert not {
        name for name in loaded if name.startswith("wfctl.") and name.split(".")[1] not in {"core", "errors", "keeper", "linux"}
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_signals_are_ignored_while_a_run_lives(real_stage: RealStage, keeper: KeeperClient, number: int) -> None:
    real_stage.start(keeper, real_stage.request("run-000001", 1))
    os.kill(keeper.hello.pid, number)
    assert [held.state for held in keeper.list()] == [Holding.RUNNING]
    real_stage.finish("run-000001", 1, 0)
    (ended,) = real_stage.until(keeper, 1)
    assert ended.run == "run-000001"
    assert keeper.list() == []


def test_term_ends_an_idle_one_at_once_and_leaves_no_socket(real_stage: RealStage, keeper: KeeperClient) -> None:
    keeper.close()
    os.kill(keeper.hello.pid, signal.SIGTERM)
    wait_for(lambda: not is_alive(keeper.hello.pid), "its end")
    assert not (real_stage.root / SOCKET_NAME).exists()
    assert KeeperClient.connect(real_stage.root) is None


def test_term_loses_nothing_that_a_driver_sends(real_stage: RealStage, keeper: KeeperClient) -> None:
    os.kill(keeper.hello.pid, signal.SIGTERM)
    assert real_stage.run(keeper, real_stage.job(["/bin/true"])).exit_status == 0


def test_it_ends_by_itself_once_nobody_needs_it(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.run(keeper, real_stage.job(["/bin/true"]))
    keeper.close()
    again = real_stage.driver()
    assert again.hello.pid == keeper.hello.pid  # it lingers
    again.close()
    wait_for(lambda: not is_alive(keeper.hello.pid), "its end")
    assert real_stage.driver().hello.pid != keeper.hello.pid


def test_it_lives_as_long_as_a_run_does(real_stage: RealStage, keeper: KeeperClient) -> None:
    started = real_stage.start(keeper, real_stage.job(["/bin/sleep", "3.5"]))
    keeper.close()
    wait_for(lambda: not is_alive(keeper.hello.pid), "its end")
    assert not is_alive(started.pid)
    record = real_stage.record()
    assert record is not None
    assert record.outcome.exit_status == 0  # type: ignore[union-attr]


DRIVER = """
    import os, sys, time
    from pathlib import Path
    from tests.keeper.conftest import RealStage
    stage = RealStage(Path(sys.argv[1]))
    keeper = stage.driver()
    started = stage.start(keeper, stage.request("run-000001", 1))
    print(keeper.hello.pid, started.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_driver_takes_nothing_with_it(real_stage: RealStage) -> None:  # contract 6.9, 7.1
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), str(real_stage.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        keeper_pid, pid = map(int, driver.stdout.readline().split())
        driver.kill()
    keeper = real_stage.driver()
    assert keeper.hello.pid == keeper_pid
    (held,) = keeper.list()
    assert held.started is not None
    assert (held.state, held.started.pid) == (Holding.RUNNING, pid)
    real_stage.finish("run-000001", 1, 5)
    _, ended = real_stage.until(keeper, 2)  # nobody here was told of its start
    assert (ended.run, ended.exit_status) == ("run-000001", 5)  # type: ignore[union-attr]


def test_a_killed_keeper_leaves_its_runs_alive(real_stage: RealStage, keeper: KeeperClient) -> None:  # contract 6.9
    started = real_stage.start(keeper, real_stage.request("run-000001", 1))
    os.kill(keeper.hello.pid, signal.SIGKILL)
    wait_for(lambda: keeper.poll() == [] and keeper.closed, "the driver to notice")
    assert is_alive(started.pid)
    stat_now = process_stat(started.pid)
    assert stat_now is not None
    assert stat_now.start_time == started.start_time
    with pytest.raises(IoError):
        keeper.list()
    following = real_stage.driver()
    assert following.list() == []
    assert following.forbid("run-000001", 1).state is Holding.FORBIDDEN  # since when it lives tells what that proves
    assert following.hello.since_ns > keeper.hello.since_ns
    real_stage.finish("run-000001", 1, 0)
    wait_for(lambda: not is_alive(started.pid), "the job to end")
    assert real_stage.record() is None


@pytest.mark.parametrize("first", ["launch", "forbid"])
def test_of_an_unread_launch_and_a_forbid_the_answer_is_true(real_stage: RealStage, keeper: KeeperClient, first: str) -> None:
    raw = _raw(real_stage.root)  # contract 6.10: the driver that sent the launch is gone, the next one fences it
    raw.sendall(b'{"op":"hello","protocol":1,"driver":1}\n')
    with raw.makefile("rb") as answers:
        answers.readline()
        os.kill(keeper.hello.pid, signal.SIGSTOP)
        if first == "launch":
            keeper.launch([real_stage.job(["/bin/echo", "done"])])
        raw.sendall(b'{"op":"forbid","run":"run-000001","k":1}\n')
        if first == "forbid":
            keeper.launch([real_stage.job(["/bin/echo", "done"])])
        os.kill(keeper.hello.pid, signal.SIGCONT)
        state = next(answer["state"] for answer in map(json.loads, answers) if answer["op"] == "forbid")
    raw.close()
    keeper.list()  # so everything sent before has been read
    assert state in {"forbidden", "running", "ended"}
    assert (real_stage.root / "runs/run-000001/stdout.log").exists() == (state != "forbidden")
    assert keeper.forbid("run-000001", 1).state is Holding.FORBIDDEN or state != "forbidden"


def test_a_driver_that_reads_nothing_delays_nobody(real_stage: RealStage, keeper: KeeperClient) -> None:
    lazy = _raw(real_stage.root)
    lazy.sendall(b'{"op":"hello","protocol":1,"driver":1}\n' + b'{"op":"list"}\n' * 2000)
    for k in range(1, 200):
        assert keeper.forbid("run-000001", k, timedelta(seconds=10)).state is Holding.FORBIDDEN
    assert real_stage.run(keeper, real_stage.job(["/bin/true"], k=200)).exit_status == 0
    lazy.close()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"no json\n", id="no JSON"),
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b'{"op":"list"}\n', id="no hello"),
        pytest.param(b'{"op":"hello"}\n{"op":"stop","run":"r","k":1,"grace_s":NaN}\n', id="NaN"),
        pytest.param(b'{"op":"hello"}\n{"op":"forbid","run":"r","k":1,"k":2}\n', id="a key twice"),
        pytest.param(b'{"op":"hello"}\n{"op":"forbid","run":"r","k":"1"}\n', id="a wrong type"),
        pytest.param(b'{"op":"hello"}\n{"op":"launch","run":"r","k":1}\n', id="half a launch"),
        pytest.param(b"[" * 100_000 + b"\n", id="deep nesting"),
        pytest.param(b"\xff\xfe\n", id="no UTF-8"),
        pytest.param(b" " * MAX_FRAME, id="too long a line"),
    ],
)
def test_a_malformed_frame_costs_only_its_connection(real_stage: RealStage, keeper: KeeperClient, frame: bytes) -> None:  # 9.2
    raw = _raw(real_stage.root)
    raw.sendall(frame)
    last = json.loads(_rest(raw).splitlines()[-1])
    assert last["op"] == "error"
    raw.close()
    assert real_stage.run(keeper, real_stage.job(["/bin/true"])).exit_status == 0


def test_an_operation_of_a_later_protocol_gets_an_error_and_nothing_else(real_stage: RealStage, keeper: KeeperClient) -> None:
    raw = _raw(real_stage.root)
    raw.sendall(b'{"op":"hello"}\n{"op":"dance"}\n{"op":"list"}\n')
    assert json.loads(_line(raw, 3))["op"] == "list"
    raw.close()


def test_huge_limits_and_times_do_no_harm(real_stage: RealStage, keeper: KeeperClient) -> None:
    real_stage.start(keeper, real_stage.job(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]))
    raw = _raw(real_stage.root)
    raw.sendall(b'{"op":"hello"}\n{"op":"stop","run":"run-000001","k":1,"grace_s":1e400}\n{"op":"list"}\n')
    assert json.loads(_line(raw, 2))["op"] == "list"
    raw.close()
    assert isinstance(keeper.list()[0].started, Started)


def test_a_stale_socket_is_replaced(real_stage: RealStage, keeper: KeeperClient) -> None:
    os.kill(keeper.hello.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper.hello.pid), "its death")
    assert (real_stage.root / SOCKET_NAME).exists()
    assert KeeperClient.connect(real_stage.root) is None
    assert real_stage.driver().hello.pid != keeper.hello.pid


def _open_files(pid: int) -> set[str]:
    names = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.add(str(entry.readlink()))
    return names


def _raw(root: Path) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(20)
    place = os.open(root, os.O_RDONLY)
    raw.connect(f"/proc/self/fd/{place}/{SOCKET_NAME}")
    os.close(place)
    return raw


def _line(raw: socket.socket, number: int) -> bytes:
    with raw.makefile("rb") as lines:
        for _ in range(number - 1):
            lines.readline()
        return lines.readline()


def _rest(raw: socket.socket) -> bytes:
    content = b""
    while chunk := raw.recv(65_536):
        content += chunk
    return content
