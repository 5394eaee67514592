"""Complex numbers: their parts, and arrays of them.

Arrays of complex numbers live on the host; parts of them are real again, and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.compiler.ir.host import Typed, host_op
from ganglion.compiler.ir.shaping import fill
from ganglion.ops.dispatch import astype, floating, op, promoted
from ganglion.ops.elementary import arctan2
from ganglion.ops.joining import stack
from ganglion.ops.numpy import cos, exp, hypot, log, sin, where
from ganglion.ops.shapes import slice_axis, squeeze
from ganglion.variables import read

__all__ = [
    "angle", "conj", "conjugate", "imag", "polar", "real", "view_as_complex",
    "view_as_real",
]  # fmt: skip


def _is_complex(value: Value) -> bool:
    return value.dtype.kind == "c"


def _real_type(value: Value, **_: Any) -> Typed:
    return value.shape, np.dtype("float64" if value.dtype.itemsize == 16 else "float32")


def _complex_type(first: Value, second: Value) -> Typed:
    wide = first.dtype == np.float64
    return first.shape, np.dtype("complex128" if wide else "complex64")


def _part_gradient(is_real: bool) -> Callable[[Node, Value], Sequence[Value | None]]:
    def gradient(node: Node, slope: Value) -> Sequence[Value | None]:
        zero = fill(0, slope)
        return (_complex(slope, zero) if is_real else _complex(zero, slope),)

    return gradient


def _complex_gradient(node: Node, slope: Value) -> Sequence[Value | None]:
    return _real(slope), _imag(slope)


_real = host_op("real", _real_type, lambda x: x.real.copy(), _part_gradient(True))
_imag = host_op("imag", _real_type, lambda x: x.imag.copy(), _part_gradient(False))
_complex = host_op(
    "complex",
    _complex_type,
    lambda x, y: (x + 1j * y).astype("c16" if x.dtype == np.float64 else "c8"),
    _complex_gradient,
)


@op
def real(x: Any) -> Any:
    """Return the real part; of real numbers themselves."""
    value = read(x)
    return _real(value) if _is_complex(value) else value


@op
def imag(x: Any) -> Any:
    """Return the imaginary part; of real numbers, zeros."""
    value = read(x)
    return _imag(value) if _is_complex(value) else fill(0, value)


@op
def conjugate(x: Any) -> Any:
    """Return the complex conjugate; of real numbers themselves."""
    value = read(x)
    return _complex(_real(value), -_imag(value)) if _is_complex(value) else value


conj = conjugate


@op
def angle(x: Any) -> Any:
    """Return the angle of complex numbers, from -pi to pi."""
    value = read(x)
    if _is_complex(value):
        return arctan2(_imag(value), _real(value))
    value = floating(value)
    return arctan2(fill(0, value), value)


@op
def polar(abs_: Any, angle: Any) -> Any:
    """Return complex numbers of these sizes and angles."""
    size, turn = promoted(floating(abs_), floating(angle))
    return _complex(size * cos(turn), size * sin(turn))


def complex_power(a: Value, b: Value) -> Value:
    """Return exp(b log(a)); powers of 0 are 0, but for 0 ** 0, which is 1."""
    size = hypot(_real(a), _imag(a))
    is_zero = size == 0.0
    log_size, turn = log(where(is_zero, 1.0, size)), arctan2(_imag(a), _real(a))
    real_b, imag_b = _real(b), _imag(b)
    grown = exp(real_b * log_size - imag_b * turn)
    turned = imag_b * log_size + real_b * turn
    of_zero = where(hypot(real_b, imag_b) == 0.0, 1.0, fill(0, size))
    real_part = where(is_zero, of_zero, grown * cos(turned))
    return _complex(real_part, where(is_zero, 0.0, grown * sin(turned)))


@op
def view_as_complex(x: Any) -> Any:
    """Return the pairs along the last axis as complex numbers, of 64 bits in all."""
    value = astype(floating(x), "float32")
    if value.ndim < 1 or value.shape[-1] != 2:
        raise ShapeError(
            "view_as_complex: Last dimension of input must be size 2 (real and "
            f"imaginary part), got shape {value.shape}"
        )
    last = value.ndim - 1
    parts = (squeeze(slice_axis(value, last, n, n + 1), -1) for n in range(2))
    return _complex(*parts)


@op
def view_as_real(x: Any) -> Any:
    """Return complex numbers as pairs along a new last axis."""
    value = read(x)
    return stack((real(value), imag(value)), axis=-1)
