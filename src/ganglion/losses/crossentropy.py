"""Cross-entropies as functions.

Label smoothing touches the labels only: the predictions reach the ops as they are, and
these take what a softmax or sigmoid made back to its logits.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import ignored_mask
from ganglion.losses.functions import loss_function, paired
from ganglion.ops.dispatch import floating
from ganglion.variables import read


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
    label, prediction = paired("binary_crossentropy", y_true, y_pred)
    label = _smooth_bits(label, label_smoothing)
    each = ops.binary_crossentropy(label, prediction, from_logits=from_logits)
    return ops.mean(each, axis=axis)


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
    label, prediction = paired("binary_focal_crossentropy", y_true, y_pred)
    label = _smooth_bits(label, label_smoothing)
    prob = ops.sigmoid(prediction) if from_logits else prediction
    each = ops.binary_crossentropy(label, prob)
    right = label * prob + (1.0 - label) * (1.0 - prob)
    each = ops.power(1.0 - right, gamma) * each
    if apply_class_balancing:
        each = (label * alpha + (1.0 - label) * (1.0 - alpha)) * each
    return ops.mean(each, axis=axis)


@loss_function()
def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """Return the cross-entropy of one-hot labels (or other distributions)."""
    label, prediction = _distributions(
        "categorical_crossentropy", y_true, y_pred, label_smoothing, axis
    )
    return ops.categorical_crossentropy(label, prediction, from_logits, axis)


def _distributions(
    name: str, y_true: Any, y_pred: Any, smoothing: float, axis: int
) -> tuple[Value, Value]:
    _check_axis(axis)
    label, prediction = paired(name, y_true, y_pred)
    if prediction.shape[-1] == 1:
        warnings.warn(
            f"{name} over a single class (predictions of shape {prediction.shape}) is "
            "always 0: use binary_crossentropy for two classes.",
            SyntaxWarning,
            stacklevel=4,
        )
    if smoothing:
        label = label * (1.0 - smoothing) + smoothing / label.shape[-1]
    return label, prediction


def _check_axis(axis: Any) -> None:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ValueError(f"`axis` must be a whole number, not {axis!r}.")


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
    label, prediction = _distributions(
        "categorical_focal_crossentropy", y_true, y_pred, label_smoothing, axis
    )
    prob = ops.softmax(prediction, axis=axis) if from_logits else prediction
    prob = prob / ops.sum(prob, axis=axis, keepdims=True)
    prob = ops.clip(prob, config.epsilon(), 1.0 - config.epsilon())
    weight = ops.power(1.0 - prob, gamma) * alpha
    return ops.sum(weight * (-label * ops.log(prob)), axis=axis)


@loss_function()
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


# Labels reach this function as they are: a whole number needs no trip through floats.
sparse_categorical_crossentropy.takes_class_numbers = True
