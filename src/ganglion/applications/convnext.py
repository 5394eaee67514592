"""ConvNeXt: convolutions in the shape of a transformer's blocks."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ganglion import initializers, layers, ops, random
from ganglion.applications.frame import (
    Architecture,
    BuildOptions,
    Shape,
    channel_axis,
    named,
    network,
    weight_files,
)
from ganglion.applications.imagenet import CLASSES
from ganglion.applications.imagenet_utils import (
    TORCH_DEVIATION,
    TORCH_MEAN,
    decode_predictions,
    preprocessing,
)
from ganglion.models import Model, Sequential
from ganglion.serialization import export

__all__ = [
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge",
    "decode_predictions", "preprocess_input",
]  # fmt: skip

EPSILON = 1e-6
SCALE = 1e-6  # the initial factor of a block's results


@export("keras.src.applications.convnext")
class StochasticDepth(layers.Layer):
    """Leaves out whole rows in training; others are scaled up."""

    def __init__(self, drop_path_rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drop_path_rate = drop_path_rate

    def call(self, x: Any, training: Any = None) -> Any:
        """Leave rows out."""
        if not training:
            return x
        kept = 1 - self.drop_path_rate
        shape = (x.shape[0], *(1 for _ in x.shape[1:]))
        return x / kept * ops.floor(kept + random.uniform(shape, 0, 1))


@export("keras.src.applications.convnext")
class LayerScale(layers.Layer):
    """A factor for each channel, which is learned."""

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values, self.projection_dim = init_values, projection_dim

    def build(self, input_shape: Any) -> None:
        """Make the factors."""
        self.gamma = self.add_weight(
            shape=(self.projection_dim,),
            initializer=initializers.Constant(self.init_values),
        )

    def call(self, x: Any) -> Any:
        """Multiply."""
        return x * self.gamma


class Size(NamedTuple):
    """The blocks and channels of the four stages."""

    depths: tuple[int, ...]
    channels: tuple[int, ...]
    checksums: tuple[str, str]


SIZES = {
    "tiny": Size(
        (3, 3, 9, 3),
        (96, 192, 384, 768),
        (
            "8ae6e78ce2933352b1ef4008e6dd2f17bc40771563877d156bc6426c7cf503ff",
            "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
        ),
    ),
    "small": Size(
        (3, 3, 27, 3),
        (96, 192, 384, 768),
        (
            "ce1277d8f1ee5a0ef0e171469089c18f5233860ceaf9b168049cb9263fd7483c",
            "6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab",
        ),
    ),
    "base": Size(
        (3, 3, 27, 3),
        (128, 256, 512, 1024),
        (
            "52cbb006d3dadd03f6e095a8ca1aca47aecdd75acb4bc74bce1f5c695d0086e6",
            "40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
        ),
    ),
    "large": Size(
        (3, 3, 27, 3),
        (192, 384, 768, 1536),
        (
            "070c5ed9ed289581e477741d3b34beffa920db8cf590899d6d2c67fba2a198a6",
            "96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd",
        ),
    ),
    "xlarge": Size(
        (3, 3, 27, 3),
        (256, 512, 1024, 2048),
        (
            "c1f5ccab661354fc3a79a10fa99af82f0fbf10ec65cb894a3ae0815f17a889ee",
            "de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05",
        ),
    ),
}


def _norm(name: str | None) -> layers.Layer:
    return layers.LayerNormalization(epsilon=EPSILON, name=name)


def _block(x: Any, channels: int, name: str) -> Any:
    new = layers.Conv2D(
        channels, 7, padding="same", groups=channels, name=f"{name}_depthwise_conv"
    )(x)
    new = _norm(f"{name}_layernorm")(new)
    new = layers.Dense(4 * channels, name=f"{name}_pointwise_conv_1")(new)
    new = layers.Activation("gelu", name=f"{name}_gelu")(new)
    new = layers.Dense(channels, name=f"{name}_pointwise_conv_2")(new)
    new = LayerScale(SCALE, channels, name=f"{name}_layer_scale")(new)
    return x + layers.Activation("linear", name=f"{name}_identity")(new)


def _smaller(size: Size, name: str) -> list[Sequential]:
    """Return what comes before each stage: the stem, and halving."""
    stem = Sequential(
        [
            layers.Conv2D(size.channels[0], 4, strides=4, name=f"{name}_stem_conv"),
            _norm(f"{name}_stem_layernorm"),
        ],
        name=f"{name}_stem",
    )
    halving = [
        Sequential(
            [
                _norm(f"{name}_downsampling_layernorm_{i}"),
                layers.Conv2D(
                    channels, 2, strides=2, name=f"{name}_downsampling_conv_{i}"
                ),
            ],
            name=f"{name}_downsampling_block_{i}",
        )
        for i, channels in enumerate(size.channels[1:])
    ]
    return [stem, *halving]


def _features(x: Any, size: Size, name: str, preprocesses: bool) -> Any:
    if preprocesses and x.shape[channel_axis()] == 3:
        x = layers.Normalization(
            mean=[255 * mean for mean in TORCH_MEAN],
            variance=[(255 * deviation) ** 2 for deviation in TORCH_DEVIATION],
            name=f"{name}_prestem_normalization",
        )(x)
    stages = zip(_smaller(size, name), size.depths, size.channels, strict=True)
    for stage, (smaller, depth, channels) in enumerate(stages):
        x = smaller(x)
        for number in range(depth):
            x = _block(x, channels, f"{name}_stage_{stage}_block_{number}")
    return x


def _convnext(kind: str, title: str) -> Any:
    size, default = SIZES[kind], f"convnext_{kind}"
    folder = "tensorflow/keras-applications/convnext"
    files = weight_files(folder, default, size.checksums)

    def build(
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        input_shape: Shape | None = None,
        pooling: str | None = None,
        classes: int = CLASSES,
        classifier_activation: Any = "softmax",
        name: str = default,
    ) -> Model:
        def top(x: Any, classes: int, activation: Any) -> Any:
            x = layers.GlobalAveragePooling2D(name=f"{name}_head_gap")(x)
            x = _norm(f"{name}_head_layernorm")(x)
            return layers.Dense(classes, activation, name=f"{name}_head_dense")(x)

        architecture = Architecture(
            lambda x: _features(x, size, name, include_preprocessing),
            top=top,
            files=files,
            pool_names=(None, None),
            after_features=_norm(None),
        )
        options = BuildOptions(
            include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name,
        )  # fmt: skip
        return network(architecture, options)

    return named(title, build, f"ConvNeXt, {kind}")


ConvNeXtTiny = _convnext("tiny", "ConvNeXtTiny")
ConvNeXtSmall = _convnext("small", "ConvNeXtSmall")
ConvNeXtBase = _convnext("base", "ConvNeXtBase")
ConvNeXtLarge = _convnext("large", "ConvNeXtLarge")
ConvNeXtXLarge = _convnext("xlarge", "ConvNeXtXLarge")
preprocess_input = preprocessing(None)
