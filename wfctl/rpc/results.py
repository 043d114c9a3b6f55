"""What came back over JSON-RPC as the value that the operation returned (contract 9, 9.4)."""

from __future__ import annotations

from typing import Any

from wfctl.errors import ApiVersion
from wfctl.operations.views import from_json
from wfctl.rpc.messages import shown


def read_result(kind: Any, method: str, given: Any) -> Any:
    """Given the type that an operation returns, and what `method` answered, return the value. Raise ApiVersion."""
    try:
        return from_json(kind, given)
    except ValueError as error:
        message = f"the answer to {shown(method)} cannot be read: {error}; is the other side another version of wfctl?"
        raise ApiVersion(message, {"method": shown(method)}) from error
