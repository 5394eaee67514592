"""Convolution over steps, images and volumes."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.arguments import (
    activated,
    channels_last,
    keep,
    known_size,
    padding_of,
    passed,
    positive,
    sizes,
    weight,
)
from ganglion.layers.base import Layer
from ganglion.layers.inputspec import InputSpec
from ganglion.serialization import export


class WindowLayer(Layer):
    """What all convolutions share: a window with strides, padding and dilation."""

    rank = 0
    activation: Any
    bias: Any

    def __init__(
        self,
        *,
        kernel_size: Any,
        strides: Any,
        padding: str,
        data_format: str | None,
        dilation_rate: Any,
        activation: Any,
        use_bias: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.strides = sizes(strides, self.rank, "strides")
        self.dilation_rate = sizes(dilation_rate, self.rank, "dilation_rate")
        self.padding = padding_of(
            padding, *(["causal"] if self._may_be_causal() else [])
        )
        self.data_format = channels_last(data_format)
        self.use_bias = use_bias
        keep(self, activation=activation)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _may_be_causal(self) -> bool:
        return False

    def _refuse_stride_with_dilation(self) -> None:
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                f"{type(self).__name__} has either strides or dilation, not both: got "
                f"strides={self.strides} and dilation_rate={self.dilation_rate}."
            )

    def _channels(self, input_shape: Any) -> int:
        """Return the number of input channels, and accept no other from now on."""
        channels = known_size(self, input_shape, -1)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={-1: channels})
        return channels

    def _window(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "padding": self.padding,
            "dilation_rate": self.dilation_rate,
        }

    def _finish(self, outputs: Any) -> Any:
        if self.bias is not None:
            outputs = outputs + self.bias
        return activated(self, outputs)


class _Conv(WindowLayer):
    def __init__(
        self,
        *,
        filters: int,
        groups: int,
        kernel_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        bias_regularizer: Any,
        kernel_constraint: Any,
        bias_constraint: Any,
        **window: Any,
    ) -> None:
        super().__init__(**window)
        self.filters = positive(filters, "filters")
        self.groups = positive(groups, "groups")
        keep(
            self,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        self._refuse_stride_with_dilation()
        if self.filters % self.groups:
            raise ValueError(
                f"{self.filters} filters cannot be divided into {self.groups} groups."
            )

    def _may_be_causal(self) -> bool:
        return self.rank == 1

    def build(self, input_shape: Any) -> None:
        """Make the kernel (*sizes, channels / groups, filters) and the bias."""
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ValueError(
                f'Layer "{self.name}": {channels} input channels cannot be divided '
                f"into {self.groups} groups."
            )
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        self.kernel = weight(self, "kernel", shape)
        self.bias = weight(self, "bias", (self.filters,)) if self.use_bias else None

    def call(self, inputs: Any) -> Any:
        return self._finish(ops.conv(inputs, self.kernel, **self._window()))


@export("keras.layers", "Convolution1D")
class Conv1D(_Conv):
    """Convolution over steps (batch, steps, channels)."""

    rank = 1

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "Convolution2D")
class Conv2D(_Conv):
    """Convolution over images (batch, rows, columns, channels).

    >>> import numpy as np
    >>> Conv2D(8, 3, padding="same")(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 5, 5, 8)
    """

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "Convolution3D")
class Conv3D(_Conv):
    """Convolution over volumes (batch, depth, rows, columns, channels)."""

    rank = 3

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = (1, 1, 1),
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))
