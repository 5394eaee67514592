"""The settings of `ImageDataGenerator`: checked, and drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.ops.sampling import FILL_MODES


def check(**given: Any) -> None:
    """Refuse settings that mean nothing here."""
    if given["data_format"] not in (None, "channels_last"):
        raise ValueError(
            f"data_format={given['data_format']!r} is not supported: put the channels "
            "on the last axis and use 'channels_last'."
        )
    split = given["validation_split"]
    if split and not 0 < split < 1:
        raise ValueError(f"`validation_split` must lie between 0 and 1, got {split!r}.")
    if given["fill_mode"] not in FILL_MODES:
        known = ", ".join(repr(one) for one in FILL_MODES)
        raise ValueError(f"Unknown `fill_mode` {given['fill_mode']!r}: use {known}.")
    if given["interpolation_order"] not in (0, 1):
        raise ValueError(
            "`interpolation_order` is 0 (the nearest pixel) or 1 (between pixels), got "
            f"{given['interpolation_order']!r}."
        )
    bounds = given["brightness_range"]
    if bounds is not None and not (
        isinstance(bounds, (tuple, list)) and len(bounds) == 2
    ):
        raise ValueError(f"`brightness_range` must be two numbers, got {bounds!r}.")


def zooms(zoom_range: Any) -> list[float]:
    """Return the bounds that a zoom is drawn from."""
    if isinstance(zoom_range, (float, int)):
        return [1 - zoom_range, 1 + zoom_range]
    numbers = list(zoom_range) if isinstance(zoom_range, (tuple, list)) else []
    if len(numbers) == 2 and all(isinstance(one, (float, int)) for one in numbers):
        return numbers
    raise ValueError(f"`zoom_range` must be a number or two, got {zoom_range!r}.")


def is_range(given: Any) -> bool:
    """Return whether there is anything to draw."""
    return bool(np.any(given)) if np.ndim(given) else bool(given)


def _choices(given: Any) -> np.ndarray | None:
    """Return the shifts to choose from: a list's, or a whole number's; None for any."""
    if np.ndim(given):
        return np.asarray(given)
    return np.arange(int(given)) if isinstance(given, (int, np.integer)) else None


def shift(given: Any, size: int, uniform: Any) -> Any:
    """Draw the shifts of a batch, in pixels."""
    choices = _choices(given)
    if choices is None:
        made = uniform(-given, given)
    else:
        place = ops.cast(ops.floor(uniform(0, 1) * float(len(choices))), "int32")
        made = ops.take(choices.astype("float32"), place)
        made = made * ops.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    return made * float(size) if np.max(given) < 1 else made


def one_shift(given: Any, size: int, rng: np.random.RandomState) -> Any:
    """Draw the shift of one image, in pixels, as Keras draws it."""
    if not is_range(given):
        return 0
    if _choices(given) is None:
        made = rng.uniform(-given, given)
    else:
        made = rng.choice(given) * rng.choice([-1, 1])
    return made * size if np.max(given) < 1 else made
