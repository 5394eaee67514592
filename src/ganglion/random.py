"""Random numbers from seeds that can be saved: the same bits on every backend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir import random as r
from ganglion.compiler.ir.arrays import iota
from ganglion.compiler.ir.graph import Value, is_short
from ganglion.dtypes import finfo, is_float_dtype, standardize_dtype
from ganglion.serialization import export
from ganglion.system import budget
from ganglion.variables import Variable, current_scope, draw_seed, read


@export("keras.random")
class SeedGenerator:
    """A seed and a counter that moves on with every draw.

    >>> SeedGenerator(7).state.numpy()
    array([7, 0], dtype=uint32)
    """

    def __init__(
        self, seed: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        if kwargs:
            raise ValueError(f"Unrecognized keyword arguments: {', '.join(kwargs)}.")
        seed = draw_seed() if seed is None else _checked_seed(seed)
        if seed < 0:
            raise ValueError(f"`seed` must not be negative, got {seed}.")
        self.name = name or "seed_generator"
        self.seed = seed
        self.state = Variable(
            np.array([seed % 2**32, 0]),
            dtype="uint32",
            trainable=False,
            name=f"{self.name}_state",
        )

    def next(self, ordered: bool = True) -> Any:
        """Return the state for a draw and advance the counter."""
        now = self.state.numpy() if current_scope() is None else read(self.state)
        if ordered:
            self.state.assign(ops.add(now, np.array([0, 1], "uint32")))
        else:
            self.state.assign((now + 1) * 5387 % 933199)  # Keras' sequence
        return now

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds this generator."""
        return {"seed": self.seed, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """Rebuild a generator from its configuration."""
        return cls(**config)


def _checked_seed(seed: Any, wanted: str = "an integer") -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(
            f"Argument `seed` must be {wanted} or None. Received: seed={seed!r}"
        )
    return int(seed)


def state_of(seed: Any) -> Any:
    """Return the state that a draw with this seed starts from, which moves on."""
    if seed is None:
        seed = default_generator()
    if isinstance(seed, SeedGenerator):
        return read(seed.next())
    if isinstance(seed, Value):  # a state that a generator has handed out
        return seed
    # Such a state outside of a step, or a key of `jax.random`.
    if isinstance(seed, np.ndarray) and seed.dtype == "uint32" and seed.shape == (2,):
        return read(seed)
    seed = _checked_seed(seed, "either an integer, a SeedGenerator")
    return read(np.array([seed % 2**32, 0], "uint32"))


_default: list[SeedGenerator] = []


def default_generator() -> SeedGenerator:
    """Return the generator behind draws without a seed, created at first use."""
    if not _default:
        _default.append(SeedGenerator(name="default_seed_generator"))
    return _default[0]


def default_state() -> np.ndarray | None:
    """Return the state behind draws without a seed, None if there were none yet."""
    return _default[0].state.numpy() if _default else None


def set_default_state(state: np.ndarray) -> None:
    """Continue draws without a seed where another run stopped."""
    default_generator().state.assign(state)


def is_default_state(variables: Iterable[Any]) -> bool:
    """Return whether the state behind draws without a seed is among some variables."""
    return bool(_default) and any(v is _default[0].state for v in variables)


def forget_default_generator() -> None:
    """Draw a new seed for what has none (`set_random_seed`)."""
    _default.clear()


def _bits(shape: Any, dtype: Any, seed: Any, name: str = "uniform") -> Any:
    sizes = tuple(int(n) for n in shape)
    if min(sizes, default=0) < 0:
        raise ValueError(f"A shape holds no negative sizes, got {sizes}.")
    kind = standardize_dtype(dtype)
    if not is_float_dtype(kind):
        raise ValueError(
            f"`keras.random.{name}` requires a floating point `dtype`. Received: "
            f"dtype={kind}. Use `randint` for integers, or cast what is drawn."
        )
    return r.random_uniform(state_of(seed), shape=sizes, dtype=_drawn_type(kind))


def _drawn_type(dtype: Any) -> str:
    """Return the type to draw numbers in: those of 16 bits are rounded at the end."""
    kind = standardize_dtype(dtype)
    return "float32" if is_short(np.dtype(kind)) else kind


def _evenly(shape: Any, dtype: Any, seed: Any) -> Any:
    """Draw from [0, 1); as few bits as a short float holds, so that 1 is not drawn."""
    bits, kind = _bits(shape, dtype, seed), standardize_dtype(dtype)
    if not is_short(np.dtype(kind)):
        return bits
    steps = 2.0 ** (finfo(kind).nmant + 1)
    return ops.cast(ops.floor(bits * steps) / steps, kind)


@ops.op
def uniform(
    shape: Any,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw floats evenly from a range.

    >>> uniform((2,), seed=1).shape
    (2,)
    """
    return _evenly(shape, dtype, seed) * (maxval - minval) + minval


@ops.op
def normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw from a normal distribution (Box and Muller's method)."""
    pair = _bits((2, *shape), dtype, seed, "normal")
    radius = ops.sqrt(-2.0 * ops.log(1.0 - pair[0]))
    drawn = radius * ops.cos(2 * math.pi * pair[1]) * stddev + mean
    return ops.cast(drawn, standardize_dtype(dtype))


@ops.op
def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Set a random share of the elements to zero and scale up the rest."""
    if isinstance(rate, (int, float)) and not 0 <= rate <= 1:
        raise ValueError(f"`rate` must lie between 0 and 1, got {rate!r}.")
    x = read(inputs)
    shape = x.shape
    if noise_shape is not None:
        sizes = zip(noise_shape, x.shape, strict=True)
        shape = tuple(n if size is None else size for size, n in sizes)
    is_kept = _bits(shape, x.dtype, seed) >= rate
    return ops.where(is_kept, x / (1.0 - rate), 0.0)


@ops.op
def randint(
    shape: Any, minval: int, maxval: int, dtype: Any = "int32", seed: Any = None
) -> Any:
    """Draw integers from minval up to, not including, maxval."""
    if np.dtype(dtype or "int32").kind not in "iu":
        raise ValueError(
            "`keras.random.randint` requires an integer `dtype`. Received: "
            f"dtype={dtype}. Use `uniform` for floats."
        )
    bounds_known = isinstance(minval, int) and isinstance(maxval, int)
    if bounds_known and maxval <= minval:
        raise ValueError(f"`randint` needs minval < maxval, got {minval} and {maxval}.")
    spread = ops.floor(_bits(shape, None, seed) * float(maxval - minval))
    return ops.cast(spread, dtype) + minval


@ops.op
def truncated_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw from a normal distribution, nothing further than two deviations."""
    tries = normal((_TRIES, *shape), dtype=_drawn_type(dtype), seed=seed)
    drawn = tries[0]
    for number in range(1, _TRIES):
        drawn = ops.where(ops.absolute(drawn) > 2.0, tries[number], drawn)
    drawn = ops.clip(drawn, -2.0, 2.0) * stddev + mean
    return ops.cast(drawn, standardize_dtype(dtype))


_FAR = 0x9E3779B9  # from one seed to another, of the second draw within a call
_TRIES = 6  # one draw in 20 is too far; six in a row are one in a hundred million


@ops.op
def gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Draw from gamma distributions of the shape `alpha` and the scale one.

    >>> bool(gamma((2,), 3.0, seed=1).min() > 0)
    True
    """
    drawn = ops.exp(_log_gamma(shape, alpha, dtype, state_of(seed)))
    return ops.cast(drawn, standardize_dtype(dtype))


@ops.op
def beta(shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Draw from beta distributions: parts of one.

    >>> bool(beta((2,), 0.5, 0.5, seed=1).max() <= 1)
    True
    """
    # A part of the sum of two gammas; by their logarithms, since both may be tiny.
    state = state_of(seed)
    first = _log_gamma(shape, alpha, dtype, state)
    second = _log_gamma(
        shape, beta, dtype, ops.add(state, np.array([_FAR, 0], "uint32"))
    )
    return ops.cast(ops.sigmoid(first - second), standardize_dtype(dtype))


def _log_gamma(shape: Any, alpha: Any, dtype: Any, state: Any) -> Any:
    """Draw logarithms of gammas, by Marsaglia's and Tsang's method.

    It rejects one draw in twenty; so many are made at once that one is good. Below one
    it is the gamma of the shape above, times a power of an even number.
    """
    kind = _drawn_type(dtype)
    wanted = ops.broadcast_to(ops.cast(alpha, kind), tuple(int(n) for n in shape))
    bits = _bits((3 * _TRIES + 1, *wanted.shape), kind, state)
    is_small = wanted < 1.0
    size = ops.where(is_small, wanted + 1.0, wanted) - 1.0 / 3.0
    drawn = ops.log(size)  # the middle of the distribution, if all were rejected
    for number in range(_TRIES):
        distance, angle, even = (bits[3 * number + place] for place in range(3))
        radius = ops.sqrt(-2.0 * ops.log(1.0 - distance))
        x = radius * ops.cos(2 * math.pi * angle)
        root = 1.0 + x / ops.sqrt(9.0 * size)
        cube = root * root * root
        log_cube = ops.log(ops.maximum(cube, 1e-30))
        bound = 0.5 * x * x + size * (1.0 - cube + log_cube)
        is_good = ops.logical_and(cube > 0.0, ops.log(1.0 - even) < bound)
        drawn = ops.where(is_good, ops.log(size) + log_cube, drawn)
    power = ops.log(1.0 - bits[3 * _TRIES]) / wanted
    return ops.where(is_small, drawn + power, drawn)


@ops.op
def binomial(
    shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None
) -> Any:
    """Draw how often a chance of `probabilities` comes true in `counts` tries.

    >>> bool(binomial((3,), 4, 0.5, seed=1).max() <= 4)
    True
    """
    if isinstance(counts, Value):
        raise ValueError(
            "`binomial` must know `counts` before a step is compiled: give numbers."
        )
    kind = _drawn_type(dtype)
    sizes = tuple(int(n) for n in shape)
    tries = np.broadcast_to(np.asarray(counts, "int64"), sizes)
    most = int(tries.max(initial=0))
    budget.take(8 * most * math.prod(sizes), f"{most:,} tries of a binomial draw")
    numbers = np.arange(most).reshape(-1, *[1] * len(sizes))
    is_hit = ops.logical_and(
        _bits((most, *sizes), kind, seed) < ops.cast(probabilities, kind),
        numbers < tries,
    )
    hits = ops.sum(ops.cast(is_hit, kind), axis=0)
    return ops.cast(hits, standardize_dtype(dtype))


@ops.op
def categorical(
    logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None
) -> Any:
    """Draw class numbers (rows, num_samples) by unnormalised log-probabilities."""
    if len(ops.shape(logits)) != 2:
        raise ValueError(
            f"`categorical` takes logits of shape (rows, classes), got "
            f"{ops.shape(logits)}."
        )
    scores = ops.log_softmax(logits)
    rows, classes = scores.shape
    noise = _bits((rows, int(num_samples), classes), scores.dtype, seed)
    # The largest of the scores with Gumbel noise falls as the probabilities say.
    noisy = ops.expand_dims(scores, 1) - ops.log(-ops.log(noise))
    return ops.cast(ops.argmax(noisy, axis=-1), dtype)


@ops.op
def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    """Put the rows along an axis into a random order."""
    value = read(x)
    rows = value.shape[axis]
    if rows < 2:
        return value
    order = r.shuffle(state_of(seed), iota(size=rows, dtype="int32"), rows=rows)
    return ops.take(value, order, axis=axis)


def shuffled(seed: int, epoch: int, rows: int) -> np.ndarray:
    """Return the order in which `fit` visits the rows in an epoch.

    >>> shuffled(seed=1, epoch=0, rows=5).tolist()
    [1, 4, 0, 2, 3]
    """
    state = np.array([seed % 2**32, epoch], "uint32")
    return r.shuffle.meaning(state, np.arange(rows, dtype="int32"), rows=rows)
