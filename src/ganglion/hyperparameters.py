"""Numbers of layers, losses and optimizers that are inputs of a compiled step.

Models that differ in a rate, a factor or a strength share a compiled step. So such a
number is no constant of the step but an input, like a variable that is never written. A
class declares which of its attributes are such numbers:

    class Dropout(Layer):
        rate = Hyperparameter()

While a step is traced, reading the attribute gives a `Number`: a float that remembers
where it comes from, also through arithmetic, so that `1 - rate` is one input, computed
in double precision. Where a number decides what the step does (`if rate == 0`) it is a
float like any other, as it is for all other code.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, overload

from ganglion import keras2


class _Here(threading.local):
    lifts = False


_here = _Here()


@contextmanager
def lifted() -> Iterator[None]:
    """Let hyperparameters be inputs of what is traced in this block."""
    before, _here.lifts = _here.lifts, True
    try:
        yield
    finally:
        _here.lifts = before


class Number(float):
    """A float and its origin: an attribute of an object, or arithmetic with such.

    >>> rate = Number(0.25, (0, "rate"), "rate")
    >>> 1 - rate, (1 - rate).text, (1 - rate).origin == (1 - rate).origin
    (0.75, '(1 - rate)', True)
    """

    __slots__ = ("origin", "text")

    origin: tuple[Any, ...]  # equal for equal formulas of the same attributes
    text: str

    def __new__(cls, value: float, origin: tuple[Any, ...], text: str) -> Number:
        number = super().__new__(cls, value)
        number.origin, number.text = origin, text
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)  # a copy has no origin

    def _joined(
        self, sign: str, method: Callable[..., Any], other: Any, reflected: bool
    ) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        result = method(self, other)
        if not isinstance(result, float) or not _may_vary(result):
            return result
        word = (other.origin, other.text) if isinstance(other, Number) else (
            (repr(other),), repr(other)
        )  # fmt: skip
        sides = [(self.origin, self.text), word]
        (left, first), (right, second) = reversed(sides) if reflected else sides
        text = f"({first} {sign} {second})"
        return Number(result, (sign, left, right), text)

    def __neg__(self) -> Number:
        return Number(-float(self), ("-", self.origin), f"-{self.text}")


def _operator(sign: str, name: str, reflected: bool) -> Callable[[Number, Any], Any]:
    method = getattr(float, name)

    def operate(self: Number, other: Any) -> Any:
        return self._joined(sign, method, other, reflected)

    operate.__name__ = name
    return operate


for _sign, _name in {"+": "add", "-": "sub", "*": "mul", "/": "truediv"}.items():
    setattr(Number, f"__{_name}__", _operator(_sign, f"__{_name}__", False))
    setattr(Number, f"__r{_name}__", _operator(_sign, f"__r{_name}__", True))
Number.__pow__ = _operator("**", "__pow__", False)  # type: ignore[assignment]
Number.__rpow__ = _operator("**", "__rpow__", True)  # type: ignore[assignment]


def _may_vary(value: float) -> bool:
    """Return whether a number can be an input: steps without these few are simpler.

    A factor of 1, say, needs no multiplication.
    """
    return math.isfinite(value) and value not in (-1.0, 0.0, 1.0)


def as_input(owner: Any, name: str, value: Any) -> Any:
    """Return a float of some object as a `Number` while a step is traced.

    In lists and dictionaries, each float; anything else is returned as it is.
    """
    if not _here.lifts:
        return value
    if isinstance(value, float) and _may_vary(value):
        return Number(value, (id(owner), name), name)
    if isinstance(value, (list, tuple)):
        return [as_input(owner, f"{name}_{n}", each) for n, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: as_input(owner, f"{name}_{key}", v) for key, v in value.items()}
    return value


class Settable(float):
    """The number of an attribute, which `K.set_value` of Keras 2 replaces there."""

    __slots__ = ("_name", "_owner")

    _owner: Any
    _name: str

    def __new__(cls, value: float, owner: Any = None, name: str = "") -> Settable:
        number = super().__new__(cls, value)
        number._owner, number._name = owner, name
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)

    def assign(self, value: Any) -> None:
        """Give the attribute another number, from the next step on."""
        setattr(self._owner, self._name, float(value))


class Hyperparameter:
    """An attribute that holds a number, which is an input of compiled steps.

    >>> class Scale:
    ...     factor = Hyperparameter()
    >>> scale = Scale()
    >>> scale.factor = 0.5
    >>> type(scale.factor).__name__, vars(scale)
    ('float', {'factor': 0.5})
    >>> with lifted():
    ...     type(scale.factor).__name__
    'Number'
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Hyperparameter: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Any: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        try:
            value = vars(owner)[self._name]
        except KeyError:
            raise AttributeError(
                f"{type(owner).__name__!r} object has no attribute {self._name!r}"
            ) from None
        if _here.lifts:
            return as_input(owner, self._name, value)
        if keras2.in_force and type(value) is float:
            return Settable(value, owner, self._name)
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        vars(owner)[self._name] = value

    def __delete__(self, owner: Any) -> None:
        del vars(owner)[self._name]
