"""Calls of NumPy's LAPACK: operands as it takes them, types of results, errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.compiler.ir.host import Typed, host_op
from ganglion.ops.creation import eye, tril, triu
from ganglion.ops.dispatch import astype, floating
from ganglion.ops.products import matmul
from ganglion.ops.shapes import expand_dims, swapaxes


def matrices(name: str, x: Any, square: bool = False) -> Value:
    """Return a stack of matrices as floats that LAPACK takes."""
    value = floating(x)
    if value.ndim < 2:
        raise ShapeError(
            f"{name}: Input should have rank >= 2. Received: shape {value.shape}"
        )
    if square and value.shape[-1] != value.shape[-2]:
        raise ShapeError(f"{name}: expected a square matrix, got shape {value.shape}")
    return widened(value)


def widened(value: Value) -> Value:
    """Return 16-bit floats as float32: LAPACK has no smaller ones."""
    return value if value.dtype.itemsize >= 4 else astype(value, "float32")


def transposed(x: Any) -> Any:
    """Return transposed matrices."""
    return swapaxes(x, -1, -2)


def diagonal_matrices(vector: Any) -> Any:
    """Return matrices with these diagonals."""
    return expand_dims(vector, -1) * eye(vector.shape[-1], dtype=vector.dtype)


def same_type(x: Value, **_: Any) -> Typed:
    """Return the type of an operand: a rule for the type of a result."""
    return x.shape, x.dtype


def stack_type(x: Value, **_: Any) -> Typed:
    """Return the type of a number per matrix."""
    return x.shape[:-2], x.dtype


def refusing_singular(name: str) -> Callable[..., Any]:
    """Return a decorator: an error of LAPACK names the op."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def computed(*arrays: Any, **attrs: Any) -> Any:
            try:
                return function(*arrays, **attrs)
            except np.linalg.LinAlgError as error:
                raise ValueError(f"{name}: {error}".lower()) from None

        return computed

    return decorated


def promoted_for_lapack(a: Any, b: Any) -> tuple[Value, Value]:
    """Return two arrays as floats of one type that LAPACK takes."""
    left, right = widened(floating(a)), widened(floating(b))
    dtype = np.promote_types(left.dtype, right.dtype)
    return astype(left, dtype), astype(right, dtype)


def _solved(a: np.ndarray, b: np.ndarray, triangle: str) -> np.ndarray:
    if triangle:
        a = np.tril(a) if triangle == "lower" else np.triu(a)
    return np.linalg.solve(a, b)


def _solve_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    a, _ = node.inputs
    triangle = node.attrs["triangle"]
    other = {"lower": "upper", "upper": "lower", "": ""}[triangle]
    right = solve_op(transposed(a), slope, triangle=other)
    left = -matmul(right, transposed(node))
    if triangle:
        left = tril(left) if triangle == "lower" else triu(left)
    return left, right


solve_op = host_op(
    "solve",
    lambda a, b, triangle: (b.shape, b.dtype),
    refusing_singular("solve")(_solved),
    _solve_gradient,
)
