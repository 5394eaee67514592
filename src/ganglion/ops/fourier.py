"""Fourier transforms, of whole signals and of short pieces of them.

A complex signal is a pair of real arrays, as in Keras. NumPy computes transforms on
the host; each is the gradient of another, so all have gradients of any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, ShapeError, Value
from ganglion.compiler.ir.host import host_op, host_record, items
from ganglion.compiler.ir.shaping import fill
from ganglion.ops.dispatch import astype, op
from ganglion.ops.indexing import take
from ganglion.ops.joining import pad
from ganglion.ops.lapack import promoted_for_lapack
from ganglion.ops.numpy import where
from ganglion.ops.order.segments import segment_sum
from ganglion.ops.shapes import broadcast_to, moveaxis, reshape, slice_axis
from ganglion.variables import read

__all__ = [
    "extract_sequences", "fft", "fft2", "ifft2", "irfft", "istft", "rfft", "stft",
]  # fmt: skip

Slopes = Sequence[Value | None]


def _pair(name: str, x: Any) -> tuple[Value, Value]:
    """Return the real and the imaginary part of a signal, of one type."""
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(
            f"{name}: Input `x` should be a tuple of two tensors, the real and the "
            f"imaginary part. Received: {type(x).__name__}."
        )
    real, imaginary = promoted_for_lapack(*x)
    if real.shape != imaginary.shape:
        raise ValueError(
            f"{name}: Both the real and imaginary parts should have the same shape. "
            f"Received: {real.shape} and {imaginary.shape}."
        )
    return real, imaginary


def _axes(name: str, value: Value, count: int) -> None:
    if value.ndim < count:
        raise ShapeError(
            f"{name}: Input should have rank >= {count}. Received: shape {value.shape}"
        )


def _both_slopes(parts: Sequence[Value], slopes: Slopes) -> tuple[Value, Value]:
    """Return the slopes of both parts, zeros where none flows."""
    first, second = (
        fill(0, part) if slope is None else slope
        for part, slope in zip(parts, slopes, strict=True)
    )
    return first, second


# ---- complex signals ----------------------------------------------------------------


def _transform(name: str) -> Any:
    """Return an op on pairs; its gradient transforms the conjugate pair."""

    def results(real: np.ndarray, imaginary: np.ndarray) -> Sequence[np.ndarray]:
        # Looked up here: `np.fft` takes a while to import, and few need it.
        result = getattr(np.fft, name)(real + 1j * imaginary)
        return result.real.astype(real.dtype), result.imag.astype(real.dtype)

    def pull_back(node: Node, slopes: Slopes) -> Slopes:
        real, imaginary = _both_slopes(node.inputs, slopes)
        first, second = items(node.op(real, -imaginary))
        return first, -second

    def types(real: Value, imaginary: Value) -> Any:
        return [(real.shape, real.dtype)] * 2

    return host_record(name, types, results, pull_back)


_fft = _transform("fft")
_fft2 = _transform("fft2")


@op
def fft(x: Any) -> Any:
    """Transform along the last axis; x is a pair (real, imaginary)."""
    real, imaginary = _pair("fft", x)
    _axes("fft", real, 1)
    return items(_fft(real, imaginary))


@op
def fft2(x: Any) -> Any:
    """Transform along the last two axes; x is a pair (real, imaginary)."""
    real, imaginary = _pair("fft2", x)
    _axes("fft2", real, 2)
    return items(_fft2(real, imaginary))


@op
def ifft2(x: Any) -> Any:
    """Undo `fft2`."""
    real, imaginary = _pair("ifft2", x)
    _axes("ifft2", real, 2)
    count = float(real.shape[-1] * real.shape[-2])
    first, second = items(_fft2(real, -imaginary))
    return first / count, -second / count


# ---- real signals -------------------------------------------------------------------


def _weights(count: int, bins: int, dtype: Any) -> np.ndarray:
    """Return how often each frequency of a real signal is in its complete spectrum."""
    weights = np.full(bins, 2.0, dtype)
    weights[0] = 1.0
    if count % 2 == 0:
        weights[-1] = 1.0
    return weights


def _rfft_pull_back(node: Node, slopes: Slopes) -> Slopes:
    count = node.attrs["count"]
    real, imaginary = _both_slopes(items(node), slopes)
    scale = count / _weights(count, real.shape[-1], real.dtype)
    signal = _irfft(real * scale, imaginary * scale, count=count)
    (x,) = node.inputs
    return (_fitted(signal, x.shape[-1]),)


def _irfft_gradient(node: Node, slope: Value) -> Slopes:
    count, (real, _) = node.attrs["count"], node.inputs
    first, second = items(_rfft(slope, count=count))
    scale = _weights(count, first.shape[-1], first.dtype) / count
    bins = real.shape[-1]
    return _fitted(first * scale, bins), _fitted(second * scale, bins)


def _fitted(value: Any, size: int) -> Any:
    """Truncate the last axis to a size, or pad it with zeros."""
    excess = value.shape[-1] - size
    if excess > 0:
        return slice_axis(value, value.ndim - 1, 0, size)
    return pad(value, [(0, 0)] * (value.ndim - 1) + [(0, -excess)]) if excess else value


def _rfft_of(x: np.ndarray, count: int) -> Sequence[np.ndarray]:
    result = np.fft.rfft(x, count)
    return result.real.astype(x.dtype), result.imag.astype(x.dtype)


_rfft = host_record(
    "rfft",
    lambda x, count: [((*x.shape[:-1], count // 2 + 1), x.dtype)] * 2,
    _rfft_of,
    _rfft_pull_back,
)
_irfft = host_op(
    "irfft",
    lambda real, imaginary, count: ((*real.shape[:-1], count), real.dtype),
    lambda real, imaginary, count: np.fft.irfft(real + 1j * imaginary, count).astype(
        real.dtype
    ),
    _irfft_gradient,
)


@op
def rfft(x: Any, fft_length: int | None = None) -> Any:
    """Transform a real signal along the last axis; return its half of frequencies."""
    value, _ = promoted_for_lapack(x, x)
    _axes("rfft", value, 1)
    return items(_rfft(value, count=_length("rfft", fft_length, value.shape[-1])))


@op
def irfft(x: Any, fft_length: int | None = None) -> Any:
    """Undo `rfft`: return a real signal of this length."""
    real, imaginary = _pair("irfft", x)
    _axes("irfft", real, 1)
    count = _length("irfft", fft_length, 2 * (real.shape[-1] - 1))
    bins = count // 2 + 1
    return _irfft(_fitted(real, bins), _fitted(imaginary, bins), count=count)


def _length(name: str, wanted: int | None, default: int) -> int:
    length = default if wanted is None else wanted
    if length < 1:
        raise ValueError(f"{name}: `fft_length` must be positive, got {length}.")
    return int(length)


# ---- pieces -------------------------------------------------------------------------


@op
def extract_sequences(x: Any, sequence_length: int, sequence_stride: int) -> Any:
    """Return frames of the last axis, which may overlap: (..., frames, length)."""
    value = read(x)
    _axes("extract_sequences", value, 1)
    _check_positive("extract_sequences", "sequence_length", sequence_length)
    _check_positive("extract_sequences", "sequence_stride", sequence_stride)
    count = max(1 + (value.shape[-1] - sequence_length) // sequence_stride, 0)
    return take(value, _places(count, sequence_length, sequence_stride), axis=-1)


def _check_positive(name: str, argument: str, number: Any) -> None:
    if not isinstance(number, (int, np.integer)) or number < 1:
        raise ValueError(
            f"{name}: `{argument}` must be a positive integer, got {number!r}."
        )


def _places(count: int, length: int, stride: int) -> np.ndarray:
    """Return where the elements of each piece are."""
    places = np.arange(count)[:, None] * stride + np.arange(length)
    return places.astype("int32")


def _overlapped(pieces: Any, stride: int) -> Any:
    """Put frames in their places; add up where they overlap."""
    *_, count, length = pieces.shape
    total = length + stride * (count - 1)
    flat = reshape(pieces, (*pieces.shape[:-2], count * length))
    places = _places(count, length, stride).ravel()
    sums = segment_sum(moveaxis(flat, -1, 0), places, num_segments=total)
    return moveaxis(sums, 0, -1)


def _window(name: str, window: Any, length: int, fft_length: int, dtype: Any) -> Value:
    """Return a window, in the middle of `fft_length` elements."""
    if window is None:
        return astype(np.ones(fft_length), dtype)
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(
                f'{name}: If a string is passed to `window`, it must be "hann" or '
                f'"hamming", got {window!r}.'
            )
        share = 0.5 if window == "hann" else 0.54
        turns = 2 * np.pi * np.arange(length) / length
        window = share - (1 - share) * np.cos(turns)
    array = astype(window, dtype)
    if array.shape != (length,):
        raise ValueError(
            f"{name}: The shape of `window` must be equal to [sequence_length], "
            f"({length},), got {array.shape}."
        )
    before = (fft_length - length) // 2
    return pad(array, [(before, fft_length - length - before)])


@op
def stft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    """Transform overlapping pieces of a real signal, each under a window."""
    value = read(x)
    if value.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"stft: expected an input of `float32` or `float64`, got "
            f"{value.dtype.name}."
        )
    _axes("stft", value, 1)
    _check_lengths("stft", sequence_length, sequence_stride, fft_length)
    if center:
        half = fft_length // 2
        widths = [(0, 0)] * (value.ndim - 1) + [(half, half)]
        value = pad(value, widths, mode="reflect")
    shape = _window("stft", window, sequence_length, fft_length, value.dtype)
    pieces = extract_sequences(value, fft_length, sequence_stride)
    return rfft(pieces * shape, fft_length)


@op
def istft(
    x: Any,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: Any = "hann",
    center: bool = True,
) -> Any:
    """Undo `stft`: pieces are put together again, as their windows weighed them.

    Without a window the pieces are added as they are: where they overlap, the signal
    comes out as many times as there are pieces.
    """
    real, imaginary = _pair("istft", x)
    _axes("istft", real, 2)
    _check_lengths("istft", sequence_length, sequence_stride, fft_length)
    shape = _window("istft", window, sequence_length, fft_length, real.dtype)
    pieces = irfft((real, imaginary), fft_length)
    signal = _overlapped(pieces * shape, sequence_stride)
    if window is not None:
        squares = broadcast_to(shape * shape, pieces.shape[-2:])
        weight = _overlapped(squares, sequence_stride)
        known = weight > 1e-10
        signal = where(known, signal / where(known, weight, 1.0), signal)
    start = fft_length // 2 if center else 0
    end = signal.shape[-1] - (fft_length // 2 if center else 0)
    if length is not None:
        end = start + length
    return _fitted(
        slice_axis(signal, signal.ndim - 1, start, min(end, signal.shape[-1])),
        end - start,
    )


def _check_lengths(name: str, length: int, stride: int, fft_length: int) -> None:
    _check_positive(name, "sequence_length", length)
    _check_positive(name, "sequence_stride", stride)
    if fft_length < length:
        raise ValueError(
            f"{name}: `fft_length` must equal or be larger than `sequence_length`, got "
            f"{fft_length} and {length}."
        )
