"""What PyTorch's functions do, with its names of arguments, on Ganglion's ops.

`FUNCTIONS` has them by the name that PyTorch gives to `__torch_function__`. Most are
methods of its tensors, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, random
from ganglion.compat.pytorch_losses import LOSSES
from ganglion.compat.pytorch_shapes import SHAPES, sizes_of

# ruff: noqa: A002 (PyTorch's names of arguments)


class Extremes(NamedTuple):
    """The largest or smallest elements along an axis, or all in order, and where."""

    values: Any
    indices: Any


def _cat(tensors: Any, dim: int = 0, axis: int | None = None) -> Any:
    return ops.concatenate(tensors, axis=dim if axis is None else axis)


def _stack(tensors: Any, dim: int = 0) -> Any:
    return ops.stack(tensors, axis=dim)


# ---- along an axis -------------------------------------------------------------------


def _by_dim(op: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return op(input, axis=dim, keepdims=keepdim)

    return reduced


def _along(op: Callable[..., Any]) -> Callable[..., Any]:
    def applied(input: Any, dim: int, _stacklevel: int = 3, dtype: None = None) -> Any:
        if dtype is not None:
            raise TypeError("`dtype` is not supported")
        return op(input, axis=dim)

    return applied


def _extreme(reduction: Any, position: Any, of_two: Any) -> Callable[..., Any]:
    def found(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return reduction(input)
        if not isinstance(dim, int):
            return of_two(input, dim)
        values = reduction(input, axis=dim, keepdims=keepdim)
        return Extremes(values, position(input, axis=dim, keepdims=keepdim))

    return found


def _topk(
    input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    last = ops.moveaxis(input, dim, -1)
    values, indices = ops.top_k(last if largest else -last, k, sorted=sorted)
    values = values if largest else -values
    return Extremes(ops.moveaxis(values, -1, dim), ops.moveaxis(indices, -1, dim))


def _argsort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = False
) -> Any:
    return ops.argsort(-input if descending else input, axis=dim)


def _sort(
    input: Any, dim: int = -1, descending: bool = False, stable: bool = False
) -> Any:
    order = _argsort(input, dim, descending)
    return Extremes(ops.take_along_axis(input, order, axis=dim), order)


def _variance(root: bool) -> Callable[..., Any]:
    def spread(
        input: Any,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        correction: int | None = None,
    ) -> Any:
        if isinstance(dim, bool):  # `std(False)`
            dim, unbiased = None, dim
        axes = range(len(input.shape)) if dim is None else np.atleast_1d(dim)
        count = math.prod(input.shape[axis] for axis in axes)
        less = int(unbiased) if correction is None else correction
        variance = ops.var(input, axis=dim, keepdims=keepdim)
        variance = variance * (count / max(count - less, 0) if count > less else np.nan)
        return ops.sqrt(variance) if root else variance

    return spread


def _median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    # Of two in the middle, the lower one.
    flat = ops.reshape(input, (-1,)) if dim is None else input
    axis = 0 if dim is None else dim
    order = ops.argsort(flat, axis=axis)
    middle = (flat.shape[axis] - 1) // 2
    where = ops.expand_dims(ops.take(order, middle, axis=axis), axis)
    values = ops.take_along_axis(flat, where, axis=axis)
    if dim is None:
        return ops.squeeze(values, axis=0)
    if keepdim:
        return Extremes(values, where)
    return Extremes(ops.squeeze(values, axis=axis), ops.squeeze(where, axis=axis))


def _norm(
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: None = None,
    dtype: None = None,
) -> Any:
    if p in ("fro", 2):
        return ops.sqrt(ops.sum(ops.square(input), axis=dim, keepdims=keepdim))
    flat = ops.reshape(input, (-1,)) if dim is None else input
    return ops.norm(flat, ord=p, axis=dim, keepdims=keepdim and dim is not None)


def _linalg_norm(
    input: Any, ord: Any = None, dim: Any = None, keepdim: bool = False
) -> Any:
    return ops.norm(input, ord=ord, axis=dim, keepdims=keepdim)


def _normalize(
    input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None
) -> Any:
    return input / ops.maximum(_norm(input, p, dim, True), eps)


def _cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    lengths = [ops.maximum(_norm(x, 2, dim, True), eps) for x in (x1, x2)]
    return ops.sum((x1 / lengths[0]) * (x2 / lengths[1]), axis=dim)


def _gather(input: Any, dim: int, index: Any) -> Any:
    axis = dim % len(input.shape)
    sizes = zip(input.shape, index.shape, strict=True)
    rows = tuple(
        slice(None) if number == axis else slice(wanted)
        for number, (_, wanted) in enumerate(sizes)
    )
    return ops.take_along_axis(input[rows], index, axis=axis)


# ---- element by element --------------------------------------------------------------


def _clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    low = input if min is None else ops.maximum(input, min)
    return low if max is None else ops.minimum(low, max)


def _relu(input: Any, inplace: bool = False) -> Any:
    return ops.relu(input)


def _leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return ops.leaky_relu(input, negative_slope)


def _elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return ops.elu(input, alpha)


def _silu(input: Any, inplace: bool = False) -> Any:
    return ops.silu(input)


def _gelu(input: Any, approximate: str = "none") -> Any:
    return ops.gelu(input, approximate=approximate == "tanh")


def _softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return ops.softplus(input * beta) / beta


def _dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    return random.dropout(input, p) if training else input


def _one_hot(tensor: Any, num_classes: int = -1) -> Any:
    count = int(ops.max(tensor)) + 1 if num_classes == -1 else num_classes
    return ops.one_hot(tensor, count, dtype="int64")


def _scaled(op: Callable[..., Any]) -> Callable[..., Any]:
    def applied(input: Any, other: Any, alpha: Any = 1) -> Any:
        return op(
            input, other if isinstance(alpha, int) and alpha == 1 else other * alpha
        )

    return applied


def _div(input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return ops.floor_divide(input, other)
    return (
        ops.divide(input, other) if rounding_mode is None else ops.trunc(input / other)
    )


def _rsub(input: Any, other: Any) -> Any:
    return ops.subtract(other, input)


def _einsum(equation: str, *operands: Any) -> Any:
    return ops.einsum(equation, *sizes_of(operands))


def _lerp(input: Any, end: Any, weight: Any) -> Any:
    return input + weight * (end - input)


def _addmm(input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * input + alpha * ops.matmul(mat1, mat2)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    product = ops.matmul(input, ops.transpose(weight))
    return product if bias is None else product + bias


def _layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    mean, variance = ops.moments(input, axes, keepdims=True)
    result = (input - mean) * ops.rsqrt(variance + eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    apart = ops.expand_dims(x1, -2) - ops.expand_dims(x2, -3)
    return _norm(apart, p, -1)


def _pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return _norm(x1 - x2 + eps, p, -1, keepdim)


def _like(draw: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(input: Any) -> Any:
        return draw(tuple(input.shape), dtype=input.dtype.name)

    return drawn


def _full_like(input: Any, fill_value: Any) -> Any:
    return ops.full_like(input, fill_value)


def _allclose(
    input: Any,
    other: Any,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    return bool(ops.all(ops.isclose(input, other, rtol, atol, equal_nan)))


def _equal(input: Any, other: Any) -> bool:
    same_shape = tuple(input.shape) == tuple(other.shape)
    return same_shape and bool(ops.all(ops.equal(input, other)))


# ---- the table -----------------------------------------------------------------------

_SAME = """abs exp expm1 log log1p log2 log10 sqrt rsqrt square sin cos tan tanh sigmoid
sign floor ceil round reciprocal erf isnan isinf isfinite maximum minimum where matmul
ones_like zeros_like logical_and logical_or logical_not logical_xor outer dot selu relu6
softsign floor_divide negative multiply swapaxes broadcast_to tile hstack vstack
diagonal"""
_RENAMED = {
    "linalg_inv": "inv", "linalg_det": "det", "inverse": "inv", "det": "det",
    "atan2": "arctan2", "empty_like": "zeros_like", "trace": "trace", "diag": "diag",
    "absolute": "abs", "mm": "matmul", "bmm": "matmul", "mv": "matmul",
    "neg": "negative", "pow": "power", "mul": "multiply", "remainder": "mod",
    "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal",
    "lt": "less", "le": "less_equal", "hardtanh": "hard_tanh",
    "logsigmoid": "log_sigmoid", "movedim": "moveaxis",
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(ops, name) for name in _SAME.split()},
    **{name: getattr(ops, op) for name, op in _RENAMED.items()},
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    **{
        name: _by_dim(getattr(ops, name))
        for name in ("mean", "sum", "prod", "argmax", "argmin", "any", "all")
    },
    "amax": _by_dim(ops.max),
    "amin": _by_dim(ops.min),
    "logsumexp": _by_dim(ops.logsumexp),
    "max": _extreme(ops.max, ops.argmax, ops.maximum),
    "min": _extreme(ops.min, ops.argmin, ops.minimum),
    **{
        name: _along(getattr(ops, name))
        for name in ("softmax", "log_softmax", "cumsum", "cumprod")
    },
    "topk": _topk,
    "argsort": _argsort,
    "sort": _sort,
    "var": _variance(root=False),
    "std": _variance(root=True),
    "median": _median,
    "norm": _norm,
    "linalg_norm": _linalg_norm,
    "linalg_vector_norm": _linalg_norm,
    "normalize": _normalize,
    "cosine_similarity": _cosine_similarity,
    "gather": _gather,
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "silu": _silu,
    "gelu": _gelu,
    "softplus": _softplus,
    "dropout": _dropout,
    "one_hot": _one_hot,
    "add": _scaled(ops.add),
    "sub": _scaled(ops.subtract),
    "subtract": _scaled(ops.subtract),
    "__rsub__": _rsub,
    **dict.fromkeys(("div", "divide", "true_divide"), _div),
    "lerp": _lerp,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "linear": _linear,
    "layer_norm": _layer_norm,
    "cdist": _cdist,
    "pairwise_distance": _pairwise_distance,
    "rand_like": _like(random.uniform),
    "randn_like": _like(random.normal),
    "full_like": _full_like,
    "einsum": _einsum,
    "allclose": _allclose,
    "equal": _equal,
    **SHAPES,
    **LOSSES,
}
