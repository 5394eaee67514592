"""One table of layers, for the contract tests and for the comparison with Keras."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Zeros of both signs, where activations bend, and where they saturate.
SPECIAL = [0.0, 0.0, -0.0, 0.3, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, -20.0]


@dataclass(frozen=True)
class Case:
    """A layer with arguments, and the shapes (with batch) it is called on."""

    layer: str
    shapes: tuple[tuple[int, ...], ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    classes: int | None = None  # inputs are integers below this
    training: bool = False
    spread: bool = False  # the inputs are arguments of their own, not one list

    @property
    def id(self) -> str:
        """Name the case."""
        arguments = ",".join(f"{k}={v}" for k, v in self.arguments.items())
        return f"{self.layer}({arguments}){' training' if self.training else ''}"

    def make(self, module: Any) -> Any:
        """Make the layer from our module, or from Keras'."""
        name = self.layer.replace("Grouped", "Group")  # Keras shows it so
        return getattr(module, name)(**self.arguments)

    def call(self, layer: Any, inputs: Any, **options: Any) -> Any:
        """Call the layer on what `inputs` drew, or on Keras tensors."""
        if self.spread:
            return layer(*inputs, **options)
        return layer(inputs, **options)

    def inputs(self, seed: int = 0, special: bool = False) -> Any:
        """Draw what the layer is called on; from few numbers, with zeros and ties."""
        rng = np.random.default_rng(seed)
        if self.classes:
            drawn = [rng.integers(0, self.classes, s, "int32") for s in self.shapes]
        elif special:
            drawn = [rng.choice(SPECIAL, s).astype("float32") for s in self.shapes]
        else:
            drawn = [rng.normal(size=s).astype("float32") for s in self.shapes]
        return drawn if len(drawn) > 1 else drawn[0]


def case(layer: str, *shapes: tuple[int, ...], **arguments: Any) -> Case:
    """Write a case in one line."""
    training = arguments.pop("_training", False)
    classes = arguments.pop("_classes", None)
    spread = arguments.pop("_spread", False)
    return Case(layer, shapes, arguments, classes, training, spread)


STEPS, IMAGE, VOLUME = (2, 9, 4), (2, 9, 7, 4), (2, 5, 6, 4, 2)

_DENSE = [
    case("Dense", (3, 5), units=4),
    case("Dense", (3, 2, 5), units=4, activation="tanh", use_bias=False),
    case(
        "Dense",
        (3, 5),
        units=2,
        activation="softmax",
        kernel_initializer="he_normal",
        bias_initializer="ones",
        kernel_regularizer="l2",
        kernel_constraint="non_neg",
    ),
    case("Embedding", (2, 5), input_dim=11, output_dim=3, _classes=11),
    case("Embedding", (2, 5), input_dim=11, output_dim=3, mask_zero=True, _classes=4),
    case(
        "ReversibleEmbedding",
        (2, 5),
        input_dim=11,
        output_dim=3,
        tie_weights=False,
        mask_zero=True,
        logit_soft_cap=2.0,
        _classes=4,
    ),
    case("Masking", (3, 4, 2)),
    case("Masking", (3, 4, 1), mask_value=1.0),
    case("Activation", (3, 5), activation="gelu"),
    case("Activation", (3, 5), activation="softmax"),
    case("Identity", (3, 5)),
]

_SHAPES = [
    case("Flatten", (2, 3, 4, 2)),
    case("Flatten", (3,)),
    case("Reshape", (2, 12), target_shape=(3, 4)),
    case("Reshape", (2, 3, 4), target_shape=(-1, 2)),
    case("Permute", (2, 3, 4, 5), dims=(3, 1, 2)),
    case("RepeatVector", (2, 3), n=4),
    case("ZeroPadding1D", STEPS),
    case("ZeroPadding1D", STEPS, padding=(0, 2)),
    case("ZeroPadding2D", IMAGE, padding=2),
    case("ZeroPadding2D", IMAGE, padding=((1, 0), (2, 3))),
    case("ZeroPadding3D", VOLUME, padding=(1, 2, 0)),
    case("Cropping1D", STEPS, cropping=(2, 0)),
    case("Cropping2D", IMAGE, cropping=((1, 2), (0, 3))),
    case("Cropping2D", IMAGE, cropping=1),
    case("Cropping3D", VOLUME, cropping=(1, 2, 1)),
    case("UpSampling1D", STEPS, size=3),
    case("UpSampling2D", IMAGE),
    case("UpSampling2D", IMAGE, size=(1, 3)),
    case("UpSampling2D", IMAGE, size=(2, 3), interpolation="bilinear"),
    case("UpSampling2D", (1, 1, 2, 1), size=(4, 5), interpolation="bilinear"),
    case("UpSampling3D", VOLUME, size=(2, 1, 3)),
]

_CONVOLUTIONS = [
    case("Conv1D", STEPS, filters=3, kernel_size=3),
    case("Conv1D", STEPS, filters=3, kernel_size=4, strides=2, padding="same"),
    case("Conv1D", STEPS, filters=4, kernel_size=3, padding="causal", dilation_rate=2),
    case("Conv1D", STEPS, filters=4, kernel_size=3, padding="causal", strides=2),
    case("Conv2D", IMAGE, filters=6, kernel_size=3, activation="relu"),
    case(
        "Conv2D", IMAGE, filters=2, kernel_size=(2, 3), strides=(2, 1), use_bias=False
    ),
    case("Conv2D", IMAGE, filters=3, kernel_size=(4, 2), strides=3, padding="same"),
    case("Conv2D", IMAGE, filters=3, kernel_size=3, padding="same", dilation_rate=2),
    case("Conv2D", IMAGE, filters=3, kernel_size=2, dilation_rate=(2, 3)),
    case("Conv2D", IMAGE, filters=6, kernel_size=3, groups=2, padding="same"),
    case("Conv2D", IMAGE, filters=8, kernel_size=2, groups=4, strides=2),
    case("Conv3D", VOLUME, filters=3, kernel_size=(2, 3, 2)),
    case("Conv3D", VOLUME, filters=2, kernel_size=2, strides=2, padding="same"),
    case("Conv1DTranspose", (2, 2, 1), filters=1, kernel_size=3, strides=2),
    case("Conv1DTranspose", STEPS, filters=3, kernel_size=3, strides=2, padding="same"),
    case("Conv1DTranspose", STEPS, filters=3, kernel_size=2, strides=3),
    case("Conv2DTranspose", IMAGE, filters=3, kernel_size=3),
    case("Conv2DTranspose", IMAGE, filters=3, kernel_size=2, strides=(2, 3)),
    case("Conv2DTranspose", IMAGE, filters=3, kernel_size=5, strides=2, padding="same"),
    case("Conv2DTranspose", IMAGE, filters=2, kernel_size=4, strides=2, padding="same"),
    case(
        "Conv2DTranspose",
        IMAGE,
        filters=3,
        kernel_size=3,
        strides=2,
        padding="same",
        output_padding=1,
    ),
    case(
        "Conv2DTranspose",
        IMAGE,
        filters=3,
        kernel_size=3,
        strides=(3, 2),
        output_padding=(2, 0),
    ),
    case("Conv2DTranspose", IMAGE, filters=3, kernel_size=3, dilation_rate=2),
    case("Conv3DTranspose", (1, 3, 2, 3, 2), filters=3, kernel_size=3, strides=2),
    case("DepthwiseConv1D", STEPS, kernel_size=3),
    case("DepthwiseConv1D", STEPS, kernel_size=3, depth_multiplier=2, padding="same"),
    case("DepthwiseConv1D", STEPS, kernel_size=4, strides=2, padding="same"),
    case("DepthwiseConv2D", IMAGE, kernel_size=3, depth_multiplier=3),
    case("DepthwiseConv2D", IMAGE, kernel_size=3, strides=2, padding="same"),
    case("DepthwiseConv2D", IMAGE, kernel_size=(2, 3), dilation_rate=2),
    case("DepthwiseConv2D", IMAGE, kernel_size=3, dilation_rate=2, padding="same"),
    case("DepthwiseConv2D", IMAGE, kernel_size=2, strides=2, dilation_rate=2),
    case("SeparableConv1D", STEPS, filters=5, kernel_size=3, padding="same"),
    case("SeparableConv2D", IMAGE, filters=5, kernel_size=3, depth_multiplier=2),
    case(
        "SeparableConv2D",
        IMAGE,
        filters=5,
        kernel_size=3,
        strides=2,
        padding="same",
        activation="relu",
    ),
]

_POOLS = [
    case("MaxPooling1D", STEPS),
    case("MaxPooling1D", STEPS, pool_size=3, strides=2, padding="same"),
    case("MaxPooling2D", IMAGE),
    case("MaxPooling2D", IMAGE, pool_size=(3, 2), strides=(2, 1)),
    case("MaxPooling2D", IMAGE, pool_size=3, strides=2, padding="same"),
    case("MaxPooling3D", VOLUME, padding="same"),
    case("AveragePooling1D", STEPS, pool_size=2),
    case("AveragePooling1D", STEPS, pool_size=4, strides=3, padding="same"),
    case("AveragePooling2D", IMAGE, pool_size=(2, 3)),
    case("AveragePooling2D", IMAGE, pool_size=3, strides=2, padding="same"),
    case("AveragePooling3D", VOLUME, pool_size=2, padding="same"),
    *(
        case(f"Global{kind}Pooling{rank}D", shape, keepdims=keepdims)
        for kind in ("Average", "Max")
        for rank, shape in ((1, STEPS), (2, IMAGE), (3, VOLUME))
        for keepdims in (False, True)
    ),
]

_ADAPTIVE = [
    case(f"Adaptive{kind}Pooling{rank}D", shape, output_size=size)
    for kind in ("Average", "Max")
    for rank, shape, size in (
        (1, STEPS, 3),
        (1, STEPS, 4),
        (2, IMAGE, (4, 7)),
        (2, IMAGE, 5),
        (3, VOLUME, (2, 3, 5)),
    )
]

_NORMS = [
    case("BatchNormalization", (6, 5)),
    case("BatchNormalization", (6, 5), _training=True),
    case("BatchNormalization", IMAGE, epsilon=0.1, momentum=0.7, _training=True),
    case("BatchNormalization", IMAGE, axis=1, scale=False, _training=True),
    case("BatchNormalization", IMAGE, axis=2, center=False),
    case("BatchNormalization", (6, 5), center=False, scale=False, _training=True),
    case("BatchNormalization", (6, 5), renorm=True, synchronized=True),
    case("BatchNormalization", IMAGE, renorm=True, scale=False, _training=True),
    case(
        "BatchNormalization",
        IMAGE,
        axis=1,
        renorm=True,
        renorm_clipping={"rmax": 1.5, "rmin": 0.7, "dmax": 0.5},
        renorm_momentum=0.8,
        _training=True,
    ),
    case("LayerNormalization", (3, 5)),
    case("LayerNormalization", (3, 4, 5), axis=[1, 2], center=False),
    case("LayerNormalization", (3, 4, 5), axis=1, scale=False, epsilon=0.1),
    case("GroupNormalization", IMAGE, groups=2),
    case("GroupNormalization", IMAGE, groups=-1, center=False),
    case("GroupNormalization", (2, 6, 5), groups=3, axis=1, scale=False),
    case("UnitNormalization", (3, 5)),
    case("UnitNormalization", (3, 4, 5), axis=[1, 2]),
    case("RMSNormalization", (3, 5)),
    case("RMSNormalization", (3, 4, 5), axis=[1, 2], epsilon=0.01),
]

_MERGES = [
    *(
        case(kind, (3, 4), (3, 4), (3, 4))
        for kind in ("Add", "Multiply", "Average", "Maximum", "Minimum")
    ),
    case("Add", (3, 2, 4), (3, 1, 4)),
    case("Multiply", (3, 2, 4), (3, 4)),
    case("Subtract", (3, 4), (3, 4)),
    case("Concatenate", (3, 4), (3, 2), (3, 1)),
    case("Concatenate", (3, 4, 2), (3, 1, 2), axis=1),
    case("Dot", (3, 4), (3, 4), axes=1),
    case("Dot", (3, 4), (3, 4), axes=-1, normalize=True),
    case("Dot", (3, 4, 5), (3, 5, 2), axes=(2, 1)),
    case("Dot", (3, 4, 5), (3, 4, 2), axes=1),
    case("Dot", (3, 2, 4, 5), (3, 5), axes=(3, 1)),
    case("Dot", (3, 2, 4, 5), (3, 6, 4), axes=(2, 2)),
]

_QUERY, _KEYS = (2, 3, 4), (2, 5, 4)
_ATTENTION = [
    case("EinsumDense", (3, 5), equation="ab,bc->ac", output_shape=4, bias_axes="c"),
    case(
        "EinsumDense",
        (2, 3, 5),
        equation="abc,cde->abde",
        output_shape=(3, 2, 4),
        bias_axes="e",
        activation="tanh",
        kernel_initializer="he_normal",
    ),
    case("EinsumDense", (2, 3, 4), equation="...x,xy->...y", output_shape=2),
    case(
        "EinsumDense",
        (2, 3, 4, 2),
        equation="ab...,bc->ac...",
        output_shape=5,
        bias_axes="c",
    ),
    case("Attention", _QUERY, _KEYS),
    case("Attention", _QUERY, (2, 5, 3), _KEYS, use_scale=True),
    case("Attention", _QUERY, _KEYS, use_scale=True, score_mode="concat"),
    case("AdditiveAttention", _QUERY, _KEYS),
    case("AdditiveAttention", _QUERY, (2, 5, 3), _KEYS, use_scale=False),
    case("MultiHeadAttention", _QUERY, _KEYS, num_heads=2, key_dim=4, _spread=True),
    case(
        "MultiHeadAttention",
        _QUERY,
        (2, 5, 3),
        (2, 5, 6),
        num_heads=2,
        key_dim=4,
        value_dim=2,
        output_shape=5,
        use_bias=False,
        use_gate=True,
        sliding_window=2,
        kernel_initializer="he_uniform",
        _spread=True,
    ),
    case(
        "MultiHeadAttention",
        (2, 3, 2, 4),
        (2, 5, 2, 4),
        num_heads=2,
        key_dim=4,
        attention_axes=1,
        output_shape=(2, 3),
        _spread=True,
    ),
    case(
        "MultiHeadAttention",
        (2, 3, 2, 4),
        (2, 2, 3, 4),
        num_heads=1,
        key_dim=4,
        _spread=True,
    ),
    case(
        "GroupedQueryAttention",
        _QUERY,
        _KEYS,
        head_dim=4,
        num_query_heads=4,
        num_key_value_heads=2,
        _spread=True,
    ),
    case(
        "GroupedQueryAttention",
        _QUERY,
        _KEYS,
        (2, 5, 6),
        head_dim=4,
        num_query_heads=4,
        num_key_value_heads=1,
        use_bias=False,
        use_gate=True,
        sliding_window=3,
        _spread=True,
    ),
]

_ACTIVATIONS = [
    case("ReLU", (3, 5)),
    case("ReLU", (3, 5), max_value=0.5),
    case("ReLU", (3, 5), max_value=6, negative_slope=0.1),
    case("ReLU", (3, 5), negative_slope=0.2, threshold=0.3, max_value=1.0),
    case("ReLU", (3, 5), threshold=0.5),
    case("LeakyReLU", (3, 5)),
    case("LeakyReLU", (3, 5), negative_slope=0.05),
    case("PReLU", (3, 5), alpha_initializer="ones"),
    case("PReLU", IMAGE, shared_axes=[1, 2]),
    case("ELU", (3, 5), alpha=0.7),
    case("Softmax", (3, 5)),
    case("Softmax", (3, 4, 5), axis=1),
    case("Softmax", (3, 4, 5), axis=[1, 2]),
]

_NOISE = [
    case("Dropout", (3, 5), rate=0.4, seed=3),
    case("Dropout", (3, 5), rate=0.5, noise_shape=(None, 1)),
    case("Dropout", (3, 5), rate=0.0, _training=True),
    case("SpatialDropout1D", STEPS, rate=0.4),
    case("SpatialDropout2D", IMAGE, rate=0.4),
    case("SpatialDropout3D", VOLUME, rate=0.4, seed=1),
    case("GaussianNoise", (3, 5), stddev=0.4),
    case("GaussianDropout", (3, 5), rate=0.4),
    case("AlphaDropout", (3, 5), rate=0.4),
    case("ActivityRegularization", (3, 5), l1=0.1, l2=0.2),
]

_SCALES = [
    case("Rescaling", (3, 5), scale=0.5, offset=1.0),
    case("Rescaling", (3, 2), scale=[0.5, 2.0], offset=[1.0, 3.0]),
    case("Rescaling", (3, 5), scale=1 / 255, _classes=256),
    case("Normalization", (3, 5)),
    case("Normalization", (3, 5), axis=None, mean=1.5, variance=4.0),
    case("Normalization", (3, 2), mean=[1.0, 2.0], variance=[0.5, 4.0], invert=True),
    case("Normalization", (3, 4, 2), axis=(1, 2)),
    case("Resizing", IMAGE, height=4, width=9),
    case("Resizing", IMAGE, height=4, width=9, interpolation="nearest"),
    case("CenterCrop", IMAGE, height=4, width=5),
    case("CenterCrop", IMAGE, height=12, width=5),
]


def channels_first(last: Case) -> Case:
    """Return the same case with the channels in front of the other axes."""
    shapes = [(rows, channels, *axes) for rows, *axes, channels in last.shapes]
    arguments = last.arguments | {"data_format": "channels_first"}
    return case(last.layer, *shapes, **arguments, _training=last.training)


def is_channels_first(either: Case) -> bool:
    """Return whether a case has its channels in front of the other axes."""
    return either.arguments.get("data_format") == "channels_first"


_WITHOUT_FORMAT = (
    "Reshape", "Permute", "RepeatVector", "Cropping1D", "UpSampling1D",
    "SpatialDropout1D",
)  # fmt: skip
_CHANNELS_FIRST = [
    channels_first(last)
    for last in (*_SHAPES, *_CONVOLUTIONS, *_POOLS, *_ADAPTIVE, *_NOISE)
    if last.layer not in _WITHOUT_FORMAT and len(last.shapes[0]) > 2
]

CASES = [
    *_DENSE,
    *_SHAPES,
    *_CONVOLUTIONS,
    *_POOLS,
    *_ADAPTIVE,
    *_CHANNELS_FIRST,
    *_NORMS,
    *_MERGES,
    *_ATTENTION,
    *_ACTIVATIONS,
    *_NOISE,
    *_SCALES,
]


def random_weights(shapes: list[tuple[int, ...]], seed: int = 1) -> list[np.ndarray]:
    """Draw positive weights: some of them are variances."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.2, 1.2, shape).astype("float32") for shape in shapes]


# Keras on TensorFlow computes these wrong without a GPU, unlike on JAX; they are
# compared with channels last in test_channels_first.py.
WRONG_CHANNELS_FIRST = {
    ("Conv2D", (4, 2)), ("Conv3D", (2, 3, 2)), ("Conv3D", 2), ("DepthwiseConv2D", 3),
    ("SeparableConv2D", 3),
}  # fmt: skip


def is_right_in_keras(case: Case) -> bool:
    """Return whether Keras on TensorFlow computes a case as it says."""
    what = (case.layer, case.arguments.get("kernel_size"))
    return not is_channels_first(case) or what not in WRONG_CHANNELS_FIRST
