"""`tf.signal`, on the transforms of `ganglion.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.arrays import known
from ganglion.tensors import as_tensor


def make_complex(real: Any, imag: Any) -> Any:
    """Return complex numbers of their two parts."""
    name = "complex"
    parts = known(real, name), known(imag, name)
    kind = np.complex128 if parts[0].dtype == np.float64 else np.complex64
    return as_tensor((parts[0] + 1j * parts[1]).astype(kind))


def _host_transform(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform that NumPy computes, in TensorFlow's types."""

    def transform(input: Any, *args: Any) -> Any:  # noqa: A002 (TensorFlow's name)
        numbers = known(input, f"signal.{name}")
        is_double = numbers.dtype.itemsize // (1 + (numbers.dtype.kind == "c")) > 4
        result = function(numbers, *args)
        single = np.complex64 if result.dtype.kind == "c" else np.float32
        return as_tensor(result if is_double else result.astype(single))

    transform.__name__ = name
    transform.__doc__ = f"Return NumPy's `{name}`, along the last axes."
    return transform


fft = _host_transform("fft", np.fft.fft)
ifft = _host_transform("ifft", np.fft.ifft)
fft2d = _host_transform("fft2d", np.fft.fft2)
ifft2d = _host_transform("ifft2d", np.fft.ifft2)
fftshift = _host_transform("fftshift", np.fft.fftshift)
ifftshift = _host_transform("ifftshift", np.fft.ifftshift)


def rfft(input_tensor: Any, fft_length: Any = None) -> Any:
    """Return the half of a transform that real numbers have."""
    count = None if fft_length is None else int(np.ravel(fft_length)[0])
    return _host_transform("rfft", np.fft.rfft)(input_tensor, count)


def irfft(input_tensor: Any, fft_length: Any = None) -> Any:
    """Return the real numbers behind half of a transform."""
    count = None if fft_length is None else int(np.ravel(fft_length)[0])
    return _host_transform("irfft", np.fft.irfft)(input_tensor, count)


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
    """Return overlapping parts of signals, on an axis of their own."""
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
