"""Reductions of the rows that carry the same segment number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import contraction
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, Node, Op, ShapeError, Value
from ganglion.compiler.ir.host import host_op
from ganglion.ops.dispatch import astype, known, numeric, op
from ganglion.ops.index_limits import require_range
from ganglion.ops.numpy import maximum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _checked(name: str, data: Any, ids: Any, count: Any) -> tuple[Value, Value, int]:
    """Return rows, their segment numbers, and how many segments there are."""
    value, numbers = numeric(data), astype(ids, "int32")
    if numbers.ndim != 1:
        raise ShapeError(
            f"{name}: Argument `segment_ids` should be an 1-D vector, got shape "
            f"{numbers.shape}."
        )
    if value.shape[:1] != numbers.shape:
        raise ShapeError(
            f"{name}: Argument `segment_ids` and `data` should have same leading "
            f"dimension. Got {numbers.shape} and {value.shape}."
        )
    unknown = symbolic.unknown_size()
    if count is None and unknown is not None and not isinstance(numbers, Constant):
        return value, numbers, unknown
    if count is None:
        array = known(name, numbers, "Give `num_segments`.")
        return value, numbers, int(array.max(initial=-1)) + 1
    # Negative numbers take no part, as in Keras.
    require_range(maximum(numbers, 0), 0, int(count))
    return value, numbers, int(count)


@op
def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    sorted: bool = False,  # noqa: A002 (Keras' name)
) -> Any:
    """Add up the rows that carry the same segment number."""
    rows, ids, count = _checked("segment_sum", data, segment_ids, num_segments)
    return contraction.scatter_add(rows, ids, rows=count)


def _extreme(name: str, function: Any) -> Op:
    def meaning(x: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
        out = np.full((rows, *x.shape[1:]), _lowest(name, x.dtype), x.dtype)
        return _reduced(function, out, x, ids)

    return host_op(name, _segments_type, meaning, _extreme_gradient)


def _segments_type(x: Value, ids: Value, rows: int) -> Any:
    return (rows, *x.shape[1:]), x.dtype


def _reduced(
    function: Any, out: np.ndarray, x: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    is_valid = (ids >= 0) & (ids < len(out))
    function.at(out, ids[is_valid], x[is_valid])
    return out


def _lowest(name: str, dtype: np.dtype) -> Any:
    """Return the value of an empty segment: the neutral element of the reduction."""
    sign = -1 if name == "segment_max" else 1
    if dtype.kind == "f":
        return sign * math.inf
    return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max


def _extreme_gradient(node: Node, g: Value) -> list[Value | None]:
    """Share a segment's slope equally among the rows that are its extreme."""
    x, ids = node.inputs
    count = node.attrs["rows"]
    wins = astype(p.equal(x, contraction.gather(node, ids)), x.dtype)
    winners = contraction.scatter_add(wins, ids, rows=count)
    share = p.divide(g, p.maximum(winners, s.fill(1, winners)))
    finite = p.where(p.is_finite(share), share, s.fill(0, share))
    return [p.multiply(wins, contraction.gather(finite, ids)), None]


def _product(x: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
    return _reduced(np.multiply, np.ones((rows, *x.shape[1:]), x.dtype), x, ids)


def _product_gradient(node: Node, g: Value) -> list[Value | None]:
    x, ids = node.inputs
    others = _OTHERS(x, ids, rows=node.attrs["rows"])
    return [p.multiply(others, contraction.gather(g, ids)), None]


def _others(x: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
    """Return the product of all other rows of each row's segment."""
    out = np.ones_like(x)
    for number in np.unique(ids):
        places = np.flatnonzero(ids == number)
        before = np.cumprod(np.vstack([np.ones_like(x[:1]), x[places]]), axis=0)[:-1]
        behind = np.cumprod(np.vstack([np.ones_like(x[:1]), x[places][::-1]]), axis=0)
        out[places] = before * behind[:-1][::-1]
    return out


_MAX, _MIN = _extreme("segment_max", np.maximum), _extreme("segment_min", np.minimum)
_PROD: Op = host_op("segment_prod", _segments_type, _product, _product_gradient)
_OTHERS: Op = host_op(
    "segment_others", lambda x, ids, rows: (x.shape, x.dtype), _others
)


@op
def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    sorted: bool = False,  # noqa: A002 (Keras' name)
) -> Any:
    """Return the largest of the rows that carry the same segment number."""
    rows, ids, count = _checked("segment_max", data, segment_ids, num_segments)
    return _MAX(rows, ids, rows=count)


@op
def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    sorted: bool = False,  # noqa: A002 (Keras' name)
) -> Any:
    """Return the smallest of the rows that carry the same segment number."""
    rows, ids, count = _checked("segment_min", data, segment_ids, num_segments)
    return _MIN(rows, ids, rows=count)


@op
def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    sorted: bool = False,  # noqa: A002 (Keras' name)
) -> Any:
    """Multiply the rows that carry the same segment number."""
    rows, ids, count = _checked("segment_prod", data, segment_ids, num_segments)
    return _PROD(rows, ids, rows=count)
