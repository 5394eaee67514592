"""Records are dataclasses that only type checkers keep from being changed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from ganglion.system.records import record


def made(decorator: Any) -> list[Any]:
    """Return records of two classes, one below the other."""

    @decorator
    class Plain:
        x: int
        y: list[int] = field(default_factory=list, repr=False)
        z: str = "z"
        last: int = field(kw_only=True, default=3)

    @decorator
    class Below(Plain):
        more: tuple[int, ...] = ()

    parts = [Plain(1), Plain(1, [2], last=4)]
    return [*parts, Below(1, z="a"), Below(2, [], "b", (5,))]


def test_records_are_made_and_shown_as_dataclasses_are() -> None:
    for a, b in zip(made(record), made(dataclass(unsafe_hash=True)), strict=True):
        assert repr(a) == repr(b)
        assert vars(a) == vars(b)
        assert [f.name for f in fields(a)] == [f.name for f in fields(b)]
        assert vars(replace(a, x=7)) == vars(replace(b, x=7))
        with pytest.raises(TypeError):
            type(a)()
        with pytest.raises(TypeError):
            type(a)(1, nobody=2)


def test_each_record_gets_its_own_default() -> None:
    first = made(record)[0]
    first.y.append(1)
    assert type(first)(1).y == []


def test_records_are_compared_by_their_fields_and_kind() -> None:
    @record
    class Size:
        rows: int
        columns: int = 1

    @record
    class Place:
        rows: int
        columns: int = 1

    assert Size(2) == Size(2, 1)
    assert Size(2) != Size(3)
    assert Size(2) != Place(2)
    assert {Size(2), Size(2, 1), Size(3)} == {Size(2), Size(3)}


def test_without_eq_records_are_compared_by_identity() -> None:
    @record(eq=False)
    class Node:
        name: str

    a, b = Node("a"), Node("a")
    assert a != b
    assert len({a, b}) == 2


def test_guarded_records_cannot_be_changed() -> None:
    @record(guarded=True)
    class Fixed:
        number: int

    fixed = Fixed(1)
    with pytest.raises(FrozenInstanceError):
        fixed.number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del fixed.number
    assert replace(fixed, number=2) == Fixed(2)


def test_what_a_class_defines_itself_stays() -> None:
    @record
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert repr(Named("a")) == "<a>"


def test_a_class_that_is_no_record_can_stand_below() -> None:
    @record
    class Base:
        name: str

    class Below(Base):
        pass

    assert Below("b").name == "b"
    assert Base("a").name == "a"
    assert Below("b") == Below("b")
