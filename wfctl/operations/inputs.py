"""Input schemas and the inputs they take: JSON Schema 2020-12, in linear time, nothing fetched (contract 3.6, 3.7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from wfctl.core.definition import LARGEST_INPUT, LARGEST_SCHEMA
from wfctl.core.model import Json
from wfctl.core.plain import copy_json, join_path, json_bytes, name_of
from wfctl.core.schema_cost import MOST_LOOKS, looks_at_one_place
from wfctl.core.strict_json import parse_json
from wfctl.errors import InvalidDefinition, Problem

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_PROBLEMS = 100  #: of one input that are listed
LONGEST_MESSAGE = 400
LISTED_UP_TO = 2000  #: looks at all places of an input whose problems are all listed; of a larger one, the first is
_KEPT = 64  # schemas whose validator is held in memory
_DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})  #: hold values, not schemas
_NAMES_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  #: hold names

Schema = Mapping[str, Json] | bool


def compile_schema(schema: Schema, path: str = "input_schema") -> None:
    """Given an input schema, raise InvalidDefinition, with key paths, when it cannot be used (contract 3.7)."""
    problems: list[Problem] = []
    plain = copy_json(schema, path, problems, nulls=True)
    if not problems:
        problems = list(_problems_of(json_bytes(plain), path))
    if problems:
        raise InvalidDefinition.of("input schema", problems)


def check_input(schema: Schema | None, bound: Any, path: str = "input") -> list[Problem]:
    """Given a schema, or None for anything, and an input, return every problem of the input with its key path; at most 100.

    The schema is one that `compile_schema` takes; one that it refuses is a problem of the input too: nothing passes it.
    """
    if not isinstance(bound, Mapping):
        return [Problem(path, f"must be a table of names and values, not {name_of(bound)}")]
    problems: list[Problem] = []
    with contextlib.suppress(TypeError, ValueError, RecursionError):  # what is no JSON is said below, with its place
        problems = _size_problems(len(json_bytes(bound)), path)
    if problems:
        return problems
    plain = copy_json(bound, path, problems, nulls=True)
    if problems:
        return problems[:MOST_PROBLEMS]
    text = json_bytes(plain)
    if schema is None or (problems := _size_problems(len(text), path)):
        return problems
    content = json_bytes(schema)
    if refused := _problems_of(content, "input_schema"):
        return list(refused)
    return list(_input_problems(content, plain, text.count(b",") + 1, path))


def _size_problems(size: int, path: str) -> list[Problem]:
    return [Problem(path, f"is {size} bytes of JSON; at most {LARGEST_INPUT} are taken")] if size > LARGEST_INPUT else []


def _input_problems(content: bytes, plain: Json, places: int, path: str) -> Iterator[Problem]:
    """What is wrong with an input. jsonschema-rs 0.61.2 takes 10 to 20 us an error, all at once and with Python's lock held."""
    import jsonschema_rs

    validator = _validator(content)
    if validator.is_valid(plain):
        return
    if places * looks_at_one_place(parse_json(content)) > LISTED_UP_TO:
        try:
            validator.validate(plain)
        except jsonschema_rs.ValidationError as error:
            yield Problem(_path_below(path, error.instance_path), _shorten(error.message))
        return
    for count, found in enumerate(validator.iter_errors(plain)):
        if count == MOST_PROBLEMS:
            return
        yield Problem(_path_below(path, found.instance_path), _shorten(found.message))


@lru_cache(maxsize=_KEPT)
def _problems_of(content: bytes, path: str) -> tuple[Problem, ...]:
    """Given a schema as JSON, return why it cannot be used. What was found is kept: schemas are asked about again and again."""
    if len(content) > LARGEST_SCHEMA:
        return (Problem(path, f"is {len(content)} bytes of JSON; at most {LARGEST_SCHEMA} are taken"),)
    schema = parse_json(content)
    found = list(_reference_problems(schema, path)) or _compile_problems(schema, content, path)
    if not found and looks_at_one_place(schema) > MOST_LOOKS:
        why = f"makes more than {MOST_LOOKS} looks at one place of an input; let its references lead to each other less often"
        found = [Problem(path, why)]
    return tuple(found)


def _compile_problems(schema: Json, content: bytes, path: str) -> list[Problem]:
    if not isinstance(schema, (dict, bool)):
        return [Problem(path, f"must be a table: a JSON Schema of draft 2020-12, not {name_of(schema)}")]
    try:
        _validator(content)
    except _CannotCompile as error:
        message = error.message
        if error.keyword == "pattern":
            message += "; patterns have no look-around and no back-references, so that their time is linear"
        return [Problem(_path_below(path, error.path), message)]
    return []


class _CannotCompile(Exception):
    def __init__(self, message: str, path: list[str | int]) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.keyword = path[-1] if path else None


@lru_cache(maxsize=_KEPT)
def _validator(content: bytes) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
            parse_json(content),
            pattern_options=jsonschema_rs.RegexOptions(),  # the engine that is linear in the text
            validate_formats=True,
            retriever=_refuse,
        )
    except jsonschema_rs.ValidationError as error:
        raise _CannotCompile(_shorten(error.message), list(error.instance_path)) from error
    except ValueError as error:
        raise _CannotCompile(_shorten(str(error)), []) from error


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema")


def _reference_problems(schema: Json, path: str) -> Iterator[Problem]:
    """What points out of the schema: references, and dialects that are not ours."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _reference_problems(item, f"{path}[{index}]")
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        below = join_path(path, key)
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            yield Problem(below, f'points outside the schema ("{value}"); copy it into $defs and write "#/$defs/NAME"')
        elif key == "$schema" and isinstance(value, str) and value.rstrip("#") != DIALECT:
            yield Problem(below, f'is "{value}"; schemas are of draft 2020-12: write "{DIALECT}" or leave it out')
        elif key in _NAMES_OF_SCHEMAS and isinstance(value, dict):
            for name, item in value.items():
                yield from _reference_problems(item, join_path(below, name))
        elif key not in _DATA_KEYWORDS:
            yield from _reference_problems(value, below)


def _path_below(path: str, parts: list[str | int]) -> str:
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else join_path(path, part)
    return path


def _shorten(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."
