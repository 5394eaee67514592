"""Learning rates that change with the step, computed inside of the step graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ganglion import config, ops
from ganglion.hyperparameters import Hyperparameter, as_input
from ganglion.ops.dispatch import is_weak
from ganglion.serialization import (
    Configured,
    deserialize_keras_object,
    export,
    serialize_keras_object,
    with_defaults,
)

_exported = export("keras.optimizers.schedules")

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "deserialize",
    "serialize",
]


@_exported
class LearningRateSchedule(Configured):
    """Base class: called with the number of steps made, returns the learning rate.

    Write `__call__` in `ganglion.ops`; the arguments of `__init__`, kept in attributes
    of the same name, are the configuration.

    >>> class Halved(LearningRateSchedule):
    ...     def __init__(self, start):
    ...         self.start = start
    ...     def __call__(self, step):
    ...         return self.start * ops.power(0.5, ops.cast(step, "float32"))
    >>> float(Halved(1.0)(2))
    0.25
    """

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of a step."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `__call__(self, step)`."
        )


def _steps(step: Any) -> Any:
    return ops.cast(step, config.floatx())


def _number(schedule: LearningRateSchedule, name: str) -> Any:
    """Return a number of a schedule as a float that is an input of steps."""
    value = getattr(schedule, name)
    return as_input(schedule, name, float(value)) if is_weak(value) else value


def _positive(name: str, value: Any) -> Any:
    if not value > 0:
        raise ValueError(f"`{name}` must be greater than 0, got {value!r}.")
    return value


class _PeriodicDecay(LearningRateSchedule):
    initial_learning_rate = Hyperparameter()
    decay_rate = Hyperparameter()

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("decay_steps", decay_steps)
        self.decay_rate = decay_rate
        self.staircase, self.name = staircase, name

    def _periods(self, step: Any) -> Any:
        periods = _steps(step) / _number(self, "decay_steps")
        return ops.floor(periods) if self.staircase else periods


@_exported
class ExponentialDecay(_PeriodicDecay):
    """initial_learning_rate * decay_rate ** (step / decay_steps).

    >>> float(ExponentialDecay(1.0, decay_steps=10, decay_rate=0.5)(20))
    0.25
    """

    def __call__(self, step: Any) -> Any:
        power = ops.power(_number(self, "decay_rate"), self._periods(step))
        return self.initial_learning_rate * power


@_exported
class InverseTimeDecay(_PeriodicDecay):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps).

    >>> rate = InverseTimeDecay(1.0, decay_steps=10, decay_rate=1.0)
    >>> [round(float(rate(step)), 3) for step in (0, 10, 30)]
    [1.0, 0.5, 0.25]
    """

    __init__ = with_defaults(
        _PeriodicDecay.__init__,
        "InverseTimeDecay.__init__",
        __name__,
        name="InverseTimeDecay",
    )

    def __call__(self, step: Any) -> Any:
        divisor = 1.0 + self.decay_rate * self._periods(step)
        return ops.divide(self.initial_learning_rate, divisor)


@_exported
class PiecewiseConstantDecay(LearningRateSchedule):
    """values[0] up to and with boundaries[0], then values[1], and so on.

    >>> rate = PiecewiseConstantDecay([2, 4], [1.0, 0.5, 0.25])
    >>> [float(rate(step)) for step in range(6)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self,
        boundaries: Sequence[float],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ) -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                f"{len(boundaries)} boundaries need {len(boundaries) + 1} values, got "
                f"{len(values)}."
            )
        if list(boundaries) != sorted(boundaries):
            raise ValueError(f"The boundaries must grow, got {list(boundaries)}.")
        self.boundaries, self.values, self.name = boundaries, values, name

    def __call__(self, step: Any) -> Any:
        step = ops.convert_to_tensor(step)
        *values, rate = as_input(
            self, "values", [float(value) for value in self.values]
        )
        rate = ops.cast(rate, config.floatx())
        ends = [self._end(n, step.dtype) for n in range(len(values))]
        for last, value in zip(reversed(ends), reversed(values), strict=True):
            rate = ops.where(step <= last, value, rate)
        return rate

    def _end(self, number: int, dtype: Any) -> Any:
        """Return a boundary; one between two steps is not rounded to a step."""
        end = float(self.boundaries[number])
        end_input = as_input(self, f"boundaries_{number}", end)
        return ops.cast(end_input, dtype) if end.is_integer() else end


@_exported
class PolynomialDecay(LearningRateSchedule):
    """From the initial to the end rate along (1 - step / decay_steps) ** power.

    With `cycle` the end moves on to the next multiple of `decay_steps`.

    >>> rate = PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.0)
    >>> [round(float(rate(step)), 3) for step in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("decay_steps", decay_steps)
        self.end_learning_rate = end_learning_rate
        self.power, self.cycle, self.name = power, cycle, name

    def __call__(self, step: Any) -> Any:
        done, total = _steps(step), _steps(_number(self, "decay_steps"))
        if self.cycle:
            cycles = ops.where(ops.equal(done, 0.0), 1.0, ops.ceil(done / total))
            total = total * cycles
        else:
            done = ops.minimum(done, total)
        start = _steps(_number(self, "initial_learning_rate"))
        end = _steps(_number(self, "end_learning_rate"))
        left = ops.power(1.0 - done / total, _number(self, "power"))
        return (start - end) * left + end


@_exported
class CosineDecay(LearningRateSchedule):
    """A half wave from the initial learning rate to `alpha` times it.

    With `warmup_target` the rate first grows to that target in `warmup_steps` steps,
    and decays from there.

    >>> rate = CosineDecay(1.0, decay_steps=100)
    >>> [round(float(rate(step)), 3) for step in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """

    alpha = Hyperparameter()

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = _positive("decay_steps", decay_steps)
        self.alpha, self.name = alpha, name
        self.warmup_target, self.warmup_steps = warmup_target, warmup_steps

    def __call__(self, step: Any) -> Any:
        start = _steps(_number(self, "initial_learning_rate"))
        done, total = _steps(step), _steps(_number(self, "decay_steps"))
        if self.warmup_target is None:
            return self._decayed(start, ops.minimum(done, total) / total)
        target = _steps(_number(self, "warmup_target"))
        warmup = _steps(_number(self, "warmup_steps"))
        done = ops.minimum(done, total + warmup)
        growing = (target - start) * (done / warmup) + start
        falling = self._decayed(target, (done - warmup) / total)
        return ops.where(done < warmup, growing, falling)

    def _decayed(self, start: Any, fraction: Any) -> Any:
        wave = 0.5 * (1.0 + ops.cos(math.pi * fraction))
        return start * ((1 - self.alpha) * wave + self.alpha)


@_exported
class CosineDecayRestarts(LearningRateSchedule):
    """Half waves, each `t_mul` times as long and `m_mul` times as high as the last.

    >>> rate = CosineDecayRestarts(1.0, first_decay_steps=10)
    >>> [round(float(rate(step)), 3) for step in (0, 5, 10)]
    [1.0, 0.5, 1.0]
    """

    alpha = Hyperparameter()
    initial_learning_rate = Hyperparameter()

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = _positive("first_decay_steps", first_decay_steps)
        self.t_mul, self.m_mul = t_mul, m_mul
        self.alpha, self.name = alpha, name

    def __call__(self, step: Any) -> Any:
        restarts, fraction = self._position(
            _steps(step) / _number(self, "first_decay_steps")
        )
        height = ops.power(_number(self, "m_mul"), restarts)
        wave = 0.5 * height * (1.0 + ops.cos(math.pi * fraction))
        decayed = (1.0 - self.alpha) * wave + self.alpha
        return self.initial_learning_rate * decayed

    def _position(self, waves: Any) -> tuple[Any, Any]:
        """Return how many waves are over, and how much of this one is."""
        if self.t_mul == 1:
            restarts = ops.floor(waves)
            return restarts, waves - restarts
        growth = _number(self, "t_mul")
        logarithm = ops.log(1.0 - waves * (1.0 - growth))
        restarts = ops.floor(logarithm / ops.log(_steps(growth)))
        length = ops.power(growth, restarts)
        before = (1.0 - length) / (1.0 - growth)
        return restarts, (waves - before) / length


def serialize(learning_rate_schedule: Any) -> Any:
    """Return plain data that rebuilds a schedule."""
    return serialize_keras_object(learning_rate_schedule)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Rebuild a schedule from plain data."""
    return deserialize_keras_object(config, custom_objects)
