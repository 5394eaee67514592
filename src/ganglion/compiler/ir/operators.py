"""Python's operators for every array-like of ours: values, variables, Keras tensors.

The functions behind them live far above (`ganglion.ops`), which registers itself here;
so `x + 1` means the same thing whatever `x` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def register(functions: dict[str, Callable[..., Any]]) -> None:
    """Say which function each operator calls."""
    _functions.update(functions)


def call_function(name: str, *args: Any) -> Any:
    """Call the function that is registered by this name."""
    return _functions[name](*args)


def _binary(name: str) -> Any:
    def operator(self: Any, other: Any) -> Any:
        return _functions[name](self, other)

    return operator


def _reflected(name: str) -> Any:
    def operator(self: Any, other: Any) -> Any:
        return _functions[name](other, self)

    return operator


def _unary(name: str) -> Any:
    def operator(self: Any) -> Any:
        return _functions[name](self)

    return operator


class Operators:
    """Mixin: arithmetic, comparison, matrix product and indexing."""

    __slots__ = ()
    __array_ufunc__: Any = None  # so that `ndarray + x` asks x, not NumPy

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    # As in NumPy, so that `mask = labels == 0` means what it says. They are hashed by
    # identity: sets and dictionaries hold them, `in` on a list does not work.
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __hash__ = object.__hash__
    __and__, __rand__ = _binary("logical_and"), _reflected("logical_and")
    __or__, __ror__ = _binary("logical_or"), _reflected("logical_or")
    __neg__, __abs__ = _unary("negative"), _unary("absolute")
    __invert__ = _unary("logical_not")
    __getitem__ = _binary("getitem")
