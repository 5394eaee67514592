"""Losses of numbers: how far predictions are from labels.

A function returns one loss per sample; the class below it wraps the function.
"""

from __future__ import annotations

import math
from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import Value
from ganglion.losses.base import MEAN, FunctionLoss, loss_function, paired

__all__ = [
    "MAE", "MAPE", "MSE", "MSLE", "CosineSimilarity", "Huber", "LogCosh",
    "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError",
    "MeanSquaredLogarithmicError", "cosine_proximity", "cosine_similarity", "huber",
    "log_cosh", "logcosh", "mae", "mape", "mean_absolute_error",
    "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "mse", "msle",
]  # fmt: skip


@loss_function("mse", "MSE")
def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of (y_true - y_pred)² over the last axis.

    >>> float(mean_squared_error([[0.0, 2.0]], [[0.0, 0.0]])[0])
    2.0
    """
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


class MeanSquaredError(FunctionLoss, fn=mean_squared_error):
    """The mean of (y_true - y_pred)².

    >>> round(float(MeanSquaredError()([[0.0], [0.0]], [[1.0], [3.0]])), 3)
    5.0
    """


@loss_function("mae", "MAE")
def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of |y_true - y_pred| over the last axis."""
    return ops.mean(ops.absolute(y_true - y_pred), axis=-1)


class MeanAbsoluteError(FunctionLoss, fn=mean_absolute_error):
    """The mean of |y_true - y_pred|.

    >>> round(float(MeanAbsoluteError()([[0.0], [0.0]], [[1.0], [3.0]])), 3)
    2.0
    """


@loss_function("mape", "MAPE")
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean error over the last axis as a percentage of the label."""
    size = ops.maximum(ops.absolute(y_true), config.epsilon())
    return 100.0 * ops.mean(ops.absolute((y_true - y_pred) / size), axis=-1)


class MeanAbsolutePercentageError(FunctionLoss, fn=mean_absolute_percentage_error):
    """The mean error as a percentage of the label.

    >>> round(float(MeanAbsolutePercentageError()([[2.0], [4.0]], [[1.0], [3.0]])), 3)
    37.5
    """


@loss_function("msle", "MSLE")
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of (log(1 + y_true) - log(1 + y_pred))² over the last axis."""
    predicted, expected = (
        ops.log(ops.maximum(x, config.epsilon()) + 1.0) for x in (y_pred, y_true)
    )
    return ops.mean(ops.square(predicted - expected), axis=-1)


class MeanSquaredLogarithmicError(FunctionLoss, fn=mean_squared_logarithmic_error):
    """The mean squared error of log(1 + x).

    >>> round(float(MeanSquaredLogarithmicError()([[0.0], [0.0]], [[1.0], [3.0]])), 3)
    1.201
    """


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


class CosineSimilarity(FunctionLoss, fn=cosine_similarity):
    """Minus the cosine of the angle between labels and predictions.

    >>> round(float(CosineSimilarity()([[0.0, 1.0]], [[1.0, 1.0]])), 3)
    -0.707
    """

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = MEAN,
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function()
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """Return half the squared error up to delta, a straight line beyond."""
    error = y_pred - y_true
    size = ops.absolute(error)
    line = delta * size - 0.5 * delta * delta
    is_small = ops.less_equal(size, delta)
    return ops.mean(ops.where(is_small, 0.5 * ops.square(error), line), axis=-1)


class Huber(FunctionLoss, fn=huber):
    """Squared near zero, straight beyond delta.

    >>> round(float(Huber()([[0.0], [0.0]], [[0.5], [3.0]])), 3)
    1.312
    """

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = MEAN,
        name: str | None = "huber_loss",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function("logcosh")
def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of log(cosh(y_pred - y_true)) over the last axis."""
    error = y_pred - y_true
    return ops.mean(error + ops.softplus(error * -2.0) - math.log(2.0), axis=-1)


class LogCosh(FunctionLoss, fn=log_cosh):
    """The logarithm of the hyperbolic cosine of the error.

    >>> round(float(LogCosh()([[0.0], [0.0]], [[0.5], [3.0]])), 3)
    1.215
    """


mse = MSE = mean_squared_error
mae = MAE = mean_absolute_error
mape = MAPE = mean_absolute_percentage_error
msle = MSLE = mean_squared_logarithmic_error
logcosh = log_cosh
cosine_proximity = cosine_similarity
