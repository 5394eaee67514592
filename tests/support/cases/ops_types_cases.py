"""Calls of every op of `ganglion.ops` that takes arrays, for arrays of any type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[Any, np.ndarray], Any]

ONE_ARRAY = [
    "abs", "absolute", "all", "amax", "amin", "any", "arccosh", "arcsinh", "arctanh",
    "argmax", "argmin", "array", "average", "ceil", "celu", "convert_to_tensor", "copy",
    "cos", "cosh", "count_nonzero", "cumsum", "deg2rad", "diag", "diagonal", "diff",
    "elu", "empty_like", "erf", "exp", "exp2", "expm1", "fabs", "flip", "fliplr",
    "flipud", "floor", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish",
    "hard_tanh", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "leaky_relu",
    "log", "log10", "log1p", "log2", "log_sigmoid", "log_softmax", "logical_not",
    "logsumexp", "max", "mean", "min", "mish", "nan_to_num", "nanmax", "nanmean",
    "nanmin", "nansum", "negative", "norm", "normalize", "ones_like", "ptp", "rad2deg",
    "ravel", "reciprocal", "relu", "relu6", "rms_normalization", "layer_normalization",
    "rot90", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin", "sinh",
    "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid",
    "sqrt", "square", "squareplus", "squeeze", "std", "stop_gradient", "sum", "swish",
    "tan", "tanh", "tanh_shrink", "trace", "transpose", "tril", "triu", "trunc", "var",
    "zeros_like",
]  # fmt: skip

ONE_ARRAY += [
    "arccos", "arcsin", "arctan", "cbrt", "cumprod", "erfc", "erfinv", "i0", "isreal",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanprod", "nanstd", "nanvar",
    "prod", "signbit", "sinc",
]  # fmt: skip
ONE_ARRAY += ["argsort", "median", "nanmedian", "sort"]
ONE_ARRAY += ["bitwise_invert", "bitwise_not"]

TWO_ARRAYS = [
    "add", "allclose", "append", "divide", "divide_no_nan", "dot", "equal",
    "floor_divide", "greater", "greater_equal", "heaviside", "hypot", "inner",
    "isclose", "less", "less_equal", "logaddexp", "logical_and", "logical_or",
    "logical_xor", "matmul", "maximum", "minimum", "mod", "multiply", "not_equal",
    "outer", "power", "subtract", "tensordot", "true_divide", "vdot",
]  # fmt: skip

TWO_ARRAYS += [
    "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "fmax", "fmin", "fmod",
    "gcd", "lcm", "ldexp", "left_shift", "logaddexp2", "nextafter", "right_shift",
]  # fmt: skip

SCALARS = (True, 2, 2.0)


def _one(name: str) -> Call:
    return lambda ops, x: getattr(ops, name)(x)


OTHERS: dict[str, Call] = {
    "quantile": lambda ops, x: ops.quantile(x, 0.5),
    "nanquantile": lambda ops, x: ops.nanquantile(x, 0.5),
    "isin": lambda ops, x: ops.isin(x, x),
    "digitize": lambda ops, x: ops.digitize(x, np.array([0.0, 1.0], "float32")),
    "searchsorted": lambda ops, x: ops.searchsorted(x[1], x[0]),
    "average weights": lambda ops, x: ops.average(x, weights=x),
    "argmax axis": lambda ops, x: ops.argmax(x, axis=1),
    "broadcast_to": lambda ops, x: ops.broadcast_to(x, (3, 2, 2)),
    "cast": lambda ops, x: ops.cast(x, "float32"),
    "clip": lambda ops, x: ops.clip(x, 0, 1),
    "clip floats": lambda ops, x: ops.clip(x, 0.5, 1.5),
    "cumsum axis": lambda ops, x: ops.cumsum(x, axis=0),
    "einsum": lambda ops, x: ops.einsum("ij,jk->ik", x, x),
    "einsum sum": lambda ops, x: ops.einsum("ij->i", x),
    "einsum transpose": lambda ops, x: ops.einsum("ij->ji", x),
    "expand_dims": lambda ops, x: ops.expand_dims(x, 0),
    "full_like": lambda ops, x: ops.full_like(x, 1),
    "full": lambda ops, x: ops.full((2,), x[0, 0]),
    "get_item": lambda ops, x: ops.get_item(x, 0),
    "glu": lambda ops, x: ops.glu(x),
    "hsplit": lambda ops, x: ops.hsplit(x, 2)[0],
    "vsplit": lambda ops, x: ops.vsplit(x, 2)[0],
    "split": lambda ops, x: ops.split(x, 2)[0],
    "unstack": lambda ops, x: ops.unstack(x)[0],
    "hstack": lambda ops, x: ops.hstack([x, x]),
    "vstack": lambda ops, x: ops.vstack([x, x]),
    "stack": lambda ops, x: ops.stack([x, x]),
    "concatenate": lambda ops, x: ops.concatenate([x, x]),
    "linspace": lambda ops, x: ops.linspace(x[0], x[1], 3),
    "linspace scalars": lambda ops, x: ops.linspace(x[0, 0], x[1, 1], 3),
    "arange": lambda ops, x: ops.arange(x[0, 0] * 3),
    "max initial": lambda ops, x: ops.max(x, initial=1),
    "min initial": lambda ops, x: ops.min(x, initial=1),
    "meshgrid": lambda ops, x: ops.meshgrid(x[0], x[1])[0],
    "moments": lambda ops, x: ops.moments(x, [0])[0],
    "moveaxis": lambda ops, x: ops.moveaxis(x, 0, 1),
    "norm 1": lambda ops, x: ops.norm(x, ord=1, axis=0),
    "norm 0": lambda ops, x: ops.norm(x, ord=0, axis=0),
    "norm inf": lambda ops, x: ops.norm(x, ord=np.inf, axis=0),
    "one_hot": lambda ops, x: ops.one_hot(x, 3),
    "multi_hot": lambda ops, x: ops.multi_hot(x, 3),
    "pad": lambda ops, x: ops.pad(x, ((1, 1), (1, 1))),
    "pad reflect": lambda ops, x: ops.pad(x, ((1, 1), (1, 1)), mode="reflect"),
    "repeat": lambda ops, x: ops.repeat(x, 2),
    "reshape": lambda ops, x: ops.reshape(x, (4,)),
    "roll": lambda ops, x: ops.roll(x, 1),
    "round 1": lambda ops, x: ops.round(x, 1),
    "select": lambda ops, x: ops.select([x > 1], [x], 0),
    "slice": lambda ops, x: ops.slice(x, (0, 0), (1, 1)),
    "slice_update": lambda ops, x: ops.slice_update(x, (0, 0), x[:1]),
    "scatter": lambda ops, x: ops.scatter(np.array([[0], [1]]), x[0], (3,)),
    "scatter_update": lambda ops, x: ops.scatter_update(x[0], [[0], [1]], x[1]),
    "segment_sum": lambda ops, x: ops.segment_sum(x, np.array([0, 1]), 2),
    "swapaxes": lambda ops, x: ops.swapaxes(x, 0, 1),
    "take": lambda ops, x: ops.take(x, np.array([0]), axis=0),
    "take by": lambda ops, x: ops.take(np.ones((3, 2), "float32"), x, axis=0),
    "take_along_axis": lambda ops, x: ops.take_along_axis(x, np.array([[0]]), axis=1),
    "tile": lambda ops, x: ops.tile(x, (2, 1)),
    "top_k": lambda ops, x: ops.top_k(x, 1)[0],
    "top_k places": lambda ops, x: ops.top_k(x, 1)[1],
    "threshold": lambda ops, x: ops.threshold(x, 1, 0),
    "where": lambda ops, x: ops.where(x > 1, x, x),
    "where condition": lambda ops, x: ops.where(x, np.float32(1), np.float32(2)),
    "where number": lambda ops, x: ops.where(x > 1, x, 0),
    "where float": lambda ops, x: ops.where(x > 1, x, 0.5),
    "binary_crossentropy": lambda ops, x: ops.binary_crossentropy(
        x, np.full((2, 2), 0.5, "float32")
    ),
    "categorical_crossentropy": lambda ops, x: ops.categorical_crossentropy(
        x, np.full((2, 2), 0.5, "float32")
    ),
    "sparse_categorical_crossentropy": lambda ops, x: (
        ops.sparse_categorical_crossentropy(x[0], np.full((2, 2), 0.5, "float32"))
    ),
    "in_top_k": lambda ops, x: ops.in_top_k(np.array([0, 1]), x.astype("float32"), k=1),
    "average_pool": lambda ops, x: ops.average_pool(x[None, :, :, None], 2),
    "max_pool": lambda ops, x: ops.max_pool(x[None, :, :, None], 2),
    "conv": lambda ops, x: ops.conv(x[None, :, :, None], x[:, :, None, None]),
    "map": lambda ops, x: ops.map(lambda row: row, x),
    "cond": lambda ops, x: ops.cond(True, lambda: x, lambda: x),
}

UNARY: dict[str, Call] = {name: _one(name) for name in ONE_ARRAY} | OTHERS
