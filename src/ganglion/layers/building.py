"""Building: the shapes `build` is called with, and when a layer counts as built."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Value
from ganglion.symbolic import KerasTensor
from ganglion.variables import suspended


def by_calling(build: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `build` that calls the layers below: it says itself when it is done."""
    build.by_calling = True  # type: ignore[attr-defined]
    return build


def builds_by_calling(build: Callable[..., Any]) -> bool:
    """Return whether a `build` is marked so."""
    return getattr(build, "by_calling", False)


def counting(build: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `build` that a script calls by hand count as building the layer."""

    @functools.wraps(build)
    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        if self._building:  # by `_build_once`, or this is `super().build(...)`
            build(self, *args, **kwargs)
            return
        self._building = True
        try:
            with suspended(), origin.inside(self.name, self.created):
                build(self, *args, **kwargs)
        finally:
            self._building = False
        self.built = True
        if len(args) == 1:
            self._build_shape = unwrapped(args[0])

    return counted


class ShapeLeaf(tuple):
    """A shape as a leaf, so that a list of inputs becomes a list of shapes."""


def shape_of(leaf: Any) -> Any:
    """Return the shape of an input; the batch of a traced one may be any."""
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return leaf
    unknown_batch = isinstance(leaf, Value) and len(shape) > 0
    return ShapeLeaf((None, *shape[1:]) if unknown_batch else shape)


def unwrapped(shapes: Any) -> Any:
    """Return shapes as plain tuples, as `build` takes them."""
    if isinstance(shapes, ShapeLeaf):
        return tuple(shapes)
    if isinstance(shapes, dict):
        return {key: unwrapped(one) for key, one in shapes.items()}
    if isinstance(shapes, (list, tuple)) and any(
        isinstance(one, (list, tuple, dict)) for one in shapes
    ):
        return [unwrapped(one) for one in shapes]
    return tuple(shapes) if isinstance(shapes, list) else shapes


def as_shapes(shape: Any) -> Any:
    """Turn the nested lists of a JSON file back into shapes."""
    if isinstance(shape, dict):
        return {key: as_shapes(one) for key, one in shape.items()}
    if isinstance(shape, (list, tuple)) and any(
        isinstance(one, (list, tuple)) for one in shape
    ):
        return [as_shapes(one) for one in shape]
    return ShapeLeaf(shape)


def tensors_of(shapes: Any) -> Any:
    """Return Keras tensors of these shapes."""
    nested = isinstance(shapes, list) and isinstance(shapes[0], (list, tuple))
    if nested:
        return [KerasTensor(one) for one in shapes]
    return KerasTensor(shapes)


def shapes_of(structure: Any) -> Any:
    """Return the shape(s) of Keras tensors, nested as they are."""
    if isinstance(structure, KerasTensor):
        return structure.shape
    if isinstance(structure, dict):
        return {key: shapes_of(one) for key, one in structure.items()}
    return [shapes_of(one) for one in structure]
