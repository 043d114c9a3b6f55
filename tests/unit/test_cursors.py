"""Cursors are opaque, versioned, bound to their filter; a foreign or damaged one is refused (contract 8.1, 8.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.errors import BadCursor, InvalidArgument
from wfctl.operations.cursors import check_limit, make_cursor, read_cursor

SCOPE = {"list": "wfctl/occurrences.v1", "schedules": ["a"], "times": [None, None]}


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-(2**62), 2**62), st.text()), max_size=3))
def test_what_was_put_in_comes_out(position: dict[str, Any]) -> None:
    cursor = make_cursor(SCOPE, position)
    assert cursor.isascii() and "=" not in cursor and "/" not in cursor and "+" not in cursor, "fit for a URL and a shell"
    assert read_cursor(SCOPE, cursor) == position


def test_the_order_of_a_filter_says_nothing() -> None:
    assert read_cursor(dict(reversed(SCOPE.items())), make_cursor(SCOPE, {"place": 3})) == {"place": 3}


@pytest.mark.parametrize(
    "other", [{}, {**SCOPE, "schedules": ["b"]}, {**SCOPE, "schedules": None}, {**SCOPE, "more": 1}, {**SCOPE, "list": "runs"}]
)
def test_a_foreign_cursor_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(BadCursor, match="another listing"):
        read_cursor(other, make_cursor(SCOPE, {"place": 3}))


@pytest.mark.parametrize("position", [{"place": 2**64}, {"place": 1.5}, {"place": None}, {"place": []}, {"place": {"a": 1}}])
def test_a_cursor_that_was_made_up_is_refused(position: dict[str, Any]) -> None:
    with pytest.raises(BadCursor):
        read_cursor(SCOPE, make_cursor(SCOPE, position))


def test_a_cursor_that_was_made_up_lacks_what_it_lacks() -> None:
    with pytest.raises(BadCursor):
        _ = read_cursor(SCOPE, make_cursor(SCOPE, {}))["place"]


@given(st.one_of(st.text(), st.binary(), st.integers(), st.none(), st.lists(st.text())))
def test_anything_else_is_refused(cursor: Any) -> None:
    with pytest.raises(BadCursor):
        read_cursor(SCOPE, cursor)


@given(st.integers(0, 59), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, flip: int) -> None:
    import base64

    raw = bytearray(base64.urlsafe_b64decode(make_cursor(SCOPE, {"place": 12345678}) + "=="))
    raw[place % len(raw)] ^= flip
    with pytest.raises(BadCursor):
        read_cursor(SCOPE, base64.urlsafe_b64encode(bytes(raw)).decode())


@pytest.mark.parametrize("limit", [1, 20, 100])
def test_limits_from_1_to_100_are_taken(limit: int) -> None:
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, 101, -1, 20.0, "20", None, True])
def test_other_limits_are_refused(limit: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_limit(limit)
    assert caught.value.exit_status == 2
