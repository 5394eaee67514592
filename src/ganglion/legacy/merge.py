"""Keras 1's function `merge`, by the layers that Keras 2 put in its place."""

from __future__ import annotations

from typing import Any

from ganglion import keras2, ops
from ganglion.layers import (
    Add,
    Average,
    Concatenate,
    Dot,
    Lambda,
    Layer,
    Maximum,
    Multiply,
)

_BY_MODE = {"sum": Add, "mul": Multiply, "ave": Average, "max": Maximum}


def merge(
    inputs: Any,
    mode: Any = "sum",
    concat_axis: int = -1,
    dot_axes: Any = -1,
    output_shape: Any = None,
    output_mask: Any = None,
    arguments: Any = None,
    name: str | None = None,
) -> Any:
    """Return tensors merged into one; the mode is a name, or a function of them."""
    keras2.note("`merge(mode=)`", "`add`, `concatenate`, `dot` and their kin")
    layer: Layer
    if callable(mode):
        layer = Lambda(mode, output_shape, output_mask, arguments, name=name)
    elif mode == "concat":
        layer = Concatenate(concat_axis, name=name)
    elif mode in ("dot", "cos"):
        layer = Dot(dot_axes, normalize=mode == "cos", name=name)
    elif mode in _BY_MODE:
        layer = _BY_MODE[mode](name=name)
    else:
        known = ", ".join(map(repr, ("concat", "cos", "dot", *_BY_MODE)))
        raise ValueError(
            f"`merge` knows the modes {known} and functions, not {mode!r}."
        )
    merged = layer(inputs)
    return ops.expand_dims(merged, 1) if mode == "cos" else merged  # as Keras 1 did
