"""Adam and its relatives: steps scaled by moving averages of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import keras2, ops
from ganglion.hyperparameters import Hyperparameter
from ganglion.optimizers.arguments import (
    Common,
    Shared,
    below_one,
    number,
    small,
)
from ganglion.optimizers.base import Optimizer, cast_to, elementwise, with_common
from ganglion.serialization import export, passed
from ganglion.variables import Variable, read

_RATE = keras2.Changed(0.001, keras2=0.002)


class Moments(Optimizer):
    """Two moving averages per variable: of the gradient, and of its square."""

    beta_1 = Hyperparameter()
    beta_2 = Hyperparameter()
    epsilon = Hyperparameter()

    def _set_rates(self, beta_1: Any, beta_2: Any, epsilon: Any) -> None:
        self.beta_1 = below_one("beta_1", beta_1)
        self.beta_2 = below_one("beta_2", beta_2)
        self.epsilon = small(epsilon)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def _move_moments(
        self, gradient: Any, variable: Variable, beta_1: Any, beta_2: Any
    ) -> tuple[Variable, Variable]:
        """Take the gradient into both averages, and return them."""
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - beta_2))
        return m, v

    def _power(self, base: float, dtype: str, ahead: int = 1) -> Any:
        """Return a number to the power of the step being made (the first is 1)."""

        def power() -> Any:
            step = ops.cast(self.iterations + ahead, dtype)
            return ops.power(ops.cast(base, dtype), step)

        return self._for_all("power", power, base, dtype, ahead)


@export("keras.optimizers", "adam")
class Adam(Moments):
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

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        super()._add_slots(variables)
        if self.amsgrad:
            self._velocity_hats = self.add_optimizer_variables(
                variables, "velocity_hat"
            )

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        alpha = self._corrected(learning_rate, dtype)
        gradient = ops.cast(gradient, dtype)
        m, v = self._move_moments(gradient, variable, self.beta_1, self.beta_2)
        if self.amsgrad:
            largest = self._velocity_hats[self._get_variable_index(variable)]
            self.assign(largest, ops.maximum(largest, v))
            v = largest
        self.assign_sub(variable, m * alpha / (ops.sqrt(v) + self.epsilon))

    def _corrected(self, learning_rate: Any, dtype: str) -> Any:
        """Return the rate of this step, corrected for the averages' start."""

        def alpha() -> Any:
            corrected = ops.sqrt(1 - self._power(self.beta_2, dtype))
            rate = ops.cast(learning_rate, dtype)
            return rate * corrected / (1 - self._power(self.beta_1, dtype))

        return self._for_all("alpha", alpha, read(learning_rate), dtype)


@export("keras.optimizers", "adamw")
class AdamW(Adam):
    """Adam with weight decay apart from the gradient: w -= rate * weight_decay * w.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> AdamW(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.498, 1.498], dtype=float32)
    """

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **kwargs: Unpack[Shared],
    ) -> None:
        if weight_decay is None:
            raise ValueError(
                "Argument `weight_decay` must be a float. Received: weight_decay=None. "
                "Without it, use Adam."
            )
        super().__init__(**passed(locals()))


@export("keras.optimizers", "adamax")
class Adamax(Moments):
    """Adam with the largest recent gradient in place of the root of their squares.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Adamax(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.5, 1.5], dtype=float32)
    """

    @with_common
    def __init__(
        self,
        learning_rate: Any = _RATE,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self._set_rates(beta_1, beta_2, epsilon)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._m, self._u = self.add_optimizer_variables(variables, ["momentum", "norm"])

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = cast_to(dtype, learning_rate, gradient)
        index = self._get_variable_index(variable)
        m, u = self._m[index], self._u[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign(u, ops.maximum(self.beta_2 * u, ops.absolute(gradient)))
        started = 1 - self._power(self.beta_1, dtype)
        self.assign_sub(variable, rate * m / (started * (u + self.epsilon)))


@export("keras.optimizers", "nadam")
class Nadam(Moments):
    """Adam with Nesterov's look ahead.

    The weight of the momentum grows along a schedule of powers of 0.96; Keras 2 slowed
    it down by `schedule_decay`, which is accepted.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Nadam(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.4686, 1.5314], dtype=float32)
    """

    _keras2_arguments = ("lr", "decay", "schedule_decay")

    @with_common
    def __init__(
        self,
        learning_rate: Any = _RATE,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **common: Any,
    ) -> None:
        slower = common.pop("schedule_decay", None)
        if slower is not None:
            keras2.note("schedule_decay=", "fixed at 1")
            self.schedule_decay = number("schedule_decay", slower)
        super().__init__(learning_rate, **common)
        if slower is None:
            slower = 0.004 if keras2.active() else 1.0
        self._base = 0.96**slower
        self._set_rates(beta_1, beta_2, epsilon)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        super()._add_slots(variables)
        kind = variables[0].dtype if variables else None
        self._u_product = self.add_variable((), "ones", dtype=kind)

    def _update_variables(
        self, grads: list[Any], variables: list[Variable], rate: Any
    ) -> None:
        weight = self._weight(self._u_product.dtype, ahead=1)
        self.assign(self._u_product, self._u_product * weight)
        super()._update_variables(grads, variables, rate)

    def _weight(self, dtype: str, ahead: int) -> Any:
        """Return the momentum's weight in this step (ahead=1) or the next (2)."""
        return self.beta_1 * (1.0 - 0.5 * self._power(self._base, dtype, ahead))

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = cast_to(dtype, learning_rate, gradient)
        now, following = self._weight(dtype, ahead=1), self._weight(dtype, ahead=2)
        product = ops.cast(self._u_product, dtype)
        # Rounded before they are subtracted from 1, as Keras does: it shows in float32.
        beta_1, beta_2 = cast_to(dtype, self.beta_1, self.beta_2)
        m, v = self._move_moments(gradient, variable, beta_1, beta_2)
        mean = following * m / (1 - product * following)
        mean = mean + (1 - now) * gradient / (1 - product)
        square = v / (1 - self._power(self.beta_2, dtype))
        self.assign_sub(variable, mean * rate / (ops.sqrt(square) + self.epsilon))


@export("keras.optimizers", "lamb")
class Lamb(Moments):
    """Adam whose step has the length of the variable, for very large batches.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Lamb(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.5, 1.5], dtype=float32)
    """

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
        rate, gradient = cast_to(dtype, learning_rate, gradient)
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
    """Adam's second moment kept as one number per row and one per column.

    >>> import numpy as np
    >>> w = Variable(np.ones((2, 2)), name="w")
    >>> Adafactor(learning_rate=0.5).apply([np.array([[3.0, -0.1], [1.0, 1.0]])], [w])
    >>> w.numpy().round(4)
    array([[0.6068, 1.0412],
           [0.7218, 0.1246]], dtype=float32)
    """

    beta_2_decay = Hyperparameter()
    epsilon_1 = Hyperparameter()
    epsilon_2 = Hyperparameter()
    clip_threshold = Hyperparameter()

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

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._r: list[Variable] = []
        self._c: list[Variable] = []
        self._v: list[Variable] = []
        for variable in variables:
            if len(variable.shape) < 2:
                # Nothing to factor: Keras' files hold two integers instead.
                shapes: list[Any] = [(), ()]
                dtype = "int32"
            else:
                shapes = [
                    variable.shape[:-1],
                    variable.shape[:-2] + variable.shape[-1:],
                ]
                dtype = variable.dtype
            for slots, shape in zip((self._r, self._c), shapes, strict=True):
                slots.append(
                    self.add_variable(shape, dtype=dtype, name=variable.own_name)
                )
            self._v.append(self.add_variable_from_reference(variable, "velocity"))

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = cast_to(dtype, learning_rate, gradient)
        step = ops.cast(self.iterations + 1, dtype)
        # Keras limits the rate regardless of `relative_step`, and so do we.
        rate = ops.minimum(rate, 1.0 / ops.sqrt(step))
        alpha = ops.maximum(_rms(variable), self.epsilon_2) * rate
        square = ops.square(gradient) + self.epsilon_1
        decay = 1.0 - ops.power(step, self.beta_2_decay)
        v = self._v[self._get_variable_index(variable)]
        if len(variable.shape) < 2:
            self.assign(v, decay * v + (1.0 - decay) * square)
        else:
            self.assign(v, self._factored(square, decay, variable))
        update = gradient / ops.sqrt(v)
        update = update / ops.maximum(_rms(update) / self.clip_threshold, 1.0)
        self.assign_sub(variable, alpha * update)

    def _factored(self, square: Any, decay: Any, variable: Variable) -> Any:
        """Take the squares into the means of rows and columns; return their product."""
        index = self._get_variable_index(variable)
        rows, columns = self._r[index], self._c[index]
        self.assign(rows, decay * rows + (1.0 - decay) * ops.mean(square, axis=-1))
        self.assign(
            columns, decay * columns + (1.0 - decay) * ops.mean(square, axis=-2)
        )
        share = rows / ops.mean(rows, axis=-1, keepdims=True)
        return ops.expand_dims(share, -1) * ops.expand_dims(columns, -2)
