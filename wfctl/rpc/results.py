"""What came back over JSON-RPC as the value that the operation returned (contract 9, 9.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from wfctl.errors import ApiVersion
from wfctl.operations import views
from wfctl.operations.views import from_json
from wfctl.rpc.messages import shown


def hints_of(operation: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of an operation's arguments and of its result, by name; what a watch returns does not travel."""
    from pathlib import Path

    return get_type_hints(operation, localns={**vars(views), "Path": Path, "Watch": Any})


def read_result(kind: Any, method: str, given: Any) -> Any:
    """Given the type that an operation returns, and what `method` answered, return the value. Raise ApiVersion."""
    try:
        return from_json(kind, given)
    except ValueError as error:
        message = f"the answer to {shown(method)} cannot be read: {error}; is the other side another version of wfctl?"
        raise ApiVersion(message, {"method": shown(method)}) from error
