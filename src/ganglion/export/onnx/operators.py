"""The translation of each op of our graph to ONNX: an operator, or a few.

Images are channels last here and channels first in ONNX. Results of convolutions and
pools stay channels first as long as only elementwise ops, reductions over all pixels
and concatenations of channels follow; they are transposed for other readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.ir.shaping import BOOL, is_float, splat
from ganglion.export.onnx.builder import INT64_MAX
from ganglion.export.onnx.patterns import clip_of, softmax_of
from ganglion.export.onnx.symbols import Rows, Size

if TYPE_CHECKING:
    from ganglion.export.onnx.graph import GraphWriter

Emit = Callable[["GraphWriter", Node], None]
Inputs = Sequence[str]

# Types that onnxruntime computes in; others are widened for the moment.
_NUMBERS = ("float32", "float64", "int32", "int64")


# ---- elementwise ---------------------------------------------------------------------

_PLAIN = {
    "negative": "Neg",
    "absolute": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "round": "Round",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "logical_not": "Not",
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "where": "Where",
}
_ANY_TYPE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def _pointwise(w: GraphWriter, node: Node) -> None:
    softmax, clip = softmax_of(node), clip_of(node)
    if softmax is not None and is_float(node.dtype):
        x, axis = softmax
        w.set(node, w.b.emit("Softmax", w.name(x), axis=axis))
        return
    if clip is not None and is_float(node.dtype):
        x, *bounds = clip
        ends = [w.b.constant(bound, node.dtype) for bound in bounds]
        w.elementwise(node, lambda names: w.b.emit("Clip", names[0], *ends), [x])
        return
    w.elementwise(node, lambda names: _result(w, node, names))


def _result(w: GraphWriter, node: Node, names: Inputs) -> str:
    """Return the name of an elementwise result, in whatever layout the inputs are."""
    name, dtype = node.op.name, node.inputs[-1].dtype
    wide = _wide(name, dtype)
    if wide is not None:
        names = [
            w.b.cast(x, wide) if value.dtype == dtype else x
            for x, value in zip(names, node.inputs, strict=True)
        ]
    composed = _COMPOSED.get(name)
    if composed is not None:
        result = composed(w, names, wide or dtype)
    elif name == "maximum" and _is_zero(node.inputs[1]) and is_float(dtype):
        result = w.b.emit("Relu", names[0])
    else:
        result = w.b.emit(_PLAIN[name], *names)
    is_same = wide is not None and node.dtype == dtype
    return w.b.cast(result, dtype) if is_same else result


def _wide(name: str, dtype: np.dtype) -> np.dtype | None:
    """Return the type to compute in, None for the type as it is."""
    if dtype.name in _NUMBERS or is_float(dtype) or name in _ANY_TYPE:
        return None
    if dtype == BOOL and name not in ("where",):
        return None
    return np.dtype("int64" if dtype.name in ("uint32", "uint64") else "int32")


def _is_zero(value: Value) -> bool:
    number = splat(value)
    return number is not None and not number


def _expm1(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    """Return exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which keeps small numbers."""
    (x,), b = names, w.b
    half = b.emit("Tanh", b.emit("Mul", x, b.constant(0.5, dtype)))
    return b.emit("Mul", half, b.emit("Add", b.emit("Exp", x), _one(w, dtype)))


def _log1p(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    """Return log(1 + x); near zero it is 2 artanh(x / (2 + x)), which loses nothing."""
    (x,), b = names, w.b
    two = b.constant(2.0, dtype)
    near = b.emit("Atanh", b.emit("Div", x, b.emit("Add", x, two)))
    far = b.emit("Log", b.emit("Add", x, _one(w, dtype)))
    is_near = b.emit("Less", b.emit("Abs", x), b.constant(0.5, dtype))
    return b.emit("Where", is_near, b.emit("Mul", near, two), far)


def _one(w: GraphWriter, dtype: np.dtype) -> str:
    return w.b.constant(1.0, dtype)


def _erfc(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    return w.b.emit("Sub", _one(w, dtype), w.b.emit("Erf", names[0]))


def _cbrt(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    (x,), b = names, w.b
    root = b.emit("Pow", b.emit("Abs", x), b.constant(1 / 3, dtype))
    return b.emit("Mul", b.emit("Sign", x), root)


def _is_finite(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    (x,), b = names, w.b
    return b.emit("Not", b.emit("Or", b.emit("IsInf", x), b.emit("IsNaN", x)))


def _remainder(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    x, y = names
    if not is_float(dtype):
        return w.b.emit("Mod", x, y)
    quotient = w.b.emit("Floor", w.b.emit("Div", x, y))
    return w.b.emit("Sub", x, w.b.emit("Mul", quotient, y))


def _arctan2(w: GraphWriter, names: Inputs, dtype: np.dtype) -> str:
    """Return 2 arctan(y / (√(x² + y²) + x)); on the left, ±π/2 - arctan(x / y)."""
    (y, x), b = names, w.b
    zero = b.constant(0.0, dtype)
    squares = b.emit("Add", b.emit("Mul", x, x), b.emit("Mul", y, y))
    sum_ = b.emit("Add", b.emit("Sqrt", squares), x)
    right = b.emit(
        "Mul", b.emit("Atan", b.emit("Div", y, sum_)), b.constant(2.0, dtype)
    )
    turn = b.emit("Mul", b.emit("Sign", y), b.constant(math.pi / 2, dtype))
    left = b.emit("Sub", turn, b.emit("Atan", b.emit("Div", x, y)))
    on_axis = b.emit("Equal", y, zero)
    left = b.emit("Where", on_axis, b.constant(math.pi, dtype), left)
    is_left = b.emit("Less", x, zero)
    at_zero = b.emit("Equal", squares, zero)
    right = b.emit("Where", at_zero, zero, right)
    return b.emit("Where", is_left, left, right)


_COMPOSED: dict[str, Callable[[GraphWriter, Inputs, np.dtype], str]] = {
    "expm1": _expm1,
    "log1p": _log1p,
    "erfc": _erfc,
    "cbrt": _cbrt,
    "is_finite": _is_finite,
    "remainder": _remainder,
    "arctan2": _arctan2,
}


def _same(w: GraphWriter, node: Node) -> None:
    w.alias(node, node.inputs[0])


def _cast(w: GraphWriter, node: Node) -> None:
    w.elementwise(node, lambda names: w.b.cast(names[0], node.dtype))


# ---- movements -----------------------------------------------------------------------


def _broadcast(w: GraphWriter, node: Node) -> None:
    w.broadcast(node)


def _reshape(w: GraphWriter, node: Node) -> None:
    w.set(node, w.b.reshaped(w.name(node.inputs[0]), w.shape(node)))


def _transpose(w: GraphWriter, node: Node) -> None:
    (x,), axes = node.inputs, node.attrs["axes"]
    w.set(node, w.b.emit("Transpose", w.name(x), perm=list(axes)))


def _slice(w: GraphWriter, node: Node) -> None:
    (x,) = node.inputs
    spans = (w.twins.attribute(node, name) for name in ("starts", "stops"))
    sizes, steps = w.shape(x), node.attrs["steps"]
    chosen = [
        (axis, start, INT64_MAX if stop == size else stop, step)
        for axis, (start, stop, step, size) in enumerate(
            zip(*spans, steps, sizes, strict=True)
        )
        if (start, stop, step) != (0, size, 1)
    ]
    if not chosen:
        w.alias(node, x)
        return
    axes, starts, stops, strides = zip(*chosen, strict=True)
    b = w.b
    parts = b.vector(starts), b.vector(stops), b.integers(*axes), b.integers(*strides)
    w.set(node, b.emit("Slice", w.name(x), *parts))


def _reverse(w: GraphWriter, node: Node) -> None:
    axes = node.attrs["axes"]
    b, count = w.b, len(axes)
    parts = [b.integers(*[n] * count) for n in (-1, -INT64_MAX)]
    steps = b.integers(*[-1] * count)
    w.set(
        node, b.emit("Slice", w.name(node.inputs[0]), *parts, b.integers(*axes), steps)
    )


def _concat(w: GraphWriter, node: Node) -> None:
    axis = node.attrs["axis"]
    if all(w.is_channels_first(x) for x in node.inputs):
        names = [w.channels_first(x) for x in node.inputs]
        w.set_first(node, w.b.emit("Concat", *names, axis=_first_axis(node, axis)))
    else:
        w.set(node, w.b.emit("Concat", *map(w.name, node.inputs), axis=axis))


def _first_axis(value: Value, axis: int) -> int:
    """Return where an axis is if channels come first."""
    if axis == value.ndim - 1:
        return 1
    return axis if axis == 0 else axis + 1


def _pad(w: GraphWriter, node: Node) -> None:
    (x,), pairs, interior = node.inputs, node.attrs["pairs"], node.attrs["interior"]
    b, value = w.b, node.attrs["value"]
    is_first = w.is_channels_first(x) and not any(interior)
    name = w.channels_first(x) if is_first else w.name(x)
    sizes = list(w.shape(x))
    filled = b.constant(value, x.dtype)
    for axis, count in enumerate(interior):
        if count:
            name = _spread(w, name, sizes, axis, count, filled)
    order = sorted(range(x.ndim), key=lambda a: _first_axis(x, a)) if is_first else None
    ordered = [pairs[axis] for axis in order] if order else list(pairs)
    if any(map(any, ordered)):
        ends = [lo for lo, _ in ordered] + [hi for _, hi in ordered]
        name = b.emit("Pad", name, b.integers(*ends), filled)
    (w.set_first if is_first else w.set)(node, name)


def _spread(
    w: GraphWriter, name: str, sizes: list[Size], axis: int, count: int, filled: str
) -> str:
    """Put numbers between the elements along an axis; note its new size."""
    size = sizes[axis]
    if isinstance(size, Rows):
        raise w.refusal("pads between the rows of a batch")
    b, rank = w.b, len(sizes)
    name = b.reshaped(name, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    ends = [0] * (2 * (rank + 1))
    ends[rank + 1 + axis + 1] = count
    name = b.emit("Pad", name, b.integers(*ends), filled)
    sizes[axis] = size * (count + 1)
    name = b.reshaped(name, sizes)
    sizes[axis] = max(size * (count + 1) - count, 0)
    ends_at = b.integers(sizes[axis])  # type: ignore[arg-type]
    return b.emit("Slice", name, b.integers(0), ends_at, b.integers(axis))


def _iota(w: GraphWriter, node: Node) -> None:
    (size,), b = w.shape(node), w.b
    if isinstance(size, int):
        w.set(node, b.constant(np.arange(size).astype(node.dtype)))
    else:
        w.set(node, b.cast(b.counted(size), node.dtype))


# ---- reductions ----------------------------------------------------------------------


def _reduction(op: str) -> Emit:
    def emit(w: GraphWriter, node: Node) -> None:
        (x,), axes = node.inputs, tuple(node.attrs["axes"])
        spatial = tuple(range(1, x.ndim - 1))
        is_first = w.is_channels_first(x) and set(spatial) <= set(axes)
        name = w.channels_first(x) if is_first else w.name(x)
        if is_first:
            axes = tuple(sorted(_first_axis(x, axis) for axis in axes))
        wide = _wide("add", x.dtype)
        name = name if wide is None else w.b.cast(name, wide)
        result = w.b.emit(op, name, w.b.integers(*axes), keepdims=0)
        w.set(node, result if wide is None else w.b.cast(result, x.dtype))

    return emit


def _argmax(w: GraphWriter, node: Node) -> None:
    (x,) = node.inputs
    wide = _wide("add", x.dtype)
    name = w.name(x) if wide is None else w.b.cast(w.name(x), wide)
    best = w.b.emit("ArgMax", name, axis=node.attrs["axis"], keepdims=0)
    w.set(node, w.b.cast(best, node.dtype))


def _cumsum(w: GraphWriter, node: Node) -> None:
    (x,) = node.inputs
    wide = _wide("add", x.dtype)
    name = w.name(x) if wide is None else w.b.cast(w.name(x), wide)
    total = w.b.emit("CumSum", name, w.b.constant(node.attrs["axis"], np.int64))
    w.set(node, total if wide is None else w.b.cast(total, x.dtype))


# ---- products ------------------------------------------------------------------------


def _matmul(w: GraphWriter, node: Node) -> None:
    left, right = node.inputs
    bias = w.following_bias(node)
    if bias is not None and node.ndim == 2:
        target, constant = bias
        names = w.name(left), w.name(right), w.b.constant(constant)
        w.set(target, w.b.emit("Gemm", *names))
        return
    wide = _wide("add", left.dtype)
    factors = [w.name(left), w.name(right)]
    if wide is not None:
        factors = [w.b.cast(name, wide) for name in factors]
    product = w.b.emit("MatMul", *factors)
    w.set(node, product if wide is None else w.b.cast(product, node.dtype))


def _gather(w: GraphWriter, node: Node) -> None:
    table, index = node.inputs
    name = w.name(index)
    if index.dtype.name not in ("int32", "int64"):
        name = w.b.cast(name, np.dtype("int64"))
    w.set(node, w.b.emit("Gather", w.name(table), name, axis=0))


def _scatter_add(w: GraphWriter, node: Node) -> None:
    updates, index = node.inputs
    b = w.b
    zeros = b.emit("Expand", b.constant(0, node.dtype), b.vector(w.shape(node)))
    where = b.cast(w.name(index), np.dtype("int64"))
    where = b.emit("Unsqueeze", where, b.integers(-1))
    names = zeros, where, w.name(updates)
    w.set(node, b.emit("ScatterND", *names, reduction="add"))


def _window(node: Node, key: str) -> dict[str, Any]:
    """Return the attributes that windows have in ONNX."""
    attrs = node.attrs
    pads = [lo for lo, _ in attrs["pairs"]] + [hi for _, hi in attrs["pairs"]]
    window = {"strides": list(attrs["strides"]), "pads": pads}
    if key == "pool":
        return {**window, "kernel_shape": list(attrs["window"])}
    window["kernel_shape"] = list(node.inputs[1].shape[:-2])
    return {**window, "dilations": list(attrs["dilation"]), "group": attrs["groups"]}


def _kernel(w: GraphWriter, weights: Value) -> str:
    """Return a kernel (*window, in, out) as (out, in, *window)."""
    rank = weights.ndim
    return w.transposed(weights, (rank - 1, rank - 2, *range(rank - 2)))


def _conv(w: GraphWriter, node: Node) -> None:
    x, weights = node.inputs
    names = [w.channels_first(x), _kernel(w, weights)]
    bias = w.following_bias(node)
    if bias is not None:
        names.append(w.b.constant(bias[1]))
    target = node if bias is None else bias[0]
    w.set_first(target, w.b.emit("Conv", *names, **_window(node, "conv")))


def _conv_transpose(w: GraphWriter, node: Node) -> None:
    """Emit a transposed convolution, with the pixels that no window reaches."""
    dy, weights = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    window = _window(node, "conv")
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(
            dy.shape[1:-1],
            attrs["strides"],
            weights.shape[:-2],
            attrs["dilation"],
            strict=True,
        )
    ]
    ends = [
        n + lo + hi - covered
        for n, (lo, hi), covered in zip(
            attrs["spatial"], attrs["pairs"], reach, strict=True
        )
    ]
    limits = map(max, zip(attrs["strides"], attrs["dilation"], strict=True))
    inside = [min(end, limit - 1) for end, limit in zip(ends, limits, strict=True)]
    window["output_padding"] = inside
    # (*window, out / groups, in) of ours is (in, out / groups, *window) of ONNX.
    names = [w.channels_first(dy), _kernel(w, weights)]
    assert groups == window["group"]
    bias = w.following_bias(node) if inside == ends else None
    if bias is not None:
        names.append(w.b.constant(bias[1]))
    result = w.b.emit("ConvTranspose", *names, **window)
    if inside != ends:
        rest = [end - part for end, part in zip(ends, inside, strict=True)]
        pads = [0] * (node.ndim + 2) + rest
        result = w.b.emit("Pad", result, w.b.integers(*pads))
    w.set_first(node if bias is None else bias[0], result)


def _max_pool(w: GraphWriter, node: Node) -> None:
    x = w.channels_first(node.inputs[0])
    w.set_first(node, w.b.emit("MaxPool", x, **_window(node, "pool")))


def _sum_pool(w: GraphWriter, node: Node) -> None:
    """Emit a sum as an average, times the elements of a window."""
    x, count = w.channels_first(node.inputs[0]), math.prod(node.attrs["window"])
    window = _window(node, "pool")
    mean = w.b.emit("AveragePool", x, count_include_pad=1, **window)
    w.set_first(node, w.b.emit("Mul", mean, w.b.constant(count, node.dtype)))


def _uniform(w: GraphWriter, node: Node) -> None:
    """Draw random numbers of the runtime's own."""
    b = w.b
    zeros = b.emit("Expand", b.constant(0, node.dtype), b.vector(w.shape(node)))
    w.set(node, b.emit("RandomUniformLike", zeros))


EMITTERS: dict[str, Emit] = {
    **dict.fromkeys(_PLAIN, _pointwise),
    **dict.fromkeys(_COMPOSED, _pointwise),
    "stop_gradient": _same,
    "custom_gradient": _same,
    "cast": _cast,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "concat": _concat,
    "pad": _pad,
    "iota": _iota,
    "sum": _reduction("ReduceSum"),
    "max": _reduction("ReduceMax"),
    "argmax": _argmax,
    "cumsum": _cumsum,
    "matmul": _matmul,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "sum_pool": _sum_pool,
    "random_uniform": _uniform,
}
