"""Inception blocks around which the input goes, too."""

from __future__ import annotations

from typing import Any, NamedTuple

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
from ganglion.applications.inception_v3 import HALF, Branch, conv, stem
from ganglion.serialization import export

__all__ = ["InceptionResNetV2", "decode_predictions", "preprocess_input"]


@export("keras.src.applications.inception_resnet_v2")
class CustomScaleLayer(layers.Layer):
    """The first of two inputs, and a share of the second."""

    def __init__(self, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        """Add up."""
        first, second = inputs
        return first + second * self.scale


class Block(NamedTuple):
    """Blocks of a kind: their share of the sum, how many, and their branches."""

    name: str
    scale: float
    repeats: int
    branches: tuple[Branch, ...]


BLOCK35 = Block(
    "block35",
    0.17,
    10,
    (
        ((32, 1, 1),),
        ((32, 1, 1), (32, 3, 3)),
        ((32, 1, 1), (48, 3, 3), (64, 3, 3)),
    ),
)
BLOCK17 = Block(
    "block17", 0.1, 20, (((192, 1, 1),), ((128, 1, 1), (160, 1, 7), (192, 7, 1)))
)
BLOCK8 = Block(
    "block8", 0.2, 10, (((192, 1, 1),), ((192, 1, 1), (224, 1, 3), (256, 3, 1)))
)
FIRST: tuple[Branch, ...] = (
    ((96, 1, 1),),
    ((48, 1, 1), (64, 5, 5)),
    ((64, 1, 1), (96, 3, 3), (96, 3, 3)),
    ("avg", (64, 1, 1)),
)
SECOND: tuple[Branch, ...] = (
    ((384, 3, 3, HALF),),
    ((256, 1, 1), (256, 3, 3), (384, 3, 3, HALF)),
    ("max",),
)
THIRD: tuple[Branch, ...] = (
    ((256, 1, 1), (384, 3, 3, HALF)),
    ((256, 1, 1), (288, 3, 3, HALF)),
    ((256, 1, 1), (288, 3, 3), (320, 3, 3, HALF)),
    ("max",),
)


def _branch(x: Any, branch: Branch) -> Any:
    for step in branch:
        if step == "avg":
            x = layers.AveragePooling2D(3, strides=1, padding="same")(x)
        elif step == "max":
            x = layers.MaxPooling2D(3, strides=2)(x)
        else:
            filters, rows, columns, *half = step
            x = conv(x, filters, rows, columns, half=bool(half))
    return x


def _mixed(x: Any, branches: tuple[Branch, ...], name: str) -> Any:
    parts = [_branch(x, branch) for branch in branches]
    return layers.Concatenate(axis=channel_axis(), name=name)(parts)


def _block(x: Any, kind: Block, number: int) -> Any:
    name = f"{kind.name}_{number}"
    last = kind is BLOCK8 and number == kind.repeats
    mixed = _mixed(x, kind.branches, f"{name}_mixed")
    channels = x.shape[channel_axis()]
    up = layers.Conv2D(channels, 1, padding="same", name=f"{name}_conv")(mixed)
    x = CustomScaleLayer(1.0 if last else kind.scale)([x, up])
    return x if last else activate(x, "relu", f"{name}_ac")


def _features(x: Any) -> Any:
    x = _mixed(stem(x), FIRST, "mixed_5b")
    for kind, halving, name in (
        (BLOCK35, SECOND, "mixed_6a"),
        (BLOCK17, THIRD, "mixed_7a"),
        (BLOCK8, None, ""),
    ):
        for number in range(1, kind.repeats + 1):
            x = _block(x, kind, number)
        x = x if halving is None else _mixed(x, halving, name)
    x = layers.Conv2D(1536, 1, padding="same", use_bias=False, name="conv_7b")(x)
    return activate(norm(x, "conv_7b_bn", scale=False), "relu", "conv_7b_ac")


_FILES = weight_files(
    "tensorflow/keras-applications/inception_resnet_v2",
    "inception_resnet_v2_weights_tf_dim_ordering_tf_kernels",
    ("e693bd0210a403b3192acc6073ad2e96", "d19885ff4a710c122648d3b5c3b684e4"),
)
InceptionResNetV2 = named(
    "InceptionResNetV2",
    standard(
        "inception_resnet_v2",
        Architecture(
            _features,
            size=299,
            least=75,
            pool_names=(None, None),
            files=_FILES,
        ),
    ),
    "Inception with residual connections",
)
preprocess_input = preprocessing("tf")
