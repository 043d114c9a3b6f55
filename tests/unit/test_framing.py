"""Frames and strict JSON: contract 9.2."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.rpc.framing import MAX_DEPTH, MAX_DIGITS, MAX_FRAME, MalformedFrame, Splitter, decode_frame, encode_frame

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def frames_of(splitter: Splitter) -> list[bytes]:
    frames = []
    while (frame := splitter.pop()) is not None:
        frames.append(frame)
    return frames


@given(st.lists(st.binary(max_size=40).filter(lambda text: b"\n" not in text)), st.binary(max_size=9), st.data())
def test_any_chunking_gives_the_same_frames(frames: list[bytes], rest: bytes, data: st.DataObject) -> None:
    rest = rest.replace(b"\n", b"")
    stream = b"".join(frame + b"\n" for frame in frames) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter, found = Splitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        splitter.feed(stream[start:end])
        while splitter.ready:
            frame = splitter.pop()
            assert frame is not None
            found.append(frame)
        assert splitter.pop() is None
    assert found == frames
    assert splitter.has_partial == bool(rest)


@given(JSON_VALUES)
def test_what_is_encoded_is_decoded(value: object) -> None:
    frame = encode_frame(value)
    assert b"\n" not in frame
    assert decode_frame(frame) == value


def test_a_frame_may_have_a_mebibyte() -> None:
    splitter = Splitter()
    splitter.feed(b"x" * MAX_FRAME)
    assert splitter.pop() is None
    splitter.feed(b"\n")
    assert splitter.pop() == b"x" * MAX_FRAME


@pytest.mark.parametrize(
    "tail", [pytest.param(b"", id="its newline has not come"), pytest.param(b"\n", id="its newline is there")]
)
def test_a_byte_more_is_refused_after_the_frames_before_it(tail: bytes) -> None:
    splitter = Splitter()
    splitter.feed(b"1\n" + b"x" * (MAX_FRAME + 1) + tail)
    assert splitter.pop() == b"1"
    assert splitter.ready
    with pytest.raises(MalformedFrame, match="at most 1048576 bytes"):
        splitter.pop()


def test_a_cleared_splitter_starts_anew() -> None:
    splitter = Splitter()
    splitter.feed(b"x" * (MAX_FRAME + 1))
    splitter.clear()
    splitter.feed(b"1\n2")
    assert frames_of(splitter) == [b"1"]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        pytest.param(b"", "not JSON", id="an empty line"),
        pytest.param(b"{", "not JSON", id="half an object"),
        pytest.param(b"1 2", "not JSON", id="two values"),
        pytest.param(b"{'a': 1}", "not JSON", id="single quotes"),
        pytest.param(b"[1,]", "not JSON", id="a trailing comma"),
        pytest.param(b'"a\tb"', "not JSON", id="a raw control character"),
        pytest.param(b"01", "not JSON", id="a leading zero"),
        pytest.param(b"\xef\xbb\xbf1", "not JSON", id="a byte order mark"),
        pytest.param(b'"\xff"', "not UTF-8 at byte 1", id="no UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "not UTF-8", id="half a pair in UTF-8"),
        pytest.param(b'"\\ud800"', "surrogate", id="half a pair, escaped"),
        pytest.param(b'{"\\udfff": 1}', "surrogate", id="half a pair as a key"),
        pytest.param(b"NaN", "`NaN` is not", id="NaN"),
        pytest.param(b"[Infinity]", "`Infinity` is not", id="Infinity"),
        pytest.param(b"-Infinity", "`-Infinity` is not", id="minus infinity"),
        pytest.param(b"1e999", "out of range", id="a float that would be infinite"),
        pytest.param(b'{"a":1,"b":2,"a":3}', '"a" stands twice', id="a key twice"),
        pytest.param(b'[{"x":{"a":1,"\\u0061":3}}]', '"a" stands twice', id="a key twice, deep and spelled otherwise"),
        pytest.param(b"9" * 5000, "5000 digits", id="more digits than int() takes"),
        pytest.param(b"9" * (MAX_DIGITS + 1), "1001 digits", id="a digit too many"),
        pytest.param(b"[" * 65 + b"]" * 65, "more than 64 deep", id="65 arrays deep"),
        pytest.param(b'{"a":' * 65 + b"1" + b"}" * 65, "more than 64 deep", id="65 objects deep"),
        pytest.param(b"[" * 200_000, "more than 64 deep", id="200,000 open brackets"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, "more than 64 deep", id="200,000 arrays deep"),
    ],
)
def test_what_is_no_strict_json_is_refused(frame: bytes, says: str) -> None:
    with pytest.raises(MalformedFrame, match=says) as caught:
        decode_frame(frame)
    assert (caught.value.rpc_number, caught.value.code) == (-32700, "invalid-argument")


@pytest.mark.parametrize(
    ("frame", "value"),
    [
        pytest.param(b" [1, 2]\r", [1, 2], id="white space around"),
        pytest.param(b'"\\ud83d\\ude00"', "\U0001f600", id="an escaped pair"),
        pytest.param(b'"[[["', "[[[", id="brackets in a string"),
        pytest.param(b'"' + b"[" * 100 + b'"', "[" * 100, id="many brackets in a string"),
        pytest.param(b"9" * MAX_DIGITS, int("9" * MAX_DIGITS), id="a long integer"),
        pytest.param(b"[" + b"[]," * 99 + b"[]]", [[]] * 100, id="many brackets side by side"),
    ],
)
def test_strict_json_is_taken(frame: bytes, value: object) -> None:
    assert decode_frame(frame) == value


def test_sixty_four_deep_is_taken() -> None:
    assert json.dumps(decode_frame(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH


def test_a_key_twice_among_very_many_is_found_quickly() -> None:
    keys = ",".join(f'"{number}":0' for number in [*range(90_000), 89_999])
    with pytest.raises(MalformedFrame, match='"89999" stands twice'):
        decode_frame(f"{{{keys}}}".encode())


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="NaN"),
        pytest.param([math.inf], id="Infinity"),
        pytest.param("\ud800", id="half a pair"),
        pytest.param(nested(65), id="65 deep"),
        pytest.param(nested(5000), id="5000 deep"),
        pytest.param(10**5000, id="a huge integer"),
    ],
)
def test_what_must_not_be_sent_is_not_encoded(value: object) -> None:
    with pytest.raises(ValueError):
        encode_frame(value)


def test_encoding_is_compact_utf8_and_can_be_lenient() -> None:
    assert encode_frame({"a": ["é", None, True, 1.5]}) == '{"a":["é",null,true,1.5]}'.encode()
    assert encode_frame("file-\udcff", lenient=True) == '"file-\ufffd"'.encode()
    assert encode_frame(nested(64)) == b"[" * 64 + b"]" * 64
