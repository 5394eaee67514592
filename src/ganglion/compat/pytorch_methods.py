"""PyTorch's methods of tensors, for scripts that run Keras on PyTorch.

NumPy has methods of the same names that return something else: `x.max(1)` is a pair in
PyTorch, `x.std()` divides by one less, `x.transpose(0, 1)` swaps two axes. In a script
for Keras on PyTorch they are PyTorch's, unless they are called in NumPy's words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.pytorch import numbers_of
from ganglion.compat.pytorch_functions import FUNCTIONS
from ganglion.compat.pytorch_shapes import sizes_of
from ganglion.compiler.ir.graph import ArrayMethods, Value
from ganglion.tensors import Tensor, check_devices

_IN_NUMPYS_WORDS = {"axis", "axes", "keepdims", "out", "ddof", "order"}
# Functions that PyTorch's tensors do not have as methods.
_NO_METHODS = {"__rsub__", "einsum", "one_hot", "where", "linalg_norm", "dropout"}
_NO_METHODS |= {name for name in FUNCTIONS if name.endswith(("_loss", "_like", "_div"))}
_NO_METHODS |= {"linalg_inv", "linalg_det", "linear", "layer_norm", "embedding", "pad"}
_NO_METHODS |= {
    "cdist",
    "pairwise_distance",
    "cat",
    "concat",
    "concatenate",
    "stack",
    "hstack",
    "vstack",
}
_TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "long": "int64", "int": "int32", "bool": "bool",
}  # fmt: skip


class Count(int):
    """How many elements there are, which is also the method `size` of PyTorch."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """Return the sizes of all axes, or of one."""
        return self.shape if dim is None else self.shape[dim]


def _counted(x: Any) -> Count:
    count = Count(np.prod(x.shape, dtype=int))
    count.shape = tuple(x.shape)
    return count


def _sizes_given(arguments: tuple[Any, ...]) -> bool:
    first = arguments[0] if len(arguments) == 1 else arguments
    sizes = first if isinstance(first, (tuple, list)) else [first]
    return all(isinstance(size, (int, np.integer)) for size in sizes)


def _as_type(x: Any, dtype: Any = None, **options: Any) -> Any:
    if dtype is None:
        return f"torch.{x.dtype.name.capitalize()}Tensor"
    return ops.cast(x, str(dtype).removeprefix("torch."))


def _itself(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _to(x: Any, *args: Any, **options: Any) -> Any:
    for wanted in (*args, *options.values()):
        if str(wanted).startswith("torch."):
            x = ops.cast(x, str(wanted).removeprefix("torch."))
        elif not isinstance(wanted, bool):  # `non_blocking`, `copy`
            check_devices("Tensor", wanted)
    return x


def _new(value: float) -> Callable[..., Any]:
    def filled(x: Any, *sizes: Any) -> Any:
        return ops.full(sizes_of(sizes), value, dtype=x.dtype.name)

    return filled


def _where(x: Any, condition: Any, other: Any) -> Any:
    return ops.where(condition, x, other)


def _sizes_of(x: Any, other: Any) -> Any:
    return ops.reshape(x, tuple(other.shape))


_METHODS: dict[str, Callable[..., Any]] = {
    **{name: value for name, value in FUNCTIONS.items() if name not in _NO_METHODS},
    **{
        name: (lambda x, dtype=dtype: ops.cast(x, dtype))
        for name, dtype in _TYPES.items()
    },
    "view": FUNCTIONS["reshape"],
    "view_as": _sizes_of,
    "reshape_as": _sizes_of,
    "expand_as": lambda x, other: ops.broadcast_to(x, tuple(other.shape)),
    "type": _as_type,
    "type_as": lambda x, other: ops.cast(x, str(other.dtype).removeprefix("torch.")),
    "to": _to,
    "where": _where,
    "new_zeros": _new(0.0),
    "new_ones": _new(1.0),
    "nelement": lambda x: int(_counted(x)),
    "dim": lambda x: len(x.shape),
    "numel": _counted,
    "clone": _itself,
    "contiguous": _itself,
    "cuda": _itself,
}


def _method(name: str, before: Any) -> Any:
    function = _METHODS[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_numpys = bool(_IN_NUMPYS_WORDS & kwargs.keys())
        if name == "view" and not _sizes_given(args):
            is_numpys = True  # `view(np.ndarray)`
        elif name == "transpose" and len(args) != 2:
            is_numpys = True
        if is_numpys and before is not None:
            return before(self, *args, **kwargs)
        options: dict[str, Any]
        arguments, options = numbers_of((list(args), kwargs))
        return function(self, *arguments, **options)

    method.__name__, method.__doc__ = name, f"PyTorch's `{name}`."
    return method


_installed: list[tuple[type, str, Any]] = []  # what was there before


def install() -> None:
    """Give tensors and values the methods of PyTorch, from now on."""
    if _installed:
        return
    for name in _METHODS:
        _replace(Tensor, name, _method(name, getattr(Tensor, name, None)))
        _replace(ArrayMethods, name, _method(name, getattr(Value, name, None)))
    for cls in (Tensor, Value):
        _replace(cls, "size", property(_counted, doc="PyTorch's `size`."))


def _replace(cls: type, name: str, new: Any) -> None:
    _installed.append((cls, name, vars(cls).get(name)))
    setattr(cls, name, new)


def uninstall() -> None:
    """Take the methods back."""
    while _installed:
        cls, name, before = _installed.pop()
        if before is None:
            delattr(cls, name)
        else:
            setattr(cls, name, before)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Give tensors the methods of PyTorch within a block."""
    install()
    try:
        yield
    finally:
        uninstall()
