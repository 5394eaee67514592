"""Linear algebra: systems of equations, determinants, norms; see `decompositions`.

NumPy's LAPACK computes them on the host, within a compiled step as well; their
gradients are written in ops, so that they have gradients themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.compiler.ir.host import host_op, host_record, items
from ganglion.dtypes import finfo
from ganglion.ops import reduction
from ganglion.ops.creation import eye
from ganglion.ops.decompositions import cholesky, eig, eigh, lu_factor, qr, svd, svd_op
from ganglion.ops.dispatch import astype, axes_of, floating, op, stretch
from ganglion.ops.lapack import (
    matrices,
    promoted_for_lapack,
    refusing_singular,
    same_type,
    solve_op,
    stack_type,
    transposed,
    widened,
)
from ganglion.ops.numpy import absolute, not_equal, power, sqrt, square, where
from ganglion.ops.products import matmul
from ganglion.ops.shapes import expand_dims, moveaxis, reshape, squeeze

__all__ = [
    "cholesky", "cholesky_inverse", "det", "eig", "eigh", "inv", "logdet",
    "lstsq", "lu_factor", "matrix_rank", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd",
]  # fmt: skip


# ---- systems of equations -----------------------------------------------------------


def _inverse_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    turned = transposed(node)
    return (-matmul(matmul(turned, slope), turned),)


_inv = host_op(
    "inv", same_type, refusing_singular("inv")(np.linalg.inv), _inverse_gradient
)


@op
def inv(x: Any) -> Any:
    """Invert square matrices."""
    return _inv(matrices("inv", x, square=True))


def _solution(name: str, a: Any, b: Any, triangle: str) -> Any:
    left = matrices(name, a, square=True)
    right = widened(floating(b))
    dtype = np.promote_types(left.dtype, right.dtype)
    left, right = astype(left, dtype), astype(right, dtype)
    vector = right.ndim == left.ndim - 1
    if vector:
        right = expand_dims(right, -1)
    if right.ndim < 2 or right.shape[-2] != left.shape[-2]:
        raise ShapeError(
            f"{name}: incompatible shapes of a and b, {left.shape} and {right.shape}: "
            "expected a.shape[-2] == b.shape[-2]"
        )
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = stretch(left, (*stack, *left.shape[-2:]))
    right = stretch(right, (*stack, *right.shape[-2:]))
    result = solve_op(left, right, triangle=triangle)
    return squeeze(result, -1) if vector else result


@op
def solve(a: Any, b: Any) -> Any:
    """Solve `a @ x = b`; b holds vectors or matrices."""
    return _solution("solve", a, b, "")


@op
def solve_triangular(a: Any, b: Any, lower: bool = False) -> Any:
    """Solve `a @ x = b` for a triangular a: the other half of it is not read."""
    return _solution("solve_triangular", a, b, "lower" if lower else "upper")


@op
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """Return the x of least squares `|a @ x - b|`, and of those the shortest."""
    left, right = promoted_for_lapack(a, b)
    if left.ndim != 2 or right.ndim not in (1, 2):
        raise ShapeError(
            f"lstsq: expected a matrix, and a vector or a matrix, got shapes "
            f"{left.shape} and {right.shape}"
        )
    if left.shape[0] != right.shape[0]:
        raise ShapeError(
            f"lstsq: leading dimensions of inputs must match, got shapes {left.shape} "
            f"and {right.shape}"
        )
    least = float(finfo(left.dtype).eps)
    if rcond is None:
        rcond = least * max(left.shape)
    matrix = right if right.ndim == 2 else expand_dims(right, -1)
    inverse = _pseudo_inverse(left, least if rcond < 0 else rcond)
    result = matmul(inverse, matrix)
    return result if right.ndim == 2 else squeeze(result, -1)


# ---- determinants -------------------------------------------------------------------


def _det_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    (x,) = node.inputs
    factor = expand_dims(expand_dims(slope * node, -1), -1)
    return (factor * transposed(_inv(x)),)


_det = host_op("det", stack_type, np.linalg.det, _det_gradient)


@op
def det(x: Any) -> Any:
    """Return the determinants of square matrices."""
    return _det(matrices("det", x, square=True))


def _slogdet_gradient(
    node: Node, slopes: Sequence[Value | None]
) -> Sequence[Value | None]:
    (x,), (_, slope) = node.inputs, slopes
    if slope is None:
        return (None,)
    return (expand_dims(expand_dims(slope, -1), -1) * transposed(_inv(x)),)


_slogdet = host_record(
    "slogdet",
    lambda x: [stack_type(x), stack_type(x)],
    lambda x: tuple(np.asarray(part, x.dtype) for part in np.linalg.slogdet(x)),
    _slogdet_gradient,
)


@op
def slogdet(x: Any) -> Any:
    """Return the signs of determinants, and the logarithms of their sizes."""
    return items(_slogdet(matrices("slogdet", x, square=True)))


@op
def logdet(x: Any) -> Any:
    """Return the logarithm of the determinant of positive definite matrices."""
    _, logarithm = items(_slogdet(matrices("logdet", x, square=True)))
    return logarithm


@op
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    """Return the inverses of matrices whose triangular factors are given."""
    factor = matrices("cholesky_inverse", x, square=True)
    identity = stretch(eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = _solution("cholesky_inverse", factor, identity, _half(upper))
    if upper:
        return matmul(inverse, transposed(inverse))
    return matmul(transposed(inverse), inverse)


def _half(upper: bool) -> str:
    return "upper" if upper else "lower"


@op
def matrix_rank(x: Any, tol: Any = None) -> Any:
    """Return how many singular values of matrices are larger than a tolerance."""
    value = matrices("matrix_rank", x)
    s = svd(value, compute_uv=False)
    if tol is None:
        largest = reduction.max(s, axis=-1, keepdims=True)
        limit = largest * (max(value.shape[-2:]) * float(finfo(value.dtype).eps))
    else:
        limit = tol
    return reduction.sum(astype(s > limit, "int32"), axis=-1)


def _pseudo_inverse(value: Value, rcond: Any) -> Any:
    u, s, vt = items(svd_op(value, full=False))
    large = s > rcond * reduction.max(s, axis=-1, keepdims=True)
    inverse = where(large, 1.0 / where(large, s, 1.0), 0.0)
    return matmul(transposed(vt) * expand_dims(inverse, -2), transposed(u))


@op
def pinv(x: Any, rcond: Any = None) -> Any:
    """Return the Moore-Penrose inverses of matrices."""
    value = matrices("pinv", x)
    if rcond is None:
        rcond = 10.0 * max(value.shape[-2:]) * float(finfo(value.dtype).eps)
    return _pseudo_inverse(value, rcond)


# ---- norms ---------------------------------------------------------------------------


@op
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """Return the Euclidean length (or the p-norm of vectors) over axes."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    if (
        ord is None
        or (ord == "fro" and len(axes) == 2)
        or (ord == 2 and len(axes) == 1)
    ):
        return sqrt(reduction.sum(square(value), axis=axes, keepdims=keepdims))
    if len(axes) == 2 and ord in (1, -1, math.inf, -math.inf):
        return _matrix_norm(value, ord, axes, keepdims)
    if len(axes) == 2 and ord in ("nuc", 2, -2):
        return _singular_norm(value, ord, axes, keepdims)
    if len(axes) != 1 or not isinstance(ord, (int, float)):
        raise ValueError(
            f"norm: ord={ord!r} over {len(axes)} axes is not a norm; use None (the "
            "Euclidean length), a number over one axis, or over two of them one of "
            "'fro', 'nuc', 1, -1, 2, -2, inf and -inf."
        )
    if math.isinf(ord):
        extreme = reduction.max if ord > 0 else reduction.min
        return extreme(absolute(value), axis=axes, keepdims=keepdims)
    if ord == 0:
        some = astype(not_equal(value, 0.0), value.dtype)
        return reduction.sum(some, axis=axes, keepdims=keepdims)
    powers = absolute(value) if ord == 1 else power(absolute(value), float(ord))
    total = reduction.sum(powers, axis=axes, keepdims=keepdims)
    return total if ord == 1 else power(total, 1.0 / ord)


def _matrix_norm(value: Value, ord: Any, axes: Any, keepdims: bool) -> Any:  # noqa: A002
    """Return the largest (or smallest) sum of a column, or for infinity of a row."""
    over = axes if abs(ord) == 1 else axes[::-1]
    sums = reduction.sum(absolute(value), axis=over[0], keepdims=True)
    extreme = reduction.max if ord > 0 else reduction.min
    result = extreme(sums, axis=over[1], keepdims=True)
    shape = tuple(n for i, n in enumerate(result.shape) if i not in axes)
    return result if keepdims else reshape(result, shape)


def _singular_norm(value: Value, ord: Any, axes: Any, keepdims: bool) -> Any:  # noqa: A002
    """Return the sum, the largest or the smallest of the singular values."""
    matrices = moveaxis(value, axes, (-2, -1))
    values = svd(widened(matrices), compute_uv=False)
    reduce = {"nuc": reduction.sum, 2: reduction.max, -2: reduction.min}[ord]
    result = astype(reduce(values, axis=-1), value.dtype)
    for axis in sorted(axes) if keepdims else ():
        result = expand_dims(result, axis)
    return result
