"""Convolution run backwards: every input element spreads over a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.arguments import keep, passed, positive, weight
from ganglion.layers.conv import WindowLayer
from ganglion.serialization import export


class _ConvTranspose(WindowLayer):
    def __init__(
        self,
        *,
        filters: int,
        output_padding: Any,
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
        self.output_padding = self._extra(output_padding)
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

    def _extra(self, given: Any) -> tuple[int, ...] | None:
        if given is None:
            return None
        is_one = isinstance(given, (int, np.integer))
        extra = (given,) * self.rank if is_one else tuple(given)
        fits = len(extra) == self.rank and all(
            0 <= n < stride for n, stride in zip(extra, self.strides, strict=True)
        )
        if not fits:
            raise ValueError(
                f"`output_padding` must be {self.rank} numbers from 0 up to, not "
                f"including, the strides {self.strides}, got {given!r}."
            )
        return tuple(int(n) for n in extra)

    def build(self, input_shape: Any) -> None:
        """Make the kernel (*sizes, filters, channels) and the bias."""
        shape = (*self.kernel_size, self.filters, self._channels(input_shape))
        self.kernel = weight(self, "kernel", shape)
        self.bias = weight(self, "bias", (self.filters,)) if self.use_bias else None

    def call(self, inputs: Any) -> Any:
        outputs = ops.conv_transpose(
            inputs, self.kernel, output_padding=self.output_padding, **self._window()
        )
        return self._finish(outputs)


@export("keras.layers", "Convolution1DTranspose")
class Conv1DTranspose(_ConvTranspose):
    """Transposed convolution over steps."""

    rank = 1

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        output_padding: Any = None,
        data_format: str | None = None,
        dilation_rate: Any = 1,
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


@export("keras.layers", "Convolution2DTranspose", "Deconvolution2D")
class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution over images, which makes them larger.

    >>> import numpy as np
    >>> Conv2DTranspose(8, 3, 2, "same")(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 10, 10, 8)
    """

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        output_padding: Any = None,
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
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


@export("keras.layers", "Convolution3DTranspose", "Deconvolution3D")
class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution over volumes."""

    rank = 3

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        output_padding: Any = None,
        dilation_rate: Any = (1, 1, 1),
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
