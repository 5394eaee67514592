"""Neural network functions: activations, convolution, pooling, cross-entropies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config
from ganglion.ir import arrays
from ganglion.ir import pointwise as p
from ganglion.ir import shaping as s
from ganglion.ir.graph import Node, ShapeError, Value
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    floating,
    one_axis,
    op,
    promoted,
)
from ganglion.ops.linalg import norm
from ganglion.ops.numpy import (
    clip,
    divide,
    log,
    maximum,
    mean,
    multiply,
    square,
    subtract,
)
from ganglion.ops.shapes import expand_dims, one_hot, squeeze
from ganglion.variables import read


@op
def relu(x: Any) -> Any:
    """Return x where it is positive, else 0."""
    return maximum(floating(x), 0.0)


@op
def relu6(x: Any) -> Any:
    """Return x limited to 0 ... 6."""
    return clip(floating(x), 0.0, 6.0)


@op
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """Return x where it is positive, else a fraction of it."""
    value = floating(x)
    return p.where(value > 0.0, value, multiply(value, float(negative_slope)))


@op
def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return x where it is positive, else alpha (exp(x) - 1)."""
    value = floating(x)
    below = p.expm1(p.minimum(value, s.fill(0, value)))
    return p.where(value > 0.0, value, multiply(below, float(alpha)))


@op
def selu(x: Any) -> Any:
    """Scaled ELU, whose outputs keep mean 0 and variance 1."""
    return multiply(elu(x, 1.6732632423543772), 1.0507009873554805)


@op
def gelu(x: Any, approximate: bool = True) -> Any:
    """Return x Φ(x), by tanh when approximate, else by the error function."""
    value = floating(x)
    if approximate:
        inner = value + multiply(0.044715, value * value * value)
        return 0.5 * value * (1.0 + p.tanh(multiply(math.sqrt(2 / math.pi), inner)))
    return 0.5 * value * (1.0 + p.erf(divide(value, math.sqrt(2))))


@op
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return p.sigmoid(floating(x))


@op
def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x)) without overflow."""
    return p.negative(softplus(p.negative(floating(x))))


@op
def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6."""
    return divide(relu6(floating(x) + 3.0), 6.0)


@op
def silu(x: Any) -> Any:
    """Return x sigmoid(x), also called swish."""
    value = floating(x)
    return p.multiply(value, p.sigmoid(value))


swish = silu


@op
def hard_silu(x: Any) -> Any:
    """Return x hard_sigmoid(x)."""
    return multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


@op
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow."""
    value = floating(x)
    tail = p.log1p(p.exp(p.negative(p.absolute(value))))
    return p.add(p.maximum(value, s.fill(0, value)), tail)


@op
def softsign(x: Any) -> Any:
    """Return x / (1 + |x|)."""
    value = floating(x)
    return divide(value, p.absolute(value) + 1.0)


@op
def mish(x: Any) -> Any:
    """Return x tanh(softplus(x))."""
    return multiply(x, p.tanh(softplus(x)))


def _shifted(value: Value, axes: tuple[int, ...]) -> Value:
    top = p.stop_gradient(arrays.max_(value, axes=axes))
    return p.subtract(value, s.keep_axes(top, axes, value.shape))


@op
def softmax(x: Any, axis: Any = -1) -> Any:
    """Return exp(x) over its sum along an axis."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    powers = p.exp(_shifted(value, axes))
    total = s.sum_(powers, axes=axes)
    return p.divide(powers, s.keep_axes(total, axes, value.shape))


@op
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Return log(softmax(x)) without overflow."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    shifted = _shifted(value, axes)
    total = p.log(s.sum_(p.exp(shifted), axes=axes))
    return p.subtract(shifted, s.keep_axes(total, axes, value.shape))


def softmax_logits(value: Value) -> Value | None:
    """Return the logits behind a value that `softmax` made over its last axis."""
    if not (isinstance(value, Node) and value.op is p.divide):
        return None
    powers, total = value.inputs
    if not (isinstance(powers, Node) and powers.op is p.exp):
        return None
    while isinstance(total, Node) and total.op in (s.broadcast, s.reshape):
        total = total.inputs[0]
    last = {"axes": (value.ndim - 1,)}
    is_sum = isinstance(total, Node) and total.op is s.sum_ and total.attrs == last
    if not is_sum or total.inputs[0] is not powers:  # type: ignore[attr-defined]
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
    fuzz = config.epsilon()
    return log(clip(p.divide(output, total), fuzz, 1.0 - fuzz))


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
    hot = one_hot(labels, output.shape[axis], axis=axis, dtype=output.dtype)
    chosen = p.multiply(hot, _log_prob(output, from_logits, axis))
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
        return relu(logits) - logits * target + p.log1p(p.exp(-abs(logits)))
    fuzz = config.epsilon()
    prob = clip(output, fuzz, 1.0 - fuzz)
    return p.negative(target * log(prob) + (1.0 - target) * log(1.0 - prob))


@op
def moments(
    x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False
) -> Any:
    """Return mean and variance (divided by n) over axes."""
    value = floating(x)
    centre = mean(value, axis=axes, keepdims=True)
    spread_ = mean(square(subtract(value, centre)), axis=axes, keepdims=keepdims)
    return (centre if keepdims else squeeze(centre, axis=axes)), spread_


@op
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    axis: int,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> Any:
    """Normalise with given mean and variance along an axis."""
    value = floating(x)
    shape = [1] * value.ndim
    shape[one_axis(axis, value.ndim)] = -1
    gain = divide(1.0, p.sqrt(floating(variance) + float(epsilon)))
    if scale is not None:
        gain = multiply(gain, scale)
    shift = -multiply(mean, gain)
    if offset is not None:
        shift = shift + offset
    sizes = tuple(value.shape[i] if n == -1 else 1 for i, n in enumerate(shape))
    return value * s.reshape(gain, shape=sizes) + s.reshape(shift, shape=sizes)


@op
def normalize(x: Any, axis: Any = -1, order: float = 2, epsilon: Any = None) -> Any:
    """Scale to length one along an axis."""
    length = norm(x, ord=order, axis=axis, keepdims=True)
    return divide(x, maximum(length, epsilon or config.epsilon()))


@op
def multi_hot(inputs: Any, num_classes: int, axis: int = -1, dtype: Any = None) -> Any:
    """Mark with a one every class that appears in a row."""
    rows = one_hot(inputs, num_classes, dtype=dtype)
    return arrays.max_(read(rows), axes=(read(rows).ndim - 2,))


@op
def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """Tell whether the target is among the k largest predictions of its row."""
    scores = floating(predictions)
    chosen = one_hot(targets, scores.shape[-1], dtype=scores.dtype)
    own = s.sum_(p.multiply(chosen, scores), axes=(scores.ndim - 1,))
    above = astype(expand_dims(own, -1) < scores, "int32")
    return s.sum_(above, axes=(scores.ndim - 1,)) < k
