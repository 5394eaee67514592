"""Steps that are scaled by the size of a whole variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import ops
from ganglion.optimizers.adam import Moments
from ganglion.optimizers.arguments import Common, number, with_common
from ganglion.optimizers.base import Optimizer
from ganglion.serialization import export
from ganglion.variables import Variable


@export("keras.optimizers", "lamb")
class Lamb(Moments):
    """Adam whose step has the length of the variable, for very large batches."""

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self._set_rates(beta_1, beta_2, epsilon)

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        m, v = self._move_moments(gradient, variable, self.beta_1, self.beta_2)
        mean = m / (1.0 - self._power(self.beta_1, dtype))
        square = v / (1.0 - self._power(self.beta_2, dtype))
        update = mean / (ops.sqrt(square) + self.epsilon)
        wanted = ops.sqrt(ops.sum(ops.square(variable)))
        length = ops.sqrt(ops.sum(ops.square(update)))
        both = ops.logical_and(wanted > 0, length > 0)
        ratio = ops.where(both, wanted / length, 1.0)
        self.assign_sub(variable, ratio * rate * update)


def _rms(x: Any) -> Any:
    return ops.sqrt(ops.mean(ops.square(x)))


@export("keras.optimizers", "adafactor")
class Adafactor(Optimizer):
    """Adam's second moment kept as one number per row and one per column."""

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.beta_2_decay = -number("-beta_2_decay", -beta_2_decay)
        self.epsilon_1 = number("epsilon_1", epsilon_1)
        self.epsilon_2 = number("epsilon_2", epsilon_2)
        self.clip_threshold = number("clip_threshold", clip_threshold, open_low=True)
        self.relative_step = bool(relative_step)

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._r: list[Variable] = []
        self._c: list[Variable] = []
        self._v: list[Variable] = []
        for one in variables:
            if len(one.shape) < 2:
                # Nothing to factor: Keras' files hold two whole numbers instead.
                shapes: list[Any] = [(), ()]
                dtype = "int32"
            else:
                shapes = [one.shape[:-1], one.shape[:-2] + one.shape[-1:]]
                dtype = one.dtype
            for slots, shape in zip((self._r, self._c), shapes, strict=True):
                slots.append(self.add_variable(shape, dtype=dtype, name=one.name))
            self._v.append(self.add_variable_from_reference(one, "velocity"))

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        step = ops.cast(self.iterations + 1, dtype)
        # Keras limits the rate whatever `relative_step` says, and so do we.
        rate = ops.minimum(rate, 1.0 / ops.sqrt(step))
        alpha = ops.maximum(_rms(variable), self.epsilon_2) * rate
        square = ops.square(gradient) + self.epsilon_1
        kept = 1.0 - ops.power(step, self.beta_2_decay)
        v = self._v[self._get_variable_index(variable)]
        if len(variable.shape) < 2:
            self.assign(v, kept * v + (1.0 - kept) * square)
        else:
            self.assign(v, self._factored(square, kept, variable))
        update = gradient / ops.sqrt(v)
        update = update / ops.maximum(_rms(update) / self.clip_threshold, 1.0)
        self.assign_sub(variable, alpha * update)

    def _factored(self, square: Any, kept: Any, variable: Variable) -> Any:
        """Take the squares into the means of rows and columns; return their product."""
        index = self._get_variable_index(variable)
        rows, columns = self._r[index], self._c[index]
        self.assign(rows, kept * rows + (1.0 - kept) * ops.mean(square, axis=-1))
        self.assign(columns, kept * columns + (1.0 - kept) * ops.mean(square, axis=-2))
        share = rows / ops.mean(rows, axis=-1, keepdims=True)
        return ops.expand_dims(share, -1) * ops.expand_dims(columns, -2)
