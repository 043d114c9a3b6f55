"""JSON as wfctl takes it from others: no NaN, no duplicate keys, bounded nesting, real Unicode (contract 6.5, 9.2)."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from wfctl.core.model import Json


def parse_json(text: bytes | str, *, deepest: int = 64) -> Json:
    """Given one JSON text, return its value; arrays and objects may nest `deepest` levels.

    Raise ValueError, with a message that says what is wrong, for anything that is not strict JSON.
    """
    try:
        value = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg[0].lower()}{error.msg[1:]} at line {error.lineno}, column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise ValueError(f"nested deeper than {deepest} levels") from error
    if _is_deeper(value, deepest):
        raise ValueError(f"nested deeper than {deepest} levels")
    if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
        _require_unicode(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits} is too large")
    return value


def _is_deeper(value: Json, deepest: int) -> bool:
    level = _containers([value])
    for _ in range(deepest):
        level = _containers([item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)])
    return bool(level)


def _containers(values: list[Json]) -> list[Json]:
    return [value for value in values if isinstance(value, (dict, list))]


def _require_unicode(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair stands alone in a text") from error
