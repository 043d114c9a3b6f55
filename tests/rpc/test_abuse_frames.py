"""What no honest peer sends, and what becomes of it: an error number, or the end of that connection alone (contract 9.2)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.rpc_loop import Loop, RawPeer, ask, tell
from wfctl.errors import NotFound
from wfctl.rpc import server as server_module
from wfctl.rpc.framing import MAX_DEPTH, MAX_FRAME, MAX_VALUES, decode_frame, encode_frame, is_too_deep
from wfctl.rpc.session import LARGE_FRAME, Deferred, Encoded, Session
from wfctl.supervisor.turns import GUARD_S, STARVED_S, Turns

REQUEST = '{"jsonrpc":"2.0","id":1,"method":"echo","params":%s}'


class World:
    """A server whose large frames are read by the test, when it likes."""

    def __init__(self, store: Path) -> None:
        self.calls: list[str] = []
        self.deferred: list[Deferred] = []
        self.aside: list[tuple[Any, Deferred]] = []
        self.now = 100.0
        self.loop = Loop(store, self.handler, monotonic=lambda: self.now)
        self.peers: list[RawPeer] = []

    def offer_aside(self) -> None:
        """From here on large frames are read aside."""

        def aside(job: Any) -> Deferred:
            self.aside.append((job, Deferred(in_turn=True)))
            return self.aside[-1][1]

        self.loop.server._aside = aside

    def read_aside(self) -> None:
        job, deferred = self.aside.pop(0)
        try:
            deferred.complete(job())
        except Exception as error:
            deferred.fail(error)  # type: ignore[arg-type]

    def handler(self, method: str, params: Mapping[str, Any], session: Session) -> Any:
        self.calls.append(method)
        if method == "missing":
            raise NotFound("no such thing")
        if method in ("later", "in turn"):
            self.deferred.append(Deferred(in_turn=method == "in turn"))
            return self.deferred[-1]
        if method == "big":
            return "x" * 900_000
        return len(params)

    def peer(self) -> RawPeer:
        self.peers.append(RawPeer(self.loop))
        return self.peers[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for peer in made.peers:
        peer.close()
    made.loop.close()


def frame(params: str) -> bytes:
    return (REQUEST % params).encode() + b"\n"


# Frames ----------------------------------------------------------------------------------------------------------------

DROPPED = [
    pytest.param(b"x" * (MAX_FRAME + 1), id="a MiB and one byte, without an end"),
    pytest.param(b" " * MAX_FRAME + b"1\n", id="a MiB and one byte"),
    pytest.param(b"\n", id="nothing"),
    pytest.param(b"\r\n", id="a carriage return"),
    pytest.param(b"\0\n", id="a NUL"),
    pytest.param(b"\xef\xbb\xbf{}\n", id="a byte order mark"),
    pytest.param(b'{"a":"\xc0\x80"}\n', id="an overlong NUL"),
    pytest.param(b'{"a":"\xed\xa0\x80"}\n', id="a surrogate in UTF-8"),
    pytest.param(frame('{"a":"\\ud800"}'), id="half a pair, escaped"),
    pytest.param(frame('{"a":"\\udc00\\ud800"}'), id="a pair the wrong way round"),
    pytest.param(frame('{"\\ud800":1}'), id="half a pair in a key"),
    pytest.param(frame('{"a":"\n"}'), id="a frame that is cut by a newline in a string"),
    pytest.param(frame("{}") [:-2] + b"\n", id="an object that does not end"),
    pytest.param(b"{}{}\n", id="two values"),
    pytest.param(b"{'a':1}\n", id="single quotes"),
    pytest.param(b'{"a":1,}\n', id="a comma too many"),
    pytest.param(b"// hello\n", id="a remark"),
    pytest.param(frame('{"a":1,"a":1}'), id="a key twice"),
    pytest.param(frame('{"a":1,"\\u0061":2}'), id="a key twice, once escaped"),
    pytest.param(frame('{"b":[{"c":{"a":1,"a":2}}]}'), id="a key twice, deep down"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"a","method":"echo"}\n', id="a method twice"),
    *[pytest.param(frame(f'{{"a":{word}}}'), id=word) for word in ("NaN", "Infinity", "-Infinity", "+1", "01", ".5", "1.")],
    pytest.param(frame('{"a":1e999}'), id="a number beyond all"),
    pytest.param(frame('{"a":-1e999}'), id="a number below all"),
    pytest.param(frame('{"a":' + "9" * 1001 + "}"), id="an integer of 1001 digits"),
    pytest.param(frame('{"a":' + "9" * 1_000_000 + "}"), id="an integer of a million digits"),
    pytest.param(frame("[" * MAX_DEPTH + "]" * MAX_DEPTH), id="nested 65 deep"),
    pytest.param(frame('{"a":' * MAX_DEPTH + "0" + "}" * MAX_DEPTH), id="objects nested 65 deep"),
    pytest.param(b"[" * 500_000 + b"]" * 500_000 + b"\n", id="nested half a million deep"),
    pytest.param(b'{"a":' * 100_000 + b"\n", id="nested a hundred thousand deep without an end"),
    pytest.param(frame("[" + "{}," * (MAX_VALUES // 2 + 1) + "0]"), id="a hundred thousand values"),
]  # fmt: skip


@pytest.mark.parametrize("sent", DROPPED)
@pytest.mark.parametrize("is_aside", [False, True], ids=["in the loop", "aside"])
def test_what_is_no_frame_gets_one_error_and_costs_its_connection(world: World, sent: bytes, is_aside: bool) -> None:
    other, peer = world.peer(), world.peer()
    if is_aside:
        world.offer_aside()
    peer.send_bytes(sent)
    if is_aside and len(sent) - 1 > LARGE_FRAME and len(sent) <= MAX_FRAME:
        world.loop.until(lambda: world.aside)
        world.read_aside()
    answer = peer.read()
    assert (answer["id"], answer["error"]["code"], answer["error"]["data"]["code"]) == (None, -32700, "invalid-argument")
    assert len(answer["error"]["message"]) < 300
    assert peer.read() is None
    assert not world.calls
    other.send(ask("echo", 2))
    assert other.read()["id"] == 2


TAKEN = [
    pytest.param(frame("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)), -32602, id="nested 64 deep"),
    pytest.param(frame('{"a":"' + "[" * 1000 + '"}'), None, id="brackets in a string are no nesting"),
    pytest.param(frame('{"a":"' + '\\"[' * 1000 + '"}'), None, id="nor behind escaped quotes"),
    pytest.param(frame('{"a":' + "9" * 1000 + "}"), None, id="an integer of 1000 digits"),
    pytest.param(frame('{"a":1e-999}'), None, id="a number too small to be told from zero"),
    pytest.param(frame('{"a":"\\ud83d\\ude00"}'), None, id="a whole pair"),
    pytest.param(frame('{"a":"' + "x" * (MAX_FRAME - 100) + '"}'), None, id="nearly a MiB"),
    pytest.param(b" " * 1000 + frame("{}"), None, id="blanks in front"),
    pytest.param(frame("{}").replace(b'"params":{}', b'"params":{},"more":1'), None, id="a member that means nothing"),
]


@pytest.mark.parametrize(("sent", "number"), TAKEN)
@pytest.mark.parametrize("is_aside", [False, True], ids=["in the loop", "aside"])
def test_what_only_looks_like_abuse_is_taken(world: World, sent: bytes, number: int | None, is_aside: bool) -> None:
    peer = world.peer()
    if is_aside:
        world.offer_aside()
    peer.send_bytes(sent)
    if is_aside and len(sent) - 1 > LARGE_FRAME:
        world.loop.until(lambda: world.aside)
        world.read_aside()
    answer = peer.read()
    assert answer["id"] == 1
    assert answer.get("error", {}).get("code") == number


REFUSED = [
    pytest.param([], id="an empty batch"),
    pytest.param([ask("echo")] * 101, id="a batch of 101"),
    pytest.param(5, id="a number"),
    pytest.param("echo", id="a text"),
    pytest.param(None, id="null"),
    pytest.param(True, id="true"),
    pytest.param({"jsonrpc": "1.0", "id": 1, "method": "echo"}, id="another version"),
    pytest.param({"id": 1, "method": "echo"}, id="no version"),
    pytest.param({"jsonrpc": "2.0", "id": 1}, id="no method"),
    pytest.param({"jsonrpc": "2.0", "id": 1, "method": None}, id="null as method"),
    pytest.param({"jsonrpc": "2.0", "id": 1, "method": ["echo"]}, id="a list as method"),
    pytest.param({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": "x"}, id="a text as params"),
    pytest.param({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": None}, id="null as params"),
    pytest.param({"jsonrpc": "2.0", "id": [], "method": "echo"}, id="a list as id"),
    pytest.param({"jsonrpc": "2.0", "id": True, "method": "echo"}, id="true as id"),
    pytest.param({"jsonrpc": "2.0", "id": "x" * 257, "method": "echo"}, id="a long id"),
    pytest.param({"jsonrpc": "2.0", "id": 1, "result": {}}, id="an answer"),
]


@pytest.mark.parametrize("sent", REFUSED)
def test_what_is_no_request_gets_an_error_and_the_connection_stays(world: World, sent: Any) -> None:
    peer = world.peer()
    peer.send(sent, ask("echo", 7))
    assert peer.read()["error"]["code"] == -32600
    assert peer.read()["id"] == 7


def test_a_batch_within_a_batch_is_no_request(world: World) -> None:
    peer = world.peer()
    peer.send([[ask("echo", 1)], ask("echo", 2)])
    first, second = peer.read()
    assert first["error"]["code"] == -32600
    assert second["id"] == 2


def test_params_by_position_are_invalid(world: World) -> None:
    peer = world.peer()
    peer.send({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]})
    assert peer.read()["error"]["code"] == -32602


# Large frames ----------------------------------------------------------------------------------------------------------


def test_while_a_large_frame_is_read_aside_its_peer_waits_and_others_do_not(world: World) -> None:
    world.offer_aside()
    large, other = world.peer(), world.peer()
    large.send(ask("echo", 1, a="x" * 100_000), ask("echo", 2))
    other.send(ask("echo", 3))
    assert other.read()["id"] == 3
    world.loop.until(lambda: world.aside)
    for _ in range(5):
        world.loop.round(0.0)
    assert world.calls == ["echo"]
    world.read_aside()
    assert [large.read()["id"] for _ in range(2)] == [1, 2]


def test_a_large_batch_is_answered_in_one_frame(world: World) -> None:
    world.offer_aside()
    peer = world.peer()
    peer.send([ask("echo", number, a="x" * 1000) for number in range(50)])
    world.loop.until(lambda: world.aside)
    world.read_aside()
    assert [each["id"] for each in peer.read()] == list(range(50))


def test_who_has_ended_still_gets_the_answer_to_a_large_frame(world: World) -> None:
    world.offer_aside()
    peer = world.peer()
    peer.send(ask("echo", 1, a="x" * 100_000))
    peer.finish_sending()
    world.loop.until(lambda: world.aside)
    world.loop.round(0.0)
    world.read_aside()
    assert peer.read()["id"] == 1
    assert peer.read() is None
    assert world.loop.server.connections == 0


# Order and room --------------------------------------------------------------------------------------------------------


def test_what_is_answered_in_turn_holds_the_next_request_back(world: World) -> None:
    peer = world.peer()
    peer.send(ask("in turn", 1), ask("echo", 2), [ask("in turn", 3), ask("echo", 4)])
    world.loop.until(lambda: world.deferred)
    for _ in range(5):
        world.loop.round(0.0)
    assert world.calls == ["in turn"]
    world.deferred[0].complete("done")
    world.loop.until(lambda: len(world.deferred) == 2)
    assert world.calls == ["in turn", "echo", "in turn"]
    world.deferred[1].complete("done")
    assert [peer.read()["id"], peer.read()["id"], [each["id"] for each in peer.read()]] == [1, 2, [3, 4]]


def test_a_flood_of_notifications_is_held_back_like_one_of_requests(world: World) -> None:
    peer = world.peer()
    peer.send(*[tell("in turn")] * 100)
    for _ in range(20):
        world.loop.round(0.0)
    assert len(world.deferred) == 1
    world.deferred[0].complete(None)
    world.loop.until(lambda: len(world.deferred) == 2)


def test_a_question_whose_asker_is_gone_is_wanted_by_nobody(world: World) -> None:
    peer = world.peer()
    peer.send(ask("later", 1))
    world.loop.until(lambda: world.deferred)
    assert world.deferred[0].is_wanted
    world.loop.server._drop(next(iter(world.loop.server._connections.values())))
    assert not world.deferred[0].is_wanted
    world.deferred[0].complete("nobody hears it")


def test_slow_readers_together_hold_only_so_much(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_HELD", 3_000_000)
    slow = [world.peer() for _ in range(12)]
    for peer in slow:
        peer.send(*[ask("big", number) for number in range(6)])
    for _ in range(60):
        world.loop.round(0.0)
    held = sum(each.session.output_bytes for each in world.loop.server._connections.values())
    assert held < 3_000_000 + len(slow) * MAX_FRAME
    quick = world.peer()
    quick.send(ask("echo", 9))
    assert quick.read()["id"] == 9  # who reads is served all the same
    for peer in slow:
        assert [peer.read()["id"] for _ in range(6)] == list(range(6))


# Turns: nothing is begun when something is about to come due ---------------------------------------------------------------


class _FakeServer:
    def __init__(self) -> None:
        self.served: list[tuple[int, float]] = []

    def serve(self, *, requests: int = 32, seconds: float = 0.05) -> float | None:
        self.served.append((requests, seconds))
        return None


def test_no_request_is_begun_when_an_instant_is_about_to_come_due() -> None:
    now, server = [100.0], _FakeServer()
    turns = Turns(lambda: now[0])
    handed = []

    def hand_out() -> bool:
        handed.append(now[0])
        return len(handed) < 1000

    assert turns.serve(GUARD_S, server, hand_out) is None  # type: ignore[arg-type]
    assert turns.serve(-1.0, server, hand_out) is None  # type: ignore[arg-type]
    assert not server.served
    assert not handed


def test_a_round_serves_until_shortly_before_the_next_instant() -> None:
    server = _FakeServer()
    turns = Turns(lambda: 100.0)
    turns.serve(GUARD_S + 0.02, server, lambda: False)  # type: ignore[arg-type]
    turns.serve(1000.0, server, lambda: False)  # type: ignore[arg-type]
    assert [seconds for _, seconds in server.served] == pytest.approx([0.02, server_module.SECONDS_A_ROUND])


def test_answers_stop_being_handed_out_when_the_time_is_over() -> None:
    now, server = [100.0], _FakeServer()
    turns = Turns(lambda: now[0])

    def hand_out() -> bool:
        now[0] += 0.01
        return True

    assert turns.serve(GUARD_S + 0.025, server, hand_out) == 0.0  # type: ignore[arg-type]
    assert now[0] == pytest.approx(100.03)
    assert server.served[0][1] <= 0


def test_where_something_always_comes_due_one_request_is_served_now_and_then() -> None:
    now, server = [100.0], _FakeServer()
    turns = Turns(lambda: now[0])
    for _ in range(100):
        now[0] += 0.01
        turns.serve(0.001, server, lambda: False)  # type: ignore[arg-type]
    assert len(server.served) == pytest.approx(1.0 / STARVED_S, abs=1)
    assert {requests for requests, _ in server.served} == {1}


def test_a_server_begins_nothing_without_time(world: World) -> None:
    peer = world.peer()
    peer.send(ask("echo", 1))
    world.loop.until(lambda: world.loop.server._ready or world.calls)
    before = len(world.calls)
    peer.send(ask("echo", 2))
    for _ in range(5):
        world.loop.round(0.0, seconds=0.0)
    assert len(world.calls) == before
    assert peer.read()["id"] == 1


# Writing and measuring -----------------------------------------------------------------------------------------------------


def test_a_result_written_elsewhere_is_the_same_answer() -> None:
    for result in (
        {"a": [1, "é", None]},
        "x",
        5,
        None,
        [],
        {"schema": "s", "items": [{"a": 1}, {"b": "\udcff"}], "next_cursor": "c"},
    ):
        frame = Encoded(result).answer("id")
        expected = json.loads(json.dumps({"jsonrpc": "2.0", "id": "id", "result": result}).replace("\\udcff", "\ufffd"))
        assert decode_frame(frame) == expected


def test_a_result_that_is_too_deep_for_a_batch_cannot_be_written() -> None:
    deep: Any = 0
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    Encoded(deep)
    with pytest.raises(ValueError, match="deep"):
        Encoded([deep])


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 300])
def test_depth_is_measured_by_the_text_alone(depth: int) -> None:
    for text in (b"[" * depth + b"]" * depth, b'{"a]}":' * depth + b'"[[["' + b"}" * depth, (b"[],{},") * 1000 + b"[" * depth):
        assert is_too_deep(text) == (depth > MAX_DEPTH)


def test_a_mebibyte_of_nesting_takes_no_longer_than_reading_it() -> None:
    text = b"[" + (b"[" * 60 + b"]" * 60 + b",") * 8000 + b"0]"
    assert not is_too_deep(text)
    assert encode_frame(json.loads(text)) == text


def test_a_connection_that_is_reset_in_the_middle_of_anything_leaves_nothing(world: World) -> None:
    for sent in (b"", b'{"jsonrpc"', frame("{}"), frame('{"a":"' + "x" * 100_000 + '"}')[:-50]):
        peer = world.peer()
        peer.send_bytes(sent)
        world.loop.round(0.0)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
    world.loop.until(lambda: world.loop.server.connections == 0)
    assert len(world.loop.selector.get_map()) == 1
