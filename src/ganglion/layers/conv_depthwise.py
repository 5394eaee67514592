"""Convolution of each channel alone, with or without mixing them afterwards."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.arguments import keep, passed, positive, weight
from ganglion.layers.conv import WindowLayer
from ganglion.serialization import export


class _DepthwiseConv(WindowLayer):
    def __init__(
        self,
        *,
        depth_multiplier: int,
        depthwise_initializer: Any,
        bias_initializer: Any,
        depthwise_regularizer: Any,
        bias_regularizer: Any,
        depthwise_constraint: Any,
        bias_constraint: Any,
        **window: Any,
    ) -> None:
        super().__init__(**window)
        self.depth_multiplier = positive(depth_multiplier, "depth_multiplier")
        keep(
            self,
            depthwise_initializer=depthwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        """Make the kernel (*sizes, channels, multiplier) and the bias."""
        channels = self._channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = weight(self, "kernel", shape, settings="depthwise")
        outputs = channels * self.depth_multiplier
        self.bias = weight(self, "bias", (outputs,)) if self.use_bias else None

    def call(self, inputs: Any) -> Any:
        return self._finish(ops.depthwise_conv(inputs, self.kernel, **self._window()))


@export("keras.layers")
class DepthwiseConv1D(_DepthwiseConv):
    """Convolution of each channel alone, over steps."""

    rank = 1

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers")
class DepthwiseConv2D(_DepthwiseConv):
    """Convolution of each channel alone, over images.

    >>> import numpy as np
    >>> DepthwiseConv2D(3, depth_multiplier=2)(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 3, 3, 6)
    """

    rank = 2

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


class _SeparableConv(WindowLayer):
    def __init__(
        self,
        *,
        filters: int,
        depth_multiplier: int,
        depthwise_initializer: Any,
        pointwise_initializer: Any,
        bias_initializer: Any,
        depthwise_regularizer: Any,
        pointwise_regularizer: Any,
        bias_regularizer: Any,
        depthwise_constraint: Any,
        pointwise_constraint: Any,
        bias_constraint: Any,
        **window: Any,
    ) -> None:
        super().__init__(**window)
        self.filters = positive(filters, "filters")
        self.depth_multiplier = positive(depth_multiplier, "depth_multiplier")
        keep(
            self,
            depthwise_initializer=depthwise_initializer,
            pointwise_initializer=pointwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            pointwise_regularizer=pointwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            pointwise_constraint=pointwise_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        deep = (*self.kernel_size, channels, self.depth_multiplier)
        point = (*[1] * self.rank, channels * self.depth_multiplier, self.filters)
        self.depthwise_kernel = weight(self, "depthwise_kernel", deep, "depthwise")
        self.pointwise_kernel = weight(self, "pointwise_kernel", point, "pointwise")
        self.bias = weight(self, "bias", (self.filters,)) if self.use_bias else None

    def call(self, inputs: Any) -> Any:
        outputs = ops.separable_conv(
            inputs, self.depthwise_kernel, self.pointwise_kernel, **self._window()
        )
        return self._finish(outputs)


@export("keras.layers", "SeparableConvolution1D")
class SeparableConv1D(_SeparableConv):
    """Convolution over steps in two parts: places first, then channels."""

    rank = 1

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "SeparableConvolution2D")
class SeparableConv2D(_SeparableConv):
    """Convolution over images in two parts: places first, then channels."""

    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))
