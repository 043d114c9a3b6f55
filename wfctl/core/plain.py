"""Reading plain values strictly: every problem is collected with its key path, and nothing is guessed (contract 3.6)."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from typing import Any

from wfctl.core.duration import parse_duration
from wfctl.core.model import Json
from wfctl.core.near import did_you_mean, near
from wfctl.errors import InvalidDefinition, Problem

DEEPEST = 48  #: nesting of an input or a schema; a frame of JSON-RPC holds 64
LARGEST_NUMBER = 2**31 - 1
_HINTS, _HINTED = 20, 128  # unknown keys of a table that get a suggestion, which is not cheap to find; characters of such a key
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def join_path(path: str, key: str) -> str:
    """Given a key path and a key below it, return the longer path: `trigger.every`, `input."a b"`."""
    shown = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
    return f"{path}.{shown}" if path else shown


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean "overlap"?` or, where nothing is close, what there is to choose from."""
    words = list(known)
    close = near(word, words)
    if close:
        return did_you_mean(f'"{each}"' for each in close)
    return f"; it can be {', '.join(words)}" if words else ""


def text_problem(text: str) -> str | None:
    """Return what keeps a text from being stored, or None."""
    if "\0" in text:
        return "has a NUL character; leave it out"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode text; write it as UTF-8"
    return None


class Table:
    """One table of a definition being read. Getters return the value, or None where it is absent, null or wrong."""

    def __init__(self, plain: Any, path: str = "", problems: list[Problem] | None = None) -> None:
        self.problems: list[Problem] = [] if problems is None else problems
        self.path = path
        self._asked: dict[str, None] = {}
        self._plain: Mapping[Any, Any] = {}
        if isinstance(plain, Mapping):
            self._plain = plain
        else:
            self.problem("", f"must be a table, not {name_of(plain)}")

    def problem(self, below: str, message: str, *, meant: Iterable[str] = (), is_key: bool = False) -> None:
        """Note that something is wrong at a key path below this table; with an empty one, with the table.

        `meant` is what was perhaps meant instead of the value or, with `is_key`, of the key.
        """
        path = f"{self.path}.{below}" if self.path and below else self.path or below
        self.problems.append(Problem(path, message, near=tuple(meant), is_key=is_key))

    def has(self, key: str) -> bool:
        """Return whether a value is given. Null is none."""
        return self._plain.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return the value as it is, and count the key as known."""
        self._asked[key] = None
        return self._plain.get(key)

    def close(self) -> None:
        """Note the keys that nobody asked for."""
        unknown = 0
        for key in self._plain:
            if not isinstance(key, str):
                self.problem("", f"has the key {key!r}; keys are text")
            elif key not in self._asked:
                unknown += 1
                known = list(self._asked) if unknown <= _HINTS and len(key) <= _HINTED else []
                said = "is not a known key" + suggestion(key, known)
                self.problem(join_path("", key), said, meant=near(key, known), is_key=True)

    def text(self, key: str) -> str | None:
        """Return a text."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.problem(join_path("", key), f"must be text, not {name_of(value)}")
            return None
        wrong = text_problem(value)
        if wrong:
            self.problem(join_path("", key), wrong)
            return None
        return str(value)

    def choice(self, key: str, words: Iterable[str]) -> str | None:
        """Return one of the words."""
        value, known = self.text(key), list(words)
        if value is None or value in known:
            return value
        self.problem(key, f'cannot be "{value}"' + suggestion(value, known), meant=near(value, known))
        return None

    def integer(self, key: str, least: int) -> int | None:
        """Return a whole number from `least` to 2,147,483,647."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, f"must be a whole number, not {name_of(value)}")
        elif not least <= value <= LARGEST_NUMBER:
            self.problem(key, f"must be from {least} to {LARGEST_NUMBER}, not {name_of(value)}")
        else:
            return int(value)
        return None

    def duration(self, key: str, *, more_than_zero: bool = False) -> timedelta | None:
        """Return a duration, written as `10m`."""
        return self._parse_duration(key, self.raw(key), more_than_zero)

    def duration_or(self, key: str, words: tuple[str, ...]) -> timedelta | str | None:
        """Return one of the words, or a duration of more than zero."""
        value = self.raw(key)
        return value if value in words else self._parse_duration(key, value, True)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            self.problem(key, f"must be a list of texts, not {name_of(value)}")
            return None
        good = True
        for index, item in enumerate(value):
            wrong = text_problem(item) if isinstance(item, str) else f"must be text, not {name_of(item)}"
            if wrong:
                self.problem(f"{key}[{index}]", wrong)
                good = False
        return tuple(str(item) for item in value) if good else None

    def text_table(self, key: str) -> dict[str, str]:
        """Return a table of texts; what is wrong in it is left out."""
        value = self.raw(key)
        if value is None:
            return {}
        below = Table(value, join_path(self.path, key), self.problems)
        found = {name: below.text(name) for name in below._plain if isinstance(name, str)}
        for name in found:
            wrong = text_problem(name)
            if wrong:
                below.problem("", f"has the key {name!r}, which {wrong}")
        below.close()
        return {name: text for name, text in found.items() if text is not None}

    def json(self, key: str, largest: int) -> Any:
        """Return a copy of a value that both JSON and TOML can say, of at most `largest` bytes of JSON."""
        value = self.raw(key)
        if value is None:
            return None
        before = len(self.problems)
        with contextlib.suppress(TypeError, ValueError, RecursionError):  # what is no JSON is said below, with its place
            if (size := len(json_bytes(value))) > largest:
                self.problem(key, f"is {size} bytes of JSON; at most {largest} are taken")
                return None
        copied = copy_json(value, join_path(self.path, key), self.problems)
        if len(self.problems) == before and (size := len(json_bytes(copied))) > largest:
            self.problem(key, f"is {size} bytes of JSON; at most {largest} are taken")
        return copied if len(self.problems) == before else None

    def _parse_duration(self, key: str, value: Any, more_than_zero: bool) -> timedelta | None:
        if value is None:
            return None
        try:
            duration = parse_duration(value)
        except ValueError as error:
            self.problem(key, str(error), meant=getattr(error, "near", ()))
            return None
        if more_than_zero and not duration:
            self.problem(key, "must be longer than zero")
            return None
        return duration


def json_bytes(value: Json) -> bytes:
    """Return the compact JSON of a value, in UTF-8. Raise ValueError for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def copy_json(value: Any, path: str, problems: list[Problem], depth: int = 1, *, nulls: bool = False) -> Json:
    """Return a plain copy of a JSON value; what cannot be kept in a definition is added to `problems`.

    `nulls` says whether null is taken: TOML has none, so a definition cannot hold it.
    """
    if depth > DEEPEST:
        problems.append(Problem(path, f"is nested deeper than {DEEPEST} levels"))
        return None
    if isinstance(value, Mapping):
        return _copy_table(value, path, problems, depth, nulls)
    if isinstance(value, (list, tuple)):
        return [
            item if _is_harmless(item) else copy_json(item, f"{path}[{index}]", problems, depth + 1, nulls=nulls)
            for index, item in enumerate(value)
        ]
    wrong = None if value is None and nulls else _scalar_problem(value)
    if wrong:
        problems.append(Problem(path, wrong))
    return value


def _copy_table(value: Mapping[Any, Any], path: str, problems: list[Problem], depth: int, nulls: bool) -> Json:
    copied = {}
    for key, item in value.items():
        if _is_harmless(key) and type(key) is str and _is_harmless(item):
            copied[key] = item
            continue
        wrong = text_problem(key) if isinstance(key, str) else "is no text"
        if wrong:
            problems.append(Problem(path, f"has the key {key!r}, which {wrong}"))
        else:
            copied[key] = copy_json(item, join_path(path, key), problems, depth + 1, nulls=nulls)
    return copied


def _is_harmless(value: Any) -> bool:
    """Tell quickly of most scalars that there is nothing wrong with them, so that nobody need say where they stand."""
    kind = type(value)
    if kind is str:
        return value.isascii() and "\0" not in value
    return kind is bool or (kind is int and _is_64_bit(value))


def _scalar_problem(value: Any) -> str | None:
    if value is None:
        return "is null, which a TOML file cannot say; leave the key out"
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON cannot say"
    if isinstance(value, (date, time)):  # a datetime is a date
        return f'is a TOML date or time; write it as text: "{value.isoformat()}"'
    if isinstance(value, int) and not _is_64_bit(value):
        return "is a whole number of more than 64 bits; write it as text"
    if isinstance(value, (bool, int, float)):
        return None
    return f"is of a kind that JSON cannot say ({type(value).__name__})"


def _is_64_bit(value: int) -> bool:
    return -(2**63) <= value < 2**63


def name_of(value: Any) -> str:
    """Return what a value is, in the operator's words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}" if isinstance(value, float) or _is_64_bit(value) else "a number of more than 64 bits"
    if isinstance(value, str):
        return f'the text "{value if len(value) <= 40 else value[:37] + "..."}"'
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    return "null" if value is None else f"a {type(value).__name__}"


def raise_problems(subject: str, problems: list[Problem]) -> None:
    """Raise InvalidDefinition that lists the problems; do nothing where there is none."""
    if problems:
        raise InvalidDefinition.of(subject, problems)
