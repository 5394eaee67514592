"""Random numbers from seeds that can be saved: the same bits on every backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir import random as r
from ganglion.compiler.ir.arrays import iota
from ganglion.compiler.ir.graph import Value
from ganglion.variables import Variable, draw_seed, read


class SeedGenerator:
    """A seed and a counter that moves on with every draw.

    >>> SeedGenerator(7).state.numpy()
    array([7, 0], dtype=uint32)
    """

    def __init__(
        self, seed: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        if kwargs:
            raise TypeError(f"Unknown arguments: {', '.join(kwargs)}.")
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

    def next(self) -> Any:
        """Return the state for one draw and move the counter on."""
        now = read(self.state)
        self.state.assign(ops.add(now, np.array([0, 1], "uint32")))
        return now

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds this generator."""
        return {"seed": self.seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """Rebuild a generator from its configuration."""
        return cls(**config)


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(
            f"`seed` must be a whole number, a SeedGenerator or None, got {seed!r}."
        )
    return int(seed)


def _state(seed: Any) -> Any:
    if seed is None:
        seed = default_generator()
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if isinstance(seed, Value):  # a state that a generator has handed out
        return seed
    return read(np.array([_checked_seed(seed) % 2**32, 0], "uint32"))


_default: list[SeedGenerator] = []


def default_generator() -> SeedGenerator:
    """Return the generator behind draws without a seed, made when first needed."""
    if not _default:
        _default.append(SeedGenerator(name="default_seed_generator"))
    return _default[0]


def default_state() -> np.ndarray | None:
    """Return the state behind draws without a seed, None if there were none yet."""
    return _default[0].state.numpy() if _default else None


def set_default_state(state: np.ndarray) -> None:
    """Go on with draws without a seed where another run stopped."""
    default_generator().state.assign(state)


def forget_default_generator() -> None:
    """Draw a new seed for what has none (`set_random_seed`)."""
    _default.clear()


def _bits(shape: Any, dtype: Any, seed: Any) -> Any:
    sizes = tuple(int(n) for n in shape)
    if min(sizes, default=0) < 0:
        raise ValueError(f"A shape holds no negative sizes, got {sizes}.")
    kind = np.dtype(dtype or config.floatx()).name
    if np.dtype(kind).kind != "f":
        raise ValueError(
            f"Random floats need a float type, got {kind!r}; use `randint` for whole "
            "numbers, or cast what is drawn."
        )
    return r.random_uniform(_state(seed), shape=sizes, dtype=kind)


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
    return _bits(shape, dtype, seed) * (maxval - minval) + minval


@ops.op
def normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw from a normal distribution (Box and Muller's method)."""
    pair = _bits((2, *shape), dtype, seed)
    radius = ops.sqrt(-2.0 * ops.log(1.0 - pair[0]))
    return radius * ops.cos(2 * math.pi * pair[1]) * stddev + mean


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
    """Draw whole numbers from minval up to, not including, maxval."""
    if np.dtype(dtype or "int32").kind not in "iu":
        raise ValueError(
            f"`randint` draws whole numbers: `dtype` must be a type of those, got "
            f"{dtype!r}. Use `uniform` for floats."
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
    tries = normal((_TRIES, *shape), dtype=dtype, seed=seed)
    drawn = tries[0]
    for number in range(1, _TRIES):
        drawn = ops.where(ops.absolute(drawn) > 2.0, tries[number], drawn)
    return ops.clip(drawn, -2.0, 2.0) * stddev + mean


_TRIES = 6  # one draw in 20 is too far; six in a row are one in a hundred million


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
    order = r.shuffle(_state(seed), iota(size=rows, dtype="int32"), rows=rows)
    return ops.take(value, order, axis=axis)


def shuffled(seed: int, epoch: int, rows: int) -> np.ndarray:
    """Return the order in which `fit` visits the rows in an epoch.

    >>> shuffled(seed=1, epoch=0, rows=5).tolist()
    [1, 4, 0, 2, 3]
    """
    state = np.array([seed % 2**32, epoch], "uint32")
    return r.shuffle.meaning(state, np.arange(rows, dtype="int32"), rows=rows)
