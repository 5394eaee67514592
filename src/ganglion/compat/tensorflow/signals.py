"""`tf.signal`, on the transforms of `ganglion.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.complexes import Pair, as_pair, is_followed
from ganglion.tensors import as_tensor


def make_complex(real: Any, imag: Any) -> Any:
    """Return complex numbers of their two parts."""
    if is_followed(real, imag):
        return Pair(ops.convert_to_tensor(real), ops.convert_to_tensor(imag))
    parts = np.asarray(real), np.asarray(imag)
    kind = np.complex128 if parts[0].dtype == np.float64 else np.complex64
    return as_tensor((parts[0] + 1j * parts[1]).astype(kind))


def _transform(
    name: str, on_host: Callable[..., Any], followed: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a transform: NumPy's on numbers, and one of ops where it is followed."""

    def transform(input: Any, *args: Any) -> Any:  # noqa: A002 (TensorFlow's name)
        if is_followed(input):
            return followed(input, *args)
        numbers = np.asarray(input)
        is_double = numbers.dtype.itemsize // (1 + (numbers.dtype.kind == "c")) > 4
        result = on_host(numbers, *args)
        single = np.complex64 if result.dtype.kind == "c" else np.float32
        return as_tensor(result if is_double else result.astype(single))

    transform.__name__ = name
    transform.__doc__ = f"Return NumPy's `{name}`, along the last axes."
    return transform


def _parts(x: Any) -> tuple[Any, Any]:
    pair = as_pair(x)
    return pair.real, pair.imag


def _inverse(x: Any) -> Pair:
    real, imag = _parts(x)
    count = int(real.shape[-1])
    first, second = ops.fft((real, -imag))
    return Pair(first / count, -second / count)


def _shifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what moves the parts of numbers, along each of the axes."""

    def shift(x: Any, axes: Any = None) -> Pair:
        real, imag = _parts(x)
        for axis in range(len(real.shape)) if axes is None else np.ravel(axes).tolist():
            order = function(np.arange(int(real.shape[axis])))
            real, imag = (ops.take(part, order, axis=axis) for part in (real, imag))
        return Pair(real, imag)

    return shift


fft = _transform("fft", np.fft.fft, lambda x: Pair(*ops.fft(_parts(x))))
ifft = _transform("ifft", np.fft.ifft, _inverse)
fft2d = _transform("fft2d", np.fft.fft2, lambda x: Pair(*ops.fft2(_parts(x))))
ifft2d = _transform("ifft2d", np.fft.ifft2, lambda x: Pair(*ops.ifft2(_parts(x))))
fftshift = _transform("fftshift", np.fft.fftshift, _shifted(np.fft.fftshift))
ifftshift = _transform("ifftshift", np.fft.ifftshift, _shifted(np.fft.ifftshift))
_rfft = _transform(
    "rfft", np.fft.rfft, lambda x, count: Pair(*ops.rfft(x, fft_length=count))
)
_irfft = _transform(
    "irfft", np.fft.irfft, lambda x, count: ops.irfft(_parts(x), fft_length=count)
)


def rfft(input_tensor: Any, fft_length: Any = None) -> Any:
    """Return the half of a transform that real numbers have."""
    return _rfft(input_tensor, _count(fft_length))


def irfft(input_tensor: Any, fft_length: Any = None) -> Any:
    """Return the real numbers behind half of a transform."""
    return _irfft(input_tensor, _count(fft_length))


def _count(fft_length: Any) -> int | None:
    return None if fft_length is None else int(np.ravel(fft_length)[0])


def _window(name: str, function: Callable[[int], np.ndarray]) -> Callable[..., Any]:
    def window(
        window_length: Any, periodic: bool = True, dtype: Any = "float32"
    ) -> Any:
        length = int(window_length)
        # A periodic window is a symmetric one that is longer by one, without its end;
        # TensorFlow has those of an odd length symmetric in any case.
        is_longer = periodic and length % 2 == 0
        return as_tensor(function(length + is_longer)[:length].astype(str(dtype)))

    window.__name__ = name
    window.__doc__ = "Return the weights of the steps of a frame."
    return window


hann_window = _window("hann_window", np.hanning)
hamming_window = _window("hamming_window", np.hamming)


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
) -> Any:
    """Return overlapping parts of signals, on a separate axis."""
    if axis not in (-1, len(signal.shape) - 1):
        raise NotImplementedError("tf.signal.frame: only the last axis is supported.")
    length, step, total = int(frame_length), int(frame_step), int(signal.shape[-1])
    count = -(-total // step) if pad_end else max(0, (total - length) // step + 1)
    missing = (count - 1) * step + length - total if count else 0
    if pad_end and missing > 0:
        widths = [(0, 0)] * (len(signal.shape) - 1) + [(0, missing)]
        signal = ops.pad(signal, widths, "constant", pad_value)
    places = np.arange(count)[:, None] * step + np.arange(length)
    return ops.take(signal, places.astype(np.int32), axis=-1)


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Any = hann_window,
    pad_end: bool = False,
) -> Any:
    """Return the transform of every frame of signals."""
    length = int(frame_length)
    count = 1 << (length - 1).bit_length() if fft_length is None else int(fft_length)
    frames = frame(signals, length, frame_step, pad_end)
    if window_fn is not None:
        frames = ops.multiply(frames, window_fn(length))
    return rfft(frames, count)


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: float = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = "float32",
) -> Any:
    """Return the weights by which frequencies become bands of the mel scale."""

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)

    linear = mel(
        np.linspace(0.0, float(sample_rate) / 2, int(num_spectrogram_bins))[1:]
    )
    edges = np.linspace(
        mel(lower_edge_hertz), mel(upper_edge_hertz), int(num_mel_bins) + 2
    )
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (linear[:, None] - low) / (center - low)
    falling = (high - linear[:, None]) / (high - center)
    weights = np.maximum(0.0, np.minimum(rising, falling))
    return as_tensor(np.pad(weights, [(1, 0), (0, 0)]).astype(str(dtype)))


def dct(input: Any, type: int = 2, norm: str | None = None) -> Any:  # noqa: A002
    """Return the discrete cosine transform of the second type."""
    if type != 2:
        raise NotImplementedError(f"tf.signal.dct(type={type}): only type 2 is here.")
    size = int(input.shape[-1])
    steps = np.arange(size)
    table = 2 * np.cos(np.pi / size * (steps[:, None] + 0.5) * steps)
    if norm == "ortho":
        table *= np.where(steps == 0, np.sqrt(0.25 / size), np.sqrt(0.5 / size))
    return ops.matmul(input, ops.cast(table, str(np.dtype(str(input.dtype)))))


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any) -> Any:
    """Return the cepstral coefficients of logarithmic mel spectrograms."""
    size = int(log_mel_spectrograms.shape[-1])
    return ops.multiply(dct(log_mel_spectrograms), float(1 / np.sqrt(2.0 * size)))
