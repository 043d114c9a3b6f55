"""Values: frozen, equal by what they hold, as dataclasses are, and without code that is made for each class."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from wfctl.value import Value

T = TypeVar("T")


class Point(Value, kw_only=False):
    origin: ClassVar[int] = 0

    x: int
    y: int = 2


class Named(Point):
    name: str


class Box(Value, Generic[T]):
    held: T
    size: int | None = None


def test_fields_are_the_annotations_in_their_order_those_of_the_base_first() -> None:
    assert Named.field_names() == ("x", "y", "name")
    assert [field.name for field in fields(Named(x=1, name="a"))] == ["x", "y", "name"]
    assert is_dataclass(Named)
    assert repr(Named(name="a", x=1)) == "Named(x=1, y=2, name='a')", "whatever the order in which they were given"


def test_equal_by_what_they_hold() -> None:
    assert Point(1) == Point(1, 2) == Point(y=2, x=1)
    assert hash(Point(1)) == hash(Point(y=2, x=1))
    assert Point(1) != Point(2)
    assert Point(1) != Named(x=1, name="a")
    assert Point(1) != (1, 2)


def test_never_changed() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "z", 2), lambda: delattr(point, "x")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert replace(point, x=3) == Point(3)
    assert point == Point(1)


@pytest.mark.parametrize(
    ("kind", "ordered", "named", "says"),
    [
        (Point, (), {}, "Point lacks x"),
        (Point, (1, 2, 3), {}, "Point takes fewer values in order"),
        (Point, (1,), {"x": 1}, "Point was given x twice"),
        (Point, (1,), {"z": 1}, "Point has no z"),
        (Named, (1,), {"name": "a"}, "Named takes fewer values in order, lacks x"),
    ],
)
def test_what_does_not_fit_is_refused(kind: type[Value], ordered: tuple[Any, ...], named: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=f"^{says}$"):
        kind(*ordered, **named)


def test_matched_copied_and_pickled_as_a_dataclass_is() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
    box = Box(held=Point(1))
    assert copy.copy(box) == copy.deepcopy(box) == pickle.loads(pickle.dumps(box)) == box
    assert asdict(box) == {"held": {"x": 1, "y": 2}, "size": None}
