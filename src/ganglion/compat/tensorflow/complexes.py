"""Complex numbers inside of programs and under tapes: two real tensors, side by side.

Programs compute with real numbers. Outside of them complex tensors are NumPy's; where
something is traced or a tape is open, a `Pair` goes through the same functions of `tf`,
and has gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, tensors
from ganglion.compat.tensorflow.arrays import is_known
from ganglion.variables import current_scope

_KINDS = {"complex64": "float32", "complex128": "float64"}


class Pair(NamedTuple):
    """The real and the imaginary parts of complex numbers.

    A named tuple, so that programs, layers and data sets return both parts.

    >>> unit = Pair(ops.zeros(2), ops.ones(2))
    >>> (unit * unit).numpy()
    array([-1.+0.j, -1.+0.j], dtype=complex64)
    """

    real: Any
    imag: Any

    @property
    def shape(self) -> Any:
        """The sizes of the axes."""
        return self.real.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of complex numbers with parts of these types."""
        is_double = str(self.real.dtype) == "float64"
        return np.dtype(np.complex128 if is_double else np.complex64)

    def numpy(self) -> np.ndarray:
        """Return NumPy's complex numbers."""
        return np.asarray(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        numbers = np.asarray(self.real) + 1j * np.asarray(self.imag)
        return numbers.astype(self.dtype if dtype is None else dtype)

    def __getitem__(self, key: Any) -> Pair:
        return Pair(self.real[key], self.imag[key])

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __add__(self, other: Any) -> Pair:
        other = as_pair(other)
        return Pair(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Any) -> Pair:
        return self + -as_pair(other)

    def __rsub__(self, other: Any) -> Pair:
        return as_pair(other) - self

    def __mul__(self, other: Any) -> Pair:
        return _product(ops.multiply, self, as_pair(other))

    def __truediv__(self, other: Any) -> Pair:
        other = as_pair(other)
        length = ops.square(other.real) + ops.square(other.imag)
        product = self * _conjugate(other)
        return Pair(product.real / length, product.imag / length)

    def __rtruediv__(self, other: Any) -> Pair:
        return as_pair(other) / self

    def __matmul__(self, other: Any) -> Pair:
        return _product(ops.matmul, self, as_pair(other))

    def __radd__(self, other: Any) -> Pair:
        return self + other

    def __rmul__(self, other: Any) -> Pair:
        return self * other


def is_followed(*inputs: Any) -> bool:
    """Return whether a trace or a tape records how a result is computed."""
    if has_pairs(inputs):
        return True
    recorded = current_scope() is not None or tensors.recording() is not None
    return recorded or not is_known(*inputs)


def as_pair(x: Any) -> Pair:
    """Return numbers of any kind as a pair."""
    if isinstance(x, Pair):
        return x
    if isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c":
        numbers = np.asarray(x)
        kind = np.float64 if numbers.dtype == np.complex128 else np.float32
        return Pair(
            *(
                ops.convert_to_tensor(part.astype(kind))
                for part in (numbers.real, numbers.imag)
            )
        )
    real = ops.convert_to_tensor(x)
    return Pair(real, ops.zeros_like(real))


def cast(x: Any, dtype: Any) -> Any:
    """Return numbers in another type, whose parts are real where it is complex."""
    kind = getattr(dtype, "__name__", None) or str(dtype)  # also one of NumPy's classes
    if kind in _KINDS and is_followed(x):
        pair = as_pair(x)
        return Pair(*(ops.cast(part, _KINDS[kind]) for part in (pair.real, pair.imag)))
    return ops.cast(x.real if isinstance(x, Pair) else x, dtype)


def _product(function: Callable[..., Any], x: Pair, y: Pair) -> Pair:
    return Pair(
        function(x.real, y.real) - function(x.imag, y.imag),
        function(x.real, y.imag) + function(x.imag, y.real),
    )


def _conjugate(x: Pair) -> Pair:
    return Pair(x.real, -x.imag)


def _absolute(x: Pair) -> Any:
    # The slope of a length of zero is taken to be zero, as in TensorFlow.
    squares = ops.square(x.real) + ops.square(x.imag)
    is_zero = ops.equal(squares, 0)
    return ops.where(is_zero, 0.0, ops.sqrt(ops.where(is_zero, 1.0, squares)))


def _exponential(x: Pair) -> Pair:
    length = ops.exp(x.real)
    return Pair(length * ops.cos(x.imag), length * ops.sin(x.imag))


# What functions do with pairs, by the last part of their names.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _absolute,
    "add": lambda x, y: as_pair(x) + y,
    "angle": lambda x: ops.arctan2(x.imag, x.real),
    "conj": _conjugate,
    "divide": lambda x, y: as_pair(x) / y,
    "exp": _exponential,
    "imag": lambda x: x.imag,
    "matmul": lambda x, y: as_pair(x) @ y,
    "multiply": lambda x, y: as_pair(x) * y,
    "negative": lambda x: -x,
    "real": lambda x: x.real,
    "square": lambda x: x * x,
    "subtract": lambda x, y: as_pair(x) - y,
    "truediv": lambda x, y: as_pair(x) / y,
}
# What moves numbers, or adds them up, does the same with both parts.
_BY_PARTS = frozenset({
    "broadcast_to", "concat", "expand_dims", "gather", "identity", "pad", "reduce_mean",
    "reduce_sum", "repeat", "reshape", "reverse", "roll", "slice", "split", "squeeze",
    "stack", "stop_gradient", "tile", "transpose", "unstack", "zeros_like",
})  # fmt: skip


def has_pairs(arguments: Any) -> bool:
    """Return whether there are pairs among the arguments of a call."""
    if isinstance(arguments, dict):
        return any(map(has_pairs, arguments.values()))
    if isinstance(arguments, (list, tuple)):
        return isinstance(arguments, Pair) or any(map(has_pairs, arguments))
    return False


def called(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what a function of `tf` makes of complex numbers."""
    short = name.rpartition(".")[2]
    if short in _FUNCTIONS:
        return _FUNCTIONS[short](*args, **kwargs)
    if short not in _BY_PARTS:
        raise NotImplementedError(
            f"tf.{name}: not of complex numbers, inside of a compiled step or under a "
            "tape. Compute with `tf.math.real` and `tf.math.imag`."
        )

    results = [
        function(*_part(number, args), **_part(number, kwargs)) for number in (0, 1)
    ]
    if isinstance(results[0], (list, tuple)):
        return [Pair(*parts) for parts in zip(*results, strict=True)]
    return Pair(*results)


def _part(number: int, arguments: Any) -> Any:
    """Return arguments with one part of each pair in its place."""
    if isinstance(arguments, Pair):
        return (arguments.real, arguments.imag)[number]
    if isinstance(arguments, dict):
        return {key: _part(number, value) for key, value in arguments.items()}
    if isinstance(arguments, (list, tuple)):
        return type(arguments)([_part(number, value) for value in arguments])
    return arguments
