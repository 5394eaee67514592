"""Layers in a graph of TensorFlow itself: a function that `tf.data.Dataset.map` traces.

TensorFlow traces such a function once, on tensors without values. The layer then
becomes a node of its graph, which calls the layer on the arrays of each element.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.symbolic import KerasTensor, infer


def is_in_graph(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether some argument is a tensor of TensorFlow that has no value yet."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or "is_symbolic_tensor" not in vars(tensorflow):
        return False
    return any(map(tensorflow.is_symbolic_tensor, tree.flatten((args, kwargs))))


def also_in_graphs(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that is written in ops accept such tensors, too."""

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not is_in_graph(args, kwargs):
            return method(*args, **kwargs)
        return add_to_graph(method, lambda *a, **k: infer(method, a, k), args, kwargs)

    called.autograph_info__ = {}  # type: ignore[attr-defined]  # as of `Layer`
    return called


def add_to_graph(
    function: Callable[..., Any],
    output_spec: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
) -> Any:
    """Return the tensors of TensorFlow that calls of a layer or method will give."""
    tensorflow: Any = sys.modules["tensorflow"]
    leaves = tree.flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if tensorflow.is_symbolic_tensor(leaf)]

    def arguments(replacements: Any) -> Any:
        filled = leaves.copy()
        for i, replacement in zip(at, replacements, strict=True):
            filled[i] = replacement
        return tree.pack((args, kwargs), filled)

    tensors = [leaves[i] for i in at]
    spec_args, spec_kwargs = arguments(map(_spec, tensors))
    spec = output_spec(*spec_args, **spec_kwargs)
    outputs = tree.flatten(spec)

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        own_args, own_kwargs = arguments(arrays)
        results = tree.flatten(function(*own_args, **own_kwargs))
        return [
            np.asarray(result)
            if output.dtype == "string"
            else result.astype(output.dtype)
            for result, output in zip(results, outputs, strict=True)
        ]

    types = [tensorflow.as_dtype(output.dtype) for output in outputs]
    results = tensorflow.numpy_function(compute, tensors, types)
    for result, output in zip(results, outputs, strict=True):
        result.set_shape(output.shape)
    return tree.pack(spec, results)


def _spec(tensor: Any) -> KerasTensor:
    if tensor.shape.rank is None:
        raise ValueError(
            "A layer is called in a graph of TensorFlow on a tensor of unknown rank: "
            "say it with `tensor.set_shape` or `tf.ensure_shape`."
        )
    return KerasTensor(tuple(tensor.shape), tensor.dtype.name)
