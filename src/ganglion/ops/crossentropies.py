"""Cross entropies, of probabilities or of logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.ops.activation import log_softmax, softplus_parts
from ganglion.ops.creation import one_hot
from ganglion.ops.dispatch import astype, floating, one_axis, op, promoted
from ganglion.ops.index_limits import require_range
from ganglion.ops.numpy import clip, log
from ganglion.ops.shapes import squeeze
from ganglion.variables import read

__all__ = [
    "binary_crossentropy", "categorical_crossentropy",
    "sparse_categorical_crossentropy",
]  # fmt: skip


def softmax_logits(value: Value) -> Value | None:
    """Return the logits of a value that `softmax` computed over its last axis."""
    if not (isinstance(value, Node) and value.op is p.divide):
        return None
    powers, total = value.inputs
    if not (isinstance(powers, Node) and powers.op is p.exp):
        return None
    while isinstance(total, Node) and total.op in (s.broadcast, s.reshape):
        total = total.inputs[0]
    last = {"axes": (value.ndim - 1,)}
    is_sum = isinstance(total, Node) and total.op is s.sum_ and total.attrs == last
    if not is_sum or total.inputs[0] is not powers:
        return None
    shifted = powers.inputs[0]
    if isinstance(shifted, Node) and shifted.op is p.subtract:
        return shifted.inputs[0]
    return None


@op
def categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """Return -sum(target log(output)) along an axis.

    Probabilities that come straight from a softmax are taken back to their logits,
    so that a very wrong prediction keeps its gradient.
    """
    output = floating(output)
    target = astype(target, output.dtype)
    if target.shape != output.shape:
        raise ShapeError(
            f"categorical_crossentropy: labels {target.shape} and predictions "
            f"{output.shape} differ in shape; for class numbers use "
            "sparse_categorical_crossentropy"
        )
    axis = one_axis(axis, output.ndim)
    return p.negative(
        s.sum_(p.multiply(target, _log_prob(output, from_logits, axis)), axes=(axis,))
    )


def _log_prob(output: Value, from_logits: bool, axis: int) -> Value:
    logits = output if from_logits else softmax_logits(output)
    if logits is not None and (from_logits or axis == output.ndim - 1):
        return log_softmax(logits, axis=axis)
    total = s.keep_axes(s.sum_(output, axes=(axis,)), (axis,), output.shape)
    return log(_clear_of_limits(p.divide(output, total)))


def _clear_of_limits(prob: Value) -> Value:
    fuzz = config.epsilon()
    return clip(prob, fuzz, 1.0 - fuzz)


def _sparse_log_prob(output: Value, from_logits: bool, axis: int) -> Value:
    """Return log-probabilities that are limited first and then made to add up to one.

    That is the order of TensorFlow: where the right class has no probability at all,
    the others still have slopes.
    """
    if from_logits or softmax_logits(output) is not None:
        return _log_prob(output, from_logits, axis)
    prob = _clear_of_limits(output)
    total = s.keep_axes(s.sum_(prob, axes=(axis,)), (axis,), prob.shape)
    return log(p.divide(prob, total))


@op
def sparse_categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """Return -log(output[target]) for class numbers along an axis."""
    output, labels = floating(output), read(target)
    axis = one_axis(axis, output.ndim)
    if labels.ndim == output.ndim and labels.shape[-1] == 1:
        labels = squeeze(labels, axis=-1)
    expected = output.shape[:axis] + output.shape[axis + 1 :]
    if labels.shape != expected:
        raise ShapeError(
            f"sparse_categorical_crossentropy: labels {labels.shape} do not fit "
            f"predictions {output.shape}; expected {expected} class numbers (for "
            "one-hot rows use categorical_crossentropy)"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        labels = astype(labels, "int32")
    require_range(labels, 0, output.shape[axis], are_labels=True)
    hot = one_hot(labels, output.shape[axis], axis=axis, dtype=output.dtype)
    chosen = p.multiply(hot, _sparse_log_prob(output, from_logits, axis))
    return p.negative(s.sum_(chosen, axes=(axis,)))


@op
def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """Return the cross-entropy of independent yes/no predictions, element by element.

    Probabilities that come straight from a sigmoid are taken back to their logits.
    """
    output = floating(output)
    target, output = promoted(astype(target, output.dtype), output)
    is_sigmoid = isinstance(output, Node) and output.op is p.sigmoid
    if from_logits or is_sigmoid:
        logits = output if from_logits else output.inputs[0]
        lines, above = softplus_parts(logits)
        return lines - logits * target + above
    prob = _clear_of_limits(output)
    return p.negative(target * log(prob) + (1.0 - target) * log(1.0 - prob))
