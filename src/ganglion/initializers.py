"""Initializers: where weights start. Each draws from NumPy's Philox by its own seed."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ganglion import config, signal_windows
from ganglion.dtypes import is_float_dtype
from ganglion.random import SeedGenerator
from ganglion.serialization import (
    Configured,
    custom_object_scope,
    export,
    resolve,
    serialize_keras_object,
)
from ganglion.variables import draw_seed, register_initializers

Shape = tuple[int, ...]


class Initializer(Configured):
    """Base class: an object that makes an array of a shape and type.

    >>> class Ramp(Initializer):
    ...     def __call__(self, shape, dtype=None):
    ...         return np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    >>> Ramp()((2, 2))
    array([[0, 1],
           [2, 3]])
    """

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        """Return the first value of a weight."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `__call__(shape, dtype=None)`."
        )

    def clone(self) -> Any:
        """Return an equal initializer."""
        return self.from_config(self.get_config())


def _kind(dtype: Any) -> np.dtype:
    return np.dtype(dtype or config.floatx())


def _float_kind(dtype: Any) -> np.dtype:
    """Return a float type: rounded to integers, most of what is drawn is 0."""
    kind = _kind(dtype)
    if not is_float_dtype(kind):
        raise ValueError(
            f"Random initializers draw floats: `dtype` must be a float type, got "
            f"{kind.name!r}. Use 'zeros', 'ones' or a constant for integers."
        )
    return kind


@export("keras.initializers", "zeros", "zero")
class Zeros(Initializer):
    """All zeros.

    >>> Zeros()((2,))
    array([0., 0.], dtype=float32)
    """

    def __init__(self) -> None:
        pass

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        return np.zeros(shape, _kind(dtype))


@export("keras.initializers", "ones", "one")
class Ones(Initializer):
    """All ones.

    >>> Ones()((2,))
    array([1., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        pass

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        return np.ones(shape, _kind(dtype))


@export("keras.initializers", "constant")
class Constant(Initializer):
    """One number everywhere, or a given array.

    >>> Constant(0.5)((2,))
    array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value
        self._shape: Shape | None = None  # the only one that this makes

    @classmethod
    def exactly(cls, array: np.ndarray) -> Constant:
        """Return an initializer for this very array, of no other shape."""
        constant = cls(array)
        constant._shape = array.shape
        return constant

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        if self._shape is not None and tuple(shape) != self._shape:
            raise ValueError(
                f"Expected `shape` to be {self._shape} for direct tensor as "
                f"initializer. Received shape={tuple(shape)}"
            )
        return np.broadcast_to(np.asarray(self.value), shape).astype(_kind(dtype))

    def get_config(self) -> dict[str, Any]:
        return {"value": serialize_keras_object(self.value)}


@export("keras.initializers", "identity", "IdentityInitializer")
class Identity(Initializer):
    """The identity matrix, times a gain.

    >>> Identity()((2, 2))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        if len(shape) != 2:
            raise ValueError(f"Identity makes matrices, not arrays of shape {shape}.")
        return (self.gain * np.eye(*shape)).astype(_kind(dtype))


class _Random(Initializer):
    """An initializer with a seed: an equal seed draws the same numbers every time."""

    seed: Any

    def _set_seed(self, seed: Any) -> None:
        if seed is not None and not isinstance(seed, (int, np.integer, SeedGenerator)):
            raise ValueError(
                "`seed` must be an integer, a SeedGenerator or None. Received: "
                f"seed={seed!r}"
            )
        self._given_seed = seed
        self.seed = draw_seed() if seed is None else seed

    def _generator(self) -> np.random.Generator:
        if isinstance(self.seed, SeedGenerator):
            words = self.seed.state.numpy().tolist()
            self.seed.next()
            return np.random.Generator(np.random.Philox(words))
        return np.random.Generator(np.random.Philox(int(self.seed)))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; a seed that was drawn is None again."""
        config = super().get_config()
        config["seed"] = serialize_keras_object(self._given_seed)
        return config

    def _uniform(self, shape: Shape, low: float, high: float, dtype: Any) -> np.ndarray:
        return self._generator().uniform(low, high, shape).astype(_float_kind(dtype))

    def _truncated(
        self, shape: Shape, mean: float, stddev: float, dtype: Any
    ) -> np.ndarray:
        """Draw a normal distribution, again and again outside of two deviations."""
        generator = self._generator()
        drawn = generator.standard_normal(shape)
        outside = np.abs(drawn) > 2
        while outside.any():
            drawn[outside] = generator.standard_normal(int(outside.sum()))
            outside = np.abs(drawn) > 2
        return (drawn * stddev + mean).astype(_float_kind(dtype))


@export("keras.initializers", "random_uniform", "uniform")
class RandomUniform(_Random):
    """Numbers spread evenly over a range.

    >>> import numpy as np
    >>> values = RandomUniform(-1.0, 1.0, seed=1)((64, 256))
    >>> values.shape, round(float(np.std(values)), 2)
    ((64, 256), 0.58)
    """

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None
    ) -> None:
        self.minval, self.maxval = minval, maxval
        self._set_seed(seed)

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        return self._uniform(shape, self.minval, self.maxval, dtype)


class _Normal(_Random):
    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None
    ) -> None:
        self.mean, self.stddev = mean, stddev
        self._set_seed(seed)


@export("keras.initializers", "random_normal", "normal")
class RandomNormal(_Normal):
    """Numbers from a normal distribution.

    >>> import numpy as np
    >>> values = RandomNormal(0.0, 1.0, seed=1)((64, 256))
    >>> values.shape, round(float(np.std(values)), 2)
    ((64, 256), 1.0)
    """

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        drawn = self._generator().normal(self.mean, self.stddev, shape)
        return drawn.astype(_float_kind(dtype))


@export("keras.initializers", "truncated_normal")
class TruncatedNormal(_Normal):
    """Normal numbers, none further than two deviations from the mean.

    >>> import numpy as np
    >>> values = TruncatedNormal(0.0, 1.0, seed=1)((64, 256))
    >>> values.shape, round(float(np.std(values)), 2)
    ((64, 256), 0.88)
    """

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        return self._truncated(shape, self.mean, self.stddev, dtype)


def compute_fans(
    shape: Shape, input_axes: Any = None, output_axes: Any = None
) -> tuple[int, int]:
    """Return how many inputs and outputs an element of a kernel connects.

    For other kernels than those of Keras' layers, say which axes are which.

    >>> compute_fans((3, 3, 16, 32))
    (144, 288)
    """
    if input_axes is not None and output_axes is not None:
        counts = [
            math.prod(shape[i] for i in axes) for axes in (input_axes, output_axes)
        ]
        return counts[0], counts[1]
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[:-2])
    return int(shape[-2] * field), int(shape[-1] * field)


_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("truncated_normal", "untruncated_normal", "uniform")
# The deviation of a normal distribution cut at two deviations.
_CUT = 0.87962566103423978


@export("keras.initializers", "variance_scaling")
class VarianceScaling(_Random):
    """Numbers whose variance fits the number of connections.

    >>> import numpy as np
    >>> values = VarianceScaling(2.0, "fan_in", "normal", seed=1)((64, 256))
    >>> values.shape, round(float(np.std(values)), 2)
    ((64, 256), 0.18)
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Any = None,
        output_axes: Any = None,
    ) -> None:
        if scale <= 0:
            raise ValueError(
                f"Argument `scale` must be positive float. Received: scale={scale}"
            )
        distribution = distribution.lower()
        if distribution == "normal":
            distribution = "truncated_normal"
        if mode not in _MODES:
            raise ValueError(
                f"Invalid `mode` argument: {mode!r}. Use one of {', '.join(_MODES)}."
            )
        if distribution not in _DISTRIBUTIONS:
            raise ValueError(
                f"Invalid `distribution` argument: {distribution!r}. Use one of "
                f"{', '.join(_DISTRIBUTIONS)}."
            )
        self.scale, self.mode, self.distribution = scale, mode, distribution
        self.input_axes, self.output_axes = input_axes, output_axes
        self._set_seed(seed)

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = self.scale / max(1.0, fans[self.mode])
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return self._uniform(shape, -limit, limit, dtype)
        deviation = math.sqrt(variance)
        if self.distribution == "truncated_normal":
            return self._truncated(shape, 0.0, deviation / _CUT, dtype)
        return self._generator().normal(0, deviation, shape).astype(_float_kind(dtype))


def _scaled(name: str, scale: float, mode: str, distribution: str, doc: str) -> Any:
    def init(
        self: Any, seed: Any = None, input_axes: Any = None, output_axes: Any = None
    ) -> None:
        axes = (input_axes, output_axes)
        VarianceScaling.__init__(self, scale, mode, distribution, seed, *axes)

    alias = re.sub("(.)([A-Z])", r"\1_\2", name).lower()
    example = f">>> {name}(seed=1)((64, 256)).shape\n    (64, 256)"
    members = {
        "__init__": init,
        "__doc__": f"{doc}\n\n    {example}\n    ",
        "__module__": __name__,
    }
    return export("keras.initializers", alias)(type(name, (VarianceScaling,), members))


GlorotUniform = _scaled(
    "GlorotUniform", 1.0, "fan_avg", "uniform", "Uniform in ±sqrt(6 / (in + out))."
)
GlorotNormal = _scaled(
    "GlorotNormal", 1.0, "fan_avg", "truncated_normal", "Variance 2 / (in + out)."
)
HeNormal = _scaled("HeNormal", 2.0, "fan_in", "truncated_normal", "Variance 2 / in.")
HeUniform = _scaled("HeUniform", 2.0, "fan_in", "uniform", "Uniform ±sqrt(6 / in).")
LecunNormal = _scaled(
    "LecunNormal", 1.0, "fan_in", "truncated_normal", "Variance 1 / in."
)
LecunUniform = _scaled(
    "LecunUniform", 1.0, "fan_in", "uniform", "Uniform in ±sqrt(3 / in)."
)


@export("keras.initializers", "orthogonal", "OrthogonalInitializer")
class Orthogonal(_Random):
    """A matrix with orthonormal rows or columns, times a gain.

    >>> import numpy as np
    >>> w = Orthogonal(seed=1)((3, 3))
    >>> bool(np.allclose(w.T @ w, np.eye(3), atol=1e-6))
    True
    """

    def __init__(self, gain: float = 1.0, seed: Any = None) -> None:
        self.gain = gain
        self._set_seed(seed)

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        if len(shape) < 2:
            raise ValueError(f"Orthogonal needs at least two axes, got {shape}.")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        tall = (max(rows, columns), min(rows, columns))
        q, r = np.linalg.qr(self._generator().standard_normal(tall))
        q *= np.sign(np.diag(r))  # makes the draw uniform over all such matrices
        q = q.T if rows < columns else q
        return (self.gain * q.reshape(shape)).astype(_float_kind(dtype))


@export("keras.initializers", "stft", "STFTInitializer")
class STFT(Initializer):
    """Kernels of convolutions that compute a short-time Fourier transform.

    Their shape is (frame, 1, frequencies): the first half of an even number of
    frequencies, and the one in the middle.

    >>> STFT("real")((8, 1, 6)).shape
    (8, 1, 6)
    """

    def __init__(
        self,
        side: str = "real",
        window: Any = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ) -> None:
        if side not in ("real", "imag"):
            raise ValueError(f"`side` must be 'real' or 'imag', got {side!r}.")
        if scaling not in (None, "density", "spectrum"):
            raise ValueError(
                f"`scaling` must be None, 'density' or 'spectrum', got {scaling!r}."
            )
        if isinstance(window, str):
            signal_windows.window(window, 1)  # an unknown name is refused here
        self.side, self.window = side, window
        self.scaling, self.periodic = scaling, periodic

    def __call__(self, shape: Shape, dtype: Any = None) -> np.ndarray:
        length, _, frequencies = shape
        turns = np.arange(frequencies) / max((frequencies - 1) * 2, 1)
        angles = -2 * np.pi * np.arange(length)[:, None, None] * turns
        kernel = np.cos(angles) if self.side == "real" else np.sin(angles)
        if self.window is not None:
            kernel = kernel * self._scaled_window(length)[:, None, None]
        return kernel.astype(_kind(dtype))

    def _scaled_window(self, length: int) -> np.ndarray:
        values = self.window
        if isinstance(values, str):
            values = signal_windows.window(values, length, self.periodic)
        values = np.asarray(values, "float64")
        if values.shape != (length,):
            raise ValueError(
                f"`window` must have {length} values, one for each step of a frame, "
                f"got the shape {values.shape}."
            )
        if self.scaling == "density":
            return values / np.sqrt(np.sum(values**2))
        return values / np.sum(np.abs(values)) if self.scaling else values


zeros, ones, constant = Zeros, Ones, Constant
random_uniform, random_normal = RandomUniform, RandomNormal
truncated_normal, variance_scaling = TruncatedNormal, VarianceScaling
glorot_uniform, glorot_normal = GlorotUniform, GlorotNormal
he_uniform, he_normal = HeUniform, HeNormal
lecun_uniform, lecun_normal = LecunUniform, LecunNormal
identity, orthogonal = Identity, Orthogonal
IdentityInitializer, OrthogonalInitializer = Identity, Orthogonal
stft = STFTInitializer = STFT


def get(identifier: Any) -> Any:
    """Return the initializer that a name, configuration or object means.

    >>> type(get("he_normal")).__name__
    'HeNormal'
    """
    if isinstance(identifier, np.ndarray):
        return Constant.exactly(identifier)
    return resolve("keras.initializers", identifier, "initializer")


register_initializers(get)


def serialize(initializer: Any) -> Any:
    """Return plain data that rebuilds an initializer."""
    return serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the initializer that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(config)
