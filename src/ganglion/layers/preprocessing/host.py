"""Layers that run on the host: NumPy and Python, before the compiled step.

Text never enters the compiled graph. A functional model computes these layers, and all
layers before them, for each batch on the host (`models/host_part.py`). Their results,
numbers, are the inputs of the compiled step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import symbolic, tree
from ganglion.compiler.ir.graph import UnknownNumbersError, Value
from ganglion.layers import tensorflow_graph
from ganglion.layers.base import Layer
from ganglion.ops.dispatch import concrete
from ganglion.symbolic import KerasTensor
from ganglion.tensors import as_tensor
from ganglion.variables import current_scope

_UNSUPPORTED = {
    "sparse": "arrays are dense; leave it at False.",
    "ragged": "rows are padded to one length; leave it at False.",
}


class HostLayerError(UnknownNumbersError, RuntimeError):
    """A layer of the host was called on values that are only being traced."""


class HostLayer(Layer):
    """A layer whose `call` computes in NumPy, on what lists and arrays hold.

    A subclass defines `call` over arrays (or what `as_inputs` makes of them), and
    `compute_output_spec`, which cannot be traced.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call on Keras tensors, or on anything that holds texts or numbers."""
        if symbolic.any_symbolic(args, kwargs):
            return self._call_symbolic(args, kwargs)
        if tensorflow_graph.is_in_graph(args, kwargs):
            return tensorflow_graph.add_to_graph(
                self, self.compute_output_spec, args, kwargs
            )
        if any(isinstance(leaf, Value) for leaf in tree.flatten((args, kwargs))):
            args, kwargs = self._arrays_of((args, kwargs))
        self.built = True
        return tree.map_leaves(_as_tensor, self.call(*args, **kwargs))

    def _arrays_of(self, arguments: Any) -> Any:
        scope = current_scope()
        if scope is not None and not scope.concrete:
            raise HostLayerError(
                f'Layer "{self.name}" ({type(self).__name__}) runs on the host and '
                "cannot be part of a compiled step. Connect it in a functional or "
                "Sequential model, with no trained layer before it, or call it on the "
                "data before `fit`."
            )
        return concrete(arguments)

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        return self.compute_output_spec(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors, from the shapes of the inputs."""
        inputs = args[0] if args else next(iter(kwargs.values()))
        shapes = tree.map_leaves(lambda tensor: _Shape(tensor.shape), inputs)
        shape = self.compute_output_shape(
            tuple(shapes) if isinstance(shapes, _Shape) else [*map(tuple, shapes)]
        )
        return KerasTensor(shape, self.output_dtype)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output shape for an input shape (None: any size)."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> str:
        """The type of the layer's outputs."""
        return self.dtype

    def own_config(self, **arguments: Any) -> dict[str, Any]:
        """Return the arguments with the name, the type and `trainable`, as Keras."""
        base = super().get_config()
        return {key: base[key] for key in ("name", "trainable", "dtype")} | arguments

    def refuse_sparse(self, sparse: Any, output_mode: str) -> None:
        """Refuse `sparse=True`; the error says where it would have no meaning."""
        if sparse and output_mode == "int":
            raise ValueError(
                "`sparse` may only be true if `output_mode` is `'one_hot'`, "
                "`'multi_hot'` or `'count'`; and arrays are dense: leave it at False."
            )
        self.refuse_option("sparse", sparse)

    def refuse_option(self, name: str, value: Any) -> None:
        """Refuse `sparse=True` and `ragged=True`."""
        if value:
            raise ValueError(
                f"{type(self).__name__} does not support `{name}={value!r}`: "
                f"{_UNSUPPORTED[name]}"
            )


def _as_tensor(output: Any) -> Any:
    """Return an array as a tensor, which other layers give, too."""
    return as_tensor(output) if isinstance(output, np.ndarray) else output


class HostOutputs(list[Any]):
    """The values that the host has computed, in place of the model's inputs."""


class _Shape(tuple):
    """A shape as a leaf."""


def numbers_from(inputs: Any) -> Any:
    """Return lists and tuples of numbers as an array, arrays as they are."""
    if isinstance(inputs, (list, tuple, int, float)):
        return np.asarray(inputs)
    return inputs
