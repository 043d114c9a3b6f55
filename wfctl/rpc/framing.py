"""Frames and strict JSON (contract 9.2): one JSON text on one line, at most 1 MiB, nesting 64 deep, in both directions."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, ClassVar, NoReturn

from wfctl.errors import InvalidArgument

MAX_FRAME = 1 << 20  #: bytes of one JSON text, its newline not counted
MAX_DEPTH = 64  #: arrays and objects within each other
MAX_VALUES = 100_000  #: values that a request may hold: a MiB of empty objects would take 200 ms to read, and 25 MiB to hold
MAX_DIGITS = 1000  #: of one integer; int() is quadratic, and refuses more than 4300 with an error of its own

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STEPS = bytes({ord("["): 1, ord("{"): 1}.get(byte, 255) for byte in range(256))  # read as signed: 1 opens, -1 closes
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class MalformedFrame(InvalidArgument):
    """Bytes that are no frame, or a frame that is no strict JSON. It ends the connection that sent it."""

    rpc_number: ClassVar[int] = -32700


class Splitter:
    """Cuts a stream of bytes into frames, however the bytes arrive. It holds at most one frame and what came with it.

    An overlong frame is noticed as soon as its length is, not at its end, and after the frames that stood before it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # no newline before this position, so that dripping bytes are not searched again and again
        self._end = -1  # where the newline of the next frame stands, -1 when it has not come

    def feed(self, data: bytes) -> None:
        """Take in what was read."""
        self._buffer += data
        self._search()

    @property
    def ready(self) -> bool:
        """Whether `pop` has something to say: a frame or a refusal."""
        return self._end >= 0 or len(self._buffer) > MAX_FRAME

    @property
    def has_partial(self) -> bool:
        """Whether bytes of an unfinished frame are held."""
        return self._end < 0 and bool(self._buffer)

    def pop(self) -> bytes | None:
        """Return the next frame without its newline, None when it is not complete. Raise MalformedFrame for an overlong one."""
        length = self._end if self._end >= 0 else len(self._buffer)
        if length > MAX_FRAME:
            raise MalformedFrame(f"a frame is at most {MAX_FRAME} bytes, ended by a newline", {"limit": MAX_FRAME})
        if self._end < 0:
            return None
        frame = bytes(self._buffer[: self._end])
        del self._buffer[: self._end + 1]
        self._searched, self._end = 0, -1
        self._search()
        return frame

    def clear(self) -> None:
        """Forget everything that was taken in."""
        self._buffer.clear()
        self._searched, self._end = 0, -1

    def _search(self) -> None:
        if self._end < 0:
            self._end = self._buffer.find(b"\n", self._searched)
            self._searched = len(self._buffer)


def decode_frame(frame: bytes, *, most_values: int | None = None) -> Any:
    """Given one frame, return the value it says. Raise MalformedFrame unless it is strict JSON in UTF-8.

    `most_values` bounds what it may hold, roughly: commas and brackets within its strings count, too.
    """
    if most_values is not None and frame.count(b",") + frame.count(b"[") + frame.count(b"{") > most_values:
        raise MalformedFrame(f"more than {most_values} values in one frame", {"limit": most_values})
    try:
        text = frame.decode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise MalformedFrame(f"not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if is_too_deep(frame):
        raise _too_deep()
    if "\\u" in text and _has_surrogate(value):
        raise MalformedFrame("a string holds half of a surrogate pair")
    return value


def encode_frame(value: Any, *, lenient: bool = False) -> bytes:
    """Given a JSON value, return its compact text in UTF-8, without the newline.

    `lenient` writes U+FFFD for what is no text, such as the bytes of a file's name; else that is a ValueError.
    Raise ValueError for NaN, too deep nesting, or an integer of too many digits, TypeError for what is no JSON value.
    The length is not checked.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from error
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError as error:
        if not lenient:
            raise ValueError("a string holds half of a surrogate pair") from error
        encoded = _SURROGATE.sub("\ufffd", text).encode("utf-8")
    if is_too_deep(encoded):
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return encoded


def is_too_deep(text: bytes) -> bool:
    """Given valid JSON, return whether arrays and objects are nested more than `MAX_DEPTH` deep; its time is linear."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRINGS.sub(b"", text).translate(None, _NO_BRACKETS)
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0) > MAX_DEPTH


def _has_surrogate(value: Any) -> bool:
    """Asked only where the text has escapes: raw UTF-8 cannot say half a pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _too_deep() -> MalformedFrame:
    return MalformedFrame(f"arrays and objects are nested more than {MAX_DEPTH} deep", {"limit": MAX_DEPTH})


def _refuse_constant(word: str) -> NoReturn:
    raise MalformedFrame(f"`{word}` is not a JSON number")


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise MalformedFrame(f"an integer of {len(digits)} digits, at most {MAX_DIGITS} are read", {"limit": MAX_DIGITS})
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedFrame(f"the number `{digits[:40]}` is out of range")
    return number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedFrame(f"the key {json.dumps(twice[:80])} stands twice in one object")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=_bounded_int, parse_float=_finite_float
)
