"""DenseNet: the inputs of a convolution are the results of all before it."""

from __future__ import annotations

from typing import Any

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

__all__ = [
    "DenseNet121", "DenseNet169", "DenseNet201", "decode_predictions",
    "preprocess_input",
]  # fmt: skip

EPSILON = 1.001e-5
GROWTH = 32  # channels that each block adds


def _conv(x: Any, filters: int, kernel: int, name: str | None, **options: Any) -> Any:
    return layers.Conv2D(filters, kernel, use_bias=False, name=name, **options)(x)


def _normed(x: Any, name: str) -> Any:
    prefix = f"{name}_" if name else ""
    return activate(norm(x, f"{prefix}bn", epsilon=EPSILON), "relu", f"{prefix}relu")


def _block(x: Any, name: str) -> Any:
    new = _conv(_normed(x, f"{name}_0"), 4 * GROWTH, 1, f"{name}_1_conv")
    new = _conv(_normed(new, f"{name}_1"), GROWTH, 3, f"{name}_2_conv", padding="same")
    return layers.Concatenate(axis=channel_axis(), name=f"{name}_concat")([x, new])


def _halved(x: Any, name: str) -> Any:
    x = _normed(x, name)
    x = _conv(x, x.shape[channel_axis()] // 2, 1, f"{name}_conv")
    return layers.AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)


def _densenet(layer_count: int, counts: tuple[int, ...], *checksums: str) -> Any:
    def features(x: Any) -> Any:
        x = layers.ZeroPadding2D(3)(x)
        x = _normed(_conv(x, 64, 7, "conv1_conv", strides=2), "conv1")
        x = layers.ZeroPadding2D(1)(x)
        x = layers.MaxPooling2D(3, strides=2, name="pool1")(x)
        for stage, count in enumerate(counts, 2):
            for number in range(1, count + 1):
                x = _block(x, f"conv{stage}_block{number}")
            x = _halved(x, f"pool{stage}") if stage < 5 else x
        return _normed(x, "")

    name = f"densenet{layer_count}"
    stem = f"{name}_weights_tf_dim_ordering_tf_kernels"
    folder = "tensorflow/keras-applications/densenet"
    files = weight_files(folder, stem, checksums)
    architecture = Architecture(features, files=files)
    sentence = f"the DenseNet of {layer_count} layers"
    return named(f"DenseNet{layer_count}", standard(name, architecture), sentence)


DenseNet121 = _densenet(
    121,
    (6, 12, 24, 16),
    "9d60b8095a5708f2dcce2bca79d332c7",
    "30ee3e1110167f948a6b9946edeeb738",
)
DenseNet169 = _densenet(
    169,
    (6, 12, 32, 32),
    "d699b8f76981ab1b30698df4c175e90b",
    "b8c4d4c20dd625c148057b9ff1c1176b",
)
DenseNet201 = _densenet(
    201,
    (6, 12, 48, 32),
    "1ceb130c1ea1b78c3bf6114dbdfd8807",
    "c13680b51ded0fb44dff2d8f86ac8bb1",
)
preprocess_input = preprocessing("torch")
