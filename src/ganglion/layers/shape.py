"""Layers that only move elements: flatten, reshape, permute, repeat, pad, crop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.graph import ShapeError
from ganglion.layers.arguments import channels_last, pair, pairs, positive
from ganglion.layers.base import Layer
from ganglion.layers.inputspec import InputSpec
from ganglion.serialization import export


@export("keras.layers")
class Flatten(Layer):
    """Puts all elements of a sample into one row.

    >>> import numpy as np
    >>> Flatten()(np.ones((2, 3, 4), "float32")).shape
    (2, 12)
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = channels_last(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        rows, *rest = inputs.shape
        return ops.reshape(inputs, (rows, math.prod(rest)))


@export("keras.layers")
class Reshape(Layer):
    """Gives each sample a new shape; one size may be -1 (or None).

    >>> import numpy as np
    >>> Reshape((2, -1))(np.ones((5, 6), "float32")).shape
    (5, 2, 3)
    """

    built_at_once = True

    def __init__(self, target_shape: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_one = isinstance(target_shape, (int, np.integer))
        shape = (target_shape,) if is_one else tuple(target_shape)
        unknown = [n for n in shape if n is None or n == -1]
        if len(unknown) > 1 or any(n is not None and n < -1 for n in shape):
            raise ValueError(
                "`target_shape` must hold whole numbers, at most one of them -1, got "
                f"{target_shape!r}."
            )
        self.target_shape = tuple(-1 if n is None else int(n) for n in shape)

    def call(self, inputs: Any) -> Any:
        rows, *rest = inputs.shape
        size, known = (
            math.prod(rest),
            math.prod(n for n in self.target_shape if n != -1),
        )
        fits = size % known == 0 if -1 in self.target_shape and known else size == known
        if not fits:
            raise ShapeError(
                f'Layer "{self.name}" cannot reshape samples of shape {tuple(rest)} '
                f"({size} elements) into {self.target_shape}."
            )
        sizes = [size // known if n == -1 else n for n in self.target_shape]
        return ops.reshape(inputs, (rows, *sizes))


@export("keras.layers")
class Permute(Layer):
    """Reorders the axes of each sample, which count from one."""

    def __init__(self, dims: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(
                f"`dims` must hold each of 1 ... {len(self.dims)} once, got {dims!r}."
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Any) -> Any:
        return ops.transpose(inputs, (0, *self.dims))


@export("keras.layers")
class RepeatVector(Layer):
    """Repeats each row n times: (batch, size) becomes (batch, n, size)."""

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = positive(n, "n")
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Any:
        rows, size = inputs.shape
        return ops.broadcast_to(ops.expand_dims(inputs, 1), (rows, self.n, size))


class _Border(Layer):
    """A layer that adds or takes away elements before and after each spatial axis."""

    rank = 0

    def _set_format(self, data_format: str | None) -> None:
        self.data_format = channels_last(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)


class _ZeroPadding(_Border):
    padding: Any

    def call(self, inputs: Any) -> Any:
        added = [self.padding] if self.rank == 1 else self.padding
        return ops.pad(inputs, ((0, 0), *added, (0, 0)))


class _Cropping(_Border):
    cropping: Any

    def call(self, inputs: Any) -> Any:
        cropping = [self.cropping] if self.rank == 1 else self.cropping
        spatial = inputs.shape[1:-1]
        for (low, high), size in zip(cropping, spatial, strict=True):
            if low + high >= size:
                raise ShapeError(
                    f'Layer "{self.name}" crops {self.cropping} from an input of shape '
                    f"{inputs.shape}: nothing would be left."
                )
        ends = zip(cropping, spatial, strict=True)
        spans = tuple(slice(low, size - high) for (low, high), size in ends)
        return inputs[(slice(None), *spans, slice(None))]


@export("keras.layers")
class ZeroPadding1D(_ZeroPadding):
    """Adds zeros before and after the steps."""

    rank = 1

    def __init__(
        self, padding: Any = 1, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.padding = pair(padding, "padding")
        self._set_format(data_format)


@export("keras.layers")
class ZeroPadding2D(_ZeroPadding):
    """Adds zeros around images.

    >>> import numpy as np
    >>> ZeroPadding2D(((1, 0), (2, 2)))(np.ones((1, 4, 4, 3), "float32")).shape
    (1, 5, 8, 3)
    """

    rank = 2

    def __init__(
        self, padding: Any = (1, 1), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.padding = pairs(padding, 2, "padding")
        self._set_format(data_format)


@export("keras.layers")
class ZeroPadding3D(_ZeroPadding):
    """Adds zeros around volumes."""

    rank = 3

    def __init__(
        self,
        padding: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.padding = pairs(padding, 3, "padding")
        self._set_format(data_format)


@export("keras.layers")
class Cropping1D(_Cropping):
    """Takes away steps at the start and the end."""

    rank = 1

    def __init__(self, cropping: Any = (1, 1), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cropping = pair(cropping, "cropping")
        self._set_format(None)


@export("keras.layers")
class Cropping2D(_Cropping):
    """Takes away the borders of images."""

    rank = 2

    def __init__(
        self,
        cropping: Any = ((0, 0), (0, 0)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cropping = pairs(cropping, 2, "cropping")
        self._set_format(data_format)


@export("keras.layers")
class Cropping3D(_Cropping):
    """Takes away the borders of volumes."""

    rank = 3

    def __init__(
        self,
        cropping: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cropping = pairs(cropping, 3, "cropping")
        self._set_format(data_format)
