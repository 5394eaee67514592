"""SimpleRNN, LSTM and GRU: recurrent layers with a cell of their own."""

from __future__ import annotations

import inspect
from operator import attrgetter
from typing import Any

from ganglion import keras2
from ganglion.layers.base import InputSpec
from ganglion.layers.construction import is_own
from ganglion.layers.rnn.base import RNN
from ganglion.layers.rnn.cells import GRUCell, LSTMCell, SimpleRNNCell
from ganglion.serialization import export, passed
from ganglion.variables import snake_case

_OF_EVERY_LAYER = ("self", "kwargs", "name")


class CellLayer(RNN):
    """A recurrent layer that makes its cell and shows the cell's arguments as its own.

    A subclass names the cell: ``class LSTM(CellLayer, cell=LSTMCell)``.
    """

    names_activity_regularizer = True
    cell_type: type
    cell_arguments: tuple[str, ...] = ()
    units: int
    activation: Any

    def __init_subclass__(cls, cell: Any = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cell is None:
            return
        names = inspect.signature(cell.__init__).parameters
        cls.cell_type = cell
        cls.cell_arguments = tuple(n for n in names if n not in _OF_EVERY_LAYER)
        for name in cls.cell_arguments:
            setattr(cls, name, property(attrgetter(f"cell.{name}")))

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        has_units = "units" in self.cell_arguments and not is_own(self, "call")
        if not has_units or self.return_state or self.time_major:
            return super().compute_output_shape(*args, **kwargs)
        rows, steps = (args[0] if args else next(iter(kwargs.values())))[:2]
        return (rows, *([steps] if self.return_sequences else []), self.units)

    def _make(self, arguments: dict[str, Any]) -> None:
        """Make the cell, and this layer, from the arguments of both."""
        if arguments.pop("consume_less", None) is not None:
            keras2.note("`consume_less=`", "left out: the loop over time is compiled")
            self._init_values.pop("consume_less", None)
        chooses_cudnn = "use_cudnn" in arguments
        use_cudnn = arguments.pop("use_cudnn", "auto")
        if use_cudnn not in ("auto", True, False):
            raise ValueError(
                f"`use_cudnn` must be 'auto', True or False, got {use_cudnn!r}."
            )
        both = ("implementation", *self.cell_arguments)
        of_cell = {name: arguments.pop(name) for name in both if name in arguments}
        shared = {k: arguments[k] for k in ("dtype", "trainable") if k in arguments}
        name = snake_case(self.cell_type.__name__)
        RNN.__init__(self, self.cell_type(**of_cell, **shared, name=name), **arguments)
        if chooses_cudnn:
            self.use_cudnn = use_cudnn
        self.input_spec = InputSpec(ndim=3)


@export("keras.layers")
class SimpleRNN(CellLayer, cell=SimpleRNNCell):
    """A recurrent layer whose output is its state, and its next input.

    >>> import numpy as np
    >>> SimpleRNN(4)(np.ones((2, 5, 3), "float32")).shape
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
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        self._make(passed(locals()))


@export("keras.layers")
class LSTM(CellLayer, cell=LSTMCell):
    """Long short-term memory: a state that gates write, keep and read.

    >>> import numpy as np
    >>> x = np.ones((2, 5, 3), "float32")
    >>> outputs, h, c = LSTM(4, return_sequences=True, return_state=True)(x)
    >>> outputs.shape, h.shape, c.shape
    ((2, 5, 4), (2, 4), (2, 4))
    """

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
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        self._make(passed(locals()))


@export("keras.layers")
class GRU(CellLayer, cell=GRUCell):
    """Gated recurrent unit: a state that a gate updates and another resets.

    With `reset_after`, the reset gate scales what the state is multiplied to, as in
    cuDNN and PyTorch; without, it scales the state before.

    >>> import numpy as np
    >>> GRU(4, return_sequences=True)(np.ones((2, 3, 5), "float32")).shape
    (2, 3, 4)
    """

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
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        self._make(passed(locals()))
