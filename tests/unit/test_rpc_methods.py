"""Messages, and names -> operations: contract 9 and 9.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from wfctl.errors import ERRORS, ApiVersion, Internal, InvalidArgument, InvalidDefinition, Problem, WfctlError
from wfctl.rpc.framing import MalformedFrame, decode_frame, encode_frame
from wfctl.rpc.messages import (
    InvalidRequest,
    MethodNotFound,
    Response,
    failure,
    id_of,
    notification,
    parse_batch,
    parse_request,
    parse_response,
    request,
    success,
)
from wfctl.rpc.methods import METHODS, dispatch

OPERATIONS = [
    "create_schedule",
    "get_schedule",
    "list_schedules",
    "update_schedule",
    "pause_schedule",
    "resume_schedule",
    "delete_schedule",
    "list_schedule_occurrences",
    "create_deployment",
    "get_deployment",
    "list_deployments",
    "update_deployment",
    "delete_deployment",
    "start_run",
    "resume_run",
    "cancel_run",
    "inspect_run",
    "list_runs",
    "get_occurrence",
    "explain_occurrence",
    "audit_schedule",
    "list_revisions",
    "server_status",
    "reload",
    "drain",
    "watch",
    "poke",
]


@dataclass
class FakeView:
    value: int

    def to_json(self) -> dict[str, int]:
        return {"value": self.value}


class Target:
    def get_schedule(self, schedule_id: str) -> FakeView:
        return FakeView(len(schedule_id))

    def update_schedule(self, schedule_id: str, *, expected_revision: int, **fields: Any) -> dict[str, Any]:
        return {"id": schedule_id, "revision": expected_revision, **fields}

    def list_schedules(self, *, limit: int = 20, cursor: str | None = None) -> list[FakeView]:
        return [FakeView(limit)]

    def server_status(self) -> dict[str, str]:
        return {}

    def secret(self) -> None:
        raise AssertionError("is in no table")


# Requests --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(1, id="a number"),
        pytest.param("x", id="a string"),
        pytest.param(None, id="null"),
        pytest.param({}, id="an empty object"),
        pytest.param({"jsonrpc": "1.0", "method": "m", "id": 1}, id="another version"),
        pytest.param({"jsonrpc": 2.0, "method": "m", "id": 1}, id="the version as a number"),
        pytest.param({"jsonrpc": "2.0", "id": 1}, id="no method"),
        pytest.param({"jsonrpc": "2.0", "method": 1, "id": 1}, id="a number as method"),
        pytest.param({"jsonrpc": "2.0", "method": "m", "params": "x", "id": 1}, id="a string as params"),
        pytest.param({"jsonrpc": "2.0", "method": "m", "params": None, "id": 1}, id="null as params"),
        pytest.param({"jsonrpc": "2.0", "method": "m", "id": {}}, id="an object as id"),
        pytest.param({"jsonrpc": "2.0", "method": "m", "id": True}, id="a boolean as id"),
        pytest.param({"jsonrpc": "2.0", "method": "m", "id": "x" * 257}, id="an id that is too long"),
        pytest.param({"jsonrpc": "2.0", "result": 1, "id": 1}, id="an answer"),
        pytest.param([[]], id="an array in an array"),
    ],
)
def test_what_is_no_request_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(value)
    assert caught.value.rpc_number == -32600


@pytest.mark.parametrize(
    ("given", "told"),
    [({"id": 7}, 7), ({"id": "a"}, "a"), ({"id": []}, None), ({"id": "x" * 999}, None), ([], None), ({}, None)],
)
def test_the_id_of_an_invalid_request_is_told_where_it_can_be(given: object, told: object) -> None:
    assert id_of(given) == told


def test_without_an_id_it_is_a_notification_and_null_is_an_id() -> None:
    assert parse_request({"jsonrpc": "2.0", "method": "m"}).is_notification
    assert not parse_request({"jsonrpc": "2.0", "method": "m", "id": None}).is_notification


def test_parameters_are_named() -> None:
    assert parse_request({"jsonrpc": "2.0", "method": "m", "id": 1}).named_params() == {}
    assert parse_request({"jsonrpc": "2.0", "method": "m", "params": [], "id": 1}).named_params() == {}
    by_position = parse_request({"jsonrpc": "2.0", "method": "m", "params": ["x"], "id": 1})
    with pytest.raises(InvalidArgument, match="by name"):
        by_position.named_params()


def test_a_batch_has_one_to_a_hundred_members() -> None:
    assert len(parse_batch([1] * 100)) == 100
    for members in ([], [1] * 101):
        with pytest.raises(InvalidRequest):
            parse_batch(members)


# Answers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_every_error_comes_back_as_itself(kind: type[WfctlError]) -> None:
    sent = kind("why", {"id": "x", "n": 1})
    message = failure(3, sent)
    assert message["error"]["code"] == kind.rpc_number
    assert message["error"]["data"]["code"] == kind.code
    read = parse_response(decode_frame(encode_frame(message)))
    assert read.id == 3
    assert type(read.error) is kind
    assert read.error.to_json() == sent.to_json()


def test_the_problems_of_a_definition_come_back() -> None:
    sent = InvalidDefinition.of("x", [Problem("trigger.expression", "is wrong", 3), Problem("notes", "is long")])
    read = parse_response(failure(1, sent)).error
    assert isinstance(read, InvalidDefinition)
    assert read.problems == sent.problems


@pytest.mark.parametrize(
    ("error", "number", "comes_back_as"),
    [
        (MalformedFrame("x"), -32700, InvalidArgument),
        (InvalidRequest("x"), -32600, InvalidArgument),
        (MethodNotFound("x"), -32601, ApiVersion),
        (InvalidArgument("x"), -32602, InvalidArgument),
        (Internal("x"), -32603, Internal),
    ],
)
def test_the_standard_numbers(error: WfctlError, number: int, comes_back_as: type[WfctlError]) -> None:
    message = failure(None, error)
    assert message["error"]["code"] == number
    assert type(parse_response(message).error) is comes_back_as
    del message["error"]["data"]  # as another server might write it
    assert type(parse_response(message).error) is comes_back_as


def test_an_unknown_word_is_kept_readable() -> None:
    body = {"code": -1, "message": "newer", "data": {"code": "newer-word", "n": 1}}
    read = parse_response({"jsonrpc": "2.0", "id": 1, "error": body}).error
    assert isinstance(read, Internal)
    assert read.data == {"code": "newer-word", "n": 1}


def test_results_and_notifications_are_read() -> None:
    assert parse_response(success(1, None)) == Response(id=1)
    assert parse_response(notification("m", {"a": 1})) == Response(method="m", result={"a": 1})


@pytest.mark.parametrize(
    "value", [1, [], {}, {"jsonrpc": "2.0", "id": 1}, success(1, 1) | failure(1, Internal("x")), request("m", {}, 1)]
)
def test_what_is_no_answer_is_another_version(value: object) -> None:
    with pytest.raises(ApiVersion):
        parse_response(value)


# Operations ------------------------------------------------------------------------------------------------------------


def test_the_table_has_every_operation_once() -> None:
    assert sorted(method.operation for method in METHODS) == sorted(OPERATIONS)
    assert len({method.name for method in METHODS}) == len(METHODS)


def test_a_view_goes_out_as_json() -> None:
    assert dispatch(Target(), "workflow.schedules.get", {"schedule_id": "abc"}) == {"value": 3}
    assert dispatch(Target(), "workflow.schedules.list", {"limit": 4}) == [{"value": 4}]
    assert dispatch(Target(), "workflow.server.status", {}) == {}


def test_free_fields_reach_the_operation() -> None:
    params = {"schedule_id": "a", "expected_revision": 2, "notes": "n"}
    assert dispatch(Target(), "workflow.schedules.update", params) == {"id": "a", "revision": 2, "notes": "n"}


@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        pytest.param("get", {}, ["`schedule_id` is missing"], id="missing"),
        pytest.param("get", {"schedule": "a"}, ["unknown parameter `schedule`", "did you mean `schedule_id`?"], id="misspelt"),
        pytest.param("get", {"schedule_id": "a", "zzz": 1}, ["unknown parameter `zzz`", "it takes schedule_id"], id="unknown"),
        pytest.param("get", {"self": 1, "schedule_id": "a"}, ["unknown parameter `self`"], id="self"),
        pytest.param("list", {"limits": 1, "cursr": "x"}, ["`limits`", "`limit`", "`cursr`", "`cursor`"], id="all at once"),
        pytest.param(
            "update", {"notes": "n"}, ["`schedule_id` is missing", "`expected_revision` is missing"], id="two missing"
        ),
    ],
)
def test_wrong_parameters_are_named(method: str, params: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        dispatch(Target(), f"workflow.schedules.{method}", params)
    assert all(part in caught.value.message for part in says), caught.value.message
    assert caught.value.data["method"] == f"workflow.schedules.{method}"


@pytest.mark.parametrize(
    ("method", "says"),
    [
        pytest.param("workflow.schedules.gett", "did you mean `workflow.schedules.get`", id="misspelt"),
        pytest.param("secret", "no method of this version", id="an attribute of no table"),
        pytest.param("get_schedule", "no method of this version", id="the operation's own name"),
        pytest.param("workflow.runs.start", "not offered here", id="the target lacks it"),
        pytest.param("x" * 1_000_000, "no method", id="a name of a megabyte"),
    ],
)
def test_an_unknown_method_is_not_found(method: str, says: str) -> None:
    with pytest.raises(MethodNotFound, match=says) as caught:
        dispatch(Target(), method, {})
    assert caught.value.rpc_number == -32601
    assert len(caught.value.message) < 300
