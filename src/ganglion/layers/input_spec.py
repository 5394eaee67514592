"""InputSpec: the inputs that a layer accepts, checked before it is built and called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import ShapeError

_IN_CONFIG = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes", "optional")


class InputSpec:
    """The inputs that a layer accepts: a type, a number of axes, and fixed sizes.

    >>> InputSpec(ndim=4, axes={-1: 3})
    InputSpec(ndim=4, axes={-1: 3})
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype = None if dtype is None else np.dtype(dtype).name
        self.shape = None if shape is None else tuple(shape)
        self.ndim = ndim if self.shape is None else len(self.shape)
        self.max_ndim, self.min_ndim = max_ndim, min_ndim
        self.axes = _axes_from(axes, self.ndim or max_ndim)
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name, self.optional = name, optional

    def __repr__(self) -> str:
        values = {k: v for k, v in self.get_config().items() if v is not None and v}
        return f"InputSpec({', '.join(f'{k}={v}' for k, v in values.items())})"

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create an equal spec, as Keras writes them."""
        return {name: getattr(self, name) for name in _IN_CONFIG}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """Return a spec from the result of `get_config`."""
        return cls(**config)

    def refusal(self, shape: tuple[int | None, ...]) -> str | None:
        """Return why a shape does not fit, in Keras' words; None if it does."""
        actual = f"found ndim={len(shape)}"
        if self.ndim is not None and len(shape) != self.ndim:
            return f"expected ndim={self.ndim}, {actual}"
        if self.max_ndim is not None and len(shape) > self.max_ndim:
            return f"expected max_ndim={self.max_ndim}, {actual}"
        if self.min_ndim is not None and len(shape) < self.min_ndim:
            return f"expected min_ndim={self.min_ndim}, {actual}"
        for axis, size in self.axes.items():
            if not -len(shape) <= axis < len(shape):
                return f"expected an axis {axis}, {actual}"
            if None not in (size, shape[axis]) and shape[axis] != size:
                return f"expected axis {axis} of input shape to have value {size}"
        if any(
            None not in pair and len({*pair}) > 1
            for pair in zip(self.shape or (), shape, strict=False)
        ):
            return f"expected shape={self.shape}, found shape={shape}"
        return None


def _axes_from(axes: Any, ndim: int | None) -> dict[int, Any]:
    """Return sizes by their axes, as integers."""
    try:
        sizes = {int(axis): size for axis, size in dict(axes or {}).items()}
    except (TypeError, ValueError):
        raise TypeError(
            f"`axes` of an InputSpec must be a dictionary of sizes by the numbers of "
            f"their axes, got {axes!r}."
        ) from None
    if ndim is not None and any(axis >= ndim for axis in sizes):
        raise ValueError(
            f"`axes` {axes!r} names more axes than the {ndim} of the input."
        )
    return sizes


def check_inputs(specs: Any, inputs: Any, name: str, created: origin.Origin) -> None:
    """Refuse inputs that the specs of the layer of this name do not allow."""
    expected = tree.flatten(specs)
    is_mapping = isinstance(inputs, Mapping)
    values = _by_name(expected, inputs, name) if is_mapping else tree.flatten(inputs)
    if len(values) != len(expected):
        way = "Join several into one by a Concatenate or Add layer."
        raise ValueError(
            f'Layer "{name}" takes {len(expected)} input(s), but got {len(values)}'
            f"{_where(created)}."
            f"{f' {way}' if len(expected) == 1 else ''}"
        )
    for number, (spec, value) in enumerate(zip(expected, values, strict=True)):
        if spec is None or (value is None and spec.optional):
            continue
        if not hasattr(value, "shape"):
            raise ValueError(
                f'Input {number} of layer "{name}" is not an array or tensor but '
                f"{value!r:.80}{_where(created)}."
            )
        _check(spec, value, f'Input {number} of layer "{name}"', created)


def _where(created: origin.Origin) -> str:
    """Return the line at which a layer was created, for messages."""
    return f" ({created})" if created.file else ""


def _by_name(specs: list[Any], inputs: Mapping[Any, Any], layer: str) -> list[Any]:
    """Return the inputs in the order of their specs."""
    names = [getattr(spec, "name", None) for spec in specs]
    if not all(names):
        return tree.flatten(inputs)
    missing = [name for name in names if name not in inputs]
    if missing:
        raise ValueError(
            f'Layer "{layer}" got no data for the input(s) '
            f"{', '.join(map(str, missing))}: its dictionary has the keys "
            f"{', '.join(map(str, inputs))}."
        )
    return [inputs[name] for name in names]


def _check(spec: InputSpec, value: Any, what: str, created: origin.Origin) -> None:
    shape = tuple(value.shape)
    if spec.allow_last_axis_squeeze and len(shape) == (spec.ndim or 0) + 1:
        shape = shape[:-1] if shape[-1] == 1 else shape
    refusal = spec.refusal(shape)
    if refusal:
        raise ShapeError(
            f"{what} is incompatible with the layer: {refusal}. Full shape received: "
            f"{tuple(value.shape)}{_where(created)}."
        )
    if spec.dtype is not None and np.dtype(value.dtype) != np.dtype(spec.dtype):
        raise ValueError(
            f"{what} has the type {value.dtype}, but {spec.dtype} is expected"
            f"{_where(created)}."
        )
