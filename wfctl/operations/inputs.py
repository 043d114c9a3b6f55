"""Input schemas and the inputs they take: JSON Schema 2020-12, in linear time, nothing fetched (contract 3.6, 3.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from wfctl.core.definition import LARGEST_INPUT, LARGEST_SCHEMA
from wfctl.core.model import Json
from wfctl.core.plain import copy_json, join_path, json_bytes, name_of
from wfctl.core.strict_json import parse_json
from wfctl.errors import InvalidDefinition, Problem

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_PROBLEMS = 100  #: of one input that are listed
LONGEST_MESSAGE = 400
_DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})  #: hold values, not schemas
_NAMES_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  #: hold names

Schema = Mapping[str, Json] | bool


def compile_schema(schema: Schema, path: str = "input_schema") -> None:
    """Given an input schema, raise InvalidDefinition, with key paths, when it cannot be used (contract 3.7)."""
    problems: list[Problem] = []
    plain = copy_json(schema, path, problems, nulls=True)
    if not problems:
        problems = list(_reference_problems(plain, path))
    if not problems:
        problems = _compile_problems(plain, path)
    if problems:
        raise InvalidDefinition.of("input schema", problems)


def check_input(schema: Schema | None, bound: Any, path: str = "input") -> list[Problem]:
    """Given a schema, or None for anything, and an input, return every problem of the input with its key path; at most 100.

    The schema is one that `compile_schema` takes; one that it refuses is a problem of the input too: nothing passes it.
    """
    if not isinstance(bound, Mapping):
        return [Problem(path, f"must be a table of names and values, not {name_of(bound)}")]
    problems: list[Problem] = []
    plain = copy_json(bound, path, problems, nulls=True)
    if problems:
        return problems[:MOST_PROBLEMS]
    size = len(json_bytes(plain))
    if size > LARGEST_INPUT:
        return [Problem(path, f"is {size} bytes of JSON; at most {LARGEST_INPUT} are taken")]
    if schema is None:
        return []
    try:
        compile_schema(schema)
    except InvalidDefinition as error:
        return list(error.problems)
    return list(_input_problems(_validator(json_bytes(schema)), plain, path))


def _input_problems(validator: Any, plain: Json, path: str) -> Iterator[Problem]:
    for count, error in enumerate(validator.iter_errors(plain)):
        if count == MOST_PROBLEMS:
            return
        yield Problem(_path_below(path, error.instance_path), _shorten(error.message))


def _compile_problems(schema: Json, path: str) -> list[Problem]:
    content = json_bytes(schema)
    if len(content) > LARGEST_SCHEMA:
        return [Problem(path, f"is {len(content)} bytes of JSON; at most {LARGEST_SCHEMA} are taken")]
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


@lru_cache(maxsize=256)
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
