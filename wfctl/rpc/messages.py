"""JSON-RPC 2.0 messages: what a request must look like, and how results and typed errors are written and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from wfctl.errors import BY_CODE, ERRORS, ApiVersion, Internal, InvalidArgument, WfctlError, error_from_json
from wfctl.value import Value

RequestId = str | int | float | None
MAX_BATCH = 100  #: requests in one batch
MAX_ID = 256  #: characters of a request's id, which is sent back


class InvalidRequest(InvalidArgument):
    """JSON that is no JSON-RPC 2.0 request."""

    rpc_number: ClassVar[int] = -32600


class MethodNotFound(ApiVersion):
    """This side has no method of that name; another version may."""

    rpc_number: ClassVar[int] = -32601


class Request(Value):
    """A valid request; a notification is one that wants no answer."""

    method: str
    params: Mapping[str, Any] | tuple[Any, ...]
    id: RequestId = None
    is_notification: bool = False

    def named_params(self) -> dict[str, Any]:
        """Return the parameters by name. Raise InvalidArgument when they came by position."""
        if isinstance(self.params, Mapping):
            return dict(self.params)
        if self.params:
            raise InvalidArgument(f"{shown(self.method)}: parameters are given by name, as an object, not as an array")
        return {}


class Response(Value):
    """What a client reads: a result, an error, or a notification (`method` is set)."""

    id: RequestId = None
    result: Any = None
    error: WfctlError | None = None
    method: str | None = None


def shown(text: str, limit: int = 80) -> str:
    """Return text of somebody else's making, cut so that it can be quoted in a message."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def parse_request(value: Any) -> Request:
    """Given one JSON value (not a batch), return the request. Raise InvalidRequest saying what is wrong with it."""
    if not isinstance(value, dict):
        raise InvalidRequest("a request is an object with `jsonrpc`, `method`, and usually `params` and `id`")
    if value.get("jsonrpc") != "2.0":
        raise InvalidRequest('a request says `"jsonrpc": "2.0"`')
    method, params = value.get("method"), value.get("params", {})
    if not isinstance(method, str):
        raise InvalidRequest("`method` is a string")
    if not isinstance(params, (dict, list)):
        raise InvalidRequest("`params` is an object")
    if "id" in value and not _is_id(value["id"]):
        raise InvalidRequest(f"`id` is a string of at most {MAX_ID} characters, a number or null")
    return Request(
        method=method,
        params=params if isinstance(params, dict) else tuple(params),
        id=value.get("id"),
        is_notification="id" not in value,
    )


def parse_batch(value: list[Any]) -> list[Any]:
    """Given an array, return its members to be parsed one by one. Raise InvalidRequest for an empty or overlong one."""
    if not value:
        raise InvalidRequest("a batch holds at least one request")
    if len(value) > MAX_BATCH:
        raise InvalidRequest(f"a batch of {len(value)} requests, at most {MAX_BATCH} are taken", {"limit": MAX_BATCH})
    return value


def id_of(value: Any) -> RequestId:
    """Return the id of a request that may be invalid: None when it cannot be told."""
    given = value.get("id") if isinstance(value, dict) else None
    return given if _is_id(given) else None


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def request(method: str, params: Mapping[str, Any], request_id: RequestId) -> dict[str, Any]:
    """Return the message that asks for `method`."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message that tells something and wants no answer."""
    return {"jsonrpc": "2.0", "method": method, "params": dict(params)}


def success(request_id: RequestId, result: Any) -> dict[str, Any]:
    """Return the answer that carries a result."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: RequestId, error: WfctlError) -> dict[str, Any]:
    """Return the answer that carries a typed error: its number as `code`, its word within `data` (contract 9.1)."""
    body = {"code": error.rpc_number, "message": error.message, "data": {**error.data, "code": error.code}}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def parse_response(value: Any) -> Response:
    """Given what a server sent, return it as a result, a typed error or a notification. Raise ApiVersion for anything else."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0" or not _is_id(value.get("id")):
        raise ApiVersion("the other side does not speak JSON-RPC 2.0")
    if "result" in value and "error" not in value:
        return Response(id=value.get("id"), result=value["result"])
    if isinstance(value.get("error"), dict) and "result" not in value:
        return Response(id=value.get("id"), error=_read_error(value["error"]))
    if isinstance(value.get("method"), str) and "id" not in value:
        return Response(method=value["method"], result=value.get("params"))
    raise ApiVersion("the other side sent neither a result nor an error")


_BY_NUMBER: dict[Any, type[WfctlError]] = {
    **{error.rpc_number: error for error in ERRORS},
    MethodNotFound.rpc_number: ApiVersion,
    InvalidRequest.rpc_number: InvalidArgument,
    -32700: InvalidArgument,
}


def _read_error(body: dict[str, Any]) -> WfctlError:
    message = str(body.get("message", "the other side gave no reason"))
    data = body["data"] if isinstance(body.get("data"), dict) else {}
    word = data.get("code")
    if isinstance(word, str) and word in BY_CODE:
        return error_from_json(word, message, {key: item for key, item in data.items() if key != "code"})
    number = body.get("code")
    known = _BY_NUMBER.get(number, Internal) if isinstance(number, int) else Internal
    return known(message, data)  # a word of a newer version stays readable within `data`
