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
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    **rest: Any,
) -> Any:
    if len(input.shape) != 2:
        raise TypeError("only of rows of logits")
    logs = ops.log_softmax(input, axis=1)
    uniform = -ops.mean(logs, axis=1)
    if np.dtype(target.dtype).kind == "f":
        losses = -ops.sum(target * logs, axis=1)
        smooth = (1 - label_smoothing) * losses + label_smoothing * uniform
        return _reduced(smooth, reduction, rest)
    if not label_smoothing:
        return _nll_loss(logs, target, reduction, ignore_index, **rest)
    losses, is_there = _of_classes(logs, target, ignore_index)
    smooth = (1 - label_smoothing) * losses + label_smoothing * uniform
    return _of_those(smooth, is_there, reduction, rest)


def _nll_loss(
    input: Any,
    target: Any,
    reduction: str = "mean",
    ignore_index: int = -100,
    **rest: Any,
) -> Any:
    if len(input.shape) != 2:
        raise TypeError("only of rows of logarithms")
    losses, is_there = _of_classes(input, target, ignore_index)
    return _of_those(losses, is_there, reduction, rest)


def _of_classes(logs: Any, target: Any, ignore_index: int) -> tuple[Any, Any]:
    """Return the loss of each row, and which rows count."""
    numbers = ops.cast(ops.convert_to_tensor(target), "int32")
    is_there = ops.not_equal(numbers, ignore_index)
    numbers = ops.expand_dims(ops.where(is_there, numbers, 0), 1)
    losses = -ops.squeeze(ops.take_along_axis(logs, numbers, axis=1), axis=1)
    return losses, is_there


def _of_those(losses: Any, is_there: Any, reduction: str, rest: Any) -> Any:
    counted = ops.where(is_there, losses, 0.0)
    if reduction == "mean":
        count = ops.sum(ops.cast(is_there, losses.dtype))
        return _reduced(counted, "sum", rest) / count
    return _reduced(counted, reduction, rest)


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
