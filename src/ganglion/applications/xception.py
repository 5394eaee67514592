"""Xception: depthwise and pointwise convolutions, alternately."""

from __future__ import annotations

from typing import Any

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    activate,
    named,
    norm,
    standard,
    weight_files,
)
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing

__all__ = ["Xception", "decode_predictions", "preprocess_input"]

MIDDLE_BLOCKS = 8


def _separable(x: Any, filters: int, name: str) -> Any:
    conv = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)
    return norm(conv(x), f"{name}_bn")


def _stem(x: Any) -> Any:
    for number, (filters, stride) in enumerate(((32, 2), (64, 1)), 1):
        name = f"block1_conv{number}"
        conv = layers.Conv2D(filters, 3, strides=stride, use_bias=False, name=name)
        x = activate(norm(conv(x), f"{name}_bn"), "relu", f"{name}_act")
    return x


def _halving(x: Any, block: int, first: int, second: int) -> Any:
    around = layers.Conv2D(second, 1, strides=2, padding="same", use_bias=False)(x)
    around = norm(around, None)
    for number, filters in enumerate((first, second), 1):
        name = f"block{block}_sepconv{number}"
        if block > 2 or number > 1:  # the input of the first one is activated already
            x = activate(x, "relu", f"{name}_act")
        x = _separable(x, filters, name)
    name = f"block{block}_pool"
    x = layers.MaxPooling2D(3, strides=2, padding="same", name=name)(x)
    return layers.add([x, around])


def _middle(x: Any, block: int) -> Any:
    around = x
    for number in (1, 2, 3):
        name = f"block{block}_sepconv{number}"
        x = _separable(activate(x, "relu", f"{name}_act"), 728, name)
    return layers.add([x, around])


def _features(x: Any) -> Any:
    x = _stem(x)
    for block, filters in enumerate((128, 256, 728), 2):
        x = _halving(x, block, filters, filters)
    for block in range(5, 5 + MIDDLE_BLOCKS):
        x = _middle(x, block)
    x = _halving(x, 13, 728, 1024)
    for number, filters in enumerate((1536, 2048), 1):
        name = f"block14_sepconv{number}"
        x = activate(_separable(x, filters, name), "relu", f"{name}_act")
    return x


_FILES = weight_files(
    "tensorflow/keras-applications/xception",
    "xception_weights_tf_dim_ordering_tf_kernels",
    ("0a58e3b7378bc2990ea3b43d5981f1f6", "b0042744bf5b25fce3cb969f33bebb97"),
)
Xception = named(
    "Xception",
    standard(
        "xception",
        Architecture(
            _features,
            size=299,
            least=71,
            pool_names=(None, None),
            files=_FILES,
        ),
    ),
    "Xception",
)
preprocess_input = preprocessing("tf")
