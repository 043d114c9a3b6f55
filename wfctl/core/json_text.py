"""JSON by the C parts of the standard library alone, for what nearly every command reads.

`import json` compiles six patterns, which takes a twentieth of a short command; the C parts need none of them. What they cannot
read, and all of it where they are not there, is left to `json`: results and errors are its own.
"""

from __future__ import annotations

from typing import Any, NoReturn


class _Rules:
    """What `json.loads` hands the scanner where nothing else is asked for."""

    strict = True
    array_hook = object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}.__getitem__


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


try:
    from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

    _scan: Any = make_scanner(_Rules)  # type: ignore[arg-type]
    _encode: Any = make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, True)
    _encode_sorted: Any = make_encoder(None, str, encode_basestring_ascii, None, ":", ",", True, False, True)
except (ImportError, TypeError, AttributeError):  # another Python than CPython, or one that changed them
    _scan = _encode = _encode_sorted = None


def loads(text: str) -> Any:
    """Given JSON, return its value, as `json.loads` does. Raise ValueError, RecursionError."""
    try:
        value, end = _scan(text, 0)
    except (StopIteration, TypeError):
        end = -1
    if end == len(text):
        return value
    import json

    return json.loads(text)  # blanks around it, what is wrong with it, or no scanner


def dumps(value: Any) -> str:
    """Return a value as JSON without blanks, its letters as they are. Raise TypeError for what JSON cannot say."""
    if _encode is not None:
        return "".join(_encode(value, 0))
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dumps_sorted(value: Any) -> str:
    """Return a value as JSON in ASCII without blanks, keys sorted, so that equal values give equal text.

    What JSON cannot say stands there as its `str`.
    """
    if _encode_sorted is not None:
        return "".join(_encode_sorted(value, 0))
    import json

    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
