"""Window functions of NumPy, which taper frames of signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir.graph import Constant, Value
from ganglion.ops.dispatch import known, op

__all__ = [
    "bartlett", "blackman", "hamming", "hanning", "kaiser",
]  # fmt: skip


def _window(name: str, make: Callable[..., np.ndarray], *args: Any) -> Value:
    way_out = "Give its length as a number."
    numbers = [known(name, argument, way_out) for argument in args]
    length = int(numbers[0])
    return Constant(make(length, *map(float, numbers[1:])), config.floatx())


@op
def bartlett(x: Any) -> Any:
    """Return a window of x numbers that rises and falls in straight lines."""
    return _window("bartlett", np.bartlett, x)


@op
def blackman(x: Any) -> Any:
    """Return Blackman's window of x numbers."""
    return _window("blackman", np.blackman, x)


@op
def hamming(x: Any) -> Any:
    """Return Hamming's window of x numbers."""
    return _window("hamming", np.hamming, x)


@op
def hanning(x: Any) -> Any:
    """Return Hann's window of x numbers, one wave of a cosine."""
    return _window("hanning", np.hanning, x)


@op
def kaiser(x: Any, beta: Any) -> Any:
    """Return Kaiser's window of x numbers; a larger beta makes it narrower."""
    return _window("kaiser", np.kaiser, x, beta)
