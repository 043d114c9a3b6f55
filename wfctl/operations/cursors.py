"""Cursors: opaque, versioned, bound to their filter; a foreign or damaged one is refused (contract 8.1, 8.2).

The sums in them tell of mistakes, not of malice: a cursor that somebody made up asks for a page of what may be read anyway.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from wfctl.core.json_text import dumps_sorted, loads
from wfctl.errors import BadCursor, InvalidArgument

_VERSION = 1
_SUM_BYTES = 4
SMALLEST_PAGE, LARGEST_PAGE, PAGE = 1, 100, 20
_LARGEST = 2**63 - 1
_FOR_ADDRESSES = bytes.maketrans(b"+/", b"-_")


def check_limit(limit: Any) -> int:
    """Given a page size, return it. Raise InvalidArgument unless it is a whole number from 1 to 100."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not SMALLEST_PAGE <= limit <= LARGEST_PAGE:
        raise InvalidArgument(f"limit must be from {SMALLEST_PAGE} to {LARGEST_PAGE}, not {limit!r}", {"argument": "limit"})
    return limit


def make_cursor(scope: Mapping[str, Any], position: Mapping[str, Any]) -> str:
    """Given what a listing is filtered by and where it stands, return the cursor that goes on from there."""
    body = dumps_sorted([_VERSION, _fingerprint(scope), position]).encode()
    return binascii.b2a_base64(_sum(body) + body, newline=False).translate(_FOR_ADDRESSES).decode().rstrip("=")


def read_cursor(scope: Mapping[str, Any], cursor: Any) -> dict[str, Any]:
    """Given a filter and a cursor of ours, return its position. Raise BadCursor for anything else."""
    import base64

    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        check, body = raw[:_SUM_BYTES], raw[_SUM_BYTES:]
        if _sum(body) != check:
            raise ValueError("damaged")
        version, fingerprint, position = loads(body.decode())
        position = _Position(position)
        if not all(isinstance(each, str) or (isinstance(each, int) and abs(each) <= _LARGEST) for each in position.values()):
            raise ValueError("no position")
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise BadCursor("the cursor is damaged; start again without --cursor", {"argument": "cursor"}) from error
    if version != _VERSION or fingerprint != _fingerprint(scope):
        message = "the cursor belongs to another listing; use it with the filters it was given for, or start without --cursor"
        raise BadCursor(message, {"argument": "cursor"})
    return position


class _Position(dict[str, Any]):
    """Where a listing stands. A cursor can be made up: what it lacks is its fault."""

    def __missing__(self, key: str) -> Any:
        raise BadCursor("the cursor is damaged; start again without --cursor", {"argument": "cursor"})


def _fingerprint(scope: Mapping[str, Any]) -> str:
    text = dumps_sorted(scope).encode()
    return (_sum(text) + _sum(text[::-1])).hex()


def _sum(data: bytes) -> bytes:
    return binascii.crc32(data).to_bytes(_SUM_BYTES, "big")
