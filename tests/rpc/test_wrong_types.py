"""Every method with values that nobody should send: each call is a result or a typed error, never a bug (contract 9.1, 9.2)."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.history import world_with_history
from wfctl.core.definition import LARGEST_INPUT
from wfctl.errors import Internal, WfctlError
from wfctl.operations.store import Store
from wfctl.rpc.framing import decode_frame, encode_frame
from wfctl.rpc.messages import failure, parse_request, success
from wfctl.rpc.methods import METHODS, Method, as_json
from wfctl.rpc.session import Deferred, Encoded, Session

LONG = "x" * (LARGEST_INPUT + 1000)
DEEP: Any = json.loads("[" * 50 + "]" * 50)
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus one": -1,
    "one": 1,
    "a fraction": 1.5,
    "a whole number as a fraction": 2.0,
    "a tiny fraction": 5e-324,
    "the largest fraction": 1.7976931348623157e308,
    "minus zero": -0.0,
    "beyond 64 bits": 1 << 63,
    "a huge integer": 10**900,
    "a huge negative integer": -(10**900),
    "empty text": "",
    "a blank": " ",
    "a NUL": "a\0b",
    "only a NUL": "\0",
    "control characters": "\x1b[31m\x7f\x85\u2028",
    "an astral character": "\U0001f600",
    "text from right to left": "\u202edcba",
    "a combining character": "e\u0301",
    "a byte order mark": "\ufeffa",
    "a noncharacter": "\uffff",
    "a very long text": LONG,
    "a path": "../../etc/passwd",
    "a comma": ",",
    "a percent sign": "%s%n{0}{x!r}",
    "SQL": "' OR 1=1; --",
    "an instant": "2027-03-01T09:00:00Z",
    "an instant of the year 1": "0001-01-01T00:00:00+23:59",
    "an instant of the year 0": "0000-01-01T00:00:00Z",
    "an instant of the year 9999": "9999-12-31T23:59:59.999999-23:59",
    "an instant with a strange offset": "2027-03-01T09:00:00+24:00",
    "an instant with a fraction of an offset": "2027-03-01T09:00:00+01:00:30.5",
    "an instant with too many digits": "2027-03-01T09:00:00.1234567890123Z",
    "a naive instant": "2027-03-01T09:00:00",
    "an instant with a leap second": "2027-03-01T23:59:60Z",
    "an instant in Arabic digits": "\u0662\u0660\u0662\u0667-03-01T09:00:00Z",
    "a duration": "10m",
    "an endless duration": "99999999999999999999w",
    "a negative duration": "-5s",
    "a run's id": "run-000001",
    "a run's id beyond 64 bits": "run-" + "9" * 40,
    "a run's id in Arabic digits": "run-\u0660\u0660\u0660\u0660\u0660\u0661",
    "a cursor that is none": "AAAA",
    "a cursor of another version": "YWJjZGVmWzIsIjAiLHt9XQ",
    "an empty list": [],
    "a list of nulls": [None],
    "a list of numbers": [1, 2],
    "a list of empty texts": ["", ""],
    "a list of lists": [[]],
    "a list of very many": ["x"] * 2000,
    "deep lists": DEEP,
    "an empty object": {},
    "an object": {"a": 1},
    "an object with an empty key": {"": None},
    "an object with a NUL as key": {"\0": "\0"},
    "an object of objects": {"a": {"b": {"c": [None, True, {"d": {}}]}}},
    "a trigger of no kind": {"kind": None},
    "a trigger of a strange kind": {"kind": ["cron"]},
    "a cron of numbers": {"kind": "cron", "expression": 5, "timezone": 5},
    "a cron of lists": {"kind": "cron", "expression": ["* * * * *"], "timezone": ["UTC"]},
    "a cron in a file": {"kind": "cron", "expression": "* * * * *", "timezone": "../../../etc/passwd"},
    "a cron with a NUL as zone": {"kind": "cron", "expression": "* * * * *", "timezone": "\0"},
    "a cron of huge numbers": {"kind": "cron", "expression": "9" * 200 + " * * * *"},
    "an interval of a number": {"kind": "interval", "every": 10},
    "an endless interval": {"kind": "interval", "every": "999999999999w"},
    "a oneshot of a number": {"kind": "oneshot", "at": 0},
    "a oneshot at the end of time": {"kind": "oneshot", "at": "9999-12-31T23:59:59.999999Z"},
    "a oneshot at its beginning": {"kind": "oneshot", "at": "0001-01-01T00:00:00Z"},
    "a oneshot beyond the end of time": {"kind": "oneshot", "at": "9999-12-31T23:59:59-23:59"},
}  # fmt: skip
#: What makes a call that is right but for one parameter.
RIGHT: dict[str, Any] = {
    "schedule_id": "a",
    "deployment_id": "d",
    "run_id": "run-000001",
    "expected_revision": 1,
    "trigger": {"kind": "interval", "every": "1h"},
    "command": ["/bin/true"],
    "instant": "2027-03-01T09:01:00Z",
}
FIELDS = {
    "update_schedule": ("deployment_id", "trigger", "input", "notes", "overlap", "max_active_runs", "misfire", "lateness",
                        "max_run", "max_steps", "notify"),
    "update_deployment": ("command", "steps", "description", "working_directory", "environment", "environment_files",
                          "kill_grace", "umask", "executor", "files", "input_schema", "retries", "retry_delay", "timeout"),
}  # fmt: skip
NESTED = {
    "steps": lambda value: [{"name": "a", "command": ["/bin/true"], key: value} for key in ("name", "command", "retries")],
    "environment": lambda value: {"A": value},
    "input_schema": lambda value: {"properties": value},
    "files": lambda value: {"a": value},
    "notify": lambda value: {"command": value, "after": value},
    "input": lambda value: {"a": value},
    "command": lambda value: ["/bin/true", value],
    "unset": lambda value: [value],
    "schedule_id": lambda value: [value],
    "status": lambda value: [value],
}


class Desk:
    """What answers in a supervisor: the loop's part is done by who asks."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.operations: Store = service._desk

    def answer(self, frame: bytes) -> Any:
        """From a frame to a frame, as the server does. Return the result or the error; a bug is raised."""
        request = parse_request(decode_frame(frame))
        try:
            result = self._service._answer(request.method, request.named_params(), Session(lambda *_: None))
        except WfctlError as error:
            return self._sent(None, error)
        if not isinstance(result, Deferred):
            return self._sent(result, None)
        came: list[tuple[Any, WfctlError | None]] = []
        result.when_done(lambda result, error: came.append((result, error)))
        deadline = time.monotonic() + 20
        while not came:
            assert time.monotonic() < deadline, "no answer came"
            self._service._hand_out() or time.sleep(0.0001)
        return self._sent(*came[0])

    @staticmethod
    def _sent(result: Any, error: WfctlError | None) -> Any:
        assert not isinstance(error, Internal), error.message
        if error is not None:
            encode_frame(failure(1, error), lenient=True)
        elif isinstance(result, Encoded):
            decode_frame(result.answer(1))
        else:
            encode_frame(success(1, as_json(result)), lenient=True)
        return result if error is None else error


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A supervisor's desk over a store with a schedule, its history and runs."""
    world = world_with_history(tmp_path_factory.mktemp("wrong") / "store", 3)
    yield Desk(world._service)
    world.stop()


def operation_of(desk: Desk, method: Method) -> Any:
    found = getattr(desk.operations, method.operation, None)
    return found if found is not None else pytest.skip(f"{method.name} is not offered by a desk")


def names_of(desk: Desk, method: Method) -> list[str]:
    named = inspect.signature(operation_of(desk, method)).parameters.values()
    return [each.name for each in named if each.kind is not each.VAR_KEYWORD] + list(FIELDS.get(method.operation, ()))


def call(desk: Desk, method: Method, params: Mapping[str, Any]) -> Any:
    return desk.answer(encode_frame({"jsonrpc": "2.0", "id": 1, "method": method.name, "params": params}))


def right(desk: Desk, method: Method) -> dict[str, Any]:
    """Return parameters with which the method does as little as possible."""
    parameters = inspect.signature(operation_of(desk, method)).parameters.values()
    given = {each.name: RIGHT[each.name] for each in parameters if each.name in RIGHT and each.default is each.empty}
    if "dry_run" in {each.name for each in parameters}:
        given["dry_run"] = True
    if method.operation == "drain":
        given["undo"] = True
    return given


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_9_2_each_parameter_with_each_wrong_value(desk: Desk, method: Method, caplog: pytest.LogCaptureFixture) -> None:
    given = right(desk, method)
    for name in names_of(desk, method):
        for label, value in VALUES.items():
            for each in (value, NESTED[name](value)) if name in NESTED else (value,):
                try:
                    call(desk, method, {**given, name: each})
                except Exception as bug:
                    bug.add_note(f"{method.name} with {name} = {label}")
                    raise
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_9_2_parameters_of_strange_names_are_invalid_arguments(desk: Desk, method: Method) -> None:
    operation_of(desk, method)
    for name in ("", "\0", "self", "dry-run", "__class__", "detach", "x" * 100_000, "\u202e"):
        for value in (None, {}, LONG):
            error = call(desk, method, {name: value})
            assert isinstance(error, WfctlError), name[:20]
            assert error.rpc_number == -32602, name[:20]


@pytest.mark.parametrize("limit", [-1, 0, 101, 10**30, 1.5, 1.0, True, "5", [], {}])
@pytest.mark.parametrize(
    "method",
    [method for method in METHODS if method.operation in ("list_runs", "list_schedule_occurrences", "list_schedules",
                                                          "list_deployments", "list_revisions")],
    ids=lambda method: method.name,
)  # fmt: skip
def test_8_1_a_limit_is_a_whole_number_from_1_to_100(desk: Desk, method: Method, limit: Any) -> None:
    error = call(desk, method, {**right(desk, method), "limit": limit})
    assert isinstance(error, WfctlError)
    assert error.code == "invalid-argument"
