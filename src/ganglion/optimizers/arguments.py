"""The arguments of all optimizers' constructors, Keras 2's names, and checks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from ganglion import config
from ganglion.config import closest
from ganglion.variables import Variable


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
    """The same, and weight decay, for optimizers whose own signature has none."""

    weight_decay: float | None


def refuse_unknown(
    owner: str,
    arguments: dict[str, Any],
    old: Sequence[str],
    signature: inspect.Signature,
) -> None:
    """Refuse arguments that neither Keras 3 nor Keras 2 has, with the nearest name."""
    for name in arguments:
        if name not in old:
            known = [n for n in signature.parameters if n not in ("self", "kwargs")]
            raise ValueError(
                f"{owner} has no argument {name!r}. {closest(name, known)}"
            )


def number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return an argument as a float, if it is within its range."""
    if isinstance(value, (Variable, np.ndarray)) and value.shape == ():
        value = float(value)
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool):
        raise ValueError(f"`{name}` must be a number, got {value!r}.")
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if not (above and below and math.isfinite(value)):
        if high < math.inf:
            left, right = "(" if open_low else "[", ")" if open_high else "]"
            wanted = f"must be a float between {left}{low:g}, {high:g}{right}"
        else:
            wanted = "needs to be positive" + ("" if open_low else " or zero")
        raise ValueError(f"`{name}` {wanted}. Received: {name}={value!r}.")
    return float(value)


def optional_number(name: str, value: Any, *, open_low: bool = False) -> float | None:
    """Return an argument that may be None as a float or None."""
    return None if value is None else number(name, value, open_low=open_low)


def optional_count(name: str, value: Any, least: int) -> int | None:
    """Return an argument that may be None as an integer of at least `least`."""
    if value is None:
        return None
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"`{name}` must be None or an integer from {least} on, got {value!r}."
        )
    return int(value)


def small(value: Any) -> float:
    """Return the argument `epsilon`; Keras 2's None means the global one."""
    return config.epsilon() if value is None else number("epsilon", value)


def below_one(name: str, value: Any) -> float:
    """Return the rate of a moving average that is corrected for its start."""
    return number(name, value, high=1.0, open_high=True)
