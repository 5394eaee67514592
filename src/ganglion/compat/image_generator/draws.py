"""The settings of `ImageDataGenerator`, checked, and its random numbers.

Random numbers are counted, so that a batch can be reproduced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops, random
from ganglion.ops.sampling import FILL_MODES
from ganglion.variables import read

MOST = 16  # draws for one batch; the next batch's counters begin after them


class Draws(random.SeedGenerator):
    """The draws for one batch: a seed, and the number of the batch.

    >>> a, b = (random.uniform((2,), seed=Draws(7, 3)) for _ in range(2))
    >>> a.tolist() == b.tolist()
    True
    """

    def __init__(self, seed: Any, batch: Any) -> None:
        # No variables, unlike other generators: the draws depend only on these two.
        self._seed = ops.cast(seed, "uint32")
        self._first = ops.multiply(ops.cast(batch, "uint32"), np.uint32(MOST))
        self._count = 0

    def next(self, ordered: bool = True) -> Any:
        if self._count == MOST:
            raise RuntimeError(f"A batch has {MOST} draws; this would be one more.")
        counter = ops.add(self._first, np.uint32(self._count))
        self._count += 1
        return read(ops.stack([self._seed, counter]))


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings that are invalid or not supported."""
    if config.data_format_of(settings["data_format"]) != "channels_last":
        raise ValueError(
            "data_format='channels_first' is not supported by ImageDataGenerator: put "
            "the channels on the last axis and use 'channels_last'."
        )
    split = settings["validation_split"]
    if split and not 0 < split < 1:
        raise ValueError(f"`validation_split` must lie between 0 and 1, got {split!r}.")
    if settings["fill_mode"] not in FILL_MODES:
        known = ", ".join(map(repr, FILL_MODES))
        raise ValueError(f"Unknown `fill_mode` {settings['fill_mode']!r}: use {known}.")
    if settings["interpolation_order"] not in (0, 1):
        raise ValueError(
            "`interpolation_order` is 0 (the nearest pixel) or 1 (between pixels), got "
            f"{settings['interpolation_order']!r}."
        )
    bounds = settings["brightness_range"]
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    if bounds is not None and not is_pair:
        raise ValueError(f"`brightness_range` must be two numbers, got {bounds!r}.")


def zooms(zoom_range: Any) -> list[float]:
    """Return the bounds that a zoom is drawn from."""
    if isinstance(zoom_range, (float, int)):
        return [1 - zoom_range, 1 + zoom_range]
    numbers = list(zoom_range) if isinstance(zoom_range, (tuple, list)) else []
    if len(numbers) == 2 and all(
        isinstance(number, (float, int)) for number in numbers
    ):
        return numbers
    raise ValueError(f"`zoom_range` must be a number or two, got {zoom_range!r}.")


def is_range(limits: Any) -> bool:
    """Return whether there is anything to draw."""
    return bool(np.any(limits))


def _choices(limits: Any) -> np.ndarray | None:
    """Return the shifts to choose from: a list's, or an integer's; None for any."""
    if np.ndim(limits):
        return np.asarray(limits)
    return np.arange(int(limits)) if isinstance(limits, (int, np.integer)) else None


def shift(limits: Any, size: int, uniform: Any) -> Any:
    """Draw the shifts of a batch, in pixels."""
    choices = _choices(limits)
    if choices is None:
        shifts = uniform(-limits, limits)
    else:
        index = ops.cast(ops.floor(uniform(0, 1) * float(len(choices))), "int32")
        shifts = ops.take(choices.astype("float32"), index)
        shifts = shifts * ops.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    return shifts * float(size) if np.max(limits) < 1 else shifts


def shift_of_image(limits: Any, size: int, rng: np.random.RandomState) -> Any:
    """Draw the shift of one image, in pixels, as Keras draws it."""
    if not is_range(limits):
        return 0
    if _choices(limits) is None:
        pixels = rng.uniform(-limits, limits)
    else:
        pixels = rng.choice(limits) * rng.choice([-1, 1])
    return pixels * size if np.max(limits) < 1 else pixels
