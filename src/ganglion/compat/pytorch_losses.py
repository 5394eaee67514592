"""PyTorch's losses, `torch.nn.functional`, on Ganglion's ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops

# ruff: noqa: A002 (PyTorch's names of arguments)


def _reduced(losses: Any, reduction: str, rest: dict[str, Any]) -> Any:
    passed = [name for name, value in rest.items() if value is not None]
    if passed:
        raise TypeError(f"`{passed[0]}` is not supported")
    reductions = {"mean": ops.mean, "sum": ops.sum, "none": lambda x: x}
    return reductions[reduction](losses)


def _mse_loss(input: Any, target: Any, reduction: str = "mean", **rest: Any) -> Any:
    return _reduced(ops.square(input - target), reduction, rest)


def _l1_loss(input: Any, target: Any, reduction: str = "mean", **rest: Any) -> Any:
    return _reduced(ops.abs(input - target), reduction, rest)


def _huber_loss(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, **rest: Any
) -> Any:
    far = ops.abs(input - target)
    losses = ops.where(far < delta, 0.5 * far * far, delta * (far - 0.5 * delta))
    return _reduced(losses, reduction, rest)


def _smooth_l1_loss(
    input: Any, target: Any, reduction: str = "mean", beta: float = 1.0, **rest: Any
) -> Any:
    if beta == 0:
        return _l1_loss(input, target, reduction, **rest)
    return _huber_loss(input, target, reduction, beta, **rest) / beta


def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    **rest: Any,
) -> Any:
    logs = ops.log_softmax(input, axis=1)
    if np.dtype(target.dtype).kind != "f":
        return _nll_loss(
            logs, target, weight, reduction, ignore_index, label_smoothing, **rest
        )
    if weight is not None:
        rest["weight"] = weight
    losses = -ops.sum(target * logs, axis=1)
    uniform = -ops.mean(logs, axis=1)
    smooth = (1 - label_smoothing) * losses + label_smoothing * uniform
    return _reduced(smooth, reduction, rest)


def _nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    **rest: Any,
) -> Any:
    classes = input.shape[1]
    shape = tuple(ops.shape(ops.convert_to_tensor(target)))
    logs = ops.reshape(ops.moveaxis(input, 1, -1), (-1, classes))
    flat = ops.reshape(ops.convert_to_tensor(target), (-1,))
    losses, counts = _of_classes(logs, flat, ignore_index, weight)
    if label_smoothing:
        if weight is not None:
            raise TypeError("`weight` is not supported with `label_smoothing`")
        uniform = -ops.mean(logs, axis=1) * counts
        losses = (1 - label_smoothing) * losses + label_smoothing * uniform
    if reduction == "mean":
        return _reduced(losses, "sum", rest) / ops.sum(counts)
    return _reduced(ops.reshape(losses, shape), reduction, rest)


def _of_classes(
    logs: Any, target: Any, ignore_index: int, weight: Any
) -> tuple[Any, Any]:
    """Return the loss of each row, and how much the row counts."""
    numbers = ops.cast(target, "int32")
    is_there = ops.not_equal(numbers, ignore_index)
    numbers = ops.where(is_there, numbers, 0)
    counts = ops.cast(is_there, logs.dtype)
    if weight is not None:
        counts = counts * ops.take(weight, numbers)
    found = ops.take_along_axis(logs, ops.expand_dims(numbers, 1), axis=1)
    return -ops.squeeze(found, axis=1) * counts, counts


def _binary_cross_entropy(
    input: Any, target: Any, reduction: str = "mean", weight: Any = None, **rest: Any
) -> Any:
    # PyTorch limits the logarithms, not the probabilities.
    small = math.exp(-100)
    yes, no = (ops.log(ops.maximum(x, small)) for x in (input, 1 - input))
    losses = -(target * yes + (1 - target) * no)
    return _reduced(losses if weight is None else losses * weight, reduction, rest)


def _binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    reduction: str = "mean",
    weight: Any = None,
    pos_weight: Any = None,
    **rest: Any,
) -> Any:
    share = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    losses = (1 - target) * input + share * ops.softplus(-input)
    return _reduced(losses if weight is None else losses * weight, reduction, rest)


def _kl_div(
    input: Any,
    target: Any,
    reduction: str = "mean",
    log_target: bool = False,
    **rest: Any,
) -> Any:
    if log_target:
        losses = ops.exp(target) * (target - input)
    else:
        is_there = ops.greater(target, 0)
        logs = ops.log(ops.where(is_there, target, ops.ones_like(target)))
        losses = ops.where(is_there, target * (logs - input), 0.0)
    if reduction == "batchmean":
        return _reduced(losses, "sum", rest) / input.shape[0]
    return _reduced(losses, reduction, rest)


LOSSES: dict[str, Callable[..., Any]] = {
    "mse_loss": _mse_loss,
    "l1_loss": _l1_loss,
    "huber_loss": _huber_loss,
    "smooth_l1_loss": _smooth_l1_loss,
    "cross_entropy": _cross_entropy,
    "nll_loss": _nll_loss,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "kl_div": _kl_div,
}
