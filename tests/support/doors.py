"""The four doors to one store, each asked the same question, their answers as JSON (contract 9)."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import wfctl
from tests.support.processes import clean_environment
from wfctl.cli.app import run
from wfctl.errors import WfctlError
from wfctl.rpc.methods import BY_OPERATION
from wfctl.rpc.unix import connect_control

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Question:
    """An operation with its arguments, and the words that ask it on the command line; None where those cannot say it."""

    operation: str
    params: Mapping[str, Any]
    words: Sequence[str] | None = None


@dataclass(frozen=True)
class Answer:
    """What a door gave: the JSON of a result, or that of an error, with what the door says beside it."""

    json: Any
    is_error: bool = False
    number: int | None = None  #: of JSON-RPC
    status: int | None = None  #: of the command line
    view: Any = None  #: the frozen value of a result in Python


class Door(Protocol):
    """One way to the operations."""

    name: str

    def ask(self, question: Question) -> Answer | None:
        """Return the answer; None where the question cannot be put here."""


class ApiDoor:
    """The Python API on an open store, and the Python client, which has the same methods."""

    def __init__(self, name: str, target: Any) -> None:
        self.name = name
        self._target = target

    def ask(self, question: Question) -> Answer | None:
        operation = getattr(self._target, question.operation, None)
        if operation is None:
            return None
        try:
            result = operation(**question.params)
        except WfctlError as error:
            return Answer(error.to_json(), is_error=True, number=error.rpc_number, status=error.exit_status)
        return Answer(result.to_json(), view=result)


class RpcDoor:
    """JSON-RPC byte by byte, so that nothing of our own client stands in between."""

    def __init__(self, name: str, asking: BinaryIO, answering: BinaryIO) -> None:
        self.name = name
        self._asking, self._answering = asking, answering

    def ask(self, question: Question) -> Answer | None:
        return read_answer(self.exchange(question_as_request(question)))

    def exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the response as it came: one JSON text on one line."""
        self._asking.write(json.dumps(request).encode() + b"\n")
        self._asking.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the next message."""
        response = json.loads(self._answering.readline())
        assert isinstance(response, dict)
        return response


@contextlib.contextmanager
def socket_door(root: Path) -> Iterator[RpcDoor]:
    """The control socket of the supervisor."""
    with connect_control(root, PATIENCE_S) as connected, connected.makefile("rwb") as stream:
        connected.settimeout(PATIENCE_S)
        yield RpcDoor("rpc", stream, stream)  # type: ignore[arg-type]


@contextlib.contextmanager
def stdio_door(root: Path) -> Iterator[RpcDoor]:
    """A process of `wfctl rpc serve`."""
    argv = [sys.executable, "-m", "wfctl", "--store", str(root), "rpc", "serve"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment()) as process:
        assert process.stdin
        assert process.stdout
        yield RpcDoor("stdio", process.stdin, process.stdout)
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def question_as_request(question: Question) -> dict[str, Any]:
    """Return a question as JSON-RPC 2.0 puts it."""
    return {"jsonrpc": "2.0", "id": 1, "method": BY_OPERATION[question.operation].name, "params": dict(question.params)}


def read_answer(response: Mapping[str, Any]) -> Answer:
    """Return a JSON-RPC response as an answer: of an error the word stands in the data, beside what the error knows."""
    assert (response["jsonrpc"], response["id"]) == ("2.0", 1)
    if "error" not in response:
        return Answer(response["result"])
    assert set(response["error"]) == {"code", "message", "data"}
    data = dict(response["error"]["data"])
    body = {"code": data.pop("code"), "message": response["error"]["message"], "data": data}
    return Answer(body, is_error=True, number=response["error"]["code"])


class CliDoor:
    """The command line with `-o json`, in this process: `wfctl.cli.app.run` is all that `wfctl` itself calls."""

    name = "cli"

    def __init__(self, root: Path) -> None:
        self._root = root

    def ask(self, question: Question) -> Answer | None:
        if question.words is None:
            return None
        said = command_line("--store", str(self._root), "-o", "json", "--yes", *question.words)
        if said.out:
            return Answer(json.loads(said.out), status=said.status)
        (line,) = [each for each in said.err.splitlines() if each.startswith("{")]
        return Answer(json.loads(line), is_error=True, status=said.status)


@dataclass(frozen=True)
class Said:
    """What a command line said, and its exit status."""

    status: int
    out: str
    err: str


def command_line(*words: str) -> Said:
    """Run one command line in this process, its streams caught; what it does to logging is undone."""
    out, err = io.StringIO(), io.StringIO()
    with _logging_kept(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(list(words))
    return Said(status, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    logger = logging.getLogger("wfctl")
    before = logger.handlers[:], logger.propagate
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before


@contextlib.contextmanager
def all_doors(root: Path, *, has_supervisor: bool = True) -> Iterator[list[Door]]:
    """Open every door to a store; without a supervisor those that need none."""
    with contextlib.ExitStack() as stack:
        doors: list[Door] = [ApiDoor("api", stack.enter_context(wfctl.open_store(root))), CliDoor(root)]
        doors.append(stack.enter_context(stdio_door(root)))
        if has_supervisor:
            doors.append(stack.enter_context(socket_door(root)))
            doors.append(ApiDoor("client", stack.enter_context(wfctl.Client(root))))
        yield doors


# Comparing ----------------------------------------------------------------------------------------------------------------

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
_RUN = re.compile(r"run-\d{6}")
_MEASURED = ("cpu_s", "max_rss_bytes")


def same_for_all(value: Any, door: str) -> Any:
    """Return JSON without what must differ from door to door: the ids made for it, instants, digests, the numbers of runs."""
    if isinstance(value, dict):
        return {key: "MEASURED" if key in _MEASURED else same_for_all(item, door) for key, item in value.items()}
    if isinstance(value, list):
        return [same_for_all(item, door) for item in value]
    if not isinstance(value, str):
        return value
    text = re.sub(rf"\.{door}\b", ".DOOR", value)
    for pattern, word in ((_INSTANT, "INSTANT"), (_DIGEST, "DIGEST"), (_RUN, "RUN")):
        text = pattern.sub(word, text)
    return text
