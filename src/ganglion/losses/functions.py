"""The losses: each a function of labels and predictions, and a class that wraps it.

A function returns one loss per sample. Label smoothing touches the labels only: the
predictions reach the ops as they are, and the cross-entropies take what a softmax or
sigmoid returned back to its logits.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import MEAN, FunctionLoss, ignored_mask, same_rank
from ganglion.ops import op
from ganglion.ops.dispatch import astype, floating
from ganglion.serialization import export
from ganglion.variables import read

__all__ = [
    "BCE", "KLD", "MAE", "MAPE", "MSE", "MSLE", "BinaryCrossentropy",
    "BinaryFocalCrossentropy", "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy", "CategoricalHinge", "CosineSimilarity", "Dice",
    "Hinge", "Huber", "KLDivergence", "LogCosh", "MeanAbsoluteError",
    "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
    "Poisson", "SparseCategoricalCrossentropy", "SquaredHinge", "Tversky", "bce",
    "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "cosine_proximity",
    "cosine_similarity", "dice", "hinge", "huber", "kl_divergence", "kld",
    "kullback_leibler_divergence", "log_cosh", "logcosh", "mae", "mape",
    "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "mse", "msle", "poisson",
    "sparse_categorical_crossentropy", "squared_hinge", "tversky",
]  # fmt: skip


def loss_function(*aliases: str, pairs: bool = True) -> Callable[[Any], Any]:
    """Register a loss function that works on arrays, Keras tensors and in a trace.

    It gets labels and predictions as pairs: of one float type and one shape.
    """

    def register(function: Any) -> Any:
        @functools.wraps(function)
        def compared(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
            label, prediction = paired(function.__name__, y_true, y_pred)
            return function(label, prediction, *args, **kwargs)

        loss: Any = op(compared if pairs else function)
        loss.aliases = aliases  # the metric's are the same
        return export("keras.losses", *aliases)(loss)

    return register


def paired(name: str, y_true: Any, y_pred: Any) -> tuple[Value, Value]:
    """Return labels and predictions of one float type and shape, or refuse them."""
    prediction = floating(y_pred)
    label, prediction = same_rank(astype(y_true, prediction.dtype), prediction)
    if not label.shape:  # one number for all, as a target of a regularizer
        label = ops.broadcast_to(label, prediction.shape)
    if label.shape != prediction.shape:
        raise ShapeError(
            f"{name}: labels and predictions must have the same shape, got "
            f"{label.shape} and {prediction.shape}. {_way_out(label, prediction)}"
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


def _signs(label: Value) -> Value:
    """Turn labels 0 and 1 into -1 and 1; leave labels that are signs alone."""
    is_bit = ops.logical_or(ops.equal(label, 0.0), ops.equal(label, 1.0))
    return ops.where(ops.all(is_bit), 2.0 * label - 1.0, label)


@loss_function()
def hinge(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of max(1 - y_true y_pred, 0) over the last axis."""
    return ops.mean(ops.maximum(1.0 - _signs(y_true) * y_pred, 0.0), axis=-1)


class Hinge(FunctionLoss, fn=hinge):
    """max(1 - y_true y_pred, 0) for labels -1 and 1 (or 0 and 1).

    >>> round(float(Hinge()([[1.0], [-1.0]], [[0.3], [-2.0]])), 3)
    0.35
    """


@loss_function()
def squared_hinge(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of max(1 - y_true y_pred, 0)² over the last axis."""
    gap = ops.maximum(1.0 - _signs(y_true) * y_pred, 0.0)
    return ops.mean(ops.square(gap), axis=-1)


class SquaredHinge(FunctionLoss, fn=squared_hinge):
    """The square of the hinge loss.

    >>> round(float(SquaredHinge()([[1.0], [-1.0]], [[0.3], [-2.0]])), 3)
    0.245
    """


@loss_function()
def categorical_hinge(y_true: Any, y_pred: Any) -> Any:
    """Return max(largest wrong score - right score + 1, 0)."""
    right = ops.sum(y_true * y_pred, axis=-1)
    wrong = ops.max((1.0 - y_true) * y_pred, axis=-1)
    return ops.maximum(wrong - right + 1.0, 0.0)


class CategoricalHinge(FunctionLoss, fn=categorical_hinge):
    """The hinge loss between the right class and the best wrong one.

    >>> round(float(CategoricalHinge()([[0.0, 1.0]], [[0.2, 0.8]])), 3)
    0.4
    """


@loss_function("kld", "KLD", "kullback_leibler_divergence")
def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """Return the sum of y_true log(y_true / y_pred) over the last axis."""
    y_true = ops.clip(y_true, config.epsilon(), 1.0)
    y_pred = ops.clip(y_pred, config.epsilon(), 1.0)
    return ops.sum(y_true * ops.log(y_true / y_pred), axis=-1)


class KLDivergence(FunctionLoss, fn=kl_divergence):
    """How far the predicted distribution is from the label's.

    >>> round(float(KLDivergence()([[0.5, 0.5]], [[0.9, 0.1]])), 3)
    0.511
    """


@loss_function()
def poisson(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of y_pred - y_true log(y_pred) over the last axis."""
    return ops.mean(y_pred - y_true * ops.log(y_pred + config.epsilon()), axis=-1)


class Poisson(FunctionLoss, fn=poisson):
    """y_pred - y_true log(y_pred), for counts.

    >>> round(float(Poisson()([[1.0], [2.0]], [[1.0], [3.0]])), 3)
    0.901
    """


@loss_function()
def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Any:
    """Return 1 minus the overlap of two masks, over all elements or some axes."""
    both = ops.sum(y_true * y_pred, axis=axis)
    total = ops.sum(y_true, axis=axis) + ops.sum(y_pred, axis=axis)
    return 1.0 - 2.0 * both / (total + config.epsilon())


class Dice(FunctionLoss, fn=dice):
    """1 minus the overlap of two masks.

    >>> round(float(Dice()([1.0, 1.0, 0.0], [0.8, 0.9, 0.2])), 3)
    0.128
    """

    def __init__(
        self,
        reduction: str | None = MEAN,
        name: str | None = "dice",
        axis: Any = None,
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function()
def tversky(
    y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None
) -> Any:
    """Return 1 minus the overlap of two masks, its two kinds of error weighted."""
    both = ops.sum(y_true * y_pred, axis=axis)
    missed = ops.sum((1.0 - y_pred) * y_true, axis=axis)
    invented = ops.sum(y_pred * (1.0 - y_true), axis=axis)
    total = both + missed * alpha + invented * beta
    return 1.0 - both / (total + config.epsilon())


class Tversky(FunctionLoss, fn=tversky):
    """1 minus the overlap of two masks, its two kinds of error weighted.

    >>> round(float(Tversky(beta=0.7)([1.0, 1.0, 0.0], [0.8, 0.9, 0.2])), 3)
    0.146
    """

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = MEAN,
        name: str | None = "tversky",
        axis: Any = None,
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function("bce", "BCE")
def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Return the mean cross-entropy of yes/no predictions over an axis.

    >>> float(binary_crossentropy([[1.0]], [[0.5]])[0])  # log(2)
    0.6931471824645996
    """
    y_true = _smooth_bits(y_true, label_smoothing)
    each = ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits)
    return ops.mean(each, axis=axis)


class BinaryCrossentropy(FunctionLoss, fn=binary_crossentropy):
    """The cross-entropy of yes/no predictions.

    >>> loss = BinaryCrossentropy(from_logits=True)
    >>> round(float(loss([[1.0], [0.0]], [[100.0], [100.0]])), 3)
    50.0
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = MEAN,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


def _smooth_bits(label: Value, smoothing: float) -> Value:
    return label * (1.0 - smoothing) + 0.5 * smoothing if smoothing else label


@loss_function()
def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Return the binary cross-entropy, with less weight on what is well predicted."""
    y_true = _smooth_bits(y_true, label_smoothing)
    prob = ops.sigmoid(y_pred) if from_logits else y_pred
    each = ops.binary_crossentropy(y_true, prob)
    right = y_true * prob + (1.0 - y_true) * (1.0 - prob)
    each = ops.power(1.0 - right, gamma) * each
    if apply_class_balancing:
        each = (y_true * alpha + (1.0 - y_true) * (1.0 - alpha)) * each
    return ops.mean(each, axis=axis)


class BinaryFocalCrossentropy(FunctionLoss, fn=binary_focal_crossentropy):
    """The binary cross-entropy, with less weight on what is well predicted.

    >>> round(float(BinaryFocalCrossentropy()([[1.0], [0.0]], [[0.9], [0.4]])), 3)
    0.041
    """

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = MEAN,
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function()
def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Return the cross-entropy of one-hot labels (or other distributions)."""
    y_true = _smooth_rows("categorical_crossentropy", y_true, label_smoothing, axis)
    return ops.categorical_crossentropy(y_true, y_pred, from_logits, axis)


class CategoricalCrossentropy(FunctionLoss, fn=categorical_crossentropy):
    """The cross-entropy of one-hot labels (or other distributions).

    >>> round(float(CategoricalCrossentropy()([[0.0, 1.0]], [[0.2, 0.8]])), 3)
    0.223
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = MEAN,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


def _smooth_rows(name: str, label: Value, smoothing: float, axis: int) -> Value:
    _check_axis(axis)
    if label.shape[-1] == 1:
        warnings.warn(
            f"{name} over a single class (predictions of shape {label.shape}) is "
            "always 0: use binary_crossentropy for two classes.",
            SyntaxWarning,
            stacklevel=5,
        )
    return (
        label * (1.0 - smoothing) + smoothing / label.shape[-1] if smoothing else label
    )


def _check_axis(axis: Any) -> None:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ValueError(f"`axis` must be an integer, not {axis!r}.")


@loss_function()
def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Return the cross-entropy, with less weight on what is well predicted."""
    name = "categorical_focal_crossentropy"
    y_true = _smooth_rows(name, y_true, label_smoothing, axis)
    prob = ops.softmax(y_pred, axis=axis) if from_logits else y_pred
    prob = prob / ops.sum(prob, axis=axis, keepdims=True)
    prob = ops.clip(prob, config.epsilon(), 1.0 - config.epsilon())
    weight = ops.power(1.0 - prob, gamma) * alpha
    return ops.sum(weight * (-y_true * ops.log(prob)), axis=axis)


class CategoricalFocalCrossentropy(FunctionLoss, fn=categorical_focal_crossentropy):
    """The cross-entropy, with less weight on what is well predicted.

    >>> round(float(CategoricalFocalCrossentropy()([[0.0, 1.0]], [[0.2, 0.8]])), 3)
    0.002
    """

    def __init__(
        self,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = MEAN,
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


@loss_function(pairs=False)
def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Any:
    """Return the cross-entropy of class numbers; an ignored class costs nothing.

    >>> float(sparse_categorical_crossentropy([1], [[0.5, 0.5]])[0])  # log(2)
    0.6931471824645996
    """
    _check_axis(axis)
    label, prediction = read(y_true), floating(y_pred)
    if label.ndim == prediction.ndim and label.shape[axis] == 1:
        label = ops.squeeze(label, axis)
    if label.ndim == prediction.ndim:
        raise ShapeError(
            f"sparse_categorical_crossentropy: labels of shape {label.shape} are not "
            f"class numbers for predictions of shape {prediction.shape}. For one-hot "
            "rows use categorical_crossentropy; else give labels without the last axis."
        )
    label = ops.cast(label, "int32")
    if ignore_class is None:
        return ops.sparse_categorical_crossentropy(label, prediction, from_logits, axis)
    valid = ignored_mask(label, prediction, ignore_class, axis)
    label = ops.where(valid, label, 0)
    each = ops.sparse_categorical_crossentropy(label, prediction, from_logits, axis)
    return ops.where(valid, each, 0.0)


class SparseCategoricalCrossentropy(FunctionLoss, fn=sparse_categorical_crossentropy):
    """The cross-entropy of class numbers; the class to ignore costs nothing.

    >>> round(float(SparseCategoricalCrossentropy()([1], [[0.2, 0.8]])), 3)
    0.223
    """

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = MEAN,
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


# Labels reach this function as they are: an integer needs no trip through floats.
sparse_categorical_crossentropy.takes_class_numbers = True

mse = MSE = mean_squared_error
mae = MAE = mean_absolute_error
mape = MAPE = mean_absolute_percentage_error
msle = MSLE = mean_squared_logarithmic_error
bce = BCE = binary_crossentropy
kld = KLD = kullback_leibler_divergence = kl_divergence
logcosh = log_cosh
cosine_proximity = cosine_similarity
