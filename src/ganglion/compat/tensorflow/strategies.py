"""`tf.distribute` on one device: strategies with one replica.

TensorFlow's strategies do the same on a machine with one device; those for several
machines or TPUs are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ganglion import ops


class ReduceOp:
    """Methods of combining the values of replicas."""

    SUM, MEAN = "SUM", "MEAN"


class Strategy:
    """A strategy with one replica: blocks and functions just run."""

    num_replicas_in_sync = 1

    def __init__(self, device: Any = None) -> None:
        self._device = device

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Run a block; its variables have one copy."""
        yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        options: Any = None,
    ) -> Any:
        """Call a function for the one replica."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """Return the value of the one replica, summed or averaged along an axis."""
        if axis is None:
            return value
        join = ops.mean if str(reduce_op).upper().endswith("MEAN") else ops.sum
        return join(value, axis)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Return the data set: one replica sees all of it."""
        return dataset

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[Any], Any], options: Any = None
    ) -> Any:
        """Return the data set that a function makes for the one worker."""
        return dataset_fn(InputContext())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the values of all replicas: one."""
        return (value,)


class InputContext:
    """The part of the data that a worker reads: the only worker reads all."""

    num_input_pipelines, input_pipeline_id, num_replicas_in_sync = 1, 0, 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return how many rows a replica sees: all of a batch."""
        return global_batch_size


class OneDeviceStrategy(Strategy):
    """Everything on one device."""


class MirroredStrategy(Strategy):
    """Copies of a model on the devices of this machine: one is used."""

    def __init__(self, devices: Any = None, cross_device_ops: Any = None) -> None:
        if devices is not None and len(devices) > 1:
            raise NotImplementedError(
                f"tf.distribute.MirroredStrategy(devices={list(devices)}): one device "
                "trains here. Leave `devices` out."
            )
        super().__init__()


class TPUClusterResolver:
    """Looks for TPUs, and finds none, as TensorFlow does on a machine without."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("Please provide a TPU Name to connect to. There is none here.")


_default = Strategy()


def get_strategy() -> Strategy:
    """Return the strategy with one replica."""
    return _default


def has_strategy() -> bool:
    """Return whether a block runs under several replicas: never."""
    return False
