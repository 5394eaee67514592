"""Calls at the edges: NaN, integers, empty axes, axes of every kind.

They are added to the table of `ops_cases`; what NumPy does not say is compared with
Keras alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ops_cases import BYTES, CALLS, TIES, B, C, I, J, M, V, X, call

_before = len(CALLS)
NAN = np.nan
HOLES = np.array([[1.0, NAN, 3.0], [NAN, NAN, NAN]], "float32")
SPIKES = np.array([[0.1, NAN, 0.5], [0.1, np.inf, 0.5], [0.3, 0.2, 0.1]], "float32")
LONG = I.astype("int64")
EMPTY = np.zeros((2, 0), "float32")
NO_ROWS = np.zeros((0, 3), "float32")

# ---- NaN -----------------------------------------------------------------------------

for name in ("nanmax", "nanmin", "nanmean", "nansum"):
    call(name, HOLES, axis=1, by=None)
    call(name, HOLES, axis=1, keepdims=True, by=None)
    call(name, HOLES)
    call(name, HOLES[1:], by=None)
    call(name, I, axis=0)
call("nanmax", B, axis=0, by=lambda x, axis: x.max(axis))
call("nansum", BYTES, axis=0)
for targets in ([1, 0, 0], [0, 2, 1], [2, 1, 9], [-1, 3, 2]):
    call("in_top_k", np.array(targets, "int32"), SPIKES, 2, by=None)
call("in_top_k", np.array([1]), np.array([[0.1, -np.inf, 0.5]], "float32"), k=3,
     by=None)  # fmt: skip
LOWEST = np.array([[-np.inf, -np.inf, 1.0]], "float32")
call("top_k", LOWEST, 3, by=lambda x, k: (x[:, [2, 0, 1]], np.array([[2, 0, 1]])))

# ---- integers -------------------------------------------------------------------

for a, b in ((I, J), (LONG, J), (BYTES, I), (B, C), (B, I)):
    for name in ("outer", "vdot"):
        call(name, a, b, by=None)
    for name in ("matmul", "dot"):
        call(name, a, b.T.copy(), by=None)
    call("inner", a, b, by=None)
    call("tensordot", a, b, by=None)
call("dot", 3, I)
call("matmul", I.astype("int8"), J.T.astype("int8"), by=None)
call("matmul", np.array([[2**30, 3]]), np.array([[2**31], [1]]))
call("einsum", "ij,kj->ik", I, J)
call("einsum", "ij->ji", LONG)
call("einsum", "ij,ij", BYTES, BYTES, by=None)
for name in ("nan_to_num", "trunc"):
    call(name, I)
    call(name, BYTES)
call("nan_to_num", B)
call("relu", I, by=lambda x: np.maximum(x, 0))
call("relu6", LONG, by=lambda x: np.clip(x, 0, 6))
call("threshold", I, 2, 9, by=lambda x, t, v: np.where(x > t, x, v))
call("top_k", TIES, 2, by=None)
call("top_k", np.array([[np.iinfo("int32").min] * 2], "int32"), 2, by=None)
call("diff", B, axis=1)
call("mod", B, np.ones_like(B), by=None)
for a, b in ((-1, BYTES // 2 + 1), (300, BYTES // 2 + 1), (BYTES, -2)):
    for name in ("true_divide", "divide_no_nan"):
        call(name, a, b, by=lambda x, y: np.true_divide(x, y, dtype="float32"))
call("linspace", V, V + 1, 5, retstep=True, dtype="int32",
     by=lambda a, b, n, retstep, dtype: (np.int32(np.linspace(a, b, n)), (b - a) / 4)
     )  # fmt: skip
call("conv", I.reshape(1, 2, 3, 1), J.reshape(2, 3, 1, 1), by=None)

# ---- axes ----------------------------------------------------------------------------

for name in ("argmax", "argmin"):
    call(name, M, keepdims=True)
    call(name, X, keepdims=True)
    call(name, X, axis=0, keepdims=True)
call("logsumexp", M, keepdims=True, by=None)
call("norm", X, axis=(1, 2), keepdims=True, by=None)
call("norm", M, keepdims=True, by=None)
call("normalize", X, axis=(0, 2), by=None)
call("normalize", X, axis=None, by=None)
call("repeat", np.array([1, 2], "int32"), [1, 2], axis=0)
call("repeat", M, [2, 0, 1], axis=1)
call("repeat", M, [2], axis=0)
call("slice", X, (0, 1, 1), (-1, 2, -1), by=lambda x, *_: x[:, 1:3, 1:])
call("take_along_axis", X[:1], np.array([[[1]], [[0]]], "int32"), axis=1,
     by=lambda x, i, axis: np.take_along_axis(np.repeat(x, 2, 0), i.repeat(4, 2), 1)
     )  # fmt: skip
call("einsum", "ii", np.eye(3, dtype="float32"))
call("einsum", "ii->i", np.eye(3, dtype="float32"))
call("einsum", "iij->ji", np.arange(18, dtype="float32").reshape(3, 3, 2))
call("einsum", "...ij->...ji", X)
call("einsum", "...ij,...jk->...ik", X, np.ones((1, 4, 5), "float32"))
call("einsum", "...ij,jk", X, np.ones((4, 5), "float32"))
call("einsum", "i...,i...->...", X, X)
call("array_split", np.arange(5, dtype="int32"), 3)
call("array_split", X, 3, axis=2)
call(
    "multi_hot", I % 6, 6, dtype="bool", by=lambda i, n, dtype: np.eye(n)[i].max(1) > 0
)
call("clip", M, 2.0, 1.0, by=lambda x, low, high: np.full_like(x, low))
call("linspace", V, V + 2, 5)
call("linspace", V, V + 2, 4, endpoint=False, axis=-1)

# ---- nothing -------------------------------------------------------------------------

for name in ("sum", "any", "all", "norm", "logsumexp", "nansum", "count_nonzero"):
    by: Any = None if name in ("norm", "logsumexp") else "numpy"
    call(name, EMPTY, axis=1, by=by)
    call(name, NO_ROWS, axis=1, by=by)
for name in ("mean", "var", "std", "average"):
    call(name, EMPTY, axis=1, by=None)
for name in ("max", "min"):
    call(name, EMPTY, axis=1, initial=0.5)
    call(name, EMPTY, initial=0.5, keepdims=True)
for name in (
    "exp",
    "relu",
    "softmax",
    "log_softmax",
    "abs",
    "cumsum",
    "flip",
    "square",
):
    call(name, EMPTY, by=None)
call("matmul", EMPTY, np.zeros((0, 3), "float32"))
call("matmul", NO_ROWS, np.zeros((3, 2), "float32"))
call("matmul", np.zeros((2, 0), "int32"), np.zeros((0, 3), "int32"))
call("einsum", "ij,jk->ik", EMPTY, NO_ROWS)
call("concatenate", [EMPTY, M], axis=1)
call("concatenate", [NO_ROWS, M], axis=0)
call("pad", EMPTY, ((0, 0), (1, 2)))
call("reshape", EMPTY, (-1,))
call("reshape", EMPTY, (3, 0))
call("reshape", EMPTY, (-1, 3))
call("transpose", EMPTY)
call("tile", EMPTY, (2, 2))
call("repeat", EMPTY, 2, axis=0)
call("roll", EMPTY, 1, axis=1)
call("broadcast_to", np.zeros((1, 0), "float32"), (3, 0))
call("add", NO_ROWS, V)
call("where", NO_ROWS > 0, NO_ROWS, 1.0)
call("one_hot", np.zeros((0,), "int32"), 3, by=lambda i, n: np.zeros((0, n)))
call("take", M, np.zeros((0,), "int32"), axis=1)
call("split", EMPTY, 2, axis=1)
call("split", np.zeros((0,), "float32"), 2)
call("array_split", np.zeros((0,), "float32"), 2)
call("diff", V, n=5)
call("geomspace", 1.0, 3.0, 0)
call("sort", np.float32(3.0), axis=None)
call("multi_hot", np.zeros((0,), "int32"), 4, by=lambda i, n: np.zeros(n))

EDGES = CALLS[_before:]
