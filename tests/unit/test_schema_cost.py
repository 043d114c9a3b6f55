"""No input schema makes a validator look at one place more than a thousand times (contract 3.7)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from wfctl.core.schema_cost import MOST_LOOKS, looks_at_one_place
from wfctl.errors import InvalidDefinition
from wfctl.operations.inputs import check_input, compile_schema


def twice(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    each = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**each, f"d{levels}": {"type": "string"}}, "additionalProperties": {"$ref": "#/$defs/d0"}}


DOUBLING = {"allOf": [{"properties": {"c": {"$ref": "#/$defs/n"}}}, {"properties": {"c": {"$ref": "#/$defs/n"}}}]}
CHAIN = {
    f"s{i}": {"additionalProperties": {"allOf": [{"$ref": f"#/$defs/s{i}"}, {"$ref": f"#/$defs/s{i + 1}"}]}} for i in range(40)
}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(twice(30), id="each definition is twice the next"),
        pytest.param(twice(30, "anyOf"), id="or either of two"),
        pytest.param(twice(30, "oneOf"), id="or exactly one of two"),
        pytest.param({"$defs": {"n": DOUBLING}, "$ref": "#/$defs/n"}, id="twice the looks a level"),
        pytest.param({"$defs": {**CHAIN, "s40": {}}, "$ref": "#/$defs/s0"}, id="a chain of loops"),
        pytest.param({"patternProperties": {f"a{i}?": {} for i in range(1200)}}, id="patterns that all match"),
        pytest.param(
            {"$dynamicAnchor": "n", "properties": {"c": {"allOf": [{"$dynamicRef": "#n"}] * 2}}}, id="by dynamic references"
        ),
    ],
)
def test_a_schema_that_explodes_is_refused_when_it_is_saved(schema: Any) -> None:
    assert looks_at_one_place(schema) == MOST_LOOKS + 1
    with pytest.raises(InvalidDefinition, match="looks at one place"):
        compile_schema(schema)


TREE = {"anyOf": [{"type": "null"}, {"properties": {"left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}}]}


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (True, 1),
        ({}, 1),
        ({"$ref": "#"}, 1),
        ({"properties": {f"p{i}": {"type": "string"} for i in range(900)}, "additionalProperties": False}, 1),
        ({"$defs": {"n": TREE}, "$ref": "#/$defs/n"}, 4),
        ({"type": "array", "items": {"$ref": "#"}}, 2),
        ({"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}, 2),
        ({"allOf": [{"if": {"required": ["a"]}, "then": {}, "else": {}}] * 20}, 81),
        ({"prefixItems": [{}] * 500}, 1),
        ({"const": {"allOf": [1, 2]}, "enum": [{"$ref": "#/nowhere"}]}, 1),
        ({"$defs": {"a/b~c d": {}}, "$ref": "#/$defs/a~1b~0c%20d"}, 2),
    ],
)
def test_a_schema_as_people_write_them_is_far_from_it(schema: Any, most: int) -> None:
    assert looks_at_one_place(schema) == most


def test_the_count_itself_takes_no_time() -> None:
    large = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{(i * 7 + 1) % 900}"}], "items": {"$ref": f"#/$defs/d{i}"}} for i in range(900)
    }
    begin = time.process_time()
    looks_at_one_place({"$defs": large, "$ref": "#/$defs/d0"})
    assert time.process_time() - begin < 2.0


def test_of_a_large_input_that_is_wrong_throughout_the_first_problem_is_told() -> None:
    schema = {"additionalProperties": {"type": "string"}}
    [problem] = check_input(schema, {f"k{i}": i for i in range(5000)})
    assert "string" in problem.message
    assert len(check_input(schema, {f"k{i}": i for i in range(50)})) == 50


def test_an_input_of_a_mebibyte_is_refused_by_its_size_alone() -> None:
    [problem] = check_input(None, {"a": [0] * 500_000})
    assert "at most 65536" in problem.message
