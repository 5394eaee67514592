"""`tf.math`: sums, counts, extremes and running sums, of axes and of segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.arrays import known


def argmax(input: Any, axis: Any = None, output_type: Any = "int64") -> Any:  # noqa: A002
    """Return the index of the largest number along an axis, the first by default."""
    return ops.cast(ops.argmax(input, 0 if axis is None else axis), str(output_type))


def argmin(input: Any, axis: Any = None, output_type: Any = "int64") -> Any:  # noqa: A002
    """Return the index of the smallest number along an axis, the first by default."""
    return ops.cast(ops.argmin(input, 0 if axis is None else axis), str(output_type))


def add_n(inputs: Any) -> Any:
    """Return the sum of several tensors."""
    total = inputs[0]
    for part in inputs[1:]:
        total = ops.add(total, part)
    return total


def reduce_mean(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean; that of integers is one, too, as in TensorFlow."""
    tensor = ops.convert_to_tensor(input_tensor)
    means = ops.mean(tensor, axis, keepdims)
    kind = str(tensor.dtype)
    return ops.cast(means, kind) if "int" in kind else means


def zero_fraction(value: Any) -> Any:
    """Return the part of the numbers that is zero."""
    return ops.mean(ops.cast(ops.equal(value, 0), "float32"))


def segment_max(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the largest of each segment's rows, the lowest number of an empty one."""
    largest = ops.segment_max(data, segment_ids, num_segments)
    return ops.maximum(largest, _limits(data).min)


def segment_min(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the least of each segment's rows, the largest number of an empty one."""
    least = ops.segment_min(data, segment_ids, num_segments)
    return ops.minimum(least, _limits(data).max)


def _limits(data: Any) -> np.iinfo[Any] | np.finfo[Any]:
    kind = np.dtype(str(data.dtype))
    return np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)


def sorted_segment_max(data: Any, segment_ids: Any) -> Any:
    """Return the largest of each segment's rows, 0 for an empty one."""
    largest = ops.segment_max(data, segment_ids)
    return _without_empty(largest, data, segment_ids)


def sorted_segment_min(data: Any, segment_ids: Any) -> Any:
    """Return the least of each segment's rows, 0 for an empty one."""
    return _without_empty(ops.segment_min(data, segment_ids), data, segment_ids)


def _without_empty(values: Any, data: Any, segment_ids: Any) -> Any:
    count = ops.segment_sum(ops.ones_like(data), segment_ids)
    return ops.where(ops.equal(count, 0), ops.zeros_like(values), values)


def segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the sum of each segment's rows over the root of their number."""
    total = ops.segment_sum(data, segment_ids, num_segments)
    mean = segment_mean(data, segment_ids, num_segments)
    ones = ops.ones((data.shape[0], *(1 for _ in data.shape[1:])), data.dtype)
    count = ops.segment_sum(ones, segment_ids, num_segments)
    return ops.where(ops.equal(count, 0), total, mean * ops.sqrt(count))


def segment_mean(data: Any, segment_ids: Any, num_segments: Any = None) -> Any:
    """Return the mean of the rows of each segment, 0 of one without rows."""
    total = ops.segment_sum(data, segment_ids, num_segments)
    ones = ops.ones((data.shape[0], *(1 for _ in data.shape[1:])), data.dtype)
    count = ops.segment_sum(ones, segment_ids, num_segments)
    return ops.divide(total, ops.maximum(count, 1))


def count_nonzero(
    input: Any,  # noqa: A002
    axis: Any = None,
    keepdims: bool = False,
    dtype: Any = "int64",
) -> Any:
    """Return how many elements are not zero."""
    ones = ops.cast(ops.not_equal(input, 0), str(dtype))
    return ops.cast(ops.sum(ones, axis=axis, keepdims=keepdims), str(dtype))


def bincount(
    arr: Any, weights: Any = None, minlength: Any = 0, axis: Any = None
) -> Any:
    """Return how often each integer occurs in all, or in each row of a matrix."""
    if axis is None:
        arr = ops.ravel(arr)
        weights = None if weights is None else ops.ravel(weights)
    elif axis not in (-1, len(arr.shape) - 1):
        raise ValueError(f"tf.math.bincount: axis must be None or -1, not {axis!r}.")
    return ops.bincount(arr, weights, minlength or 0)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = "int32"
) -> Any:
    """Return how many numbers are in each of equal parts of a range."""
    low, high = (float(edge) for edge in value_range)
    share = (ops.ravel(values) - low) / (high - low) * nbins
    bins = ops.clip(ops.cast(ops.floor(share), "int32"), 0, nbins - 1)
    return ops.cast(ops.sum(ops.one_hot(bins, nbins, dtype="float32"), 0), str(dtype))


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = "int32",
) -> Any:
    """Return how often a class (a row) was taken for another (a column)."""
    if num_classes is None:
        both = known([labels, predictions], "math.confusion_matrix without num_classes")
        num_classes = int(both.max()) + 1
    truth = ops.one_hot(labels, num_classes, dtype="float32")
    guess = ops.one_hot(predictions, num_classes, dtype="float32")
    if weights is not None:
        truth = ops.multiply(truth, ops.expand_dims(ops.cast(weights, "float32"), -1))
    return ops.cast(ops.matmul(ops.transpose(truth), guess), str(dtype))


def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Return sums of all numbers up to each, or before it, from either end."""
    return _cumulated(ops.cumsum, 0, x, axis, exclusive, reverse)


def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Return products of all numbers up to each, or before it, from either end."""
    return _cumulated(ops.cumprod, 1, x, axis, exclusive, reverse)


def _cumulated(
    cumulate: Any, start: int, x: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    if reverse:
        x = _cumulated(cumulate, start, ops.flip(x, axis), axis, exclusive, False)
        return ops.flip(x, axis)
    if exclusive:  # not by a difference, which is NaN after an infinity
        rank = len(np.shape(x))
        axis %= rank
        widths = [(int(number == axis), 0) for number in range(rank)]
        padded = ops.pad(x, widths, constant_values=start)
        x = padded[(slice(None),) * axis + (slice(-1),)]
    return cumulate(x, axis)
