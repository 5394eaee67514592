"""PyTorch's functions of Ganglion's tensors, where an op does the same.

PyTorch calls `__torch_function__` of what is among the arguments of its functions and
is no tensor of its own. Its tensors beside ours are numbers that need no gradient.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import ops, tree
from ganglion.compiler.ir.graph import Value


@contextmanager
def copies_of_values() -> Iterator[None]:
    """Let `torch.tensor` and `torch.as_tensor` take values while a step is traced.

    They ask nobody how to copy what is no array yet.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or os.environ.get("KERAS_BACKEND") != "torch":
        yield
        return
    before = torch.tensor, torch.as_tensor
    torch.tensor, torch.as_tensor = map(_taking_values, before)
    try:
        yield
    finally:
        torch.tensor, torch.as_tensor = before


def _taking_values(function: Callable[..., Any]) -> Callable[..., Any]:
    def taking(data: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if not isinstance(data, Value):
            return function(data, *args, dtype=dtype, **kwargs)
        is_copy = function.__name__ == "tensor"
        value = ops.stop_gradient(data) if is_copy else data
        kind = str(dtype).removeprefix("torch.")
        return value if dtype is None else ops.cast(value, kind)

    return taking


def called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what a function of PyTorch's returns; refuse those without an op."""
    name = getattr(function, "__name__", str(function))
    if name not in _FUNCTIONS:
        raise TypeError(
            f"{name} of PyTorch does not take tensors of Ganglion. Use `keras.ops` and "
            "`keras.losses`; for numbers alone, `torch.from_numpy(x.numpy())`."
        )
    args, kwargs = tree.map_leaves(_numbers, (list(args), kwargs or {}))
    try:
        return _FUNCTIONS[name](*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name} of PyTorch on tensors of Ganglion: {error}") from error


def _numbers(leaf: Any) -> Any:
    """Return a tensor of PyTorch's as an array."""
    if not hasattr(leaf, "requires_grad"):
        return leaf
    if leaf.requires_grad:
        raise TypeError(
            "a tensor of PyTorch that requires a gradient would get none here: keep "
            "what is trained in a `keras.Variable`."
        )
    return leaf.detach().cpu().numpy()


# ---- functions whose arguments have other names than those of ops --------------------


def _cat(tensors: Any, dim: int = 0, axis: int | None = None) -> Any:
    return ops.concatenate(tensors, axis=dim if axis is None else axis)


def _stack(tensors: Any, dim: int = 0) -> Any:
    return ops.stack(tensors, axis=dim)


def _by_dim(op: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(
        input: Any,  # noqa: A002 (PyTorch's name)
        dim: Any = None,
        keepdim: bool = False,
    ) -> Any:
        return op(input, axis=dim, keepdims=keepdim)

    return reduced


def _along(op: Callable[..., Any]) -> Callable[..., Any]:
    def applied(
        input: Any,  # noqa: A002 (PyTorch's name)
        dim: int,
        _stacklevel: int = 3,
        dtype: None = None,
    ) -> Any:
        if dtype is not None:
            raise TypeError("`dtype` is not supported")
        return op(input, axis=dim)

    return applied


def _clamp(input: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    low = input if min is None else ops.maximum(input, min)
    return low if max is None else ops.minimum(low, max)


def _relu(input: Any, inplace: bool = False) -> Any:  # noqa: A002
    return ops.relu(input)


def _unsqueeze(input: Any, dim: int) -> Any:  # noqa: A002
    return ops.expand_dims(input, dim)


def _mse_loss(input: Any, target: Any, reduction: str = "mean", **rest: Any) -> Any:  # noqa: A002
    return _reduced(ops.square(input - target), reduction, rest)


def _l1_loss(input: Any, target: Any, reduction: str = "mean", **rest: Any) -> Any:  # noqa: A002
    return _reduced(ops.abs(input - target), reduction, rest)


def _cross_entropy(
    input: Any,  # noqa: A002 (PyTorch's name)
    target: Any,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    **rest: Any,
) -> Any:
    if len(input.shape) != 2 or label_smoothing:
        raise TypeError("only of rows of logits, without `label_smoothing`")
    if np.dtype(target.dtype).kind == "f":
        losses = ops.categorical_crossentropy(target, input, from_logits=True)
        return _reduced(losses, reduction, rest)
    losses = ops.sparse_categorical_crossentropy(target, input, from_logits=True)
    return _reduced(losses, reduction, rest)


def _reduced(losses: Any, reduction: str, rest: dict[str, Any]) -> Any:
    given = [name for name, value in rest.items() if value is not None]
    if given:
        raise TypeError(f"`{given[0]}` is not supported")
    reductions = {"mean": ops.mean, "sum": ops.sum, "none": lambda x: x}
    return reductions[reduction](losses)


_SAME = """abs exp log log1p sqrt rsqrt square sin cos tanh sigmoid sign floor ceil
maximum minimum where matmul ones_like zeros_like"""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(ops, name) for name in _SAME.split()},
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    **{name: _by_dim(getattr(ops, name)) for name in ("mean", "sum", "argmax")},
    **{name: _along(getattr(ops, name)) for name in ("softmax", "log_softmax")},
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "relu": _relu,
    "unsqueeze": _unsqueeze,
    "mse_loss": _mse_loss,
    "l1_loss": _l1_loss,
    "cross_entropy": _cross_entropy,
}
