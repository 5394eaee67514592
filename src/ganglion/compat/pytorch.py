"""PyTorch's functions of Ganglion's tensors, where an op does the same.

PyTorch calls `__torch_function__` of those arguments of its functions that are not its
tensors. Its tensors among the arguments are numbers that need no gradient.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ganglion import ops, tree
from ganglion.compiler.ir.graph import Value


@contextmanager
def copies_of_values() -> Iterator[None]:
    """Let `torch.tensor` and `torch.as_tensor` take values while a step is traced.

    PyTorch has no hook for copying objects that are not arrays yet.
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
    from ganglion.compat.pytorch_functions import FUNCTIONS  # few scripts need them

    name = getattr(function, "__name__", str(function))
    if name not in FUNCTIONS:
        raise TypeError(
            f"{name} of PyTorch does not take tensors of Ganglion. Use `keras.ops` and "
            "`keras.losses`; for numbers alone, `torch.from_numpy(x.numpy())`."
        )
    args, kwargs = numbers_of((list(args), kwargs or {}))
    try:
        return FUNCTIONS[name](*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name} of PyTorch on tensors of Ganglion: {error}") from error


def numbers_of(arguments: Any) -> Any:
    """Return arguments with the tensors of PyTorch's in them as arrays."""
    return tree.map_leaves(_numbers, arguments)


def _numbers(leaf: Any) -> Any:
    if not hasattr(leaf, "requires_grad"):
        return leaf
    if leaf.requires_grad:
        raise TypeError(
            "a tensor of PyTorch that requires a gradient would get none here: keep "
            "what is trained in a `keras.Variable`."
        )
    return leaf.detach().cpu().numpy()
