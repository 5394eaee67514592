"""Linear algebra: systems of equations, determinants, decompositions.

NumPy's LAPACK computes them on the host, within a compiled step as well; their
gradients are written in ops, so that they have gradients themselves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.gradient import backpropagate
from ganglion.compiler.ir.graph import Input, Node, ShapeError, Value
from ganglion.compiler.ir.host import Typed, host_op, host_record, items
from ganglion.compiler.ir.shaping import fill, is_float, sum_
from ganglion.dtypes import finfo
from ganglion.ops import reduction
from ganglion.ops.creation import eye, tril, triu
from ganglion.ops.dispatch import astype, axes_of, floating, op, stretch
from ganglion.ops.indexing import diagonal
from ganglion.ops.numpy import absolute, not_equal, power, sqrt, square, where
from ganglion.ops.products import matmul
from ganglion.ops.shapes import expand_dims, moveaxis, reshape, squeeze, swapaxes
from ganglion.variables import read

__all__ = [
    "cholesky", "cholesky_inverse", "det", "eig", "eigh", "inv", "jvp", "logdet",
    "lstsq", "lu_factor", "matrix_rank", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd",
]  # fmt: skip


# ---- arguments ----------------------------------------------------------------------


def _matrices(name: str, x: Any, square: bool = False) -> Value:
    """Return a stack of matrices as floats that LAPACK takes."""
    value = floating(x)
    if value.ndim < 2:
        raise ShapeError(
            f"{name}: Input should have rank >= 2. Received: shape {value.shape}"
        )
    if square and value.shape[-1] != value.shape[-2]:
        raise ShapeError(f"{name}: expected a square matrix, got shape {value.shape}")
    return _wide(value)


def _wide(value: Value) -> Value:
    """Return 16-bit floats as float32: LAPACK has no smaller ones."""
    return value if value.dtype.itemsize >= 4 else astype(value, "float32")


def _turned(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def _with_diagonal(vector: Any) -> Any:
    """Return diagonal matrices."""
    return expand_dims(vector, -1) * eye(vector.shape[-1], dtype=vector.dtype)


def _same(x: Value, **_: Any) -> Typed:
    return x.shape, x.dtype


def _stack(x: Value, **_: Any) -> Typed:
    return x.shape[:-2], x.dtype


def _singular(name: str) -> Callable[..., Any]:
    """Make errors of LAPACK name the op and its cause."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def computed(*arrays: Any, **attrs: Any) -> Any:
            try:
                return function(*arrays, **attrs)
            except np.linalg.LinAlgError as error:
                raise ValueError(f"{name}: {error}".lower()) from None

        return computed

    return decorated


# ---- systems of equations -----------------------------------------------------------


def _inverse_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    turned = _turned(node)
    return (-matmul(matmul(turned, slope), turned),)


_inv = host_op("inv", _same, _singular("inv")(np.linalg.inv), _inverse_gradient)


@op
def inv(x: Any) -> Any:
    """Invert square matrices."""
    return _inv(_matrices("inv", x, square=True))


def _solved(a: np.ndarray, b: np.ndarray, triangle: str) -> np.ndarray:
    if triangle:
        a = np.tril(a) if triangle == "lower" else np.triu(a)
    return np.linalg.solve(a, b)


def _solve_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    a, _ = node.inputs
    triangle = node.attrs["triangle"]
    other = {"lower": "upper", "upper": "lower", "": ""}[triangle]
    right = _solve(_turned(a), slope, triangle=other)
    left = -matmul(right, _turned(node))
    if triangle:
        left = tril(left) if triangle == "lower" else triu(left)
    return left, right


_solve = host_op(
    "solve",
    lambda a, b, triangle: (b.shape, b.dtype),
    _singular("solve")(_solved),
    _solve_gradient,
)


def _solution(name: str, a: Any, b: Any, triangle: str) -> Any:
    left = _matrices(name, a, square=True)
    right = _wide(floating(b))
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
    result = _solve(left, right, triangle=triangle)
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


def promoted_for_lapack(a: Any, b: Any) -> tuple[Value, Value]:
    """Return two arrays as floats of one type that LAPACK takes."""
    left, right = _wide(floating(a)), _wide(floating(b))
    dtype = np.promote_types(left.dtype, right.dtype)
    return astype(left, dtype), astype(right, dtype)


# ---- determinants -------------------------------------------------------------------


def _det_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    (x,) = node.inputs
    factor = expand_dims(expand_dims(slope * node, -1), -1)
    return (factor * _turned(_inv(x)),)


_det = host_op("det", _stack, np.linalg.det, _det_gradient)


@op
def det(x: Any) -> Any:
    """Return the determinants of square matrices."""
    return _det(_matrices("det", x, square=True))


def _slogdet_gradient(
    node: Node, slopes: Sequence[Value | None]
) -> Sequence[Value | None]:
    (x,), (_, slope) = node.inputs, slopes
    if slope is None:
        return (None,)
    return (expand_dims(expand_dims(slope, -1), -1) * _turned(_inv(x)),)


_slogdet = host_record(
    "slogdet",
    lambda x: [_stack(x), _stack(x)],
    lambda x: tuple(np.asarray(part, x.dtype) for part in np.linalg.slogdet(x)),
    _slogdet_gradient,
)


@op
def slogdet(x: Any) -> Any:
    """Return the signs of determinants, and the logarithms of their sizes."""
    return items(_slogdet(_matrices("slogdet", x, square=True)))


@op
def logdet(x: Any) -> Any:
    """Return the logarithm of the determinant of positive definite matrices."""
    _, logarithm = items(_slogdet(_matrices("logdet", x, square=True)))
    return logarithm


# ---- decompositions -----------------------------------------------------------------


def _cholesky_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    turned = _turned(node)
    product = tril(matmul(turned, slope))
    halved = product - 0.5 * _with_diagonal(diagonal(product, axis1=-2, axis2=-1))
    inner = _solve(turned, halved, triangle="upper")
    outer = _turned(_solve(turned, _turned(inner), triangle="upper"))
    return (0.5 * (outer + _turned(outer)),)


_cholesky = host_op(
    "cholesky", _same, _singular("cholesky")(np.linalg.cholesky), _cholesky_gradient
)


@op
def cholesky(x: Any, upper: bool = False) -> Any:
    """Return the triangular factors of positive definite matrices."""
    factor = _cholesky(_matrices("cholesky", x, square=True))
    return _turned(factor) if upper else factor


@op
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    """Return the inverses of matrices whose triangular factors are given."""
    factor = _matrices("cholesky_inverse", x, square=True)
    identity = stretch(eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = _solution("cholesky_inverse", factor, identity, _half(upper))
    if upper:
        return matmul(inverse, _turned(inverse))
    return matmul(_turned(inverse), inverse)


def _half(upper: bool) -> str:
    return "upper" if upper else "lower"


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
        inner = _with_diagonal(along)
    if across is not None:
        inner = inner + _apart(values) * matmul(_turned(vectors), across)
    product = matmul(matmul(vectors, inner), _turned(vectors))
    return (0.5 * (product + _turned(product)),)


_eigh = host_record(
    "eigh",
    lambda x: [(x.shape[:-1], x.dtype), (x.shape, x.dtype)],
    _singular("eigh")(lambda x: tuple(np.linalg.eigh(x))),
    _eigh_gradient,
)


@op
def eigh(x: Any) -> Any:
    """Return eigenvalues, in rising order, and eigenvectors of symmetric matrices."""
    return items(_eigh(_matrices("eigh", x, square=True)))


def _complex_of(dtype: np.dtype) -> np.dtype:
    return np.dtype("complex128" if dtype.itemsize == 8 else "complex64")


def _eig_of(x: np.ndarray) -> tuple[np.ndarray, ...]:
    dtype = _complex_of(x.dtype)
    return tuple(np.asarray(part, dtype) for part in np.linalg.eig(x))


_eig = host_record(
    "eig",
    lambda x: [(x.shape[:-1], _complex_of(x.dtype)), (x.shape, _complex_of(x.dtype))],
    _singular("eig")(_eig_of),
)


@op
def eig(x: Any) -> Any:
    """Return eigenvalues and eigenvectors of square matrices: complex numbers."""
    return items(_eig(_matrices("eig", x, square=True)))


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
    middle = matmul(r, _turned(of_r)) - matmul(_turned(of_q), q)
    symmetric = tril(middle) + _turned(tril(middle, k=-1))
    left = of_q + matmul(q, symmetric)
    return (_turned(_solve(r, _turned(left), triangle="upper")),)


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
    return items(_qr(_matrices("qr", x), mode=mode))


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
    v, row = _turned(vt), expand_dims(s, -2)
    inner = fill(0, matmul(vt, v)) if of_s is None else _with_diagonal(of_s)
    apart = _apart(s * s)
    result: Any = None
    if of_u is not None:
        turning = matmul(_turned(u), of_u)
        inner = inner + apart * (turning - _turned(turning)) * row
        beyond = of_u - matmul(u, turning)
        result = matmul(beyond / row, vt)
    if of_vt is not None:
        of_v = _turned(of_vt)
        turning = matmul(vt, of_v)
        inner = inner + expand_dims(s, -1) * (apart * (turning - _turned(turning)))
        beyond = matmul(u / row, _turned(of_v - matmul(v, turning)))
        result = beyond if result is None else result + beyond
    product = matmul(matmul(u, inner), vt)
    return (product if result is None else product + result,)


_svd = host_record(
    "svd",
    _svd_types,
    _singular("svd")(lambda x, full: tuple(np.linalg.svd(x, full_matrices=full))),
    _svd_gradient,
)


@op
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return the singular value decomposition `u, s, vt`, or s alone."""
    value = _matrices("svd", x)
    parts = items(_svd(value, full=full_matrices and compute_uv))
    return parts if compute_uv else parts[1]


@op
def matrix_rank(x: Any, tol: Any = None) -> Any:
    """Return how many singular values of matrices are larger than a tolerance."""
    value = _matrices("matrix_rank", x)
    s = svd(value, compute_uv=False)
    if tol is None:
        largest = reduction.max(s, axis=-1, keepdims=True)
        limit = largest * (max(value.shape[-2:]) * float(finfo(value.dtype).eps))
    else:
        limit = tol
    return reduction.sum(astype(s > limit, "int32"), axis=-1)


def _pseudo_inverse(value: Value, rcond: Any) -> Any:
    u, s, vt = items(_svd(value, full=False))
    large = s > rcond * reduction.max(s, axis=-1, keepdims=True)
    inverse = where(large, 1.0 / where(large, s, 1.0), 0.0)
    return matmul(_turned(vt) * expand_dims(inverse, -2), _turned(u))


@op
def pinv(x: Any, rcond: Any = None) -> Any:
    """Return the Moore-Penrose inverses of matrices."""
    value = _matrices("pinv", x)
    if rcond is None:
        rcond = 10.0 * max(value.shape[-2:]) * float(finfo(value.dtype).eps)
    return _pseudo_inverse(value, rcond)


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
    lambda x: [_same(x), ((*x.shape[:-2], min(x.shape[-2:])), np.dtype("int32"))],
    _lu_of,
)


@op
def lu_factor(x: Any) -> Any:
    """Return both triangular factors in one matrix, and the pivots, as LAPACK does."""
    return items(_lu(_matrices("lu_factor", x)))


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
    values = svd(_wide(matrices), compute_uv=False)
    reduce = {"nuc": reduction.sum, 2: reduction.max, -2: reduction.min}[ord]
    result = astype(reduce(values, axis=-1), value.dtype)
    for axis in sorted(axes) if keepdims else ():
        result = expand_dims(result, axis)
    return result


# ---- products of Jacobians and vectors ----------------------------------------------


@op
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Return `fun(*primals)`, and how it changes along the tangents.

    >>> import numpy as np
    >>> value, slope = jvp(lambda x: x * x, (np.float32(3.0),), (np.float32(1.0),))
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    points = [read(x) for x in tree.flatten(primals)]
    directions = [
        astype(tangent, point.dtype)
        for tangent, point in zip(tree.flatten(tangents), points, strict=True)
    ]
    result = fun(*tree.pack(primals, points))
    outputs, aux = result if has_aux else (result, None)
    leaves = [read(leaf) for leaf in tree.flatten(outputs)]
    slopes = [_slope_along(leaf, points, directions) for leaf in leaves]
    answer: Any = tree.pack(outputs, leaves), tree.pack(outputs, slopes)
    return (*answer, aux) if has_aux else answer


def _slope_along(
    output: Value, points: Sequence[Value], directions: Sequence[Value]
) -> Value:
    """Differentiate twice: a gradient is linear in what it is the gradient of."""
    if not is_float(output.dtype):
        return fill(0, output)
    seed = Input("seed", output.shape, output.dtype)  # what follows is linear in it
    slopes = backpropagate({output: seed}, points)
    total: Any = None
    for point, direction in zip(points, directions, strict=True):
        if point in slopes:
            product = slopes[point] * stretch(direction, point.shape)
            part = sum_(product, axes=tuple(range(product.ndim)))
            total = part if total is None else total + part
    if total is None:
        return fill(0, output)
    along = backpropagate({total: fill(1, total)}, [seed])
    return along.get(seed, fill(0, output))
