"""Pixels as networks expect them, and the names of what they saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.applications import imagenet

__all__ = ["decode_predictions", "preprocess_input"]

MODES = ("caffe", "tf", "torch")
CAFFE_MEAN = (103.939, 116.779, 123.68)  # of blue, green and red
TORCH_MEAN, TORCH_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def decode_predictions(preds: Any, top: int = 5) -> list[list[tuple[str, str, float]]]:
    """Return the best classes of each row: WordNet number, name and score."""
    return imagenet.decode_predictions(preds, top)


def preprocess_input(
    x: Any, data_format: str | None = None, mode: str = "caffe"
) -> Any:
    """Return pixels from 0 to 255 as the weights of a network expect them.

    "tf" scales them to -1 to 1, "torch" by mean and deviation of each channel, "caffe"
    turns the channels around and subtracts their means. An array is not changed.

    >>> preprocess_input(np.array([[[0.0, 127.5, 255.0]]]), mode="tf")
    array([[[-1.,  0.,  1.]]])
    """
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {MODES}, got {mode!r}.")
    data_format = data_format or config.image_data_format()
    if data_format not in ("channels_first", "channels_last"):
        raise ValueError(
            "`data_format` must be channels_first or channels_last, got "
            f"{data_format!r}."
        )
    if isinstance(x, np.ndarray) and x.dtype.kind != "f":
        x = x.astype(config.floatx())
    if mode == "tf":
        return x / 127.5 - 1.0
    first = data_format == "channels_first"
    if mode == "torch":
        return (x / 255.0 - _channels(x, TORCH_MEAN, first)) / _channels(
            x, TORCH_DEVIATION, first
        )
    axis = len(x.shape) - 3 if first else len(x.shape) - 1
    flip = np.flip if isinstance(x, np.ndarray) else ops.flip
    return flip(x, axis=axis) - _channels(x, CAFFE_MEAN, first)


def _channels(x: Any, values: tuple[float, ...], first: bool) -> np.ndarray:
    array = np.asarray(values, np.dtype(x.dtype))
    return array[:, None, None] if first else array


def preprocessing(mode: str | None) -> Callable[..., Any]:
    """Return the `preprocess_input` of a network; None: pixels stay as they are."""

    def preprocess(x: Any, data_format: str | None = None) -> Any:
        return x if mode is None else preprocess_input(x, data_format, mode)

    preprocess.__name__ = preprocess.__qualname__ = "preprocess_input"
    preprocess.__doc__ = (
        "Return pixels as they are: the network scales them itself."
        if mode is None
        else "Return pixels from 0 to 255 as the weights of the network expect them."
    )
    return preprocess
