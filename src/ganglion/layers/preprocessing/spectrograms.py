"""Spectrograms: how much of each frequency a signal has, piece by piece."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ganglion import config, initializers, ops, signal_windows
from ganglion.layers.base import InputSpec, Layer
from ganglion.serialization import export

__all__ = ["MelSpectrogram", "STFTSpectrogram"]

# The mel scale of the Hidden Markov Model Toolkit.
MEL_BREAK, MEL_SLOPE = 700.0, 1127.0


def _in_mel(frequency: Any) -> Any:
    return MEL_SLOPE * np.log1p(np.asarray(frequency, "float64") / MEL_BREAK)


@export("keras.layers")
class MelSpectrogram(Layer):
    """A spectrogram in bands as wide as the ear's, on request in decibels.

    >>> import numpy as np
    >>> MelSpectrogram(num_mel_bins=8)(np.zeros((2, 16000), "float32")).shape
    (2, 8, 32)
    """

    def __init__(
        self,
        fft_length: int = 2048,
        sequence_stride: int = 512,
        sequence_length: int | None = None,
        window: str = "hann",
        sampling_rate: int = 16000,
        num_mel_bins: int = 128,
        min_freq: float = 20.0,
        max_freq: float | None = None,
        power_to_db: bool = True,
        top_db: float = 80.0,
        mag_exp: float = 2.0,
        min_power: float = 1e-10,
        ref_power: float = 1.0,
        **kwargs: Any,
    ) -> None:
        sequence_length = sequence_length or fft_length
        if fft_length < sequence_length:
            raise ValueError(
                "`fft_length` must be greater than or equal to `sequence_length`, got "
                f"{fft_length} and {sequence_length}."
            )
        self.fft_length, self.sequence_stride = fft_length, sequence_stride
        self.sequence_length, self.window = sequence_length, window
        self.sampling_rate, self.num_mel_bins = sampling_rate, num_mel_bins
        self.min_freq, self.max_freq = min_freq, max_freq or int(sampling_rate / 2)
        self.power_to_db, self.top_db, self.mag_exp = power_to_db, top_db, mag_exp
        self.min_power, self.ref_power = min_power, ref_power
        super().__init__(**kwargs)

    def call(self, inputs: Any) -> Any:
        """Return the spectrogram: (..., bands, pieces)."""
        wide = self.compute_dtype in ("float32", "float64")
        signal = ops.cast(inputs, self.compute_dtype if wide else "float32")
        real, imaginary = ops.stft(
            signal,
            self.sequence_length,
            self.sequence_stride,
            self.fft_length,
            self.window,
        )
        size = ops.sqrt(ops.square(real) + ops.square(imaginary))
        bands = self.linear_to_mel_weight_matrix(
            self.num_mel_bins,
            self.fft_length // 2 + 1,
            self.sampling_rate,
            self.min_freq,
            self.max_freq,
        )
        power = ops.power(size, self.mag_exp)
        result = ops.matmul(power, bands.astype(np.dtype(power.dtype)))
        if self.power_to_db:
            result = self._in_decibels(result)
        return ops.cast(ops.swapaxes(result, -1, -2), self.compute_dtype)

    def _in_decibels(self, power: Any) -> Any:
        reference = math.log10(max(abs(self.ref_power), self.min_power))
        decibels = 10.0 * (ops.log10(ops.maximum(power, self.min_power)) - reference)
        return ops.maximum(decibels, ops.max(decibels) - self.top_db)

    def linear_to_mel_weight_matrix(
        self,
        num_mel_bins: int = 20,
        num_spectrogram_bins: int = 129,
        sampling_rate: float = 8000,
        lower_edge_hertz: float = 125.0,
        upper_edge_hertz: float = 3800.0,
        dtype: str = "float32",
    ) -> np.ndarray:
        """Return the weight of each frequency in each band: triangles that overlap."""
        frequencies = np.linspace(0, sampling_rate / 2, num_spectrogram_bins)[1:]
        bins = _in_mel(frequencies)[:, None]
        edges = np.linspace(
            _in_mel(lower_edge_hertz), _in_mel(upper_edge_hertz), num_mel_bins + 2
        )
        lower, center, upper = edges[:-2], edges[1:-1], edges[2:]
        rising = (bins - lower) / (center - lower)
        falling = (upper - bins) / (upper - center)
        weights = np.maximum(0.0, np.minimum(rising, falling))
        return np.pad(weights, [(1, 0), (0, 0)]).astype(dtype)


_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


@export("keras.layers")
class STFTSpectrogram(Layer):
    """A spectrogram by convolution with waves, whose kernels may be trained.

    >>> import numpy as np
    >>> layer = STFTSpectrogram(frame_length=64)
    >>> layer(np.zeros((2, 1000, 1), "float32")).shape
    (2, 30, 33)
    """

    def __init__(
        self,
        mode: str = "log",
        frame_length: int = 256,
        frame_step: int | None = None,
        fft_length: int | None = None,
        window: Any = "hann",
        periodic: bool = False,
        scaling: str | None = "density",
        padding: str = "valid",
        expand_dims: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        if frame_step is not None and not 1 <= frame_step <= frame_length:
            raise ValueError(
                "`frame_step` should be positive and not greater than `frame_length`, "
                f"got frame_step={frame_step}, frame_length={frame_length}."
            )
        if fft_length is not None and fft_length < frame_length:
            raise ValueError(
                "`fft_length` should be not less than `frame_length`, got "
                f"fft_length={fft_length}, frame_length={frame_length}."
            )
        if fft_length is not None and fft_length & (fft_length - 1):
            warnings.warn(
                f"`fft_length` is best a power of two, not {fft_length}.", stacklevel=2
            )
        for name, value, known in (
            ("mode", mode, _MODES),
            ("scaling", scaling, (None, "density", "spectrum")),
            ("padding", padding, ("valid", "same")),
        ):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {known}, got {value!r}.")
        if isinstance(window, str):
            signal_windows.window(window, 1)  # an unknown name is refused here
        super().__init__(**kwargs)
        self.mode, self.frame_length, self.frame_step = mode, frame_length, frame_step
        self.fft_length, self.window, self.periodic = fft_length, window, periodic
        self.scaling, self.padding, self.expand_dims = scaling, padding, expand_dims
        self.data_format = data_format or config.image_data_format()
        self.input_spec = InputSpec(ndim=3)

    @property
    def _frequencies(self) -> int:
        length = self.fft_length or 2 ** math.ceil(math.log2(self.frame_length))
        return length // 2 + 1

    def build(self, input_shape: Any) -> None:
        """Make the kernels that the mode needs."""
        for side, unused in (("real", "imag"), ("imag", "real")):
            if self.mode != unused:
                kernel = self.add_weight(
                    name=f"{side}_kernel",
                    shape=(self.frame_length, 1, self._frequencies),
                    initializer=initializers.STFT(
                        side, self.window, self.scaling, self.periodic
                    ),
                )
                setattr(self, f"{side}_kernel", kernel)

    def call(self, inputs: Any) -> Any:
        """Return the spectrogram of every channel."""
        if np.dtype(inputs.dtype).name not in ("float16", "float32", "float64"):
            raise TypeError(
                f"A spectrogram is of float16, float32 or float64, not {inputs.dtype}."
            )
        first = self.data_format == "channels_first"
        signals = inputs if first else ops.transpose(inputs, (0, 2, 1))
        sides = {
            side: self._convolved(signals, getattr(self, f"{side}_kernel"))
            for side in ("real", "imag")
            if hasattr(self, f"{side}_kernel")
        }
        return self._arranged(self._of_mode(**sides))

    def _convolved(self, signals: Any, kernel: Any) -> Any:
        """Return (batch, channels, pieces, frequencies)."""
        channels, length = signals.shape[1:]
        result = ops.conv(
            ops.reshape(signals, (-1, length, 1)),
            ops.cast(kernel, signals.dtype),
            strides=self.frame_step or self.frame_length // 2,
            padding=self.padding,
            data_format="channels_last",
        )
        return ops.reshape(result, (-1, channels, *result.shape[1:]))

    def _of_mode(self, real: Any = None, imag: Any = None) -> Any:
        if self.mode in ("real", "imag"):
            return real if imag is None else imag
        if self.mode == "angle":
            return ops.arctan2(imag, real)
        if self.mode == "stft":
            return ops.concatenate([real, imag], axis=-1)
        power = ops.square(real) + ops.square(imag)
        if self.mode == "psd":  # both halves of the spectrum, but for its ends
            counts = np.full(self._frequencies, 2.0)
            counts[[0, -1]] = 1.0
            return power * counts.astype(np.dtype(power.dtype))
        least = config.epsilon()
        size = ops.sqrt(ops.maximum(power, least))
        return size if self.mode == "magnitude" else ops.log(ops.maximum(size, least))

    def _arranged(self, x: Any) -> Any:
        first = self.data_format == "channels_first"
        if self.expand_dims:
            return x if first else ops.transpose(x, (0, 2, 3, 1))
        _, channels, pieces, frequencies = x.shape
        x = ops.transpose(x, (0, 1, 3, 2))
        x = ops.reshape(x, (-1, channels * frequencies, pieces))
        return x if first else ops.transpose(x, (0, 2, 1))
