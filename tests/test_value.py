"""Values behave as frozen, slotted dataclasses do, without code that is compiled for each class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from barnabas.value import OWN_INIT_AFTER, Value, field, replace


class Point(Value):
    """A point."""

    x: int
    y: int = 2
    unit: ClassVar[str] = "mm"

    @property
    def size(self) -> int:
        return self.x + self.y


class Named(Point, kw_only=True):
    name: str = "p"


class Other(Value):
    x: int
    y: int = 2


class Empty(Value):
    pass


@dataclass(frozen=True, slots=True)
class AsDataclass:
    x: int
    y: int = 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1,), {}), ((1, 2), {}), ((), {"x": 1}), ((1,), {"y": 3}), ((), {"y": 3, "x": 1})],
)
def test_a_value_looks_like_a_dataclass(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    value, like = Point(*arguments, **named), AsDataclass(*arguments, **named)
    assert (value.x, value.y) == (like.x, like.y)
    assert repr(value) == repr(like).replace("AsDataclass", "Point")
    assert Point.__match_args__ == AsDataclass.__match_args__
    assert value.size == like.x + like.y


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1, 2), {"z": 3}), ((), {"y": 1}), ((1, 2, 3), {"x": 1})],
)
def test_wrong_arguments_are_errors(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Point, AsDataclass):
        with pytest.raises(TypeError):
            kind(*arguments, **named)


def test_values_are_equal_by_type_and_fields() -> None:
    assert Point(1, 2) == Point(x=1)
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2)
    assert Empty() == Empty()
    assert len({Point(1), Point(1, 2), Point(2)}) == 2


def test_values_do_not_change() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    with pytest.raises(AttributeError):
        point.z = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")
    assert replace(point, y=5) == Point(1, 5)
    assert point == Point(1)


def test_a_value_can_extend_another() -> None:
    named = Named(x=1, name="a")
    assert (named.x, named.y, named.name, named.size) == (1, 2, "a", 3)
    assert replace(named, x=4) == Named(x=4, name="a")
    assert Named.__match_args__ == ("x", "y", "name")


def test_values_are_matched_copied_and_pickled() -> None:
    match Named(x=1, name="a"):
        case Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("no match")
    for value in (Point(1, 3), Named(x=1), Empty()):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value


def test_the_functions_of_dataclasses_accept_values() -> None:
    named = Named(x=1, name="a")
    assert dataclasses.is_dataclass(named)
    assert dataclasses.replace(named, x=2) == Named(x=2, name="a")
    assert dataclasses.asdict(named) == {"x": 1, "y": 2, "name": "a"}
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y"]


class WithList(Value):
    names: list[str] = field(default_factory=list)


def test_a_factory_makes_a_default_for_each_value() -> None:
    one, other = WithList(), WithList()
    one.names.append("a")
    assert (one.names, other.names) == (["a"], [])


class Often(Value):
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


class OftenBelow(Often):
    z: int = 4


class OftenMixed(Value, kw_only=True):
    x: int = 1
    y: int


def test_values_that_are_made_often() -> None:
    """Their class gets an `__init__` of its own, which takes what the common one takes."""
    made = [Often(number, names=["a"]) for number in range(2 * OWN_INIT_AFTER)]
    assert Often.__init__ is not Value.__init__
    assert [each.x for each in made] == list(range(len(made)))
    assert {each.y for each in made} == {2}
    first, second = Often(x=1), Often(1, 2)
    assert first == second
    first.names.append("own")
    assert second.names == []
    assert replace(first, y=7) == Often(1, 7, ["own"])
    for wrong in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            Often(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Often(1, 2, [], 4)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        first.x = 3  # type: ignore[misc]

    class Later(Often):
        w: int = 5

    for below in (OftenBelow(1, z=9), OftenBelow(1, 2, [], 9)):
        assert (below.x, below.y, below.names, below.z) == (1, 2, [], 9)
    for _ in range(2 * OWN_INIT_AFTER):
        assert Later(1).w == 5
    assert [OftenMixed(y=number).y for number in range(2 * OWN_INIT_AFTER)] == list(range(2 * OWN_INIT_AFTER))
    assert OftenMixed(y=2).x == 1
