"""Broadcast, sum, reshape and transpose: ops whose gradients are each other.

The other primitives are built on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import (
    BFLOAT16,
    Case,
    Constant,
    Node,
    Op,
    Shape,
    ShapeError,
    Value,
)

BOOL = np.dtype(bool)
Typed = tuple[Shape, np.dtype]


@cache
def is_float(dtype: np.dtype) -> bool:
    """Return whether gradients flow through values of this type."""
    return dtype == BFLOAT16 or np.issubdtype(dtype, np.floating)


def drawn(shape: Shape, /, **attrs: Any) -> Callable[[np.random.Generator], Case]:
    """Return a domain: an array of this shape with elements in ±2, fixed attributes."""
    return lambda rng: ([rng.uniform(-2, 2, shape)], attrs)


def fill(number: float | bool, like: Value) -> Value:
    """Return a value like another, with every element equal to ``number``."""
    scalar = Constant(number, like.dtype)
    return broadcast(scalar, shape=like.shape) if like.shape else scalar


def in_rows(x: np.ndarray) -> np.ndarray:
    """Return an array in row-major order.

    NumPy's order of summation depends on strides, and it multiplies a matrix by its own
    transpose differently: the meaning of an op must depend on elements only.
    """
    return np.asarray(x, order="C")


def keep_axes(reduced: Value, axes: Shape, shape: Shape) -> Value:
    """Broadcast a reduced value back over the reduced axes."""
    ones = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    kept = reshape(reduced, shape=ones) if ones != reduced.shape else reduced
    return broadcast(kept, shape=shape) if shape != ones else kept


def check_axes(x: Value, axes: Shape) -> None:
    """Raise for axes that a value does not have, or that repeat."""
    if len(set(axes)) != len(axes) or any(not 0 <= axis < x.ndim for axis in axes):
        raise ShapeError(f"axes {axes} do not fit {x.type_text}")


def reduced(x: Value, axes: Shape) -> Typed:
    """Infer the shape and type of a reduction over ``axes``."""
    check_axes(x, axes)
    if x.dtype == BOOL:
        raise ShapeError("needs numbers, got bool; cast first")
    return tuple(n for axis, n in enumerate(x.shape) if axis not in axes), x.dtype


def _broadcast_infer(x: Value, shape: Shape) -> Typed:
    if not _broadcasts(x.shape, shape):
        raise ShapeError(f"{x.shape} does not broadcast to {shape}")
    return shape, x.dtype


@lru_cache(maxsize=4096)
def _broadcasts(old: Shape, new: Shape) -> bool:
    """Return whether a value of one shape can be broadcast to another."""
    pairs = zip(reversed(old), reversed(new), strict=False)
    return len(old) <= len(new) and all(n in (1, m) for n, m in pairs)


def _broadcast_gradient(node: Node, g: Value) -> list[Value | None]:
    (x,) = node.inputs
    new = g.ndim - x.ndim
    stretched = [
        new + axis
        for axis, size in enumerate(x.shape)
        if size == 1 and g.shape[new + axis] != 1
    ]
    axes = (*range(new), *stretched)
    total = sum_(g, axes=axes) if axes else g
    return [reshape(total, shape=x.shape) if total.shape != x.shape else total]


broadcast: Op = Op(
    "broadcast",
    "movement",
    _broadcast_infer,
    lambda x, shape: np.broadcast_to(x, shape),
    lambda rng: ([rng.uniform(-2, 2, (3, 1))], {"shape": (2, 3, 4)}),
    _broadcast_gradient,
)


def _sum_meaning(x: np.ndarray, axes: Shape) -> np.ndarray:
    # In float64: a long float32 sum over leading axes would be less accurate.
    wide = np.float64 if is_float(x.dtype) else x.dtype
    return np.sum(in_rows(x), axis=axes, dtype=wide).astype(x.dtype)


sum_: Op = Op(
    "sum",
    "reduction",
    reduced,
    _sum_meaning,
    drawn((3, 4, 2), axes=(0, 2)),
    lambda node, g: [keep_axes(g, node.attrs["axes"], node.inputs[0].shape)],
)


def _reshape_infer(x: Value, shape: Shape) -> Typed:
    if math.prod(shape) != x.size or min(shape, default=0) < 0:
        raise ShapeError(f"cannot reshape {x.shape} ({x.size} elements) into {shape}")
    return shape, x.dtype


reshape: Op = Op(
    "reshape",
    "movement",
    _reshape_infer,
    lambda x, shape: np.reshape(x, shape),
    drawn((3, 4), shape=(2, 6)),
    lambda node, g: [reshape(g, shape=node.inputs[0].shape)],
)


def _transpose_infer(x: Value, axes: Shape) -> Typed:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(f"{axes} is not an order of the axes of {x.type_text}")
    return tuple(x.shape[axis] for axis in axes), x.dtype


transpose: Op = Op(
    "transpose",
    "movement",
    _transpose_infer,
    lambda x, axes: np.transpose(x, axes),
    drawn((3, 4, 2), axes=(2, 0, 1)),
    lambda node, g: [
        transpose(g, axes=tuple(int(i) for i in np.argsort(node.attrs["axes"])))
    ],
)


def splat(value: Value) -> np.ndarray | None:
    """Return the number that a value is filled with, None if it is not constant."""
    if isinstance(value, Node) and value.op is broadcast:
        value = value.inputs[0]
    if isinstance(value, Constant) and value.size == 1:
        return value.array.reshape(())
    return None
