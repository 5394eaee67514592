"""How losses per element become one number: shapes, sample weights, masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.graph import ShapeError
from ganglion.ops import op
from ganglion.ops.dispatch import floating, promoted

REDUCTIONS = (
    "sum_over_batch_size",
    "sum",
    "mean",
    "mean_with_sample_weight",
    "none",
    None,
)


def checked_reduction(reduction: str | None) -> str | None:
    """Return the reduction; refuse a name that is none. Keras 2's "auto" is known."""
    if reduction == "auto":
        return "sum_over_batch_size"
    if reduction not in REDUCTIONS:
        known = ", ".join(repr(one) for one in REDUCTIONS)
        raise ValueError(f"Unknown reduction {reduction!r}: use one of {known}.")
    return reduction


@op
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """Divide, and give 0 where the divisor is 0.

    >>> divide_no_nan(np.array([1.0, 2.0], "float32"), np.array([0.0, 4.0], "float32"))
    array([0. , 0.5], dtype=float32)
    """
    a, b = promoted(floating(x1), floating(x2))
    empty = ops.equal(b, 0.0)
    return ops.where(empty, 0.0, ops.divide(a, ops.where(empty, 1.0, b)))


def same_rank(x1: Any, x2: Any, expand_rank_1: bool = True) -> tuple[Any, Any]:
    """Make (N,) and (N, 1) agree, as Keras does before it compares or multiplies."""
    if len(x1.shape) == len(x2.shape) + 1:
        x1, x2 = _shed(x1, x2, expand_rank_1)
    elif len(x2.shape) == len(x1.shape) + 1:
        x2, x1 = _shed(x2, x1, expand_rank_1)
    return x1, x2


def _shed(longer: Any, shorter: Any, expand_rank_1: bool) -> tuple[Any, Any]:
    if longer.shape[-1] != 1:
        return longer, shorter
    if len(shorter.shape) == 1 and expand_rank_1:
        return longer, ops.expand_dims(shorter, -1)
    return ops.squeeze(longer, -1), shorter


def reduce_weighted(
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    """Weigh losses per element and reduce them to one number (or not at all)."""
    values = ops.convert_to_tensor(values, dtype)
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, values.dtype)
    weights = masked_weights(sample_weight, mask, values.dtype, reduction)
    if weights is not None:
        values, weights = fitted_weights(values, weights)
        values = values * weights
    return _reduce(values, weights, reduction)


def _reduce(values: Any, weights: Any, reduction: str | None) -> Any:
    shape = tuple(values.shape)
    if reduction in (None, "none") or shape in ((), (0,)):
        return values
    total = ops.sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and weights is not None:
        return divide_no_nan(total, ops.sum(weights))
    return ops.divide(total, float(math.prod(shape) or 1))


def fitted_weights(values: Any, weights: Any) -> tuple[Any, Any]:
    """Give weights the axes of the losses: one weight per sample covers its steps."""
    values, weights = same_rank(values, weights)
    shape, given = tuple(values.shape), tuple(weights.shape)
    if 0 < len(given) < len(shape) and given == shape[: len(given)]:
        weights = ops.reshape(weights, given + (1,) * (len(shape) - len(given)))
    elif shape and not _covers(shape, given):
        raise ShapeError(
            f"Sample weights of shape {given} do not fit values of shape {shape}: give "
            f"one weight per sample, of shape ({shape[0]},)."
        )
    return values, weights


def _covers(shape: tuple[int, ...], given: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, given) == shape
    except ValueError:
        return False


def masked_weights(
    sample_weight: Any, mask: Any, dtype: Any, reduction: str | None
) -> Any:
    """Return the weights with zero where the mask is off.

    For a mean, what is left counts for more, so that the mean is over the valid ones.
    """
    if mask is None:
        return sample_weight
    kept = ops.cast(mask, dtype)
    if reduction in ("mean", "sum_over_batch_size"):
        kept = kept * divide_no_nan(float(math.prod(mask.shape)), ops.sum(kept))
    if sample_weight is None:
        return kept
    kept, sample_weight = fitted_weights(kept, ops.cast(sample_weight, dtype))
    return kept * sample_weight
