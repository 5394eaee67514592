"""What all optimizers' constructors share: their arguments, Keras 2's, and checks."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

import numpy as np

from ganglion import config
from ganglion.config import closest
from ganglion.variables import Variable

F = TypeVar("F", bound=Callable[..., None])


class Shared(TypedDict, total=False):
    """The keyword arguments that every optimizer takes, as type checkers see them."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None
    lr: float
    decay: float


class Common(Shared, total=False):
    """The same for optimizers that do without weight decay."""

    weight_decay: float | None


_COMMON: dict[str, Any] = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
    "name": None,
}


def with_common(function: F) -> F:
    """Give an `__init__` the arguments all optimizers share, after its own.

    They can be passed by position too, and `inspect.signature` shows them, as in Keras;
    an optimizer's own text holds only what is its own.
    """
    signature = _whole_signature(function)

    @functools.wraps(function)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        rest = given.pop("kwargs", {})
        refuse_unknown(type(self).__name__, rest, self._keras2_arguments, signature)
        function(**given, **rest)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _whole_signature(function: Callable[..., None]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = list(inspect.signature(function).parameters.values())[:-1]
    named = {one.name for one in own}
    shared = [
        inspect.Parameter(name, kind, default=default)
        for name, default in _COMMON.items()
        if name not in named
    ]
    rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
    return inspect.Signature([*own, *shared, rest])


def refuse_unknown(
    what: str,
    given: dict[str, Any],
    old: Sequence[str],
    signature: inspect.Signature,
) -> None:
    """Refuse arguments that neither Keras 3 nor Keras 2 knows, with the nearest."""
    for name in given:
        if name not in old:
            known = [one for one in signature.parameters if one not in _NOT_ARGUMENTS]
            raise ValueError(f"{what} has no argument {name!r}. {closest(name, known)}")


_NOT_ARGUMENTS = ("self", "kwargs")


def number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return an argument as a float, refusing what lies outside of its range."""
    if isinstance(value, (Variable, np.ndarray)) and value.shape == ():
        value = float(value)
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool):
        raise ValueError(f"`{name}` must be a number, got {value!r}.")
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if not (above and below and math.isfinite(value)):
        left = f"{'(' if open_low else '['}{low:g}"
        right = f"{high:g}{')' if open_high or high == math.inf else ']'}"
        raise ValueError(f"`{name}` must be in {left}, {right}, got {value!r}.")
    return float(value)


def optional_number(name: str, value: Any, *, open_low: bool = False) -> float | None:
    """Return an argument that may be None as a float or None."""
    return None if value is None else number(name, value, open_low=open_low)


def optional_count(name: str, value: Any, least: int) -> int | None:
    """Return an argument that may be None as a whole number of at least `least`."""
    if value is None:
        return None
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"`{name}` must be None or a whole number from {least} on, got {value!r}."
        )
    return int(value)


def small(value: Any) -> float:
    """Return the argument `epsilon`; Keras 2's None means the global one."""
    return config.epsilon() if value is None else number("epsilon", value)


def below_one(name: str, value: Any) -> float:
    """Return the rate of a moving average that is corrected for its start."""
    return number(name, value, high=1.0, open_high=True)
