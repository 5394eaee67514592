"""EfficientNetV2: the first stages convolve whole blocks at once."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ganglion import layers
from ganglion.applications.efficientnet import (
    DROP_CONNECT,
    SQUEEZE,
    added,
    conv,
    conv_start,
    dense_start,
    squeezed,
)
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
    repeats,
    rounded,
    weight_files,
)
from ganglion.applications.imagenet import CLASSES
from ganglion.applications.imagenet_utils import (
    TORCH_DEVIATION,
    TORCH_MEAN,
    decode_predictions,
    preprocessing,
)
from ganglion.models import Model

__all__ = [f"EfficientNetV2{name}" for name in ("B0", "B1", "B2", "B3", "L", "M", "S")]
__all__ += ["decode_predictions", "preprocess_input"]

MOMENTUM = 0.9


class Stage(NamedTuple):
    """A row of equal blocks; fused ones convolve all channels at once."""

    repeats: int
    stride: int
    expansion: int
    before: int  # channels
    filters: int
    fused: bool = False


SMALL = (
    Stage(1, 1, 1, 32, 16, True),
    Stage(2, 2, 4, 16, 32, True),
    Stage(2, 2, 4, 32, 48, True),
    Stage(3, 2, 4, 48, 96),
    Stage(5, 1, 6, 96, 112),
    Stage(8, 2, 6, 112, 192),
)
STAGES = {
    "b0": SMALL,
    "b1": SMALL,
    "b2": SMALL,
    "b3": SMALL,
    "s": (
        Stage(2, 1, 1, 24, 24, True),
        Stage(4, 2, 4, 24, 48, True),
        Stage(4, 2, 4, 48, 64, True),
        Stage(6, 2, 4, 64, 128),
        Stage(9, 1, 6, 128, 160),
        Stage(15, 2, 6, 160, 256),
    ),
    "m": (
        Stage(3, 1, 1, 24, 24, True),
        Stage(5, 2, 4, 24, 48, True),
        Stage(5, 2, 4, 48, 80, True),
        Stage(7, 2, 4, 80, 160),
        Stage(14, 1, 6, 160, 176),
        Stage(18, 2, 6, 176, 304),
        Stage(5, 1, 6, 304, 512),
    ),
    "l": (
        Stage(4, 1, 1, 32, 32, True),
        Stage(7, 2, 4, 32, 64, True),
        Stage(7, 2, 4, 64, 96, True),
        Stage(10, 2, 4, 96, 192),
        Stage(19, 1, 6, 192, 224),
        Stage(25, 2, 6, 224, 384),
        Stage(7, 1, 6, 384, 640),
    ),
}


class Scale(NamedTuple):
    """The factors of width and depth of a network, besides its stages."""

    width: float
    depth: float
    size: int
    checksums: tuple[str, str]


SCALES = {
    "b0": Scale(
        1.0, 1.0, 224,
        ("21ecbf6da12460d5c40bb2f29ceb2188", "893217f2bb855e2983157299931e43ff"),
    ),
    "b1": Scale(
        1.0, 1.1, 240,
        ("069f0534ff22adf035c89e2d9547a9dc", "0e80663031ca32d657f9caa404b6ec37"),
    ),
    "b2": Scale(
        1.1, 1.2, 260,
        ("424e49f28180edbde1e94797771950a7", "1dfe2e7a5d45b6632553a8961ea609eb"),
    ),
    "b3": Scale(
        1.2, 1.4, 300,
        ("1f1fc43bd98a6e4fd8fdfd551e02c7a0", "f6abf7b5849ac99a89b50dd3fd532856"),
    ),
    "s": Scale(
        1.0, 1.0, 384,
        ("e1d88a8495beba45748fedd0cecbe016", "af0682fb74e8c54910f2d4393339c070"),
    ),
    "m": Scale(
        1.0, 1.0, 480,
        ("a3bf6aa3276309f4fc6a34aa114c95cd", "1b8dc055df72dde80d614482840fe342"),
    ),
    "l": Scale(
        1.0, 1.0, 480,
        ("27e6d408b53c7ebc868fefa357689935", "b0b66b5c863aef5b46e8608fe1711615"),
    ),
}  # fmt: skip


def _normed(x: Any, name: str, active: bool = True) -> Any:
    x = norm(x, f"{name}bn", momentum=MOMENTUM)
    return activate(x, "swish", f"{name}activation") if active else x


def _block(
    x: Any, stage: Stage, stride: int, channels: int, rate: float, name: str
) -> Any:
    before, wide = x, channels * stage.expansion
    expands = stage.expansion != 1
    if expands:
        kernel, step = (3, stride) if stage.fused else (1, 1)
        x = conv(x, wide, kernel, f"{name}expand_conv", strides=step, use_bias=False)
        x = _normed(x, f"{name}expand_")
    if not stage.fused:
        x = layers.DepthwiseConv2D(
            3,
            strides=stride,
            padding="same",
            use_bias=False,
            depthwise_initializer=conv_start(),
            name=f"{name}dwconv2",
        )(x)
        x = squeezed(_normed(x, name), wide, max(1, int(channels * SQUEEZE)), name)
    kernel, step = (3, stride) if stage.fused and not expands else (1, 1)
    project = f"{name}project_"
    x = conv(x, stage.filters, kernel, f"{project}conv", strides=step, use_bias=False)
    x = _normed(x, project, active=stage.fused and not expands)
    keeps_shape = stride == 1 and channels == stage.filters
    return added(x, before, rate, name) if keeps_shape else x


def _preprocessed(x: Any, kind: str) -> Any:
    if kind.startswith("b") and x.shape[channel_axis()] == 3:
        x = layers.Rescaling(1.0 / 255)(x)
        variance = [deviation**2 for deviation in TORCH_DEVIATION]
        return layers.Normalization(
            axis=channel_axis(), mean=list(TORCH_MEAN), variance=variance
        )(x)
    return layers.Rescaling(1.0 / 128.0, -1)(x)


def _features(x: Any, kind: str, preprocesses: bool) -> Any:
    scale, stages = SCALES[kind], STAGES[kind]

    def widened(filters: int) -> int:
        return rounded(filters * scale.width, keep_90_percent=False)

    x = _preprocessed(x, kind) if preprocesses else x
    first = widened(stages[0].before)
    x = _normed(conv(x, first, 3, "stem_conv", strides=2, use_bias=False), "stem_")
    total, done = float(sum(stage.repeats for stage in stages)), 0
    for number, stage in enumerate(stages, 1):
        wide = stage._replace(filters=widened(stage.filters))
        for repeat in range(repeats(stage.repeats, scale.depth)):
            channels = wide.filters if repeat else widened(stage.before)
            stride = 1 if repeat else stage.stride
            name = f"block{number}{chr(ord('a') + repeat)}_"
            x = _block(x, wide, stride, channels, DROP_CONNECT * done / total, name)
            done += 1
    return _normed(conv(x, widened(1280), 1, "top_conv", use_bias=False), "top_")


def _efficientnet(kind: str) -> Any:
    default, scale = f"efficientnetv2-{kind}", SCALES[kind]
    folder = "tensorflow/keras-applications/efficientnet_v2"
    files = weight_files(folder, default, scale.checksums)

    def build(
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        input_shape: Shape | None = None,
        pooling: str | None = None,
        classes: int = CLASSES,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = default,
    ) -> Model:
        architecture = Architecture(
            lambda x: _features(x, kind, include_preprocessing),
            size=scale.size,
            top=average_top(0.2, start=dense_start()),
            files=files,
        )
        options = BuildOptions(
            include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name,
        )  # fmt: skip
        return network(architecture, options)

    sentence = f"EfficientNetV2 {kind.upper()}, for images of {scale.size} pixels"
    return named(f"EfficientNetV2{kind.upper()}", build, sentence)


EfficientNetV2B0 = _efficientnet("b0")
EfficientNetV2B1 = _efficientnet("b1")
EfficientNetV2B2 = _efficientnet("b2")
EfficientNetV2B3 = _efficientnet("b3")
EfficientNetV2S = _efficientnet("s")
EfficientNetV2M = _efficientnet("m")
EfficientNetV2L = _efficientnet("l")
preprocess_input = preprocessing(None)
