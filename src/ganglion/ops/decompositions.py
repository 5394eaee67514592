"""Decompositions of matrices, by LAPACK on the host, with gradients written in ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.compiler.ir.host import Typed, host_op, host_record, items
from ganglion.compiler.ir.shaping import fill
from ganglion.ops.creation import tril
from ganglion.ops.dispatch import op
from ganglion.ops.indexing import diagonal
from ganglion.ops.lapack import (
    diagonal_matrices,
    matrices,
    refusing_singular,
    same_type,
    solve_op,
    transposed,
)
from ganglion.ops.numpy import where
from ganglion.ops.products import matmul
from ganglion.ops.shapes import expand_dims


def _cholesky_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    turned = transposed(node)
    product = tril(matmul(turned, slope))
    halved = product - 0.5 * diagonal_matrices(diagonal(product, axis1=-2, axis2=-1))
    inner = solve_op(turned, halved, triangle="upper")
    outer = transposed(solve_op(turned, transposed(inner), triangle="upper"))
    return (0.5 * (outer + transposed(outer)),)


_cholesky = host_op(
    "cholesky",
    same_type,
    refusing_singular("cholesky")(np.linalg.cholesky),
    _cholesky_gradient,
)


@op
def cholesky(x: Any, upper: bool = False) -> Any:
    """Return the triangular factors of positive definite matrices."""
    factor = _cholesky(matrices("cholesky", x, square=True))
    return transposed(factor) if upper else factor


def _apart(values: Any) -> Any:
    """Return 1 / (v_j - v_i), and 0 where both are equal."""
    difference = expand_dims(values, -2) - expand_dims(values, -1)
    equal = difference == 0.0
    return where(equal, 0.0, 1.0 / where(equal, 1.0, difference))


def _eigh_gradient(
    node: Node, slopes: Sequence[Value | None]
) -> Sequence[Value | None]:
    values, vectors = items(node)
    along, across = slopes
    inner = fill(0, vectors)
    if along is not None:
        inner = diagonal_matrices(along)
    if across is not None:
        inner = inner + _apart(values) * matmul(transposed(vectors), across)
    product = matmul(matmul(vectors, inner), transposed(vectors))
    return (0.5 * (product + transposed(product)),)


_eigh = host_record(
    "eigh",
    lambda x: [(x.shape[:-1], x.dtype), (x.shape, x.dtype)],
    refusing_singular("eigh")(lambda x: tuple(np.linalg.eigh(x))),
    _eigh_gradient,
)


@op
def eigh(x: Any) -> Any:
    """Return eigenvalues, in rising order, and eigenvectors of symmetric matrices."""
    return items(_eigh(matrices("eigh", x, square=True)))


def _complex_of(dtype: np.dtype) -> np.dtype:
    return np.dtype("complex128" if dtype.itemsize == 8 else "complex64")


def _eig_of(x: np.ndarray) -> tuple[np.ndarray, ...]:
    dtype = _complex_of(x.dtype)
    return tuple(np.asarray(part, dtype) for part in np.linalg.eig(x))


_eig = host_record(
    "eig",
    lambda x: [(x.shape[:-1], _complex_of(x.dtype)), (x.shape, _complex_of(x.dtype))],
    refusing_singular("eig")(_eig_of),
)


@op
def eig(x: Any) -> Any:
    """Return eigenvalues and eigenvectors of square matrices: complex numbers."""
    return items(_eig(matrices("eig", x, square=True)))


def _qr_types(x: Value, mode: str) -> list[Typed]:
    *stack, rows, columns = x.shape
    inner = rows if mode == "complete" else min(rows, columns)
    return [((*stack, rows, inner), x.dtype), ((*stack, inner, columns), x.dtype)]


def _qr_gradient(node: Node, slopes: Sequence[Value | None]) -> Sequence[Value | None]:
    *_, rows, columns = node.inputs[0].shape
    if rows < columns or (node.attrs["mode"] == "complete" and rows > columns):
        raise ShapeError(
            f"qr: has no gradient for matrices of {rows} rows and {columns} columns in "
            f'mode "{node.attrs["mode"]}": of tall ones in mode "reduced" it has'
        )
    q, r = items(node)
    of_q, of_r = (
        fill(0, part) if slope is None else slope
        for part, slope in zip((q, r), slopes, strict=True)
    )
    middle = matmul(r, transposed(of_r)) - matmul(transposed(of_q), q)
    symmetric = tril(middle) + transposed(tril(middle, k=-1))
    left = of_q + matmul(q, symmetric)
    return (transposed(solve_op(r, transposed(left), triangle="upper")),)


_qr = host_record(
    "qr",
    _qr_types,
    lambda x, mode: tuple(np.linalg.qr(x, mode)),
    _qr_gradient,
)


@op
def qr(x: Any, mode: str = "reduced") -> Any:
    """Return orthogonal and upper triangular factors of matrices."""
    if mode not in ("reduced", "complete"):
        raise ValueError(
            "qr: `mode` argument value not supported. Expected one of {'reduced', "
            f"'complete'}}. Received: mode={mode!r}"
        )
    return items(_qr(matrices("qr", x), mode=mode))


def _svd_types(x: Value, full: bool) -> list[Typed]:
    *stack, rows, columns = x.shape
    least = min(rows, columns)
    inner = (rows, columns) if full else (least, least)
    return [
        ((*stack, rows, inner[0]), x.dtype),
        ((*stack, least), x.dtype),
        ((*stack, inner[1], columns), x.dtype),
    ]


def _svd_gradient(node: Node, slopes: Sequence[Value | None]) -> Sequence[Value | None]:
    (x,) = node.inputs
    if node.attrs["full"] and x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"svd: has no gradient for matrices of shape {x.shape[-2:]} with "
            "full_matrices=True: use full_matrices=False"
        )
    u, s, vt = items(node)
    of_u, of_s, of_vt = slopes
    v, row = transposed(vt), expand_dims(s, -2)
    inner = fill(0, matmul(vt, v)) if of_s is None else diagonal_matrices(of_s)
    apart = _apart(s * s)
    result: Any = None
    if of_u is not None:
        turning = matmul(transposed(u), of_u)
        inner = inner + apart * (turning - transposed(turning)) * row
        beyond = of_u - matmul(u, turning)
        result = matmul(beyond / row, vt)
    if of_vt is not None:
        of_v = transposed(of_vt)
        turning = matmul(vt, of_v)
        inner = inner + expand_dims(s, -1) * (apart * (turning - transposed(turning)))
        beyond = matmul(u / row, transposed(of_v - matmul(v, turning)))
        result = beyond if result is None else result + beyond
    product = matmul(matmul(u, inner), vt)
    return (product if result is None else product + result,)


svd_op = host_record(
    "svd",
    _svd_types,
    refusing_singular("svd")(
        lambda x, full: tuple(np.linalg.svd(x, full_matrices=full))
    ),
    _svd_gradient,
)


@op
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return the singular value decomposition `u, s, vt`, or s alone."""
    value = matrices("svd", x)
    parts = items(svd_op(value, full=full_matrices and compute_uv))
    return parts if compute_uv else parts[1]


def _lu_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eliminate column by column, with the largest pivot, in all matrices at once."""
    *stack, rows, columns = x.shape
    factors = x.reshape(-1, rows, columns).copy()
    steps = min(rows, columns)
    pivots = np.zeros((len(factors), steps), "int32")
    each = np.arange(len(factors))
    for k in range(steps):
        pivots[:, k] = pivot = k + np.abs(factors[:, k:, k]).argmax(axis=1)
        factors[each, k], factors[each, pivot] = (
            factors[each, pivot],
            factors[each, k].copy(),
        )
        factors[:, k + 1 :, k] /= factors[:, k, k, None]
        factors[:, k + 1 :, k + 1 :] -= (
            factors[:, k + 1 :, k, None] * factors[:, k, None, k + 1 :]
        )
    return factors.reshape(x.shape), pivots.reshape(*stack, steps)


_lu = host_record(
    "lu_factor",
    lambda x: [same_type(x), ((*x.shape[:-2], min(x.shape[-2:])), np.dtype("int32"))],
    _lu_of,
)


@op
def lu_factor(x: Any) -> Any:
    """Return both triangular factors in one matrix, and the pivots, as LAPACK does."""
    return items(_lu(matrices("lu_factor", x)))
