"""MobileNetV3, small and large: blocks that a search found."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    Shape,
    WeightFiles,
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
from ganglion.models import Model

__all__ = [
    "MobileNetV3Large", "MobileNetV3Small", "decode_predictions", "preprocess_input",
]  # fmt: skip

SQUEEZE = 0.25


class Block(NamedTuple):
    """A block; what a minimalistic network leaves out is said here."""

    expansion: float
    filters: int
    stride: int
    wide: bool = False  # 5x5 pixels rather than 3x3
    squeezes: bool = False
    relu: bool = False  # rather than hard swish


SMALL = (
    Block(1, 16, 2, squeezes=True, relu=True),
    Block(72.0 / 16, 24, 2, relu=True),
    Block(88.0 / 24, 24, 1, relu=True),
    Block(4, 40, 2, True, True),
    Block(6, 40, 1, True, True),
    Block(6, 40, 1, True, True),
    Block(3, 48, 1, True, True),
    Block(3, 48, 1, True, True),
    Block(6, 96, 2, True, True),
    Block(6, 96, 1, True, True),
    Block(6, 96, 1, True, True),
)
LARGE = (
    Block(1, 16, 1, relu=True),
    Block(4, 24, 2, relu=True),
    Block(3, 24, 1, relu=True),
    Block(3, 40, 2, True, True, True),
    Block(3, 40, 1, True, True, True),
    Block(3, 40, 1, True, True, True),
    Block(6, 80, 2),
    Block(2.5, 80, 1),
    Block(2.3, 80, 1),
    Block(2.3, 80, 1),
    Block(6, 112, 1, squeezes=True),
    Block(6, 112, 1, squeezes=True),
    Block(6, 160, 2, True, True),
    Block(6, 160, 1, True, True),
    Block(6, 160, 1, True, True),
)
CHECKSUMS = {
    "large_224_0.75": (
        "765b44a33ad4005b3ac83185abf1d0eb",
        "40af19a13ebea4e2ee0c676887f69a2e",
    ),
    "large_224_1.0": (
        "59e551e166be033d707958cf9e29a6a7",
        "07fb09a5933dd0c8eaafa16978110389",
    ),
    "large_minimalistic_224_1.0": (
        "675e7b876c45c57e9e63e6d90a36599c",
        "ec5221f64a2f6d1ef965a614bdae7973",
    ),
    "small_224_0.75": (
        "cb65d4e5be93758266aa0a7f2c6708b7",
        "ebdb5cc8e0b497cd13a7c275d475c819",
    ),
    "small_224_1.0": (
        "8768d4c2e7dee89b9d02b2d03d65d862",
        "d3e8ec802a04aa4fc771ee12a9a9b836",
    ),
    "small_minimalistic_224_1.0": (
        "99cd97fb2fcdad2bf028eb838de69e37",
        "cde8136e733e811080d9fcd8a252f7e4",
    ),
}


def _normed(x: Any, name: str) -> Any:
    return norm(x, name, epsilon=1e-3, momentum=0.999)


def _conv(x: Any, filters: int, name: str, kernel: int = 1, **options: Any) -> Any:
    return layers.Conv2D(filters, kernel, padding="same", name=name, **options)(x)


def _active(x: Any, relu: bool) -> Any:
    return layers.ReLU()(x) if relu else layers.Activation("hard_swish")(x)


def _squeezed(x: Any, filters: int, prefix: str) -> Any:
    name = f"{prefix}squeeze_excite_"
    share = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}avg_pool")(x)
    share = _conv(share, rounded(filters * SQUEEZE), f"{name}conv")
    share = layers.ReLU(name=f"{name}relu")(share)
    share = _conv(share, filters, f"{name}conv_1")
    share = layers.ReLU(6.0)(share + 3.0) * (1.0 / 6.0)
    return layers.Multiply(name=f"{name}mul")([x, share])


def _block(x: Any, number: int, block: Block, filters: int, minimal: bool) -> Any:
    before, channels = x, x.shape[channel_axis()]
    prefix = f"expanded_conv_{number}_" if number else "expanded_conv_"
    relu = block.relu or minimal
    kernel = 5 if block.wide and not minimal else 3
    wide = rounded(channels * block.expansion)
    if number:
        x = _conv(x, wide, f"{prefix}expand", use_bias=False)
        x = _active(_normed(x, f"{prefix}expand_bn"), relu)
    if block.stride == 2:
        around = padding_for_half(x, kernel)
        x = layers.ZeroPadding2D(around, name=f"{prefix}depthwise_pad")(x)
    x = layers.DepthwiseConv2D(
        kernel,
        strides=block.stride,
        padding="same" if block.stride == 1 else "valid",
        use_bias=False,
        name=f"{prefix}depthwise",
    )(x)
    x = _active(_normed(x, f"{prefix}depthwise_bn"), relu)
    if block.squeezes and not minimal:
        x = _squeezed(x, wide, prefix)
    x = _conv(x, filters, f"{prefix}project", use_bias=False)
    x = _normed(x, f"{prefix}project_bn")
    if block.stride == 1 and channels == filters:
        return layers.Add(name=f"{prefix}add")([before, x])
    return x


def _features(
    x: Any, blocks: tuple[Block, ...], alpha: float, minimal: bool, scales: bool
) -> Any:
    x = layers.Rescaling(1.0 / 127.5, -1.0)(x) if scales else x
    x = _conv(x, 16, "conv", 3, strides=2, use_bias=False)
    x = _active(_normed(x, "conv_bn"), minimal)
    for number, block in enumerate(blocks):
        x = _block(x, number, block, rounded(block.filters * alpha), minimal)
    last = rounded(x.shape[channel_axis()] * 6)
    x = _normed(_conv(x, last, "conv_1", use_bias=False), "conv_1_bn")
    return _active(x, minimal)


def _mobilenet(kind: str, default: str, blocks: tuple[Block, ...], width: int) -> Any:
    def build(
        input_shape: Shape | None = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        classes: int = CLASSES,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = default,
    ) -> Model:
        def top(x: Any, classes: int, activation: Any) -> Any:
            x = layers.GlobalAveragePooling2D(keepdims=True)(x)
            last = rounded(width * alpha) if alpha > 1.0 else width
            x = _active(_conv(x, last, "conv_2"), minimalistic)
            x = layers.Dropout(dropout_rate)(x) if dropout_rate > 0 else x
            x = layers.Flatten()(_conv(x, classes, "logits"))
            return layers.Activation(activation, name="predictions")(x)

        architecture = Architecture(
            lambda x: _features(x, blocks, alpha, minimalistic, include_preprocessing),
            top=top,
            any_size=True,
            files=_files(kind, minimalistic, alpha),
        )
        options = BuildOptions(
            include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name,
        )  # fmt: skip
        return network(architecture, options)

    return named(default, build, f"the third MobileNet, {kind}")


def _files(kind: str, minimal: bool, alpha: float) -> WeightFiles | None:
    key = f"{kind}{'_minimalistic' * minimal}_224_{alpha}"
    if key not in CHECKSUMS:
        return None
    folder = "tensorflow/keras-applications/mobilenet_v3"
    stem = f"weights_mobilenet_v3_{key}_float"
    return weight_files(folder, stem, CHECKSUMS[key], without_top="_no_top_v2")


MobileNetV3Small = _mobilenet("small", "MobileNetV3Small", SMALL, 1024)
MobileNetV3Large = _mobilenet("large", "MobileNetV3Large", LARGE, 1280)
preprocess_input = preprocessing(None)
