"""Peers of a control socket that mean no good: each of them does one kind of harm again and again (contract 9.2)."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wfctl.rpc.unix import connect_control

BIG = {f"k{number}": "v" * 10 for number in range(2500)}  #: an input of 60 KiB
ENVIRONMENT = {f"E{number}": "v" * 40 for number in range(4500)}  #: makes a definition of 250 KiB
NEVER = {"kind": "cron", "expression": "0 0 31 2,4,6,9,11 *", "timezone": "Europe/Budapest"}
RARELY = {"kind": "cron", "expression": "0-59/7,1,2,3 3 29 2 1", "timezone": "Africa/Casablanca"}
HEAVY_SCHEMA = {"type": "object", "properties": {f"p{i}": {"pattern": "(a|b)*c{1,50}(x+x+)+y"} for i in range(800)}}
TWICE = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)} | {"d30": {"type": "string"}}
FRAMES = (
    b"\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"[" * 100_000 + b"\n",
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}\n',
    b'{"jsonrpc":"2.0","id":' + b"9" * 9000 + b',"method":"x"}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}\n',
    b"\xff\xfe\n",
    b"x" * ((1 << 20) + 2),
    b'{"a":[' + (b"[" * 60 + b"]" * 60 + b",") * 8000 + b"0]}\n",
    b'{"a":[' + b"{}," * 340_000 + b"0]}\n",
    b'{"a":[' + b"0," * 500_000 + b"0]}\n",
    b"[" + b"0," * 500_000 + b"0]\n",
    b"[]\n",
    b"5\n",
)


class Peer:
    """One connection to a control socket."""

    def __init__(self, store: Path) -> None:
        self.socket: socket.socket = connect_control(store, 5.0)
        self.socket.settimeout(30.0)
        self._received = b""

    def ask(self, method: str, **params: Any) -> Any:
        """Ask and return the answer; None where the server has hung up."""
        self.send({"jsonrpc": "2.0", "id": 1, "method": f"workflow.{method}", "params": params})
        return self.read()

    def send(self, message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> Any:
        while b"\n" not in self._received:
            data = self.socket.recv(1 << 20)
            if not data:
                return None
            self._received += data
        frame, self._received = self._received.split(b"\n", 1)
        return json.loads(frame)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanish without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Attack:
    """What all kinds of harm share: the store, the time to stop, names that were never used, and what they were answered."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.stop = threading.Event()
        self.answers: dict[str, int] = {}  #: how often each error number, or `result`, came
        self.internal: list[Any] = []
        self._last = 0
        self._lock = threading.Lock()

    def name(self, kind: str) -> str:
        with self._lock:
            self._last += 1
            return f"{kind}{self._last}"

    def note(self, answer: Any) -> Any:
        """Count an answer; an internal error is kept."""
        for each in answer if isinstance(answer, list) else [answer]:
            error = each.get("error") if isinstance(each, dict) else None
            word = "hung up" if each is None else str(error["code"]) if error else "result"
            with self._lock:
                self.answers[word] = self.answers.get(word, 0) + 1
                if word == "-32603":
                    self.internal.append(each)
        return answer

    def run(self, harm: Callable[[Attack, random.Random], None], seed: int) -> None:
        """Do one kind of harm until it is time to stop."""
        chance = random.Random(seed)
        while not self.stop.is_set():
            with contextlib.suppress(OSError):
                harm(self, chance)

    def start(self, each: int = 1) -> list[threading.Thread]:
        """Do every kind of harm at once, each of them `each` times over."""
        threads = [
            threading.Thread(target=self.run, args=(harm, seed), name=name, daemon=True)
            for seed in range(each)
            for name, harm in HARMS.items()
        ]
        for thread in threads:
            thread.start()
        return threads


def malformed_frames(attack: Attack, chance: random.Random) -> None:
    with Peer(attack.store) as peer:
        peer.socket.sendall(chance.choice(FRAMES))
        peer.socket.shutdown(socket.SHUT_WR)
        attack.note(peer.read())


def half_frames(attack: Attack, chance: random.Random) -> None:
    peer = Peer(attack.store)
    peer.socket.sendall(b'{"jsonrpc":"2.0","id":1,' * chance.randrange(1, 2000))
    peer.reset() if chance.random() < 0.5 else peer.socket.close()


def slow_writers(attack: Attack, chance: random.Random) -> None:
    peers = [Peer(attack.store) for _ in range(20)]
    for _ in range(20):
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.socket.send(b"{")
        attack.stop.wait(0.05)
    for peer in peers:
        peer.socket.close()


def slow_readers(attack: Attack, chance: random.Random) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(attack.store)) for _ in range(10)]
        for peer in peers:
            peer.socket.settimeout(0.2)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    peer.send({"jsonrpc": "2.0", "id": 1, "method": "workflow.schedules.list", "params": {"limit": 100}})
        attack.stop.wait(1.0)


def many_connections(attack: Attack, chance: random.Random) -> None:
    sockets = []
    with contextlib.suppress(OSError):
        for _ in range(1000):
            sockets.append(connect_control(attack.store, 0.05))
    attack.stop.wait(0.3)
    for each in sockets:
        each.close()


def expensive_batches(attack: Attack, chance: random.Random) -> None:
    asks = [
        ("schedules.list", {}),
        ("deployments.list", {}),
        ("schedules.occurrences.list", {"limit": 100}),
        ("runs.list", {"limit": 100}),
        ("schedules.audit", {"schedule_id": "every-1"}),
        ("schedules.occurrences.explain", {"schedule_id": "every-1", "instant": "2027-01-01T00:00:00Z"}),
        ("schedules.revisions", {"schedule_id": "every-1", "limit": 100}),
        ("server.status", {}),
        ("schedules.get", {"schedule_id": "nobody" * 20}),
    ]
    with Peer(attack.store) as peer:
        chosen = [chance.choice(asks) for _ in range(100)]
        peer.send(
            [
                {"jsonrpc": "2.0", "id": number, "method": f"workflow.{method}", "params": params}
                for number, (method, params) in enumerate(chosen)
            ]
        )
        while not attack.stop.is_set():
            peer.socket.settimeout(1.0)
            try:
                attack.note(peer.read())
                return
            except TimeoutError:
                continue


def schedule_floods(attack: Attack, chance: random.Random) -> None:
    name = attack.name("flood")
    with Peer(attack.store) as peer:
        trigger = chance.choice([RARELY, NEVER, {"kind": "cron", "expression": "0 5 1 1 *"}])
        attack.note(peer.ask("schedules.create", schedule_id=name, deployment_id="nothing", trigger=trigger))
        attack.note(peer.ask("schedules.create", schedule_id=f"{name}-big", deployment_id="nothing", trigger=RARELY, input=BIG))
        attack.note(peer.ask("schedules.update", schedule_id=name, expected_revision=1, notes="x" * 60_000))
        for _ in range(5):
            attack.note(peer.ask("schedules.pause", schedule_id=name, reason="x" * 1000))
            attack.note(peer.ask("schedules.resume", schedule_id=name))
        attack.note(peer.ask("schedules.delete", schedule_id=name))
        attack.note(peer.ask("schedules.delete", schedule_id=f"{name}-big"))


def deployment_floods(attack: Attack, chance: random.Random) -> None:
    name = attack.name("flood")
    with Peer(attack.store) as peer:
        command = ["/bin/true"]
        attack.note(peer.ask("deployments.create", deployment_id=name, command=command, environment=ENVIRONMENT))
        attack.note(peer.ask("deployments.update", deployment_id=name, expected_revision=1, input_schema=HEAVY_SCHEMA))
        schema = {"$defs": TWICE, "additionalProperties": {"$ref": "#/$defs/d0"}}
        attack.note(peer.ask("deployments.create", deployment_id=f"{name}-t", command=command, input_schema=schema))
        steps = [{"name": f"s{i}", "command": ["/bin/true", *["x"] * 900]} for i in range(100)]
        attack.note(peer.ask("deployments.create", deployment_id=f"{name}-s", steps=steps))
        attack.note(peer.ask("deployments.delete", deployment_id=name))


def wrong_types(attack: Attack, chance: random.Random) -> None:
    values: list[Any] = [
        None,
        True,
        -1,
        10**400,
        1.5,
        "",
        "\0",
        "x" * 100_000,
        [],
        {},
        [[]],
        {"a": {"b": []}},
        "0001-01-01T00:00:00Z",
    ]
    methods = ("schedules.create", "schedules.list", "schedules.occurrences.list", "runs.list", "runs.start", "runs.inspect",
               "server.watch", "server.nothing", "runs.cancel", "deployments.update", "schedules.audit")  # fmt: skip
    names = ("schedule_id", "deployment_id", "limit", "cursor", "status", "since", "trigger", "input", "run_id", "x")
    with Peer(attack.store) as peer:
        for _ in range(20):
            params = {chance.choice(names): chance.choice(values) for _ in range(3)}
            attack.note(peer.ask(chance.choice(methods), **params))


def reload_floods(attack: Attack, chance: random.Random) -> None:
    with Peer(attack.store) as peer:
        for _ in range(5):
            attack.note(peer.ask("server.reload"))


def run_floods(attack: Attack, chance: random.Random) -> None:
    with Peer(attack.store) as peer:
        for _ in range(3):
            attack.note(peer.ask("runs.start", deployment_id="nothing"))
        attack.note(peer.ask("runs.start", deployment_id="nothing", input=BIG))
    attack.stop.wait(0.5)


def vanishing_askers(attack: Attack, chance: random.Random) -> None:
    for _ in range(20):
        peer = Peer(attack.store)
        params: Mapping[str, Any] = {"schedule_id": "every-1"}
        peer.send({"jsonrpc": "2.0", "id": 1, "method": "workflow.schedules.audit", "params": params})
        peer.reset()


def notification_floods(attack: Attack, chance: random.Random) -> None:
    with Peer(attack.store) as peer:
        for method in ("server.poke", "schedules.list", "server.status", "nothing"):
            peer.socket.sendall(json.dumps({"jsonrpc": "2.0", "method": f"workflow.{method}"}).encode() + b"\n")
        attack.note(peer.ask("server.status"))


HARMS: dict[str, Callable[[Attack, random.Random], None]] = {
    each.__name__: each
    for each in (
        malformed_frames,
        half_frames,
        slow_writers,
        slow_readers,
        many_connections,
        expensive_batches,
        schedule_floods,
        deployment_floods,
        wrong_types,
        reload_floods,
        run_floods,
        vanishing_askers,
        notification_floods,
    )
}


def resources_of(pid: int) -> dict[str, int]:
    """Return descriptors, threads and KiB of memory of a process."""
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith(("Threads", "VmRSS"))
    )
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"descriptors": descriptors, "threads": int(status["Threads"]), "rss_kib": int(status["VmRSS"].split()[0])}


def settle(pid: int, before: Mapping[str, int], within_s: float = 15.0) -> dict[str, int]:
    """Wait until a process has as few descriptors and threads as before, for so long at most; return what it has then."""
    deadline = time.monotonic() + within_s
    while True:
        now = resources_of(pid)
        if (now["descriptors"] <= before["descriptors"] and now["threads"] <= before["threads"]) or time.monotonic() > deadline:
            return now
        time.sleep(0.05)
