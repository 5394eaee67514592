"""`jax.random`: numbers that depend only on a key; Ganglion's own, not JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.compat.jax.functions import name_of
from ganglion.tensors import as_tensor


def prng_key(seed: Any) -> Any:
    """Return the key of a seed."""
    return as_tensor(np.array([0, int(seed) % 2**32], np.uint32))


def split(key: Any, num: int = 2) -> Any:
    """Return keys derived from a key, each another one."""
    draws = np.random.default_rng(_numbers(key))
    return as_tensor(draws.integers(0, 2**32, (int(num), 2), np.uint32))


def fold_in(key: Any, data: Any) -> Any:
    """Return a key derived from a key and a number."""
    draws = np.random.default_rng([*_numbers(key), int(data) % 2**32])
    return as_tensor(draws.integers(0, 2**32, 2, np.uint32))


def _numbers(key: Any) -> list[int]:
    return [int(part) for part in key]


def _seed(key: Any) -> int:
    return int(np.random.default_rng(_numbers(key)).integers(2**31))


def normal(key: Any, shape: Any = (), dtype: Any = "float32") -> Any:
    """Return normal random numbers."""
    return random.normal(tuple(shape), dtype=name_of(dtype), seed=_seed(key))


def uniform(
    key: Any,
    shape: Any = (),
    dtype: Any = "float32",
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Any:
    """Return random numbers between two bounds."""
    return random.uniform(
        tuple(shape), minval, maxval, dtype=name_of(dtype), seed=_seed(key)
    )


def randint(
    key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = "int32"
) -> Any:
    """Return random integers."""
    return random.randint(
        tuple(shape), minval, maxval, dtype=name_of(dtype), seed=_seed(key)
    )


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Return random truth values, true with a probability."""
    sizes = np.shape(p) if shape is None else tuple(shape)
    return ops.less(random.uniform(sizes, seed=_seed(key)), p)


def categorical(key: Any, logits: Any, axis: int = -1) -> Any:
    """Return classes drawn by their logits, by Gumbel's trick."""
    draws = random.uniform(tuple(logits.shape), 1e-7, 1.0 - 1e-7, seed=_seed(key))
    return ops.argmax(logits - ops.log(-ops.log(draws)), axis=axis)


def permutation(key: Any, x: Any) -> Any:
    """Return rows, or the numbers up to one, in random order."""
    rows = ops.arange(x) if isinstance(x, int) else x
    return random.shuffle(rows, seed=_seed(key))
