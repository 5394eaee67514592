"""NASNet: cells of two kinds, which a search found, alternately."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ganglion import layers
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    Shape,
    activate,
    average_top,
    channel_axis,
    named,
    network,
    norm,
    padding_for_half,
    weight_files,
)
from ganglion.applications.imagenet import CLASSES
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing
from ganglion.models import Model

__all__ = ["NASNetLarge", "NASNetMobile", "decode_predictions", "preprocess_input"]

MULTIPLIER = 2  # of the filters, where images are halved


def _normed(x: Any, name: str) -> Any:
    return norm(x, name, momentum=0.9997, epsilon=1e-3)


def _conv(x: Any, filters: int, name: str, **options: Any) -> Any:
    options = {"padding": "same"} | options
    return layers.Conv2D(
        filters, 1, use_bias=False, kernel_initializer="he_normal", name=name, **options
    )(x)


def _separable(x: Any, filters: int, kernel: int, name: str, half: bool = False) -> Any:
    x = activate(x, "relu")
    if half:
        around = padding_for_half(x, kernel)
        x = layers.ZeroPadding2D(around, name=f"separable_conv_1_pad_{name}")(x)
    for number, stride in ((1, 2 if half else 1), (2, 1)):
        x = activate(x, "relu") if number == 2 else x
        x = layers.SeparableConv2D(
            filters,
            kernel,
            strides=stride,
            padding="valid" if stride == 2 else "same",
            use_bias=False,
            name=f"separable_conv_{number}_{name}",
        )(x)
        x = _normed(x, f"separable_conv_{number}_bn_{name}")
    return x


def _adjusted(before: Any, x: Any, filters: int, name: str) -> Any:
    """Return the input of the cell before in the shape of this one's."""
    if before is None:
        return x
    if before.shape[-2] != x.shape[-2]:
        return _halved(before, filters, name)
    if before.shape[channel_axis()] != filters:
        before = activate(before, "relu")
        before = _conv(before, filters, f"adjust_conv_projection_{name}")
        return _normed(before, f"adjust_bn_{name}")
    return before


def _halved(x: Any, filters: int, name: str) -> Any:
    """Take every second pixel twice: those of even and those of odd numbers."""
    x = activate(x, "relu", f"adjust_relu_1_{name}")
    parts = []
    for number in (1, 2):
        if number == 2:
            x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
            x = layers.Cropping2D(((1, 0), (1, 0)))(x)
        pool = layers.AveragePooling2D(
            1, strides=2, name=f"adjust_avg_pool_{number}_{name}"
        )
        parts.append(_conv(pool(x), filters // 2, f"adjust_conv_{number}_{name}"))
    joined = layers.concatenate(parts, axis=channel_axis())
    return _normed(joined, f"adjust_bn_{name}")


def _normal(x: Any, before: Any, filters: int, name: str) -> Any:
    p = _adjusted(before, x, filters, name)
    h = _conv(activate(x, "relu"), filters, f"normal_conv_1_{name}")
    h = _normed(h, f"normal_bn_1_{name}")

    def pool(side: str, y: Any) -> Any:
        return layers.AveragePooling2D(
            3, strides=1, padding="same", name=f"normal_{side}_{name}"
        )(y)

    def conv(side: str, y: Any, kernel: int) -> Any:
        return _separable(y, filters, kernel, f"normal_{side}_{name}")

    pairs: list[Callable[[], list[Any]]] = [
        lambda: [conv("left1", h, 5), conv("right1", p, 3)],
        lambda: [conv("left2", p, 5), conv("right2", p, 3)],
        lambda: [pool("left3", h), p],
        lambda: [pool("left4", p), pool("right4", p)],
        lambda: [conv("left5", h, 3), h],
    ]
    sums = [
        layers.add(pair(), name=f"normal_add_{number}_{name}")
        for number, pair in enumerate(pairs, 1)
    ]
    title = f"normal_concat_{name}"
    return layers.concatenate([p, *sums], axis=channel_axis(), name=title)


def _reduction(x: Any, before: Any, filters: int, name: str) -> Any:
    p = _adjusted(before, x, filters, name)
    h = _conv(activate(x, "relu"), filters, f"reduction_conv_1_{name}")
    h = _normed(h, f"reduction_bn_1_{name}")
    around = padding_for_half(h, 3)
    padded = layers.ZeroPadding2D(around, name=f"reduction_pad_1_{name}")(h)

    def pool(kind: Any, side: str, y: Any, stride: int = 2) -> Any:
        padding = "valid" if stride == 2 else "same"
        title = f"reduction_{side}_{name}"
        return kind(3, strides=stride, padding=padding, name=title)(y)

    def conv(side: str, y: Any, kernel: int, half: bool = True) -> Any:
        return _separable(y, filters, kernel, f"reduction_{side}_{name}", half)

    average, largest = layers.AveragePooling2D, layers.MaxPooling2D
    first = layers.add(
        [conv("left1", h, 5), conv("right1", p, 7)], name=f"reduction_add_1_{name}"
    )
    second = layers.add(
        [pool(largest, "left2", padded), conv("right2", p, 7)],
        name=f"reduction_add_2_{name}",
    )
    third = layers.add(
        [pool(average, "left3", padded), conv("right3", p, 5)],
        name=f"reduction_add3_{name}",
    )
    fourth = layers.add([second, pool(average, "left4", first, stride=1)])
    fifth = layers.add(
        [conv("left4", first, 3, half=False), pool(largest, "right5", padded)],
        name=f"reduction_add4_{name}",
    )
    title = f"reduction_concat_{name}"
    parts = [second, third, fourth, fifth]
    return layers.concatenate(parts, axis=channel_axis(), name=title)


def _features(x: Any, last: int, blocks: int, stem: int, skips: bool) -> Any:
    filters = last // 24
    x = layers.Conv2D(
        stem,
        3,
        strides=2,
        use_bias=False,
        kernel_initializer="he_normal",
        name="stem_conv1",
    )(x)
    x, p = _normed(x, "stem_bn1"), None
    for number, divisor in ((1, MULTIPLIER**2), (2, MULTIPLIER)):
        x, p = _reduction(x, p, filters // divisor, f"stem_{number}"), x
    for stage in range(3):
        wide = filters * MULTIPLIER**stage
        if stage:
            before = x
            x = _reduction(x, p, wide, f"reduce_{stage * blocks}")
            p = p if skips else before
        for number in range(blocks):
            name = str(stage * blocks + number + (1 if stage else 0))
            x, p = _normal(x, p, wide, name), x
    return activate(x, "relu")


def _nasnet(title: str, default: str, size: int, *facts: Any) -> Any:
    *sizes, checksums = facts
    kind = default.removeprefix("nasnet_")
    folder = "tensorflow/keras-applications/nasnet"
    files = weight_files(folder, f"NASNet-{kind}", checksums, without_top="-no-top")
    architecture = Architecture(
        lambda x: _features(x, *sizes),
        size=size,
        top=average_top(pool=None),
        files=files,
        pool_names=(None, None),
    )

    def build(
        input_shape: Shape | None = None,
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        pooling: str | None = None,
        classes: int = CLASSES,
        classifier_activation: Any = "softmax",
        name: str = default,
    ) -> Model:
        if input_shape is None and not include_top and input_tensor is None:
            input_shape = (size, size, 3) if kind == "mobile" else None
        options = BuildOptions(
            include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name,
        )  # fmt: skip
        return network(architecture, options)

    return named(title, build, f"NASNet, {kind}")


NASNetMobile = _nasnet(
    "NASNetMobile", "nasnet_mobile", 224, 1056, 4, 32, False,
    ("020fb642bf7360b370c678b08e0adf61", "1ed92395b5b598bdda52abe5c0dbfd63"),
)  # fmt: skip
NASNetLarge = _nasnet(
    "NASNetLarge", "nasnet_large", 331, 4032, 6, 96, True,
    ("11577c9a518f0070763c2b964a382f17", "d81d89dc07e6e56530c4e77faddd61b5"),
)  # fmt: skip
preprocess_input = preprocessing("tf")
