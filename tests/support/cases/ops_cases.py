"""One table of calls of `ganglion.ops`: arguments, and what NumPy says to them.

The tests run every call on arrays, in a trace and on Keras tensors, and against Keras.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (2, 3, 4)).astype("float32")
Y = rng.uniform(-2, 2, (2, 3, 4)).astype("float32")
P = rng.uniform(0.1, 3, (2, 3)).astype("float32")
U = rng.uniform(-0.95, 0.95, (2, 3)).astype("float32")
M = rng.uniform(-2, 2, (2, 3)).astype("float32")
N = rng.uniform(-2, 2, (3, 5)).astype("float32")
V = rng.uniform(-2, 2, (3,)).astype("float32")
SQUARE = rng.uniform(-2, 2, (4, 4)).astype("float32")
ROWS = rng.uniform(-3, 3, (4, 6)).astype("float32")
EVEN = rng.uniform(-3, 3, (2, 6)).astype("float32")
I = np.array([[3, -1, 7], [2, 0, -5]], "int32")  # noqa: E741
J = np.array([[2, 3, -2], [1, 4, 3]], "int32")
BYTES = np.array([[200, 0, 255], [100, 50, 1]], "uint8")
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, True]])
ODD = np.array([[1.0, np.nan, -np.inf], [np.inf, 0.0, -2.5]], "float32")
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4, -0.6], "float32")
TIES = np.array([[1, 3, 3], [2, 2, 1]], "int32")
Z = np.array([[0.0, 2.0, 0.0], [-1.0, 0.0, 5.0]], "float32")
LABELS = np.array([2, 0, 5, 1], "int32")
HOT = np.eye(6, dtype="float32")[LABELS]
IMAGES = rng.uniform(-1, 1, (2, 7, 6, 4)).astype("float32")
WAVES = rng.uniform(-1, 1, (2, 9, 4)).astype("float32")
KERNEL = rng.uniform(-1, 1, (3, 2, 4, 5)).astype("float32")
GROUPED = rng.uniform(-1, 1, (3, 2, 2, 6)).astype("float32")
DEPTH = rng.uniform(-1, 1, (3, 3, 4, 2)).astype("float32")
MIX = rng.uniform(-1, 1, (1, 1, 8, 3)).astype("float32")
BACK = rng.uniform(-1, 1, (3, 2, 5, 4)).astype("float32")
HEADS = rng.uniform(-1, 1, (2, 5, 3, 4)).astype("float32")
KEYS = rng.uniform(-1, 1, (2, 6, 3, 4)).astype("float32")
VALUES = rng.uniform(-1, 1, (2, 6, 3, 4)).astype("float32")


class Call(NamedTuple):
    """A call of one op, and the function that says what it should give."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: Callable[..., Any] | None  # None: only compared with Keras


CALLS: list[Call] = []


def call(name: str, *args: Any, by: Any = "numpy", **kwargs: Any) -> None:
    """Add a call; ``by`` is the reference: NumPy's function of that name by default."""
    expected = getattr(np, name) if by == "numpy" else by
    CALLS.append(Call(name, args, kwargs, expected))


def softmax(x: np.ndarray, axis: Any = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf, otypes=["float64"])

# ---- element by element ------------------------------------------------------------

for name in ("add", "subtract", "multiply", "maximum", "minimum"):
    call(name, X, Y)
    call(name, M, V)
    call(name, I, J)
    call(name, X, 1.5)
    call(name, 2, I)
    call(name, I, M)
    call(name, B, I)
for name in ("divide", "true_divide"):
    call(name, X, Y)
    call(name, I, J)
    call(name, I, 2)
    call(name, 1, M)
for name in ("mod", "floor_divide"):
    call(name, M, P)
    call(name, I, J)
    call(name, I, 2)
    call(name, M, -1.5)
for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    call(name, M, M.round())
    call(name, TIES, 2)
    call(name, I, J)
    call(name, M, V)
for name in ("logical_and", "logical_or", "logical_xor"):
    call(name, B, C)
    call(name, I, M)
for name in ("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsinh"):
    call(name, X)
    call(name, I)
for name in ("log", "log1p", "log2", "log10", "sqrt"):
    call(name, P)
    call(name, np.abs(I) + 1)
for name in ("floor", "ceil", "trunc"):
    call(name, X)
    call(name, HALVES)
for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf"):
    call(name, ODD)
for name in ("negative", "absolute", "abs", "sign", "square"):
    call(name, X)
    call(name, I)
call("arctanh", U)
call("arccosh", P + 1)
call("exp2", X)
call("erf", X, by=erf)
call("rsqrt", P, by=lambda x: 1 / np.sqrt(x))
call("reciprocal", P)
call("power", P, M)
call("power", M, 2)
call("power", M, 3)
call("power", I, 2)
call("power", I, 5)
call("power", I, 2.0)
call("power", 2.0, M)
call("round", HALVES)
call("round", X, 2)
call("round", I)
call("clip", X, -0.5, 0.75)
call("clip", I, 0, 3)
call("clip", M, V, 2.0)
call("logical_not", B)
call("logical_not", I)
call("logaddexp", X, Y)
call("hypot", X, Y)
call("fabs", X)
call("fabs", I)
call("deg2rad", X)
call("rad2deg", X)
call("heaviside", Z, 0.5)
call("divide_no_nan", M, Z, by=lambda a, b: np.where(b == 0, 0, a / np.where(b, b, 1)))
call("nan_to_num", ODD, nan=1.5, posinf=9.0, neginf=-9.0)
call("isclose", M, M + np.float32(1e-6))
call("isclose", ODD, ODD)
call("isclose", ODD, ODD, equal_nan=True)
call("allclose", M, M)
call("allclose", M, V)
call("where", B, M, V)
call("where", I, 1.5, M)
call("where", B, I, 0)
call("where", B[:, :1], 1, 0)
call("select", [B, C], [M, I], 7.0)
call("cast", M, "int32", by=lambda x, t: x.astype(t))
call("cast", I, "float32", by=lambda x, t: x.astype(t))
call("cast", I, "bool", by=lambda x, t: x.astype(t))
call("stop_gradient", M, by=lambda x: x)

# ---- over axes -----------------------------------------------------------------------

for name in ("sum", "mean", "max", "min", "amax", "amin", "var", "std", "ptp"):
    for axis in (None, 0, -1, (0, 2), (-2,)):
        call(name, X, axis=axis)
    call(name, X, axis=1, keepdims=True)
    call(name, X, axis=None, keepdims=True)
    call(name, I, axis=0)
for name in ("sum", "max", "min", "mean"):
    call(name, BYTES, axis=0)
for name in ("max", "min", "any", "all"):
    call(name, B, axis=1)
call("sum", B, axis=0)
call("max", X, axis=1, initial=1.0)
call("min", X, axis=1, initial=-1.0)
for name in ("any", "all"):
    call(name, Z, axis=-1)
    call(name, B)
    call(name, B, axis=0, keepdims=True)
for name in ("argmax", "argmin"):
    call(name, X)
    call(name, X, axis=1)
    call(name, X, axis=-1, keepdims=True)
    call(name, TIES, axis=1)
    call(name, BYTES, axis=1)
call("cumsum", X, axis=1)
call("cumsum", X, axis=-1)
call("cumsum", I, axis=None)
call("cumsum", B, axis=1)
call("count_nonzero", Z)
call("count_nonzero", Z, axis=0)
call("average", M, axis=0)
call("average", M, axis=1, weights=np.array([1, 2, 3], "f4"))
call("average", M, weights=P)
for name in ("nansum", "nanmean", "nanmax", "nanmin"):
    call(name, ODD[:, ::2].copy(), axis=1)
    call(name, ODD, axis=0)
call(
    "logsumexp",
    X,
    axis=(0, 2),
    by=lambda x, axis: np.log(np.exp(x).sum(axis=axis)),
)
call(
    "logsumexp",
    X * 100,
    axis=-1,
    keepdims=True,
    by=lambda x, axis, keepdims: np.logaddexp.reduce(x, axis=axis, keepdims=keepdims),
)

# ---- shapes --------------------------------------------------------------------------

call("reshape", X, (4, -1))
call("reshape", X, -1)
call("ravel", X)
call("transpose", X)
call("transpose", X, (1, 2, 0))
call("transpose", X, (-1, 0, 1))
call("moveaxis", X, 0, -1)
call("moveaxis", X, (0, 1), (-1, 0))
call("swapaxes", X, 0, -1)
call("expand_dims", X, -1)
call("expand_dims", X, (0, 2))
call("squeeze", X[:, :1])
call("squeeze", X[:, :1], 1)
call("broadcast_to", V, (2, 3))
call("broadcast_arrays", M, V)
call("concatenate", [M, M])
call("concatenate", [M, I], axis=-1)
call("concatenate", [M, N.T[:2], M], axis=1)
call("append", M, V)
call("append", M, M, axis=0)
call("stack", [M, M])
call("stack", [M, M], axis=-1)
call("hstack", [M, M])
call("hstack", [V, V])
call("vstack", [V, V])
call("vstack", [M, M])
call("split", X, 2, axis=-1)
call("split", X, [1, 3], axis=2)
call("split", X, [1], axis=-2)
call("hsplit", ROWS, 3)
call("vsplit", ROWS, 2)
call("unstack", X, axis=1, by=lambda x, axis: list(np.moveaxis(x, axis, 0)))
call("tile", M, 2)
call("tile", M, (2, 1, 3))
call("repeat", M, 2, axis=1)
call("repeat", M, 3)
call("flip", X)
call("flip", X, axis=(0, -1))
call("fliplr", X)
call("flipud", X)
call("rot90", M)
call("rot90", X, k=3, axes=(1, 2))
call("roll", M, 2)
call("roll", M, -1, axis=1)
call("roll", X, (1, 2), axis=(0, 2))
call("pad", M, ((1, 0), (2, 3)))
call("pad", M, 1, constant_values=2.5)
call("pad", X, ((0, 0), (2, 1), (3, 0)), mode="reflect")
call("pad", X, ((1, 2), (0, 3), (1, 1)), mode="symmetric")
call("diff", X)
call("diff", X, n=2, axis=-2)
call("meshgrid", V, M[:, 0])
call("meshgrid", V, M[:, 0], V, indexing="ij")
call("tril", SQUARE)
call("tril", X, k=-1)
call("triu", X, k=1)
call("diag", V)
call("diag", V, k=-2)
call("diag", SQUARE, k=1)
call("diagonal", X, offset=1, axis1=1, axis2=2)
call("diagonal", X, offset=-1, axis1=-1, axis2=0)
call("trace", SQUARE)
call("trace", X, offset=1, axis1=1, axis2=2)
call("copy", M)
call("array", [1.5, 2.0])
call("array", M, dtype="int32")
call("convert_to_tensor", [[1, 2]], by=np.array)
call("convert_to_tensor", I, dtype="float32", by=np.array)

# ---- picking -------------------------------------------------------------------------

INDEX = np.array([[0, 2], [1, -1]], "int32")
call("take", X, INDEX, axis=1)
call("take", X, np.array([[0, 1], [1, -2]], "int32"), axis=0)
call("take", X, np.array([5, 0, -2], "int32"))
call("take", M, 1, axis=-1)
call("take_along_axis", M, np.array([[0, -1], [2, 1]], "int32"), axis=1)
call("take_along_axis", X, np.argsort(X, axis=1).astype("int32"), axis=1)
call("take_along_axis", M, np.array([3, 0, 5], "int32"), axis=None)
call("slice", X, (0, 1, 2), (2, 2, 1), by=lambda x, s, n: x[0:2, 1:3, 2:3])
POINTS = np.array([[0, 1], [1, 2], [0, 0]], "int32")


def scattered(indices: Any, values: Any, shape: Any) -> np.ndarray:
    out = np.zeros(shape)
    np.add.at(out, tuple(np.asarray(indices).T), values)
    return out


def updated(x: np.ndarray, indices: np.ndarray, new: np.ndarray) -> np.ndarray:
    out = x.copy()
    out[tuple(indices.T)] = new
    return out


call("slice_update", X, (0, 1, 2), Y[:, :2, :1],
     by=lambda x, at, new: np.concatenate([x[:, :, :2], np.concatenate(
         [x[:, :1, 2:3], new], 1), x[:, :, 3:]], 2))  # fmt: skip
call("scatter", POINTS, V, (2, 3), by=scattered)
call("scatter", POINTS[:, :1], N, (4, 5), by=scattered)
call("scatter_update", M, POINTS, V, by=updated)
call(
    "segment_sum",
    ROWS,
    np.array([0, 2, 2, 0], "int32"),
    num_segments=4,
    by=lambda x, i, num_segments: scattered(i[:, None], x, (4, 6)),
)
call(
    "top_k",
    ROWS,
    3,
    by=lambda x, k: (-np.sort(-x, -1)[:, :k], np.argsort(-x, -1)[:, :k]),
)

# ---- products ------------------------------------------------------------------------

call("matmul", M, N)
call("matmul", X, SQUARE)
call("matmul", X, np.swapaxes(Y, 1, 2).copy())
call("matmul", V, N)
call("matmul", M, V)
call("matmul", V, V)
call("dot", M, N)
call("dot", V, V)
call("dot", X, SQUARE)
call("dot", 2.0, M)
call("tensordot", X, np.moveaxis(Y, 0, -1).copy(), axes=2)
call("tensordot", X, Y, axes=([0, 1], [0, 1]))
call("outer", V, M)
call("inner", X, SQUARE)
call("inner", V, V)
call("vdot", M, P)
call("einsum", "bij,jk->bik", X, SQUARE)
call("einsum", "bij,bij->b", X, Y)
call("einsum", "ij->ji", M)
call("einsum", "ij,jk", M, N)
call("einsum", "bij->i", X)
call("einsum", "i,j,k->kji", V, V, V)
call("einsum", "bij,kj,bik->b", X, SQUARE, np.einsum("bij,kj->bik", X, SQUARE))


def norm(x: Any, **kwargs: Any) -> Any:
    return np.linalg.norm(x, **kwargs)


call("norm", V, by=norm)
call("norm", X, by=norm)
call("norm", X, axis=-1, by=norm)
call("norm", X, axis=(0, 2), keepdims=True, by=norm)
for order in (1, 2, 3, 0, math.inf, -math.inf):
    call("norm", X, ord=order, axis=1, by=norm)
for order in ("fro", 1, -1, math.inf, -math.inf):
    call("norm", SQUARE, ord=order, by=norm)
    call("norm", X, ord=order, axis=(2, 0), by=norm)

# ---- from nothing --------------------------------------------------------------------

call("zeros", (2, 3))
call("ones", (2,), dtype="int32")
call("full", (2, 3), 1.5)
call("full_like", I, 7)
call("zeros_like", M)
call("ones_like", I)
call("ones_like", I, dtype="float32")
call("empty", (2,), by=np.zeros)
call("empty_like", M, by=np.zeros_like)
call("arange", 5)
call("arange", 1, 8, 3)
call("arange", 0.0, 1.0, 0.25)
call("arange", 3, dtype="float32")
call("linspace", 0, 1, 5)
call("linspace", -1.0, 1.0, 4, endpoint=False)
call("eye", 3)
call("eye", 2, 4, k=1)
call("identity", 3)
call("tri", 3, 4, k=1)
call("one_hot", LABELS, 6, by=lambda i, n: np.eye(n)[i])
call("one_hot", LABELS - 3, 3, by=lambda i, n: (i[:, None] == np.arange(n)) * 1.0)
call("one_hot", LABELS, 6, axis=0, by=lambda i, n, axis: np.eye(n)[i].T)
call("multi_hot", I % 6, 6, by=lambda i, n: np.eye(n)[i].max(1))
