"""`tf.random.Generator` and stateless random functions, with Ganglion's own numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ganglion import random
from ganglion.compat.tensorflow import pictures
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.draws import lasting_seed, seed_of, uniform
from ganglion.random import SeedGenerator
from ganglion.tensors import as_tensor


class Generator:
    """Random numbers with a separate state.

    >>> Generator.from_seed(1).normal([2]).shape
    (2,)
    """

    def __init__(self, seed: int | None = None) -> None:
        drawn = int.from_bytes(os.urandom(4), "little") if seed is None else int(seed)
        self._seeds = SeedGenerator(drawn % 2**31)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """Return a generator that starts at a seed."""
        return cls(int(np.ravel(seed)[0]))

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """Return a generator that starts anywhere."""
        return cls()

    def reset_from_seed(self, seed: Any) -> None:
        """Restart at a seed."""
        self._seeds = SeedGenerator(int(np.ravel(seed)[0]) % 2**31)

    def split(self, count: int = 1) -> list[Generator]:
        """Return generators with other numbers than this one."""
        return [Generator(int(seed)) for seed in np.asarray(self.make_seeds(count))[0]]

    def make_seeds(self, count: int = 1) -> Any:
        """Return seeds for the stateless functions, one in a column."""
        shape = (2, int(count))
        return random.randint(shape, 0, 2**31 - 1, dtype="int64", seed=self._seeds)

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32"
    ) -> Any:
        """Return normal random numbers."""
        return random.normal(shape, mean, stddev, dtype=str(dtype), seed=self._seeds)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32"
    ) -> Any:
        """Return normal random numbers within two deviations of their mean."""
        return random.truncated_normal(
            shape, mean, stddev, dtype=str(dtype), seed=self._seeds
        )

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32"
    ) -> Any:
        """Return random numbers, or random integers below a bound."""
        return uniform(shape, minval, maxval, dtype, self._seeds)


_shared: list[Generator] = []


def get_global_generator() -> Generator:
    """Return the generator that all share."""
    if not _shared:
        _shared.append(Generator())
    return _shared[0]


def stateless_split(seed: Any, num: int = 2, alg: Any = None) -> Any:
    """Return seeds that depend on a seed alone, one in a row."""
    draws = np.random.default_rng(seed_of(seed))
    return as_tensor(draws.integers(0, 2**31, (int(num), 2), np.int32))


def stateless_fold_in(seed: Any, data: Any, alg: Any = None) -> Any:
    """Return a seed that depends on a seed and a number."""
    first = seed_of(seed)
    draws = np.random.default_rng([first, int(data) % 2**31])
    return as_tensor(draws.integers(0, 2**31, 2, np.int32))


class Candidates(NamedTuple):
    """Classes that were drawn, and how often each is expected among them."""

    sampled_candidates: Any
    true_expected_count: Any
    sampled_expected_count: Any


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Draw classes, small numbers more often than large ones (Zipf's law)."""
    classes = np.arange(int(range_max))
    chances = np.log((classes + 2) / (classes + 1)) / np.log(range_max + 1)
    state: Any = np.random.randint(2**31)
    if seed is not None:
        state = np.asarray(lasting_seed(int(seed)).next())
    draws = np.random.default_rng(state)
    chosen = draws.choice(
        classes, int(num_sampled), replace=not unique, p=chances / chances.sum()
    )
    truth = known(true_classes, "random.log_uniform_candidate_sampler")

    def expected(of: np.ndarray) -> Any:
        share = chances[of]
        counts = 1 - (1 - share) ** num_sampled if unique else share * num_sampled
        return as_tensor(counts.astype(np.float32))

    return Candidates(
        as_tensor(chosen.astype(np.int64)), expected(truth), expected(chosen)
    )


def _stateless(function: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(image: Any, *args: Any, seed: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        return function(image, *args, **kwargs, seed=seed_of(seed))

    drawn.__doc__ = f"{function.__doc__} By a seed alone."
    return drawn


def _positional_seed(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a stateless function that takes its seed behind ``count`` arguments."""
    by_keyword = _stateless(function)

    def drawn(*args: Any, **kwargs: Any) -> Any:
        if len(args) > count:
            args, kwargs = args[:count], {**kwargs, "seed": args[count]}
        return by_keyword(*args, **kwargs)

    drawn.__doc__ = by_keyword.__doc__
    return drawn


stateless_random_brightness = _positional_seed(pictures.random_brightness, 2)
stateless_random_contrast = _positional_seed(pictures.random_contrast, 3)
stateless_random_crop = _positional_seed(pictures.random_crop, 2)
stateless_random_flip_left_right = _positional_seed(pictures.random_flip_left_right, 1)
stateless_random_flip_up_down = _positional_seed(pictures.random_flip_up_down, 1)
stateless_random_hue = _positional_seed(pictures.random_hue, 2)
stateless_random_saturation = _positional_seed(pictures.random_saturation, 3)
