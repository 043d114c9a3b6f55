"""Schemas that can be used, and inputs that satisfy them (contract 3.6, 3.7)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from wfctl.errors import InvalidDefinition
from wfctl.operations.inputs import check_input, compile_schema

REGION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "region": {"enum": ["eu", "us"]},
        "size": {"$ref": "#/$defs/size"},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["region"],
    "additionalProperties": False,
    "$defs": {"size": {"type": "integer", "minimum": 1}},
}


@pytest.mark.parametrize(
    ("schema", "path", "hint"),
    [
        pytest.param({"type": "objekt"}, "input_schema.type", "objekt", id="a type that is none"),
        pytest.param({"properties": 5}, "input_schema.properties", "object", id="properties that are a number"),
        pytest.param({"$ref": "#/$defs/x"}, "input_schema", "/$defs/x", id="a reference to nothing"),
        pytest.param({"$ref": "other.json"}, "input_schema.$ref", "outside", id="a file beside it"),
        pytest.param({"$ref": "file:///etc/passwd"}, "input_schema.$ref", "outside", id="a file elsewhere"),
        pytest.param({"items": [{"$ref": "https://example.org/x"}]}, "input_schema.items[0].$ref", "outside", id="the network"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#"}, "input_schema.$schema", "2020-12", id="an older draft"
        ),
        pytest.param({"pattern": "("}, "input_schema.pattern", "regex", id="a pattern that is none"),
        pytest.param({"pattern": "(?=a)b"}, "input_schema.pattern", "look-around", id="a pattern that looks around"),
        pytest.param({"pattern": "(a)\\1"}, "input_schema.pattern", "back-references", id="a pattern that refers back"),
        pytest.param({"pattern": "(a{1000}){1000}"}, "input_schema.pattern", "regex", id="a pattern that is huge"),
        pytest.param({"description": "x" * 65_536}, "input_schema", "at most 65536", id="more than 64 KiB"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any, path: str, hint: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        compile_schema(schema)
    [problem] = caught.value.problems
    assert problem.path.replace('"', "") == path
    assert hint in problem.message


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(True, id="everything"),
        pytest.param({}, id="everything, as a table"),
        pytest.param(REGION, id="a real one"),
        pytest.param(
            {"const": {"$ref": "http://x"}, "properties": {"$ref": {"type": "string"}}}, id="$ref as a value and as a name"
        ),
        pytest.param({"$ref": "#"}, id="itself"),
    ],
)
def test_a_schema_that_can_be_used(schema: Any) -> None:
    compile_schema(schema)


@pytest.mark.parametrize(
    ("bound", "paths"),
    [
        pytest.param({"region": "eu", "size": 1, "day": "2026-03-01"}, [], id="a good one"),
        pytest.param({}, ["input"], id="something is missing"),
        pytest.param(
            {"region": "mars", "size": 0, "day": "soon"}, ["input.day", "input.region", "input.size"], id="all at once"
        ),
        pytest.param({"region": "eu", "x": 1}, ["input"], id="something that is not known"),
        pytest.param({"region": float("inf")}, ["input.region"], id="what JSON cannot say"),
        pytest.param(["eu"], ["input"], id="a list"),
        pytest.param(None, ["input"], id="nothing"),
    ],
)
def test_every_problem_of_an_input_is_named_with_its_path(bound: Any, paths: list[str]) -> None:
    assert sorted(problem.path for problem in check_input(REGION, bound)) == paths  # contract 3.7


def test_without_a_schema_any_table_of_64_kib_passes() -> None:
    assert check_input(None, {"a": None, "b": [1, {"c": "x"}]}) == []
    assert check_input(None, {"a": "x" * (65_536 - 8)}) == []
    assert "at most 65536" in check_input(None, {"a": "x" * (65_536 - 7)})[0].message  # contract 3.6


def test_nothing_passes_a_schema_that_cannot_be_used() -> None:
    assert check_input({"$ref": "other.json"}, {})
    assert check_input(False, {})


def test_a_hundred_problems_are_enough() -> None:
    assert len(check_input({"additionalProperties": {"type": "string"}}, {str(n): n for n in range(500)})) == 100


def test_patterns_take_linear_time() -> None:
    began = time.monotonic()
    assert check_input({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 60_000 + "b"})
    assert time.monotonic() - began < 1  # a backtracking engine would not end
