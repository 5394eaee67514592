"""Window functions by name, with which frames of signals are multiplied."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ganglion.config import closest

# Sums of cosines: the weight of each, the signs alternate.
_COSINES: dict[str, tuple[float, ...]] = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.50, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}


def _triangle(length: int) -> np.ndarray:
    count = np.arange(1, (length + 1) // 2 + 1)
    if length % 2 == 0:
        half = (2 * count - 1.0) / length
        return np.concatenate([half, half[::-1]])
    half = 2 * count / (length + 1.0)
    return np.concatenate([half, half[-2::-1]])


def _bohman(length: int) -> np.ndarray:
    x = np.abs(np.linspace(-1, 1, length)[1:-1])
    inner = (1 - x) * np.cos(np.pi * x) + np.sin(np.pi * x) / np.pi
    return np.concatenate([[0.0], inner, [0.0]])


def _bartlett_hann(length: int) -> np.ndarray:
    x = np.abs(np.arange(length) / (length - 1) - 0.5)
    return 0.62 - 0.48 * x + 0.38 * np.cos(2 * np.pi * x)


def _exponential(length: int) -> np.ndarray:
    return np.exp(-np.abs(np.arange(length) - (length - 1) / 2))


def _lanczos(length: int) -> np.ndarray:
    return np.sinc(2 * np.arange(length) / (length - 1) - 1)


def _parzen(length: int) -> np.ndarray:
    x = np.abs(2 * np.arange(length) - (length - 1)) / length
    inner = 1 - 6 * x**2 * (1 - x)
    return np.where(x <= (length - 1) / 2 / length, inner, 2 * (1 - x) ** 3)


def _tukey(length: int) -> np.ndarray:
    """Flat over half of its length, with the halves of a Hann window at the ends."""
    from_end = np.arange(length) / (length - 1)
    from_end = np.minimum(from_end, from_end[::-1])
    return np.where(from_end < 0.25, (1 - np.cos(4 * np.pi * from_end)) / 2, 1.0)


_OTHERS: dict[str, Callable[[int], np.ndarray]] = {
    "boxcar": np.ones,
    "bartlett": np.bartlett,
    "triang": _triangle,
    "bohman": _bohman,
    "barthann": _bartlett_hann,
    "exponential": _exponential,
    "lanczos": _lanczos,
    "parzen": _parzen,
    "tukey": _tukey,
    "cosine": lambda length: np.sin(np.pi / length * (np.arange(length) + 0.5)),
}
_ALIASES = {
    "han": "hann", "hamm": "hamming", "ham": "hamming",
    "black": "blackman", "blk": "blackman", "nut": "nuttall",
    "blackharr": "blackmanharris", "bkh": "blackmanharris", "flat": "flattop",
    "flt": "flattop", "box": "boxcar", "ones": "boxcar", "rect": "boxcar",
    "rectangular": "boxcar", "bart": "bartlett", "brt": "bartlett",
    "triangle": "triang", "tri": "triang", "bman": "bohman", "bmn": "bohman",
    "halfcosine": "cosine", "brthan": "barthann", "bth": "barthann",
    "poisson": "exponential", "sinc": "lanczos", "parz": "parzen", "par": "parzen",
    "tuk": "tukey",
}  # fmt: skip


def window(name: str, length: int, periodic: bool = True) -> np.ndarray:
    """Return a window by its name; if periodic, that of one more sample, cut off.

    >>> window("hann", 4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    known = _ALIASES.get(name, name)
    if known not in _COSINES and known not in _OTHERS:
        names = [*_COSINES, *_OTHERS]
        raise ValueError(f"Unknown window {name!r}. {closest(name, names)}")
    if length <= 1:
        return np.ones(max(length, 0))
    size = length + 1 if periodic else length
    if known in _OTHERS:
        return _OTHERS[known](size)[:length]
    angles = np.linspace(-math.pi, math.pi, size)
    orders = np.arange(len(_COSINES[known]))[:, None]
    return (np.array(_COSINES[known]) @ np.cos(orders * angles))[:length]
