"""MobileNetV2: narrow blocks that widen inside, around which the input goes, too."""

from __future__ import annotations

import os
from typing import Any

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    Shape,
    average_top,
    channel_axis,
    named,
    network,
    norm,
    padding_for_half,
    rounded,
    weight_files,
)
from ganglion.applications.imagenet import CLASSES
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing
from ganglion.applications.mobilenet import rows_of, side_of
from ganglion.models import Model

__all__ = ["MobileNetV2", "decode_predictions", "preprocess_input"]

SIZES = (96, 128, 160, 192, 224)  # of images there are weights for
ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
# Filters and stride of each block; the first does not widen.
BLOCKS = (
    (16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1),
    (64, 1), (96, 1), (96, 1), (96, 1), (160, 2), (160, 1), (160, 1), (320, 1),
)  # fmt: skip
EXPANSION = 6


def _normed(x: Any, name: str, relu: str | None = None) -> Any:
    x = norm(x, name, epsilon=1e-3, momentum=0.999)
    return layers.ReLU(6.0, name=relu)(x) if relu else x


def _conv(x: Any, filters: int, name: str, kernel: int = 1, **options: Any) -> Any:
    options = {"padding": "same"} | options
    return layers.Conv2D(filters, kernel, use_bias=False, name=name, **options)(x)


def _block(x: Any, number: int, filters: int, stride: int) -> Any:
    before, channels = x, x.shape[channel_axis()]
    prefix = f"block_{number}_" if number else "expanded_conv_"
    if number:
        x = _conv(x, EXPANSION * channels, f"{prefix}expand")
        x = _normed(x, f"{prefix}expand_BN", f"{prefix}expand_relu")
    if stride == 2:
        x = layers.ZeroPadding2D(padding_for_half(x, 3), name=f"{prefix}pad")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        name=f"{prefix}depthwise",
    )(x)
    x = _normed(x, f"{prefix}depthwise_BN", f"{prefix}depthwise_relu")
    x = _normed(_conv(x, filters, f"{prefix}project"), f"{prefix}project_BN")
    if channels == filters and stride == 1:
        return layers.Add(name=f"{prefix}add")([before, x])
    return x


def _features(x: Any, alpha: float) -> Any:
    x = _conv(x, rounded(32 * alpha), "Conv1", 3, strides=2)
    x = _normed(x, "bn_Conv1", "Conv1_relu")
    for number, (filters, stride) in enumerate(BLOCKS):
        x = _block(x, number, rounded(int(filters * alpha)), stride)
    last = rounded(1280 * alpha) if alpha > 1.0 else 1280
    return _normed(_conv(x, last, "Conv_1", padding="valid"), "Conv_1_bn", "out_relu")


def _build(
    input_shape: Shape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: str | os.PathLike[str] | None = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = CLASSES,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Model:
    learned = weights == "imagenet"
    if learned and alpha not in ALPHAS:
        raise ValueError(
            f"There are ImageNet weights for `alpha` in {ALPHAS}, got {alpha}."
        )
    shape = input_shape
    if shape is None and input_tensor is not None:
        shape = tuple(input_tensor.shape[1:])
    side = side_of(shape, SIZES)
    stem = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{float(alpha)}_{side}"
    folder = "tensorflow/keras-applications/mobilenet_v2"
    architecture = Architecture(
        lambda x: _features(x, alpha),
        size=side,
        top=average_top(pool=None),
        pool_names=(None, None),
        files=weight_files(folder, stem, without_top="_no_top"),
    )
    is_sized = include_top or input_tensor is not None
    rows = side if learned else rows_of(input_shape, side if is_sized else None)
    options = BuildOptions(
        include_top, weights, input_tensor, input_shape, pooling, classes,
        classifier_activation, name or f"mobilenetv2_{alpha:0.2f}_{rows}",
    )  # fmt: skip
    return network(architecture, options)


MobileNetV2 = named("MobileNetV2", _build, "the second MobileNet")
preprocess_input = preprocessing("tf")
