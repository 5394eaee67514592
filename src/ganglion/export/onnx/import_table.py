"""Operators without weights, as ops; and the table of all known operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import layers, ops
from ganglion.export.onnx.folding import UNKNOWN, axes_of, sections_of, slices_of
from ganglion.export.onnx.import_control import CONTROL
from ganglion.export.onnx.import_layers import LAYERS, optional, weight
from ganglion.export.onnx.import_rnn import recurrent
from ganglion.export.onnx.parsing import DTYPES, OnnxNode
from ganglion.system import budget

if TYPE_CHECKING:
    from ganglion.export.onnx.importer import Importer

Values = Sequence[Any]
Build = Callable[["Importer", OnnxNode, Values], Any]


# ---- elementwise ---------------------------------------------------------------------

_UNARY = {
    "Abs": "absolute", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin",
    "Asinh": "arcsinh", "Atan": "arctan", "Atanh": "arctanh", "Ceil": "ceil",
    "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "HardSwish": "hard_silu", "IsNaN": "isnan", "Log": "log",
    "Mish": "mish", "Neg": "negative", "Not": "logical_not", "Reciprocal": "reciprocal",
    "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_BINARY = {
    "Add": "add", "And": "logical_and", "Div": "divide", "Equal": "equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
    "LessOrEqual": "less_equal", "Mul": "multiply", "Or": "logical_or", "Pow": "power",
    "Sub": "subtract", "Xor": "logical_xor",
}  # fmt: skip
_FOLDED = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}
_REDUCED = {
    "ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSum": "sum", "ReduceLogSumExp": "logsumexp",
}  # fmt: skip


def _unary(f: Importer, node: OnnxNode, values: Values) -> Any:
    return getattr(ops, _UNARY[node.op])(f.tensor(values[0]))


def _relu(f: Importer, node: OnnxNode, values: Values) -> Any:
    return layers.ReLU(name=f.unique(f.word(node)))(f.tensor(values[0]))


def _binary(f: Importer, node: OnnxNode, values: Values) -> Any:
    name = _BINARY[node.op]
    if node.op == "Div" and all(_is_whole(value) for value in values):
        return _whole_quotient(*map(f.tensor, values))
    return f.weighted(name, node, values)


def _is_whole(value: Any) -> bool:
    dtype = value.array.dtype if hasattr(value, "array") else np.dtype(value.dtype)
    return dtype.kind in "iu"


def _whole_quotient(a: Any, b: Any) -> Any:
    """Return a quotient of integers, rounded toward zero as in ONNX."""
    sign = ops.sign(a) * ops.sign(b)
    return ops.floor_divide(ops.absolute(a), ops.absolute(b)) * sign


def _folded(f: Importer, node: OnnxNode, values: Values) -> Any:
    result = f.tensor(values[0])
    for value in values[1:]:
        result = getattr(ops, _FOLDED[node.op])(result, f.tensor(value))
    return result / len(values) if node.op == "Mean" else result


def _mod(f: Importer, node: OnnxNode, values: Values) -> Any:
    function = ops.fmod if node.attrs.get("fmod") else ops.mod
    return function(*map(f.tensor, values))


def _where(f: Importer, node: OnnxNode, values: Values) -> Any:
    return ops.where(*map(f.tensor, values))


def _clip(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, bounds = f.tensor(values[0]), []
    for position, name in ((1, "min"), (2, "max")):
        limit = optional(values, position)
        bound = node.attrs.get(name) if limit is None else weight(limit, name).item()
        bounds.append(bound)
    low, high = bounds
    if (low, high) == (0.0, 6.0):
        return layers.ReLU(6.0)(x)
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


def _with(function: str, **defaults: Any) -> Build:
    """Return the importer of an activation with attributes, by names of our arguments.

    Each is given as ``ours=("theirs", default)``.
    """

    def build(f: Importer, node: OnnxNode, values: Values) -> Any:
        arguments = {
            ours: node.attrs.get(theirs, default)
            for ours, (theirs, default) in defaults.items()
        }
        return getattr(ops, function)(f.tensor(values[0]), **arguments)

    return build


def _elu(f: Importer, node: OnnxNode, values: Values) -> Any:
    return ops.elu(f.tensor(values[0]), node.attrs.get("alpha", 1.0))


def _selu(f: Importer, node: OnnxNode, values: Values) -> Any:
    alpha = node.attrs.get("alpha", 1.6732632)
    return ops.elu(f.tensor(values[0]), alpha) * node.attrs.get("gamma", 1.0507010)


def _hard_sigmoid(f: Importer, node: OnnxNode, values: Values) -> Any:
    alpha, beta = node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)
    return ops.clip(f.tensor(values[0]) * alpha + beta, 0.0, 1.0)


def _thresholded(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, alpha = f.tensor(values[0]), node.attrs.get("alpha", 1.0)
    return ops.where(x > alpha, x, ops.zeros_like(x))


def _gelu(f: Importer, node: OnnxNode, values: Values) -> Any:
    is_rough = node.attrs.get("approximate", "none") == "tanh"
    return ops.gelu(f.tensor(values[0]), approximate=is_rough)


def _softmax(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    function = ops.softmax if node.op == "Softmax" else ops.log_softmax
    rank, is_old = len(x.shape), f.opset < 13
    axis = node.attrs.get("axis", 1 if is_old else -1) % rank
    if is_old and axis != rank - 1:  # over all axes from there on
        rest = math.prod(x.shape[axis:])
        flat = ops.reshape(x, (-1, *x.shape[1:axis], rest))
        return ops.reshape(function(flat, axis=-1), (-1, *x.shape[1:]))
    return function(x, axis=axis)


def _is_inf(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    if not node.attrs.get("detect_negative", 1):
        return ops.equal(x, float("inf"))
    if not node.attrs.get("detect_positive", 1):
        return ops.equal(x, float("-inf"))
    return ops.isinf(x)


def _cast(f: Importer, node: OnnxNode, values: Values) -> Any:
    dtype = DTYPES.get(node.attrs["to"])
    if dtype is None:
        raise ValueError("the type is not supported")
    name = "float32" if dtype.name in ("float16", "bfloat16") else dtype.name
    return ops.cast(f.tensor(values[0]), name)


# ---- reductions ----------------------------------------------------------------------


def _reduction(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, axes = f.tensor(values[0]), axes_of(node, values)
    keep = bool(node.attrs.get("keepdims", 1))
    if not axes and node.attrs.get("noop_with_empty_axes"):
        return x
    axes = tuple(axes) if axes else None
    if node.op in _REDUCED:
        return getattr(ops, _REDUCED[node.op])(x, axis=axes, keepdims=keep)
    inner = ops.absolute(x) if node.op == "ReduceL1" else ops.square(x)
    total = ops.sum(inner, axis=axes, keepdims=keep)
    return ops.sqrt(total) if node.op == "ReduceL2" else total


def _arg(f: Importer, node: OnnxNode, values: Values) -> Any:
    if node.attrs.get("select_last_index"):
        raise ValueError("the last of several is not supported")
    function = ops.argmax if node.op == "ArgMax" else ops.argmin
    keep = bool(node.attrs.get("keepdims", 1))
    axis = node.attrs.get("axis", 0)
    return function(f.tensor(values[0]), axis=axis, keepdims=keep)


def _cumsum(f: Importer, node: OnnxNode, values: Values) -> Any:
    if node.attrs.get("exclusive") or node.attrs.get("reverse"):
        raise ValueError("exclusive or reverse sums are not supported")
    return ops.cumsum(f.tensor(values[0]), axis=int(weight(values[1], "axis").item()))


# ---- movements -----------------------------------------------------------------------


def _reshape(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    sizes = node.attrs.get("shape")
    sizes = weight(values[1], "shape").tolist() if sizes is None else list(sizes)
    keeps_zero = bool(node.attrs.get("allowzero", 0))
    sizes = [
        _same_size(x, axis) if size == 0 and not keeps_zero else size
        for axis, size in enumerate(sizes)
    ]
    return _reshaped(x, sizes)


def _same_size(x: Any, axis: int) -> int:
    size = x.shape[axis]
    return UNKNOWN if size is None else size


def _reshaped(x: Any, sizes: list[int]) -> Any:
    """Return x in another shape; a size may be the batch, and another be left open."""
    if UNKNOWN in sizes and -1 in sizes:
        sizes = _completed(x, sizes)
    if sum(size in (-1, UNKNOWN) for size in sizes) > 1:
        raise ValueError("a shape of several unknown sizes is not supported")
    rows, rest = sizes[:1], sizes[1:]
    is_open = rows in ([-1], [UNKNOWN]) and x.shape[0] is None
    is_open = is_open and None not in x.shape[1:]
    # As many elements in a row as before: the first axis is still the batch.
    if is_open and math.prod(rest) == math.prod(x.shape[1:]):
        return layers.Reshape(tuple(rest))(x)
    return ops.reshape(x, tuple(-1 if size == UNKNOWN else size for size in sizes))


def _completed(x: Any, sizes: list[int]) -> list[int]:
    """Return sizes with the open size computed, if x has the same sizes before it."""
    end = sizes.index(-1)
    before = [UNKNOWN if size is None else size for size in x.shape[:end]]
    rest, others = x.shape[end:], sizes[end + 1 :]
    if before != sizes[:end] or None in rest or UNKNOWN in others:
        return sizes
    return [*sizes[:end], math.prod(rest) // max(math.prod(others), 1), *others]


def _flatten(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, axis = f.tensor(values[0]), node.attrs.get("axis", 1)
    if axis == 1:
        flat = layers.Flatten(data_format="channels_last", name=f.unique(f.word(node)))
        return flat(x)
    axis = axis % len(x.shape) if axis < 0 else axis
    if axis and None in x.shape[axis:]:
        raise ValueError("rows of unknown size cannot be flattened")
    return ops.reshape(x, (-1, math.prod(x.shape[axis:])) if axis else (1, -1))


def _transpose(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    axes = node.attrs.get("perm", tuple(reversed(range(len(x.shape)))))
    if axes and axes[0] == 0 and len(axes) > 1:
        return layers.Permute(axes[1:], name=f.unique(f.word(node)))(x)
    return ops.transpose(x, axes)


def _squeeze(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, axes = f.tensor(values[0]), axes_of(node, values)
    return ops.squeeze(x, axis=None if axes is None else tuple(axes))


def _unsqueeze(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, axes = f.tensor(values[0]), axes_of(node, values)
    rank = len(x.shape) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = ops.expand_dims(x, axis)
    return x


def _concat(f: Importer, node: OnnxNode, values: Values) -> Any:
    tensors = list(map(f.tensor, values))
    return ops.concatenate(tensors, axis=node.attrs["axis"])


def _split(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, axis = f.tensor(values[0]), node.attrs.get("axis", 0)
    size = x.shape[axis]
    if size is None:
        raise ValueError("an axis of unknown size cannot be split")
    sizes_input = optional(values, 1)
    parts = [None, None if sizes_input is None else weight(sizes_input, "parts")]
    sizes = sections_of(node, parts, size)
    if sum(sizes) != size:
        raise ValueError(f"parts of {sizes} do not make {size}")
    return list(ops.split(x, [int(end) for end in np.cumsum(sizes)[:-1]], axis=axis))


def _slice(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    arrays = [None, *(None if v is None else weight(v, "bounds") for v in values[1:])]
    parts = slices_of(node, arrays, len(x.shape))
    for axis, part in enumerate(parts):
        if (part.step or 1) < 0:
            size = x.shape[axis]
            if size is None:
                raise ValueError("an axis of unknown size cannot be reversed")
            taken = range(size)[part]
            budget.take(64 * len(taken), "the numbers of rows that it takes")
            x = ops.take(x, list(taken), axis=axis)
    return x[tuple(slice(None) if (p.step or 1) < 0 else p for p in parts)]


def _pad(f: Importer, node: OnnxNode, values: Values) -> Any:
    x = f.tensor(values[0])
    pads = node.attrs.get("pads")
    pads = weight(values[1], "pads").tolist() if pads is None else list(pads)
    rank = len(x.shape)
    if optional(values, 3) is not None:
        axes = [int(axis) % rank for axis in weight(values[3], "axes")]
        count, full = len(axes), [0] * (2 * rank)
        for number, axis in enumerate(axes):
            full[axis], full[axis + rank] = pads[number], pads[number + count]
        pads = full
    fill = optional(values, 2)
    value = node.attrs.get("value", 0.0)
    value = value if fill is None else weight(fill, "value").item()
    mode = {"constant": "constant", "reflect": "reflect", "edge": "edge"}.get(
        node.attrs.get("mode", "constant")
    )
    if mode is None or min(pads, default=0) < 0:
        raise ValueError("this mode, or a negative border, is not supported")
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    if mode == "constant":
        return ops.pad(x, pairs, mode, constant_values=value)
    if mode == "reflect":
        return ops.pad(x, pairs, mode)
    return _edged(x, pairs)


def _edged(x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
    for axis, (lo, hi) in enumerate(pairs):
        ends = [slice(None)] * len(pairs)
        parts = [x]
        if lo:
            ends[axis] = slice(0, 1)
            parts.insert(0, ops.repeat(x[tuple(ends)], lo, axis=axis))
        if hi:
            ends[axis] = slice(-1, None)
            parts.append(ops.repeat(x[tuple(ends)], hi, axis=axis))
        x = ops.concatenate(parts, axis=axis) if len(parts) > 1 else x
    return x


def _expand(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, sizes = f.tensor(values[0]), weight(values[1], "shape").tolist()
    rank = max(len(sizes), len(x.shape))
    old = [1] * (rank - len(x.shape)) + list(x.shape)
    target = [1] * (rank - len(sizes)) + sizes
    if all(n == UNKNOWN or n in (1, size) for n, size in zip(target, old, strict=True)):
        is_same = len(x.shape) == rank
        return x if is_same else ops.expand_dims(x, tuple(range(rank - len(x.shape))))
    if UNKNOWN in target[1:] or (target[0] == UNKNOWN and old[0] is not None):
        raise ValueError("values cannot be repeated by a size that is not known")
    for axis, (n, size) in enumerate(zip(target, old, strict=True)):
        if axis < rank - len(x.shape):
            x = ops.expand_dims(x, 0)
        if n not in (1, UNKNOWN, size):
            if size != 1:
                raise ValueError(f"{tuple(x.shape)} is not repeated to {sizes}")
            x = ops.repeat(x, n, axis=axis)
    return x


def _tile(f: Importer, node: OnnxNode, values: Values) -> Any:
    repeats = weight(values[1], "repeats").tolist()
    return ops.tile(f.tensor(values[0]), repeats)


def _depth_to_space(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, block = f.tensor(values[0]), node.attrs["blocksize"]
    _, channels, height, width = x.shape
    inner = channels // block**2
    if node.attrs.get("mode", "DCR") == "CRD":
        shape, axes = (inner, block, block, height, width), (1, 4, 2, 5, 3)
    else:
        shape, axes = (block, block, inner, height, width), (3, 4, 1, 5, 2)
    x = layers.Permute(axes)(layers.Reshape(shape)(x))
    return layers.Reshape((inner, height * block, width * block))(x)


def _space_to_depth(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, block = f.tensor(values[0]), node.attrs["blocksize"]
    _, channels, height, width = x.shape
    rows, columns = height // block, width // block
    x = layers.Reshape((channels, rows, block, columns, block))(x)
    is_crd = node.attrs.get("mode", "DCR") == "CRD"
    x = layers.Permute((1, 3, 5, 2, 4) if is_crd else (3, 5, 1, 2, 4))(x)
    return layers.Reshape((channels * block**2, rows, columns))(x)


def _einsum(f: Importer, node: OnnxNode, values: Values) -> Any:
    return ops.einsum(node.attrs["equation"], *map(f.tensor, values))


def _identity(f: Importer, node: OnnxNode, values: Values) -> Any:
    return values[0]


def _never(f: Importer, node: OnnxNode, values: Values) -> Any:
    raise ValueError("it is not a constant")


IMPORTERS: dict[str, Build] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_FOLDED, _folded),
    **dict.fromkeys(_REDUCED, _reduction),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), _reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
    **dict.fromkeys(("Shape", "Size", "Constant", "ConstantOfShape", "Range"), _never),
    **LAYERS,
    **CONTROL,
    "Relu": _relu,
    "LeakyRelu": _with("leaky_relu", negative_slope=("alpha", 0.01)),
    "Elu": _elu,
    "Celu": _with("celu", alpha=("alpha", 1.0)),
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "ThresholdedRelu": _thresholded,
    "Gelu": _gelu,
    "Clip": _clip,
    "Mod": _mod,
    "Where": _where,
    "IsInf": _is_inf,
    "Cast": _cast,
    "CumSum": _cumsum,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Einsum": _einsum,
    "Identity": _identity,
}
