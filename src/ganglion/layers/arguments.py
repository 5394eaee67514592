"""The constructor arguments that layers have in common: checked and resolved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ganglion import (
    activations,
    config,
    constraints,
    initializers,
    ops,
    regularizers,
    tree,
)
from ganglion.layers.base import InputSpec, Layer
from ganglion.ops.windows import spread
from ganglion.serialization import with_defaults
from ganglion.variables import Variable

# How an argument is checked or resolved, by its name or the last word of it.
_RESOLVE: dict[str, Callable[[Any], Any]] = {
    "activation": activations.get,
    "initializer": initializers.get,
    "regularizer": regularizers.get,
    "constraint": constraints.get,
    "data_format": config.data_format_of,
}
_POSITIVE = (
    "units", "filters", "depth_multiplier", "input_dim", "output_dim", "height",
    "width", "num_heads", "key_dim", "head_dim", "num_query_heads",
    "num_key_value_heads",
)  # fmt: skip
_PER_AXIS = ("kernel_size", "strides", "dilation_rate", "pool_size", "output_size")
_UNSUPPORTED = {  # and what to do instead
    "sparse": "arrays are dense.",
    "ragged": "arrays are dense.",
}
_BASE_ARGUMENTS = (
    "self", "__class__", "kwargs", "activity_regularizer", "name", "weights"
)  # fmt: skip


def keep(layer: Any, scope: dict[str, Any]) -> None:
    """Store the arguments of an `__init__`, its ``locals()``, as attributes.

    Names of activations and the like are resolved, sizes are checked, and what is not
    supported is refused and not stored.
    """
    for name, value in scope.items():
        if name in _UNSUPPORTED:
            refuse(layer, name, value)
        if name in _BASE_ARGUMENTS or name in _UNSUPPORTED:
            continue
        if name in _POSITIVE:
            value = positive(value, name)
        elif name in _PER_AXIS:
            value = sizes(value, layer.rank, name)
        elif resolve := _RESOLVE.get(name) or _RESOLVE.get(name.rpartition("_")[2]):
            value = resolve(value)
        setattr(layer, name, value)


class SpatialLayer(Layer):
    """A layer over `rank` axes between batch and channels: steps, images or volumes.

    A family writes its `__init__` once; the class of a rank names the defaults that
    differ: ``class Conv2D(_Conv, rank=2, strides=(1, 1))``.
    """

    rank = 0
    data_format: str

    def __init_subclass__(cls, rank: int = 0, **defaults: Any) -> None:
        if rank:
            cls.rank = rank
            if "__init__" not in vars(cls):
                init = inspect.unwrap(cls.__init__)
                cls.__init__ = with_defaults(  # type: ignore[method-assign]
                    init, f"{cls.__qualname__}.__init__", cls.__module__, **defaults
                )
        super().__init_subclass__()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _channel_axis(self) -> int:
        return channel_axis(self.data_format)

    @property
    def _spatial_axes(self) -> tuple[int, ...]:
        return spatial_axes(self.data_format, self.rank)


def weight(
    layer: Layer,
    name: str,
    shape: Iterable[int],
    settings: str | None = None,
    initializer: Any = None,
    autocast: bool = True,
) -> Variable:
    """Make a trainable weight from the layer's ``<settings>_initializer`` and so on."""
    settings = settings or name
    return layer.add_weight(
        shape=tuple(shape),
        initializer=initializer or getattr(layer, f"{settings}_initializer"),
        regularizer=getattr(layer, f"{settings}_regularizer"),
        constraint=getattr(layer, f"{settings}_constraint"),
        autocast=autocast,
        name=name,
    )


def refuse(layer: Layer, name: str, value: Any) -> None:
    """Refuse an argument that is set although Ganglion does not support it."""
    if value is not None and value is not False:
        raise ValueError(
            f"{type(layer).__name__} does not support `{name}={value!r}`: "
            f"{_UNSUPPORTED[name]}"
        )


class NotAnIntegerError(TypeError, ValueError):
    """A value that is not an integer: Keras raises either error."""


def positive(value: Any, name: str) -> int:
    """Return an integer of at least 1."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole:
        raise NotAnIntegerError(
            f"Invalid value for argument `{name}`. Expected an integer value for "
            f"`{name}`: `{name}` must be a positive integer, got {value!r}."
        )
    if value < 1:
        raise ValueError(
            f"Invalid value for argument `{name}`. Expected a strictly positive value. "
            f"Received {name}={value}. Argument `{name}` should be a positive integer."
        )
    return int(value)


def share(value: Any, name: str) -> float:
    """Return a number between 0 and 1."""
    if not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise ValueError(
            f"Invalid value received for argument `{name}`. Expected a float value "
            f"between 0 and 1. Received: {name}={value!r}"
        )
    return value  # type: ignore[return-value]


def sizes(value: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return a positive integer per spatial axis."""
    try:
        return spread(value, rank, name)
    except (TypeError, ValueError):
        each = value if isinstance(value, (list, tuple)) else (value,)
        wrong = {n for n in each if isinstance(n, int) and n < 1}
        values = f", including values {wrong} that do not satisfy `value > 0`"
        raise ValueError(
            f"The `{name}` argument must be a tuple of {rank} integers. Received "
            f"{name}={value!r}{values if wrong else ''}. One positive integer "
            "holds for all axes."
        ) from None


def pair(value: Any, name: str) -> tuple[int, int]:
    """Return two integers, before and after, neither negative."""
    both = (value, value) if isinstance(value, (int, np.integer)) else value
    try:
        low, high = (int(n) for n in both)
    except (TypeError, ValueError):
        low = high = -1
    if low < 0 or high < 0:
        raise ValueError(
            f"`{name}` must be one or two integers, none negative, got {value!r}."
        )
    return low, high


def pairs(value: Any, rank: int, name: str) -> tuple[tuple[int, int], ...]:
    """Return (before, after) per spatial axis from a number, numbers or pairs."""
    each = (value,) * rank if isinstance(value, (int, np.integer)) else value
    if not isinstance(each, (list, tuple)) or len(each) != rank:
        raise ValueError(
            f"`{name}` must be an integer, or {rank} numbers or pairs of numbers, "
            f"got {value!r}."
        )
    return tuple(pair(border, name) for border in each)


def choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """Return a known word, whatever its case."""
    if isinstance(value, str) and value.lower() in choices:
        return value.lower()
    known = ", ".join(repr(word) for word in choices)
    raise ValueError(
        f"Invalid value for argument {name}. Expected one of {{{known}}}. Received: "
        f"{name}={value}"
    )


def padding_of(value: Any, *more: str) -> str:
    """Return a known kind of padding."""
    if isinstance(value, (list, tuple)):
        raise ValueError(
            f"padding={value!r} is not supported: put a ZeroPadding layer in front and "
            "use padding='valid'."
        )
    return choice(value, "padding", ("valid", "same", *more))


def channel_axis(data_format: str) -> int:
    """Return the axis of the channels: the last, or the first after the batch."""
    return 1 if data_format == "channels_first" else -1


def spatial_axes(data_format: str, rank: int) -> tuple[int, ...]:
    """Return the axes between batch and channels, or after both."""
    start = 2 if data_format == "channels_first" else 1
    return tuple(range(start, start + rank))


def along_channels(weight: Any, data_format: str, rank: int) -> Any:
    """Return a weight per channel, in a shape that broadcasts over images."""
    if data_format == "channels_last":
        return weight
    return ops.reshape(weight, (weight.shape[0], *[1] * rank))


def channels_last(data_format: str | None) -> str:
    """Return the layout of a layer that supports a single layout; refuse the other."""
    layout = config.data_format_of(data_format)
    if layout == "channels_last":
        return layout
    raise ValueError(
        "data_format='channels_first' is not supported here: put the channels on the "
        "last axis, for example with np.moveaxis(images, 1, -1), and use "
        "'channels_last'."
    )


def known_size(layer: Layer, shape: tuple[int | None, ...], axis: int) -> int:
    """Return the size of an axis that a layer's weights depend on."""
    if not tree.is_shape(shape):
        raise ValueError(
            f'Layer "{layer.name}" takes one input, but got several: {shape}. Join '
            "them by a Concatenate or Add layer."
        )
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f'Layer "{layer.name}" works on axis {axis}, but its input has shape '
            f"{shape}."
        )
    size = shape[axis]
    if size is None:
        raise ValueError(
            f'Layer "{layer.name}": axis {axis} of the input tensor should have a '
            "defined dimension but the layer received an input with shape "
            f"{shape}: give that size in `Input(shape)`."
        )
    return size
