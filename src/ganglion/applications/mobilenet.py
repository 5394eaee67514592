"""MobileNet: each convolution is one of single channels, and one of single pixels."""

from __future__ import annotations

import os
from typing import Any

from ganglion import config, layers
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    Shape,
    named,
    network,
    norm,
    weight_files,
)
from ganglion.applications.imagenet import CLASSES
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing
from ganglion.models import Model

__all__ = ["MobileNet", "decode_predictions", "preprocess_input"]

SIZES = (128, 160, 192, 224)  # of images there are weights for
ALPHAS = {1.0: "1_0", 0.75: "7_5", 0.5: "5_0", 0.25: "2_5"}
# Filters and stride of each block.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1),
    (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


def side_of(shape: Any, sizes: tuple[int, ...]) -> int:
    """Return the size of images that weights are for: that of a shape, if it is one."""
    if shape is None:
        return 224
    first = config.image_data_format() == "channels_first"
    rows, columns = shape[1:3] if first else shape[:2]
    return rows if rows == columns and rows in sizes else 224


def rows_of(shape: Any, default: int | None) -> int | None:
    """Return how many rows images of a shape have."""
    if shape is None:
        return default
    return shape[1 if config.image_data_format() == "channels_first" else 0]


def _normed(x: Any, name: str) -> Any:
    return layers.ReLU(6.0, name=f"{name}_relu")(norm(x, f"{name}_bn"))


def _block(x: Any, number: int, filters: int, stride: int, multiplier: int) -> Any:
    if stride == 2:
        x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{number}")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        depth_multiplier=multiplier,
        use_bias=False,
        name=f"conv_dw_{number}",
    )(x)
    x = _normed(x, f"conv_dw_{number}")
    name = f"conv_pw_{number}"
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=name)(x)
    return _normed(x, name)


def _features(x: Any, alpha: float, multiplier: int) -> Any:
    x = layers.Conv2D(
        int(32 * alpha), 3, strides=2, padding="same", use_bias=False, name="conv1"
    )(x)
    x = _normed(x, "conv1")
    for number, (filters, stride) in enumerate(BLOCKS, 1):
        x = _block(x, number, int(filters * alpha), stride, multiplier)
    return x


def _build(
    input_shape: Shape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 1e-3,
    include_top: bool = True,
    weights: str | os.PathLike[str] | None = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = CLASSES,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Model:
    learned = weights == "imagenet"
    if learned and (depth_multiplier != 1 or alpha not in ALPHAS):
        raise ValueError(
            "There are ImageNet weights for `depth_multiplier=1` and for `alpha` in "
            f"{sorted(ALPHAS)}, got {depth_multiplier} and {alpha}."
        )
    side = side_of(input_shape, SIZES)

    def top(x: Any, classes: int, activation: Any) -> Any:
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        x = layers.Dropout(dropout, name="dropout")(x)
        x = layers.Conv2D(classes, 1, padding="same", name="conv_preds")(x)
        x = layers.Reshape((classes,), name="reshape_2")(x)
        return layers.Activation(activation, name="predictions")(x)

    stem = f"mobilenet_{ALPHAS.get(alpha)}_{side}_tf"
    folder = "tensorflow/keras-applications/mobilenet"
    architecture = Architecture(
        lambda x: _features(x, alpha, depth_multiplier),
        size=side,
        top=top,
        pool_names=(None, None),
        files=weight_files(folder, stem, without_top="_no_top"),
    )
    rows = side if learned else rows_of(input_shape, side if include_top else None)
    options = BuildOptions(
        include_top, weights, input_tensor, input_shape, pooling, classes,
        classifier_activation, name or f"mobilenet_{alpha:0.2f}_{rows}",
    )  # fmt: skip
    return network(architecture, options)


MobileNet = named("MobileNet", _build, "the first MobileNet")
preprocess_input = preprocessing("tf")
