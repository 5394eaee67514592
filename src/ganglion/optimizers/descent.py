"""Plain descent: one step along the gradient, with or without momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import ops
from ganglion.optimizers.arguments import Common, number, with_common
from ganglion.optimizers.base import Optimizer
from ganglion.serialization import export
from ganglion.variables import Variable


@export("keras.optimizers", "sgd")
class SGD(Optimizer):
    """Gradient descent: w -= rate * g.

    With momentum m = momentum * m - rate * g and w += m; with `nesterov` the step looks
    ahead, w += momentum * m - rate * g.

    >>> import numpy as np
    >>> w = Variable(np.zeros(1), name="w")
    >>> SGD(learning_rate=0.5, momentum=0.9).apply([np.ones(1)], [w])
    >>> w.numpy()
    array([-0.5], dtype=float32)
    """

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.momentum = number("momentum", momentum, high=1.0)
        self.nesterov = bool(nesterov)

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums: list[Variable] = []
        if self.momentum:
            self._momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        step = ops.cast(gradient, variable.dtype) * ops.cast(
            learning_rate, variable.dtype
        )
        if not self.momentum:
            self.assign_sub(variable, step)
            return
        m = self._momentums[self._get_variable_index(variable)]
        self.assign(m, m * self.momentum - step)
        self.assign_add(variable, m * self.momentum - step if self.nesterov else m)


@export("keras.optimizers", "lion")
class Lion(Optimizer):
    """Steps of one length: w -= rate * sign(beta_1 * m + (1 - beta_1) * g)."""

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.beta_1 = number("beta_1", beta_1, high=1.0, open_low=True)
        self.beta_2 = number("beta_2", beta_2, high=1.0)

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        beta_1, beta_2 = ops.cast(self.beta_1, dtype), ops.cast(self.beta_2, dtype)
        m = self._momentums[self._get_variable_index(variable)]
        direction = ops.sign(m * beta_1 + gradient * (1.0 - beta_1))
        self.assign_sub(variable, rate * direction)
        self.assign(m, m * beta_2 + gradient * (1.0 - beta_2))
