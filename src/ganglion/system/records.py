"""Records: dataclasses whose `__init__` is generated when it is first called.

`dataclass` generates and compiles the source of every method, which takes up to half a
millisecond per class. A process that trains a small network imports a hundred of these
classes but instantiates a third of them, so generating methods lazily shortens startup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

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

    It is frozen for type checkers only, unless it is `guarded`: creating an instance
    that refuses assignments takes three times as long. Without `eq`, instances are
    compared and hashed by identity.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1, 2))
    (Point(x=1, y=0), True, False)
    """

    def as_record(cls: type[T]) -> type[T]:
        own = set(vars(cls))
        dataclass(init=False, repr=False, eq=False)(cls)
        methods: dict[str, Any] = {"__init__": _first_init(cls, guarded)}
        if cls.__repr__ is object.__repr__:
            methods["__repr__"] = _repr
        if eq:
            methods |= _comparing(cls)
        if guarded:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        for name in methods.keys() - own:
            setattr(cls, name, methods[name])
        return cls

    return as_record if cls is None else as_record(cls)


def _first_init(cls: Any, guarded: bool) -> Callable[..., None]:
    """Return an `__init__` that replaces itself with the generated one."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        cls.__init__ = _init(cls, guarded)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _init(cls: Any, guarded: bool) -> Callable[..., None]:
    """Generate the `__init__` of a class, which assigns each of its fields."""
    known: dict[str, Any] = {"set": object.__setattr__, "MISSING": MISSING}
    in_order, by_name, lines = ["self"], ["*"], []
    for each in fields(cls):
        name, argument, value = each.name, each.name, each.name
        if each.default is not MISSING:
            known[f"default_{name}"] = each.default
            argument = f"{name}=default_{name}"
        elif each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            argument = f"{name}=MISSING"
            value = f"make_{name}() if {name} is MISSING else {name}"
        (by_name if each.kw_only else in_order).append(argument)
        lines.append(
            f"set(self, {name!r}, {value})" if guarded else f"self.{name} = {value}"
        )
    body = "\n    ".join(lines or ["pass"])
    arguments = ", ".join(in_order + by_name if by_name[1:] else in_order)
    exec(f"def __init__({arguments}):\n    {body}", known)
    init: Callable[..., None] = known["__init__"]
    return init


def _comparing(cls: Any) -> dict[str, Callable[..., Any]]:
    """Return `__eq__` and `__hash__` by the values of the fields."""
    names = [each.name for each in fields(cls)]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _repr(self: Any) -> str:
    shown = [each.name for each in fields(self) if each.repr]
    text = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({text})"


def _refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
