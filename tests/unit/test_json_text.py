"""JSON by the C parts alone: the same values, texts and errors as `json` gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.core import json_text
from wfctl.core.json_text import dumps, dumps_sorted, loads
from wfctl.core.model import Status

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


@given(VALUES)
def test_what_is_written_is_what_json_writes_and_reads(value: Any) -> None:
    assert dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert dumps_sorted(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert repr(loads(dumps(value))) == repr(json.loads(json.dumps(value)))
    assert repr(loads(json.dumps(value, indent=1))) == repr(json.loads(json.dumps(value)))


@given(st.text() | st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \n\\u'))
def test_what_is_no_json_is_refused_in_the_words_of_json(text: str) -> None:
    def told(read: Any) -> str:
        try:
            return repr(read(text))
        except ValueError as error:
            return f"{type(error).__name__}: {error}"

    assert told(loads) == told(json.loads)


@pytest.mark.parametrize("text", ["", " 1 ", "1 2", "[1,]", "nul", '"a\nb"', "\ufeff1", "NaN", "-Infinity", "1" * 5000])
def test_odd_texts(text: str) -> None:
    test_what_is_no_json_is_refused_in_the_words_of_json.hypothesis.inner_test(text)  # type: ignore[attr-defined]


def test_members_of_enums_are_their_words_and_what_json_cannot_say_is_refused_or_named() -> None:
    assert dumps({"a": Status.COMPLETED}) == '{"a":"completed"}'
    assert dumps_sorted([Status.FAILED, {1}]) == '["failed","{1}"]'
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        dumps({1})


def test_where_the_c_parts_are_missing_json_does_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_text._scan is not None
    for name in ("_scan", "_encode", "_encode_sorted"):
        monkeypatch.setattr(json_text, name, None)
    assert loads('{"a": [1, "é"]}') == {"a": [1, "é"]}
    assert dumps({"b": 1, "a": "é"}) == '{"b":1,"a":"é"}'
    assert dumps_sorted({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
