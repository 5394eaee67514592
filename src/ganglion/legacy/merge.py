"""Keras 1's `merge` and `Merge`, by the layers that Keras 2 put in their place."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from ganglion import keras2, ops, tree
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


def Merge(  # noqa: N802 (Keras' name)
    layers: Any = None,
    mode: Any = "sum",
    concat_axis: int = -1,
    dot_axes: Any = -1,
    output_shape: Any = None,
    output_mask: Any = None,
    arguments: Any = None,
    node_indices: Any = None,
    tensor_indices: Any = None,
    name: str | None = None,
) -> Any:
    """Return models merged into one; without any, what merges tensors."""
    if node_indices or tensor_indices:
        raise NotImplementedError(
            "Merge(node_indices=, tensor_indices=): merge the tensors themselves, "
            "which `get_output_at` of the models returns."
        )
    merged = partial(
        merge,
        mode=mode,
        concat_axis=concat_axis,
        dot_axes=dot_axes,
        output_shape=output_shape,
        output_mask=output_mask,
        arguments=arguments,
    )
    if layers is None:
        return partial(merged, name=name)
    # By its name, and late: models are built on top of all this.
    model = importlib.import_module("ganglion.models").Model
    inputs = tree.flatten([layer.input for layer in layers])
    return model(inputs, merged([layer.output for layer in layers]), name=name)
