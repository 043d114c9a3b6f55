"""JSON-RPC over stdin and stdout: in a thread over pipes, and as `wfctl rpc serve` (contract 9, 9.2)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.rpc_loop import ask, tell
from tests.support.waiting import wait_for
from wfctl.errors import InvalidArgument, WfctlError
from wfctl.operations.store import Store, init_store
from wfctl.rpc.framing import MAX_FRAME, Splitter
from wfctl.rpc.stdio import OutputClosed, StdioServer, StoreDesk

PATIENCE_S = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with init_store(tmp_path / "store") as made:
        made.create_deployment(deployment_id="d", command=["/bin/true"])
        yield made


class Served:
    """A server in a thread, and the far ends of its pipes."""

    def __init__(self, store: Store) -> None:
        source, self.to_server = os.pipe()
        self.from_server, sink = os.pipe()
        self.server = StdioServer(StoreDesk(store), source=source, sink=sink)
        self.wrong: WfctlError | None = None
        self.broke: BaseException | None = None
        self._own = [source, sink]
        self._splitter = Splitter()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.wrong = self.server.serve()
        except (OutputClosed, OSError) as error:
            self.broke = error
        for descriptor in self._own:
            os.close(descriptor)

    def send(self, *messages: Any) -> None:
        self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.to_server, view) :]

    def read(self) -> Any:
        """Return the next message; None at the end."""
        while (frame := self._splitter.pop()) is None:
            data = os.read(self.from_server, 65536)
            if not data:
                assert not self._splitter.has_partial
                return None
            self._splitter.feed(data)
        return json.loads(frame)

    def finish(self) -> None:
        """Send no more."""
        os.close(self.to_server)
        self.to_server = -1

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it serves on"

    def close(self) -> None:
        self.server.stop()
        self.join()
        for descriptor in (self.to_server, self.from_server):
            if descriptor >= 0:
                os.close(descriptor)
        self.server.close()


@pytest.fixture
def served(store: Store) -> Iterator[Served]:
    made = Served(store)
    yield made
    made.close()


# The conversation ---------------------------------------------------------------------------------------------------------


def test_9_2_requests_batches_and_notifications(served: Served) -> None:
    served.send(ask("workflow.deployments.get", "a", deployment_id="d"))
    assert served.read()["result"]["id"] == "d"
    one = {"kind": "interval", "every": "1m"}
    served.send(
        tell("workflow.schedules.create", schedule_id="quiet", deployment_id="d", trigger=one),
        [
            ask("workflow.schedules.get", 1, schedule_id="quiet"),
            tell("workflow.schedules.pause", schedule_id="quiet"),
            ask("workflow.schedules.get", 2, schedule_id="quiet"),
            ask("workflow.schedules.get", 3, schedule_id="no-such"),
            17,
        ],
    )
    batch = served.read()
    assert [answer["id"] for answer in batch] == [1, 2, 3, None]
    assert [answer["result"]["state"] for answer in batch[:2]] == ["active", "paused"]
    assert [answer["error"]["code"] for answer in batch[2:]] == [-32004, -32600]


@pytest.mark.parametrize(
    ("request_", "number"),
    [
        pytest.param(ask("workflow.schedules.gte", schedule_id="s"), -32601, id="no such method"),
        pytest.param(ask("workflow.schedules.get"), -32602, id="a parameter is missing"),
        pytest.param(ask("workflow.runs.start", deployment_id="d", detach=False), -32602, id="what only the Python API takes"),
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "method": "workflow.schedules.get", "params": ["s"]}, -32602, id="by position"
        ),
        pytest.param({"jsonrpc": "1.0", "id": 1, "method": "workflow.schedules.get"}, -32600, id="another version"),
        pytest.param([], -32600, id="an empty batch"),
        pytest.param(ask("workflow.server.status"), -32015, id="no supervisor"),
    ],
)
def test_9_1_errors_have_their_numbers_and_the_conversation_goes_on(served: Served, request_: Any, number: int) -> None:
    served.send(request_, ask("workflow.deployments.get", 2, deployment_id="d"))
    assert served.read()["error"]["code"] == number
    assert served.read()["id"] == 2


@pytest.mark.parametrize(
    "frame", [b"nope\n", b'{"a": NaN}\n', b'{"a":1,"a":2}\n', b"[" * 65 + b"]" * 65 + b"\n", b"\xff\n", b'{"jsonrpc":"2.0"']
)
def test_9_2_what_is_no_frame_gets_an_error_and_ends_the_conversation(served: Served, frame: bytes) -> None:
    served.send(ask("workflow.deployments.get", deployment_id="d"))
    served.send_bytes(frame)
    if not frame.endswith(b"\n"):
        served.finish()
    assert "result" in served.read()
    error = served.read()
    assert (error["id"], error["error"]["code"]) == (None, -32700)
    assert served.read() is None
    served.join()
    assert isinstance(served.wrong, InvalidArgument)


def test_9_2_an_endless_frame_is_refused_and_not_held(served: Served) -> None:
    writer = threading.Thread(target=lambda: _until_broken(served, b"x" * 65536, 4 * MAX_FRAME), daemon=True)
    writer.start()
    assert served.read()["error"]["code"] == -32700
    served.join()
    writer.join(PATIENCE_S)
    assert not writer.is_alive()


def _until_broken(served: Served, data: bytes, most: int) -> None:
    try:
        for _ in range(most // len(data)):
            served.send_bytes(data)
    except BrokenPipeError:
        pass


def test_what_was_asked_before_the_end_of_the_input_is_answered(served: Served) -> None:
    served.send(*(ask("workflow.deployments.get", number, deployment_id="d") for number in range(300)))
    served.finish()
    assert [served.read()["id"] for _ in range(300)] == list(range(300))
    assert served.read() is None
    served.join()
    assert served.wrong is None
    assert served.broke is None


def test_frames_of_a_mebibyte_go_both_ways(served: Served, store: Store) -> None:
    for number in range(8):
        notes = {"blob": "é" * 31_000}  # 62 kB each
        store.create_schedule(
            schedule_id=f"s{number}", deployment_id="d", trigger={"kind": "interval", "every": "1m"}, input=notes
        )
    padding = ask("workflow.schedules.list", 1, padding="x" * (MAX_FRAME - 200))
    threading.Thread(target=lambda: served.send(padding, ask("workflow.schedules.list", 2)), daemon=True).start()
    assert served.read()["error"]["code"] == -32602
    answer = served.read()
    assert answer["id"] == 2
    assert len(json.dumps(answer, ensure_ascii=False).encode()) > 400_000
    assert len(answer["result"]["items"]) == 8


def test_8_what_changes_is_told_between_answers(served: Served, store: Store) -> None:
    served.send(ask("workflow.server.watch", 1))
    assert served.read()["result"]["schema"] == "wfctl/watch.v1"
    store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1m"})
    told = served.read()
    assert told["method"] == "workflow.server.transition"
    assert (told["params"]["kind"], told["params"]["schedule_id"], told["params"]["to"]) == ("schedule", "s", "active")
    served.send(ask("workflow.schedules.pause", 2, schedule_id="s"))
    messages = [served.read(), served.read()]
    assert sorted(str(message.get("id")) for message in messages) == ["2", "None"]
    served.finish()  # no more is asked, so nobody watches any more either
    assert served.read() is None


def test_a_stop_ends_it_once_the_answer_is_out(served: Served) -> None:
    served.send(ask("workflow.deployments.get", deployment_id="d"))
    assert served.read()["id"] == 1
    served.server.stop()
    assert served.read() is None
    served.join()
    assert served.wrong is None


def fill_pipe(served: Served, store: Store) -> None:
    """Ask for more than a pipe holds, and wait until it is full."""
    blob = {"blob": "x" * 60_000}
    for number in range(4):
        trigger = {"kind": "interval", "every": "1m"}
        store.create_schedule(schedule_id=f"s{number}", deployment_id="d", trigger=trigger, input=blob)
    served.send(ask("workflow.schedules.list"))
    full = fcntl.fcntl(served.from_server, fcntl.F_GETPIPE_SZ)
    wait_for(lambda: held_by(served.from_server) > full - 8192, "the pipe is full")


def held_by(pipe: int) -> int:
    """Return how many bytes wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]  # type: ignore[no-any-return]


def test_an_answer_that_is_under_way_is_sent_to_its_end_before_a_stop(served: Served, store: Store) -> None:
    fill_pipe(served, store)
    served.server.stop()
    assert len(served.read()["result"]["items"]) == 4
    assert served.read() is None


def test_a_stop_does_not_wait_long_for_who_does_not_read(served: Served, store: Store) -> None:
    fill_pipe(served, store)
    began = time.monotonic()
    served.server.stop()
    served.join()
    assert time.monotonic() - began < 5.0


def test_who_does_not_read_may_still_send(served: Served, store: Store) -> None:
    fill_pipe(served, store)
    served.send(tell("workflow.schedules.pause", schedule_id="s0"), tell("workflow.schedules.pause", schedule_id="s1"))
    wait_for(lambda: store.get_schedule(schedule_id="s1").state == "paused", "both were done")


def test_a_peer_that_is_gone_ends_it(served: Served) -> None:
    os.close(served.from_server)
    served.from_server = -1
    served.join()  # although nothing was asked, and nothing to be written
    assert isinstance(served.broke, OutputClosed)


# The command --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def wfctl(tmp_path: Path, store: Store) -> Wfctl:
    return Wfctl(store.root, tmp_path)


def lines(*messages: Any) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def test_serve_writes_nothing_but_frames_and_ends_with_0_at_the_end_of_its_input(wfctl: Wfctl) -> None:
    asked = lines(
        ask("workflow.deployments.list", 1), ask("workflow.runs.start", 2, deployment_id="d"), tell("workflow.server.poke")
    )
    done = wfctl("rpc", "serve", "-v", stdin=asked)
    assert done.status == 0, done
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    run = answers[1]["result"]
    assert run["kind"] == "manual"
    wait_for(lambda: wfctl("run", "show", run["run_id"], "-o", "json").json["status"] == "completed", "the run is driven on")
    assert wfctl("rpc", "serve").status == 0


def test_serve_says_on_stderr_what_was_wrong_and_ends_with_2(wfctl: Wfctl) -> None:
    done = wfctl("rpc", "serve", stdin="nope\n")
    assert (done.status, json.loads(done.out)["error"]["code"]) == (2, -32700)
    assert done.err.startswith("wfctl: not JSON")


def test_serve_without_a_store_ends_with_66(wfctl: Wfctl, tmp_path: Path) -> None:
    done = wfctl("--store", str(tmp_path / "none"), "rpc", "serve")
    assert (done.status, done.out) == (66, "")
    assert "wfctl init" in done.err or "init" in done.err


def serving(wfctl: Wfctl, **pipes: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(wfctl.argv("rpc", "serve"), env=wfctl.environ, stderr=subprocess.PIPE, **pipes)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_11_6_serve_ends_in_order_by_a_signal(wfctl: Wfctl, number: signal.Signals, status: int) -> None:
    with serving(wfctl, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(lines(ask("workflow.deployments.list")).encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == status
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def test_11_7_serve_ends_quietly_when_nobody_reads(wfctl: Wfctl) -> None:
    reader, writer = os.pipe()
    with serving(wfctl, stdin=subprocess.PIPE, stdout=writer) as process:
        os.close(writer)
        os.close(reader)
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_serve_takes_and_gives_files(wfctl: Wfctl, tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_text(lines(ask("workflow.deployments.list", 1), ask("workflow.deployments.list", 2)))
    with asked.open("rb") as source, answered.open("wb") as sink, serving(wfctl, stdin=source, stdout=sink) as process:
        assert process.wait(PATIENCE_S) == 0
    assert [json.loads(line)["id"] for line in answered.read_text().splitlines()] == [1, 2]


def test_9_serve_asks_the_supervisor_where_there_is_one(wfctl: Wfctl) -> None:
    with wfctl.supervisor() as supervisor:
        asked = lines(
            ask("workflow.server.status", 1), ask("workflow.runs.start", 2, deployment_id="d"), ask("workflow.server.drain", 3)
        )
        answers = [json.loads(line) for line in wfctl.ok("rpc", "serve", stdin=asked).out.splitlines()]
        assert answers[0]["result"]["pid"] == supervisor.pid
        assert answers[1]["result"]["kind"] == "manual"
        assert answers[2]["result"]["state"] == "draining"
        called = wfctl("rpc", "call", "workflow.runs.start", '{"deployment_id": "d"}', "-v")
        assert (called.status, called.out) == (75, "")
        assert "drain" in called.err


# rpc call and rpc schema --------------------------------------------------------------------------------------------------


def test_call_prints_the_result_and_says_who_answered(wfctl: Wfctl) -> None:
    done = wfctl.ok("rpc", "call", "workflow.deployments.get", '{"deployment_id": "d"}', "-v")
    assert done.json["schema"] == "wfctl/deployment.v1"
    assert len(done.out.splitlines()) == 1
    assert "no supervisor runs" in done.err
    assert len(wfctl.ok("rpc", "call", "workflow.deployments.list", "-o", "json").out.splitlines()) > 5
    assert wfctl.ok("rpc", "call", "workflow.deployments.get", "-", stdin='{"deployment_id": "d"}').json["id"] == "d"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["workflow.deployments.gte"], 76, "did you mean `workflow.deployments.get`"),
        (["workflow.deployments.get"], 2, "parameter `deployment_id` is missing"),
        (["workflow.deployments.get", '{"deployment_id": "x"}'], 66, "no deployment 'x'"),
        (["workflow.deployments.get", "[1]"], 2, "JSON object"),
        (["workflow.deployments.get", "{"], 65, "is not JSON"),
        (["workflow.server.status"], 69, "wfctl supervise"),
        (["workflow.deployments.list", "--timeout", "0s"], 2, "longer than zero"),
        (["workflow.deployments.list", "-o", "csv"], 2, "-o json or -o jsonl"),
        (["workflow.server.watch", '{"colour": 1}'], 2, "unknown parameter `colour`"),
    ],
)
def test_9_1_call_ends_as_the_error_says(wfctl: Wfctl, words: list[str], status: int, said: str) -> None:
    done = wfctl("rpc", "call", *words)
    assert (done.status, done.out) == (status, ""), done
    assert said in done.err
    in_json = wfctl("rpc", "call", *words, "-o", "jsonl") if "-o" not in words else done
    assert in_json.status == status


def test_call_watches_until_its_time_is_over(wfctl: Wfctl, store: Store) -> None:
    with subprocess.Popen(
        wfctl.argv("rpc", "call", "workflow.server.watch", "{}", "-v"),
        env=wfctl.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert b"watched" in process.stderr.readline()
        trigger = {"kind": "interval", "every": "1m"}
        names = iter(range(1000))
        told: list[bytes] = []
        reader = threading.Thread(target=lambda: told.append(process.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        wait_for(  # the watch begins a moment after it says so
            lambda: store.create_schedule(schedule_id=f"s{next(names)}", deployment_id="d", trigger=trigger) and told, "told"
        )
        assert json.loads(told[0])["schema"] == "wfctl/transition.v1"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert b"Traceback" not in process.stderr.read()


def test_schema_prints_a_document_without_a_store(wfctl: Wfctl, tmp_path: Path) -> None:
    done = wfctl.ok("--store", str(tmp_path / "none"), "rpc", "schema")
    assert done.json["openrpc"] == "1.3.2"
    one = wfctl.ok("rpc", "schema", "--method", "workflow.runs.start", "-o", "jsonl")
    assert len(one.out.splitlines()) == 1 and [each["name"] for each in one.json["methods"]] == ["workflow.runs.start"]
    assert wfctl("rpc", "schema", "--method", "workflow.runs.strat").status == 76


def test_importing_the_client_costs_no_terminal_and_no_calendar() -> None:
    heavy = ["rich", "click", "croniter", "asyncio"]
    code = f"import sys, wfctl; wfctl.Client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "[]\n"
