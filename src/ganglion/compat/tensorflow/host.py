"""Functions that run in Python, outside of compiled steps, and other small ones."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops, utils
from ganglion.compat.tensorflow.arrays import is_known, known
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.compat.tensorflow.draws import forget_seeds
from ganglion.tensors import as_tensor


def print_tensors(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int | None = None,
    sep: str = " ",
    end: str = "\n",
) -> None:
    """Print tensors to standard error, as TensorFlow does; traced ones by name."""
    shown = [part if not _is_traced(part) else f"<traced {part}>" for part in inputs]
    limit = sys.maxsize if summarize == -1 else (summarize or 3) * 2
    with np.printoptions(threshold=limit, edgeitems=summarize or 3):
        texts = [str(np.asarray(x)) if hasattr(x, "shape") else str(x) for x in shown]
    stream = sys.stderr if output_stream is None else output_stream
    print(*texts, sep=sep, end=end, file=stream)


def _is_traced(x: Any) -> bool:
    return not is_known(x)


def py_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,  # noqa: N803
) -> Any:
    """Call a Python function on tensors that are known; or decorate it."""
    if func is None:
        return lambda inner: lambda *parts: py_function(inner, parts, Tout)
    return _called(func, inp, Tout, _as_seen)


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,  # noqa: N803
    stateful: bool = True,
) -> Any:
    """Call a Python function on the arrays of known tensors; or decorate it."""
    if func is None:
        return lambda inner: lambda *parts: numpy_function(inner, parts, Tout)
    return _called(func, inp, Tout, lambda x: as_array(x)[()])


def _as_seen(x: Any) -> Any:
    return x if hasattr(x, "numpy") else as_tensor(as_array(x))


def _called(
    func: Callable[..., Any],
    inp: Any,
    Tout: Any,  # noqa: N803
    seen: Callable[[Any], Any],
) -> Any:
    for part in inp:
        known(part, "py_function")
    result = func(*map(seen, inp))
    if Tout is None or (isinstance(Tout, (list, tuple)) and not Tout):
        return None
    types = Tout if isinstance(Tout, (list, tuple)) else [Tout]
    leaves = result if isinstance(Tout, (list, tuple)) else [result]
    typed = [
        as_tensor(as_array(leaf))
        if str(_type_of(kind)) == "string"
        else ops.cast(leaf, str(_type_of(kind)))
        for leaf, kind in zip(leaves, types, strict=True)
    ]
    return typed if isinstance(Tout, (list, tuple)) else typed[0]


def _type_of(kind: Any) -> Any:
    return getattr(kind, "dtype", kind)  # of a `TensorSpec`, or the type itself


def set_seed(seed: int) -> None:
    """Seed all generators of random numbers."""
    forget_seeds()
    utils.set_random_seed(int(seed))


def timestamp() -> Any:
    """Return the seconds since 1970."""
    return as_tensor(np.array(time.time()))


def get_static_value(tensor: Any) -> Any:
    """Return the numbers of a tensor, None of one that is being traced."""
    return np.asarray(tensor) if is_known(tensor) else None


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: the compiler decides what a step keeps."""
    return f


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose gradient is that of the identity."""
    return lambda x: x + ops.stop_gradient(f(x) - x)


def get_logger() -> logging.Logger:
    """Return the logger of TensorFlow's name, which receives no messages here."""
    return logging.getLogger("tensorflow")
