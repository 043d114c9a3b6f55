"""`workflow.server.watch` at a running supervisor's socket: told at once, bounded, and never in the way (contract 9, 9.2)."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_keeper import FakeKeeper
from tests.support.story import SETTINGS, FakeService
from tests.support.waiting import wait_for
from wfctl.core.instants import format_instant
from wfctl.errors import InvalidArgument, IoError, NoSupervisor, NotFound, Saturated, WrongState
from wfctl.operations.store import init_store, open_store
from wfctl.operations.views import TransitionView
from wfctl.operations.watching import Watch
from wfctl.rpc import session
from wfctl.rpc.client import RpcClient, UnixStream, poke
from wfctl.rpc.unix import connect_control
from wfctl.rpc.watching import watch

WATCH = "workflow.server.watch"


class Running:
    """A supervisor in a thread, over a keeper without processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = init_store(root)
        self._own = open_store(root)
        self.service = FakeService(self._own, {**SETTINGS, "supervisor": {"drain_grace_s": 0.0, "poll_interval_s": 0.2}})
        self.service.fake = self.keeper = FakeKeeper()
        self.store.create_deployment(deployment_id="d", command=["/bin/true"])

    def connect(self, limit: float) -> UnixStream:
        return UnixStream(connect_control(self.root, limit))

    def watch(self, **chosen: Any) -> Watch:
        return watch(self.connect, **chosen)

    def client(self) -> RpcClient:
        return RpcClient(self.root)

    def schedule(self, schedule_id: str, at: datetime, **fields: Any) -> None:
        trigger = {"kind": "oneshot", "at": format_instant(at)}
        with self.client() as client:
            client.call("workflow.schedules.create", schedule_id=schedule_id, deployment_id="d", trigger=trigger, **fields)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.service.stop()
        self._own.close()
        self.store.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path / "store")
    found.service.start()
    yield found
    found.close()


def soon(seconds: float = 0.2) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def words(view: TransitionView | None) -> str:
    assert view is not None, "nothing was told"
    return f"{view.kind} {view.schedule_id or view.run_id} {view.from_ or ''}>{view.to or ''}"


def raw(running: Running) -> socket.socket:
    """A watch by somebody with a socket of their own, who has read the answer and nothing since."""
    connected = connect_control(running.root, 5)
    connected.settimeout(20)
    connected.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": WATCH, "params": {}}).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += connected.recv(1)
    assert json.loads(answer)["result"]["schema"] == "wfctl/watch.v1"
    return connected


def read_all(connected: socket.socket) -> list[dict[str, Any]]:
    """Read to the end of a connection; return the frames."""
    data = b""
    while piece := connected.recv(1 << 20):
        data += piece
    return [json.loads(frame) for frame in data.splitlines()]


def flood(running: Running, is_enough: Callable[[], bool]) -> None:
    """Let so much happen that whoever does not read is told more than is kept for them."""
    running.store.create_schedule(schedule_id="f", deployment_id="d", trigger={"kind": "interval", "every": "1h"})
    with running.watch(schedule_id="f", status=("paused", "active"), timeout=60) as changes:
        while not is_enough():
            running.store.pause_schedule(schedule_id="f", reason="y" * 50_000)
            poke(running.root)
            changes.wait()  # one at a time: it is the readers that are to be in the way, not the writer
            running.store.resume_schedule(schedule_id="f")
            poke(running.root)
            changes.wait()


# Being told -----------------------------------------------------------------------------------------------------------------


def test_every_step_of_a_run_is_told_though_all_happen_in_one_round(running: Running) -> None:
    running.keeper.world.script = lambda request: 0
    with running.watch(timeout=20) as changes:
        running.schedule("s", soon())
        told = [words(changes.wait()) for _ in range(5)]
    assert told[0] == "schedule s >active"
    ends = [text for text in told if text != "schedule s active>finished"]
    assert ends[1:] == ["occurrence s >admitted", "run s admitted>running", "run s running>completed"]


def test_a_change_by_another_process_and_one_over_the_socket_are_told_alike(running: Running) -> None:
    at = soon(3600)
    with running.watch(timeout=20) as changes:
        running.schedule("a", at)
        assert words(changes.wait()) == "schedule a >active"
        running.store.pause_schedule(schedule_id="a", reason="by hand")  # it pokes nobody: it has no door
        paused = changes.wait()
        assert words(paused) == "schedule a active>paused"
        assert paused is not None and paused.reason is not None and paused.reason["reason"] == "by hand"


def test_who_watches_and_then_looks_misses_nothing_and_who_chose_is_told_no_more(running: Running) -> None:
    at = soon(3600)
    running.schedule("a", at)
    running.schedule("b", at)
    with running.watch(schedule_id=("a",), status="paused", timeout=20) as changes, running.client() as client:
        for name in "ba":
            client.call("workflow.schedules.pause", schedule_id=name)
        assert words(changes.wait()) == "schedule a active>paused"
        assert changes.wait(0) is None


def test_other_requests_go_on_over_a_connection_that_watches(running: Running) -> None:
    with running.client() as client:
        answer = client.call(WATCH, status="paused")
        assert (answer["schema"], answer["schedule_id"], answer["status"]) == ("wfctl/watch.v1", None, ["paused"])
        running.schedule("s", soon(3600))
        client.call("workflow.schedules.pause", schedule_id="s")
        told = client.told(20)
        assert told is not None and told.method == "workflow.server.transition"
        assert (told.result["schema"], told.result["from"], told.result["to"]) == ("wfctl/transition.v1", "active", "paused")
        with pytest.raises(WrongState, match="watches already"):
            client.call(WATCH)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param({"schedule_id": "nonsense"}, NotFound, id="no such schedule"),
        pytest.param({"status": "done"}, InvalidArgument, id="no such status"),
        pytest.param({"timeout": 1.0}, InvalidArgument, id="a timeout is the caller's"),
        pytest.param({"schedules": "s"}, InvalidArgument, id="no such argument"),
    ],
)
def test_a_watch_of_what_is_not_there_is_refused_as_the_store_refuses_it(
    running: Running, given: dict[str, Any], error: type[Exception]
) -> None:
    with running.client() as client, pytest.raises(error):
        client.call(WATCH, **given)
    assert len(running.service.watching) == 0


# Ends ----------------------------------------------------------------------------------------------------------------------


def test_a_watcher_that_went_is_forgotten_and_nothing_is_looked_at_for_nobody(running: Running) -> None:
    with running.watch():
        wait_for(lambda: len(running.service.watching) == 1, "the watcher")
        assert running.service.watching.wait_s() == 0.5
    running.schedule("s", soon(3600))
    wait_for(lambda: len(running.service.watching) == 0, "its end")
    assert running.service.watching.wait_s() is None


def test_the_end_of_the_supervisor_is_told_after_the_last_change(running: Running) -> None:
    changes = running.watch(timeout=20)
    running.store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1h"})
    running.service.stop()
    assert words(changes.wait()) == "schedule s >active"
    with pytest.raises(NoSupervisor, match="has ended"):
        changes.wait()


def test_a_lost_connection_is_an_error_and_never_watched_on_in_silence(running: Running) -> None:
    changes = running.watch(timeout=20)
    wait_for(lambda: len(running.service.watching) == 1, "the watcher")
    running.service._server.close()
    with pytest.raises(IoError, match="look, and watch again"):
        changes.wait()


# Bounds --------------------------------------------------------------------------------------------------------------------


def test_more_watchers_than_are_taken_are_refused_and_the_others_stay(running: Running) -> None:
    running.service.watching._most = 3
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(running.watch(timeout=20)) for _ in range(3)]
        with pytest.raises(Saturated, match="3 connections watch already") as refused:
            running.watch()
        assert refused.value.data["limit"] == 3
        running.schedule("s", soon(3600))
        assert [words(each.wait()) for each in watches] == ["schedule s >active"] * 3
        watches[0].close()
        wait_for(lambda: _is_taken(running, stack), "a free place")


def _is_taken(running: Running, stack: contextlib.ExitStack) -> bool:
    try:
        stack.enter_context(running.watch())
    except Saturated:
        return False
    return True


def test_a_reader_that_does_not_keep_up_is_dropped_with_the_reason_and_admissions_go_on(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_OUTPUT", session.MAX_FRAME + (1 << 18))  # as much as it must be, to be there soon
    caplog.set_level(logging.WARNING, "wfctl")
    slow = [raw(running) for _ in range(4)]
    dropped, ended = lambda: caplog.text.count("it was cut off"), threading.Event()
    flooding = threading.Thread(target=flood, args=(running, lambda: dropped() == 4 or ended.is_set()))
    with running.watch(status="admitted", timeout=60) as changes:
        flooding.start()
        try:
            for number in range(4):
                running.schedule(f"s{number}", soon(0.3))
                change = changes.wait()
                assert change is not None and change.schedule_id == f"s{number}"
                assert change.lateness_s is not None and change.lateness_s < 0.5  # on a busy machine: not by readers
            wait_for(lambda: dropped() == 4, "the end of all who do not read")
        finally:
            ended.set()
            flooding.join()
    for each in slow:
        frames = read_all(each)
        assert frames[-1]["error"]["data"]["code"] == "saturated"  # the reason, as the last word
        assert {frame["method"] for frame in frames[:-1]} == {"workflow.server.transition"}
        each.close()
    wait_for(lambda: len(running.service.watching) == 0, "all are forgotten")


def test_what_many_are_told_is_encoded_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from wfctl.rpc import subscriptions

    made: list[str] = []
    encode = subscriptions._encode

    def counted(view: TransitionView) -> bytes:
        made.append(words(view))
        return encode(view)

    monkeypatch.setattr(subscriptions, "_encode", counted)
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(running.watch(timeout=20)) for _ in range(8)]
        watches.append(stack.enter_context(running.watch(status="active", timeout=20)))
        running.schedule("s", soon(3600))
        assert {words(each.wait()) for each in watches} == {"schedule s >active"}
    assert made == ["schedule s >active"]


def test_an_idle_watcher_is_not_dropped_to_make_room(running: Running) -> None:
    running.service._server._max_connections = 3
    with running.watch(timeout=20) as changes:
        idle = [connect_control(running.root, 5) for _ in range(6)]
        running.schedule("s", soon(3600))
        assert words(changes.wait()) == "schedule s >active"
        for each in idle:
            each.close()
