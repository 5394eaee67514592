"""Losses of classes: cross-entropies, divergences, margins and overlaps.

A function returns one loss per sample; the class below it wraps the function. Label
smoothing touches the labels only: the predictions reach the ops as they are, and the
cross-entropies take what a softmax or sigmoid returned back to its logits.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import MEAN, FunctionLoss, ignored_mask, loss_function
from ganglion.ops.dispatch import floating
from ganglion.variables import read

__all__ = [
    "BCE", "KLD", "BinaryCrossentropy", "BinaryFocalCrossentropy",
    "CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalHinge",
    "Dice", "Hinge", "KLDivergence", "Poisson", "SparseCategoricalCrossentropy",
    "SquaredHinge", "Tversky", "bce", "binary_crossentropy",
    "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "dice", "hinge",
    "kl_divergence", "kld", "kullback_leibler_divergence", "poisson",
    "sparse_categorical_crossentropy", "squared_hinge", "tversky",
]  # fmt: skip


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


bce = BCE = binary_crossentropy
kld = KLD = kullback_leibler_divergence = kl_divergence
