"""EfficientNet: one network, made wider and deeper in step with its images."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    activate,
    average_top,
    channel_axis,
    named,
    norm,
    padding_for_half,
    repeats,
    rounded,
    standard,
    weight_files,
)
from ganglion.applications.imagenet_utils import (
    TORCH_DEVIATION,
    decode_predictions,
    preprocessing,
)
from ganglion.initializers import VarianceScaling

__all__ = [f"EfficientNetB{number}" for number in range(8)]
__all__ += ["decode_predictions", "preprocess_input"]

DROP_CONNECT = 0.2  # how often training leaves out the last block
SQUEEZE = 0.25


def conv_start() -> VarianceScaling:
    """Return how kernels of convolutions start."""
    return VarianceScaling(2.0, mode="fan_out", distribution="truncated_normal")


def dense_start() -> VarianceScaling:
    """Return how the kernel of the top starts."""
    return VarianceScaling(1 / 3, mode="fan_out", distribution="uniform")


class Stage(NamedTuple):
    """A row of equal blocks; the first of them changes size and channels."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    before: int  # channels
    filters: int


STAGES = (
    Stage(1, 3, 1, 1, 32, 16),
    Stage(2, 3, 2, 6, 16, 24),
    Stage(2, 5, 2, 6, 24, 40),
    Stage(3, 3, 2, 6, 40, 80),
    Stage(3, 5, 1, 6, 80, 112),
    Stage(4, 5, 2, 6, 112, 192),
    Stage(1, 3, 1, 6, 192, 320),
)


class Scale(NamedTuple):
    """The factors of width and depth of a network, relative to the first one."""

    width: float
    depth: float
    size: int
    dropout: float
    checksums: tuple[str, str]


SCALES = (
    Scale(
        1.0, 1.0, 224, 0.2,
        ("902e53a9f72be733fc0bcb005b3ebbac", "50bc09e76180e00e4465e1a485ddc09d"),
    ),
    Scale(
        1.0, 1.1, 240, 0.2,
        ("1d254153d4ab51201f1646940f018540", "74c4e6b3e1f6a1eea24c589628592432"),
    ),
    Scale(
        1.1, 1.2, 260, 0.3,
        ("b15cce36ff4dcbd00b6dd88e7857a6ad", "111f8e2ac8aa800a7a99e3239f7bfb39"),
    ),
    Scale(
        1.2, 1.4, 300, 0.3,
        ("ffd1fdc53d0ce67064dc6a9c7960ede0", "af6d107764bb5b1abb91932881670226"),
    ),
    Scale(
        1.4, 1.8, 380, 0.4,
        ("18c95ad55216b8f92d7e70b3a046e2fc", "ebc24e6d6c33eaebbd558eafbeedf1ba"),
    ),
    Scale(
        1.6, 2.2, 456, 0.4,
        ("ace28f2a6363774853a83a0b21b9421a", "38879255a25d3c92d5e44e04ae6cec6f"),
    ),
    Scale(
        1.8, 2.6, 528, 0.5,
        ("165f6e37dce68623721b423839de8be5", "9ecce42647a20130c1f39a5d4cb75743"),
    ),
    Scale(
        2.0, 3.1, 600, 0.5,
        ("8c03f828fec3ef71311cd463b6759d99", "cbcfe4450ddf6f3ad90b1b398090fe4a"),
    ),
)  # fmt: skip


def conv(x: Any, filters: int, kernel: int, name: str, **options: Any) -> Any:
    """Convolve, from the usual start."""
    options = {"padding": "same", "kernel_initializer": conv_start(), **options}
    return layers.Conv2D(filters, kernel, name=name, **options)(x)


def squeezed(x: Any, filters: int, inner: int, name: str) -> Any:
    """Weigh channels by what the whole image has of them."""
    weights = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    shape = (filters, 1, 1) if channel_axis() == 1 else (1, 1, filters)
    weights = layers.Reshape(shape, name=f"{name}se_reshape")(weights)
    weights = conv(weights, inner, 1, f"{name}se_reduce", activation="swish")
    weights = conv(weights, filters, 1, f"{name}se_expand", activation="sigmoid")
    return layers.multiply([x, weights], name=f"{name}se_excite")


def added(x: Any, before: Any, rate: float, name: str) -> Any:
    """Add the input of a block, which training sometimes leaves alone."""
    if rate:
        x = layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
    return layers.add([x, before], name=f"{name}add")


def _normed(x: Any, name: str, **options: Any) -> Any:
    return activate(norm(x, f"{name}bn", **options), "swish", f"{name}activation")


def _block(
    x: Any, stage: Stage, stride: int, channels: int, rate: float, name: str
) -> Any:
    before, wide = x, channels * stage.expansion
    if stage.expansion != 1:
        x = conv(x, wide, 1, f"{name}expand_conv", use_bias=False)
        x = _normed(x, f"{name}expand_")
    if stride == 2:
        around = padding_for_half(x, stage.kernel)
        x = layers.ZeroPadding2D(around, name=f"{name}dwconv_pad")(x)
    x = layers.DepthwiseConv2D(
        stage.kernel,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        depthwise_initializer=conv_start(),
        name=f"{name}dwconv",
    )(x)
    x = squeezed(_normed(x, name), wide, max(1, int(channels * SQUEEZE)), name)
    x = conv(x, stage.filters, 1, f"{name}project_conv", use_bias=False)
    x = norm(x, f"{name}project_bn")
    keeps_shape = stride == 1 and channels == stage.filters
    return added(x, before, rate, name) if keeps_shape else x


def _features(x: Any, scale: Scale, learned: bool) -> Any:
    x = layers.Rescaling(1.0 / 255.0)(x)
    x = layers.Normalization(axis=channel_axis())(x)
    if learned:  # as these weights were trained
        factors = [1.0 / math.sqrt(deviation) for deviation in TORCH_DEVIATION]
        x = layers.Rescaling(factors)(x)
    around = padding_for_half(x, 3)
    x = layers.ZeroPadding2D(around, name="stem_conv_pad")(x)
    filters = rounded(32 * scale.width)
    x = conv(x, filters, 3, "stem_conv", strides=2, padding="valid", use_bias=False)
    x = _normed(x, "stem_")
    total = float(sum(repeats(stage.repeats, scale.depth) for stage in STAGES))
    done = 0
    for number, stage in enumerate(STAGES, 1):
        wide = stage._replace(filters=rounded(stage.filters * scale.width))
        for repeat in range(repeats(stage.repeats, scale.depth)):
            channels = wide.filters if repeat else rounded(stage.before * scale.width)
            stride = 1 if repeat else stage.stride
            name = f"block{number}{chr(ord('a') + repeat)}_"
            x = _block(x, wide, stride, channels, DROP_CONNECT * done / total, name)
            done += 1
    x = conv(x, rounded(1280 * scale.width), 1, "top_conv", use_bias=False)
    return _normed(x, "top_")


def _efficientnet(number: int, scale: Scale) -> Any:
    name = f"efficientnetb{number}"
    files = weight_files("keras-applications", name, scale.checksums)

    def architecture(options: BuildOptions) -> Architecture:
        return Architecture(
            lambda x: _features(x, scale, options.weights == "imagenet"),
            size=scale.size,
            top=average_top(scale.dropout, start=dense_start()),
            files=files,
        )

    sentence = f"EfficientNet B{number}, for images of {scale.size} pixels"
    return named(f"EfficientNetB{number}", standard(name, architecture), sentence)


(
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
    EfficientNetB5,
    EfficientNetB6,
    EfficientNetB7,
) = (_efficientnet(number, scale) for number, scale in enumerate(SCALES))
preprocess_input = preprocessing(None)
