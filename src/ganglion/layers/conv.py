"""Convolutions over steps, images and volumes: plain, depthwise, transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import activations, ops
from ganglion.layers.arguments import (
    SpatialLayer,
    along_channels,
    keep,
    known_size,
    padding_of,
    positive,
    weight,
)
from ganglion.layers.base import InputSpec, activated
from ganglion.layers.weight_formats.lora import Adaptable, adapted
from ganglion.ops.windows import transposed_window, window_counts
from ganglion.serialization import export, passed

__all__ = [
    "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Conv3DTranspose", "Convolution1D", "Convolution1DTranspose", "Convolution2D",
    "Convolution2DTranspose", "Convolution3D", "Convolution3DTranspose",
    "Deconvolution2D", "Deconvolution3D", "DepthwiseConv1D", "DepthwiseConv2D",
    "SeparableConv1D", "SeparableConv2D", "SeparableConvolution1D",
    "SeparableConvolution2D",
]  # fmt: skip


class _Window(SpatialLayer):
    """The base of all convolutions: a window with strides, padding and dilation."""

    activation: Any
    bias: Any
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation_rate: tuple[int, ...]
    padding: str
    filters: int
    depth_multiplier: int
    use_bias: bool
    names_activity_regularizer = True
    _more_padding: tuple[str, ...] = ()

    def _keep(self, scope: dict[str, Any]) -> None:
        keep(self, scope)
        self.padding = padding_of(self.padding, *self._more_padding)

    def _refuse_stride_with_dilation(self) -> None:
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides > 1` not supported in conjunction with `dilation_rate > 1`. "
                f"Received: strides={self.strides} and "
                f"dilation_rate={self.dilation_rate}"
            )

    def _channels(self, input_shape: Any) -> int:
        """Return the number of input channels, and accept no other from now on."""
        axis = self._channel_axis
        channels = known_size(self, input_shape, axis)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: channels})
        return channels

    def _shape_rule(self, input_shape: Any) -> Any:
        """Return the output shape, which needs channels only if it is depthwise."""
        if len(input_shape) != self.rank + 2:
            return None  # tracing raises a better error
        sizes = [input_shape[axis] for axis in self._spatial_axes]
        known = list(self._sizes_behind([n if n is not None else 0 for n in sizes]))
        out = [None if n is None else m for n, m in zip(sizes, known, strict=True)]
        if any(m is not None and m < 1 for m in out):
            return None
        channels = self._channels_behind(input_shape[self._channel_axis])
        is_last = self.data_format == "channels_last"
        inner = (*out, channels) if is_last else (channels, *out)
        return (input_shape[0], *inner)

    def _sizes_behind(self, sizes: list[int]) -> Sequence[int]:
        window = self.kernel_size, self.strides, self.dilation_rate
        return window_counts(sizes, *window, padding=self.padding)

    def _channels_behind(self, channels: int | None) -> int | None:
        return self.filters

    def _add_bias(self, size: int) -> None:
        self.bias = weight(self, "bias", (size,)) if self.use_bias else None

    def _window(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
        }

    def _finish(self, outputs: Any) -> Any:
        if self.bias is not None:
            outputs = outputs + along_channels(self.bias, self.data_format, self.rank)
        return activated(self, outputs)


class _Conv(_Window, Adaptable):
    kernel = adapted("kernel")
    groups: int

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
        lora_rank = kwargs.pop("lora_rank", None)
        lora_alpha = kwargs.pop("lora_alpha", None)
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())
        if isinstance(groups, int) and groups < 1:
            raise ValueError(
                "The number of groups must be a positive integer. Received: "
                f"groups={groups}."
            )
        self.groups = positive(groups, "groups")
        self._refuse_stride_with_dilation()
        if self.filters % self.groups:
            raise ValueError(
                "The number of filters must be evenly divisible by the number of "
                f"groups. Received: groups={self.groups}, filters={self.filters}."
            )

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
        self._add_bias(self.filters)
        self._enable_chosen_lora()

    def _follows_shape_rule(self) -> bool:
        return not self.lora_enabled and activations.is_elementwise(self.activation)

    def call(self, inputs: Any) -> Any:
        return self._finish(ops.conv(inputs, self.kernel, **self._window()))


@export("keras.layers", "Convolution1D")
class Conv1D(_Conv, rank=1):
    """Convolution over steps (batch, steps, channels).

    >>> import numpy as np
    >>> Conv1D(4, 3)(np.ones((1, 6, 3), "float32")).shape
    (1, 4, 4)
    """

    _more_padding = ("causal",)


@export("keras.layers", "Convolution2D")
class Conv2D(_Conv, rank=2, strides=(1, 1), dilation_rate=(1, 1)):
    """Convolution over images (batch, rows, columns, channels).

    >>> import numpy as np
    >>> Conv2D(8, 3, padding="same")(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 5, 5, 8)
    """


@export("keras.layers", "Convolution3D")
class Conv3D(_Conv, rank=3, strides=(1, 1, 1), dilation_rate=(1, 1, 1)):
    """Convolution over volumes (batch, depth, rows, columns, channels).

    >>> import numpy as np
    >>> Conv3D(4, 3)(np.ones((1, 4, 4, 4, 2), "float32")).shape
    (1, 2, 2, 2, 4)
    """


class _DepthwiseConv(_Window):
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
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())

    def build(self, input_shape: Any) -> None:
        """Make the kernel (*sizes, channels, multiplier) and the bias."""
        channels = self._channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = weight(self, "kernel", shape, settings="depthwise")
        self._add_bias(channels * self.depth_multiplier)

    def _channels_behind(self, channels: int | None) -> int | None:
        return None if channels is None else channels * self.depth_multiplier

    def call(self, inputs: Any) -> Any:
        return self._finish(ops.depthwise_conv(inputs, self.kernel, **self._window()))


@export("keras.layers")
class DepthwiseConv1D(_DepthwiseConv, rank=1):
    """Convolution of each channel alone, over steps.

    >>> import numpy as np
    >>> DepthwiseConv1D(3, depth_multiplier=2)(np.ones((1, 6, 3), "float32")).shape
    (1, 4, 6)
    """


@export("keras.layers")
class DepthwiseConv2D(_DepthwiseConv, rank=2, strides=(1, 1), dilation_rate=(1, 1)):
    """Convolution of each channel alone, over images.

    >>> import numpy as np
    >>> DepthwiseConv2D(3, depth_multiplier=2)(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 3, 3, 6)
    """


class _SeparableConv(_Window):
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
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        deep = (*self.kernel_size, channels, self.depth_multiplier)
        point = (*[1] * self.rank, channels * self.depth_multiplier, self.filters)
        self.depthwise_kernel = weight(self, "depthwise_kernel", deep, "depthwise")
        self.pointwise_kernel = weight(self, "pointwise_kernel", point, "pointwise")
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        outputs = ops.separable_conv(
            inputs, self.depthwise_kernel, self.pointwise_kernel, **self._window()
        )
        return self._finish(outputs)


@export("keras.layers", "SeparableConvolution1D")
class SeparableConv1D(_SeparableConv, rank=1):
    """Depthwise convolution over steps, then a product that mixes the channels.

    >>> import numpy as np
    >>> SeparableConv1D(4, 3)(np.ones((1, 6, 3), "float32")).shape
    (1, 4, 4)
    """


@export("keras.layers", "SeparableConvolution2D")
class SeparableConv2D(_SeparableConv, rank=2, strides=(1, 1), dilation_rate=(1, 1)):
    """Depthwise convolution over images, then a product that mixes the channels.

    >>> import numpy as np
    >>> SeparableConv2D(4, 3)(np.ones((1, 6, 6, 3), "float32")).shape
    (1, 4, 4, 4)
    """


class _ConvTranspose(_Window):
    """Convolution run backwards: every input element spreads over a window."""

    output_padding: tuple[int, ...] | None

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
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())
        self.output_padding = self._checked_output_padding(output_padding)
        self._refuse_stride_with_dilation()

    def _checked_output_padding(self, value: Any) -> tuple[int, ...] | None:
        if value is None:
            return None
        is_number = isinstance(value, (int, np.integer))
        extra = (value,) * self.rank if is_number else tuple(value)
        fits = len(extra) == self.rank and all(
            0 <= n < stride for n, stride in zip(extra, self.strides, strict=True)
        )
        if not fits:
            raise ValueError(
                "`output_padding` must be strictly less than `strides` and not "
                f"negative: {self.rank} number(s) for the strides {self.strides}, got "
                f"{value!r}."
            )
        return tuple(int(n) for n in extra)

    def build(self, input_shape: Any) -> None:
        """Make the kernel (*sizes, filters, channels) and the bias."""
        shape = (*self.kernel_size, self.filters, self._channels(input_shape))
        self.kernel = weight(self, "kernel", shape)
        self._add_bias(self.filters)

    def _sizes_behind(self, sizes: list[int]) -> Sequence[int]:
        window = self.kernel_size, self.strides, self.dilation_rate
        return transposed_window(
            tuple(sizes), *window, self.padding, self.output_padding
        )[0]

    def call(self, inputs: Any) -> Any:
        outputs = ops.conv_transpose(
            inputs, self.kernel, output_padding=self.output_padding, **self._window()
        )
        return self._finish(outputs)


@export("keras.layers", "Convolution1DTranspose")
class Conv1DTranspose(_ConvTranspose, rank=1):
    """Transposed convolution over steps.

    >>> import numpy as np
    >>> Conv1DTranspose(4, 3, strides=2)(np.ones((1, 6, 3), "float32")).shape
    (1, 13, 4)
    """


@export("keras.layers", "Convolution2DTranspose", "Deconvolution2D")
class Conv2DTranspose(_ConvTranspose, rank=2, strides=(1, 1), dilation_rate=(1, 1)):
    """Transposed convolution over images, which makes them larger.

    >>> import numpy as np
    >>> Conv2DTranspose(8, 3, 2, "same")(np.ones((1, 5, 5, 3), "float32")).shape
    (1, 10, 10, 8)
    """


@export("keras.layers", "Convolution3DTranspose", "Deconvolution3D")
class Conv3DTranspose(_ConvTranspose, rank=3):
    """Transposed convolution over volumes.

    >>> import numpy as np
    >>> layer = Conv3DTranspose(4, 2, strides=2)
    >>> layer(np.ones((1, 4, 4, 4, 2), "float32")).shape
    (1, 8, 8, 8, 4)
    """

    def __init__(  # in Keras, `data_format` comes before `output_padding` here only
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


Convolution1D, Convolution2D, Convolution3D = Conv1D, Conv2D, Conv3D
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Deconvolution2D = Conv2DTranspose
Convolution3DTranspose = Deconvolution3D = Conv3DTranspose
SeparableConvolution1D, SeparableConvolution2D = SeparableConv1D, SeparableConv2D
