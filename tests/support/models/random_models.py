"""Small models drawn at random, the same for us and for Keras.

The functions take the module (`ganglion` or `keras`), and everything they draw depends
on the seed and on shapes alone: run twice, they make the same model twice. Numbers are
multiples of 1/8, so that sums and products are exact in any order and both agree on
what is exactly zero and what is a tie; there are many of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import random_model_heads as heads

# Left out: `sparsemax` of Keras on TensorFlow, whose rows do not add up to one; its
# `celu`, which has slope 2 at 0; `threshold`, which needs arguments.
ACTIVATIONS = (
    "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "mish", "relu", "relu6", "selu",
    "sigmoid", "silu", "soft_shrink", "softmax", "log_softmax", "softplus", "softsign",
    "sparse_plus", "sparse_sigmoid", "squareplus", "tanh", "tanh_shrink",
)  # fmt: skip
OPS = ("abs", "arcsinh", "cos", "erf", "relu", "sin", "softplus", "square", "tanh")
MOST_ELEMENTS = 400  # of an example between layers
WORDS = 7


@dataclass
class Maker:
    """Draws a model from a module of layers, with random numbers."""

    module: Any
    rng: Random
    shared: dict[Any, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)

    def layer(self, layer: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return a layer with a name of its own, and write down that it was made."""
        shown = [*map(str, args), *(f"{key}={value}" for key, value in kwargs.items())]
        self.text.append(f"{layer}({', '.join(shown)})")
        kwargs.setdefault("name", f"layer{len(self.text)}_{layer.lower()}")
        return getattr(self.module.layers, layer)(*args, **kwargs)

    def maybe(self, chance: float) -> bool:
        """Return true with that chance."""
        return self.rng.random() < chance

    def choose(self, *options: Any) -> Any:
        """Return one of some options."""
        return self.rng.choice(options)


def draw(module: Any, seed: int) -> tuple[Any, list[Any], Maker]:
    """Return the model of a seed, its heads, and how it was made."""
    make = Maker(module, Random(seed))
    inputs = [_input(make) for _ in range(make.choose(1, 1, 1, 2))]
    ends = []
    for tensor in inputs:
        x = tensor
        if tensor.dtype == "int32":
            x = make.layer("Embedding", WORDS, make.choose(2, 4))(x)
        for _ in range(make.rng.randint(0, 3)):
            x = block(make, x)
        ends.append(flat(make, x) if len(inputs) > 1 else x)
    x = ends[0] if len(ends) == 1 else joined(make, ends)
    if len(x.shape) != 3 or make.maybe(0.7):
        x = flat(make, x)
    for _ in range(make.rng.randint(0, 2)):
        x = block(make, x)
        x = x if len(x.shape) == 3 and make.maybe(0.5) else flat(make, x)
    used = [heads.draw(make) for _ in range(make.choose(1, 1, 1, 2))]
    outputs = [
        make.layer("Dense", head.units, head.activation, name=f"head_{number}")(x)
        for number, head in enumerate(used)
    ]
    for head in used:
        make.text.append(f"head: {head}")
    ends = [part[0] if len(part) == 1 else part for part in (inputs, outputs)]
    return module.Model(*ends), used, make


def _input(make: Maker) -> Any:
    kind = make.choose("vector", "vector", "words", "steps", "image", "image", "volume")
    shapes = {
        "vector": (make.choose(1, 3, 6, 8),),
        "words": (make.choose(3, 5),),
        "steps": (make.choose(4, 7), make.choose(1, 2, 4)),
        "image": (make.choose(4, 5), make.choose(4, 6), make.choose(1, 2, 3)),
        "volume": (3, 2, 4, make.choose(1, 2)),
    }
    make.text.append(f"Input({shapes[kind]}, {kind})")
    dtype = "int32" if kind == "words" else None
    return make.module.layers.Input(shapes[kind], dtype=dtype)


def data(model: Any, seed: int, rows: int) -> list[np.ndarray]:
    """Draw what a model is called on: zeros, ties, ones, sometimes large numbers."""
    rng = np.random.default_rng(seed)
    few = [0.0, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0]
    large = [*few, 6.0, 20.0, -20.0, 100.0, -100.0]
    drawn = []
    for tensor in model.inputs:
        shape = (rows, *tensor.shape[1:])
        if tensor.dtype == "int32":
            drawn.append(rng.integers(0, WORDS, shape).astype("int32"))
        else:
            drawn.append(rng.choice(large if seed % 4 == 0 else few, shape))
    return drawn


def weights(shapes: list[tuple[int, ...]], names: list[str], seed: int) -> list[Any]:
    """Draw weights: multiples of 1/8, many zeros, now and then nothing but zeros."""
    rng = np.random.default_rng([seed, 1])
    nothing = seed % 9 == 0
    drawn = []
    for shape, name in zip(shapes, names, strict=True):
        array = rng.integers(-8, 9, shape) / 8 * (rng.random(shape) < 0.8)
        if "variance" in name:
            array = rng.integers(1, 9, shape) / 4
        drawn.append(array * (0.0 if nothing and "variance" not in name else 1.0))
    return drawn


# ---- blocks --------------------------------------------------------------------------


def block(make: Maker, x: Any) -> Any:
    """Return some layers on top of others."""
    kinds = [active, active, normal, operated, residual, merged, shared, idle, nested]
    if len(x.shape) == 2:
        kinds += [dense, dense, dense, reshaped]
    else:
        kinds += [conv, conv, conv, pooled, pooled, moved, dense]
    x = make.rng.choice(kinds)(make, x)
    if np.prod(x.shape[1:]) > MOST_ELEMENTS and len(x.shape) == 5:
        return ranked(make, "GlobalAveragePooling", x, keepdims=True)
    if np.prod(x.shape[1:]) > MOST_ELEMENTS and len(x.shape) > 2:
        return ranked(make, "AveragePooling", x, 2, padding="same")
    return x


def ranked(make: Maker, name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the layer of that name for images of as many axes."""
    end = name.removeprefix("Conv") if name.startswith("ConvTranspose") else ""
    name = "Conv" if end else name
    return make.layer(f"{name}{len(x.shape) - 2}D{end}", *args, **kwargs)(x)


def options(make: Maker) -> dict[str, Any]:
    """Draw what layers with kernels have in common."""
    drawn: dict[str, Any] = {"use_bias": make.maybe(0.8)}
    if make.maybe(0.05):
        drawn["trainable"] = False
    if make.maybe(0.5):
        drawn["activation"] = make.choose(*ACTIVATIONS)
    if make.maybe(0.15):
        drawn["kernel_regularizer"] = make.choose("l1", "l2", "L1L2")
    if make.maybe(0.1):
        drawn["kernel_constraint"] = make.choose("non_neg", "max_norm", "unit_norm")
    if make.maybe(0.1):
        drawn["activity_regularizer"] = make.choose("l1", "l2")
    return drawn


def dense(make: Maker, x: Any) -> Any:
    return make.layer("Dense", make.choose(1, 2, 4, 6), **options(make))(x)


def conv(make: Maker, x: Any) -> Any:
    """Return a convolution of some kind."""
    size, filters = make.choose(1, 2, 3), make.choose(1, 2, 4)
    same = min(x.shape[1:-1]) < 2 * size or make.maybe(0.5)
    arguments = options(make) | {"padding": "same" if same else "valid"}
    depthwise = {k.replace("kernel", "depthwise"): v for k, v in arguments.items()}
    plain = {k: v for k, v in arguments.items() if not k.startswith("kernel")}
    rank, channels = len(x.shape) - 2, x.shape[-1]
    kind = make.choose(
        "", "", "strided", "dilated", "groups", "Transpose", "Depth", "Sep"
    )
    if kind == "strided":
        return ranked(make, "Conv", x, filters, size, strides=2, **arguments)
    if kind == "dilated":
        arguments["padding"] = "same"
        return ranked(make, "Conv", x, filters, size, dilation_rate=2, **arguments)
    if kind == "groups" and channels % 2 == 0:
        return ranked(make, "Conv", x, 4, size, groups=2, **arguments)
    if kind == "Transpose":
        strides = make.choose(1, 2)
        return ranked(make, "ConvTranspose", x, filters, size, strides, **arguments)
    if kind == "Depth" and rank < 3:
        many = make.choose(1, 2)
        return ranked(
            make, "DepthwiseConv", x, size, depth_multiplier=many, **depthwise
        )
    if kind == "Sep" and rank < 3:
        return ranked(make, "SeparableConv", x, filters, size, **plain)
    return ranked(make, "Conv", x, filters, size, **arguments)


def pooled(make: Maker, x: Any) -> Any:
    """Return a pool.

    Not in 3D: TensorFlow counts ties of a maximum twice, and has no mean of doubles.
    """
    kind = make.choose("Max", "Average")
    if make.maybe(0.2) or len(x.shape) == 5:
        return ranked(make, f"Global{kind}Pooling", x, keepdims=True)
    size, strides = make.choose(2, 3), make.choose(None, 1, 2)
    padding = "same" if min(x.shape[1:-1]) < size else make.choose("same", "valid")
    return ranked(make, f"{kind}Pooling", x, size, strides, padding)


def moved(make: Maker, x: Any) -> Any:
    """Return the same elements in other places."""
    rank = len(x.shape) - 2
    kind = make.choose("UpSampling", "ZeroPadding", "Cropping", "Permute", "Dropout")
    if kind == "Cropping" and min(x.shape[1:-1]) < 3:
        kind = "ZeroPadding"
    if kind == "Permute":
        return make.layer("Permute", (*range(2, rank + 2), 1))(x)
    if kind == "Dropout":
        return ranked(make, "SpatialDropout", x, 0.0)
    size = 1 if kind != "UpSampling" else 2
    if kind == "UpSampling" and rank == 2 and make.maybe(0.5):
        if make.maybe(0.5):
            return make.layer("Resizing", 3, 5)(x)
        return make.layer("UpSampling2D", 2, interpolation="bilinear")(x)
    return ranked(make, kind, x, size)


def active(make: Maker, x: Any) -> Any:
    """Return an activation, by name or as a layer."""
    kind = make.choose("name", "name", "name", "layer")
    if kind == "name":
        return make.layer("Activation", make.choose(*ACTIVATIONS))(x)
    name, arguments = make.choose(
        ("ReLU", {}),
        ("ReLU", {"max_value": 1.0}),
        ("ReLU", {"max_value": 6.0, "negative_slope": 0.25}),
        ("ReLU", {"threshold": 0.5}),
        ("LeakyReLU", {"negative_slope": 0.25}),
        ("PReLU", {}),
        ("ELU", {"alpha": 0.5}),
        ("Softmax", {"axis": 1}),
    )
    return make.layer(name, **arguments)(x)


def normal(make: Maker, x: Any) -> Any:
    """Return a normalisation."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("BatchNormalization", {"momentum": 0.75, "epsilon": 0.125}),
        ("BatchNormalization", {"scale": False, "center": make.maybe(0.5)}),
        ("LayerNormalization", {}),
        ("RMSNormalization", {}),
        ("UnitNormalization", {}),
    ]
    if x.shape[-1] % 2 == 0 and len(x.shape) > 2:
        kinds.append(("GroupNormalization", {"groups": 2}))
    name, arguments = make.rng.choice(kinds)
    if make.maybe(0.15):
        arguments["trainable"] = False
    return make.layer(name, **arguments)(x)


def idle(make: Maker, x: Any) -> Any:
    """Return what does nothing in training, or adds to the loss alone."""
    name, arguments = make.choose(
        ("Dropout", {"rate": 0.0}),
        ("GaussianNoise", {"stddev": 0.0}),
        ("Identity", {}),
        ("ActivityRegularization", {"l1": 0.125, "l2": 0.25}),
        ("Rescaling", {"scale": 0.5, "offset": -0.25}),
        ("Normalization", {"axis": None, "mean": 0.5, "variance": 0.25}),
    )
    return make.layer(name, **arguments)(x)


def operated(make: Maker, x: Any) -> Any:
    """Return a function from `ops` in the middle of the graph."""
    ops = make.module.ops
    kind = make.choose(
        "unary", "unary", "clip", "maximum", "minimum", "softmax", "where"
    )
    make.text.append(f"ops: {kind}")
    if kind == "unary":
        name = make.choose(*OPS)
        make.text[-1] += f" {name}"
        return getattr(ops, name)(x)
    if kind == "clip":
        return ops.clip(x, -1.0, 0.5)
    if kind in ("maximum", "minimum"):
        return getattr(ops, kind)(x, make.choose(0.0, 0.5))
    if kind == "where":
        return ops.where(x > 0.5, x * 2.0, -x)
    return ops.softmax(x, axis=1)


def residual(make: Maker, x: Any) -> Any:
    name = make.choose("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")
    return make.layer(name)([x, same_shape(make)(x)])


def merged(make: Maker, x: Any) -> Any:
    """Return two branches together."""
    parts = [make.layer("Activation", make.choose("relu", "tanh", "linear"))(x)]
    parts.append(make.layer("Dense", x.shape[-1], **options(make))(x))
    return joined(make, parts)


def joined(make: Maker, parts: list[Any]) -> Any:
    """Return several branches as one."""
    names = ["Add", "Multiply", "Average", "Maximum", "Minimum"]
    if any(part.shape != parts[0].shape for part in parts):
        names = ["Concatenate"]
    elif len(parts[0].shape) == 2:
        names += ["Concatenate", "Dot"]
    name = make.rng.choice(names)
    if name == "Dot":
        return make.layer("Dot", axes=1, normalize=make.maybe(0.5))(parts)
    return make.layer(name)(parts)


def same_shape(make: Maker) -> Any:
    """Return a function that keeps the shape."""
    name = make.choose("dense", *["relu", "softplus", "selu", "tanh", "relu6"])
    if name != "dense":
        return make.layer("Activation", name)
    return lambda x: make.layer("Dense", x.shape[-1], **options(make))(x)


def shared(make: Maker, x: Any) -> Any:
    """Return a layer called twice, on different things."""
    layer = make.layer("Dense", x.shape[-1], **options(make))
    name = make.choose("Add", "Maximum", "Concatenate")
    return make.layer(name)([layer(x), layer(layer(x))])


def nested(make: Maker, x: Any) -> Any:
    """Return a model as a layer of another."""
    tensor = make.module.layers.Input(x.shape[1:])
    inner = make.module.Model(tensor, dense(make, active(make, tensor)))
    make.text.append("(the last ones: a model of their own)")
    return inner(x)


def reshaped(make: Maker, x: Any) -> Any:
    size = x.shape[-1]
    if size % 2 == 0:
        return make.layer("Reshape", (2, size // 2))(x)
    return make.layer("RepeatVector", 2)(x)


def flat(make: Maker, x: Any) -> Any:
    """Return rows, whatever there was."""
    if len(x.shape) == 2:
        return x
    kinds = ["", "", "GlobalAveragePooling", "GlobalMaxPooling"]
    kind = make.rng.choice(kinds)
    return ranked(make, kind, x) if kind else make.layer("Flatten")(x)
