"""Descent along the gradient, in plain steps or with a step size for each weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ganglion import initializers, keras2, ops
from ganglion.hyperparameters import Hyperparameter
from ganglion.optimizers.arguments import Common, number, small
from ganglion.optimizers.base import Optimizer, cast_to, elementwise, with_common
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

    momentum = Hyperparameter()

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

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums: list[Variable] = []
        if self.momentum:
            self._momentums = self.add_optimizer_variables(variables, "momentum")

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        gradient, rate = cast_to(variable.dtype, gradient, learning_rate)
        step = gradient * rate
        if not self.momentum:
            self.assign_sub(variable, step)
            return
        m = self._momentums[self._get_variable_index(variable)]
        self.assign(m, m * self.momentum - step)
        self.assign_add(variable, m * self.momentum - step if self.nesterov else m)


@export("keras.optimizers", "lion")
class Lion(Optimizer):
    """Steps of one length: w -= rate * sign(beta_1 * m + (1 - beta_1) * g).

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Lion(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.5, 1.5], dtype=float32)
    """

    beta_1 = Hyperparameter()
    beta_2 = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        if not 0 < beta_1 <= 1:
            raise ValueError(
                "Argument `beta_1` must be in the [0, 1] range. Otherwise, the "
                f"optimizer degenerates to SignSGD. Received: beta_1={beta_1}."
            )
        self.beta_1 = number("beta_1", beta_1)
        self.beta_2 = number("beta_2", beta_2, high=1.0)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums = self.add_optimizer_variables(variables, "momentum")

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        dtype = variable.dtype
        rate, gradient = cast_to(dtype, learning_rate, gradient)
        beta_1, beta_2 = cast_to(dtype, self.beta_1, self.beta_2)
        m = self._momentums[self._get_variable_index(variable)]
        direction = ops.sign(m * beta_1 + gradient * (1.0 - beta_1))
        self.assign_sub(variable, rate * direction)
        self.assign(m, m * beta_2 + gradient * (1.0 - beta_2))


_ADAGRAD_RATE = keras2.Changed(0.001, keras2=0.01)
_ADAGRAD_START = keras2.Changed(0.1, keras2=0.0)
_ADADELTA_RATE = keras2.Changed(0.001, keras2=1.0)


def _root(x: Any, epsilon: float, outside: bool) -> Any:
    """Return a square root that is never zero.

    Keras 3 adds epsilon under the root, Keras 2 after it.
    """
    if outside:
        return ops.sqrt(ops.maximum(x, 0.0)) + epsilon
    return ops.sqrt(x + epsilon)


@export("keras.optimizers", "rmsprop")
class RMSprop(Optimizer):
    """w -= rate * g / sqrt(v + epsilon), where v averages g².

    With `centered` the variance of g takes the place of v. In a Keras 2 script epsilon
    is added after the root, unless there is momentum.

    >>> import numpy as np
    >>> w = Variable(np.zeros(1), name="w")
    >>> RMSprop(learning_rate=0.1, rho=0.75).apply([np.full(1, 4.0)], [w])
    >>> w.numpy()
    array([-0.2], dtype=float32)
    """

    rho = Hyperparameter()
    momentum = Hyperparameter()
    epsilon = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.rho = number("rho", rho, high=1.0)
        self.momentum = number("momentum", momentum, high=1.0)
        self.epsilon = small(epsilon)
        self.centered = bool(centered)
        # With momentum, Keras 2 added epsilon under the root too.
        self._epsilon_outside = keras2.active() and not self.momentum

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._velocities = self.add_optimizer_variables(variables, "velocity")
        if self.momentum:
            self._momentums = self.add_optimizer_variables(variables, "momentum")
        if self.centered:
            self._means = self.add_optimizer_variables(variables, "average_gradient")

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        rate, gradient = cast_to(variable.dtype, learning_rate, gradient)
        index = self._get_variable_index(variable)
        v = self._velocities[index]
        self.assign(v, self.rho * v + (1 - self.rho) * ops.square(gradient))
        spread = v
        if self.centered:
            mean = self._means[index]
            self.assign(mean, self.rho * mean + (1 - self.rho) * gradient)
            spread = v - ops.square(mean)
        step = rate * gradient / _root(spread, self.epsilon, self._epsilon_outside)
        if self.momentum:
            m = self._momentums[index]
            self.assign(m, self.momentum * m + step)
            step = m
        self.assign_sub(variable, step)


@export("keras.optimizers", "adagrad")
class Adagrad(Optimizer):
    """w -= rate * g / sqrt(a + epsilon), where a adds up all g².

    In a Keras 2 script the sum starts at 0 and epsilon is added after the root.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Adagrad(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.5028, 1.1508], dtype=float32)
    """

    epsilon = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = _ADAGRAD_RATE,
        initial_accumulator_value: float = _ADAGRAD_START,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.initial_accumulator_value = number(
            "initial_accumulator_value", keras2.chosen(initial_accumulator_value)
        )
        self.epsilon = small(epsilon)
        self._epsilon_outside = keras2.active()

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        start = initializers.Constant(self.initial_accumulator_value)
        self._accumulators = self.add_optimizer_variables(
            variables, "accumulator", start
        )

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        rate, gradient = cast_to(variable.dtype, learning_rate, gradient)
        a = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(a, ops.square(gradient))
        root = _root(a, self.epsilon, self._epsilon_outside)
        self.assign_sub(variable, rate * gradient / root)


@export("keras.optimizers", "adadelta")
class Adadelta(Optimizer):
    """Steps scaled by the size of recent steps over that of recent gradients.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Adadelta(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.9993, 1.0007], dtype=float32)
    """

    rho = Hyperparameter()
    epsilon = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = _ADADELTA_RATE,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        self.rho = number("rho", rho, high=1.0)
        self.epsilon = small(epsilon)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._grads, self._deltas = self.add_optimizer_variables(
            variables, ["accumulated_grad", "accumulated_delta_var"]
        )

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        rate, gradient = cast_to(variable.dtype, learning_rate, gradient)
        index = self._get_variable_index(variable)
        squares, deltas = self._grads[index], self._deltas[index]
        self.assign(squares, self.rho * squares + (1 - self.rho) * ops.square(gradient))
        length = ops.sqrt(deltas + self.epsilon)
        delta = -(length * gradient / ops.sqrt(squares + self.epsilon))
        self.assign(deltas, self.rho * deltas + (1 - self.rho) * ops.square(delta))
        self.assign_add(variable, rate * delta)


@export("keras.optimizers", "ftrl")
class Ftrl(Optimizer):
    """Follow the regularized leader: sparse weights for linear models.

    >>> import numpy as np
    >>> w = Variable(np.ones(2), name="w")
    >>> Ftrl(learning_rate=0.5).apply([np.array([3.0, -0.1])], [w])
    >>> w.numpy().round(4)
    array([0.3979, 0.1973], dtype=float32)
    """

    learning_rate_power = Hyperparameter()
    l1_regularization_strength = Hyperparameter()
    l2_regularization_strength = Hyperparameter()
    l2_shrinkage_regularization_strength = Hyperparameter()
    beta = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(learning_rate, **common)
        if learning_rate_power > 0:
            raise ValueError(
                "`learning_rate_power` needs to be negative or zero. Received: "
                f"learning_rate_power={learning_rate_power}."
            )
        self.learning_rate_power = -number("-learning_rate_power", -learning_rate_power)
        self.initial_accumulator_value = number(
            "initial_accumulator_value", initial_accumulator_value
        )
        self.l1_regularization_strength = number(
            "l1_regularization_strength", l1_regularization_strength
        )
        self.l2_regularization_strength = number(
            "l2_regularization_strength", l2_regularization_strength
        )
        self.l2_shrinkage_regularization_strength = number(
            "l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength
        )
        self.beta = number("beta", beta)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        start = initializers.Constant(self.initial_accumulator_value)
        self._accumulators, self._linears = self.add_optimizer_variables(
            variables, ["accumulator", "linear"], [start, "zeros"]
        )

    @elementwise
    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        rate, gradient = cast_to(variable.dtype, learning_rate, gradient)
        index = self._get_variable_index(variable)
        old, linear = self._accumulators[index], self._linears[index]
        power = -self.learning_rate_power
        l2 = self.l2_regularization_strength + self.beta / (2.0 * rate)
        shrunk = gradient + 2 * self.l2_shrinkage_regularization_strength * variable
        new = old + ops.square(gradient)
        root = ops.power(new, power)
        change = (root - ops.power(old, power)) / rate
        self.assign_add(linear, shrunk - change * variable)
        limit = self.l1_regularization_strength
        target = ops.clip(linear, -limit, limit) - linear
        self.assign(variable, target / (root / rate + 2 * l2))
        self.assign(old, new)
