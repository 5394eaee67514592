"""Residual networks: blocks of three convolutions around which the input goes, too."""

from __future__ import annotations

from collections.abc import Callable
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

__all__ = [
    "ResNet50", "ResNet101", "ResNet152", "decode_predictions", "preprocess_input",
]  # fmt: skip

EPSILON = 1.001e-5
FILTERS = (64, 128, 256, 512)

Stack = Callable[[Any, int, int, str, bool], Any]


def conv(x: Any, filters: int, kernel: int, name: str, **options: Any) -> Any:
    """Convolve."""
    return layers.Conv2D(filters, kernel, name=f"{name}_conv", **options)(x)


def normed(x: Any, name: str, relu: bool = True) -> Any:
    """Normalise over the batch, and apply ReLU."""
    x = norm(x, f"{name}_bn", epsilon=EPSILON)
    return activate(x, "relu", f"{name}_relu") if relu else x


def resnet(
    name: str, counts: tuple[int, ...], checksums: tuple[str, str], second: bool
) -> Architecture:
    """Return the network with these numbers of blocks in its stages, in version 2."""
    stack: Stack = _stack_of_second if second else _stack

    def features(x: Any) -> Any:
        x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
        x = conv(x, 64, 7, "conv1", strides=2)
        x = x if second else normed(x, "conv1")
        x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
        x = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)
        for number, (filters, count) in enumerate(zip(FILTERS, counts, strict=True)):
            keeps_size = number == (len(FILTERS) - 1 if second else 0)
            x = stack(x, filters, count, f"conv{number + 2}", keeps_size)
        return normed(x, "post") if second else x

    stem = f"{name}_weights_tf_dim_ordering_tf_kernels"
    files = weight_files("tensorflow/keras-applications/resnet", stem, checksums)
    return Architecture(features, files=files)


def _stack(x: Any, filters: int, count: int, name: str, keeps_size: bool) -> Any:
    for number in range(1, count + 1):
        stride = 2 if number == 1 and not keeps_size else 1
        x = _block(x, filters, f"{name}_block{number}", stride, number == 1)
    return x


def _block(x: Any, filters: int, name: str, stride: int, projects: bool) -> Any:
    around = x
    if projects:
        around = conv(x, 4 * filters, 1, f"{name}_0", strides=stride)
        around = normed(around, f"{name}_0", relu=False)
    x = normed(conv(x, filters, 1, f"{name}_1", strides=stride), f"{name}_1")
    x = normed(conv(x, filters, 3, f"{name}_2", padding="same"), f"{name}_2")
    x = normed(conv(x, 4 * filters, 1, f"{name}_3"), f"{name}_3", relu=False)
    x = layers.Add(name=f"{name}_add")([around, x])
    return activate(x, "relu", f"{name}_out")


def _stack_of_second(
    x: Any, filters: int, count: int, name: str, keeps_size: bool
) -> Any:
    for number in range(1, count + 1):
        stride = 2 if number == count and not keeps_size else 1
        x = _block_of_second(x, filters, f"{name}_block{number}", stride, number == 1)
    return x


def _block_of_second(
    x: Any, filters: int, name: str, stride: int, projects: bool
) -> Any:
    before = normed(x, f"{name}_preact")
    if projects:
        around = conv(before, 4 * filters, 1, f"{name}_0", strides=stride)
    else:
        around = layers.MaxPooling2D(1, strides=stride)(x) if stride > 1 else x
    x = conv(before, filters, 1, f"{name}_1", use_bias=False)
    x = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(normed(x, f"{name}_1"))
    x = conv(x, filters, 3, f"{name}_2", strides=stride, use_bias=False)
    x = conv(normed(x, f"{name}_2"), 4 * filters, 1, f"{name}_3")
    return layers.Add(name=f"{name}_out")([around, x])


def _first(layer_count: int, counts: tuple[int, ...], *checksums: str) -> Any:
    name = f"resnet{layer_count}"
    architecture = resnet(name, counts, (checksums[0], checksums[1]), second=False)
    sentence = f"the residual network of {layer_count} layers"
    return named(f"ResNet{layer_count}", standard(name, architecture), sentence)


ResNet50 = _first(
    50,
    (3, 4, 6, 3),
    "2cb95161c43110f7111970584f804107",
    "4d473c1dd8becc155b73f8504c6f6626",
)
ResNet101 = _first(
    101,
    (3, 4, 23, 3),
    "f1aeb4b969a6efcfb50fad2f0c20cfc5",
    "88cf7a10940856eca736dc7b7e228a21",
)
ResNet152 = _first(
    152,
    (3, 8, 36, 3),
    "100835be76be38e30d865e96f2aaae62",
    "ee4c566cf9a93f14d82f913c2dc6dd0c",
)
preprocess_input = preprocessing("caffe")
