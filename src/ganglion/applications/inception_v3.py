"""Inception: several convolutions of different sizes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    activate,
    channel_axis,
    named,
    norm,
    standard,
    weight_files,
)
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing

__all__ = ["InceptionV3", "decode_predictions", "preprocess_input"]

# A branch is a chain of convolutions: filters, rows, columns, and `HALF` where its
# stride is 2. "avg" and "max" are pools; a list is branches that are joined again.
HALF = "half"
Branch = tuple[Any, ...]


def conv(
    x: Any, filters: int, rows: int, columns: int, half: bool = False, pad: bool = True
) -> Any:
    """Convolve, normalise over the batch, and apply ReLU."""
    x = layers.Conv2D(
        filters,
        (rows, columns),
        strides=2 if half else 1,
        padding="same" if pad and not half else "valid",
        use_bias=False,
    )(x)
    return activate(norm(x, None, scale=False), "relu")


def joined(parts: Sequence[Any], name: str | None = None) -> Any:
    """Put channels side by side."""
    return layers.concatenate(list(parts), axis=channel_axis(), name=name)


def _branch(x: Any, branch: Branch, name: str | None) -> Any:
    for step in branch:
        if step == "avg":
            x = layers.AveragePooling2D(3, strides=1, padding="same")(x)
        elif step == "max":
            x = layers.MaxPooling2D(3, strides=2)(x)
        elif isinstance(step, list):
            x = joined([conv(x, *each) for each in step], name)
        else:
            filters, rows, columns, *half = step
            x = conv(x, filters, rows, columns, half=bool(half))
    return x


def _small(pool: int) -> tuple[Branch, ...]:
    return (
        ((64, 1, 1),),
        ((48, 1, 1), (64, 5, 5)),
        ((64, 1, 1), (96, 3, 3), (96, 3, 3)),
        ("avg", (pool, 1, 1)),
    )


def _long(n: int) -> tuple[Branch, ...]:
    return (
        ((192, 1, 1),),
        ((n, 1, 1), (n, 1, 7), (192, 7, 1)),
        ((n, 1, 1), (n, 7, 1), (n, 1, 7), (n, 7, 1), (192, 1, 7)),
        ("avg", (192, 1, 1)),
    )


_CROSS = [(384, 1, 3), (384, 3, 1)]
_LAST: tuple[Branch, ...] = (
    ((320, 1, 1),),
    ((384, 1, 1), _CROSS),
    ((448, 1, 1), (384, 3, 3), _CROSS),
    ("avg", (192, 1, 1)),
)
MIXED: tuple[tuple[Branch, ...], ...] = (
    _small(32),
    _small(64),
    _small(64),
    (((384, 3, 3, HALF),), ((64, 1, 1), (96, 3, 3), (96, 3, 3, HALF)), ("max",)),
    _long(128),
    _long(160),
    _long(160),
    _long(192),
    (
        ((192, 1, 1), (320, 3, 3, HALF)),
        ((192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, HALF)),
        ("max",),
    ),
    _LAST,
    _LAST,
)


def stem(x: Any) -> Any:
    """Return what the first convolutions and pools make of an image."""
    x = conv(x, 32, 3, 3, half=True)
    x = conv(conv(x, 32, 3, 3, pad=False), 64, 3, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = conv(conv(x, 80, 1, 1, pad=False), 192, 3, 3, pad=False)
    return layers.MaxPooling2D(3, strides=2)(x)


def _features(x: Any) -> Any:
    x = stem(x)
    for number, branches in enumerate(MIXED):
        inner: list[str | None] = [None] * len(branches)
        if branches is _LAST:
            inner[1] = f"mixed9_{number - 9}"
        parts = [
            _branch(x, branch, name)
            for branch, name in zip(branches, inner, strict=True)
        ]
        x = joined(parts, f"mixed{number}")
    return x


_FILES = weight_files(
    "tensorflow/keras-applications/inception_v3",
    "inception_v3_weights_tf_dim_ordering_tf_kernels",
    ("9a0d58056eeedaa3f26cb7ebd46da564", "bcbd6486424b2319ff4ef7d526e38f63"),
)
InceptionV3 = named(
    "InceptionV3",
    standard(
        "inception_v3",
        Architecture(
            _features,
            size=299,
            least=75,
            pool_names=(None, None),
            files=_FILES,
        ),
    ),
    "the third Inception",
)
preprocess_input = preprocessing("tf")
