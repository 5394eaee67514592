"""ConvLSTM: an LSTM whose products are convolutions, over steps, images or volumes."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.arguments import (
    along_channels,
    channel_axis,
    known_size,
    padding_of,
    spatial_axes,
    weight,
)
from ganglion.layers.base import InputSpec
from ganglion.layers.rnn.cells import DropoutCell, lstm_step, relied_on
from ganglion.layers.rnn.layers import CellLayer
from ganglion.ops.windows import window_counts
from ganglion.serialization import export, passed


class ConvLSTMCell(DropoutCell):
    """One step of a ConvLSTM."""

    gates = 4
    rank: int
    filters: int
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation_rate: tuple[int, ...]
    padding: str
    data_format: str

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
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
        self.gate_axis = channel_axis(self.data_format)
        self.implementation = 1  # each gate drops elements of its own
        self.padding = padding_of(padding)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "Specifying `strides > 1` is not compatible with `dilation_rate > 1`: "
                f"got strides={self.strides}, dilation_rate={self.dilation_rate}."
            )
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self.state_size: Any = -1  # it depends on the size of the images

    def build(self, input_shape: Any) -> None:
        """Make the kernels (*sizes, channels, 4 * filters) and the bias."""
        axes = spatial_axes(self.data_format, self.rank)
        sizes = [known_size(self, input_shape, axis) for axis in axes]
        columns = 4 * self.filters
        channels = known_size(self, input_shape, channel_axis(self.data_format))
        self.kernel = weight(self, "kernel", (*self.kernel_size, channels, columns))
        self.recurrent_kernel = weight(
            self,
            "recurrent_kernel",
            (*self.kernel_size, self.filters, columns),
            settings="recurrent",
        )
        self.bias = self._add_forget_bias(self.filters) if self.use_bias else None
        window = self.kernel_size, self.strides, self.dilation_rate
        sizes = window_counts(sizes, *window, padding=self.padding)
        is_last = self.data_format == "channels_last"
        self.state_shape = (*sizes, self.filters) if is_last else (self.filters, *sizes)

    @relied_on
    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """Return zeros."""
        shape = (batch_size, *self.state_shape)
        return [ops.zeros(shape, dtype=self.compute_dtype) for _ in range(2)]

    @relied_on
    def call(self, inputs: Any, states: Any, training: Any = False) -> Any:
        h, c = states
        seen, state = self._dropped(inputs, h, training)
        z = self._product(seen, self.kernel, self._input_conv)
        if self.bias is not None:
            z = z + along_channels(self.bias, self.data_format, self.rank)
        z = z + self._product(state, self.recurrent_kernel, self._recurrent_conv)
        h, c = lstm_step(self, z, c)
        return h, [h, c]

    def _input_conv(self, x: Any, kernel: Any) -> Any:
        return ops.conv(
            x,
            kernel,
            strides=self.strides,
            padding=self.padding,
            data_format=self.data_format,
            dilation_rate=self.dilation_rate,
        )

    def _recurrent_conv(self, state: Any, kernel: Any) -> Any:
        return ops.conv(
            state, kernel, strides=1, padding="same", data_format=self.data_format
        )


class _ConvLSTM(CellLayer, cell=ConvLSTMCell):
    """Written once; the class of a rank names it."""

    rank: int

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
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
        **kwargs: Any,
    ) -> None:
        self._make(passed(locals()) | {"rank": self.rank})
        self.input_spec = InputSpec(ndim=self.rank + 3)


@export("keras.layers")
class ConvLSTM1D(_ConvLSTM):
    """ConvLSTM over sequences of steps (batch, time, steps, channels).

    >>> import numpy as np
    >>> ConvLSTM1D(4, 3)(np.ones((1, 2, 6, 3), "float32")).shape
    (1, 4, 4)
    """

    rank = 1


@export("keras.layers")
class ConvLSTM2D(_ConvLSTM):
    """ConvLSTM over sequences of images (batch, time, rows, columns, channels).

    >>> import numpy as np
    >>> ConvLSTM2D(4, 3, padding="same")(np.ones((1, 5, 8, 8, 3), "float32")).shape
    (1, 8, 8, 4)
    """

    rank = 2


@export("keras.layers")
class ConvLSTM3D(_ConvLSTM):
    """ConvLSTM over sequences of volumes.

    >>> import numpy as np
    >>> ConvLSTM3D(2, 2)(np.ones((1, 2, 3, 3, 3, 1), "float32")).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3
