"""The client against a server in a thread, and against streams that break: contract 9.1 and 9.2."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.rpc_loop import Loop
from wfctl.errors import (
    ApiVersion,
    InvalidArgument,
    InvalidDefinition,
    IoError,
    NoStore,
    NoSupervisor,
    NotAllowed,
    NotFound,
    Problem,
    Saturated,
    TimedOut,
)
from wfctl.rpc import unix
from wfctl.rpc.client import RpcClient, Stream, poke
from wfctl.rpc.framing import MAX_FRAME
from wfctl.rpc.messages import failure, notification, success
from wfctl.rpc.methods import dispatch
from wfctl.rpc.session import Deferred, Session

READ, WRITE = "workflow.schedules.get", "workflow.schedules.delete"


class Target:
    """A facade of three operations."""

    def __init__(self) -> None:
        self.poked = threading.Event()
        self.deleted: list[str] = []
        self.never = Deferred()

    def get_schedule(self, schedule_id: str) -> dict[str, Any]:
        if schedule_id == "missing":
            raise NotFound("no schedule `missing`", {"schedule_id": schedule_id})
        if schedule_id == "wrong":
            raise InvalidDefinition.of("wrong", [Problem("trigger.expression", "six fields", 4)])
        return {"id": schedule_id}

    def delete_schedule(self, schedule_id: str) -> Any:
        self.deleted.append(schedule_id)
        return self.never if schedule_id == "slow" else None

    def poke(self) -> None:
        self.poked.set()


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def loop(tmp_path: Path, target: Target) -> Iterator[Loop]:
    def handler(method: str, params: Mapping[str, Any], session: Session) -> Any:
        return dispatch(target, method, params)

    made = Loop(tmp_path, handler)
    made.start()
    yield made
    made.close()


# Against a server ------------------------------------------------------------------------------------------------------


def test_calls_go_over_one_connection(loop: Loop) -> None:
    with RpcClient(loop.store) as client:
        assert client.call(READ, schedule_id="é") == {"id": "é"}
        assert client.call(WRITE, schedule_id="a") is None
        assert loop.server.connections == 1


def test_errors_come_back_as_the_same_class(loop: Loop) -> None:
    with RpcClient(loop.store) as client:
        with pytest.raises(NotFound, match="no schedule `missing`") as missing:
            client.call(READ, schedule_id="missing")
        assert missing.value.data == {"schedule_id": "missing"}
        with pytest.raises(InvalidDefinition) as wrong:
            client.call(READ, schedule_id="wrong")
        assert wrong.value.problems == (Problem("trigger.expression", "six fields", 4),)
        with pytest.raises(InvalidArgument, match="did you mean `schedule_id`"):
            client.call(READ, schedule="x")
        with pytest.raises(ApiVersion, match="not offered here"):
            client.call("workflow.runs.list")
        assert client.call(READ, schedule_id="a") == {"id": "a"}


def test_a_call_times_out_and_its_late_answer_meets_nobody(loop: Loop, target: Target) -> None:
    with RpcClient(loop.store, timeout=0.1) as client:
        with pytest.raises(TimedOut, match="may still be done") as caught:
            client.call(WRITE, schedule_id="slow")
        assert caught.value.data["outcome"] == "unknown"
        client.timeout = 20.0
        assert client.call(READ, schedule_id="a") == {"id": "a"}
    assert target.deleted == ["slow"]


def test_a_parameter_may_be_called_timeout_or_method(loop: Loop) -> None:
    with RpcClient(loop.store) as client, pytest.raises(InvalidArgument, match="unknown parameter `timeout`"):
        client.call(READ, schedule_id="a", timeout="1m", method="x", self="y")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="NaN"),
        pytest.param(object(), id="an object"),
        pytest.param("\ud800", id="half a pair"),
        pytest.param({"a": [{1: "b"}]}, id="a name that is no text"),
        pytest.param("x" * MAX_FRAME, id="too much"),
    ],
)
def test_parameters_that_are_no_frame_are_refused_before_sending(tmp_path: Path, value: object) -> None:
    with pytest.raises(InvalidArgument):
        RpcClient(tmp_path).call(READ, schedule_id=value)


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 1e10])
def test_a_call_may_wait_for_as_long_as_it_takes(loop: Loop, seconds: float) -> None:
    with RpcClient(loop.store, timeout=seconds) as client:
        assert client.call(READ, schedule_id="a") == {"id": "a"}


@pytest.mark.parametrize("seconds", [None, "5s", float("nan"), True])
def test_9_1_what_is_no_timeout_is_refused(tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(InvalidArgument, match="a timeout is a number of seconds"):
        RpcClient(tmp_path, timeout=seconds)


def test_a_write_survives_that_its_idle_connection_was_dropped(tmp_path: Path, target: Target) -> None:
    def handler(method: str, params: Mapping[str, Any], session: Session) -> Any:
        return dispatch(target, method, params)

    with RpcClient(tmp_path) as client:
        for name in ("before", "after"):
            restarted = Loop(tmp_path, handler)
            restarted.start()
            client.call(WRITE, schedule_id=name)
            restarted.close()
    assert target.deleted == ["before", "after"]


# Nobody there ----------------------------------------------------------------------------------------------------------


def leave_stale_socket(store: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(store / "control.sock"))
    stale.close()


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda store: None, id="no socket"),
        pytest.param(leave_stale_socket, id="a stale socket"),
        pytest.param(lambda store: (store / "control.sock").write_text(""), id="a plain file"),
        pytest.param(lambda store: os.mkfifo(store / "control.sock"), id="a fifo"),
        pytest.param(lambda store: (store / "control.sock").symlink_to("/dev/null"), id="a link"),
    ],
)
def test_without_a_listener_there_is_no_supervisor(tmp_path: Path, prepare: Callable[[Path], object]) -> None:
    prepare(tmp_path)
    with pytest.raises(NoSupervisor, match="wfctl supervise"):
        RpcClient(tmp_path).call(READ, schedule_id="a")
    assert poke(tmp_path) is False


def test_without_a_store_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoStore, match="wfctl init"):
        RpcClient(tmp_path / "none").call(READ, schedule_id="a")
    assert poke(tmp_path / "none") is False


def test_a_listener_of_another_user_is_not_trusted(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "peer_of", lambda _: unix.Peer(pid=1, uid=os.getuid() + 4242, gid=0))
    with pytest.raises(NotAllowed, match="neither its owner nor root"):
        RpcClient(loop.store).call(READ, schedule_id="a")


# Poke ------------------------------------------------------------------------------------------------------------------


def test_a_poke_arrives(loop: Loop, target: Target) -> None:
    assert poke(loop.store) is True
    assert target.poked.wait(20)


def test_a_poke_never_waits_for_a_supervisor_that_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "control.sock"))
        hanging.listen(0)
        assert poke(tmp_path) is True  # it is in the queue, to be read when the other gets to it
        began = time.monotonic()
        assert poke(tmp_path) is False  # the queue is full
        assert time.monotonic() - began < 1.0
        with pytest.raises(TimedOut):
            RpcClient(tmp_path, timeout=0.05).call(READ, schedule_id="a")


# Broken streams --------------------------------------------------------------------------------------------------------

Step = bytes | Exception


class ScriptedStream:
    """Takes a request, then gives back what the script says; an exception is raised instead."""

    def __init__(self, script: list[Step], *, send_error: Exception | None = None) -> None:
        self.script = script
        self.send_error = send_error
        self.requests: list[dict[str, Any]] = []
        self.is_closed = False

    def send(self, data: bytes, timeout: float) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.requests.append(json.loads(data))

    def receive(self, timeout: float) -> bytes:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def has_ended(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True


def client_over(*streams: ScriptedStream) -> RpcClient:
    todo = list(streams)

    def connect(timeout: float) -> Stream:
        return todo.pop(0)

    return RpcClient("unused", connect=connect)


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


LOST = [
    pytest.param([b""], id="closed"),
    pytest.param([ConnectionResetError()], id="reset"),
    pytest.param([b'{"js', b""], id="half"),
]


@pytest.mark.parametrize("script", LOST)
def test_a_lost_read_is_asked_once_more(script: list[Step]) -> None:
    first, second = ScriptedStream(list(script)), ScriptedStream([line(success(1, "ok"))])
    assert client_over(first, second).call(READ, schedule_id="a") == "ok"
    assert first.is_closed
    assert first.requests == second.requests


@pytest.mark.parametrize("script", LOST)
def test_a_lost_write_is_never_repeated(script: list[Step]) -> None:
    first, second = ScriptedStream(list(script)), ScriptedStream([])
    with pytest.raises(IoError, match="whether it was done is unknown") as caught:
        client_over(first, second).call(WRITE, schedule_id="a")
    assert caught.value.data["outcome"] == "unknown"
    assert first.is_closed
    assert not second.requests


def test_a_read_that_is_lost_twice_fails() -> None:
    with pytest.raises(IoError, match="was lost before"):
        client_over(ScriptedStream([b""]), ScriptedStream([b""])).call(READ, schedule_id="a")


def test_a_write_that_never_arrived_in_full_goes_over_a_new_connection() -> None:
    first = ScriptedStream([b""], send_error=BrokenPipeError())
    second = ScriptedStream([line(success(1, None))])
    assert client_over(first, second).call(WRITE, schedule_id="a") is None
    assert len(second.requests) == 1


def test_the_reason_for_hanging_up_is_told() -> None:
    refusing = ScriptedStream([line(failure(None, Saturated("too many")))], send_error=BrokenPipeError())
    with pytest.raises(Saturated, match="too many"):
        client_over(refusing).call(WRITE, schedule_id="a")
    assert refusing.is_closed


def test_other_messages_are_passed_over() -> None:
    answers = [line(notification("event", {})) + line(success(99, "other")), line(success(1, "mine"))]
    assert client_over(ScriptedStream(list(answers))).call(READ, schedule_id="a") == "mine"


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\n", b"{}\n", b"[]\n", b"x" * (MAX_FRAME + 1)], ids=["ssh", "{}", "[]", "long"]
)
def test_who_speaks_otherwise_has_another_version(answer: bytes) -> None:
    stream = ScriptedStream([answer])
    with pytest.raises(ApiVersion):
        client_over(stream).call(READ, schedule_id="a")
    assert stream.is_closed


def test_an_interrupt_leaves_no_half_read_conversation() -> None:
    class Interrupted(ScriptedStream):
        def receive(self, timeout: float) -> bytes:
            raise KeyboardInterrupt

    first, second = Interrupted([]), ScriptedStream([line(success(2, "ok"))])
    client = client_over(first, second)
    with pytest.raises(KeyboardInterrupt):
        client.call(READ, schedule_id="a")
    assert client.call(READ, schedule_id="a") == "ok"


def test_notify_wants_no_answer() -> None:
    stream = ScriptedStream([])
    client_over(stream).notify("workflow.server.poke")
    assert stream.requests == [{"jsonrpc": "2.0", "method": "workflow.server.poke", "params": {}}]
    with pytest.raises(IoError):
        client_over(ScriptedStream([], send_error=BrokenPipeError())).notify("workflow.server.poke")


def test_server_and_client_import_nothing_heavy() -> None:
    heavy = ["asyncio", "rich", "croniter", "portalocker", "jsonschema_rs", "sqlite3", "difflib"]
    code = f"import sys, wfctl.rpc.server, wfctl.rpc.client; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
