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


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = (), dtype: Any = "float32"
) -> Any:
    """Return normal random numbers between two bounds."""
    low, high = (ops.erf(ops.cast(x, "float32") / 2**0.5) for x in (lower, upper))
    draws = random.uniform(tuple(shape), dtype=name_of(dtype), seed=_seed(key))
    return ops.clip(2**0.5 * ops.erfinv(low + draws * (high - low)), lower, upper)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = "float32") -> Any:
    """Return random numbers of gamma distributions."""
    sizes = np.shape(a) if shape is None else tuple(shape)
    return random.gamma(sizes, a, dtype=name_of(dtype), seed=_seed(key))


def exponential(key: Any, shape: Any = (), dtype: Any = "float32") -> Any:
    """Return random numbers of the exponential distribution."""
    return -ops.log1p(-uniform(key, shape, dtype))


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None
) -> Any:
    """Return rows, or numbers below one, drawn at random."""
    rows = ops.arange(a) if isinstance(a, int) else ops.convert_to_tensor(a)
    count, sizes = rows.shape[0], tuple(shape)
    if p is not None:
        if not replace:
            raise NotImplementedError(
                "jax.random.choice: `p` with `replace=False` is not supported; add "
                "Gumbel noise to the logarithms, and take `jax.lax.top_k`."
            )
        logits = ops.broadcast_to(ops.log(ops.convert_to_tensor(p)), (*sizes, count))
        return ops.take(rows, categorical(key, logits), axis=0)
    if replace:
        return ops.take(rows, randint(key, sizes, 0, count), axis=0)
    order = permutation(key, count)[: int(np.prod(sizes))]
    return ops.take(rows, ops.reshape(order, sizes), axis=0)


def permutation(key: Any, x: Any) -> Any:
    """Return rows, or the numbers up to one, in random order."""
    rows = ops.arange(x) if isinstance(x, int) else x
    return random.shuffle(rows, seed=_seed(key))
