"""Records: dataclasses that only type checkers keep from being changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T]) -> type[T]: ...
@overload
def record(
    *, eq: bool = True, guarded: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, *, eq: bool = True, guarded: bool = False) -> Any:
    """Make a class a frozen record; `fields` and `replace` treat it as a dataclass.

    It is frozen for type checkers only, unless it is `guarded`: a plan has thousands,
    and creating an instance that refuses assignments takes three times as long. Without
    `eq`, instances are compared and hashed by identity.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1, 2))
    (Point(x=1, y=0), True, False)
    """
    as_dataclass = dataclass(
        repr=False, eq=eq, unsafe_hash=eq and not guarded, frozen=guarded
    )

    def as_record(cls: Any) -> Any:
        if "__repr__" not in vars(cls):
            cls.__repr__ = _repr
        return as_dataclass(cls)

    return as_record if cls is None else as_record(cls)


def _repr(self: Any) -> str:
    """Return the text of `dataclass`, which would generate a method for each class."""
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"
