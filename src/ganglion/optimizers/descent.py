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
        """Make the slots for these variables."""
        if self.built:
            return
        super().build(variables)
        self._momentums: list[Variable] = []
        if self.momentum:
            self._momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        """Move one variable."""
        step = ops.cast(gradient, variable.dtype) * ops.cast(
            learning_rate, variable.dtype
        )
        if not self.momentum:
            self.assign_sub(variable, step)
            return
        m = self._momentums[self._get_variable_index(variable)]
        self.assign(m, m * self.momentum - step)
        self.assign_add(variable, m * self.momentum - step if self.nesterov else m)
