"""How often a JSON Schema can make a validator look at one place of an input (contract 3.6, 3.7).

References let a schema of a kilobyte ask for 2^40 looks: `a` is twice `b`, `b` is twice `c`, and so on. Patterns take linear
time; with this bound the rest does, too. It is counted for the worst input: what may speak of the same place does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from wfctl.core.model import Json

MOST_LOOKS = 1000  #: at one place of an input
DEEPEST = 64  #: of an input: no path in it is longer

_HERE_ONE = ("not", "if", "then", "else")  # the same place, one schema
_HERE_LIST = ("allOf", "anyOf", "oneOf")
_HERE_NAMED = ("dependentSchemas",)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BELOW_ONE = ("items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
_BELOW_PATTERNS = ("patternProperties",)  # any name may match them all

#: What one look at a schema leads to: looks at the same place, at every place below, at the places below by name.
_Edges = tuple[list[int], list[int], list[tuple[str, int]]]


def looks_at_one_place(schema: Json) -> int:
    """Given a schema whose references all point into it, return the number of looks, cut off above `MOST_LOOKS`."""
    graph = _Graph(schema)
    edges = graph.edges
    looks = _closure(edges, [1] * len(edges))
    most = looks[0]
    for _ in range(DEEPEST):
        below = [_below(each, looks) for each in edges]
        if not any(below):
            break
        following = _closure(edges, below)
        most = max(most, following[0])
        if most > MOST_LOOKS or following == looks:
            break
        looks = following
    return min(most, MOST_LOOKS + 1)


def _below(edges: _Edges, looks: list[int]) -> int:
    _, everywhere, named = edges
    by_name: dict[str, int] = {}
    for name, node in named:
        by_name[name] = by_name.get(name, 0) + looks[node]
    return _cut(sum(looks[node] for node in everywhere) + max(by_name.values(), default=0))


def _closure(edges: list[_Edges], own: list[int]) -> list[int]:
    """Add up what a look at each schema comes to at the same place; one that comes back to itself there is looked at once."""
    total: dict[int, int] = {}
    for start in range(len(edges)):
        stack = [start]
        active: set[int] = set()
        while stack:
            node = stack[-1]
            if node in total:
                stack.pop()
                continue
            if node in active:
                total[node] = _cut(own[node] + sum(total.get(each, 0) for each in edges[node][0]))
                active.discard(node)
                stack.pop()
                continue
            active.add(node)
            stack += [each for each in edges[node][0] if each not in total and each not in active]
    return [total[node] for node in range(len(edges))]


def _cut(looks: int) -> int:
    return min(looks, MOST_LOOKS + 1)


class _Graph:
    """The schemas within a schema, numbered, the whole one first; and what each of them leads to."""

    def __init__(self, schema: Json) -> None:
        self._numbers: dict[int, int] = {}
        self._schemas: list[Mapping[str, Any]] = []
        self._root = schema
        self._anchors: dict[str, list[int]] = {}
        self._collect(schema)
        if not self._schemas:
            self._schemas.append({})
        self.edges: list[_Edges] = [self._edges_of(each) for each in self._schemas]

    def _collect(self, schema: Any) -> None:
        waiting = [schema]
        while waiting:
            found = waiting.pop()
            if isinstance(found, list):
                waiting += found
            elif isinstance(found, dict):
                self._numbers[id(found)] = len(self._schemas)
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(found.get(key), str):
                        self._anchors.setdefault(found[key], []).append(len(self._schemas))
                self._schemas.append(found)
                waiting += found.values()

    def _edges_of(self, schema: Mapping[str, Any]) -> _Edges:
        here = [number for key in _HERE_ONE for number in self._number(schema.get(key))]
        here += [number for key in _HERE_LIST for each in _list(schema.get(key)) for number in self._number(each)]
        here += [number for key in _HERE_NAMED for each in _table(schema.get(key)).values() for number in self._number(each)]
        here += [number for key in _REFERENCES for number in self._pointed_at(schema.get(key))]
        below = [number for key in _BELOW_ONE for number in self._number(schema.get(key))]
        below += [
            number for key in _BELOW_PATTERNS for each in _table(schema.get(key)).values() for number in self._number(each)
        ]
        named = [(name, number) for name, each in _table(schema.get("properties")).items() for number in self._number(each)]
        named += [
            (f"[{i}]", number) for i, each in enumerate(_list(schema.get("prefixItems"))) for number in self._number(each)
        ]
        return here, below, named

    def _number(self, schema: Any) -> Iterator[int]:
        if isinstance(schema, dict) and id(schema) in self._numbers:
            yield self._numbers[id(schema)]

    def _pointed_at(self, reference: Any) -> Iterator[int]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return
        if len(reference) > 1 and not reference.startswith("#/"):
            yield from self._anchors.get(unquote(reference[1:]), ())
            return
        found: Any = self._root
        for part in reference[2:].split("/") if len(reference) > 1 else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return
        yield from self._number(found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
