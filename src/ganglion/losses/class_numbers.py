"""Losses of class numbers: Circle, generalized cross-entropy, and CTC of sequences.

Circle loss is for embeddings (https://arxiv.org/abs/2002.10857); the generalized
cross-entropy bears wrong labels (https://arxiv.org/abs/1805.07836).
"""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.losses.base import MEAN, FunctionLoss, loss_function
from ganglion.ops.dispatch import floating
from ganglion.variables import read

__all__ = [
    "CTC", "CategoricalGeneralizedCrossEntropy", "Circle",
    "categorical_generalized_cross_entropy", "circle", "ctc",
]  # fmt: skip


@loss_function(pairs=False)
def circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Any:
    """Return how far each embedding is from its class, compared with other classes.

    The embeddings must have length one; they are compared with the references, or with
    each other.
    """
    embeddings = floating(y_pred)
    references = embeddings if ref_embeddings is None else floating(ref_embeddings)
    labels = ops.cast(read(y_true), "int32")
    known = labels if ref_labels is None else ops.cast(read(ref_labels), "int32")
    distances = 1 - ops.matmul(embeddings, ops.transpose(references))
    distances = ops.maximum(distances, 0.0)
    is_same = ops.equal(ops.reshape(labels, (-1, 1)), ops.reshape(known, (1, -1)))
    is_other = ops.logical_not(is_same)
    if remove_diagonal:
        off_diagonal = ops.equal(ops.eye(*is_same.shape), 0.0)
        is_same = ops.logical_and(is_same, off_diagonal)
    near = -gamma * ops.maximum(margin + distances, 0.0) * (margin - distances)
    far = gamma * ops.maximum(1 + margin - distances, 0.0) * (1 - margin - distances)
    # A row without a partner of its class, or of another, has no loss.
    has_both = ops.logical_and(ops.any(is_same, axis=1), ops.any(is_other, axis=1))
    total = _logsumexp(near, is_same) + _logsumexp(far, is_other)
    return ops.where(has_both, ops.softplus(total), 0.0)


def _logsumexp(values: Any, mask: Any) -> Any:
    """Return the logarithm of the sum of exp(values) where the mask holds."""
    lowest = ops.where(mask, values, ops.min(values, axis=1, keepdims=True))
    largest = ops.stop_gradient(ops.max(lowest, axis=1, keepdims=True))
    each = ops.where(mask, ops.exp(ops.where(mask, values - largest, 0.0)), 0.0)
    total = ops.sum(each, axis=1)
    empty = ops.equal(total, 0.0)
    return ops.log(ops.where(empty, 1.0, total)) + ops.squeeze(largest, 1)


class Circle(FunctionLoss, fn=circle):
    """Embeddings of length one: near to their own class, far from all others.

    >>> import numpy as np
    >>> vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
    >>> round(float(Circle()(np.array([0, 0, 1, 1]), vectors)), 3)
    28.865
    """

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = MEAN,
        name: str | None = "circle",
        dtype: Any = None,
    ) -> None:
        self._set(locals())

    def _mask(self, y_true: Any, y_pred: Any) -> Any:
        # The mean is over the rows that cost something.
        return ops.greater(self.call(y_true, y_pred), 0.0)


@loss_function(pairs=False)
def categorical_generalized_cross_entropy(y_true: Any, y_pred: Any, q: float) -> Any:
    """Return (1 - p**q) / q, where p is the probability of the true class.

    >>> float(categorical_generalized_cross_entropy([1], [[0.75, 0.25]], q=0.5)[0])
    1.0
    """
    prediction = floating(y_pred)
    label = ops.cast(read(y_true), "int32")
    if label.ndim == prediction.ndim and label.shape[-1] == 1:
        label = ops.squeeze(label, -1)
    hot = ops.one_hot(label, prediction.shape[-1], dtype=prediction.dtype)
    return (1 - ops.power(ops.sum(prediction * hot, axis=-1), q)) / q


categorical_generalized_cross_entropy.takes_class_numbers = True


class CategoricalGeneralizedCrossEntropy(
    FunctionLoss, fn=categorical_generalized_cross_entropy
):
    """A cross-entropy that wrong labels disturb less, the less the larger `q` is.

    >>> round(float(CategoricalGeneralizedCrossEntropy()([1], [[0.2, 0.8]])), 3)
    0.211
    """

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = MEAN,
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: Any = None,
    ) -> None:
        if not 0 < q < 1:
            raise ValueError(f"`q` must lie between 0 and 1, got {q!r}.")
        self._set(locals())


@loss_function(pairs=False)
def ctc(y_true: Any, y_pred: Any) -> Any:
    """Return how unlikely each label is, whenever its classes come: see `ops.ctc_loss`.

    Class 0 is the blank, with which labels are filled up.
    """
    label, scores = read(y_true), floating(y_pred)
    if label.ndim != 2:
        raise ValueError(
            "Targets `y_true` of CTC are class numbers of shape (batch_size, "
            f"max_length), got shape {label.shape}."
        )
    if scores.ndim != 3:
        raise ValueError(
            "Logits `y_pred` of CTC have the shape (batch_size, max_length, "
            f"num_classes), got shape {scores.shape}."
        )
    batch, steps, _ = scores.shape
    lengths = ops.sum(ops.cast(ops.not_equal(label, 0), "int32"), axis=-1)
    return ops.ctc_loss(label, scores, lengths, ops.full((batch,), steps, "int32"))


ctc.takes_class_numbers = True


class CTC(FunctionLoss, fn=ctc):
    """Connectionist temporal classification: labels have an order, but no times.

    >>> import numpy as np
    >>> labels, scores = np.array([[1, 2]]), np.zeros((1, 4, 3), "float32")
    >>> round(float(CTC()(labels, scores)), 3)
    1.686
    """

    def __init__(
        self,
        reduction: str | None = MEAN,
        name: str | None = "ctc",
        dtype: Any = None,
    ) -> None:
        self._set(locals())
