"""The control socket's server in a loop of the test's own: contract 9.2."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.rpc_loop import Loop, RawPeer, ask, tell
from wfctl.errors import CannotCreate, NotFound, WrongState
from wfctl.rpc import server as server_module
from wfctl.rpc.framing import MAX_FRAME
from wfctl.rpc.server import ControlServer
from wfctl.rpc.session import MAX_OUTPUT, MAX_OUTSTANDING, Deferred, Session
from wfctl.rpc.unix import Peer


class World:
    """What the handler did, and the loop and peers around it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.deferred: list[Deferred] = []
        self.sessions: list[Session] = []
        self.now = 100.0
        self.loop = Loop(store, self.handler, monotonic=lambda: self.now)
        self.peers: list[RawPeer] = []

    def handler(self, method: str, params: Mapping[str, Any], session: Session) -> Any:
        self.calls.append((method, dict(params)))
        self.sessions.append(session)
        match method:
            case "echo":
                return params
            case "missing":
                raise NotFound("no such thing", {"id": "x"})
            case "bug":
                raise KeyError("inside")
            case "later":
                self.deferred.append(Deferred())
                return self.deferred[-1]
            case "big":
                return "x" * params["size"]
            case "odd":
                return object()
            case "watch":
                session.is_kept = True
        return None

    def restart(self, **options: Any) -> None:
        self.loop.close()
        self.loop = Loop(self.store, self.handler, **({"monotonic": lambda: self.now} | options))

    def peer(self) -> RawPeer:
        self.peers.append(RawPeer(self.loop))
        return self.peers[-1]

    def until(self, condition: Callable[[], object]) -> None:
        self.loop.until(condition)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for peer in made.peers:
        peer.close()
    made.loop.close()


def error_of(message: Any) -> tuple[Any, int, str]:
    return message["id"], message["error"]["code"], message["error"]["data"]["code"]


# The socket's file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_the_socket_is_0600_whatever_the_umask(world: World, umask: int) -> None:
    before = os.umask(umask)
    try:
        world.restart()
    finally:
        os.umask(before)
    made = (world.store / "control.sock").lstat()
    assert stat.S_ISSOCK(made.st_mode)
    assert stat.S_IMODE(made.st_mode) == 0o600


def test_a_stale_socket_is_replaced_and_the_own_one_removed(world: World) -> None:
    path = world.store / "control.sock"
    world.loop.close()
    assert not path.exists()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    world.restart()
    peer = world.peer()
    peer.send(ask("echo", a=1))
    assert peer.read()["result"] == {"a": 1}


def test_anything_but_a_socket_is_left_alone(world: World) -> None:
    world.loop.close()
    path = world.store / "control.sock"
    path.write_text("mine")
    with pytest.raises(CannotCreate, match="is no socket"):
        world.restart()
    assert path.read_text() == "mine"
    path.unlink()
    world.loop = Loop(world.store, world.handler)


def test_a_socket_of_somebody_else_is_not_removed_on_close(world: World) -> None:
    path = world.store / "control.sock"
    path.unlink()
    path.write_text("new owner")
    world.loop.close()
    assert path.read_text() == "new owner"


def test_no_store_path_is_too_long(tmp_path: Path) -> None:
    store = tmp_path.joinpath(*["d" * 200] * 5)
    store.mkdir(parents=True)
    world = World(store)
    peer = world.peer()
    peer.send(ask("echo", a=1))
    assert peer.read()["result"] == {"a": 1}
    peer.close()
    world.loop.close()


def test_another_uid_is_closed_without_a_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "peer_of", lambda _: Peer(pid=1, uid=os.getuid() + 4242, gid=0))
    peer = world.peer()
    peer.try_to_send(b"x")
    assert peer.read() is None
    assert not world.calls


def test_a_peer_is_known_by_what_the_kernel_says(world: World) -> None:
    peer = world.peer()
    peer.send(ask("echo"))
    peer.read()
    assert world.sessions[0].peer == Peer(pid=os.getpid(), uid=os.getuid(), gid=os.getgid())


# Requests --------------------------------------------------------------------------------------------------------------


def test_requests_are_answered_in_turn_on_one_connection(world: World) -> None:
    peer = world.peer()
    peer.send(ask("echo", 1, n=1), ask("echo", "two", n=2), ask("echo", None, n=3))
    answers = [peer.read() for _ in range(3)]
    assert [(answer["id"], answer["result"]["n"]) for answer in answers] == [(1, 1), ("two", 2), (None, 3)]


def test_a_request_may_come_byte_by_byte(world: World) -> None:
    peer = world.peer()
    for byte in b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"\xc3\xa9"}}\n':
        peer.send_bytes(bytes([byte]))
        world.loop.round()
    assert peer.read()["result"] == {"a": "é"}


def test_a_notification_is_done_and_never_answered(world: World) -> None:
    peer = world.peer()
    peer.send(tell("echo"), tell("missing"), tell("bug"), tell("later"), ask("echo", 9))
    assert peer.read()["id"] == 9
    assert [method for method, _ in world.calls] == ["echo", "missing", "bug", "later", "echo"]


def test_typed_errors_go_out_and_the_connection_stays(world: World) -> None:
    peer = world.peer()
    peer.send(ask("missing", 1), ask("bug", 2), ask("odd", 3), [], 5, {"id": 6}, ask("echo", 7))
    assert error_of(peer.read()) == (1, -32004, "not-found")
    bug = peer.read()
    assert error_of(bug) == (2, -32603, "internal")
    assert "inside" not in bug["error"]["message"]
    assert error_of(peer.read()) == (3, -32603, "internal")
    assert error_of(peer.read()) == (None, -32600, "invalid-argument")
    assert error_of(peer.read()) == (None, -32600, "invalid-argument")
    assert error_of(peer.read()) == (6, -32600, "invalid-argument")
    assert peer.read()["id"] == 7


def test_parameters_by_position_are_refused(world: World) -> None:
    peer = world.peer()
    peer.send({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]})
    assert error_of(peer.read()) == (1, -32602, "invalid-argument")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="another protocol"),
        pytest.param(b"[" * 100_000 + b"\n", id="deep nesting"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"echo"}\n', id="a key twice"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":NaN}}\n', id="NaN"),
        pytest.param(b'{"jsonrpc":"2.0","id":' + b"9" * 9000 + b',"method":"echo"}\n', id="a huge integer"),
        pytest.param(b"\xff\xfe\n", id="no UTF-8"),
        pytest.param(b"x" * (MAX_FRAME + 2), id="too long, without a newline"),
        pytest.param(b"x" * (3 * MAX_FRAME) + b"\n", id="far too long"),
    ],
)
def test_a_malformed_frame_gets_an_error_and_costs_only_its_connection(world: World, frame: bytes) -> None:
    other, peer = world.peer(), world.peer()
    peer.send(ask("echo", 1))
    peer.send_bytes(frame)
    assert peer.read()["id"] == 1
    assert error_of(peer.read()) == (None, -32700, "invalid-argument")
    assert peer.read() is None
    assert len(world.calls) == 1
    other.send(ask("echo", 2))
    assert other.read()["id"] == 2
    peer.close()
    world.until(lambda: world.loop.server.connections == 1)


def test_nothing_after_a_malformed_frame_is_done(world: World) -> None:
    peer = world.peer()
    peer.send_bytes(b"nonsense\n")
    peer.send(ask("echo"))
    assert error_of(peer.read()) == (None, -32700, "invalid-argument")
    assert peer.read() is None
    assert not world.calls


def test_who_does_not_hang_up_after_its_error_is_hung_up_on(world: World) -> None:
    peer = world.peer()
    peer.send_bytes(b"nonsense\n")
    assert peer.read()["error"]
    assert world.loop.server.connections == 1
    world.now += server_module.LINGER_S
    world.until(lambda: world.loop.server.connections == 0)


# Batches ---------------------------------------------------------------------------------------------------------------


def test_a_batch_is_answered_in_one_frame_without_its_notifications(world: World) -> None:
    peer = world.peer()
    peer.send([ask("echo", 1, a=1), tell("echo"), 7, ask("missing", 2), [], ask("later", 3)], ask("echo", 4))
    assert peer.read()["id"] == 4  # the batch still waits for its last answer
    world.deferred[0].complete("done")
    first, invalid, missing, nested, later = peer.read()
    assert first == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    assert error_of(invalid) == error_of(nested) == (None, -32600, "invalid-argument")
    assert error_of(missing) == (2, -32004, "not-found")
    assert later["result"] == "done"


def test_a_batch_of_notifications_gets_no_answer(world: World) -> None:
    peer = world.peer()
    peer.send([tell("echo"), tell("missing")], ask("echo", 4))
    assert peer.read()["id"] == 4


def test_two_batches_may_wait_at_once(world: World) -> None:
    peer = world.peer()
    peer.send([ask("later", 1)], [ask("later", 2), ask("echo", 3)])
    world.until(lambda: len(world.deferred) == 2 and len(world.calls) == 3)
    world.deferred[1].complete(None)
    world.deferred[0].complete(None)
    assert [[answer["id"] for answer in peer.read()] for _ in range(2)] == [[3, 2], [1]]


def test_an_overlong_batch_is_no_request(world: World) -> None:
    peer = world.peer()
    peer.send([ask("echo")] * 101)
    assert error_of(peer.read()) == (None, -32600, "invalid-argument")
    assert not world.calls


def test_a_batch_counts_by_its_members_in_a_round(world: World) -> None:
    peer = world.peer()
    peer.send([ask("echo", number) for number in range(100)])
    world.until(lambda: world.calls)
    before = len(world.calls)
    world.loop.round(requests=10)
    assert len(world.calls) == before + 10
    assert world.loop.wake_in == 0.0
    assert len(peer.read()) == 100


def test_answers_that_do_not_fit_a_batch_say_so(world: World) -> None:
    peer = world.peer()
    peer.send([ask("big", number, size=400_000) for number in range(100)])
    answers = peer.read()
    assert [answer["id"] for answer in answers] == list(range(100))
    assert len(answers[0]["result"]) == 400_000
    assert error_of(answers[99]) == (99, -32022, "io-error")


# Answers ---------------------------------------------------------------------------------------------------------------


def test_an_answer_that_fits_no_frame_is_an_error(world: World) -> None:
    peer = world.peer()
    peer.send(ask("big", 1, size=MAX_FRAME), ask("big", 2, size=MAX_FRAME - 100))
    too_long = peer.read()
    assert error_of(too_long) == (1, -32022, "io-error")
    assert too_long["error"]["data"]["outcome"] == "done"
    assert len(peer.read()["result"]) == MAX_FRAME - 100


def test_a_deferred_answer_comes_later_and_others_overtake_it(world: World) -> None:
    peer = world.peer()
    peer.send(ask("later", 1), ask("later", 2), ask("echo", 3))
    assert peer.read()["id"] == 3
    world.deferred[1].complete({"ok": True})
    assert peer.read() == {"jsonrpc": "2.0", "id": 2, "result": {"ok": True}}
    world.deferred[0].fail(WrongState("not now"))
    assert error_of(peer.read()) == (1, -32010, "wrong-state")
    assert world.deferred[0].is_done
    with pytest.raises(ValueError, match="once"):
        world.deferred[0].complete(1)


def test_a_deferred_answer_for_a_peer_that_is_gone_is_dropped(world: World) -> None:
    peer = world.peer()
    peer.send(ask("later", 1))
    world.until(lambda: world.deferred)
    peer.close()
    world.loop.round()
    world.deferred[0].complete("x" * 1000)
    world.until(lambda: world.loop.server.connections == 0)


def test_too_many_open_answers_hold_the_peer_back(world: World) -> None:
    peer = world.peer()
    peer.send(*[ask("later", number) for number in range(MAX_OUTSTANDING + 5)])
    world.until(lambda: len(world.deferred) == MAX_OUTSTANDING)
    for _ in range(5):
        world.loop.round()
    assert len(world.deferred) == MAX_OUTSTANDING
    for deferred in world.deferred[:5]:
        deferred.complete(None)
    world.until(lambda: len(world.deferred) == MAX_OUTSTANDING + 5)


def test_who_has_finished_sending_still_gets_every_answer(world: World) -> None:
    peer = world.peer()
    peer.send(ask("echo", 1), ask("later", 2), ask("big", 3, size=900_000))
    peer.finish_sending()
    assert peer.read()["id"] == 1
    assert peer.read()["id"] == 3
    world.deferred[0].complete(None)
    assert peer.read()["id"] == 2
    assert peer.read() is None
    assert world.loop.server.connections == 0


def test_half_a_frame_at_the_end_is_malformed(world: World) -> None:
    peer = world.peer()
    peer.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')
    peer.finish_sending()
    assert error_of(peer.read()) == (None, -32700, "invalid-argument")
    assert peer.read() is None
    assert not world.calls


def test_a_peer_that_vanishes_mid_frame_leaves_nothing(world: World) -> None:
    peer = world.peer()
    peer.send_bytes(b'{"jsonrpc":')
    world.until(lambda: world.loop.server.connections == 1)
    peer.close()
    world.until(lambda: world.loop.server.connections == 0)
    assert len(world.loop.selector.get_map()) == 1


# Slow and many ---------------------------------------------------------------------------------------------------------


def test_a_slow_reader_is_held_back_and_loses_nothing(world: World) -> None:
    peer = world.peer()
    peer.send(*[ask("big", number, size=300_000) for number in range(40)])
    for _ in range(60):
        world.loop.round(0.0)
    session = world.sessions[0]
    assert len(world.calls) < 40
    assert session.output_bytes <= MAX_OUTPUT
    assert [peer.read()["id"] for _ in range(40)] == list(range(40))


def test_a_watcher_that_does_not_read_is_cut_off_with_an_error(world: World) -> None:
    peer = world.peer()
    peer.send(ask("watch", 1))
    assert peer.read()["id"] == 1
    session = world.sessions[0]
    sent = 0
    while session.notify("event", {"text": "x" * 100_000}):
        sent += 1
        assert session.output_bytes <= MAX_OUTPUT
    assert sent > 30
    assert not session.notify("event", {})
    messages = []
    while (message := peer.read()) is not None:
        messages.append(message)
    assert error_of(messages[-1]) == (None, -32012, "saturated")
    assert all(message["method"] == "event" for message in messages[:-1])


def test_a_cut_off_peer_that_never_reads_is_closed_in_time(world: World) -> None:
    peer = world.peer()
    peer.send(ask("watch", 1))
    assert peer.read()["id"] == 1
    while world.sessions[0].notify("event", {"text": "x" * 100_000}):
        pass
    world.loop.round()
    assert world.loop.server.connections == 1
    assert world.loop.wake_in == pytest.approx(server_module.KEPT_LINGER_S)
    world.now += server_module.KEPT_LINGER_S
    world.loop.round()
    assert world.loop.server.connections == 0


def test_a_notification_that_fits_no_frame_is_a_callers_bug(world: World) -> None:
    peer = world.peer()
    peer.send(ask("watch", 1))
    assert peer.read()["id"] == 1
    with pytest.raises(ValueError, match="fits no frame"):
        world.sessions[0].notify("event", {"text": "x" * MAX_FRAME})


def test_a_flood_is_answered_a_few_requests_a_round_and_in_turn(world: World) -> None:
    flood, other = world.peer(), world.peer()
    flood.send(*[ask("echo", number, who="flood") for number in range(500)])
    other.send(ask("echo", 1, who="other"))
    world.loop.round(requests=8)
    world.loop.round(requests=8)
    assert len(world.calls) <= 16
    assert ("echo", {"who": "other"}) in world.calls
    assert world.loop.wake_in == 0.0
    assert [flood.read()["id"] for _ in range(500)] == list(range(500))


def test_a_round_ends_after_its_time(world: World) -> None:
    def slow(method: str, params: Mapping[str, Any], session: Session) -> None:
        world.calls.append((method, dict(params)))
        world.now += 0.03

    world.loop.close()
    world.loop = Loop(world.store, slow, monotonic=lambda: world.now)
    peer = world.peer()
    peer.send(*[ask("echo", number) for number in range(10)])
    world.until(lambda: world.calls)
    before = len(world.calls)
    world.loop.round(seconds=0.05)
    assert len(world.calls) == before + 2


def test_of_300_idle_connections_the_idlest_make_room(world: World) -> None:
    for _ in range(300):
        if len(world.peers) % 32 == 0:
            world.loop.round(0.0)
            world.loop.round(0.0)
        world.peer()
    world.until(lambda: world.loop.server.connections == server_module.MAX_CONNECTIONS)
    world.loop.round()
    assert world.loop.server.connections == server_module.MAX_CONNECTIONS
    assert world.loop.wake_in is not None
    world.peers[0].send(ask("echo", 1))
    assert world.peers[0].read()["id"] == 1
    world.now += server_module.IDLE_S
    world.peers[5].send(ask("later", 1))
    newest = world.peer()
    newest.send(ask("echo", 2))
    assert newest.read()["id"] == 2
    assert world.loop.server.connections == server_module.MAX_CONNECTIONS
    assert world.peers[1].read() is None  # the idlest is gone
    world.deferred[0].complete(None)
    assert world.peers[5].read()["id"] == 1  # who waits for an answer is not idle


def test_newcomers_wait_while_nobody_is_idle_long_enough(world: World) -> None:
    world.restart(max_connections=2)
    for _ in range(3):
        world.peer()
    third = world.peers[2]
    third.send(ask("echo", 3))
    for _ in range(5):
        world.loop.round()
    assert not world.calls
    world.peers[0].close()
    assert third.read()["id"] == 3


def test_a_request_that_comes_with_the_newcomer_saves_its_connection(world: World) -> None:
    world.restart(max_connections=1)
    old = world.peer()
    world.until(lambda: world.loop.server.connections == 1)
    world.now += 10
    newcomer = world.peer()
    old.send(ask("later", 1))
    newcomer.send(ask("echo", 2))
    world.until(lambda: world.deferred)
    world.deferred[0].complete(None)
    assert old.read()["id"] == 1
    old.close()
    assert newcomer.read()["id"] == 2


def test_dripping_bytes_do_not_count_as_activity(world: World) -> None:
    world.restart(max_connections=1)
    drip = world.peer()
    drip.send_bytes(b"{")
    world.until(lambda: world.loop.server.connections == 1)
    world.now += server_module.IDLE_S
    drip.send_bytes(b" ")
    newcomer = world.peer()
    newcomer.send(ask("echo", 1))
    assert newcomer.read()["id"] == 1
    assert drip.read() is None


def test_the_cap_is_below_the_descriptor_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit is only claimed: descriptors of this process that other tests left open must not count.
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, resource.RLIM_INFINITY))
    world.restart()
    for _ in range(40):
        world.peer()
        world.loop.round(0.0)
    world.until(lambda: world.loop.server.connections == 32)
    world.loop.round()
    assert world.loop.server.connections == 32


def test_without_descriptors_it_waits_instead_of_spinning(world: World) -> None:
    newcomer = world.peer()
    newcomer.send(ask("echo", 1))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest_descriptor() + 1, before[1]))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        fill_descriptors(held)
        for _ in range(3):
            world.loop.round()
        assert world.loop.wake_in == pytest.approx(0.5)
        assert not world.calls
    world.now += 1.0
    assert newcomer.read()["id"] == 1


def highest_descriptor() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208


def fill_descriptors(held: contextlib.ExitStack) -> None:
    with contextlib.suppress(OSError):
        while True:
            held.callback(os.close, os.open("/dev/null", os.O_RDONLY))


# The end ---------------------------------------------------------------------------------------------------------------


def test_closing_sends_what_is_ready_and_leaves_the_selector_clean(world: World) -> None:
    peer = world.peer()
    peer.send(ask("later", 1))
    world.until(lambda: world.deferred)
    world.deferred[0].complete("last")
    selector = world.loop.selector
    world.loop.server.close()
    world.loop.server.close()
    assert not selector.get_map()
    assert b'"last"' in peer.socket.recv(1000)
    assert peer.socket.recv(1000) == b""
    assert not (world.store / "control.sock").exists()


def test_a_server_needs_no_selector_to_be_made_and_closed(tmp_path: Path) -> None:
    directory_fd = os.open(tmp_path, os.O_RDONLY)
    ControlServer(directory_fd, lambda method, params, session: None).close()
    os.close(directory_fd)
    assert not list(tmp_path.iterdir())
