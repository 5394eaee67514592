"""Batch renormalization: a batch's statistics are corrected by moving averages."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.base import Layer

_BOUNDS = ("rmax", "rmin", "dmax")


def checked_clipping(clipping: Any) -> dict[str, float]:
    """Return the bounds of the corrections by name; refuse what means nothing."""
    bounds = dict(clipping or {})
    if unknown := sorted({*bounds} - {*_BOUNDS}):
        raise ValueError(
            f"Received invalid keys for `renorm_clipping` argument: {unknown}. Use "
            f"{', '.join(_BOUNDS)}."
        )
    low, high, shift = (bounds.get(name) for name in ("rmin", "rmax", "dmax"))
    if low is not None and high is not None and high < low:
        raise ValueError(
            f"`renorm_clipping`: rmax should be at least rmin, got rmax={high} and "
            f"rmin={low}."
        )
    if shift is not None and shift < 0:
        raise ValueError(
            f"`renorm_clipping`: dmax should be non-negative, got dmax={shift}."
        )
    return bounds


class Renormalized(Layer):
    """The part of a BatchNormalization that ``renorm=True`` adds.

    In training, each batch is normalised by its own statistics and then scaled by r and
    shifted by d, as if it had been by moving ones: both are constants to a gradient.
    """

    epsilon: float
    momentum: float
    renorm_momentum: float
    renorm_clipping: dict[str, float]
    moving_mean: Any
    moving_variance: Any
    moving_mean_initializer: Any
    moving_variance_initializer: Any

    def _make_renorm_weights(self, size: int) -> None:
        def deviation(shape: Any, dtype: Any = None) -> Any:
            return ops.sqrt(self.moving_variance_initializer(shape, dtype=dtype))

        def average(name: str, initializer: Any) -> Any:
            return self.add_weight(
                (size,), initializer, trainable=False, autocast=False, name=name
            )

        self.moving_stddev = average("moving_stddev", deviation)
        self.renorm_mean = average("renorm_mean", self.moving_mean_initializer)
        self.renorm_stddev = average("renorm_stddev", deviation)

    def _corrections(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return r and d for the statistics of a batch, within their bounds."""
        usual = ops.maximum(self.renorm_stddev, self.epsilon**0.5)
        usual = ops.reshape(usual, mean.shape)
        scale = ops.sqrt(variance + self.epsilon) / usual
        shift = (mean - ops.reshape(self.renorm_mean, mean.shape)) / usual
        bounds = self.renorm_clipping
        if "rmin" in bounds:
            scale = ops.maximum(scale, bounds["rmin"])
        if "rmax" in bounds:
            scale = ops.minimum(scale, bounds["rmax"])
        if "dmax" in bounds:
            shift = ops.clip(shift, -bounds["dmax"], bounds["dmax"])
        return ops.stop_gradient(scale), ops.stop_gradient(shift)

    def _move_all(self, mean: Any, variance: Any) -> None:
        """Move the averages used in training, and those used in inference."""
        mean = ops.reshape(mean, self.moving_mean.shape)
        deviation = ops.sqrt(ops.reshape(variance, mean.shape) + self.epsilon)
        _move(self.renorm_mean, mean, self.renorm_momentum)
        _move(self.renorm_stddev, deviation, self.renorm_momentum)
        _move(self.moving_mean, mean, self.momentum)
        moved = _move(self.moving_stddev, deviation, self.momentum)
        self.moving_variance.assign(ops.relu(moved * moved - self.epsilon))


def _move(average: Any, new: Any, momentum: float) -> Any:
    moved = average * momentum + new * (1.0 - momentum)
    average.assign(moved)
    return moved
