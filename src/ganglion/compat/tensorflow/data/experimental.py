"""`tf.data.experimental`: older names of what `Dataset` does by itself.

Most are functions for `Dataset.apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion.compat.tensorflow.data.dataset import Dataset

Transformation = Callable[[Any], Any]


class AutoShardPolicy:
    """Policies of distributing data over machines; there is one machine."""

    AUTO, FILE, DATA, OFF, HINT = 0, 1, 2, -1, 3


def _applied(method: str) -> Callable[..., Transformation]:
    def transformation(*args: Any, **kwargs: Any) -> Transformation:
        return lambda dataset: getattr(dataset, method)(*args, **kwargs)

    transformation.__name__ = method
    transformation.__doc__ = f"Return a function for `apply`: `Dataset.{method}`."
    return transformation


unbatch = _applied("unbatch")
enumerate_dataset = _applied("enumerate")
bucket_by_sequence_length = _applied("bucket_by_sequence_length")
group_by_window = _applied("group_by_window")
rejection_resample = _applied("rejection_resample")
ignore_errors = _applied("ignore_errors")
unique = _applied("unique")
take_while = _applied("take_while")
scan = _applied("scan")


def assert_cardinality(expected_cardinality: Any) -> Transformation:
    """Return a function for `apply` that declares how many elements there are."""
    return lambda dataset: dataset._derived(dataset._start, int(expected_cardinality))


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Transformation:
    """Return a function for `apply` that shuffles, and repeats."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Transformation:
    """Return a function for `apply` that maps, and makes batches."""
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(
        batch_size, drop_remainder
    )


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: int,
    block_length: int = 1,
) -> Transformation:
    """Return a function for `apply` that interleaves data sets."""
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length)


def prefetch_to_device(device: Any, buffer_size: int | None = None) -> Transformation:
    """Return a function for `apply` that makes elements ahead."""
    return lambda dataset: dataset.prefetch(buffer_size or 1)


def get_single_element(dataset: Any) -> Any:
    """Return the only element of a data set."""
    return dataset.get_single_element()


def save(dataset: Any, path: Any, **kwargs: Any) -> None:
    """Write all elements of a data set into a folder."""
    dataset.save(path, **kwargs)


Counter = Dataset.counter
load = Dataset.load
sample_from_datasets = Dataset.sample_from_datasets
choose_from_datasets = Dataset.choose_from_datasets
