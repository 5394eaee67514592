"""Several cells, stacked, as a single cell."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.base import Layer
from ganglion.serialization import export


def check_cell(cell: Any, owner: str) -> None:
    """Refuse what does not follow the protocol of a cell."""
    for name, meaning in (
        ("call", "a method `call(inputs, states)`"),
        ("state_size", "an attribute `state_size`"),
    ):
        if not hasattr(cell, name):
            raise ValueError(f"{owner} needs a cell with {meaning}, got {cell!r}.")


def call_cell(cell: Any, inputs: Any, states: Any, training: Any) -> Any:
    """Call a cell, which may be any object that follows the protocol."""
    if isinstance(cell, Layer):
        return cell(inputs, states, training=training)
    return cell(inputs, states) if callable(cell) else cell.call(inputs, states)


def output_size(cell: Any) -> Any:
    """Return a cell's `output_size`, or the size of its first state."""
    size = getattr(cell, "output_size", None)
    if size is not None:
        return size
    many = isinstance(cell.state_size, (list, tuple))
    return cell.state_size[0] if many else cell.state_size


def initial_state(cell: Any, batch_size: Any, dtype: str) -> Any:
    """Return the initial state of a cell, zeros by default."""
    own = getattr(cell, "get_initial_state", None)
    if own is not None:
        return own(batch_size=batch_size)
    sizes = cell.state_size

    def zeros(size: int) -> Any:
        return ops.zeros((batch_size, size), dtype=dtype)

    return (
        [zeros(n) for n in sizes] if isinstance(sizes, (list, tuple)) else zeros(sizes)
    )


@export("keras.layers")
class StackedRNNCells(Layer):
    """A stack of cells as a cell: each is given the output of the cell below it.

    >>> import numpy as np
    >>> from ganglion import layers
    >>> stack = StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(3)])
    >>> layers.RNN(stack)(np.ones((2, 5, 6), "float32")).shape
    (2, 3)
    """

    def __init__(self, cells: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(cells, (list, tuple)) or not cells:
            raise ValueError(f"StackedRNNCells needs a list of cells, got {cells!r}.")
        for cell in cells:
            check_cell(cell, "StackedRNNCells")
        self.cells = cells

    @property
    def state_size(self) -> list[Any]:
        """The sizes of the states of all cells."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> Any:
        """The size of the output of the last cell."""
        return output_size(self.cells[-1])

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return the initial states of each cell."""
        return [
            initial_state(cell, batch_size, self.compute_dtype) for cell in self.cells
        ]

    def build(self, input_shape: Any) -> None:
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell.build(input_shape)
            input_shape = (input_shape[0], output_size(cell))

    def call(self, inputs: Any, states: Any, training: Any = False) -> Any:
        new_states = []
        for cell, state in zip(self.cells, states, strict=True):
            many = isinstance(state, (list, tuple))
            parts = list(state) if many else [state]
            inputs, new = call_cell(cell, inputs, parts, training)
            is_list = isinstance(new, (list, tuple))
            new_states.append(new[0] if is_list and not many else new)
        return inputs, new_states
