"""`tf.random`: functions that draw, and seeds whose draws differ from call to call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.compat.tensorflow.arrays import known
from ganglion.tensors import as_tensor


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
) -> Any:
    """Return random numbers, or random integers below a bound."""
    if str(dtype).startswith(("int", "uint")):
        if maxval is None:
            raise ValueError("tf.random.uniform of integers needs `maxval`.")
        return random.randint(shape, minval, maxval, dtype=str(dtype), seed=seed)
    top = 1 if maxval is None else maxval
    return random.uniform(shape, minval, top, dtype=str(dtype), seed=seed)


def gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: Any = None
) -> Any:
    """Return random numbers of a gamma distribution, a shape of them for each alpha."""
    sizes = (*known(shape, "random.gamma").tolist(), *np.shape(alpha))
    draws = random.gamma(sizes, alpha, dtype=str(dtype), seed=seed)
    return draws if beta is None else ops.divide(draws, beta)


_lasting_seeds: dict[int, random.SeedGenerator] = {}


def lasting_seed(seed: int) -> random.SeedGenerator:
    """Return what draws other numbers at every call, as a seed does in TensorFlow."""
    if seed not in _lasting_seeds:
        _lasting_seeds[seed] = random.SeedGenerator(seed % 2**31)
    return _lasting_seeds[seed]


def forget_seeds() -> None:
    """Restart the random numbers of every seed."""
    _lasting_seeds.clear()


def seed_of(seed: Any) -> int:
    """Return one number for TensorFlow's two."""
    first, second = known(seed, "random.stateless").tolist()
    return (int(first) * 0x9E3779B1 + int(second)) % 2**31


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Return random numbers that depend on a seed alone."""
    return uniform(shape, minval, maxval, dtype, seed_of(seed))


def poisson(shape: Any, lam: Any, dtype: Any = "float32", seed: Any = None) -> Any:
    """Return counts of events, `shape` of them for each rate."""
    rates = known(lam, "random.poisson")
    sizes = (*np.asarray(shape).tolist(), *rates.shape)
    start = random.randint((), 0, 2**31 - 1, seed=seed)
    counts = np.random.default_rng(int(start)).poisson(rates, sizes)
    return as_tensor(counts.astype(str(dtype)))


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
) -> Any:
    """Return normal random numbers that depend on a seed alone."""
    return random.normal(shape, mean, stddev, dtype=str(dtype), seed=seed_of(seed))
