"""Cells: the computation of a recurrent layer at a step of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ganglion import initializers, ops, random
from ganglion.hyperparameters import Hyperparameter
from ganglion.layers.arguments import keep, known_size, share, weight
from ganglion.layers.base import Layer
from ganglion.serialization import export
from ganglion.variables import current_scope

Method = TypeVar("Method", bound=Callable[..., Any])


def relied_on(method: Method) -> Method:
    """Mark a method on which the loop relies: the output is the first new state."""
    method.relied_on = True  # type: ignore[attr-defined]
    return method


def returns_its_state(cell: Any) -> bool:
    """Return whether a cell begins with zeros and returns its first state.

    This holds unless a subclass overrides these methods.
    """
    methods = (
        getattr(type(cell), name, None) for name in ("call", "get_initial_state")
    )
    return all(getattr(method, "relied_on", False) for method in methods)


@contextmanager
def same_dropout(cell: Any) -> Iterator[None]:
    """Let the cells in this block draw the same elements whenever they are called."""
    scope = current_scope()
    if scope is None or not isinstance(cell, Layer):
        yield
        return
    cells = [part for part in cell._flatten_layers() if isinstance(part, DropoutCell)]
    before, scope.noise = scope.noise, dict(scope.noise)
    scope.noise.update({part: part.draw_noise() for part in cells})
    try:
        yield
    finally:
        scope.noise = before


Noise = tuple[list[Any], list[Any]]  # random states, for the inputs and for the state


class DropoutCell(Layer):
    """A cell with gates that may drop elements of its inputs and of its state.

    Each gate drops other elements where `implementation` is 1, as dropout of the state
    requires; otherwise all gates share them, so that they stay a single product.
    """

    gates = 1
    gate_axis = -1  # along which the sums of all gates lie
    dropout = Hyperparameter()
    recurrent_dropout = Hyperparameter()
    seed: Any
    use_bias: bool
    activation: Any
    recurrent_activation: Any
    kernel: Any
    recurrent_kernel: Any
    bias: Any

    def __init__(self, implementation: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._init_values.pop("implementation", None)  # no part of a configuration
        self.implementation = implementation

    def _keep(self, scope: dict[str, Any]) -> None:
        keep(self, scope)
        share(self.dropout, "dropout")
        share(self.recurrent_dropout, "recurrent_dropout")
        if self.recurrent_dropout:
            self.implementation = 1
        self.seed_generator = random.SeedGenerator(self.seed)

    def draw_noise(self) -> Noise:
        """Return states of the generator, a state for each mask that is drawn."""
        scope = current_scope()
        count = self.gates if self.implementation == 1 else 1
        draws = [
            count if 0 < rate < 1 and (scope is None or scope.training) else 0
            for rate in (self.dropout, self.recurrent_dropout)
        ]
        inputs, state = ([self.seed_generator.next() for _ in range(n)] for n in draws)
        return inputs, state

    def _dropped(
        self, inputs: Any, state: Any, training: Any
    ) -> tuple[list[Any], list[Any]]:
        """Return inputs and state as each gate sees them; alone if all see the same."""
        if not training:
            return [inputs], [state]
        scope = current_scope()
        noise = scope.noise.get(self) if scope is not None else None
        for_inputs, for_state = noise or self.draw_noise()
        return (
            _masked(inputs, self.dropout, for_inputs),
            _masked(state, self.recurrent_dropout, for_state),
        )

    def _product(
        self, values: list[Any], kernel: Any, multiply: Any = ops.matmul
    ) -> Any:
        """Return the product with a kernel, gate by gate if they see other values."""
        if len(values) == 1:
            return multiply(values[0], kernel)
        parts = ops.split(kernel, len(values), axis=-1)
        products = list(map(multiply, values, parts))
        return ops.concatenate(products, axis=self.gate_axis)

    def _add_forget_bias(self, units: int) -> Any:
        """Create the bias of an LSTM, which is initially 1 for the forget gate."""

        def forgetting(shape: Any, dtype: Any = None) -> Any:
            own, ones = self.bias_initializer, initializers.get("ones")
            return ops.concatenate(
                [
                    own((units,), dtype=dtype),
                    ones((units,), dtype=dtype),
                    own((2 * units,), dtype=dtype),
                ]
            )

        return self.add_weight(
            shape=(4 * units,),
            initializer=forgetting if self.unit_forget_bias else self.bias_initializer,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
            name="bias",
        )

    bias_initializer: Any
    bias_regularizer: Any
    bias_constraint: Any
    unit_forget_bias: bool


def _masked(x: Any, rate: float, states: list[Any]) -> list[Any]:
    ones = ops.ones_like(x)
    return [x * random.dropout(ones, rate, seed=state) for state in states] or [x]


class _DenseCell(DropoutCell):
    """A cell whose inputs and state are vectors."""

    units: int
    state_size: Any

    def _keep(self, scope: dict[str, Any]) -> None:
        super()._keep(scope)
        self.state_size = self.output_size = self.units

    def build(self, input_shape: Any) -> None:
        """Make the kernels (inputs, gates * units) and (units, gates * units)."""
        columns = self.gates * self.units
        inputs = known_size(self, input_shape, -1)
        self.kernel = weight(self, "kernel", (inputs, columns))
        self.recurrent_kernel = weight(
            self, "recurrent_kernel", (self.units, columns), settings="recurrent"
        )
        self.bias = self._add_bias(columns) if self.use_bias else None

    def _add_bias(self, columns: int) -> Any:
        return weight(self, "bias", (columns,))

    @relied_on
    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return zeros."""
        many = isinstance(self.state_size, (list, tuple))
        sizes = self.state_size if many else [self.state_size]
        return [
            ops.zeros((batch_size, size), dtype=self.compute_dtype) for size in sizes
        ]


def _only(states: Any) -> Any:
    return states[0] if isinstance(states, (list, tuple)) else states


def _as_given(state: Any, states: Any) -> Any:
    return [state] if isinstance(states, (list, tuple)) else state


@export("keras.layers")
class SimpleRNNCell(_DenseCell):
    """One step of a SimpleRNN: ``activation(x @ kernel + h @ recurrent_kernel + b)``.

    >>> import numpy as np
    >>> cell = SimpleRNNCell(4)
    >>> output, states = cell(np.ones((2, 3), "float32"), cell.get_initial_state(2))
    >>> output.shape
    (2, 4)
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())

    @relied_on
    def call(self, sequence: Any, states: Any, training: Any = False) -> Any:
        inputs, state = self._dropped(sequence, _only(states), training)
        z = self._product(inputs, self.kernel)
        if self.bias is not None:
            z = z + self.bias
        z = z + self._product(state, self.recurrent_kernel)
        h = self.activation(z)
        return h, _as_given(h, states)


@export("keras.layers")
class LSTMCell(_DenseCell):
    """One step of an LSTM, with an input, a forget and an output gate.

    >>> import numpy as np
    >>> cell, x, state = LSTMCell(4), np.ones((2, 3)), np.zeros((2, 4))
    >>> output, states = cell(x, [state, state])
    >>> output.shape, len(states)
    ((2, 4), 2)
    """

    gates = 4

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.state_size = [self.units, self.units]

    def _add_bias(self, columns: int) -> Any:
        return self._add_forget_bias(self.units)

    @relied_on
    def call(self, inputs: Any, states: Any, training: Any = False) -> Any:
        h, c = states
        seen, state = self._dropped(inputs, h, training)
        z = self._product(seen, self.kernel)
        if self.bias is not None:
            z = z + self.bias
        z = z + self._product(state, self.recurrent_kernel)
        h, c = lstm_step(self, z, c)
        return h, [h, c]


def lstm_step(cell: DropoutCell, z: Any, c: Any) -> tuple[Any, Any]:
    """Return the new states from the sums of all gates and the old cell state."""
    i, f, g, o = ops.split(z, 4, axis=cell.gate_axis)
    gate = cell.recurrent_activation
    c = gate(f) * c + gate(i) * cell.activation(g)
    return gate(o) * cell.activation(c), c


@export("keras.layers")
class GRUCell(_DenseCell):
    """One step of a GRU: gates that update and reset its state.

    >>> import numpy as np
    >>> cell, x, state = GRUCell(4), np.ones((2, 3)), np.zeros((2, 4))
    >>> output, states = cell(x, [state])
    >>> output.shape, len(states)
    ((2, 4), 1)
    """

    gates = 3
    reset_after: bool

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())

    def _add_bias(self, columns: int) -> Any:
        # One for the inputs and another for the state, which the reset gate scales.
        shape = (2, columns) if self.reset_after else (columns,)
        return weight(self, "bias", shape)

    @relied_on
    def call(self, inputs: Any, states: Any, training: Any = False) -> Any:
        h = _only(states)
        seen, state = self._dropped(inputs, h, training)
        x = self._product(seen, self.kernel)
        if self.bias is not None:
            x = x + (self.bias[0] if self.reset_after else self.bias)
        x_z, x_r, x_h = ops.split(x, 3, axis=-1)
        gate = self.recurrent_activation
        if self.reset_after:
            s = self._product(state, self.recurrent_kernel)
            if self.bias is not None:
                s = s + self.bias[1]
            s_z, s_r, s_h = ops.split(s, 3, axis=-1)
            s_h = gate(x_r + s_r) * s_h
        else:
            kernels = ops.split(self.recurrent_kernel, [2 * self.units], axis=-1)
            s_z, s_r = ops.split(self._product(state[:2], kernels[0]), 2, axis=-1)
            s_h = ops.matmul(gate(x_r + s_r) * state[-1], kernels[1])
        z = gate(x_z + s_z)
        h = z * h + (1 - z) * self.activation(x_h + s_h)
        return h, _as_given(h, states)
