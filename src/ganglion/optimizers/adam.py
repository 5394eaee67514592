"""Adam and its relatives: steps scaled by moving averages of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import ops
from ganglion.optimizers.arguments import Common, Shared, below_one, small, with_common
from ganglion.optimizers.base import Optimizer
from ganglion.serialization import export
from ganglion.variables import Variable


class _Moments(Optimizer):
    """Two moving averages per variable: of the gradient, and of its square."""

    beta_1: float
    beta_2: float
    epsilon: float

    def _set_rates(self, beta_1: Any, beta_2: Any, epsilon: Any) -> None:
        self.beta_1 = below_one("beta_1", beta_1)
        self.beta_2 = below_one("beta_2", beta_2)
        self.epsilon = small(epsilon)

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for these variables."""
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def _move_moments(
        self, gradient: Any, variable: Variable
    ) -> tuple[Variable, Variable]:
        """Take the gradient into both averages, and return them."""
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        return m, v

    def _power(self, base: float, dtype: str, ahead: int = 1) -> Any:
        """Return a number to the power of the step being made (the first is 1)."""
        return ops.power(
            ops.cast(base, dtype), ops.cast(self.iterations + ahead, dtype)
        )


@export("keras.optimizers", "adam")
class Adam(_Moments):
    """Adam: w -= rate * m / (sqrt(v) + epsilon), averages corrected for their start.

    With `amsgrad` the largest v so far takes the place of v.

    >>> import numpy as np
    >>> w = Variable(np.zeros(2), name="w")
    >>> Adam(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([-0.5,  0.5], dtype=float32)
    """

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self._set_rates(beta_1, beta_2, epsilon)
        self.amsgrad = bool(amsgrad)

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for these variables."""
        if self.built:
            return
        super().build(variables)
        if self.amsgrad:
            self._velocity_hats = self.add_optimizer_variables(
                variables, "velocity_hat"
            )

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        """Move one variable."""
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        corrected = ops.sqrt(1 - self._power(self.beta_2, dtype))
        alpha = rate * corrected / (1 - self._power(self.beta_1, dtype))
        m, v = self._move_moments(gradient, variable)
        if self.amsgrad:
            largest = self._velocity_hats[self._get_variable_index(variable)]
            self.assign(largest, ops.maximum(largest, v))
            v = largest
        self.assign_sub(variable, m * alpha / (ops.sqrt(v) + self.epsilon))


@export("keras.optimizers", "adamw")
class AdamW(Adam):
    """Adam with weight decay apart from the gradient: w -= rate * weight_decay * w."""

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        if weight_decay is None:
            raise ValueError("AdamW needs a `weight_decay`; without it, use Adam.")
        super().__init__(
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            amsgrad,
            weight_decay=weight_decay,
            **shared,
        )
