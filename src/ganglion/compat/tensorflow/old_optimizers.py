"""`tf.train.AdamOptimizer` and others: optimizers of TensorFlow 1, for `compile`.

Their formulas are those of today's, with other names and defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.optimizers import SGD, Adadelta, Adagrad, Adam, RMSprop
from ganglion.variables import Variable


def _note(old: str, new: str) -> None:
    today = f"`keras.optimizers.{new}`"
    keras2.note(f"`tf.train.{old}`", today, changes_defaults=False)


def adam(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adam",
) -> Adam:
    """Return `tf.train.AdamOptimizer`."""
    _note("AdamOptimizer", "Adam")
    return Adam(learning_rate, beta1, beta2, epsilon, name=name)


def gradient_descent(
    learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
) -> SGD:
    """Return `tf.train.GradientDescentOptimizer`."""
    _note("GradientDescentOptimizer", "SGD")
    return SGD(learning_rate, name=name)


def momentum(
    learning_rate: Any,
    momentum: float,
    use_locking: bool = False,
    name: str = "Momentum",
    use_nesterov: bool = False,
) -> SGD:
    """Return `tf.train.MomentumOptimizer`."""
    _note("MomentumOptimizer", "SGD")
    return SGD(learning_rate, momentum, use_nesterov, name=name)


def adagrad(
    learning_rate: Any,
    initial_accumulator_value: float = 0.1,
    use_locking: bool = False,
    name: str = "Adagrad",
) -> Adagrad:
    """Return `tf.train.AdagradOptimizer`, which adds no epsilon."""
    _note("AdagradOptimizer", "Adagrad")
    return Adagrad(learning_rate, initial_accumulator_value, 0.0, name=name)


def adadelta(
    learning_rate: Any = 0.001,
    rho: float = 0.95,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adadelta",
) -> Adadelta:
    """Return `tf.train.AdadeltaOptimizer`."""
    _note("AdadeltaOptimizer", "Adadelta")
    return Adadelta(learning_rate, rho, epsilon, name=name)


class _FromOne(RMSprop):
    """RMSprop whose mean of squares begins with one."""

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        super()._add_slots(variables)
        self._epsilon_outside = False
        for velocity in self._velocities:
            velocity.assign(np.ones(velocity.shape))


def rms_prop(
    learning_rate: Any,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    use_locking: bool = False,
    centered: bool = False,
    name: str = "RMSProp",
) -> RMSprop:
    """Return `tf.train.RMSPropOptimizer`."""
    _note("RMSPropOptimizer", "RMSprop")
    return _FromOne(learning_rate, decay, momentum, epsilon, centered, name=name)
