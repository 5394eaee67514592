"""PyTorch's layout and names of the weights of a layer, in both directions.

A layout turns a layer's arrays, by the names that Keras has for them, into tensors by
PyTorch's names, and such tensors into arrays. Layers that PyTorch does not have keep
the names and shapes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import layers
from ganglion.variables import Variable

Arrays = Mapping[str, np.ndarray]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The conversion of a layer's arrays to PyTorch's tensors, and back."""

    to_torch: Callable[[Arrays], dict[str, np.ndarray]]
    from_torch: Callable[[Arrays], dict[str, np.ndarray]]


def layout_of(
    layer: Any, variables: Mapping[str, Variable], image: Shape | None
) -> Layout:
    """Return the layout of a layer's weights.

    Args:
        layer: The layer.
        variables: Its variables by name.
        image: The shape (height, width, channels) that is flattened before the layer.
    """
    shapes = {name: variable.shape for name, variable in variables.items()}
    if getattr(layer, "quantization_mode", None) is None:
        for kinds, make in _MAKERS:
            if isinstance(layer, kinds):
                return make(layer, shapes, image)
    return _renamed({})


# ---- one tensor for each array -------------------------------------------------------


@dataclass(frozen=True)
class _Rename:
    """PyTorch's name of an array, and the change of its axes."""

    name: str
    axes: Shape | None = None
    folded: Shape | None = None  # the shape before axes are exchanged
    unfolded: Shape | None = None  # the shape in PyTorch

    def forward(self, array: np.ndarray) -> np.ndarray:
        array = array.reshape(self.folded) if self.folded else array
        array = array.transpose(self.axes) if self.axes else array
        return array.reshape(self.unfolded) if self.unfolded else array

    def backward(self, tensor: np.ndarray, shape: Shape) -> np.ndarray:
        if self.axes:
            before = self.folded or shape
            tensor = tensor.reshape([before[axis] for axis in self.axes])
            tensor = tensor.transpose(np.argsort(self.axes))
        return tensor.reshape(shape)


def _renamed(table: Mapping[str, _Rename], shapes: Mapping[str, Shape] = {}) -> Layout:
    """Return a layout of one tensor for each array; others keep their names."""
    names = {rename.name: name for name, rename in table.items()}

    def to_torch(arrays: Arrays) -> dict[str, np.ndarray]:
        return {
            table[name].name if name in table else name: table[name].forward(array)
            if name in table
            else array
            for name, array in arrays.items()
        }

    def from_torch(tensors: Arrays) -> dict[str, np.ndarray]:
        arrays = {}
        for key, tensor in tensors.items():
            name = names.get(key, key)
            rename = table.get(name)
            arrays[name] = rename.backward(tensor, shapes[name]) if rename else tensor
        return arrays

    return Layout(to_torch, from_torch)


def _dense(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    kernel = _Rename("weight", (1, 0))
    if image is not None:  # PyTorch flattens channels first
        units, (*spatial, channels) = shapes["kernel"][-1], image
        folded = (*spatial, channels, units)
        axes = (len(image), len(image) - 1, *range(len(spatial)))
        kernel = _Rename("weight", axes, folded, (units, math.prod(image)))
    return _renamed({"kernel": kernel, "bias": _Rename("bias")}, shapes)


def _conv(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    return _renamed(
        {"kernel": _channels_first(shapes["kernel"]), "bias": _Rename("bias")}, shapes
    )


def _channels_first(shape: Shape, name: str = "weight") -> _Rename:
    rank = len(shape)
    return _Rename(name, (rank - 1, rank - 2, *range(rank - 2)))


def _per_channel(shape: Shape, name: str = "weight") -> _Rename:
    """Return the kernel (*window, channels, multiplier) of a depthwise convolution."""
    *window, channels, multiplier = shape
    rank = len(window)
    axes = (rank, rank + 1, *range(rank))
    return _Rename(name, axes, shape, (channels * multiplier, 1, *window))


def _depthwise(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    kernel = _per_channel(shapes["kernel"])
    return _renamed({"kernel": kernel, "bias": _Rename("bias")}, shapes)


def _separable(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    table = {
        "depthwise_kernel": _per_channel(
            shapes["depthwise_kernel"], "depthwise.weight"
        ),
        "pointwise_kernel": _channels_first(
            shapes["pointwise_kernel"], "pointwise.weight"
        ),
        "bias": _Rename("pointwise.bias"),
    }
    return _renamed(table, shapes)


def _norm(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    """Return the layout of a normalization, of flattened images channels first."""
    names = {
        "gamma": "weight",
        "beta": "bias",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
        "scale": "weight",
    }
    axes = None if image is None else (len(image) - 1, *range(len(image) - 1))
    table = {}
    for name, shape in shapes.items():
        if name in names and axes is not None and shape == (math.prod(image or ()),):
            table[name] = _Rename(names[name], axes, image, shape)
        elif name in names:
            table[name] = _Rename(names[name])
    return _renamed(table, shapes)


def _embedding(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    return _renamed({"embeddings": _Rename("weight")}, shapes)


def _prelu(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    shape = shapes.get("alpha", ())
    size = math.prod(shape)
    if size != max(shape, default=1):  # a number for each pixel: not in PyTorch
        return _renamed({})
    return _renamed({"alpha": _Rename("weight", None, None, (size,))}, shapes)


# ---- recurrent layers ----------------------------------------------------------------

# Keras' order of gates in PyTorch's: update, reset, new; and reset, update, new.
_GATES: dict[type, tuple[int, ...]] = {
    layers.SimpleRNN: (0,),
    layers.LSTM: (0, 1, 2, 3),
    layers.GRU: (1, 0, 2),
}
_PARTS = (("kernel", "weight_ih_l0"), ("recurrent_kernel", "weight_hh_l0"))
_INPUT_BIAS, _STATE_BIAS = "bias_ih_l0", "bias_hh_l0"


def _regated(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Return an array with the gates along its last axis in another order."""
    parts = np.split(array, len(order), axis=-1)
    return np.concatenate([parts[gate] for gate in order], axis=-1)


def _rnn_to_torch(arrays: Arrays, order: tuple[int, ...]) -> dict[str, np.ndarray]:
    tensors = {name: _regated(arrays[key], order).T for key, name in _PARTS}
    if "bias" in arrays:
        # PyTorch has two, which it adds; Keras has two only where a gate is between.
        bias = _regated(arrays["bias"], order)
        both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
        tensors[_INPUT_BIAS], tensors[_STATE_BIAS] = both
    return tensors


def _rnn_from_torch(
    tensors: Arrays, order: tuple[int, ...], bias_shape: Shape | None
) -> dict[str, np.ndarray]:
    back = tuple(int(gate) for gate in np.argsort(order))
    arrays = {key: _regated(tensors[name].T, back) for key, name in _PARTS}
    if bias_shape is not None:
        both = np.stack([tensors[_INPUT_BIAS], tensors[_STATE_BIAS]])
        bias = both if len(bias_shape) == 2 else both.sum(axis=0, dtype=both.dtype)
        arrays["bias"] = _regated(bias, back)
    return arrays


def rnn_order(layer: Any) -> tuple[int, ...] | None:
    """Return the order of gates of a layer that PyTorch has, None for others."""
    if getattr(layer, "reset_after", True) is False:
        return None  # PyTorch's GRU resets after the product
    return next((g for kind, g in _GATES.items() if isinstance(layer, kind)), None)


def _rnn(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    order = rnn_order(layer)
    assert order is not None
    bias = shapes.get("bias")
    return Layout(
        lambda arrays: _rnn_to_torch(arrays, order),
        lambda tensors: _rnn_from_torch(tensors, order, bias),
    )


def _bidirectional(
    layer: Any, shapes: Mapping[str, Shape], image: Shape | None
) -> Layout:
    order = rnn_order(layer.forward_layer)
    assert order is not None
    ends = ("forward.", ""), ("backward.", "_reverse")

    def to_torch(arrays: Arrays) -> dict[str, np.ndarray]:
        tensors: dict[str, np.ndarray] = {}
        for prefix, suffix in ends:
            part = _rnn_to_torch(_without(prefix, arrays), order)
            tensors |= {name + suffix: tensor for name, tensor in part.items()}
        return tensors

    def from_torch(tensors: Arrays) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        for prefix, suffix in ends:
            names = [name for name in tensors if name.endswith("_reverse")]
            chosen = names if suffix else [n for n in tensors if n not in names]
            part = {name.removesuffix(suffix): tensors[name] for name in chosen}
            bias = shapes.get(f"{prefix}bias")
            converted = _rnn_from_torch(part, order, bias)
            arrays |= {prefix + name: array for name, array in converted.items()}
        return arrays

    return Layout(to_torch, from_torch)


def _without(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


# ---- attention -----------------------------------------------------------------------

_PROJECTIONS = ("query", "key", "value")


def is_torch_attention(layer: Any) -> bool:
    """Return whether PyTorch's MultiheadAttention computes what this layer does."""
    if type(layer) is not layers.MultiHeadAttention or not layer.built:
        return False
    shapes = [getattr(layer, f"{name}_dense").kernel.shape for name in _PROJECTIONS]
    out = layer.output_dense.kernel.shape
    width = math.prod(shapes[0][1:])
    sizes = {math.prod(shape[1:]) for shape in shapes} | {math.prod(out[:-1]), out[-1]}
    return (
        sizes == {width}
        and all(shape[0] == width for shape in shapes)
        and not getattr(layer, "use_gate", False)
    )


def _attention(layer: Any, shapes: Mapping[str, Shape], image: Shape | None) -> Layout:
    width = shapes["output.kernel"][-1]
    has_bias = "query.bias" in shapes

    def to_torch(arrays: Arrays) -> dict[str, np.ndarray]:
        kernels = [arrays[f"{n}.kernel"].reshape(width, width).T for n in _PROJECTIONS]
        tensors = {"in_proj_weight": np.concatenate(kernels)}
        if has_bias:
            biases = [arrays[f"{name}.bias"].reshape(width) for name in _PROJECTIONS]
            tensors["in_proj_bias"] = np.concatenate(biases)
        tensors["out_proj.weight"] = arrays["output.kernel"].reshape(width, width).T
        if has_bias:
            tensors["out_proj.bias"] = arrays["output.bias"]
        return tensors

    def from_torch(tensors: Arrays) -> dict[str, np.ndarray]:
        arrays = {
            f"{name}.kernel": part.T
            for name, part in zip(
                _PROJECTIONS, np.split(tensors["in_proj_weight"], 3), strict=True
            )
        }
        arrays["output.kernel"] = tensors["out_proj.weight"].T
        if has_bias:
            parts = np.split(tensors["in_proj_bias"], 3)
            arrays |= {f"{n}.bias": p for n, p in zip(_PROJECTIONS, parts, strict=True)}
            arrays["output.bias"] = tensors["out_proj.bias"]
        return {name: array.reshape(shapes[name]) for name, array in arrays.items()}

    return Layout(to_torch, from_torch)


def whole_variables(layer: Any) -> dict[str, Variable] | None:
    """Return the variables of a layer and its parts that PyTorch has as one module.

    None for a layer whose parts are separate modules.
    """
    if rnn_order(layer) is not None and layer.built:
        return _named(layer.cell)
    if isinstance(layer, layers.Bidirectional) and layer.built:
        ends = {"forward": layer.forward_layer, "backward": layer.backward_layer}
        if all(rnn_order(part) is not None for part in ends.values()):
            return _joined({name: part.cell for name, part in ends.items()})
    if is_torch_attention(layer):
        parts = {name: getattr(layer, f"{name}_dense") for name in _PROJECTIONS}
        return _joined({**parts, "output": layer.output_dense})
    return None


def _joined(parts: Mapping[str, Any]) -> dict[str, Variable]:
    return {
        f"{prefix}.{name}": variable
        for prefix, part in parts.items()
        for name, variable in _named(part).items()
    }


def _named(layer: Any) -> dict[str, Variable]:
    return {variable.name: variable for variable in layer._own_variables()}


Maker = Callable[[Any, Mapping[str, Shape], Shape | None], Layout]
_MAKERS: list[tuple[Any, Maker]] = [
    (layers.Dense, _dense),
    (layers.Embedding, _embedding),
    ((layers.DepthwiseConv1D, layers.DepthwiseConv2D), _depthwise),
    ((layers.SeparableConv1D, layers.SeparableConv2D), _separable),
    (
        (
            layers.Conv1D,
            layers.Conv2D,
            layers.Conv3D,
            layers.Conv1DTranspose,
            layers.Conv2DTranspose,
            layers.Conv3DTranspose,
        ),
        _conv,
    ),
    (
        (
            layers.BatchNormalization,
            layers.LayerNormalization,
            layers.GroupNormalization,
            layers.RMSNormalization,
        ),
        _norm,
    ),
    (layers.PReLU, _prelu),
    (layers.Bidirectional, _bidirectional),
    ((layers.SimpleRNN, layers.LSTM, layers.GRU), _rnn),
    (layers.MultiHeadAttention, _attention),
]
