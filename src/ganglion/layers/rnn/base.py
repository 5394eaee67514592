"""RNN: a cell, run over the steps of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import keras2, ops, tree
from ganglion.compiler.ir.graph import ShapeError
from ganglion.layers.base import InputSpec, Layer
from ganglion.layers.rnn.cells import returns_its_state, same_dropout
from ganglion.layers.rnn.loop import run_over_time, swapped
from ganglion.layers.rnn.stacked import (
    StackedRNNCells,
    call_cell,
    check_cell,
    initial_state,
)
from ganglion.serialization import export
from ganglion.symbolic import KerasTensor
from ganglion.variables import Variable, suspended

_OPTIONS = (
    "return_sequences", "return_state", "go_backwards", "stateful", "unroll",
    "zero_output_for_mask",
)  # fmt: skip
# Accepted, but no part of a configuration, as in Keras 3.
_NOT_IN_CONFIG = ("implementation", "time_major", "use_cudnn")


@export("keras.layers")
class RNN(Layer):
    """Runs a cell over the steps of sequences (batch, time, features).

    The loop is compiled as a loop, whatever its length, so `unroll` changes nothing.

    >>> from ganglion import layers
    >>> RNN(layers.LSTMCell(4))(np.ones((2, 5, 3), "float32")).shape
    (2, 4)
    """

    # Its variables are no weights: they are not saved, and counted nowhere.
    _untracked = Layer._untracked | {"states"}

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        self.time_major = bool(kwargs.pop("time_major", False))
        super().__init__(**_with_input_shape(self, kwargs))
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell)
        check_cell(cell, type(self).__name__)
        self.cell = cell
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.unroll = unroll
        self.zero_output_for_mask = zero_output_for_mask
        self.states: Any = None
        self.supports_masking = True
        self.input_spec = InputSpec(min_ndim=3)

    @property
    def state_size(self) -> list[Any]:
        """The sizes of the states, always as a list."""
        size = self.cell.state_size
        return list(size) if isinstance(size, (list, tuple)) else [size]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer; Keras 2 passes states after the sequences, in one list."""
        if args and isinstance(args[0], (list, tuple)) and len(args[0]) > 1:
            keras2.note(
                "`layer([x, *states])`",
                "`layer(x, initial_state=states)`",
                changes_defaults=False,
            )
            sequences, *states = args[0]
            args, kwargs["initial_state"] = (sequences, *args[1:]), states
        return super().__call__(*args, **kwargs)

    # ---- building --------------------------------------------------------------

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Build the cell, and the states of a stateful layer whose batch is known."""
        batch = sequences_shape[1 if self.time_major else 0]
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build((batch, *sequences_shape[2:]))
        if self.stateful and self.states is None and batch is not None:
            self._make_states(batch)

    def _make_states(self, batch_size: int) -> None:
        with suspended(), self._name_scope():
            self.states = tree.map_leaves(
                lambda zeros: Variable(zeros, trainable=False, name="rnn_state"),
                self.get_initial_state(batch_size),
            )

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        refuse_unknown_batch(self, args, axis=1 if self.time_major else 0)
        return super()._infer(args, kwargs)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shape of the output, and with `return_state` of all states."""
        sequences_shape = args[0] if args else next(iter(kwargs.values()))
        outputs = self.compute_output_spec(KerasTensor(sequences_shape))
        return tree.map_leaves(lambda tensor: tensor.shape, outputs)

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Return the mask of the outputs; states have none."""
        mask = next(iter(tree.flatten(mask)), None)
        output_mask = mask if self.return_sequences else None
        if self.return_state:
            return [output_mask, *(None for _ in self.state_size)]
        return output_mask

    # ---- states ----------------------------------------------------------------

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return the initial states of the cell, always as a list."""
        state = initial_state(self.cell, batch_size, self.compute_dtype)
        return list(state) if isinstance(state, (list, tuple)) else [state]

    def reset_states(self) -> None:
        """Set the states of a stateful layer to zero: Keras 2's name."""
        self.reset_state()

    def reset_state(self) -> None:
        """Set the states of a stateful layer to zero."""
        for state in tree.flatten(self.states) if self.states is not None else []:
            state.assign(ops.zeros_like(state))

    def _first_states(self, initial: Any, batch_size: int) -> Any:
        """Return the states that the loop begins with, in the structure of the cell."""
        expected = self.get_initial_state(batch_size)
        if self.stateful:
            if self.states is None:
                self._make_states(batch_size)
            self._check_batch(batch_size)
            initial = self.states if initial is None else initial
        if initial is None:
            initial = expected
        leaves = tree.flatten(initial)
        shapes = [tuple(state.shape) for state in tree.flatten(expected)]
        if [tuple(np.shape(state)) for state in leaves] != shapes:
            raise ShapeError(
                f'Layer "{self.name}" has {len(shapes)} state(s) of shape(s) '
                f"{', '.join(map(str, shapes))}, but `initial_state` has "
                f"{', '.join(str(tuple(np.shape(state))) for state in leaves)}."
            )
        dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
        return tree.pack(expected, [ops.cast(state, dtype) for state in leaves])

    def _check_batch(self, batch_size: int) -> None:
        expected = tree.flatten(self.states)[0].shape[0]
        if batch_size != expected:
            raise ValueError(
                f'Layer "{self.name}" is stateful and keeps the states of {expected} '
                f"sequences, but got {batch_size}: the batch size must always be the "
                "same, in `predict` and `evaluate`, too. Leave out rows that fill no "
                "batch."
            )

    # ---- calling ---------------------------------------------------------------

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: Any = False,
    ) -> Any:
        xs = sequences if self.time_major else swapped(sequences)
        length, batch_size = xs.shape[:2]
        if length == 0:
            raise ShapeError(
                f'Layer "{self.name}" got sequences of length 0 (shape '
                f"{tuple(sequences.shape)}): it needs at least one step."
            )
        begins_with_zeros = initial_state is None and not self.stateful

        def step(x: Any, states: Any) -> Any:
            return call_cell(self.cell, x, states, training)

        states = self._first_states(initial_state, batch_size)
        with same_dropout(self.cell):
            last, outputs, states = run_over_time(
                step,
                xs,
                states,
                self._time_first_mask(mask, length, batch_size),
                reverse=self.go_backwards,
                zero_output_for_mask=self.zero_output_for_mask,
                returns_state=begins_with_zeros and returns_its_state(self.cell),
            )
        if self.stateful:
            pairs = zip(tree.flatten(self.states), tree.flatten(states), strict=True)
            for variable, state in pairs:
                variable.assign(state)
        output = self._in_computed_order(outputs) if self.return_sequences else last
        return (output, *states) if self.return_state else output

    def _in_computed_order(self, outputs: Any) -> Any:
        """Return all outputs in the order in which they were computed."""
        outputs = outputs if self.time_major else swapped(outputs)
        axis = 0 if self.time_major else 1
        return ops.flip(outputs, axis=axis) if self.go_backwards else outputs

    def _time_first_mask(self, mask: Any, length: int, batch_size: int) -> Any:
        mask = next(iter(tree.flatten(mask)), None)
        if mask is None:
            return None
        shape = tuple(np.shape(mask))
        sizes = (length, batch_size) if self.time_major else (batch_size, length)
        if shape not in (sizes, (*sizes, 1)):
            raise ShapeError(
                f'Layer "{self.name}" needs a mask of shape {sizes}, one value a step '
                f"of each sequence, got one of shape {shape}."
            )
        mask = ops.reshape(ops.cast(mask, "bool"), sizes)
        return mask if self.time_major else swapped(mask)

    # ---- configuration ---------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal layer."""
        config = super().get_config()
        config = {k: v for k, v in config.items() if k not in _NOT_IN_CONFIG}
        config |= {name: getattr(self, name) for name in _OPTIONS}
        return config | ({"time_major": True} if self.time_major else {})


def refuse_unknown_batch(layer: Any, args: Any, axis: int = 0) -> None:
    """Refuse Keras tensors of any number of rows in a stateful layer."""
    shape = args[0].shape if args else ()
    if layer.stateful and len(shape) > axis and shape[axis] is None:
        raise ValueError(
            f'Layer "{layer.name}" is stateful, so the size of its batches must be '
            f"known, but its input has shape {shape}: give it in "
            "`Input(batch_shape=...)`."
        )


def _with_input_shape(layer: Layer, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Turn Keras 2's `input_dim=` and `input_length=` into the shape they mean."""
    hints = {"input_length", "input_dim"} & kwargs.keys()
    if not hints:
        return kwargs
    layer._init_values.pop("input_length", None)
    length, size = (kwargs.pop(name, None) for name in ("input_length", "input_dim"))
    return {"input_shape": (length, size), **kwargs}
