"""`tf.linalg`: products, diagonals and norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.reductions import add_n


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Return a matrix with ones on its diagonal, or a batch of them."""
    matrix = ops.eye(int(num_rows), num_columns, dtype=str(dtype))
    if batch_shape is None:
        return matrix
    sizes = [int(size) for size in known(batch_shape, "eye")]
    return ops.broadcast_to(matrix, (*sizes, *matrix.shape))


def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """Return the product of matrices, either transposed first."""
    a = matrix_transpose(a) if transpose_a else a
    b = matrix_transpose(b) if transpose_b else b
    return ops.matmul(a, b)


def matvec(a: Any, b: Any) -> Any:
    """Return the product of matrices with vectors."""
    return ops.squeeze(ops.matmul(a, ops.expand_dims(b, -1)), -1)


def diag(diagonal: Any) -> Any:
    """Return matrices with zeros around their diagonals, the rows of a tensor."""
    shape = tuple(diagonal.shape)
    return set_diag(ops.zeros((*shape, shape[-1]), str(diagonal.dtype)), diagonal)


def tensor_diag(diagonal: Any) -> Any:
    """Return a tensor of twice the axes, zero where its two indices differ."""
    shape = tuple(diagonal.shape)
    return ops.reshape(diag(ops.reshape(diagonal, (-1,))), (*shape, *shape))


def tensor_diag_part(input: Any) -> Any:  # noqa: A002
    """Return the elements whose first and second half of indices are equal."""
    shape = tuple(input.shape[: len(input.shape) // 2])
    count = math.prod(shape)
    diagonal = ops.diagonal(ops.reshape(input, (count, count)))
    return ops.reshape(diagonal, shape)


def set_diag(input: Any, diagonal: Any) -> Any:  # noqa: A002
    """Return matrices with another diagonal."""
    rows, columns = input.shape[-2:]
    is_diagonal = np.eye(rows, columns, dtype=bool)
    shape = (*diagonal.shape, 1) if rows <= columns else (*diagonal.shape[:-1], 1, -1)
    return ops.where(is_diagonal, ops.reshape(diagonal, shape), input)


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return the singular values first, then the left and right vectors."""
    parts = ops.svd(tensor, full_matrices=full_matrices, compute_uv=compute_uv)
    if not compute_uv:
        return parts
    left, values, right = parts
    return values, left, matrix_transpose(right)


def adjoint(matrix: Any) -> Any:
    """Exchange the last two axes, of conjugates."""
    return ops.conj(ops.swapaxes(matrix, -1, -2))


def matrix_transpose(a: Any) -> Any:
    """Exchange the last two axes."""
    return ops.swapaxes(a, -1, -2)


def norm(
    tensor: Any,
    ord: Any = "euclidean",  # noqa: A002 (TensorFlow's name)
    axis: Any = None,
    keepdims: bool = False,
) -> Any:
    """Return the norm of vectors; of all numbers where no axis is given."""
    if ord not in ("euclidean", "fro", 1, 2, np.inf):
        raise ValueError(f"tf.norm: ord={ord!r} is not supported; use 1, 2 or np.inf.")
    magnitude = ops.abs(tensor)
    if ord == 1:
        return ops.sum(magnitude, axis, keepdims=keepdims)
    if ord == np.inf:
        return ops.max(magnitude, axis, keepdims=keepdims)
    return ops.sqrt(ops.sum(ops.square(magnitude), axis, keepdims=keepdims))


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None) -> Any:  # noqa: A002
    """Return vectors of length one, and the lengths."""
    length = norm(tensor, ord, axis, keepdims=True)
    return ops.divide(tensor, length), length


def band_part(input: Any, num_lower: int, num_upper: int) -> Any:  # noqa: A002
    """Return matrices with zeros away from the diagonal; -1 keeps a whole side."""
    result = input if num_upper < 0 else ops.tril(input, int(num_upper))
    return result if num_lower < 0 else ops.triu(result, -int(num_lower))


def global_norm(t_list: Any) -> Any:
    """Return the norm of all numbers of several tensors."""
    squares = [ops.sum(ops.square(part)) for part in t_list if part is not None]
    return ops.sqrt(add_n(squares))


def clip_by_global_norm(t_list: Any, clip_norm: Any) -> Any:
    """Return tensors scaled so that their common norm is at most this, and the norm."""
    length = global_norm(t_list)
    factor = ops.divide(clip_norm, ops.maximum(length, clip_norm))
    clipped = [None if part is None else ops.multiply(part, factor) for part in t_list]
    return clipped, length


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None) -> Any:
    """Return a tensor scaled so that its norm is at most this."""
    length = norm(t, axis=axes, keepdims=True)
    return ops.divide(ops.multiply(t, clip_norm), ops.maximum(length, clip_norm))


def logdet(matrix: Any) -> Any:
    """Return the logarithm of the determinant of positive definite matrices."""
    return ops.slogdet(matrix)[1]


def expm(input: Any) -> Any:  # noqa: A002 (TensorFlow's name)
    """Return the exponential of square matrices: a series, squared again and again."""
    squarings, terms = 10, 12
    scaled = ops.cast(input, "float64") / 2.0**squarings  # squaring doubles errors
    power = total = ops.broadcast_to(
        ops.eye(scaled.shape[-1], dtype="float64"), scaled.shape
    )
    for number in range(1, terms):
        power = ops.matmul(power, scaled) / number
        total = total + power
    for _ in range(squarings):
        total = ops.matmul(total, total)
    return ops.cast(total, input.dtype)
