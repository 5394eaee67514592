"""Schedule-free Adam: the average of the weights in place of a falling rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import ops
from ganglion.hyperparameters import Hyperparameter
from ganglion.optimizers.arguments import Common, below_one, small
from ganglion.optimizers.base import Optimizer, cast_to, with_common
from ganglion.serialization import export
from ganglion.variables import Variable


@export("keras.optimizers", "schedulefreeadamw")
class ScheduleFreeAdamW(Optimizer):
    """Adam that needs no schedule: it moves one sequence, and averages it as it goes.

    The weights stand between that sequence (the slot `momentum`) and its average.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> ScheduleFreeAdamW(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.5, 1.5], dtype=float32)
    """

    beta_1 = Hyperparameter()
    beta_2 = Hyperparameter()
    epsilon = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.beta_1 = below_one("beta_1", beta_1)
        self.beta_2 = below_one("beta_2", beta_2)
        self.epsilon = small(epsilon)
        self.warmup_steps = warmup_steps

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        for slot, variable in zip(self._momentums, variables, strict=True):
            slot.assign(variable.numpy())

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = cast_to(dtype, learning_rate, gradient)
        beta_1, beta_2, epsilon = cast_to(dtype, self.beta_1, self.beta_2, self.epsilon)
        step = ops.cast(self.iterations + 1, dtype)
        if self.warmup_steps > 0:
            rate = rate * ops.minimum(step / float(self.warmup_steps), 1.0)
        index = self._get_variable_index(variable)
        z, v = self._momentums[index], self._velocities[index]
        average = (variable - (1 - beta_1) * z) / beta_1
        self.assign_add(v, (ops.square(gradient) - v) * (1 - beta_2))
        spread = ops.sqrt(v / (1 - ops.power(beta_2, step))) + epsilon
        self.assign_sub(z, rate * gradient / spread)
        share = 1.0 / step
        average = (1 - share) * average + share * z
        self.assign(variable, (1 - beta_1) * z + beta_1 * average)
