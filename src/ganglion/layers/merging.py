"""Layers that merge several inputs, and their functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError
from ganglion.layers.base import Layer
from ganglion.layers.norm import unit_length
from ganglion.tensors import check_mask, get_keras_mask, set_keras_mask

__all__ = [
    "Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply",
    "Subtract", "add", "average", "concatenate", "dot", "maximum", "minimum",
    "multiply", "subtract",
]  # fmt: skip
from ganglion.serialization import export


class _Merge(Layer):
    """A layer over a list of inputs; axes of size 1 are broadcast."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        is_list = isinstance(input_shape, (list, tuple)) and all(
            isinstance(shape, (list, tuple)) for shape in input_shape
        )
        if not is_list or not input_shape:
            raise ValueError(
                f'Layer "{self.name}" merges a list of inputs: call it as '
                f"{type(self).__name__}()([a, b]), got an input of shape {input_shape}."
            )
        self._check([tuple(shape) for shape in input_shape])

    def _check(self, shapes: list[tuple[int | None, ...]]) -> None:
        known = [[1 if n is None else n for n in shape[1:]] for shape in shapes]
        batches = {shape[0] for shape in shapes if shape} - {None}
        try:
            np.broadcast_shapes(*known)
        except ValueError:
            batches = {0, 1}
        if len(batches) > 1:
            raise ShapeError(
                f'Layer "{self.name}" cannot merge inputs of shapes '
                f"{', '.join(map(str, shapes))}: sizes must be equal or 1."
            )

    def call(self, inputs: Any) -> Any:
        most = max(x.ndim for x in inputs)
        return self._merge_function([_with_axes(x, most) for x in inputs])

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return where any input is valid, None unless all have masks."""
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if any(of_input is None for of_input in mask):
            return None
        return functools.reduce(ops.logical_or, mask)

    def _check_masks(self, inputs: Any, mask: Any) -> None:
        way = f'Layer "{self.name}" takes a mask for each input, None where it has none'
        for name, each in (("mask", mask), ("inputs", inputs)):
            if not isinstance(each, (list, tuple)):
                raise ValueError(f"`{name}` should be a list. {way}; got {each!r:.80}.")
        if len(inputs) != len(mask):
            raise ValueError(
                "The lists `inputs` and `mask` should have the same length. "
                f"{way}; got {len(inputs)} inputs and {len(mask)} masks."
            )

    def _merge_function(self, inputs: list[Any]) -> Any:
        """Merge the inputs: the name by which subclasses in scripts do it."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `_merge_function`."
        )


def _with_axes(x: Any, ndim: int) -> Any:
    if x.ndim == ndim:
        return x
    return ops.reshape(x, (x.shape[0], *[1] * (ndim - x.ndim), *x.shape[1:]))


@export("keras.layers")
class Add(_Merge):
    """The sum of its inputs.

    >>> import numpy as np
    >>> Add()([np.ones(2, "float32"), np.ones(2, "float32")])
    array([2., 2.], dtype=float32)
    """

    def _merge_function(self, inputs: list[Any]) -> Any:
        return functools.reduce(ops.add, inputs)


@export("keras.layers")
class Subtract(_Merge):
    """The first input minus the second.

    >>> import numpy as np
    >>> a, b = np.array([1.0, 6.0]), np.array([3.0, 2.0])
    >>> Subtract()([a, b]).numpy()
    array([-2.,  4.], dtype=float32)
    """

    def _check(self, shapes: list[tuple[int | None, ...]]) -> None:
        super()._check(shapes)
        if len(shapes) != 2:
            raise ValueError(
                f"A {type(self).__name__} layer should be called on exactly 2 inputs, "
                f'got {len(shapes)} in "{self.name}".'
            )

    def _merge_function(self, inputs: list[Any]) -> Any:
        first, second = inputs
        return first - second


@export("keras.layers")
class Multiply(_Merge):
    """The product of its inputs, element by element.

    A masked step counts as 1; where all are masked, the product is zero.

    >>> import numpy as np
    >>> a, b = np.array([1.0, 6.0]), np.array([3.0, 2.0])
    >>> Multiply()([a, b]).numpy()
    array([ 3., 12.], dtype=float32)
    """

    def _merge_function(self, inputs: list[Any]) -> Any:
        masks = [_spread_mask(self, x) for x in inputs]
        factors = [
            x if mask is None else ops.where(mask, x, 1)
            for x, mask in zip(inputs, masks, strict=True)
        ]
        product = functools.reduce(ops.multiply, factors)
        if any(mask is None for mask in masks):
            return product
        is_valid = functools.reduce(ops.logical_or, masks)
        product = ops.where(is_valid, product, 0)
        set_keras_mask(product, ops.any(is_valid, axis=-1))
        return product


def _merge_valid(layer: Layer, merge: Callable[..., Any], inputs: list[Any]) -> Any:
    """Merge inputs pairwise; where an input is masked, the other counts alone."""
    output, output_mask = inputs[0], _spread_mask(layer, inputs[0])
    for x in inputs[1:]:
        mask = _spread_mask(layer, x)
        other = x if mask is None else ops.where(mask, x, output)
        if output_mask is not None:
            output = ops.where(output_mask, output, other)
        is_known = mask is not None and output_mask is not None
        output_mask = ops.logical_or(output_mask, mask) if is_known else None
        output = merge(output, other)
    if output_mask is not None:
        set_keras_mask(output, ops.any(output_mask, axis=-1))
    return output


def _spread_mask(layer: Layer, x: Any) -> Any:
    """Return the mask of an input in the shape of the input."""
    mask = get_keras_mask(x)
    if mask is None:
        return None
    check_mask(f'Layer "{layer.name}"', mask, x, ndim=x.ndim - 1)
    return ops.broadcast_to(ops.expand_dims(mask, -1), x.shape)


@export("keras.layers")
class Average(_Merge):
    """The average of its inputs, element by element.

    >>> import numpy as np
    >>> a, b = np.array([1.0, 6.0]), np.array([3.0, 2.0])
    >>> Average()([a, b]).numpy()
    array([2., 4.], dtype=float32)
    """

    def _merge_function(self, inputs: list[Any]) -> Any:
        return functools.reduce(ops.add, inputs) / float(len(inputs))


@export("keras.layers")
class Maximum(_Merge):
    """The largest of its inputs, element by element.

    >>> import numpy as np
    >>> a, b = np.array([1.0, 6.0]), np.array([3.0, 2.0])
    >>> Maximum()([a, b]).numpy()
    array([3., 6.], dtype=float32)
    """

    def _merge_function(self, inputs: list[Any]) -> Any:
        return _merge_valid(self, ops.maximum, inputs)


@export("keras.layers")
class Minimum(_Merge):
    """The smallest of its inputs, element by element.

    >>> import numpy as np
    >>> a, b = np.array([1.0, 6.0]), np.array([3.0, 2.0])
    >>> Minimum()([a, b]).numpy()
    array([1., 2.], dtype=float32)
    """

    def _merge_function(self, inputs: list[Any]) -> Any:
        return _merge_valid(self, ops.minimum, inputs)


@export("keras.layers")
class Concatenate(_Merge):
    """Joins its inputs along an axis.

    >>> import numpy as np
    >>> a, b = np.ones((1, 2), "float32"), np.ones((1, 3), "float32")
    >>> Concatenate()([a, b]).shape
    (1, 5)
    """

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def _check(self, shapes: list[tuple[int | None, ...]]) -> None:
        ndim = len(shapes[0])
        fits = all(len(shape) == ndim for shape in shapes) and -ndim <= self.axis < ndim
        if fits:
            others = [i for i in range(ndim) if i != self.axis % ndim]
            fits = all(len({s[i] for s in shapes} - {None}) < 2 for i in others)
        if not fits:
            raise ShapeError(
                f'Layer "{self.name}", a Concatenate layer, requires inputs with '
                "matching shapes except for the concatenation axis "
                f"{self.axis}, got {', '.join(map(str, shapes))}."
            )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Merge the masks; an input without a mask is valid."""
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if all(of_input is None for of_input in mask):
            return None
        masks = [_like_input(*pair) for pair in zip(inputs, mask, strict=True)]
        return ops.any(ops.concatenate(masks, axis=self.axis), axis=-1)

    def call(self, inputs: Any) -> Any:
        return ops.concatenate(list(inputs), axis=self.axis)


def _like_input(x: Any, mask: Any) -> Any:
    """Return a mask with all axes of its input."""
    if mask is None:
        return ops.ones_like(x, dtype="bool")
    if len(mask.shape) == len(x.shape):
        return mask
    return ops.logical_or(ops.expand_dims(mask, -1), ops.zeros_like(x, dtype="bool"))


@export("keras.layers")
class Dot(_Merge):
    """Sums the products of two inputs along an axis of each.

    >>> import numpy as np
    >>> a, b = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    >>> Dot(axes=1)([a, b]).numpy()
    array([[11.]], dtype=float32)
    """

    def __init__(self, axes: Any, normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_pair = isinstance(axes, (list, tuple)) and len(axes) == 2
        if not isinstance(axes, int) and not (
            is_pair and all(isinstance(axis, int) for axis in axes)
        ):
            raise ValueError(f"`axes` must be one or two integers, got {axes!r}.")
        self.axes = axes
        self.normalize = normalize

    def _pair(self, shapes: list[Any]) -> tuple[int, int]:
        both = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        first, second = (
            axis % len(shape) if -len(shape) <= axis < len(shape) else 0
            for axis, shape in zip(both, shapes, strict=True)
        )
        return first, second

    def _check(self, shapes: list[tuple[int | None, ...]]) -> None:
        if len(shapes) != 2:
            raise ValueError(
                f"A {type(self).__name__} layer should be called on exactly 2 inputs, "
                f'got {len(shapes)} in "{self.name}".'
            )
        a, b = self._pair(shapes)
        sizes = {shapes[0][a], shapes[1][b]} - {None}
        if a == 0 or b == 0 or len(sizes) > 1:
            raise ShapeError(
                f'Layer "{self.name}" cannot sum over axes {self.axes} of inputs of '
                f"shapes {shapes[0]} and {shapes[1]}: the axes must exist, must not be "
                "the batch, and their sizes must be equal."
            )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None

    def call(self, inputs: Any) -> Any:
        x, y = inputs
        a, b = self._pair([x.shape, y.shape])
        if self.normalize:
            x = unit_length(x, a, config.epsilon())
            y = unit_length(y, b, config.epsilon())
        x, y = ops.moveaxis(x, a, -1), ops.moveaxis(y, b, 1)
        (rows, *left, inner), right = x.shape, y.shape[2:]
        product = ops.matmul(
            ops.reshape(x, (rows, math.prod(left), inner)),
            ops.reshape(y, (rows, inner, math.prod(right))),
        )
        return ops.reshape(
            product, (rows, *left, *right) if left or right else (rows, 1)
        )


class _Function(Protocol):
    def __call__(self, inputs: Any, **kwargs: Any) -> Any: ...


def _function_of(cls: type[Layer]) -> _Function:
    """Return the function of a layer that needs no arguments, such as `add`."""

    def merge(inputs: Any, **kwargs: Any) -> Any:
        return cls(**kwargs)(inputs)

    merge.__name__ = merge.__qualname__ = cls.__name__.lower()
    merge.__doc__ = f"Call `{cls.__name__}` on a list of inputs."
    return merge


add, subtract, multiply = map(_function_of, (Add, Subtract, Multiply))
average, maximum, minimum = map(_function_of, (Average, Maximum, Minimum))


def concatenate(inputs: Any, axis: int = -1, **kwargs: Any) -> Any:
    """Call `Concatenate` on a list of inputs."""
    return Concatenate(axis=axis, **kwargs)(inputs)


def dot(inputs: Any, axes: Any = -1, **kwargs: Any) -> Any:
    """Call `Dot` on two inputs."""
    return Dot(axes=axes, **kwargs)(inputs)
