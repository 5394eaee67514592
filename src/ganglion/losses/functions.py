"""Losses as functions: labels and predictions in, one loss per sample out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.reduction import same_rank
from ganglion.ops import op
from ganglion.ops.dispatch import astype, floating
from ganglion.serialization import export


def loss_function(*aliases: str) -> Callable[[Any], Any]:
    """Register a loss function that works on arrays, Keras tensors and in a trace."""

    def register(function: Any) -> Any:
        return export("keras.losses", *aliases)(op(function))

    return register


def paired(name: str, y_true: Any, y_pred: Any) -> tuple[Value, Value]:
    """Return labels and predictions of one float type and shape, or refuse them."""
    prediction = floating(y_pred)
    label, prediction = same_rank(astype(y_true, prediction.dtype), prediction)
    if label.shape != prediction.shape:
        raise ShapeError(
            f"{name}: labels of shape {label.shape} do not fit predictions of shape "
            f"{prediction.shape}. {_way_out(label, prediction)}"
        )
    return label, prediction


def _way_out(label: Value, prediction: Value) -> str:
    rows = prediction.shape[:-1]
    if prediction.shape[-1:] != (1,) and label.shape in (rows, (*rows, 1)):
        return (
            "For class numbers use sparse_categorical_crossentropy, or turn them into "
            "one-hot rows with keras.utils.to_categorical."
        )
    if label.size == prediction.size:
        return f"Reshape the labels to {prediction.shape}."
    return "Change the last layer (its units) or the labels, so that both are equal."


@loss_function("mse", "MSE")
def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of (y_true - y_pred)² over the last axis.

    >>> float(mean_squared_error([[0.0, 2.0]], [[0.0, 0.0]])[0])
    2.0
    """
    label, prediction = paired("mean_squared_error", y_true, y_pred)
    return ops.mean(ops.square(label - prediction), axis=-1)


@loss_function("mae", "MAE")
def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of |y_true - y_pred| over the last axis."""
    label, prediction = paired("mean_absolute_error", y_true, y_pred)
    return ops.mean(ops.absolute(label - prediction), axis=-1)


@loss_function("mape", "MAPE")
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean error over the last axis as a percentage of the label."""
    label, prediction = paired("mean_absolute_percentage_error", y_true, y_pred)
    size = ops.maximum(ops.absolute(label), config.epsilon())
    return 100.0 * ops.mean(ops.absolute((label - prediction) / size), axis=-1)


@loss_function("msle", "MSLE")
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of (log(1 + y_true) - log(1 + y_pred))² over the last axis."""
    label, prediction = paired("mean_squared_logarithmic_error", y_true, y_pred)
    logs = [
        ops.log(ops.maximum(one, config.epsilon()) + 1.0) for one in (prediction, label)
    ]
    return ops.mean(ops.square(logs[0] - logs[1]), axis=-1)


def cosine(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return the cosine of the angle between labels and predictions."""
    label, prediction = paired("cosine_similarity", y_true, y_pred)
    return ops.sum(_unit(label, axis) * _unit(prediction, axis), axis=axis)


def _unit(x: Value, axis: int) -> Value:
    # The limit is under the root, so that a row of zeros has gradient 0 and not NaN.
    length = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(length, config.epsilon() ** 2))


@loss_function("cosine_proximity")
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return minus the cosine of the angle: -1 where the directions agree."""
    return ops.negative(cosine(y_true, y_pred, axis=axis))


@loss_function()
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """Return half the squared error up to delta, a straight line beyond."""
    label, prediction = paired("huber", y_true, y_pred)
    error = prediction - label
    size = ops.absolute(error)
    line = delta * size - 0.5 * delta * delta
    near = ops.less_equal(size, float(delta))
    return ops.mean(ops.where(near, 0.5 * ops.square(error), line), axis=-1)


@loss_function("logcosh")
def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of log(cosh(y_pred - y_true)) over the last axis."""
    label, prediction = paired("log_cosh", y_true, y_pred)
    error = prediction - label
    return ops.mean(error + ops.softplus(error * -2.0) - math.log(2.0), axis=-1)


def _signs(label: Value) -> Value:
    """Turn labels 0 and 1 into -1 and 1; leave labels that are signs alone."""
    is_bit = ops.logical_or(ops.equal(label, 0.0), ops.equal(label, 1.0))
    return ops.where(ops.all(is_bit), 2.0 * label - 1.0, label)


@loss_function()
def hinge(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of max(1 - y_true y_pred, 0) over the last axis."""
    label, prediction = paired("hinge", y_true, y_pred)
    return ops.mean(ops.maximum(1.0 - _signs(label) * prediction, 0.0), axis=-1)


@loss_function()
def squared_hinge(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of max(1 - y_true y_pred, 0)² over the last axis."""
    label, prediction = paired("squared_hinge", y_true, y_pred)
    gap = ops.maximum(1.0 - _signs(label) * prediction, 0.0)
    return ops.mean(ops.square(gap), axis=-1)


@loss_function()
def categorical_hinge(y_true: Any, y_pred: Any) -> Any:
    """Return max(largest wrong score - right score + 1, 0)."""
    label, prediction = paired("categorical_hinge", y_true, y_pred)
    right = ops.sum(label * prediction, axis=-1)
    wrong = ops.max((1.0 - label) * prediction, axis=-1)
    return ops.maximum(wrong - right + 1.0, 0.0)


@loss_function("kld", "KLD", "kullback_leibler_divergence")
def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """Return the sum of y_true log(y_true / y_pred) over the last axis."""
    label, prediction = paired("kl_divergence", y_true, y_pred)
    label = ops.clip(label, config.epsilon(), 1.0)
    prediction = ops.clip(prediction, config.epsilon(), 1.0)
    return ops.sum(label * ops.log(label / prediction), axis=-1)


@loss_function()
def poisson(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of y_pred - y_true log(y_pred) over the last axis."""
    label, prediction = paired("poisson", y_true, y_pred)
    return ops.mean(
        prediction - label * ops.log(prediction + config.epsilon()), axis=-1
    )


@loss_function()
def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Any:
    """Return 1 minus the overlap of two masks, over all elements or some axes."""
    label, prediction = paired("dice", y_true, y_pred)
    both = ops.sum(label * prediction, axis=axis)
    total = ops.sum(label, axis=axis) + ops.sum(prediction, axis=axis)
    return 1.0 - 2.0 * both / (total + config.epsilon())


@loss_function()
def tversky(
    y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None
) -> Any:
    """Return 1 minus the overlap of two masks, its two kinds of error weighted."""
    label, prediction = paired("tversky", y_true, y_pred)
    both = ops.sum(label * prediction, axis=axis)
    missed = ops.sum((1.0 - prediction) * label, axis=axis)
    invented = ops.sum(prediction * (1.0 - label), axis=axis)
    total = both + missed * alpha + invented * beta
    return 1.0 - both / (total + config.epsilon())
